"""How many spares a gang needs, from Python."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.capacity_plan.search import interval_share
from tracekit.capacity_plan.shared import plan_facts
from tracekit.capacity_plan.spares.pool import NodePool
from tracekit.capacity_plan.spares.question import SpareQuestion
from tracekit.capacity_plan.spares.result import BestCheckpoint, SparePlan
from tracekit.capacity_plan.spares.runs import PARTS, GangRuns
from tracekit.capacity_plan.spares.search import SpareCurve
from tracekit.damage import explain_damage
from tracekit.progress import Progress
from tracekit.replay.native import kernel
from tracekit.replay.outages.theory import best_interval
from tracekit.shards.items import SharedItems
from tracekit.text import counted, percent
from tracekit.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.capacity_plan.spares.search import SparesAnswer
    from tracekit.shards.work import SharedWork

__all__ = ["plan_spares"]


@explain_damage()
def plan_spares(
    trace: Trace | str | Path,
    gang: str | int,
    ettr: float = 0.95,
    *,
    checkpoint: str | None = None,
    model: str | None = None,
    cluster: str | None = None,
    resamples: int = 40,
    seed: int = 0,
    shared: SharedWork | None = None,
    progress: Progress | None = None,
) -> SparePlan:
    """Return how much of its time a gang does useful work with how many spares, under the outages of a log.

    >>> import tracekit
    >>> found = tracekit.plan_spares("my-trace", 256, 0.95, checkpoint="interval=daly,cost=60")  # doctest: +SKIP
    >>> found.sentences  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        With the table node_events; jobs are not needed.
    gang : int or str
        GPUs of the gang, or its nodes, such as '32nodes'. It takes whole nodes.
    ettr : float
        The effective training time ratio to be kept, above 0 and below 1: time of work that is saved / all time.
    checkpoint : str, optional
        How the gang saves its work, as `tracekit replay --checkpoint` takes it.
    model, cluster : str, optional
        Nodes of this GPU model, of this cluster; all of the log by default.
    resamples : int
        How often nodes are drawn.
    seed : int
        Of every draw.
    shared : SharedWork, optional
        The folder in which shards make the runs together, or gathers them (docs/howto/shards.md).
    progress : Progress, optional
        Told of every step.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers, and something is missing.
    TracekitError
        The Trace has no node_events, or an option cannot be used; or the gang is wider than the nodes that were ever up
        at once.
    """
    kernel()  # before a Trace is read for nothing
    question = SpareQuestion.of(gang, ettr, checkpoint, model=model, cluster=cluster, resamples=resamples, seed=seed)
    opened, progress = Trace.of(trace).ingested, progress or Progress()
    pool = NodePool.of(opened, question)
    nodes = pool.nodes_of_gang(question)
    items = None
    if shared is not None:
        items = SharedItems(shared, {**plan_facts("spares", opened), "model": model, "cluster": cluster})
    runs = GangRuns(pool, nodes, question.checkpoint, resamples, seed, items)
    curves = []
    for kind in ("recorded", "model"):
        progress.stage(f"replaying a gang on {counted(nodes, 'nodes')} under outages {kind}")
        curves.append(SpareCurve(runs, kind, ettr))
    answers = tuple(curve.answer() for curve in curves)
    rows = [row for curve in curves for row in curve.rows()]
    interval_s = runs.interval_s()
    return SparePlan(
        question,
        nodes,
        _recorded(pool),
        interval_s if np.isfinite(interval_s) else None,
        rows,
        answers,
        _best(runs, curves[0], answers[0]),
        _assumptions(pool, question, nodes),
    )


def _recorded(pool: NodePool) -> dict[str, Any]:
    return {
        "nodes": pool.nodes,
        "gpus_per_node": pool.gpus_per_node,
        "days": pool.days,
        "outages": len(pool.spans()),
        "down_per_node_day": pool.rate_per_ms * 86_400_000,
        "availability_share": pool.availability(),
        "most_nodes_up": pool.most_up(),
    }


def _best(runs: GangRuns, curve: SpareCurve, answer: SparesAnswer) -> BestCheckpoint | None:
    """Return the best interval at the rate at which the gang itself failed, with the spares of the answer."""
    asked = runs.checkpoint
    spares = answer.best_spares if answer.spares is None else answer.spares
    here = curve.look(spares).mean(axis=0)
    part = dict(zip(PARTS, here.tolist(), strict=True))
    ran_s = (1 - part["waiting_share"]) * 86_400
    if asked.cost_s == 0 or part["restarts_per_day"] == 0 or ran_s == 0:
        return None
    interval_s = best_interval(asked.cost_s, part["restarts_per_day"] / ran_s)
    found = runs.of("recorded", spares, replace(asked, interval_s=interval_s))
    return BestCheckpoint(interval_s, spares, float(found[:, PARTS.index("ettr")].mean()), part["ettr"])


def _assumptions(pool: NodePool, question: SpareQuestion, nodes: int) -> dict[str, dict[str, Any]]:
    others = f"; {counted(pool.other_nodes, 'nodes')} of another size are left out" if pool.other_nodes else ""
    each = "" if pool.gpus_per_node is None else f" of {counted(pool.gpus_per_node, 'GPUs')}"
    share = percent(interval_share(question.resamples))
    values = {
        "gang": (
            f"one job on {counted(nodes, 'nodes')}{each}, whole and alone on them, for all of {pool.days:,.0f} days of "
            f"the log; it goes on where it has all its nodes{others}"
        ),
        "checkpoints": question.checkpoint.words,
        "spares": (
            "idle until a node of the gang leaves, then in its place at once; a node that is back is a spare; spares "
            "fail as other nodes do"
        ),
        "outages": (
            f"{counted(len(pool.spans()), 'times')} away of {counted(pool.nodes, 'nodes')}, which are up "
            f"{percent(pool.availability())} of the time; a node that goes down stops the gang, one that is drained or "
            "in maintenance leaves it when the gang stops for another reason"
        ),
        "recorded": "nodes drawn from the log without replacement, away when they were",
        "model": (
            "nodes drawn with replacement, the log turned by a time by lot and gone round, so that faults that came "
            "together come together"
        ),
        "intervals": (
            f"{share} of such draws lie inside: {question.resamples} are made; which nodes a gang gets is in them, "
            "that another year has other faults is not"
        ),
    }
    sources = {"checkpoints": "--checkpoint", "outages": "table node_events"}
    return {key: {"title": key, "value": v, "source": sources.get(key, "the plan")} for key, v in values.items()}
