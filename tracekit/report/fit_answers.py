"""The fitted workload as answers of a report: which families, how well they fit, and when jobs come.

The rows are those of a model (see `tracekit.fit`), so that a page and its data show what workload.json holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.fit.arrivals import HOURS_UNKNOWN
from tracekit.fit.model import score_rows, score_words
from tracekit.fit.run_times import LEAST_JOBS
from tracekit.report.fit_arrivals import PROCESS, RATE, process_answer, rate_answer
from tracekit.report.fit_curves import chosen_fit, fitted_distribution, observed_points, why_undrawn
from tracekit.report.phrases import gpu_jobs
from tracekit.report.structure import WORKLOAD
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.fit.model import WorkloadModel


# The scores of generators as an answer of a report: which way of making synthetic jobs comes nearest to the log.

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


NOTES = 5
"""Most notes of a model that a report repeats."""
ALL = "all"

_FAMILY_RULE = (
    "Run time is the time that a job held its GPUs: the sum of its attempts. Until end: whatever ended the job; jobs"
    " that still run, or whose end the log lacks, are right-censored. Demand: time it would have run; cancelled, timed"
    " out and preempted jobs and those that lost their node are right-censored too. Eleven families are fitted by"
    " maximum likelihood, nothing to a histogram, whole-second rounding counted as intervals; the one of the least BIC"
    " is chosen. KS is the largest gap between fitted and observed distribution, A-D the Anderson-Darling statistic; p"
    " is the share of samples drawn from the family, and fitted again, that fit no better than as many jobs drawn from"
    " the log, these counted as one of them. Groups of less than 200 jobs are pooled. All families with"
    " parameters, standard errors and log-likelihoods, and the virtual clusters, are in workload.json."
)
_MATCH_RULE = (
    "Observed is the Kaplan-Meier estimate of how long jobs hold their GPUs, so that jobs whose end is not known (they"
    " still run, or the log lacks it) count as far as they were seen, which can put the median above that of the"
    " jobs that ended; fitted is the family that was chosen for the group. A size class of less than 200 jobs has the"
    " fit of all jobs, moved to its own median. Drawn and listed for all jobs and each size class, at shares from 0.1 %"
    " to 99.9 % as far as they stand for a job at least."
)


FAMILY = Question(
    name="fit/run_time_family",
    kind="fit",
    title="Fitted families of run times",
    question="Which distribution describes how long jobs run?",
    rule=_FAMILY_RULE,
    columns=(
        _C("measure", "text", "until end or demand"),
        _C("gpu_class", "class", "size class; 'all' is every job"),
        _C("status", "text", "how the jobs ended; 'all' is every job"),
        _C("jobs", "jobs", "jobs of the group with a run time"),
        _C("censored_share", "share", "of them right-censored"),
        _C("family", "text", "chosen family: the least BIC"),
        _C("least_aic", "text", "what AIC would choose"),
        _C("aic", "", "2 k - 2 log L of the chosen family, k its free parameters"),
        _C("bic", "", "k log n - 2 log L"),
        _C("ks", "", "largest gap between fitted and observed distribution, 0 to 1"),
        _C("anderson_darling", "", "Anderson-Darling statistic, which weighs the tails more"),
        _C("p", "", "bootstrap p-value of KS"),
        _C("p_jobs", "jobs", "jobs of the group that the p-value was made with"),
        _C("remark", "text", "why there is no fit"),
    ),
)
MATCH = Question(
    name="fit/run_time",
    kind="fit",
    title="Observed and fitted run times",
    question="How well do the fitted run times match the observed ones?",
    rule=_MATCH_RULE,
    columns=(
        _C("gpu_class", "class", "size class; 'all' is every job"),
        _C("share", "share", "share of the jobs that run no longer"),
        _C("observed_s", "s", "observed run time at this share"),
        _C("fitted_s", "s", "run time at this share by the fit"),
        _C("censored_share", "share", "of the jobs of the class, those whose end is not known"),
    ),
)
FITTED = (FAMILY, MATCH, RATE, PROCESS, SCORES)
"""The questions that a report asks about a fitted model."""


def fitted_answers(model: WorkloadModel) -> list[Answer | Unanswered]:
    """Return the answers to `FITTED`; what could not be fitted is unanswered, with the reason."""
    return [_family(model), _match(model), rate_answer(model), process_answer(model), scores_answer(model)]


def _groups(model: WorkloadModel) -> list[dict[str, Any]]:
    return [e for e in model.run_times if e["vc"] is None]


def _family(model: WorkloadModel) -> Answer | Unanswered:
    shown = [e for e in _groups(model) if e["pooled_to"] is None]
    if not shown:
        return FAMILY.unanswered("No job has a run time.")
    notes = []
    effort = model.document["effort"]
    if effort["bootstrap_replicates"]:
        notes.append(
            f"p-values come from {effort['bootstrap_replicates']} drawn samples of at most {effort['bootstrap_jobs']}"
            f" jobs: none can be below {1 / (1 + effort['bootstrap_replicates']):.2g}, and a small misfit of many jobs"
            " does not show; 'tracekit fit' draws more samples"
        )
    small = len(_groups(model)) - len(shown)
    if small:
        notes.append(
            f"{counted(small, 'groups')} by size and status {'has' if small == 1 else 'have'} less than {LEAST_JOBS}"
            f" jobs and {'takes' if small == 1 else 'take'} the shape of a larger one"
        )
    # The note on unknown hours stands beside the rate.
    model_notes = [note for note in model.document["notes"] if note != HOURS_UNKNOWN]
    notes += model_notes[:NOTES]
    if len(model_notes) > NOTES:
        notes.append(f"{len(model_notes) - NOTES} more notes are in {WORKLOAD}")
    answer = FAMILY.answered([_family_row(e) for e in shown], notes)
    frame = answer.frame
    return replace(answer, frame=frame.drop(c for c in ("p_jobs", "remark") if frame[c].null_count() == frame.height))


def _family_row(entry: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "measure": entry["measure"].replace("_", " "),
        "gpu_class": entry["gpu_class"] or ALL,
        "status": entry["status"] or ALL,
        "jobs": entry["n"],
    }
    row["censored_share"] = entry["right_censored"] / entry["n"] if entry["n"] else None
    if entry["chosen"] is None:
        return {**row, "remark": entry["reason"]}
    fit = chosen_fit(entry)
    drawn = entry["bootstrap"]
    return {
        **row,
        "family": entry["chosen"],
        "least_aic": entry["best_by"]["aic"],
        "aic": fit["aic"],
        "bic": fit["bic"],
        "ks": fit["ks"],
        "anderson_darling": fit["anderson_darling"],
        "p": drawn["p_ks"] if drawn else None,
        "p_jobs": drawn["jobs"] if drawn else None,
    }


def _match(model: WorkloadModel) -> Answer | Unanswered:
    by_class = [e for e in _groups(model) if e["measure"] == "until_end" and e["status"] is None]
    shown = [e for e in by_class if why_undrawn(model, e) is None]
    rows = [row for e in shown for row in _match_rows(model, e)]
    if not rows:
        reasons = [e["reason"] for e in by_class if e["pooled_to"] is None and e["chosen"] is None]
        return MATCH.unanswered(*(reasons or ["No job has a run time."]))
    notes = []
    pooled = [f"{gpu_jobs(e['gpu_class'])} ({e['n']:,})" for e in shown if e["pooled_to"] is not None]
    if pooled:
        notes.append(
            f"too few for a fit of their own, that is less than {LEAST_JOBS}: {', '.join(pooled)}. They have the fit of"
            " the size classes beside them too, or of all jobs, moved to their own median where it is above 0"
        )
    longest = max(row["observed_s"] for row in rows)
    beyond = max(row["fitted_s"] for row in rows)
    if beyond > 2 * longest:
        notes.append(
            f"at these shares the fits reach {duration(beyond)}, the observed run times {duration(longest)}; 'tracekit"
            " generate' draws none beyond the longest of the log, or ten times that where more than 1 % of the jobs"
            " still ran"
        )
    without = [
        f"{gpu_jobs(e['gpu_class']) if e['gpu_class'] else 'all jobs'} ({e['n']:,}: {why})"
        for e in by_class
        if (why := why_undrawn(model, e)) is not None
    ]
    if without:
        notes.append(f"not shown: {'; '.join(without)}")
    return MATCH.answered(rows, notes)


def _match_rows(model: WorkloadModel, entry: dict[str, Any]) -> list[dict[str, Any]]:
    distribution, points = fitted_distribution(model, entry), observed_points(entry)
    if distribution is None:
        return []
    # A pooled group does not state it.
    censored = entry["right_censored"] / entry["n"] if "right_censored" in entry and entry["n"] else None
    fitted = distribution.quantiles(np.array([share for share, _ in points], float))
    return [
        {
            "gpu_class": entry["gpu_class"] or ALL,
            "share": float(share),
            "observed_s": float(seconds),
            "fitted_s": float(by_fit),
            "censored_share": censored,
        }
        for (share, seconds), by_fit in zip(points, fitted, strict=True)
    ]
