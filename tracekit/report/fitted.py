"""The fitted workload as answers of a report: which families, how well they fit, and when jobs come.

The rows are those of a model (see `tracekit.fit`), so that a page and its data show what workload.json holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.characterize.query import QueryColumn
from tracekit.fit.run_times import LEAST_JOBS
from tracekit.report.data import Result
from tracekit.report.fitted_curves import (
    chosen_fit,
    hours_known,
    log_growth,
    observed_points,
    shape_of,
    weekly_rates,
    why_undrawn,
)
from tracekit.report.made import frame_of, made_query
from tracekit.text import count, counted

if TYPE_CHECKING:
    from tracekit.fit.model import WorkloadModel

__all__ = ["FITTED", "WORKLOAD", "fitted_results", "unfitted_results"]

WORKLOAD = "workload.json"
"""The model's file, relative to the report."""
NOTES = 5
"""Most notes of a model that a report repeats."""
ALL = "all"

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
NUMBERED_DAYS = tuple(f"day_{number}" for number in range(1, 8))
"""Columns of a log that does not tell the day of the week."""

_FAMILY_RULE = (
    "Run time is the time that a job held its GPUs: the sum of its attempts. Until end: whatever ended the job; jobs"
    " that still run are right-censored. Demand: time it would have run; cancelled, timed out and preempted jobs and"
    " those that lost their node are right-censored too. Eleven families are fitted by maximum likelihood, nothing to"
    " a histogram, whole-second rounding counted as intervals; the one of the least BIC is chosen. KS is the largest"
    " gap between fitted and observed distribution, A-D the Anderson-Darling statistic; p is the share of samples"
    " drawn from the family, and fitted again, that fit no better. Groups of less than 200 jobs are pooled. All"
    " families with parameters, standard errors and log-likelihoods, and the virtual clusters, are in workload.json."
)
_MATCH_RULE = (
    "Observed is the Kaplan-Meier estimate of how long jobs hold their GPUs, so that jobs that still run count as far"
    " as they were seen; fitted is the family that was chosen for the group. A size class of less than 200 jobs has the"
    " fit of all jobs, moved to its own median. Drawn and listed for all jobs and each size class, at shares from 0.1 %"
    " to 99.9 % as far as they stand for a job at least."
)
_RATE_RULE = (
    "Jobs submitted in one second, or in one step of a coarser clock, are a batch. The expected batches in an hour are"
    " a base rate, times a factor of the hour of the day or of the week, times exponential growth; the kind of the"
    " least BIC is taken, with the log-likelihood divided by the dispersion of hourly counts. Fitted is the mean over"
    " the log; observed is the mean over those of its hours that it holds whole, unknown where there is none."
)


_C = QueryColumn
FAMILY = made_query(
    "fit/run_time_family",
    "Fitted families of run times",
    "Which distribution describes how long jobs run?",
    _FAMILY_RULE,
    (
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
        _C("remark", "text", "why there is no fit"),
    ),
)
MATCH = made_query(
    "fit/run_time",
    "Observed and fitted run times",
    "How well do the fitted run times match the observed ones?",
    _MATCH_RULE,
    (
        _C("gpu_class", "class", "size class; 'all' is every job"),
        _C("share", "share", "share of the jobs that run no longer"),
        _C("observed_s", "s", "observed run time at this share"),
        _C("fitted_s", "s", "run time at this share by the fit"),
    ),
)
RATE = made_query(
    "fit/arrival_rate",
    "Observed and fitted rate of arrivals by hour of the week",
    "When is how much work submitted, and how well does the fitted rate follow it?",
    _RATE_RULE,
    (
        _C("hour", "hour", "hour of the day, counted from the log's first where the log does not tell it"),
        _C("rate", "text", "fitted or observed"),
        *(_C(day, "", f"mean batches in this hour, {day.replace('_', ' ')}") for day in (*DAYS, *NUMBERED_DAYS)),
    ),
)
FITTED = (FAMILY, MATCH, RATE)
"""What a report asks a model."""


def unfitted_results(reason: str) -> list[Result]:
    """Return the questions without answers, for a Trace that could not be fitted at all."""
    return [Result(query, None, reasons=[reason]) for query in FITTED]


def fitted_results(model: WorkloadModel) -> list[Result]:
    """Return what a report shows of a model; what could not be fitted has the reason."""
    return [_family(model), _match(model), _rate(model)]


def _groups(model: WorkloadModel) -> list[dict[str, Any]]:
    return [e for e in model.run_times if e["vc"] is None]


def _family(model: WorkloadModel) -> Result:
    shown = [e for e in _groups(model) if e["pooled_to"] is None]
    if not shown:
        return Result(FAMILY, None, reasons=["No job has a run time."])
    effort = model.document["effort"]
    notes = [f"the model, with virtual clusters, users, sizes and failures, is in {WORKLOAD}"]
    if effort["bootstrap_replicates"]:
        notes.append(
            f"p-values come from {effort['bootstrap_replicates']} drawn samples of at most"
            f" {effort['bootstrap_jobs']} jobs, so that none is below {1 / (1 + effort['bootstrap_replicates']):.2g};"
            " 'tracekit fit' draws more"
        )
    small = len(_groups(model)) - len(shown)
    if small:
        notes.append(
            f"{counted(small, 'groups')} by size and status {'has' if small == 1 else 'have'} less than {LEAST_JOBS}"
            f" jobs and {'takes' if small == 1 else 'take'} the shape of a larger one"
        )
    told = model.document["notes"]
    notes += told[:NOTES]
    if len(told) > NOTES:
        notes.append(f"{len(told) - NOTES} more notes are in {WORKLOAD}")
    frame = frame_of(FAMILY, [_family_row(e) for e in shown])
    if not frame["remark"].is_not_null().any():
        frame = frame.drop("remark")
    return Result(FAMILY, frame, notes=notes)


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
    }


def _match(model: WorkloadModel) -> Result:
    by_class = [e for e in _groups(model) if e["measure"] == "until_end" and e["status"] is None]
    shown = [e for e in by_class if why_undrawn(model, e) is None]
    rows = [row for e in shown for row in _match_rows(model, e)]
    if not rows:
        reasons = [e["reason"] for e in by_class if e["pooled_to"] is None and e["chosen"] is None]
        return Result(MATCH, None, reasons=reasons or ["No job has a run time."])
    notes = []
    pooled = [f"{e['gpu_class']} ({e['n']:,} jobs)" for e in shown if e["pooled_to"] is not None]
    if pooled:
        notes.append(
            f"size classes of less than {LEAST_JOBS} jobs have the fit of all jobs, moved to their own median where"
            f" it is above 0: {', '.join(pooled)}"
        )
    without = [
        f"{e['gpu_class'] or ALL} ({counted(e['n'], 'jobs')}, {why})"
        for e in by_class
        if (why := why_undrawn(model, e)) is not None
    ]
    if without:
        notes.append(f"size classes that are not shown: {', '.join(without)}")
    return Result(MATCH, frame_of(MATCH, rows), notes=notes)


def _match_rows(model: WorkloadModel, entry: dict[str, Any]) -> list[dict[str, Any]]:
    shape, told = shape_of(model, entry), observed_points(entry)
    if shape is None:
        return []
    fitted = shape.quantiles(np.array([share for share, _ in told], float))
    return [
        {
            "gpu_class": entry["gpu_class"] or ALL,
            "share": float(share),
            "observed_s": float(seconds),
            "fitted_s": float(by_fit),
        }
        for (share, seconds), by_fit in zip(told, fitted, strict=True)
    ]


def _rate(model: WorkloadModel) -> Result:
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        return Result(RATE, None, reasons=[f"The arrivals could not be fitted: {arrivals['reason']}."])
    days = DAYS if hours_known(model) else NUMBERED_DAYS
    week = weekly_rates(model)
    whats = ("fitted", "observed") if any(r["observed"] is not None for r in week) else ("fitted",)
    rows = [
        {"hour": h, "rate": what, **{day: week[24 * d + h][what] for d, day in enumerate(days)}}
        for h in range(24)
        for what in whats
    ]
    kind = {
        "constant": "the rate does not depend on the hour",
        "hour_of_day": "the rate depends on the hour of the day; no day differs from the others by more than chance",
        "hour_of_week": "the rate depends on the hour of the week",
    }[arrivals["rate"]["kind"]]
    notes = [kind, f"process: {_PROCESSES[arrivals['process']]}; {arrivals['why']}"]
    growth = log_growth(model)
    if abs(growth) > 1e-9:
        times = count(float(np.exp(growth)))
        notes.append(
            f"over the {arrivals['days']:,.0f} days of the log the fitted rate is multiplied by {times}, from the"
            " first day to the last"
        )
    return Result(RATE, frame_of(RATE, rows).select("hour", "rate", *days), notes=notes)


_PROCESSES = {
    "poisson": "Poisson",
    "gamma_renewal": "gamma renewal",
    "mmpp": "two-state Markov-modulated Poisson",
}
