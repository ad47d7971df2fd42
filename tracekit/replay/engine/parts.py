"""Compiled functions that only others call: their code is linked into the callers and finished there, once.

numba turns every function into machine code of its own, after optimizing it, and then optimizes it again within each
caller, and each caller's caller. For functions that nothing but compiled code calls all but the last of this is lost
work, most of the time that a first run took. It uses numba's classes for code libraries and compilers, of which only
the latter are documented; the version of numba is bounded for it.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["PartCompiler", "widen_arguments"]


class _Nowhere:
    """What stands for the engine that runs code: these functions have no address there, and no environment."""

    def set_env(self, _name: str, _environment: object) -> None:
        pass


class _Part(JITCodeLibrary):
    """The code of one function, to be linked into others."""

    def _optimize_final_module(self) -> None:
        """Leave it to the callers."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> _Nowhere:
        return _Nowhere()


class PartCompiler(Compiler):
    """numba's compiler with such a library; for functions without wrappers for Python and C."""

    def define_pipelines(self) -> Any:
        """Return numba's own pipelines, and have the code put into a part."""
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


def widen_arguments(function: Any) -> None:
    """Let a compiled function take every signed integer as int64, constants too.

    numba compiles a function anew for each constant and each width of integer that it is called with.
    """
    ordinary = function.get_call_template

    def template(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        wide = {name: _wide(kind) for name, kind in named.items()}
        return ordinary(tuple(_wide(kind) for kind in arguments), wide)

    function.get_call_template = template


def _wide(kind: Any) -> Any:
    plain: Any = types.unliteral(kind)
    return types.int64 if plain in types.signed_domain else plain
