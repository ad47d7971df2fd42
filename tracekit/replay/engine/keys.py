"""Key functions of ordering policies, compiled when compiled code first asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numba.experimental.function_type  # without it numba knows no types of functions before it first compiles one
from numba.core import types

from tracekit.replay.engine.compiled import cache_folder
from tracekit.replay.engine.interpreted import interpreted

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KEY_SIGNATURE", "OrderingKey"]

KEY_SIGNATURE = "int64(int64, int64, int64, int64, int64, int64, int64)"
"""Of a key function: (submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value) -> key."""

_SIGNATURE: Any = types.int64(*[types.int64] * 7)
_config: Any = numba.config


class OrderingKey(types.WrapperAddressProtocol):
    """A key function; all have one type, so that what calls them is compiled once.

    Those of tracekit itself are compiled when compiled code first asks for them. Others are compiled at once, so that
    their faults show whatever the size of a run, and are not interpreted: a function that is no more than Python could
    mean something else.
    """

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self._code: Any = None
        self._trusted = function.__module__.startswith("tracekit.") or _config.DISABLE_JIT
        if not self._trusted:
            self._compile()

    def __call__(self, *arguments: int) -> int:
        """Return the key of one job."""
        return self._function(*arguments)

    def signature(self) -> Any:
        """Return the signature, for numba."""
        return _SIGNATURE

    def __wrapper_address__(self) -> int:
        """Return the address of the machine code, for numba."""
        if self._code is None:
            self._compile()
        address: int = self._code.address
        return address

    @property
    def in_python(self) -> Callable[..., int]:
        """What interpreted code calls."""
        called: Callable[..., int] = interpreted(self._function) if self._trusted else self._code.ctypes
        return called

    def _compile(self) -> None:
        folder = cache_folder()
        before = _config.CACHE_DIR
        _config.CACHE_DIR = str(folder or "")
        try:
            kept = folder is not None and "<" not in self._function.__code__.co_filename
            self._code = numba.cfunc(KEY_SIGNATURE, cache=kept)(self._function)
        finally:
            _config.CACHE_DIR = before
