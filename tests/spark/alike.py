"""Compare two answers to the same question, with rows in the same order and numbers equal to 1e-9."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

__all__ = ["alike", "difference"]

NEAR = 1e-9


def difference(one: pl.DataFrame, other: pl.DataFrame) -> str | None:
    """Return the first difference between two frames, or None if there is none."""
    if one.schema != other.schema:
        return f"columns {one.schema} against {other.schema}"
    if one.height != other.height:
        return f"{one.height} rows against {other.height}"
    for number, (mine, yours) in enumerate(zip(one.rows(), other.rows(), strict=True)):
        for name, a, b in zip(one.columns, mine, yours, strict=True):
            if not alike(a, b):
                return f"row {number}, {name}: {a!r} against {b!r}"
    return None


def alike(a: Any, b: Any) -> bool:
    """Return whether two values are the same, or are numbers equal to within 1e-9."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b or abs(a - b) <= NEAR * max(abs(a), abs(b))
    return bool(a == b)
