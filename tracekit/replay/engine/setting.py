"""What a mechanism gets before a run and what it returns: the interface between mechanisms and the engine."""

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


@dataclass(frozen=True)
class Setting:
    """What to replay, independent of the policy."""

    jobs: Jobs
    """The jobs to run."""
    cluster: Cluster
    """The cluster to run them on."""
    assignment: Assignment
    """Which nodes each job accepts."""
    name: str = "policy"
    """Name of the policy, for errors."""
    rule: str = "consolidate"
    """A placement of `placement.RULES`."""
    spread: NDArray[np.int32] | None = None
    """Speed of a gang on k nodes if k0 nodes would do (k0, k) [ppm]; None means 1,000,000 everywhere."""
    trace: Trace | None = None
    """Where the jobs come from, for mechanisms that read further tables."""
    checkpoints: Checkpoints | None = None
    """How jobs save their work if nodes fail; None if no node fails."""
    log_rows: int = 0
    """Number of rows for the event log; 0 keeps no log."""


def _unchanged(outcome: Outcome) -> Outcome:
    return outcome


class Run(NamedTuple):
    """A run before its first instant."""

    state: EngineState
    """The engine's arrays; after the run they hold the outcome."""
    step: Callable[[int], bool]
    """Runs at most the given number of instants, at least one, and returns whether any are left."""
    complete: Callable[[Outcome], Outcome] = _unchanged
    """Adds what only this mechanism records to the outcome."""
    unit: int = 1000
    """Unit in which the state counts GPUs [milli-GPU]."""


class Mechanism(Protocol):
    """The part that carries out a policy."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run: the state, the mechanism's own arrays, and the function that steps through the instants.

        It may be called again for the same run, with more room for the log, and must then return the same run.
        """
        ...


def prepared_by(module: str, mechanism: Mechanism, setting: Setting) -> Run:
    """Return the run that a module's function `prepare` makes from a mechanism.

    The module is referred to by name, not imported. It needs the compiled engine and knows the mechanism's class, while
    the class must work without an engine and does not know how it is carried out.
    """
    return cast("Run", import_module(f"tracekit.replay.{module}").prepare(mechanism, setting))
