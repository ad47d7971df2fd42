"""Write CSV that is safe to open in a spreadsheet, which runs cells that look like formulas.

A string that begins like a formula gets a leading single quote, and a list is written as JSON. CSV for programs
contains the unchanged values.
"""

from __future__ import annotations

import polars as pl

_FORMULA = r"^(?:[\t\r\n]|[\s\p{Cc}\p{Cf}]*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])"
"""Polars regular expression for the beginning of a string that a spreadsheet takes for a formula.

It matches the signs = + - @, also after blanks and invisible characters. Full-width signs match, because East Asian
editions treat them like plain ones. So do a tab, carriage return and line feed, after which a new cell would begin.
"""


def csv_safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a quote before every string in `frame` that a spreadsheet would run, and write lists as JSON."""
    import orjson

    flat = frame.with_columns(
        pl.Series(
            n, [None if v is None else orjson.dumps(v, default=str).decode() for v in frame[n].to_list()], pl.String
        )
        for n, kind in frame.schema.items()
        if kind.is_nested()
    )
    return _quoted(flat, _FORMULA)[0]


def guarded(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return `frame` with a quote before every string that begins like a formula, and the number of quotes added.

    Removing one leading quote restores any string: a string that begins with a quote gets a second one.
    """
    return _quoted(frame, rf"^'|{_FORMULA}")


def _quoted(frame: pl.DataFrame, begin: str) -> tuple[pl.DataFrame, int]:
    """Return `frame` with a quote before every string that begins like `begin`, and the number of quotes added."""
    risky = {n: pl.col(n).str.contains(begin) for n, kind in frame.schema.items() if kind == pl.String}
    count = sum(frame.select(test.sum() for test in risky.values()).row(0)) if risky else 0
    if not count:
        return frame, 0
    return frame.with_columns(
        pl.when(test).then("'" + pl.col(n)).otherwise(pl.col(n)).alias(n) for n, test in risky.items()
    ), int(count)
