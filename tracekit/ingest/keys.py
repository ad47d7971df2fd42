"""Find records that repeat the key of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SeenKeys"]


class SeenKeys:
    """Finds records that repeat the key of an earlier one.

    Keys that only rise, as most logs number their jobs, need no memory beyond the last one; from the first
    key that does not, the keys are held in a set.
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = list(key)
        self._risen: list[pl.Series] = []
        self._last: int | None = None
        self._seen: set[Any] | None = None

    def repeats(self, frame: pl.DataFrame, usable: NDArray[np.bool_]) -> list[int]:
        """Return the rows of `frame` whose key was seen before, among the usable ones."""
        keys = frame.select(self._key).filter(pl.Series(usable))
        single = keys.to_series() if len(self._key) == 1 else None
        if single is not None and self._seen is None and single.dtype == pl.Int64 and self._rises(single):
            return []
        values = single.to_list() if single is not None else keys.rows()
        seen = self._as_set()
        fresh = set(values)
        if len(fresh) == len(values) and seen.isdisjoint(fresh):
            seen |= fresh
            return []
        found = []
        for row, value in zip(np.flatnonzero(usable), values, strict=True):
            if value in seen:
                found.append(int(row))
            seen.add(value)
        return found

    def _rises(self, keys: pl.Series) -> bool:
        if not len(keys):
            return True
        rises = bool((keys.diff().drop_nulls() > 0).all()) and (self._last is None or keys[0] > self._last)
        if rises:
            self._risen.append(keys)
            self._last = keys[-1]
        return rises

    def _as_set(self) -> set[Any]:
        if self._seen is None:
            self._seen = set()
            for keys in self._risen:
                self._seen.update(keys.to_list())
            self._risen.clear()
        return self._seen
