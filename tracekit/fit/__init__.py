"""Fit a Trace as a small workload model and draw synthetic Traces from it.

The package can be called: `tracekit.fit(trace)` (see `tracekit.fit.scored.fit`).
"""

from __future__ import annotations

from tracekit.callable_package import make_callable

make_callable(__name__, "tracekit.fit.scored")
