"""An interpreter of compiled functions that refuses what compiled code would do in silence."""

from __future__ import annotations

import functools
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tracekit.replay.engine import interpreted
from tracekit.replay.engine.entrances import interpreting

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["strictly_interpreted"]

_usual_rows, _usual_numbers = interpreted._rows_of, interpreted._numbers


class _Numbers:
    """An array whose indices are within its bounds, and not negative."""

    def __init__(self, array: Any) -> None:
        self._cells = _usual_numbers(array)
        self.shape = array.shape

    def _checked(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        for place, size in zip(places, self.shape, strict=True):
            if not 0 <= place < size:
                raise IndexError(f"place {index} of {self.shape}")
        return index

    def __getitem__(self, index: Any) -> Any:
        return self._cells[self._checked(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._cells[self._checked(index)] = value
        if self._cells[index] != value:
            raise OverflowError(f"{value!r} became {self._cells[index]!r}")

    def __len__(self) -> int:
        return len(self._cells)


@functools.cache
def _strict_rows(dtype: Any) -> Any:
    usual = _usual_rows(dtype)

    class Record(usual.record):  # type: ignore[misc,name-defined]  # made at run time
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if getattr(self, name) != value:
                raise OverflowError(f"{name} = {value!r} became {getattr(self, name)!r}")

    return type("StrictRows", (usual,), {"record": Record})


@contextmanager
def strictly_interpreted() -> Iterator[None]:
    """Interpret, and raise where an index is out of bounds, a number does not fit, or numpy warns."""
    with (
        patch.object(interpreted, "_numbers", _Numbers),
        patch.object(interpreted, "_rows_of", _strict_rows),
        warnings.catch_warnings(),
        interpreting(),
    ):
        warnings.simplefilter("error", RuntimeWarning)
        yield
