"""Run compiled functions as the Python they are written in.

Records become objects with one attribute a field, over the memory of the array, and numbers become those of Python:
both are several times faster to interpret than numpy's. Bits stay numpy's uint64, which know how wide they are.

A function is interpreted as a twin: the same code in a copy of its module's names, in which the compiled functions are
twins too.
"""

from __future__ import annotations

import ctypes
import functools
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba.core.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Choice", "Rows", "interpretable", "interpreted", "readable"]

F = TypeVar("F", bound="Callable[..., Any]")

_KINDS = {
    "b": ctypes.c_bool,
    "i1": ctypes.c_int8,
    "i2": ctypes.c_int16,
    "i4": ctypes.c_int32,
    "i8": ctypes.c_int64,
    "u1": ctypes.c_uint8,
    "u2": ctypes.c_uint16,
    "u4": ctypes.c_uint32,
    "u8": ctypes.c_uint64,
    "f8": ctypes.c_double,
}
_BITS = np.dtype(np.uint64)


class _Row(ctypes.Structure):
    """A record; fields are attributes, and may be asked for by name too."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class Rows(dict[Any, Any]):
    """An array of records by index; rows are made when they are first asked for, negative indices are refused."""

    record: type[ctypes.Structure]
    fields: frozenset[str]

    def __init__(self, array: Any) -> None:
        super().__init__()
        self._array = array  # keeps the memory
        self._address, (self._stride,) = array.ctypes.data, array.strides

    def __missing__(self, index: Any) -> Any:
        if not 0 <= index < len(self._array):
            raise IndexError(f"row {index} of {len(self._array)}")
        row = self.record.from_address(self._address + int(index) * self._stride)
        super().__setitem__(int(index), row)
        return row

    def __setitem__(self, index: Any, row: Any) -> None:
        # Whoever has the row that was there sees the new values.
        ctypes.memmove(ctypes.byref(self[index]), ctypes.byref(row), self._stride)

    def __len__(self) -> int:
        return len(self._array)


class Columns:
    """An array of two dimensions: by two indices a number, by one a row."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._cells: Any = _numbers(array)
        self._rows: dict[int, Any] = {}

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return self._cells[index]
        if index not in self._rows:
            if not 0 <= index < len(self._array):
                raise IndexError(f"row {index} of {len(self._array)}")
            self._rows[int(index)] = _numbers(self._array[index])
        return self._rows[index]

    def __setitem__(self, index: tuple[int, int], value: Any) -> None:
        self._cells[index] = value

    def __len__(self) -> int:
        return len(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        shape: tuple[int, ...] = self._array.shape
        return shape


@functools.cache
def _rows_of(dtype: np.dtype[np.void]) -> type[Rows]:
    """Return a class of rows of a record type."""
    fields: list[tuple[str, Any]] = []
    names: dict[str, Any] = {"__slots__": ()}
    end = 0
    for name, (kind, offset, *_) in sorted(dtype.fields.items(), key=lambda item: item[1][1]):  # type: ignore[union-attr]
        if offset > end:
            fields.append((f"_{offset}", ctypes.c_byte * (offset - end)))
        end = offset + kind.itemsize
        held = f"_{name}" if kind == _BITS else name
        fields.append((held, _KINDS["b" if kind.kind == "b" else kind.str[1:]]))
        if kind == _BITS:
            names[name] = _bits(held)
    if dtype.itemsize > end:
        fields.append(("_end", ctypes.c_byte * (dtype.itemsize - end)))
    record = type("Row", (_Row,), {**names, "_pack_": 1, "_fields_": fields})
    return type("RowsOf", (Rows,), {"record": record, "fields": frozenset(dtype.names or ())})


def _bits(held: str) -> property:
    def get(row: Any) -> np.uint64:
        return np.uint64(getattr(row, held))

    def put(row: Any, value: Any) -> None:
        setattr(row, held, int(value))

    return property(get, put)


def _numbers(array: Any) -> Any:
    return array if array.dtype == _BITS else memoryview(array)


def readable(value: Any) -> Any:
    """Return an argument of a compiled function as its twin takes it."""
    if isinstance(value, np.ndarray):
        if value.dtype.names:
            return _rows_of(value.dtype)(value)
        return _numbers(value) if value.ndim == 1 else Columns(value)
    if isinstance(value, tuple):
        parts = [readable(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, np.generic) and value.dtype != _BITS:
        return value.item()
    return _twin(value)


class Choice:
    """What stands for a function of `compiled.either`: it looks at the types of its arguments."""

    def __init__(self, usual: Any, special: Any, field: str) -> None:
        self._usual, self._special, self._field = usual, special, field
        self._twins: tuple[Any, Any] | None = None
        self._known: dict[type, bool | None] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call one of the two functions."""
        if self._twins is None:
            self._twins = interpreted(self._usual), interpreted(self._special)
        for argument in arguments:
            kind = type(argument)
            if kind not in self._known:
                self._known[kind] = _has(kind, self._field)
            has = self._known[kind]
            if has is None:
                has = self._field in type(argument.nodes).fields
            if has:
                return self._twins[1](*arguments)
        return self._twins[0](*arguments)


def _has(kind: type, field: str) -> bool | None:
    """Return whether rows of a type have a field; None where it depends on the nodes of a record of arrays."""
    if issubclass(kind, Rows):
        return field in kind.fields
    if issubclass(kind, ctypes.Structure):
        return hasattr(kind, field)
    return None if "nodes" in getattr(kind, "_fields", ()) else False


class _Numbers:
    """numpy for twins: whole numbers are Python's."""

    int8 = int16 = int32 = int64 = int

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_NUMBERS = _Numbers()
_twins: dict[int, tuple[Any, Any]] = {}
"""Twins by the identity of the functions, with these, which so live on."""


def _twin(value: Any) -> Any:
    """Return what stands for a value of a module in its twin."""
    if value is np:
        return _NUMBERS
    if hasattr(value, "in_python"):
        return value.in_python
    return interpreted(value) if isinstance(value, Dispatcher) or hasattr(value, "interpretable") else value


def interpretable(function: F) -> F:
    """Mark a function as one that has a twin, for where nothing is compiled and it looks like any other."""
    function.interpretable = True  # type: ignore[attr-defined]
    return function


def interpreted(function: Any) -> Any:
    """Return the twin of a function, compiled or not."""
    function = getattr(function, "py_func", function)
    if id(function) not in _twins:
        cells = tuple(CellType(_twin(cell.cell_contents)) for cell in function.__closure__ or ())
        names = {"__builtins__": function.__globals__["__builtins__"]}
        twin = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
        # It is known before the functions that it calls, which may call it.
        _twins[id(function)] = (function, twin)
        known = function.__globals__
        names |= {name: _twin(known[name]) for name in _asked(function.__code__) if name in known}
    return _twins[id(function)][1]


def _asked(code: CodeType) -> Iterator[str]:
    """Return the names that a function asks for, those of attributes too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _asked(constant)
