"""What all replays of a plan hang on, where shards share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.replay.sweeps.digests import code_of_replays, trace_facts

if TYPE_CHECKING:
    from tracekit.trace import Trace

__all__ = ["plan_facts"]


def plan_facts(what: str, trace: Trace) -> dict[str, Any]:
    """Return the facts that replays of a kind of plan have in common: the kind, the Trace and the program."""
    code = code_of_replays("calibration", "capacity_plan")
    return {"what": what, "trace": trace_facts(str(trace.path)), "code": code}
