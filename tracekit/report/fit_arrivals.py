"""The fitted arrivals as answers of a report: the rate through the week, and whether jobs arrive in bursts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.answer import AnswerColumn, Question
from tracekit.fit.process import PROCESS_WORDS
from tracekit.fit.rate import CELLS, LEAST_DAYS
from tracekit.report.fit_curves import (
    growth_factor,
    growth_words,
    half_days,
    hours_known,
    log_growth,
    steep,
    weekly_rates,
)
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from tracekit.answer import Answer, Unanswered
    from tracekit.fit.model import WorkloadModel

__all__ = ["PROCESS", "RATE", "process_answer", "rate_answer"]

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
