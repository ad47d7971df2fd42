"""Find records that repeat the key of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SeenKeys:
    """Finds records that repeat the key of an earlier one.

    While keys only rise, as the job numbers of most logs do, the last one is enough. From the first key that does not
    rise, a set of hashes is kept; from the first repeated hash, a set of the keys themselves.
    """

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = list(key)
        self._kept: list[pl.DataFrame] = []
        self._last: int | None = None
        self._hashes: set[int] | None = None
        self._seen: set[Any] | None = None

    def repeats(self, frame: pl.DataFrame, usable: NDArray[np.bool_]) -> list[int]:
        """Return the rows of `frame` whose key was seen before, among the usable ones."""
        keys = frame.select(self._key).filter(pl.Series(usable))
        if self._seen is None:
            if (self._hashes is None and self._rises(keys)) or self._is_fresh(keys):
                self._kept.append(keys)
                return []
            self._seen = {row for kept in self._kept for row in kept.rows()}
            self._kept.clear()
        found = []
        for row, value in zip(np.flatnonzero(usable), keys.rows(), strict=True):
            if value in self._seen:
                found.append(int(row))
            self._seen.add(value)
        return found

    def _rises(self, keys: pl.DataFrame) -> bool:
        single = keys.to_series() if len(self._key) == 1 else None
        if single is None or single.dtype != pl.Int64:
            return False
        if not len(single):
            return True
        rises = bool((single.diff().drop_nulls() > 0).all()) and (self._last is None or single[0] > self._last)
        if rises:
            self._last = single[-1]
        return rises

    def _is_fresh(self, keys: pl.DataFrame) -> bool:
        """Return whether no hash of the keys came before; add them if so."""
        if self._hashes is None:
            self._hashes = {value for kept in self._kept for value in _hashes(kept)}
        hashes = _hashes(keys)
        fresh = set(hashes)
        if len(fresh) < len(hashes) or not self._hashes.isdisjoint(fresh):
            return False
        self._hashes |= fresh
        return True


def _hashes(keys: pl.DataFrame) -> list[int]:
    return keys.hash_rows(seed=1).to_list()
