"""Units that a column may be stated in, and numbers with a unit, such as 16Gi."""

from __future__ import annotations

import polars as pl

_COUNT = {"percent": 0.01, "milli": 0.001}
_GIB = 2.0**-30

FACTORS: dict[str, dict[str, float]] = {
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "d": 86400},
    "GiB": {
        "B": _GIB,
        "KiB": 2.0**-20,
        "MiB": 2.0**-10,
        "GiB": 1,
        "TiB": 1024,
        "KB": 1e3 * _GIB,
        "MB": 1e6 * _GIB,
        "GB": 1e9 * _GIB,
        "TB": 1e12 * _GIB,
    },
    "percent": {"percent": 1, "share": 100},
    "W": {"W": 1, "mW": 1e-3, "kW": 1e3},
    "GPUs": {"GPUs": 1, **_COUNT},
    "cores": {"cores": 1, **_COUNT},
}
"""Factor to the unit of a Trace, by that unit and by the unit stated."""

TEXT_UNITS = {"s": "clock", "GiB": "quantity", "GPUs": "quantity", "cores": "quantity"}
"""Notations that are text: clock is 1-02:03:04 for durations, quantity is 16Gi or 500m for amounts."""

_BYTES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_MEMORY = {
    **{
        word + end: factor * _GIB
        for table in (_BYTES, _BINARY)
        for word, factor in table.items()
        for end in ("", "b", "bytes")
    },
    "": _GIB,
    "b": _GIB,
    "byte": _GIB,
    "bytes": _GIB,
}


def units_of(unit: str | None) -> list[str]:
    """Return the units that may be stated for a column whose unit is `unit`."""
    if unit not in FACTORS:
        return []
    return [*FACTORS[unit], *([TEXT_UNITS[unit]] if unit in TEXT_UNITS else [])]


def clock_seconds(text: pl.Series) -> pl.Series:
    """Return durations such as 1-02:03:04, 02:03:04 or 03:04.5 in seconds; NULL for any other text."""
    parts = text.str.extract_groups(r"^\s*(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*$").struct.unnest()
    days, hours, minutes, seconds = (parts.to_series(i).cast(pl.Float64) for i in range(4))
    return days.fill_null(0.0) * 86400 + hours.fill_null(0.0) * 3600 + minutes * 60 + seconds


def quantity(text: pl.Series, unit: str) -> pl.Series:
    """Return amounts such as 16Gi, 4096 MB or 500m in `unit`; NULL for any other text.

    For memory a bare number counts bytes, and K, M, G are powers of ten, as in Kubernetes. For GPUs and cores
    m is a thousandth and k a thousand.
    """
    parts = text.str.extract_groups(r"^\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*$").struct.unnest()
    words = parts.to_series(1)
    if unit == "GiB":
        words, factors = words.str.to_lowercase(), _MEMORY
    else:
        factors = {"": 1.0, "m": 1e-3, "k": 1e3}
    factor = words.replace_strict(factors, default=None, return_dtype=pl.Float64)
    return parts.to_series(0).cast(pl.Float64, strict=False) * factor
