"""Parameters that several policies share, with the same spelling everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Parameter
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.of_jobs import estimates_ms
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs


FIT = Parameter(
    "fit",
    "place",
    "whether a job must fit on the nodes (place), or only enough GPUs must be free in total (count)",
    ("place", "count"),
)

FIT_OR_QUOTA = Parameter(
    "fit",
    "place",
    "whether a job must fit on the nodes (place), or only enough GPUs must be free in total (count); quota, as in "
    "some simulators, plans jobs by GPU count and places them afterwards: a job that does not fit waits while its "
    "GPUs are idle",
    ("place", "count", "quota"),
)


CHARGE = Parameter(
    "charge",
    "restart",
    "charge the overhead to a job at restarts and moves, or to every running job at each cluster event",
    ("restart", "event"),
)

INTERVAL = Parameter(
    "interval",
    0.0,
    "time between decisions from the first submission on, or 0 to decide at every event; in between, freed GPUs "
    "stay idle and new jobs wait [s]",
)

NOISE = Parameter(
    "noise",
    "oracle",
    "source of run-time estimates (M11, D8): oracle, helios, a sigma, or limit for the trace's time limits",
)

RELAX = Parameter("relax", 0.0, "wait after which a gang accepts GPUs anywhere, or 0 for never [s]")

SCOPE = Parameter(
    "relax_to",
    "any",
    "where a gang then accepts GPUs: on any nodes of one rack, or of one GPU model",
    ("rack", "any"),
)


ORDER = Parameter("order", "fifo", "which jobs go first", ("fifo", "sjf", "ssf"))

_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}


def scan(default: str) -> Parameter:
    """Return the parameter `scan` with a default."""
    return Parameter(
        "scan",
        default,
        "whether to stop at the first job that cannot start, or skip it",
        ("stop", "skip"),
        words=("later jobs wait behind a job that cannot start", "later jobs may overtake a job that cannot start"),
    )


def overhead(preset: str) -> Parameter:
    """Return the parameter `overhead` with a default."""
    return Parameter("overhead", preset, "preset for the cost of each preemption and migration (M9)")


OVERHEAD = overhead("none")


def believed(jobs: Jobs, models: Models, noise: str, seed: int) -> Ints | None:
    """Return the estimated run times [ms], or None if all are exact. Jobs without a time limit get their true run time.

    Raises
    ------
    UsageError
        The trace has no time limits, or `noise` is unknown.
    """
    if noise == "limit":
        if not (jobs.limit_ms >= 0).any():
            raise UsageError("noise=limit: the trace has no time limits", hint="use oracle, helios or a sigma")
        found = np.where(jobs.limit_ms >= 0, jobs.limit_ms, jobs.work_ms)
    else:
        found = estimates_ms(models, jobs.work_ms, seed, noise)
    return None if np.array_equal(found, jobs.work_ms) else found


def start_order(given: Mapping[str, Any], jobs: Jobs, models: Models, seed: int) -> Ordered:
    """Return the start order that the parameters order and scan set, and fit and noise if the policy has them."""
    fifo = given["order"] == "fifo"
    return Ordered(
        _KEYS[given["order"]],
        scan=given["scan"],
        fit=given.get("fit", "place"),
        drift="none",
        by_arrival=fifo,
        estimate_ms=None if fifo or "noise" not in given else estimates_ms(models, jobs.work_ms, seed, given["noise"]),
    )


def charged(models: Models, preset: object, charge: object, jobs: Jobs) -> dict[str, Any]:
    """Return the fields of `Ordered` that charge an overhead preset at restarts or at every event."""
    table = overheads(models, preset, jobs.devices)
    if charge == "event":
        return {"stall": True, "value": table[jobs.devices]}
    return {"overhead_ms": table}


def relaxed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Ordered` for the parameters relax and relax_to."""
    return {"relax_after_ms": round(given["relax"] * 1000), "relax_scope": 1 if given["relax_to"] == "rack" else 2}


def overheads(models: Models, preset: object, gpus: NDArray[np.integer[Any]]) -> Ints:
    """Return the cost of a preemption by gang size, from 0 to the largest gang [ms]."""
    return overhead_ms(models, str(preset), np.arange(int(gpus.max(initial=1)) + 1))
