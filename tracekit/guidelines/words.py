"""Numbers and names as the pages of guidelines show them."""

from __future__ import annotations

import math

__all__ = ["shown", "span", "visible"]

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def visible(text: str, limit: int = 60) -> str:
    r"""Return a name from a log with every character that does not print spelled out, and cut.

    Examples
    --------
    >>> visible("a\tb"), visible("abcdef", 4)
    ('a\\tb', 'abc…')
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


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
        return f"{100 * value:.1f} %"
    if unit == "percent":
        return f"{value:.1f} points"
    if unit == "s":
        return _duration(value)
    if unit == "ratio":
        return _count(value)
    return f"{_count(value)} {unit.removesuffix('s') if value == 1 else unit}"


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


def _duration(seconds: float) -> str:
    for size, unit in _UNITS:
        if abs(seconds) >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds else "0 s"


def _count(value: float) -> str:
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
