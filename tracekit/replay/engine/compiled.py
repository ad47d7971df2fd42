"""Compiled functions of the replay: one decorator, its cache on disk, and one instruction that numba lacks.

Compiled code allocates nothing and keeps no arrays: the Python caller makes every array. With that rule the counting
of references can be left out. It matters: numba counts a reference up and down for each array that a helper function
receives, several times per event, and the counters cost a multiple of the work itself.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

from tracekit.replay.engine.columns import kind_of
from tracekit.replay.engine.entrances import entrance, entrance_without_code
from tracekit.replay.engine.interpreted import Choice, interpretable
from tracekit.replay.engine.parts import PartCompiler, WholeCompiler, widen_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

__all__ = ["cache_folder", "compiled", "compiling", "count_trailing_zeros", "either", "inner", "outlined"]

_PACKAGE = Path(__file__).parent.parent.parent
_ROOMS = ("replay", "policies")
_UNUSED_DAYS = 30

# numba declares neither its settings nor `_nrt` to type checkers.
_njit: Any = numba.njit
_config: Any = numba.config

F = TypeVar("F", bound="Callable[..., Any]")


@overload
def compiled(function: F, /) -> F: ...
@overload
def compiled(*, counted: bool = ...) -> Callable[[F], F]: ...
def compiled(function: F | None = None, /, *, counted: bool = False) -> F | Callable[[F], F]:
    """Compile a function to machine code at its first call, and keep the code on disk.

    The option that leaves out reference counting, `_nrt=False`, is not documented by numba and so stands in this one
    place. A function compiled without it must not create arrays, strings, lists or other objects on the heap; it may
    read and write arrays and records it was given, take slices of them, and use tuples and numbers. Numba refuses what
    it cannot compile so; a test compares both settings.

    Small runs interpret it in place of compiling it (see `entrances`), and so does NUMBA_DISABLE_JIT=1, for debugging.

    Parameters
    ----------
    function : callable
        The function; it may call other compiled functions.
    counted : bool
        Count references after all, for a function that has to allocate.
    """
    if function is None:
        return functools.partial(_compile, counted=counted)
    return _compile(function, counted=counted)


def inner(function: F) -> F:
    """Compile a function that only compiled functions call, into each of its callers.

    It has no entrance for Python, no machine code of its own and no file on disk, which spares most of the time of
    compilation.
    """
    return _part(function, inline=True)


def outlined(function: F) -> F:
    """Compile a function that only compiled functions call, once: each call is one.

    It serves large functions that are called from several places, none of them at every event.
    """
    return _part(function, inline=False)


def _part(function: F, *, inline: bool) -> F:
    if _config.DISABLE_JIT:
        return interpretable(function)
    part = _njit(
        _nrt=False,
        error_model="numpy",
        forceinline=inline,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        pipeline_class=PartCompiler,
    )(function)
    widen_arguments(part)
    return cast("F", part)


@contextmanager
def compiling() -> Iterator[None]:
    """Compile with the collector of garbage at rest: it would look again and again at what compilation keeps."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def either(usual: F, special: F, *, field: str) -> F:
    """Return a function for compiled code that is `special` where a record has a field, and else `usual`.

    The choice is made at compilation, by the types of the arguments: records, arrays of records, or a `State`, of which
    the nodes count. A run whose records lack the field compiles nothing of what it does not need.

    Parameters
    ----------
    usual, special : functions
        Of the same arguments.
    field : str
        The name.
    """
    in_python: Any = Choice(usual, special, field)

    def chosen(*arguments: Any) -> Any:
        return in_python(*arguments)

    if _config.DISABLE_JIT:
        chosen.in_python = in_python  # type: ignore[attr-defined]
        return cast("F", chosen)
    parts = [function if hasattr(function, "get_call_template") else inner(function) for function in (usual, special)]

    def part(kinds: Any) -> Any:
        return parts[any(field in _fields(kind) for kind in kinds)]

    routed: Any = _njit(chosen)
    routed.in_python = in_python
    routed.get_call_template = lambda kinds, named: part(kinds).get_call_template(kinds, named)
    routed.get_overload = lambda kinds: part(kinds).get_overload(kinds)
    return cast("F", routed)


def _fields(kind: Any) -> Any:
    """Return the names of the fields of a record's type, or those of its items."""
    if isinstance(kind, types.BaseNamedTuple):
        together: Any = kind
        kind = dict(zip(together.fields, together.types, strict=True)).get("nodes")
    if isinstance(kind, types.Array):
        kind = kind.dtype
    return kind.fields if isinstance(kind, types.Record) else ()


def _compile(function: F, *, counted: bool) -> F:
    # Divisors are sizes and rates, never 0: without the test for it divisions cost less.
    options: dict[str, Any] = {"error_model": "numpy", "pipeline_class": WholeCompiler}
    options |= {} if counted else {"_nrt": False}
    folder = cache_folder() if Path(function.__code__.co_filename).exists() else None
    if _config.DISABLE_JIT:
        return cast("F", entrance_without_code(function))
    if folder is None:
        return entrance(_seeing(_njit(**options)(function), counted=counted))
    if counted:
        # The name of a cached file does not tell the options.
        folder /= "counted"
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        return entrance(_seeing(_njit(cache=True, **options)(function), counted=counted))
    finally:
        _config.CACHE_DIR = before


def _seeing(function: Any, *, counted: bool) -> Any:
    """Let a compiled function take the arrays in records of arrays as columns."""
    if not counted:
        function.typeof_pyval = kind_of
    return function


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder of the compiled code, or None where none can be written.

    It is `<cache>/tracekit/compiled/<digest>`, where `<cache>` is NUMBA_CACHE_DIR if that is set and the user's cache
    folder otherwise. The digest covers the sources of the replay and of the policies, and the versions of Python, numba
    and llvmlite: numba itself looks only at the file of a function, and would run stale code when a function that it
    calls changes in another file.
    """
    folder = _base() / "tracekit" / "compiled" / _digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # which also dates the folder as used
            pass
    except OSError:
        return None
    _forget_unused(folder.parent)
    return folder


def _forget_unused(parent: Path) -> None:
    for folder in parent.iterdir():
        try:
            if time.time() - folder.stat().st_mtime > _UNUSED_DAYS * 86_400:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # another process was faster
            continue


def _base() -> Path:
    if _config.CACHE_DIR:
        return Path(_config.CACHE_DIR)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base))  # noqa: PTH111 - Path.expanduser fails where there is no home


def _digest() -> str:
    digest = hashlib.sha256(f"{platform.python_version()} {numba.__version__} {version('llvmlite')}".encode())
    for room in _ROOMS:
        for path in sorted((_PACKAGE / room).rglob("*.py")):
            digest.update(f"\0{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _count_in_python(value: int | np.uint64) -> int:
    number = int(value)
    return (number & -number).bit_length() - 1 if number else 64


def _emit_count(_typing: Any, value: Any) -> Any:
    if value != types.uint64:
        return None

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        # The second argument asks for 64, and not for undefined, where the value is 0.
        return builder.cttz(arguments[0], cgutils.false_bit)

    return types.int64(types.uint64), generate


_count_in_one_instruction: Any = intrinsic(_emit_count)


def count_trailing_zeros(value: int | np.uint64) -> int:
    """Return the number of zero bits below the lowest set bit of a uint64; 64 where no bit is set."""
    return _count_in_one_instruction(value)


count_trailing_zeros = _njit(_nrt=False)(count_trailing_zeros)
count_trailing_zeros.in_python = _count_in_python  # type: ignore[attr-defined]
if _config.DISABLE_JIT:
    count_trailing_zeros = _count_in_python
