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
from tracekit.report.phrases import gpu_jobs
from tracekit.report.structure import WORKLOAD
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.fit.model import WorkloadModel


DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NUMBERED_DAYS = tuple(f"day_{number}" for number in range(1, 8))
"""Columns of a log whose days of the week are unknown."""

_RATE_RULE = (
    "Jobs submitted in one second, or in one step of a coarser clock, are a batch. The expected batches in an hour are"
    " a level, times a factor of the hour of the day or of the week. The level is constant, grows exponentially, or has"
    " change points; form of the level and kind of the factor are those of the least BIC, with the log-likelihood"
    " divided by the dispersion of counts. Fitted is the mean over"
    " the log; observed is the mean over those of its hours that it holds whole, unknown where there is none."
)
_PROCESS_RULE = (
    "The fitted rate is the number of batches to expect in each hour; the process is how they fall around that rate."
    " Poisson: batches come independently of each other. Gamma renewal: each time between two batches is drawn for"
    " itself, from a gamma distribution. MMPP (Markov-modulated Poisson process): the rate switches at random between a"
    " calm and a busy state, and batches come independently within each. Two tests decide whether Poisson stands:"
    " Pearson's dispersion of hourly counts around the fitted rate, and the squared variation (variance over squared"
    " mean) of the gaps between batches, with time stretched so that the fitted rate is 1. Each is compared with that"
    " of drawn Poisson processes, read in the log's clock: their median is about 1, and less where the clock is so"
    " coarse that several batches fall into a step of it. p is the share of them that are as far off (hourly counts: as"
    " far above). Where a p is below 0.01, Poisson is out, whatever its BIC, and of the other two the one of the least"
    " BIC is taken. Sessions are another model: jobs of one user, or of one VC where users are unknown, submitted one"
    " soon after the other. Where there are any, they and the process are fitted to the first half of the batches and"
    " compared with the second: the distance is the mean difference of the variation of gaps and of hourly counts (of"
    " logarithms), of the correlation of successive hours, and of how often the next batch is the same tenant's; the"
    " smaller one is taken. BIC is k log n - 2 log L, k the free parameters; BICs"
    " of the rate and of the process cannot be compared with each other."
)

_C = AnswerColumn
RATE = Question(
    name="fit/arrival_rate",
    kind="fit",
    title="Observed and fitted rate of arrivals by hour of the week",
    question="When is how much work submitted, and how well does the fitted rate follow it?",
    rule=_RATE_RULE,
    columns=(
        _C("hour", "hour", "hour of the day, counted from the log's first where the log does not state it"),
        _C("rate", "text", "fitted or observed"),
        *(_C(day, "", f"mean batches in this hour, {day.replace('_', ' ')}") for day in (*DAYS, *NUMBERED_DAYS)),
        _C("growth", "", "fitted rate at the end of the log over that at its begin, where above 10 or below 0.1"),
        _C("half_days", "days", "the last days, or the first of a falling rate, with half of the fitted batches"),
    ),
)
PROCESS = Question(
    name="fit/arrival_process",
    kind="fit",
    title="How the model of arrivals was chosen",
    question="Do jobs come independently of each other, or in bursts?",
    rule=_PROCESS_RULE,
    columns=(
        _C(
            "part",
            "text",
            "a test against Poisson, a process, the held-out half, a setting of the chosen one, or a kind of rate",
        ),
        _C("name", "text", "the process, the kind of rate, or the number, as workload.json calls it"),
        _C("measure", "text", "what the value is"),
        _C("value", "", "variation of a test, BIC, or setting"),
        _C("ratio", "", "variation over that of independent arrivals read in the log's clock"),
        _C("p", "", "p-value of a test"),
        _C("decides", "true or false", "whether a test excludes Poisson, and whether a process or rate is chosen"),
        _C("verdict", "text", "what a test says, and which process and rate are chosen"),
    ),
)

_FINE = 0.9
"""Squared variation of independent arrivals above which the step of the log's clock hardly affects the gaps."""
_LEAST_GROWTH = 0.001
"""Growth over the log, or fall, below which no note mentions it."""
_KIND_WORDS = {
    "constant": "the same at all hours",
    "hour_of_day": "by hour of the day",
    "hour_of_week": "by hour of the week",
}


def rate_answer(model: WorkloadModel) -> Answer | Unanswered:
    """Return fitted and observed batches by hour of the week, with notes on the form of the rate."""
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
        notes.append("the log does not state the hour of the day: day 1 and hour 0 are those in which it begins")
    if arrivals["rate"].get("pieces"):
        notes.append(_changes(arrivals))
    elif abs(growth - 1) >= _LEAST_GROWTH:
        notes.append(_trend(model))
    answer = RATE.answered(rows, notes)
    return replace(answer, frame=answer.frame.select("hour", "rate", *days, *more))


def _kind(arrivals: dict[str, Any]) -> str:
    """Return how the fitted rate depends on the hour, and why it does not depend on more."""
    kind, tried = arrivals["rate"]["kind"], arrivals["rate"].get("bic", {})
    if kind == "hour_of_week":
        return f"the fitted rate has a value of its own for each of the {CELLS[kind]} hours of the week"
    finer, each, what = {
        "constant": ("hour_of_day", "at every hour", "hour of the day"),
        "hour_of_day": ("hour_of_week", "on every day", "hour of the week"),
    }[kind]
    text = f"the fitted rate is the same {each}"
    if finer in tried:
        text += f": the log holds too little evidence for a rate of its own for each {what} (its BIC is higher)"
        return f"{text}. That does not show that all {each.split()[-1]}s are alike: compare the points with the line"
    least = LEAST_DAYS[finer]
    if tried and arrivals["days"] < least:
        text += f": the log is shorter than the {least} days that a rate of its own for each {what} needs"
    return text


def _changes(arrivals: dict[str, Any]) -> str:
    """Return when the level of a piecewise rate changes, and from what to what."""
    pieces = arrivals["rate"]["pieces"]
    levels = ", ".join(f"{p['per_hour']:.3g} from day {p['from_day']:.0f}" for p in pieces[1:])
    days = counted(round(arrivals["days"], 1), "days")
    begin = f"over the {days} of the log the level of the rate, in batches an hour"
    return f"{begin}, is {pieces[0]['per_hour']:.3g}, then {levels}"


def _trend(model: WorkloadModel) -> str:
    arrivals = model.document["arrivals"]
    days = counted(round(arrivals["days"], 1), "days")
    text = f"over the {days} of the log the fitted rate {growth_words(growth_factor(model))}"
    if steep(log_growth(model)):
        return f"{text}. The fit models steady growth only: a rate that jumps once looks like this too"
    error = arrivals["rate"].get("trend_standard_error")
    if error is not None and abs(arrivals["rate"]["trend_per_day"]) < 1.96 * error:
        text += ", which may be chance"
    return text


def process_answer(model: WorkloadModel) -> Answer | Unanswered:
    """Return the tests against Poisson, the candidates, and the settings of the chosen process."""
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        return PROCESS.unanswered(f"The arrivals could not be fitted: {arrivals['reason']}.")
    tests = arrivals.get("tests")
    if not tests:
        return PROCESS.unanswered(f"Arrivals are taken as Poisson: {arrivals['why']}.")
    rows = [_tested(name, tests) for name in _TESTS]
    candidates = arrivals.get("candidates") or [{"process": arrivals["process"], "bic": None, "parameters": {}}]
    for candidate in candidates:
        name = candidate["process"]
        chosen = name == arrivals["process"]
        verdict = "chosen" if chosen else "excluded by the tests" if name == "poisson" else None
        measured = {"measure": f"BIC, of processes: {PROCESS_WORDS[name]}", "value": candidate["bic"]}
        rows.append({"part": "process", "name": name, **measured, "decides": chosen, "verdict": verdict})
    parameters: dict[str, float] = next(
        (c["parameters"] for c in candidates if c["process"] == arrivals["process"]), {}
    )
    for held in (arrivals.get("held_out") or {}).get("processes", []):
        chosen = held["process"] == arrivals["process"]
        measured = {"measure": f"distance from the held-out half: {PROCESS_WORDS[held['process']]}"}
        rows.append(
            {
                "part": "held out",
                "name": held["process"],
                **measured,
                "value": held["distance"],
                "decides": chosen,
                "verdict": "chosen" if chosen else None,
            }
        )
    settings = _settings(arrivals["process"], parameters, tests)
    if arrivals["process"] == "sessions":
        settings = _of_sessions(arrivals["sessions"])
    rows += [{"part": "setting", "name": name, "measure": what, "value": value} for name, what, value in settings]
    for kind, bic in arrivals["rate"].get("bic", {}).items():
        chosen = kind == arrivals["rate"]["kind"]
        measured = {"measure": f"BIC, of rates: {_KIND_WORDS[kind]}", "value": bic}
        verdict = "chosen" if chosen else None
        rows.append({"part": "rate", "name": kind, **measured, "decides": chosen, "verdict": verdict})
    notes = _process_notes(arrivals["process"], parameters)
    if {"process", "rate"} <= {r["part"] for r in rows if r["value"] is not None}:
        notes.append("a BIC is compared with those of its own kind only: processes with processes, rates with rates")
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
"""For each statistic: its test, its meaning, and the keys of its p-value and of its value for independent arrivals."""


def _tested(name: str, tests: dict[str, Any]) -> dict[str, Any]:
    part, measure, p_name, independent_name = _TESTS[name]
    value, p = tests[name], tests[p_name]
    # Older models, which lack it, were compared with 1.
    independent = tests.get(independent_name, 1.0)
    ratio = value / independent if independent > 0 else None
    excludes = False
    verdict = "as Poisson"
    if ratio is not None and p < tests["level"]:
        excludes = True
        verdict = "more than Poisson" if ratio > 1 else "less than Poisson"
    more = {"value": value, "ratio": ratio, "p": p, "decides": excludes, "verdict": verdict}
    return {"part": part, "name": name, "measure": measure, **more}


def _settings(process: str, parameters: dict[str, float], tests: dict[str, Any]) -> list[tuple[str, str, float]]:
    """Return the parameters of a process, each with its name and what it means."""
    if process == "gamma_renewal":
        fine = tests.get("variation_if_independent", 1.0) > _FINE
        what = "gamma shape of the gaps" + (" (1 for Poisson)" if fine else ", in the steps of the log's clock")
        return [("a", what, parameters["a"])]
    if process == "mmpp":
        return [
            ("quiet_rate", "rate in the calm state, times the fitted rate", parameters["quiet_rate"]),
            ("busy_rate", "rate in the busy state, times the fitted rate", parameters["busy_rate"]),
            ("to_busy", "mean stay in the calm state, in expected batches", 1 / parameters["to_busy"]),
            ("to_quiet", "mean stay in the busy state, in expected batches", 1 / parameters["to_quiet"]),
        ]
    return []


def _of_sessions(sessions: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [
        ("threshold_s", "longest gap between jobs of a session [s]", sessions["threshold_s"]),
        ("sessions", "sessions in the log", sessions["sessions"]),
        ("size", "mean jobs of a session", sessions["size"]["mean"]),
    ]


def _process_notes(process: str, parameters: dict[str, float]) -> list[str]:
    if process == "poisson":
        return []
    if process == "sessions":
        return ["a session is jobs of one user, or VC where users are unknown, submitted one soon after the other"]
    meaning = (
        "MMPP stands for Markov-modulated Poisson process: the rate switches at random between the two states, and"
        " within each batches come independently of each other"
    )
    if process == "gamma_renewal":
        meaning = "gamma renewal: each time between two batches is drawn for itself"
        if parameters["a"] < 1:
            meaning += ", very short and very long ones more often than with independent arrivals"
    return [meaning, "a quiet day or a sudden rise that the fitted rate does not follow counts as bursts here"]


# The scores of generators as an answer of a report: which way of making synthetic jobs comes nearest to the log.

_RULE = (
    "Each generator learns from the first part of the log, and what it draws is compared with the rest. A score is the"
    " mean rank over all figures in workload.json, of which the table shows some; least is best. Gaps and jobs by hour"
    " are relative to their means. For waits jobs come as much faster or slower as makes their GPU-hours a day those of"
    " the held-out part. Naive: jobs of the log one by one, at its mean rate; with run times of one lognormal"
    " distribution for all. Earlier blocks of the log, as long as the held-out part, show how much the log differs from"
    " itself."
)
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
