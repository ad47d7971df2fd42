"""Parameters that several policies have, spelled alike everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Parameter
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.of_jobs import estimates_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs

__all__ = [
    "CHARGE",
    "FIT",
    "FIT_OR_QUOTA",
    "INTERVAL",
    "NOISE",
    "OVERHEAD",
    "RELAX",
    "SCOPE",
    "believed",
    "charged",
    "overheads",
    "scan",
]

FIT = Parameter("fit", "place", "a job needs places on nodes, or only enough free GPUs in number", ("place", "count"))

FIT_OR_QUOTA = Parameter(
    "fit",
    "place",
    "a job needs places on nodes, or only enough free GPUs in number; or, as in some simulators, jobs are planned by "
    "number and look for places then: who finds none waits, and nobody else has those GPUs",
    ("place", "count", "quota"),
)

OVERHEAD = Parameter("overhead", "none", "preset of what each preemption and migration costs (M9)")

CHARGE = Parameter(
    "charge",
    "restart",
    "what overhead is charged for: a job's restart or move, or, to every running job, each event of the cluster",
    ("restart", "event"),
)

INTERVAL = Parameter(
    "interval",
    0.0,
    "decisions only every so many seconds, counted from the first submission: until then what ended leaves its GPUs "
    "idle and who came waits; 0 at every event [s]",
)

NOISE = Parameter(
    "noise",
    "oracle",
    "the run times believed in (M11, D8): oracle, helios, a sigma, or limit for the trace's time limits",
)

RELAX = Parameter("relax", 0.0, "wait after which a gang takes GPUs anywhere, 0 never [s]")

SCOPE = Parameter("relax_to", "any", "how far it then goes: the rack's nodes, or any of one GPU model", ("rack", "any"))


def scan(default: str) -> Parameter:
    """Return the parameter `scan` with a default."""
    return Parameter(
        "scan",
        default,
        "at the first job that cannot start the pass ends, or passes it over",
        ("stop", "skip"),
        words=("later jobs wait behind one that cannot start", "later jobs may pass one that cannot start"),
    )


def believed(jobs: Jobs, models: Models, noise: str, seed: int) -> NDArray[np.int64] | None:
    """Return the estimates [ms], None where they are the truth; where a job has no time limit, that is the truth.

    Raises
    ------
    UsageError
        The trace tells no time limits, or the noise is none.
    """
    if noise == "limit":
        if not (jobs.limit_ms >= 0).any():
            raise UsageError("noise=limit: the trace has no time limits", hint="use oracle, helios or a sigma")
        found = np.where(jobs.limit_ms >= 0, jobs.limit_ms, jobs.work_ms)
    else:
        found = estimates_ms(models, jobs.work_ms, seed, noise)
    return None if np.array_equal(found, jobs.work_ms) else found


def charged(models: Models, preset: object, charge: object, jobs: Jobs) -> dict[str, Any]:
    """Return the fields of `Ordered` that charge an overhead preset, for restarts or at every event."""
    table = overheads(models, preset, jobs)
    if charge == "event":
        return {"stall": True, "value": table[jobs.devices]}
    return {"overhead_ms": table}


def overheads(models: Models, preset: object, jobs: Jobs) -> NDArray[np.int64]:
    """Return the cost of a preemption by gang size, from 0 to the largest gang [ms]."""
    return overhead_ms(models, str(preset), np.arange(int(jobs.devices.max(initial=1)) + 1))
