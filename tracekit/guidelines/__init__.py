"""Advice based on evidence from the log. The guidelines are in `tracekit.guidelines.rules`.

The package can be called: `tracekit.guidelines(trace)` (see `tracekit.guidelines.run.guidelines`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.guidelines.run")
