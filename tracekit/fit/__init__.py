"""Fitted workloads: a Trace as a small model, and synthetic Traces drawn from it.

The package can be called: `tracekit.fit(trace)` (see `tracekit.fit.api.fit`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function it is named after."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Fit a Trace, see `tracekit.fit.api.fit`."""
        from tracekit.fit.api import fit

        return fit(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
