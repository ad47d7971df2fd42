"""The result of a plan for nodes: its rows and answers, as data and in words, and the output files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tracekit.capacity_plan.replays import figure, target_wait
from tracekit.capacity_plan.search import Answer, interval_share, log_among, spread
from tracekit.outputs import StagedFolder, output_errors
from tracekit.replay.jobs import RECORDED
from tracekit.text import alike_durations, counted, duration, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.capacity_plan.growth import LoadGrowth
    from tracekit.capacity_plan.nodes import NodeAxis
    from tracekit.capacity_plan.question import HourlyCosts, PlanQuestion, WaitTarget

    Floats = NDArray[np.float64]

PLAN_NAME = "plan.json"
_COVERED = (
    "the intervals of the answer and the table cover a further month of such days; those of more nodes cover only "
    "the sampling of this log and the simulation's error"
)
_VERDICTS = {True: "kept", False: "missed"}
TWIN = "twin"
"""Name of the twin's own policy."""
_COLUMNS = (  # a wait is unknown if some jobs never start
    ("mean wait", "mean_wait_s"),
    ("median wait", "p50_wait_s"),
    ("p90 wait", "p90_wait_s"),
)


@dataclass(frozen=True)
class NodesAnswer:
    """The number of nodes that a target needs under one policy and at one load."""

    policy: str
    growth: float
    found: Answer
    """Waits by number of nodes [s], or infinite if a job never starts."""
    full: bool
    """Whether jobs request at least all GPUs of these nodes, so that waits grow as long as this load lasts."""
    fixed: Answer | None = None
    """The answer for unchanged quotas, or None if no quota makes jobs wait."""

    def sentence(self, target: WaitTarget, who: str, what: str = "nodes") -> str:
        """Return the answer in words.

        Parameters
        ----------
        target : WaitTarget
        who : str
            The jobs whose wait counts.
        what : str
            Plural name of what is counted.
        """
        found, fixed = self.found, self.fixed
        kept = f"{target.words} for {who}"
        if found.number is None:
            best = "jobs that never start" if np.isinf(found.best) else duration(found.best)
            there = counted(found.best_number, what)
            text = f"no number up to {counted(found.most, what)} keeps {kept}; the best is {best}, with {there}"
        else:
            full = ", but the load fills them, so waits would keep growing after this period" if self.full else ""
            text = f"{_number(found, what)} {'keeps' if found.number == 1 else 'keep'} {kept}{full}"
        if fixed is None or (fixed.number, fixed.low, fixed.high) == (found.number, found.low, found.high):
            return text
        if fixed.number is None:
            return f"{text}; if quotas stay as they are, no number up to {counted(fixed.most, what)} does"
        return f"{text}; if quotas stay as they are, {_number(fixed, what)} {'does' if fixed.number == 1 else 'do'}"


def _number(found: Answer, what: str) -> str:
    high = f"more than {found.most:,}" if found.high is None else f"{found.high:,}"
    return f"{counted(found.number or 0, what)}{' or fewer' * found.or_fewer} ({found.low:,} to {high})"


@dataclass(frozen=True)
class CapacityPlan:
    """Waits of jobs by number of nodes."""

    cluster: str
    question: PlanQuestion
    recorded: dict[str, Any]
    """Nodes and GPUs of the cluster, and the group's waits in the log and in the twin."""
    capacity: list[dict[str, Any]]
    """One row per policy, growth and number of nodes (see `capacity_row`)."""
    more: list[dict[str, Any]]
    """The recorded mean wait of the log, and with additional nodes, under the twin's policy (see docs/plan.md)."""
    answers: tuple[NodesAnswer, ...]
    """One answer per policy and growth, first the twin's policy at the first growth. Empty if there is no target."""
    growth: LoadGrowth | None
    """Growth of the log's load, or None if the growth is not significant."""
    assumptions: dict[str, dict[str, Any]]
    caveats: tuple[str, ...]
    lasting: str | None
    """Why the intervals cover only the sampling of this log, or None if they cover a further month."""

    @property
    def sentences(self) -> list[str]:
        """The plan in words."""
        lines = [self._answer(one) for one in self.answers]
        lines += _more_in_words(self.more)
        lines.append(self.lasting or _COVERED)
        if (cheapest := self.cheapest) is not None:
            lines.append(
                f"the total cost of owning and waiting is lowest with {counted(cheapest['nodes'], 'nodes')}: "
                f"{cheapest['cost_per_day']:,.0f} a day"
            )
        if self.growth is not None:
            lines.append(self.growth.sentence)
        return [*lines, *self.caveats]

    def _answer(self, one: NodesAnswer) -> str:
        target, model = self.question.target, self.question.model
        assert target is not None  # noqa: S101 -- answers exist only with a target
        what = "nodes" if model is None else f"{shorten(model, 30)} nodes"
        parts = [] if one.policy == TWIN else [f"under {one.policy}"]
        parts += [] if one.growth == 1 else [f"with {one.growth:g} times the jobs"]
        head = f"{', '.join(parts)}: " if parts else ""
        answer = one.sentence(target, self.question.group.words, what)
        return f"{head}{answer}; the cluster has {self.recorded['varied']:,}"

    @property
    def cheapest(self) -> dict[str, Any] | None:
        """The row with the lowest cost under the twin's policy at the first growth, or None if no costs are given."""
        rows = [
            r
            for r in self.capacity
            if r["policy"] == TWIN and r["growth"] == self.question.growths[0] and r["cost_per_day"] is not None
        ]
        return min(rows, key=lambda r: (r["cost_per_day"], r["nodes"]), default=None)

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Return the headers and rows of the terminal table, first the log's. Waits are in words, shares in percent."""
        headers = ["nodes", "GPUs", *(title for title, _ in _COLUMNS), "p90 interval", "GPU time allocated [%]"]
        several = {
            title: key
            for title, key in (("policy", "policy"), ("load", "growth"))
            if len({row[key] for row in self.capacity}) > 1
        }
        target, costs = self.question.target, any(row["cost_per_day"] is not None for row in self.capacity)
        headers = [*several, *headers, *(["start in time [%]", "target"] if target else []), *(["cost a day"] * costs)]
        log = self.recorded
        first: list[object] = [{"policy": RECORDED, "growth": 1}[key] for key in several.values()]
        first += [f"{log['nodes']:,} (log)", log["gpus"]]
        first += [None if log[key] is None else duration(log[key]) for _, key in _COLUMNS] + [None, None]
        if target:
            wait = log[f"{target.metric}_wait_s"]
            first += [None, None if wait is None else _VERDICTS[wait <= target.limit_s]]
        rows = [first + [None] * costs]
        for row in self.capacity:
            waits = [_or_never(row[key]) for _, key in _COLUMNS]
            ends = [row["p90_wait_low_s"], row["p90_wait_high_s"]]
            between = f"{_or_never(ends[0])} to {_or_never(ends[1])}"
            held = None if row["held_share"] is None else round(100 * row["held_share"], 1)
            cells: list[object] = [*(row[key] for key in several.values()), row["nodes"], row["gpus"]]
            cells += [*waits, between, held]
            if target:
                share = row["within_target_share"]
                cells += [None if share is None else round(100 * share, 1), _VERDICTS[row["meets_target"]]]
            if costs:
                cells.append(None if row["cost_per_day"] is None else round(row["cost_per_day"]))
            rows.append(cells)
        return headers, rows

    def to_dict(self) -> dict[str, Any]:
        """Return the content of plan.json."""
        target = self.question.target
        answers = [
            {
                "policy": one.policy,
                "growth": one.growth,
                "reached": one.found.number is not None,
                "nodes": one.found.number,
                "nodes_low": one.found.low,
                "nodes_high": one.found.high,
                "or_fewer": one.found.or_fewer,
                "full": one.full,
                "best_s": one.found.best if np.isfinite(one.found.best) else None,
                "best_nodes": one.found.best_number,
                "most_nodes": one.found.most,
                "fixed_quotas": None
                if one.fixed is None
                else {"nodes": one.fixed.number, "nodes_low": one.fixed.low, "nodes_high": one.fixed.high},
                "sentence": self._answer(one),
            }
            for one in self.answers
        ]
        return {
            "cluster": self.cluster,
            "target": None
            if target is None
            else {"text": target.text, "metric": target.metric, "limit_s": target.limit_s}
            | {"for": self.question.group.words},
            "recorded": self.recorded,
            "capacity": self.capacity,
            "more": self.more,
            "answer": answers[0] if answers else None,
            "answers": answers,
            "growth_of_log": None
            if self.growth is None
            else self.growth.to_dict() | {"sentence": self.growth.sentence},
            "sentences": self.sentences,
            "assumptions": self.assumptions,
            "resamples": self.question.resamples,
            "interval_share": interval_share(self.question.resamples),
            "covers_further_month": self.lasting is None,
            "seed": self.question.seed,
        }


def _more_in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the effect of additional nodes in words. For a single GPU model, include only the largest addition."""
    known = [row for row in rows if row["mean_wait_s"] is not None]
    shown = [row for row in known if row["mean_wait_s"] != row["recorded_mean_wait_s"]]
    if known and not shown:
        return ["more nodes do not change waits"]
    last = {row["model"]: row for row in shown}
    lines = []
    for row in shown:
        if row["model"] is not None and row is not last[row["model"]]:
            continue
        what = "nodes" if row["model"] is None else f"{shorten(row['model'], 30)} nodes"
        names = ("recorded_mean_wait_s", "mean_wait_s", "mean_wait_low_s", "mean_wait_high_s")
        log, there, low, high = alike_durations([row[name] for name in names])
        lines.append(
            f"{counted(row['more_nodes'], what)} more: mean wait {there} ({low} to {high}) instead of {log} in the log"
        )
    return lines


def _or_never(seconds: float | None) -> str:
    return "never" if seconds is None else duration(seconds)


def capacity_row(
    policy: str, growth: float, axis: NodeAxis, number: int, values: Floats, gpus: int, question: PlanQuestion
) -> dict[str, Any]:
    """Return the row for a capacity.

    The keys policy, growth, nodes, gpus and by_model (NULL if there is only one model) identify the capacity. The keys
    mean, p50, p90 and p99_wait_s, within_target_share and held_share are those of the log's jobs in recorded order,
    with the ends of the intervals for a further month (_low_s and _high_s, or _low and _high). A wait is NULL if jobs
    that determine it never start. The other keys are meets_target, jobs_per_day, gpus_up (mean GPUs of nodes in
    service), offered_share (requested GPU time / GPU time of the GPUs up, or NULL if no GPU is up), never_start_share,
    owning_cost_per_day, waiting_cost_per_day (of all jobs), and their sum cost_per_day.

    Parameters
    ----------
    values : array of float, shape (1 + R, figures)
        The `FIGURES` of the log and of each drawn month.
    """
    capacity = axis.at(number)
    row: dict[str, Any] = {"policy": policy, "growth": growth, "nodes": sum(capacity), "gpus": gpus}
    row["by_model"] = dict(zip(axis.models, capacity, strict=True)) if len(axis.models) > 1 else None
    for name in ("mean_wait_s", "p50_wait_s", "p90_wait_s", "p99_wait_s"):
        row |= spread(log_among(figure(values, name)), name.removesuffix("_s"), "_s")
    for name in ("within_target_share", "held_share"):
        row |= spread(log_among(figure(values, name)), name)
    target = question.target
    row["meets_target"] = None if target is None else target_wait(values, target).value <= target.limit_s
    row["jobs_per_day"] = _of_log(values, "jobs_per_day")
    row["gpus_up"] = up = float(figure(values, "gpus_up")[0])
    row["offered_share"] = float(figure(values, "offered_gpus")[0]) / up if up > 0 else None
    row["never_start_share"] = _of_log(values, "never_start_share")
    return row | _costs(sum(capacity), _of_log(values, "waiting_hours_per_day"), question.costs)


def _of_log(values: Floats, name: str) -> float | None:
    found = float(figure(values, name)[0])
    return found if np.isfinite(found) else None


def _costs(nodes: int, waiting_hours: float | None, costs: HourlyCosts) -> dict[str, float | None]:
    owning = None if costs.node is None else costs.node * nodes * 24
    waiting = None if costs.wait is None or waiting_hours is None else costs.wait * waiting_hours
    whole = None if owning is None or waiting is None else owning + waiting
    return {"owning_cost_per_day": owning, "waiting_cost_per_day": waiting, "cost_per_day": whole}


def plan_folder(out: Path, *, force: bool) -> StagedFolder:
    """Return the staged folder for a plan. It appears completely or not at all.

    Raises
    ------
    OutputError
        OUT exists or cannot be written.
    """
    return StagedFolder(out, force=force, marker=PLAN_NAME, kind="a capacity plan")


def write_plan(
    facts: dict[str, Any], staged: StagedFolder, draw: Callable[[dict[str, Any]], str] | None = None
) -> None:
    """Write plan.json and, if `draw` is given, plan.svg, which plots its content.

    Parameters
    ----------
    facts : dict
        `to_dict` of a plan for nodes or spares.
    staged : StagedFolder
        See `plan_folder`.
    draw : callable, optional

    Raises
    ------
    OutputError
        The folder cannot be written.
    """
    with output_errors(staged.target):
        text = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        (staged.path / PLAN_NAME).write_bytes(text)
        if draw is not None:
            (staged.path / "plan.svg").write_text(draw(facts), encoding="utf-8")
    staged.commit()
