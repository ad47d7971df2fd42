"""Lines as small as a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.telling import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["HIGH", "WIDE", "sparkline"]

WIDE, HIGH = 120, 28
"""Size of the line's box, in the units of its path."""
_EDGE = 2


def sparkline(series: Sequence[float | None]) -> str:
    """Return the SVG path of numbers through time, from 0 to the largest; a number that is not known leaves a gap.

    '' where there is no line to draw, see `tracekit.report.telling.runs`; the page's script draws by the same rule.

    Examples
    --------
    >>> sparkline([0, 1, None, 2])
    'M0.0 26.0L40.0 14.0M120.0 2.0h0.01'
    >>> sparkline([None, 2]), sparkline([0, 0])
    ('', '')
    """
    if not runs(series):
        return ""
    most = max((value for value in series if value is not None), default=0)
    step = WIDE / max(len(series) - 1, 1)
    path, drawing = "", False
    for i, value in enumerate(series):
        if value is None:
            drawing = False
            continue
        y = HIGH - _EDGE - value / most * (HIGH - 2 * _EDGE)
        alone = not drawing and (i + 1 == len(series) or series[i + 1] is None)
        path += f"{'L' if drawing else 'M'}{i * step:.1f} {y:.1f}{'h0.01' if alone else ''}"
        drawing = True
    return path
