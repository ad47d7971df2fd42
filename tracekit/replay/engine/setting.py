"""What a mechanism is given before a run, and what it returns: the interface between mechanisms and the engine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.checkpoints import Checkpoints
    from tracekit.replay.outcome import Outcome
    from tracekit.trace import Trace

__all__ = ["Mechanism", "Run", "Setting", "prepared_by"]


@dataclass(frozen=True)
class Setting:
    """What is replayed, whatever the policy."""

    jobs: Jobs
    """What runs."""
    cluster: Cluster
    """Where."""
    assignment: Assignment
    """Which nodes each job accepts."""
    name: str = "policy"
    """Of the policy, for errors."""
    rule: str = "consolidate"
    """A placement of `placement.RULES`."""
    spread: NDArray[np.int32] | None = None
    """Speed of a gang on k nodes where k0 would do (k0, k) [ppm]; 1,000,000 everywhere when None."""
    trace: Trace | None = None
    """Where the jobs come from, for a mechanism that reads further tables."""
    checkpoints: Checkpoints | None = None
    """How jobs save their work where nodes fail; None where none does."""
    log_rows: int = 0
    """Room for the event log; 0 keeps none."""


def _unchanged(outcome: Outcome) -> Outcome:
    return outcome


class Run(NamedTuple):
    """A run before its first instant."""

    state: EngineState
    """The engine's arrays, in which the outcome will stand."""
    step: Callable[[int], bool]
    """Runs at most so many instants, at least one, and returns whether more are to come."""
    complete: Callable[[Outcome], Outcome] = _unchanged
    """Adds what only this mechanism records to the outcome."""
    unit: int = 1000
    """What the state counts GPUs in [milli-GPU]."""


class Mechanism(Protocol):
    """What carries out a policy."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run: the state, the mechanism's own arrays, and what steps through the instants.

        It may be called again for the same run, with more room for the log, and must then return the same run.
        """
        ...


def prepared_by(module: str, mechanism: Mechanism, setting: Setting) -> Run:
    """Return the run that a module's function `prepare` makes of a mechanism.

    The module is named, not imported: it needs the compiled engine and knows the mechanism's class, while the class
    has to be there without an engine, and knows nothing of how it is carried out.
    """
    return cast("Run", import_module(f"tracekit.replay.{module}").prepare(mechanism, setting))
