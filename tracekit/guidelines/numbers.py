"""Numbers with their units, for the sentences of guidelines."""

from __future__ import annotations

import math

from tracekit.text import count, duration, percent


def shown(value: float | None, unit: str) -> str:
    """Return a number with its unit.

    Examples
    --------
    >>> shown(0.123, "share"), shown(5.25, "percent"), shown(7560, "s"), shown(1234.5, "GPU-hours")
    ('12.3 %', '5.2 points', '2.1 h', '1,234 GPU-hours')
    >>> shown(2.5, "ratio"), shown(None, "share"), shown(1, "nodes")
    ('2.5', 'unknown', '1 node')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if unit == "share":
        return percent(value)
    if unit == "percent":
        return f"{value:.1f} points"
    if unit == "s":
        return duration(value)
    if unit == "ratio":
        return count(value)
    return f"{count(value)} {unit.removesuffix('s') if value == 1 else unit}"


def span(low: float, high: float, unit: str) -> str:
    """Return an interval with its unit once.

    Examples
    --------
    >>> span(0.1, 0.25, "share"), span(1, 2, "ratio"), span(60, 7200, "s")
    ('10.0 to 25.0 %', '1 to 2', '1 min to 2 h')
    """
    first, last = shown(low, unit), shown(high, unit)
    word = last.rpartition(" ")[2]
    same = unit != "s" and " " in last and first.endswith(f" {word}")
    return f"{first.removesuffix(f' {word}') if same else first} to {last}"
