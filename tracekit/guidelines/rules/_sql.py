"""SQL that several guidelines share."""

from __future__ import annotations


def day_of(column: str) -> str:
    """Return the SQL of the day of a time, as a number of days after 1970."""
    return f"date_diff('day', DATE '1970-01-01', CAST({column} AS DATE))"
