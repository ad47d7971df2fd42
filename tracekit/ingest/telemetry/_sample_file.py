"""Samples between reading and joining: a plain file of numbers, with a list of the runs of samples in it.

Readers give samples series by series, which is nearly the order in which they are joined: machine by machine. A list of
runs, in memory, finds the samples of a machine without a sort of all of them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

_BYTES = 8
"""Of a time, and of a value."""


class SampleFile:
    """Runs of samples, each of one series, with times and values side by side.

    Parameters
    ----------
    path : Path
        Where the numbers are written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._series, self._counts = array("q"), array("q")
        self._firsts, self._lasts = array("q"), array("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, series: int, times: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Append samples of a series; times in microseconds since 1970."""
        if not len(times):
            return
        if (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
        self._file.write(np.ascontiguousarray(times, dtype=np.int64).data)
        self._file.write(np.ascontiguousarray(values, dtype=np.float64).data)
        for column, number in (
            (self._series, series),
            (self._counts, len(times)),
            (self._firsts, times[0]),
            (self._lasts, times[-1]),
        ):
            column.append(int(number))

    def runs(self) -> pl.DataFrame:
        """Return the runs: series, offset (samples before it), count, first and last time."""
        columns = {
            "series": self._series, "count": self._counts, "first": self._firsts, "last": self._lasts
        }  # fmt: skip
        frame = pl.DataFrame({name: np.array(column, dtype=np.int64) for name, column in columns.items()})
        return frame.with_columns(offset=pl.col("count").cum_sum() - pl.col("count"))

    def read(self, offsets: Iterable[int], counts: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return times and values of runs, one after the other."""
        spans = list(zip(offsets, counts, strict=True))
        total = sum(count for _, count in spans)
        times, values = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.float64)
        at = 0
        for offset, count in spans:
            self._file.seek(2 * _BYTES * offset)
            self._file.readinto(times[at : at + count].data)
            self._file.readinto(values[at : at + count].data)
            at += count
        return times, values
