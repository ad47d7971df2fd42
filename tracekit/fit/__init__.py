"""Fitted workloads: a Trace as a small model, and synthetic Traces drawn from it.

The package can be called: `tracekit.fit(trace)` (see `tracekit.fit.scored.fit`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.fit.scored")
