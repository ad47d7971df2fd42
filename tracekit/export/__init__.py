"""Traces as the input files of simulators: one module a target in `tracekit.export.targets`.

The package can be called: `tracekit.export(trace, "gavel", "philly.trace")` (see `tracekit.export.api.export`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function it is named after."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Export a Trace, see `tracekit.export.api.export`."""
        from tracekit.export.api import export

        return export(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
