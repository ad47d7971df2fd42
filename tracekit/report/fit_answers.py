"""The fitted workload as answers of a report: the chosen families, how well they fit, and when jobs arrive.

The rows come from a model (see `tracekit.fit`), so the page and its data match workload.json.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.fit.arrivals import HOURS_UNKNOWN
from tracekit.fit.model import score_rows, score_words
from tracekit.fit.process import PROCESS_WORDS
from tracekit.fit.rate import CELLS, LEAST_DAYS
from tracekit.fit.run_times import LEAST_JOBS
from tracekit.report.fit_curves import (
    chosen_fit,
    fitted_distribution,
    growth_factor,
    growth_words,
    half_days,
    hours_known,
    log_growth,
    observed_points,
    steep,
    weekly_rates,
    why_undrawn,
)
from tracekit.report.phrases import WEEKDAYS, gpu_jobs
from tracekit.report.structure import WORKLOAD
from tracekit.tenant import VC
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.fit.model import WorkloadModel
    from tracekit.tenant import Tenant


DAYS = tuple(day.lower() for day in WEEKDAYS)
NUMBERED_DAYS = tuple(f"day_{number}" for number in range(1, 8))
"""Column names for logs whose days of the week are unknown."""

_RATE_RULE = (
    "Jobs submitted in the same second, or in the same step of a coarser clock, form a batch. The expected number of"
    " batches per hour is a level times a factor for the hour of the day or week. The level is constant, grows"
    " exponentially, or has change points. The level's form and the kind of factor are those with the lowest BIC, "
    "with the log-likelihood divided by the dispersion of counts. The fitted value is the mean over the log. The "
    "observed value is the mean over the hours that the log covers completely, or unknown if there are none."
)
_PROCESS_RULE = (
    "The fitted rate is the expected number of batches in each hour. The process describes how batches vary around"
    " that rate. Poisson: batches arrive independently of each other. Gamma renewal: the gaps between batches are"
    " independent draws from a gamma distribution. MMPP (Markov-modulated Poisson process): the rate switches at random"
    " between a calm and a busy state, and batches arrive independently within each state. Two tests check the Poisson"
    " process: Pearson's dispersion of hourly counts around the fitted rate, and the squared variation (variance over"
    " squared mean) of the gaps between batches, with time rescaled so that the fitted rate is 1. Each statistic is"
    " compared with simulated Poisson processes that use the log's clock. Their median is about 1, or less if the "
    "clock is so coarse that several batches share a step. p is the share of simulations at least as far off (for "
    "hourly counts, at least as far above). If a p is below 0.01, Poisson is excluded regardless of its BIC, and "
    "the other process with the lower BIC is chosen. Sessions are another model: jobs that one user (or "
    "{tenant.one}, if users are unknown) submits in quick succession. If the log has sessions, both models are "
    "fitted to the first half of the batches and compared on the second half. The distance is the mean difference "
    "in the variation of gaps"
    " and of hourly counts (both as logarithms), in the correlation of successive hours, and in how often the next"
    " batch is from the same tenant. The model with the smaller distance is chosen. BIC is k log n - 2 log L, where k"
    " is the number of free parameters. BICs of rates cannot be compared with BICs of processes."
)

_C = AnswerColumn
RATE = Question(
    name="fit/arrival_rate",
    kind="fit",
    title="Observed and fitted arrival rate by hour of the week",
    question="When are jobs submitted, and how well does the fitted rate match?",
    rule=_RATE_RULE,
    columns=(
        _C("hour", "hour", "hour of the day, or if that is unknown, hours since the start of the log"),
        _C("rate", "text", "fitted or observed"),
        *(_C(day, "", f"mean batches in this hour, {day.replace('_', ' ')}") for day in (*DAYS, *NUMBERED_DAYS)),
        _C("growth", "", "fitted rate at the end of the log relative to the start, if above 10 or below 0.1"),
        _C("half_days", "days", "number of last days (or first, if the rate falls) with half of the fitted batches"),
    ),
)
PROCESS = Question(
    name="fit/arrival_process",
    kind="fit",
    title="How the arrival model was chosen",
    question="Do jobs arrive independently of each other, or in bursts?",
    rule=_PROCESS_RULE,
    columns=(
        _C(
            "part",
            "text",
            "a test against Poisson, a process, the held-out half, a setting of the chosen process, or a kind of rate",
        ),
        _C("name", "text", "name of the process, rate or parameter in workload.json"),
        _C("measure", "text", "meaning of the value"),
        _C("value", "", "a test's variation, a BIC, or a setting"),
        _C("ratio", "", "variation relative to independent arrivals with the log's clock resolution"),
        _C("p", "", "a test's p-value"),
        _C("decides", "true or false", "whether the test excludes Poisson, or whether the process or rate is chosen"),
        _C("verdict", "text", "result of the test, or whether the process or rate is chosen"),
    ),
)

_FINE = 0.9
"""If the squared variation of independent arrivals is above this, the log's clock step hardly affects the gaps."""
_LEAST_GROWTH = 0.001
"""Minimum growth or decline over the log that notes mention."""
_KIND_WORDS = {
    "constant": "the same at all hours",
    "hour_of_day": "by hour of the day",
    "hour_of_week": "by hour of the week",
}


def rate_answer(model: WorkloadModel) -> Answer | Unanswered:
    """Return fitted and observed batches by hour of the week, with notes on the rate model."""
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        return RATE.unanswered(f"The arrivals could not be fitted: {arrivals['reason']}.")
    known = hours_known(model)
    days = DAYS if known else NUMBERED_DAYS
    week = weekly_rates(model)
    whats = ("fitted", "observed") if any(r["observed"] is not None for r in week) else ("fitted",)
    more: dict[str, float] = {}
    growth = growth_factor(model)
    if steep(log_growth(model)):
        more = {"growth": growth, "half_days": half_days(model)}
    rows = [
        {"hour": h, "rate": what, **{day: week[24 * d + h][what] for d, day in enumerate(days)}, **more}
        for h in range(24)
        for what in whats
    ]
    step = arrivals.get("step_s", 1)
    moment = "the same second" if step == 1 else f"the same {duration(step)}, the step of the log's clock"
    notes = [f"a batch is all jobs that were submitted in {moment}", _kind(arrivals)]
    if not known:
        notes.append("the hour of the day is unknown: the log begins in hour 0 of day 1")
    if arrivals["rate"].get("pieces"):
        notes.append(_changes(arrivals))
    elif abs(growth - 1) >= _LEAST_GROWTH:
        notes.append(_trend(model))
    answer = RATE.answered(rows, notes)
    return replace(answer, frame=answer.frame.select("hour", "rate", *days, *more))


def _kind(arrivals: dict[str, Any]) -> str:
    """Describe how the fitted rate depends on the hour, and why its resolution is no finer."""
    kind, tried = arrivals["rate"]["kind"], arrivals["rate"].get("bic", {})
    if kind == "hour_of_week":
        return f"the fitted rate has a separate value for each of the {CELLS[kind]} hours of the week"
    finer, each, what = {
        "constant": ("hour_of_day", "at every hour", "hour of the day"),
        "hour_of_day": ("hour_of_week", "on every day", "hour of the week"),
    }[kind]
    text = f"the fitted rate is the same {each}"
    if finer in tried:
        text += f", because the log has too little evidence for a separate rate for each {what} (its BIC is higher)"
        return f"{text}. Nevertheless, {each.split()[-1]}s may differ: compare the points with the line"
    least = LEAST_DAYS[finer]
    if tried and arrivals["days"] < least:
        text += f", because the log is shorter than the {least} days needed for a separate rate for each {what}"
    return text


def _changes(arrivals: dict[str, Any]) -> str:
    """Describe when the level of a piecewise rate changes, with all levels."""
    pieces = arrivals["rate"]["pieces"]
    levels = ", ".join(f"{p['per_hour']:.3g} from day {p['from_day']:.0f}" for p in pieces[1:])
    days = counted(round(arrivals["days"], 1), "days")
    begin = f"over the {days} of the log, the level of the rate, in batches per hour"
    return f"{begin}, is {pieces[0]['per_hour']:.3g}, then {levels}"


def _trend(model: WorkloadModel) -> str:
    arrivals = model.document["arrivals"]
    days = counted(round(arrivals["days"], 1), "days")
    text = f"over the {days} of the log, the fitted rate {growth_words(growth_factor(model))}"
    if steep(log_growth(model)):
        return f"{text}. The fit models only steady growth, and would show a single jump in the rate in the same way"
    error = arrivals["rate"].get("trend_standard_error")
    if error is not None and abs(arrivals["rate"]["trend_per_day"]) < 1.96 * error:
        text += ", which may be chance"
    return text


def process_answer(model: WorkloadModel, tenant: Tenant = VC) -> Answer | Unanswered:
    """Return the tests against Poisson, the candidate processes, and the parameters of the chosen process."""
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        return PROCESS.unanswered(f"The arrivals could not be fitted: {arrivals['reason']}.")
    tests = arrivals.get("tests")
    if not tests:
        return PROCESS.unanswered(f"Arrivals are assumed to be Poisson: {arrivals['why']}.")
    process, rate = arrivals["process"], arrivals["rate"]

    def tried(part: str, name: str, measure: str, value: float | None) -> dict[str, Any]:
        """Return the row of a process or a rate, marked if it is chosen."""
        chosen = name == (rate["kind"] if part == "rate" else process)
        verdict = "chosen" if chosen else "excluded by the tests" if (part, name) == ("process", "poisson") else None
        return {"part": part, "name": name, "measure": measure, "value": value, "decides": chosen, "verdict": verdict}

    candidates = arrivals.get("candidates") or [{"process": process, "bic": None, "parameters": {}}]
    parameters: dict[str, float] = next((c["parameters"] for c in candidates if c["process"] == process), {})
    held_out, away = (arrivals.get("held_out") or {}).get("processes", []), "distance from the held-out half"
    settings = _settings(arrivals, parameters)
    rows = [
        *(_tested(name, tests) for name in _TESTS),
        *(
            tried("process", c["process"], f"BIC, of processes: {PROCESS_WORDS[c['process']]}", c["bic"])
            for c in candidates
        ),
        *(tried("held out", h["process"], f"{away}: {PROCESS_WORDS[h['process']]}", h["distance"]) for h in held_out),
        *({"part": "setting", "name": name, "measure": what, "value": value} for name, what, value in settings),
        *(tried("rate", kind, f"BIC, of rates: {_KIND_WORDS[kind]}", bic) for kind, bic in rate.get("bic", {}).items()),
    ]
    notes = _process_notes(process, parameters, tenant)
    if {"process", "rate"} <= {r["part"] for r in rows if r["value"] is not None}:
        notes.append("compare BICs only with BICs of the same kind: processes with processes, and rates with rates")
    return PROCESS.answered(rows, notes)


_TESTS = {
    "dispersion_of_hourly_counts": (
        "test of hourly counts",
        "variation of hourly counts",
        "p_dispersion",
        "dispersion_if_independent",
    ),
    "squared_variation_of_gaps": (
        "test of gaps",
        "squared variation of gaps",
        "p_variation",
        "variation_if_independent",
    ),
}
"""For each statistic: test, meaning, and the keys of its p-value and of its value for independent arrivals."""


def _tested(name: str, tests: dict[str, Any]) -> dict[str, Any]:
    part, measure, p_name, independent_name = _TESTS[name]
    value, p = tests[name], tests[p_name]
    # Older models do not contain this value; they were compared with 1.
    independent = tests.get(independent_name, 1.0)
    ratio = value / independent if independent > 0 else None
    excludes = ratio is not None and p < tests["level"]
    verdict = "as Poisson" if ratio is None or not excludes else f"{'more' if ratio > 1 else 'less'} than Poisson"
    more = {"value": value, "ratio": ratio, "p": p, "decides": excludes, "verdict": verdict}
    return {"part": part, "name": name, "measure": measure, **more}


def _settings(arrivals: dict[str, Any], parameters: dict[str, float]) -> list[tuple[str, str, float]]:
    """Return the parameters of the chosen process as (name, meaning, value)."""
    process = arrivals["process"]
    if process == "sessions":
        sessions = arrivals["sessions"]
        return [
            ("threshold_s", "longest gap between the jobs of a session [s]", sessions["threshold_s"]),
            ("sessions", "sessions in the log", sessions["sessions"]),
            ("size", "mean number of jobs per session", sessions["size"]["mean"]),
        ]
    if process == "gamma_renewal":
        fine = arrivals["tests"].get("variation_if_independent", 1.0) > _FINE
        what = "gamma shape of the gaps" + (" (1 for Poisson)" if fine else ", in the steps of the log's clock")
        return [("a", what, parameters["a"])]
    if process == "mmpp":
        return [
            ("quiet_rate", "rate in the calm state, times the fitted rate", parameters["quiet_rate"]),
            ("busy_rate", "rate in the busy state, times the fitted rate", parameters["busy_rate"]),
            ("to_busy", "mean time in the calm state, in expected batches", 1 / parameters["to_busy"]),
            ("to_quiet", "mean time in the busy state, in expected batches", 1 / parameters["to_quiet"]),
        ]
    return []


def _process_notes(process: str, parameters: dict[str, float], tenant: Tenant) -> list[str]:
    if process == "poisson":
        return []
    if process == "sessions":
        who = f"one user (or {tenant.one} if users are unknown)"
        return [f"a session is a series of jobs that {who} submits in quick succession"]
    meaning = (
        "MMPP stands for Markov-modulated Poisson process: the rate switches at random between two states, and within"
        " each state, batches arrive independently of each other"
    )
    if process == "gamma_renewal":
        meaning = "gamma renewal: each gap between batches is drawn independently"
        if parameters["a"] < 1:
            meaning += ", and very short and very long gaps are more common than with independent arrivals"
    return [meaning, "quiet days and sudden increases that the fitted rate does not follow count as bursts"]


# The generators' scores as an answer of a report: which way of generating jobs comes closest to the log.

_RULE = (
    "Each generator learns from the first part of the log, and its jobs are compared with the rest. The score is the"
    " mean rank over all statistics in workload.json, some of which are in the table. Lower is better. Gaps and jobs"
    " per hour are relative to their means. For waits, submissions are sped up or slowed down to match the GPU-hours"
    " per day of the held-out part. The naive workloads submit the log's jobs one by one at the log's mean rate, and"
    " one of them draws all run times from a single lognormal distribution. Earlier blocks of the log, as long as the"
    " held-out part, show how much the log varies."
)
SCORES = Question(
    name="fit/scores",
    kind="fit",
    title="How closely synthetic jobs match the log",
    question="Which way of generating synthetic jobs comes closest to the log?",
    rule=_RULE,
    columns=(
        _C("workload", "text", "the log, or how the jobs were generated"),
        _C("mean_rank", "", "mean rank over all statistics, where rank 1 is closest to the log"),
        _C("gap_distribution", "", "largest gap between the distributions of the times between submissions, 0 to 1"),
        _C("gap_variation", "", "coefficient of variation of the times between submissions"),
        _C("hourly_variation", "", "coefficient of variation of the jobs per hour"),
        _C("gpu_hours_per_day", "GPU-hours", "GPU-hours of the jobs submitted in one day"),
        _C("size_mix", "share", "share of jobs whose GPU count would have to change to match the log's sizes"),
        _C("run_time_p99_s", "s", "run time that 1 % of the jobs exceed"),
        _C("wait_fifo_mean_s", "s", "mean wait in a replay with first in, first out"),
        _C("wait_easy_mean_s", "s", "mean wait in a replay with EASY backfilling"),
        _C("wait_srtf_mean_s", "s", "mean wait in a replay with the shortest remaining time first"),
    ),
)


def scores_answer(model: WorkloadModel) -> Answer | Unanswered:
    """Return the scores, or the reason why the model has no scores."""
    rows = score_rows(model)
    words = score_words(model)
    if not rows:
        return SCORES.unanswered(f"{words[0].upper()}{words[1:]}.")
    return SCORES.answered(rows, [words])


NOTES = 5
"""Maximum number of model notes that a report repeats."""
ALL = "all"

_FAMILY_RULE = (
    "The run time is how long a job had its GPUs, summed over its runs. 'Until end' is the run time regardless of "
    "what ended the job. Jobs that are still running, or have no recorded end, are right-censored. 'Demand' is how "
    "long the job would have run; for this, jobs that were cancelled, timed out, preempted or lost their node are "
    "also right-censored. Eleven families are fitted by maximum likelihood without histograms, and times rounded to "
    "whole"
    " seconds count as intervals. The family with the lowest BIC is chosen. KS is the largest gap between the fitted"
    " and the observed distribution, and A-D is the Anderson-Darling statistic. For p, samples are drawn from the "
    "family and fitted again: p is the share that fits no better than an equally large sample of the log's jobs, "
    "which counts as one of them. Groups of fewer than 200 jobs are pooled. workload.json contains all"
    " families with parameters, standard errors and log-likelihoods, and the {tenant.spelled_many}."
)
_MATCH_RULE = (
    "The observed values are Kaplan-Meier estimates of how long jobs keep their GPUs. Jobs with an unknown end "
    "(still running or missing from the log) count up to the last time they were seen, so the median can exceed "
    "that of finished jobs. The fitted values are those of the family chosen for the group. A size class of fewer "
    "than 200"
    " jobs uses the fit of all jobs, shifted to its own median. The table has values for all jobs and each size "
    "class, at shares from 0.1 % to 99.9 % that correspond to at least one job."
)


FAMILY = Question(
    name="fit/run_time_family",
    kind="fit",
    title="Fitted families of run times",
    question="Which distribution describes how long jobs run?",
    rule=_FAMILY_RULE,
    columns=(
        _C("measure", "text", "until end or demand"),
        _C("gpu_class", "class", "size class, or 'all' for all jobs"),
        _C("status", "text", "how the jobs ended, or 'all' for all jobs"),
        _C("jobs", "jobs", "jobs of the group with a run time"),
        _C("censored_share", "share", "share of these jobs that are right-censored"),
        _C("family", "text", "chosen family (the one with the lowest BIC)"),
        _C("least_aic", "text", "family with the lowest AIC"),
        _C("aic", "", "2 k - 2 log L of the chosen family, where k is its number of free parameters"),
        _C("bic", "", "k log n - 2 log L of the chosen family"),
        _C("ks", "", "largest gap between fitted and observed distribution, 0 to 1"),
        _C("anderson_darling", "", "Anderson-Darling statistic, which weighs the tails more"),
        _C("p", "", "bootstrap p-value of KS"),
        _C("p_jobs", "jobs", "jobs of the group used for the p-value"),
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
        _C("gpu_class", "class", "size class, or 'all' for all jobs"),
        _C("share", "share", "share of the jobs that run at most this long"),
        _C("observed_s", "s", "observed run time at this share"),
        _C("fitted_s", "s", "fitted run time at this share"),
        _C("censored_share", "share", "share of the class's jobs with an unknown end"),
    ),
)
FITTED = (FAMILY, MATCH, RATE, PROCESS, SCORES)
"""A report's questions about a fitted model."""


def fitted_answers(model: WorkloadModel, tenant: Tenant = VC) -> list[Answer | Unanswered]:
    """Return the answers to `FITTED`. A question is unanswered, with the reason, if its part could not be fitted."""
    return [_family(model), _match(model), rate_answer(model), process_answer(model, tenant), scores_answer(model)]


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
            f"p-values come from {effort['bootstrap_replicates']} bootstrap samples of at most"
            f" {effort['bootstrap_jobs']} jobs, so none is below {1 / (1 + effort['bootstrap_replicates']):.2g} and"
            " small misfits are not detected. 'tracekit fit' draws more samples"
        )
    small = len(_groups(model)) - len(shown)
    if small:
        notes.append(
            f"{counted(small, 'groups')} by size and status {'has' if small == 1 else 'have'} fewer than {LEAST_JOBS}"
            f" jobs and {'uses' if small == 1 else 'use'} the shape of a larger group"
        )
    # The answer about the rate shows the note on unknown hours.
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
        "censored_share": entry["right_censored"] / entry["n"] if entry["n"] else None,
    }
    if entry["chosen"] is None:
        return {**row, "remark": entry["reason"]}
    fit = chosen_fit(entry)
    drawn = entry["bootstrap"]
    return {
        **row,
        "family": entry["chosen"],
        "least_aic": entry["best_by"]["aic"],
        **{name: fit[name] for name in ("aic", "bic", "ks", "anderson_darling")},
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
            f"too few jobs for a fit of their own (fewer than {LEAST_JOBS}): {', '.join(pooled)}. They use a joint fit"
            " with the neighbouring size classes or the fit of all jobs, shifted to their own median if it is above 0"
        )
    longest = max(row["observed_s"] for row in rows)
    beyond = max(row["fitted_s"] for row in rows)
    if beyond > 2 * longest:
        notes.append(
            f"at these shares the fits reach {duration(beyond)}, but the observed run times only {duration(longest)}."
            " 'tracekit generate' draws no run time above the log's longest, or above ten times that if more than 1 %"
            " of the jobs were still running"
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
    # The number of censored jobs is unknown for a pooled group.
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
