"""The changes between two periods as answers of a report.

The rows are those of `tracekit.characterize.changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.characterize.changes.compare import ALL_JOBS
from tracekit.characterize.changes.differences import RULE
from tracekit.characterize.changes.periods import rule
from tracekit.report.phrases import gpu_jobs

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.characterize.changes import Changes

__all__ = ["ALL_JOBS", "BY_VC", "COMPARED", "MEASURES", "changed_answers"]

_C = AnswerColumn
_VALUES = (
    _C("unit", "text", "unit of before, after and difference"),
    _C("before", "see unit", "value of the earlier period"),
    _C("after", "see unit", "value of the later one"),
    _C("difference", "see unit", "after - before"),
    _C("difference_low", "see unit", "lower end of its 95 % interval"),
    _C("difference_high", "see unit", "upper end"),
    _C("relative_change", "share", "difference / before; NULL where before is 0"),
    _C("relative_change_low", "share", "lower end of its 95 % interval"),
    _C("relative_change_high", "share", "upper end"),
    _C("n_before", "observations", "jobs, waits or samples before"),
    _C("n_after", "observations", "the same after"),
    _C("days_before", "days", "days that the value before rests on"),
    _C("days_after", "days", "the same after"),
    _C("p_value", "0 to 1", "chance of such a difference, or a larger one, where nothing changed"),
    _C("p_adjusted", "0 to 1", "the same, adjusted for the number of rows compared"),
    _C("verdict", "text", "changed, noise or too little data"),
)


_SHARED_RULE = (
    "A job belongs to the calendar day of its submission in the trace's time zone, with all that it did later;"
    " telemetry to the day of its time. Jobs that still run have no run time yet, so that the last days of a log favour"
    " short jobs."
)

MEASURES = Question(
    name="change/measures",
    kind="comparison",
    title="What changed",
    question="What is different from the time before, and is it more than noise?",
    rule=f"{rule()} {_SHARED_RULE} Size classes with less than 30 jobs on a side are left out. {RULE}",
    columns=(
        _C("measure", "text", "what is compared; the definition says how it is counted"),
        _C("scope", "text", "all jobs, or GPU jobs where there are others too; or the jobs of a size class"),
        *_VALUES,
    ),
)
BY_VC = Question(
    name="change/by_vc",
    kind="comparison",
    title="What changed, by virtual cluster",
    question="In which virtual clusters is something different from the time before?",
    rule="Measures as in change/measures. Virtual clusters with less than 30 jobs on a side are left out, and beyond 50"
    f" those with fewer jobs; those of one name in several clusters are taken together. {RULE}",
    columns=(_C("measure", "text", "what is compared"), _C("vc", "text", "virtual cluster"), *_VALUES),
)
COMPARED = (MEASURES, BY_VC)
"""The questions that a report asks about two periods."""


def changed_answers(found: Changes) -> list[Answer | Unanswered]:
    """Return the answers to `COMPARED`; virtual clusters only where some are compared."""
    by_vc = found.frame.filter(pl.col("of") == "vc").rename({"scope": "vc"})
    classes = found.frame.filter(pl.col("of") == "gpu_class")["scope"].unique().to_list()
    jobs = found.frame.filter(pl.col("of") != "vc").with_columns(
        pl.when(pl.col("of") == "gpu_class")
        .then(pl.col("scope").replace({name: gpu_jobs(name) for name in classes}))
        .otherwise(pl.col("scope"))
        .alias("scope")
    )
    answers: list[Answer | Unanswered] = [
        Answer(MEASURES, jobs.select(c.name for c in MEASURES.columns), notes=found.notes)
    ]
    if by_vc.height:
        answers.append(Answer(BY_VC, by_vc.select(c.name for c in BY_VC.columns), notes=found.notes[:1]))
    else:
        answers.append(BY_VC.unanswered("No virtual cluster has 30 jobs in both periods."))
    return answers
