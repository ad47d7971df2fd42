"""Advice that the evidence carries: one module a guideline in `tracekit.guidelines.rules`.

The package can be called: `tracekit.guidelines(trace)` (see `tracekit.guidelines.run.guidelines`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function it is named after."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Judge a Trace by the guidelines, see `tracekit.guidelines.run.guidelines`."""
        from tracekit.guidelines.run import guidelines

        return guidelines(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
