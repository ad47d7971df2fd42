"""Compiled functions that only others call: their code is linked into the callers and finished there, once.

numba turns every function into machine code of its own, after optimizing it, and then copies it into each caller, and
each caller's caller, and optimizes it there again. For functions that nothing but compiled code calls all but the last
of this is lost work, most of the time that a first run took. Here a part is only made shorter, and what Python calls
takes in all its parts, each once. It uses numba's classes for code libraries and compilers, of which only the latter
are documented; the version of numba is bounded for it.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage, create_new_module_pass_manager
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["PartCompiler", "WholeCompiler", "widen_arguments"]


class _Nowhere:
    """What stands for the engine that runs code: these functions have no address there, and no environment."""

    def set_env(self, _name: str, _environment: object) -> None:
        pass


class _Part(JITCodeLibrary):
    """The code of one function, to be linked into others."""

    def _optimize_functions(self, module: Any) -> None:
        """Do only what makes it shorter: it will be copied into callers."""
        module.data_layout = str(self._codegen.target_data)
        builder = self._codegen._pass_builder(loop_vectorize=False)  # noqa: SLF001 -- numba's only way to its settings
        passes = create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.run(module, builder)

    def finalize(self) -> None:
        """Make no machine code, and leave the functions that it calls apart: the last caller puts all together."""
        self._raise_if_finalized()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        self._finalize_dynamic_globals()
        self._finalized = True

    def hand_over(self, whole: Any) -> list[Any]:
        """Copy the code of this function into a module; return the libraries of what it calls."""
        whole.link_in(self._final_module, preserve=True)
        return list(self._linking_libraries)

    def get_pointer_to_function(self, _name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> _Nowhere:
        return _Nowhere()


class _Whole(JITCodeLibrary):
    """The code of a function together with that of the parts it is made of."""

    def add_ir_module(self, ir_module: Any) -> None:
        """Add code. What is called from Python stays apart from what reads the arguments (see `columns`)."""
        for function in ir_module.functions:
            if not function.is_declaration and "alwaysinline" not in function.attributes:
                function.attributes.add("noinline")
        super().add_ir_module(ir_module)

    def finalize(self) -> None:
        """Put in what the parts call in turn, each once, and make machine code."""
        ahead = self._linking_libraries
        self._linking_libraries = []
        seen: set[Any] = set()
        while ahead:
            library = ahead.pop()
            if library in seen:
                continue
            seen.add(library)
            if isinstance(library, _Part):
                ahead.extend(library.hand_over(self._final_module))
            else:
                self._linking_libraries.append(library)
        super().finalize()


class PartCompiler(Compiler):
    """numba's compiler with such a library; for functions without wrappers for Python and C."""

    def define_pipelines(self) -> Any:
        """Return numba's own pipelines, and have the code put into a part."""
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


class WholeCompiler(Compiler):
    """numba's compiler with a library that takes parts in."""

    def define_pipelines(self) -> Any:
        """Return numba's own pipelines, and have the code put into such a library."""
        state = self.state
        state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
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
