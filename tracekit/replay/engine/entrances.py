"""How Python enters compiled functions: as machine code, or, in small runs that have none yet, interpreted."""

from __future__ import annotations

import functools
import os
import time
from collections import defaultdict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from numba.core.registry import CPUDispatcher

from tracekit.errors import UsageError
from tracekit.replay.engine.interpreted import interpretable, interpreted, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SETTING", "SMALL", "choosing", "entrance", "entrance_without_code", "interpreting"]

SETTING = "TRACEKIT_REPLAY"
"""Environment variable: 'compiled' or 'interpreted' where tracekit is not to choose."""

SMALL = 10_000
"""Jobs up to which a run begins interpreted where there is no compiled code.

Interpreted, most policies take 0.1 to 0.5 ms a job, and this many what compilation takes, or less.
"""

PATIENCE_S = 4.0
"""After so long in the interpreter compilation is begun all the same: in one run, or for one function in all runs of
a process. Compilation takes about twice as long; so no case takes much longer than it would with the better choice."""

_KEPT = 64
_spent: defaultdict[Any, float] = defaultdict(float)
"""Time for which functions were interpreted [s]."""


class _Interpreter:
    """One run that is interpreted, or may be."""

    def __init__(self, *, always: bool) -> None:
        self.always = always
        self._spent = 0.0
        self._at_hand: dict[Any, bool] = {}
        self._records: dict[int, tuple[Any, Any]] = {}

    def takes(self, function: Any, arguments: tuple[Any, ...]) -> bool:
        """Return whether a function is to be interpreted: where there is machine code, that is used."""
        if self.always:
            return True
        if self._spent > PATIENCE_S or _spent[function] > PATIENCE_S:
            return False
        if function not in self._at_hand:
            self._at_hand[function] = _at_hand(function, arguments)
        return not self._at_hand[function]

    def call(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        """Call the twin of a function."""
        begun = time.perf_counter()
        try:
            return interpreted(function)(*[self._readable(argument) for argument in arguments])
        finally:
            took = time.perf_counter() - begun
            self._spent += took
            _spent[function] += took

    def _readable(self, argument: Any) -> Any:
        if not hasattr(argument, "_fields"):
            return readable(argument)
        # Records of arrays come again at every call; no more are kept than a run has.
        if id(argument) not in self._records:
            if len(self._records) >= _KEPT:
                self._records.clear()
            self._records[id(argument)] = (argument, readable(argument))
        return self._records[id(argument)][1]


_current: ContextVar[_Interpreter | None] = ContextVar("interpreter", default=None)


class _Entrance(CPUDispatcher):
    """numba's dispatcher, which compiles at the first call of each kind, or the interpreter of the run."""

    def __call__(self, *arguments: Any) -> Any:
        run = _current.get()
        if run is None or not run.takes(self, arguments):
            return super().__call__(*arguments)
        return run.call(self, arguments)


def entrance(function: Any) -> Any:
    """Return a compiled function that may be interpreted too."""
    function.__class__ = _Entrance
    return function


def entrance_without_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is always interpreted, for where numba's compiler is switched off."""

    @functools.wraps(function)
    def enter(*arguments: Any) -> Any:
        return (_current.get() or _Interpreter(always=True)).call(function, arguments)

    enter.py_func = function  # type: ignore[attr-defined]
    return interpretable(enter)


@contextmanager
def interpreting() -> Iterator[None]:
    """Interpret compiled functions, whatever else says that they are not to be."""
    with _in_charge(_Interpreter(always=True)):
        yield


@contextmanager
def choosing(jobs: int) -> Iterator[bool]:
    """Let a small run be interpreted while there is no compiled code for it; tells whether it may be.

    numba takes seconds to compile a mechanism, once on each machine; a few hundred jobs are interpreted in less than
    one.

    Parameters
    ----------
    jobs : int
        Those of the run.

    Raises
    ------
    UsageError
        The setting is none.
    """
    run = _current.get()
    if run is not None and run.always:
        yield True
        return
    setting = os.environ.get(SETTING, "")
    if setting not in ("", "compiled", "interpreted"):
        raise UsageError(f"'{setting}' is neither 'compiled' nor 'interpreted'", where=SETTING)
    may_be = setting == "interpreted" or (not setting and jobs <= SMALL)
    with _in_charge(_Interpreter(always=bool(setting)) if may_be else None):
        yield may_be


@contextmanager
def _in_charge(run: _Interpreter | None) -> Iterator[None]:
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)


def _at_hand(function: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether there is machine code for such arguments, in this process or on disk."""
    cache = function._cache  # noqa: SLF001 -- numba tells nowhere else what it has
    index = cache._cache_file._load_index() if hasattr(cache, "_cache_file") else {}  # noqa: SLF001
    if not index and not function.overloads:
        return False
    kinds = tuple(function.typeof_pyval(argument) for argument in arguments)
    return kinds in function.overloads or cache._index_key(kinds, function.targetctx.codegen()) in index  # noqa: SLF001
