"""How many GPUs a cluster needs, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.calibration.one_cluster import twin_of_cluster
from tracekit.capacity_plan.plan import plan_cluster
from tracekit.capacity_plan.question import HourlyCosts, PlanQuestion
from tracekit.capacity_plan.shared import plan_facts
from tracekit.capacity_plan.target import job_group, wait_target
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.native import kernel
from tracekit.shards.items import SharedItems
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.capacity_plan.result import CapacityPlan
    from tracekit.shards.work import SharedWork

__all__ = ["plan"]


@explain_damage()
def plan(
    trace: Trace | str | Path,
    target: str | None = None,
    *,
    jobs_for: Sequence[str] = (),
    twin: str | Path | None = None,
    nodes: Sequence[int] | None = None,
    model: str | None = None,
    growth: Sequence[float] = (1.0,),
    policies: Sequence[str] = (),
    node_cost: float | None = None,
    wait_cost: float | None = None,
    resamples: int = 40,
    limit: int | None = 100_000,
    seed: int = 0,
    workers: int = 1,
    shared: SharedWork | None = None,
    progress: Progress | None = None,
) -> CapacityPlan:
    """Return how long jobs wait with how many nodes, and how many nodes a target takes, by the twin of a cluster.

    >>> import tracekit
    >>> found = tracekit.plan("my-trace", "p90<=1h", jobs_for=["size=8"])  # doctest: +SKIP
    >>> found.sentences  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission, start, end and number of GPUs, over five days or more.
    target : str, optional
        The longest wait accepted: mean, p50, p90 or p99, '<=', and a number of s, min, h or d.
    jobs_for : sequence of str
        Whose wait counts: 'size=8', 'vc=NAME', 'cluster=NAME'; all jobs of the cluster with most waiting by default.
    twin : path, optional
        A twin.toml; by default the twin is calibrated now.
    nodes : sequence of int, optional
        Numbers of nodes to look at; those that tell most by default.
    model : str, optional
        Vary the nodes of this GPU model only.
    growth : sequence of float
        Jobs a day as multiples of the log's.
    policies : sequence of str
        Tried beside the twin's own.
    node_cost, wait_cost : float, optional
        Of a node, and of a job that waits [currency/h].
    resamples : int
        Months that are drawn.
    limit : int, optional
        Without a twin: calibrate on the first so many jobs; None all.
    seed : int
        Of every draw.
    workers : int
        Processes. With more than one, a script needs the guard ``if __name__ == "__main__"``.
    shared : SharedWork, optional
        The folder in which shards make resamples together, or gathers them (docs/howto/shards.md); without a twin they
        calibrate together first.
    progress : Progress, optional
        Told of every step.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers, and something is missing.
    TracekitError
        The Trace, the twin or an option cannot be used; or the twin is too far from the log to plan with.
    """
    kernel()  # before a Trace is read for nothing
    opened, progress = Trace.of(trace).ingested, progress or Progress()
    question = PlanQuestion(
        None if target is None else wait_target(target),
        job_group(jobs_for),
        None if nodes is None else tuple(sorted(set(nodes))),
        model,
        tuple(dict.fromkeys(float(g) for g in growth)),
        tuple(dict.fromkeys(policies)),
        HourlyCosts(node_cost, wait_cost),
        resamples,
        seed,
        workers,
    )
    file = None if twin is None else Path(twin)
    calibrated, others = twin_of_cluster(
        opened, file, question.group.cluster, limit=limit, seed=seed, shared=shared, progress=progress
    )
    (found,) = calibrated.clusters
    if others:
        progress.note(
            f"the plan covers cluster {found.name}; choose another with --for cluster=NAME: {', '.join(others)}"
        )
    items = None if shared is None else SharedItems(shared, plan_facts("plan", opened))
    made = plan_cluster(found, question, progress, items)
    if isinstance(made, str):
        raise UsageError(made, where=opened.path)
    return made
