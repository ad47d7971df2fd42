"""The scores of generators as an answer of a report: which way of making synthetic jobs comes nearest to the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.answer import AnswerColumn, Question
from tracekit.fit.summary import score_rows, score_words

if TYPE_CHECKING:
    from tracekit.answer import Answer, Unanswered
    from tracekit.fit.model import WorkloadModel

__all__ = ["SCORES", "scores_answer"]

_RULE = (
    "Each generator learns from the first part of the log, and what it draws is compared with the rest. A score is the"
    " mean rank over all figures in workload.json, of which the table shows some; least is best. Gaps and jobs by hour"
    " are relative to their means. For waits jobs come as much faster or slower as makes their GPU-hours a day those of"
    " the held-out part. Naive: jobs of the log one by one, at its mean rate; with run times of one lognormal"
    " distribution for all. Earlier blocks of the log, as long as the held-out part, show how much the log differs from"
    " itself."
)
_C = AnswerColumn
SCORES = Question(
    name="fit/scores",
    kind="fit",
    title="How near synthetic jobs come to the log",
    question="Which way of generating synthetic jobs comes nearest to the log?",
    rule=_RULE,
    columns=(
        _C("workload", "text", "the log, or how the jobs were generated"),
        _C("mean_rank", "", "mean rank over all figures, 1 for the nearest in each"),
        _C("gap_distribution", "", "largest gap between the distributions of times between submissions, 0 to 1"),
        _C("gap_variation", "", "coefficient of variation of the times between submissions"),
        _C("hourly_variation", "", "coefficient of variation of jobs by hour"),
        _C("gpu_hours_per_day", "GPU-hours", "GPU-hours of the jobs submitted on a day"),
        _C("size_mix", "share", "share of the jobs that would have to ask for another number of GPUs"),
        _C("run_time_p99_s", "s", "run time that 1 % of the jobs exceed"),
        _C("wait_fifo_mean_s", "s", "mean wait in a replay, first in, first out"),
        _C("wait_easy_mean_s", "s", "the same with EASY backfilling"),
        _C("wait_srtf_mean_s", "s", "the same with the shortest remaining time first"),
    ),
)


def scores_answer(model: WorkloadModel) -> Answer | Unanswered:
    """Return the scores, or why there are none."""
    rows = score_rows(model)
    words = score_words(model)
    if not rows:
        return SCORES.unanswered(f"{words[0].upper()}{words[1:]}.")
    return SCORES.answered(rows, [words])
