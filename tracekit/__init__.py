"""tracekit turns GPU-cluster logs into answers.

    import tracekit

    trace = tracekit.ingest_logs("logs/", "my-trace")  # later: tracekit.open_trace("my-trace")
    tracekit.run_query(trace, "queuing/run_time")
    tracekit.report(trace).show()  # in a notebook

The names below form the public API. Each loads its dependencies on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.analysis import analyze
    from tracekit.analysis.reporting import report
    from tracekit.calibration.api import calibrate
    from tracekit.calibration.fidelity import fidelity
    from tracekit.capacity_plan.plan import plan
    from tracekit.capacity_plan.spare_plan import plan_spares
    from tracekit.characterize import list_queries, run_query
    from tracekit.characterize.expected_wait.ask import expected_wait
    from tracekit.comparison import compare
    from tracekit.digests.make import digest
    from tracekit.errors import TracekitError
    from tracekit.export.api import export
    from tracekit.fit.generate import generate
    from tracekit.fit.scored import fit
    from tracekit.gpu_hours.efficiency import efficiency
    from tracekit.guidelines.run import guidelines
    from tracekit.ingest import ingest_logs
    from tracekit.replay.api import replay
    from tracekit.sweeps.sweep import sweep
    from tracekit.trace import Trace, open_trace

__all__ = [
    "Trace",
    "TracekitError",
    "__version__",
    "analyze",
    "calibrate",
    "compare",
    "digest",
    "efficiency",
    "expected_wait",
    "export",
    "fidelity",
    "fit",
    "generate",
    "guidelines",
    "ingest_logs",
    "list_queries",
    "open_trace",
    "plan",
    "plan_spares",
    "replay",
    "report",
    "run_query",
    "sweep",
]

_HOME = {
    "Trace": "tracekit.trace",
    "TracekitError": "tracekit.errors",
    "analyze": "tracekit.analysis",
    "calibrate": "tracekit.calibration.api",
    "compare": "tracekit.comparison",
    "digest": "tracekit.digests.make",
    "efficiency": "tracekit.gpu_hours.efficiency",
    "expected_wait": "tracekit.characterize.expected_wait.ask",
    "fidelity": "tracekit.calibration.fidelity",
    "generate": "tracekit.fit.generate",
    "ingest_logs": "tracekit.ingest",
    "list_queries": "tracekit.characterize",
    "open_trace": "tracekit.trace",
    "plan": "tracekit.capacity_plan.plan",
    "plan_spares": "tracekit.capacity_plan.spare_plan",
    "run_query": "tracekit.characterize",
    "sweep": "tracekit.sweeps.sweep",
}


def __getattr__(name: str) -> Any:
    if name in {"export", "fit", "guidelines", "replay", "report"}:
        # The package is callable, so the name works the same before and after its modules are imported.
        return import_module(f"tracekit.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'tracekit' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
