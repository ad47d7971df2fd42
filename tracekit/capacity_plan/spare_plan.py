"""How many spare nodes a large job needs: its share of useful time by number of spares, and the answer in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.capacity_plan.question import SpareQuestion
from tracekit.capacity_plan.search import Answer, Curve, Ends, interval_share, mean_of, rules_of, spread
from tracekit.capacity_plan.spare_runs import KINDS, PARTS, GangRuns, Kind, NodePool
from tracekit.damage import explain_damage
from tracekit.progress import Progress
from tracekit.replay.facts import replay_facts
from tracekit.replay.native import kernel
from tracekit.replay.outages.theory import best_interval
from tracekit.runs.ledger import Ledger
from tracekit.text import counted, duration, percent
from tracekit.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_SHOWN = (0, 1, 2, 4)
"""Numbers of spares that are always tried, if there are enough nodes."""
_NOTHING_MORE = 1e-4
"""The search ends when the job waits for at most this share of the time [1]."""
_WORDS = {"recorded": "under the outages of the log", "model": "under outages drawn from the log"}
_WORTH = 0.005
"""Minimum gain in useful time to report another checkpoint interval [1] (our choice)."""


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
    shared: Ledger | None = None,
    progress: Progress | None = None,
) -> SparePlan:
    """Find a large job's share of useful time by number of spare nodes, under the outages in a log.

    >>> import tracekit
    >>> found = tracekit.plan_spares("my-trace", 256, 0.95, checkpoint="interval=daly,cost=60")  # doctest: +SKIP
    >>> found.sentences  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        A Trace with the node_events table. It needs no jobs.
    gang : int or str
        Number of GPUs of the job, or of nodes, such as '32nodes'. The job takes whole nodes.
    ettr : float
        Target effective training time ratio, above 0 and below 1: saved work time / total time.
    checkpoint : str, optional
        How the job makes checkpoints, in the form that `tracekit replay --checkpoint` accepts.
    model, cluster : str, optional
        Use only nodes of this GPU model or cluster. By default, all nodes of the log are used.
    resamples : int
        Number of random draws of nodes.
    seed : int
        Random seed for all draws.
    shared : Ledger, optional
        Folder in which shards share the runs, or from which the runs are gathered (see docs/howto/shards.md).
    progress : Progress, optional
        Reports every step.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers results, and some results are missing.
    TracekitError
        The Trace has no node_events, an option cannot be used, or the job needs more nodes than were ever up at once.
    """
    kernel()  # fail before reading the Trace
    question = SpareQuestion.of(gang, ettr, checkpoint, model=model, cluster=cluster, resamples=resamples, seed=seed)
    opened, progress = Trace.of(trace).ingested.divided, progress or Progress()
    pool = NodePool.of(opened, question)
    nodes = pool.nodes_of_gang(question)
    ledger = (shared or Ledger()).about(
        **replay_facts("spares", opened, "calibration", "capacity_plan"), model=model, cluster=cluster
    )
    runs = GangRuns(pool, nodes, question.checkpoint, resamples, seed, ledger)
    curves: dict[Kind, Curve] = {}
    for kind in KINDS:
        progress.stage(f"replaying a job on {counted(nodes, 'nodes')} under outages {kind}")
        curves[kind] = spare_curve(runs, kind)
    answers = {kind: spares_answer(curve, ettr) for kind, curve in curves.items()}
    rows = [
        _row(kind, spares, values, ettr)
        for kind, curve in curves.items()
        for spares, values in sorted(curve.tried.items())
    ]
    interval_s = runs.interval_s()
    return SparePlan(
        question,
        nodes,
        _recorded(pool),
        interval_s if np.isfinite(interval_s) else None,
        rows,
        answers,
        _best(runs, curves["recorded"], answers["recorded"]),
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


def _best(runs: GangRuns, curve: Curve, answer: Answer) -> BestCheckpoint | None:
    """Return the best checkpoint interval for the job's own failure rate, with the number of spares in the answer."""
    asked = runs.checkpoint
    spares = answer.best_number if answer.number is None else answer.number
    here = curve.tried[spares].mean(axis=0)
    part = dict(zip(PARTS, here.tolist(), strict=True))
    ran_s = (1 - part["waiting_share"]) * 86_400
    if asked.cost_s == 0 or part["restarts_per_day"] == 0 or ran_s == 0:
        return None
    interval_s = best_interval(asked.cost_s, part["restarts_per_day"] / ran_s)
    found = runs.of("recorded", spares, replace(asked, interval_s=interval_s))
    return BestCheckpoint(interval_s, spares, float(found[:, PARTS.index("ettr")].mean()), part["ettr"])


def _assumptions(pool: NodePool, question: SpareQuestion, nodes: int) -> dict[str, dict[str, Any]]:
    others = f"; {counted(pool.other_nodes, 'nodes')} of other sizes are excluded" if pool.other_nodes else ""
    each = "" if pool.gpus_per_node is None else f" of {counted(pool.gpus_per_node, 'GPUs')}"
    share = percent(interval_share(question.resamples))
    values = {
        "gang": (
            f"one job that uses all of {counted(nodes, 'nodes')}{each} for the {pool.days:,.0f} days of "
            f"the log; it runs whenever it has all its nodes{others}"
        ),
        "checkpoints": question.checkpoint.words,
        "spares": (
            "a spare is idle until it replaces a node that leaves the job, at once; a returning node becomes a "
            "spare; spares fail like other nodes"
        ),
        "outages": (
            f"{counted(len(pool.spans()), 'outages')} of {counted(pool.nodes, 'nodes')}, which are up "
            f"{percent(pool.availability())} of the time; a node that goes down stops the job; one that is drained or "
            "in maintenance leaves when the job stops for another reason"
        ),
        "recorded": "nodes drawn from the log without replacement, with outages at the recorded times",
        "model": (
            "nodes drawn with replacement; all outages are shifted by the same random time and wrap around, so "
            "simultaneous faults stay together; a node that is drawn again gets another shift, so it does not fail "
            "together with its copy"
        ),
        "intervals": (
            f"{share} of the {question.resamples} draws lie inside; the intervals cover which nodes a job gets, but "
            f"not variation from year to year"
        ),
    }
    sources = {"checkpoints": "--checkpoint", "outages": "the node_events table"}
    return {key: {"title": key, "value": v, "source": sources.get(key, "the plan")} for key, v in values.items()}


def spare_curve(runs: GangRuns, kind: Kind) -> Curve:
    """Return the `PARTS` by number of spares. Spares are added until the job hardly waits or no nodes are left."""
    curve = Curve(lambda numbers: {spares: runs.of(kind, spares) for spares in numbers})
    most = runs.most_spares(kind)
    curve.look(spares for spares in _SHOWN if spares <= most)
    last = max(curve.tried)
    while last < most and curve.tried[last][:, PARTS.index("waiting_share")].max() > _NOTHING_MORE:
        last = min(max(2 * last, 1), most)
        curve.look([last])
    return curve


def spares_answer(curve: Curve, target: float) -> Answer:
    """Return the number of spares that reaches a ratio [0..1]. The search minimizes a cost: the ratio times -1."""

    def cost(values: Floats) -> Ends:
        return mean_of(-values[:, PARTS.index("ettr")])

    for rule in rules_of(cost, -target):
        curve.narrow([rule])
    return curve.answer(cost, -target)


def _row(kind: Kind, spares: int, values: Floats, target: float) -> dict[str, Any]:
    """Return the row for a number of spares (see docs/plan.md)."""
    row: dict[str, Any] = {"outages": kind, "spares": spares, **spread(mean_of(values[:, PARTS.index("ettr")]), "ettr")}
    row["meets_target"] = row["ettr"] >= target
    return row | {name: float(values[:, PARTS.index(name)].mean()) for name in PARTS[1:]}


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint interval that loses the least time with exponential failures, and the resulting ratio."""

    interval_s: float
    """Work time between two checkpoints according to renewal theory (see `best_interval`) [s]."""
    spares: int
    """Number of spares in the replay, under the recorded outages."""
    ettr: float
    """Effective training time ratio with this interval in the replay."""
    instead_of: float
    """Effective training time ratio with the requested interval and the same number of spares."""


@dataclass(frozen=True)
class SparePlan:
    """A large job's share of useful time by number of spare nodes."""

    question: SpareQuestion
    gang_nodes: int
    recorded: dict[str, Any]
    """Facts from the log about the nodes (see docs/plan.md)."""
    interval_s: float | None
    """Work time between two checkpoints [s], or None if the job makes no checkpoints."""
    rows: list[dict[str, Any]]
    """One row per kind of outages and number of spares."""
    answers: dict[Kind, Answer]
    """The number of spares that reaches the ratio, first under recorded outages and then under drawn ones. The figure
    is the ratio times -1, so lower is better.
    """
    best: BestCheckpoint | None
    """The best checkpoint interval, or None if checkpoints cost nothing or nothing ever fails."""
    assumptions: dict[str, dict[str, Any]]

    @property
    def sentences(self) -> list[str]:
        """The plan in words."""
        lines = [self._answer(kind) for kind in self.answers]
        none = next(row for row in self.rows if row["spares"] == 0)
        if none["ettr"] < self.question.ettr:
            lines.append(
                f"without spares, {percent(none['ettr'])} of the time is useful work, and the job waits for nodes in "
                f"{percent(none['waiting_share'])} of the time"
            )
        if self.best is not None and self.best.ettr - self.best.instead_of >= _WORTH:
            lines.append(
                f"a checkpoint every {duration(self.best.interval_s)} of work would give {percent(self.best.ettr)} "
                f"instead of {percent(self.best.instead_of)}, with {counted(self.best.spares, 'spares')}"
            )
        return lines

    @property
    def gang_words(self) -> str:
        """The job in words, such as 'a job of 256 GPUs on 32 nodes'."""
        if self.question.gang.in_nodes:
            return f"a job on {counted(self.gang_nodes, 'nodes')}"
        return f"a job of {counted(self.question.gang.number, 'GPUs')} on {counted(self.gang_nodes, 'nodes')}"

    def _answer(self, kind: Kind) -> str:
        one = self.answers[kind]
        kept = f"{percent(self.question.ettr)} of the time of {self.gang_words} useful"
        under = _WORDS[kind]
        if one.number is None:
            row = next(r for r in self.rows if (r["outages"], r["spares"]) == (kind, one.best_number))
            lost = {
                "saving checkpoints": row["saving_share"],
                "lost work": row["lost_share"],
                "restarts": row["restarting_share"],
                "waiting for nodes": row["waiting_share"],
            }
            rest = ", ".join(f"{percent(share)} {what}" for what, share in lost.items() if share >= 0.0005)
            return (
                f"no number up to {counted(one.most, 'spares')} keeps {kept} {under}: at most "
                f"{percent(-one.best)}, with {counted(one.best_number, 'spares')}; the rest is {rest}"
            )
        high = f"more than {one.most:,}" if one.high is None else f"{one.high:,}"
        ends = "" if one.low == one.number == one.high else f" ({one.low or 0:,} to {high})"
        verb = "keeps" if one.number == 1 else "keep"
        return f"{counted(one.number, 'spares')}{ends} {verb} {kept} {under}"

    def to_dict(self) -> dict[str, Any]:
        """Return the content of plan.json."""
        answers = [
            {
                "outages": kind,
                "reached": one.number is not None,
                "spares": one.number,
                "spares_low": one.low,
                "spares_high": one.high,
                "best_ettr": -one.best,
                "best_spares": one.best_number,
                "most_spares": one.most,
                "sentence": self._answer(kind),
            }
            for kind, one in self.answers.items()
        ]
        asked = self.question.checkpoint
        gang = self.question.gang
        return {
            "gang": {"gpus": None if gang.in_nodes else gang.number, "nodes": self.gang_nodes},
            "target": {"ettr": self.question.ettr},
            "checkpoint": {"interval_s": self.interval_s, "cost_s": asked.cost_s, "restart_s": asked.restart_s},
            "recorded": self.recorded,
            "spares": self.rows,
            "answer": answers[0],
            "answers": answers,
            "best_checkpoint": None
            if self.best is None
            else {
                "interval_s": self.best.interval_s,
                "spares": self.best.spares,
                "ettr": self.best.ettr,
                "ettr_as_asked": self.best.instead_of,
            },
            "sentences": self.sentences,
            "assumptions": self.assumptions,
            "resamples": self.question.resamples,
            "interval_share": interval_share(self.question.resamples),
            "seed": self.question.seed,
        }

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Return the headers and rows of the terminal table, with time shares in percent."""
        parts = ("waiting", "lost", "restarting", "saving")
        rows: list[list[object]] = [
            [
                "of the log" if row["outages"] == "recorded" else "drawn",
                row["spares"],
                round(100 * row["ettr"], 2),
                f"{100 * row['ettr_low']:.1f} to {100 * row['ettr_high']:.1f}",
                *(round(100 * row[f"{part}_share"], 2) for part in parts),
                "kept" if row["meets_target"] else "missed",
            ]
            for row in self.rows
        ]
        return ["outages", "spares", "useful [%]", "interval", *(f"{part} [%]" for part in parts), "target"], rows
