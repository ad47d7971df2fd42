"""The capacity plan as an answer of a report: how long jobs would wait with more and with fewer nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.answer import AnswerColumn, Question
from tracekit.capacity_plan.plan import plan_cluster
from tracekit.capacity_plan.question import PlanQuestion
from tracekit.capacity_plan.result import TWIN
from tracekit.capacity_plan.search import interval_share
from tracekit.errors import UsageError
from tracekit.replay.results.recorded_times import RECORDED
from tracekit.report.commands import plan_commands
from tracekit.text import percent

if TYPE_CHECKING:
    from tracekit.answer import Answer, Unanswered
    from tracekit.calibration.twins import Twins

__all__ = ["PLAN", "plan_answer"]

_RESAMPLES = 10
"""Months that a report draws; `tracekit plan` draws 40."""
_C = AnswerColumn

PLAN = Question(
    name="plan/nodes",
    kind="replay",
    title="Waits against nodes",
    question="How long would jobs wait with more nodes, and with fewer?",
    rule=(
        "Days of the log are drawn into months, whole and with the weekday kept, and replayed in the twin of the"
        f" cluster with more and with fewer nodes like those there are. Waits are means over {_RESAMPLES} months; the"
        f" interval holds those of {percent(interval_share(_RESAMPLES))} of them and does not hold how far the twin is"
        " from the log. The row 'recorded' is the log itself. 'tracekit plan' takes a target, the growth of the load,"
        " policies and costs."
    ),
    columns=(
        _C("cluster", "text", "the cluster with most of the waiting hours, of those whose twin carries effects"),
        _C("policy", "text", "twin: replayed as the log's scheduler behaves; recorded: the log"),
        _C("nodes", "nodes", "nodes with GPUs"),
        _C("gpus", "GPUs", "their GPUs"),
        _C("mean_wait_s", "s", "mean wait until the first start; empty where a job would never start"),
        _C("p50_wait_s", "s", "median"),
        _C("p90_wait_s", "s", "90th percentile"),
        _C("p90_wait_low_s", "s", "lower end of its interval"),
        _C("p90_wait_high_s", "s", "upper end"),
        _C("held_share", "share", "GPU time held, of all"),
        _C("offered_share", "share", "GPU time asked for, of all"),
    ),
)


def plan_answer(twins: Twins) -> Answer | Unanswered:
    """Return the plan of the busiest cluster whose twin carries effects, or why there is none."""
    if twins.reason is not None:
        return PLAN.unanswered(f"There is no twin of the log: {twins.reason}.")
    reasons = []
    for one in twins.clusters:
        try:
            made = plan_cluster(one.found, PlanQuestion(resamples=_RESAMPLES), twins.progress)
        except UsageError as error:
            made = error.what
        if isinstance(made, str):
            reasons.append(f"{made[:1].upper()}{made[1:]}.")
            continue
        rows: list[dict[str, Any]] = [
            {**row, "cluster": made.cluster} for row in made.capacity if row["policy"] == TWIN
        ]
        rows.append({**made.recorded, "policy": RECORDED, "cluster": made.cluster})
        commands = plan_commands(twins, one, _RESAMPLES)
        return replace(PLAN.answered(rows, made.sentences), commands=tuple(commands))
    return PLAN.unanswered(*reasons)
