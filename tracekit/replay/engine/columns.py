"""Records of arrays, such as `State`, as compiled functions hand them to each other: as one address.

numba hands over a NamedTuple by value, of each array seven words, and so hundreds of words in every function, every
call and every look at one field: most of the time of a compilation went there. The arrays of a run stay the same ones,
so a table of where they lie and how long they are, made once a call from Python, serves as well; and an array that is
handed over alone takes two words. Both are types of numba's, added in the ways documented for that, and can do what
NamedTuples and arrays can do as far as compiled functions here ask for it: look at fields and items.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel.models import ArrayModel, PrimitiveModel
from numba.core.types.containers import NamedTuple
from numba.core.types.npytypes import Array
from numba.extending import NativeValue, lower_getattr_generic, register_model, unbox
from numba.np.numpy_support import as_dtype

__all__ = ["ArrayRecord", "Column", "kind_of"]

# numba does not declare it to type checkers.
_typeof: Any = numba.typeof


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]


class Column(Array):
    """The type of an array of one dimension, without gaps, that is a field of a record."""

    def __init__(self, array: Any) -> None:
        super().__init__(
            array.dtype, 1, "C", readonly=not array.mutable, name=f"column of {array.name}", aligned=array.aligned
        )

    @property
    def mangling_args(self) -> tuple[str, tuple[object, ...]]:
        """Return what names of functions tell of it; numba would write out every field of every row."""
        return "Column", (_digest(self.name),)


class ArrayRecord(NamedTuple):
    """The type of a NamedTuple of arrays that stays as it is during a call from Python."""

    @property
    def mangling_args(self) -> tuple[str, tuple[object, ...]]:
        """Return what names of functions tell of it."""
        return self.instance_class.__name__, (_digest(self.name),)


def kind_of(value: Any) -> Any:
    """Return the type that compiled functions see of an argument from Python."""
    kind = _typeof(value)
    if not isinstance(kind, types.BaseNamedTuple):
        return kind
    fields: Any = kind
    return ArrayRecord([_column(field) for field in fields], type(value))


def _column(kind: Any) -> Any:
    plain = type(kind) is types.Array and kind.ndim == 1 and kind.layout == "C"
    return Column(kind) if plain else kind


@register_model(Column)
class _ColumnModel(ArrayModel):
    """A column lies in registers as numba's arrays do; an address and a length are handed over."""

    def get_argument_type(self) -> Any:
        return tuple(self._of(name).get_argument_type() for name in ("data", "nitems"))

    def as_argument(self, builder: Any, value: Any) -> Any:
        return tuple(self.get(builder, value, name) for name in ("data", "nitems"))

    def from_argument(self, builder: Any, value: Any) -> Any:
        data, length = value
        size = length.type(as_dtype(self._fe_type.dtype).itemsize)
        whole = ir.Constant(self.get_value_type(), None)
        for name, word in (("data", data), ("nitems", length), ("itemsize", size)):
            whole = self.set(builder, whole, word, name)
        for name, word in (("shape", length), ("strides", size)):
            empty = ir.Constant(self._of(name).get_value_type(), None)
            whole = self.set(builder, whole, builder.insert_value(empty, word, [0]), name)
        return whole

    def _of(self, name: str) -> Any:
        return self._models[self._fields.index(name)]


@register_model(ArrayRecord)
class _ArrayRecordModel(PrimitiveModel):
    """The address of a table that has, for each field, what is handed over of it."""

    def __init__(self, models: Any, kind: Any) -> None:
        rows = [_flat(models.lookup(field).get_argument_type()) for field in kind.types]
        super().__init__(models, kind, ir.LiteralStructType([ir.LiteralStructType(row) for row in rows]).as_pointer())


def _flat(words: Any) -> list[Any]:
    if not isinstance(words, (tuple, list)):
        return [words]
    return [word for part in words for word in _flat(part)]


@lower_getattr_generic(ArrayRecord)
def _field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    """Read a field. The table never changes, which the loads tell, so that each is done once at most."""
    place = kind.fields.index(name)
    model = context.data_model_manager.lookup(kind.types[place])
    constant = builder.module.add_metadata([])
    row = value.type.pointee.elements[place]
    words = []
    for word in range(len(row.elements)):
        load = builder.load(cgutils.gep_inbounds(builder, value, 0, place, word))
        load.set_metadata("invariant.load", constant)
        words.append(load)
    shape = model.get_argument_type()
    return model.from_argument(builder, _like(shape, iter(words)) if isinstance(shape, (tuple, list)) else words[0])


def _like(shape: Any, words: Any) -> Any:
    return tuple(_like(part, words) if isinstance(part, (tuple, list)) else next(words) for part in shape)


@unbox(ArrayRecord)
def _make_table(kind: Any, value: Any, c: Any) -> Any:
    """Write the table of a NamedTuple that comes from Python; it lives as long as the call."""
    model = c.context.data_model_manager.lookup(kind)
    table = cgutils.alloca_once(c.builder, model.get_value_type().pointee)
    wrong = cgutils.false_bit
    for place, field in enumerate(kind.types):
        native = c.unbox(field, c.pyapi.tuple_getitem(value, place))
        wrong = c.builder.or_(wrong, native.is_error)
        words = c.context.data_model_manager.lookup(field).as_argument(c.builder, native.value)
        for word, part in enumerate(_flat(words)):
            c.builder.store(part, cgutils.gep_inbounds(c.builder, table, 0, place, word))
    return NativeValue(table, is_error=wrong)
