"""CSV that people open in a spreadsheet, which runs a cell that looks like a formula.

A text that begins like one gets a single quote in front, and lists are written as JSON. CSV for programs holds the
values as they are.
"""

from __future__ import annotations

import polars as pl

_FORMULA = r"^(?:[\t\r\n]|[\s\p{Cc}\p{Cf}]*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])"
"""How a text begins that a spreadsheet takes for a formula, as a regular expression of Polars.

The signs = + - @, plain or full-width (which East Asian editions treat alike), also after blanks and invisible
characters; and a tab, carriage return or line feed, after which a new cell would begin.
"""


def csv_safe(frame: pl.DataFrame) -> pl.DataFrame:
    """Return `frame` with every text that a spreadsheet would run quoted, and every list as JSON text."""
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
    """Return `frame` with a single quote before every text that begins like a formula, and how many there are.

    Taking one leading quote away gives every text back, since texts that begin with a quote get another one.
    """
    return _quoted(frame, rf"^'|{_FORMULA}")


def _quoted(frame: pl.DataFrame, begin: str) -> tuple[pl.DataFrame, int]:
    """Return `frame` with a quote before every text that begins like a pattern, and how many there are."""
    risky = {n: pl.col(n).str.contains(begin) for n, kind in frame.schema.items() if kind == pl.String}
    count = sum(frame.select(test.sum() for test in risky.values()).row(0)) if risky else 0
    if not count:
        return frame, 0
    return frame.with_columns(
        pl.when(test).then("'" + pl.col(n)).otherwise(pl.col(n)).alias(n) for n, test in risky.items()
    ), int(count)
