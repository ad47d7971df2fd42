"""CSV for people: they open it in a spreadsheet, which runs a cell that looks like a formula.

A text that begins like one (`tracekit.text.RUN_BY_SPREADSHEETS`) gets a single quote in front, and lists are written as
JSON. CSV for programs holds the values as they are.
"""

from __future__ import annotations

import polars as pl

from tracekit.text import RUN_BY_SPREADSHEETS


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
    return flat.with_columns(
        pl.when(pl.col(n).str.contains(RUN_BY_SPREADSHEETS)).then("'" + pl.col(n)).otherwise(pl.col(n)).alias(n)
        for n, kind in flat.schema.items()
        if kind == pl.String
    )
