"""What-if replay: the jobs of a Trace under another policy, on this or another cluster.

The package can be called: `tracekit.replay(trace, policy="srtf")` (see `tracekit.replay.api.replay`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is also the function it is named after."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Replay a Trace, see `tracekit.replay.api.replay`."""
        from tracekit.replay.api import replay

        return replay(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
