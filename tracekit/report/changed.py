"""What changed between two periods: answers of a report, and the opening of a page.

The rows come from `tracekit.characterize.changes`.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.characterize.changes.compare import ALL_JOBS, COLUMNS, GPU_JOBS
from tracekit.characterize.changes.differences import FEWEST_DAYS, RULE
from tracekit.characterize.changes.periods import rule
from tracekit.characterize.intervals import FEW
from tracekit.errors import DamagedTraceError, StoreError, TracekitError, UsageError
from tracekit.report.answers import rows_of
from tracekit.report.phrases import gpu_jobs
from tracekit.tenant import VC
from tracekit.text import alike_durations, count, counted, quantity, shorten, signed_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tracekit.answer import Row, Unanswered
    from tracekit.characterize.changes import Changes
    from tracekit.report.structure import ChangedRow, WhatChanged
    from tracekit.tenant import Tenant


_C = AnswerColumn

_SHARED_RULE = (
    "A job counts, with all later events, on the calendar day of its submission in the trace's time zone."
    " A telemetry sample counts on the day it was taken. Jobs that are still running have no run time yet, so the last"
    " days of a log favour short jobs."
)

MEASURES = Question(
    name="change/measures",
    kind="comparison",
    title="What changed",
    question="What has changed since the earlier period, and is it more than noise?",
    rule=f"{rule()} {_SHARED_RULE} Size classes with fewer than 30 jobs on a side are left out. {RULE}",
    columns=(
        _C("measure", "text", "the measure that is compared, counted as described in the definition"),
        _C("scope", "text", "all jobs (only GPU jobs if the trace also has CPU jobs), or the jobs of one size class"),
        *COLUMNS,
    ),
)
BY_VC = Question(
    name="change/by_vc",
    kind="comparison",
    title="What changed, by {tenant.spelled}",
    question="Which {tenant.spelled_many} have changed since the earlier period?",
    rule="The measures are those of change/measures. {tenant.Spelled_many} with fewer than 30 jobs on a side are left"
    " out. If more than 50 remain, the 50 with the most jobs are shown. {tenant.Spelled_many} with the same name are"
    " combined."
    f" {RULE}",
    columns=(_C("measure", "text", "the measure that is compared"), _C("vc", "text", "{tenant.spelled}"), *COLUMNS),
)
COMPARED = (MEASURES, BY_VC)
"""The questions that a report asks about two periods."""


def changed_answers(found: Changes, tenant: Tenant = VC) -> list[Answer | Unanswered]:
    """Return the answers to `COMPARED`. Virtual clusters are included only if any were compared."""
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
        answers.append(BY_VC.unanswered(f"No {tenant.spelled} has 30 jobs in both periods."))
    return answers


def changed_rows(answers: Mapping[str, Answer]) -> list[Row]:
    """Return the rows of the answers to `COMPARED`. A row about a tenant names it in `tenant` and has no scope."""
    found = answers.get(_BY_VC)
    column = found.frame.columns[1] if found is not None else ""
    by_vc = [{**row, "tenant": row[column], "scope": None} for row in rows_of(answers, _BY_VC)]
    return [*rows_of(answers, _MEASURES), *by_vc]


def changed_or_reason(compare: Callable[[], Changes], tenant: Tenant = VC) -> list[Answer | Unanswered] | str:
    """Return the answers about the two periods of `compare`, or why they are missing.

    Errors caused by a damaged Trace, a store, the user's options or failed SQL are raised.
    """
    try:
        return changed_answers(compare(), tenant)
    except (DamagedTraceError, StoreError, UsageError):
        raise
    except TracekitError as error:
        if error.__cause__ is not None:
            raise
        return f"{error.what}."


MOST = 6
"""Maximum number of rows in the opening table."""
_NAMED = 2
"""Maximum number of changes that the sentence names."""
_MEASURES, _BY_VC = "change/measures", "change/by_vc"
_PAIRS = 3
"""Maximum number of traces compared with the first one."""


class _Verb(NamedTuple):
    """The verb of a comparison, in the plural and the singular."""

    many: str
    one: str


_CHANGED = _Verb("changed", "changed")
_DIFFER = _Verb("differ", "differs")


def what_changed(answers: Mapping[str, Answer], unanswered: Sequence[Unanswered] = ()) -> WhatChanged | None:
    """Build the opening of a report with `--compare`, or return None if nothing was compared."""
    found = answers.get(_MEASURES)
    more: WhatChanged = {
        "heading": "What changed",
        "text": "",
        "heads": ["before", "after"],
        "rows": [],
        "periods": "",
        "place": "",
    }
    if found is None:
        why = next((u.reasons[0] for u in unanswered if u.name == _MEASURES), None)
        return None if why is None else {**more, "text": why}
    rows = changed_rows(answers)
    return {
        **more,
        "text": _words(rows, _CHANGED),
        "rows": _table(rows, MOST),
        "periods": f"{found.notes[0][:1].upper()}{found.notes[0][1:]}." if found.notes else "",
        "place": "change",
    }


def what_differs(first: str, others: Mapping[str, Sequence[Row] | str]) -> WhatChanged:
    """Build the opening of a comparison of traces.

    Parameters
    ----------
    first : str
        Name of the trace that the others are compared with.
    others : mapping of str to sequence of dict, or str
        For each name, the `changed_rows` or the reason why they are missing.
    """
    shown = dict(list(others.items())[:_PAIRS])
    known = [name for name, rows in shown.items() if not isinstance(rows, str)]
    sentences: list[str] = []
    table: list[ChangedRow] = []
    for name, rows in shown.items():
        against = f"{shorten(name, 30)} compared with {shorten(first, 30)}"
        if isinstance(rows, str):
            sentences.append(f"{shorten(name, 30)} cannot be compared with {shorten(first, 30)}: {rows}")
            continue
        words = _words(rows, _DIFFER) if len(shown) == 1 else _words(rows, _DIFFER).partition(". ")[0].rstrip(".") + "."
        sentences.append(f"{against}: {words[:1].lower()}{words[1:]}")
        own = _table(rows, MOST // len(known))
        table += own if len(shown) == 1 else [{**row, "what": f"{row['what']}, {shorten(name, 30)}"} for row in own]
    return {
        "heading": "What differs",
        "text": " ".join(sentences),
        "heads": [shorten(first, 30), shorten(next(iter(shown)), 30) if len(shown) == 1 else "the other"],
        "rows": table,
        "periods": "",
        "place": "",
    }


def whole_log(row: Row) -> bool:
    """Return whether a row covers all jobs or all GPU jobs."""
    return row.get("scope") in {ALL_JOBS, GPU_JOBS}


def largest_changes(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with a change, the largest change first. A change from 0 counts as the largest."""
    changed = [r for r in rows if r["verdict"] == "changed"]
    return sorted(
        changed, key=lambda r: inf if r["relative_change"] is None else abs(r["relative_change"]), reverse=True
    )


def _words(rows: Sequence[Row], verb: _Verb) -> str:
    """Write two or three sentences: what changed most, what may be chance, and what has too little data."""
    whole = [r for r in rows if whole_log(r)]
    parts = [r for r in rows if not whole_log(r)]
    few = [r for r in whole if r["verdict"] == "too little data"]
    if not whole:
        return f"We cannot say what {verb.one}, because no measure is known for both."
    if len(few) == len(whole):
        sides = (
            f"{counted(whole[0][f'n_{side}'], 'jobs')} on {counted(whole[0][f'days_{side}'], 'days')}"
            for side in ("before", "after")
        )
        return (
            f"We cannot say what {verb.one}: there are {' before and '.join(sides)} after, but each side needs"
            f" {FEW} jobs on {FEWEST_DAYS} days."
        )
    sure, own = largest_changes(whole), largest_changes(parts)
    noise = len(whole) - len(sure) - len(few)
    untold = f", and {count(len(few))} had too little data" if few else ""
    if sure:
        named = "; ".join(f"{_name(r)} {change_words(r)}" for r in sure[:_NAMED])
        sentences = [f"{count(len(sure))} of {counted(len(whole), 'measures')} {verb.many} beyond chance: {named}."]
        if noise or few:
            sentences.append(
                f"Among the other measures, {counted(noise, 'differences') if noise else 'none'} may be chance{untold}."
            )
    else:
        sentences = [f"Nothing {verb.one} beyond chance in {counted(noise, 'measures')} of the whole log{untold}."]
    if own:
        sentences.append(f"Among the parts of the log, {_name(own[0])} {verb.one} most: {change_words(own[0])}.")
    return " ".join(sentences)


def _table(rows: Sequence[Row], most: int) -> list[ChangedRow]:
    """Sort changes of the whole log before those of its parts, each largest first, then measures without a change."""
    whole, parts = ([r for r in rows if whole_log(r) == of] for of in (True, False))
    order = [*largest_changes(whole), *largest_changes(parts)]
    order += [r for verdict in ("noise", "too little data") for r in whole if r["verdict"] == verdict]
    return [_row(r) for r in order[:most]]


def _row(row: Row) -> ChangedRow:
    before, after = values_words((row["before"], row["after"]), row["unit"])
    return {
        "what": _name(row),
        "before": before,
        "after": after,
        "change": _difference(row),
        "certainty": _certainty(row),
        "changed": row["verdict"] == "changed",
    }


def _certainty(row: Row) -> str:
    """Describe how certain a difference is."""
    ends = _interval(row)
    if row["verdict"] == "changed":
        return f"sure: {ends}"
    if row["verdict"] == "noise":
        return "the same" if row["difference"] == 0 else f"may be chance: {ends}" if ends else "may be chance"
    few = min(row["n_before"], row["n_after"])
    if few < FEW:
        return f"too little data: {count(few)} observations"
    return f"too little data: {counted(min(row['days_before'], row['days_after']), 'days')}"


def change_words(row: Row) -> str:
    """Describe a change, such as '1 min -> 31 min (+2,900 % to +3,100 %)'."""
    before, after = values_words((row["before"], row["after"]), row["unit"])
    ends = _interval(row)
    return f"{before} -> {after}{f' ({ends})' if ends else ''}"


def _interval(row: Row) -> str:
    """Format the 95 % interval of a change, as a relative change if possible."""
    low, high = (row[f"relative_change_{end}"] for end in ("low", "high"))
    if row["relative_change"] is not None and low is not None and high is not None:
        return f"{signed_percent(low)} to {signed_percent(high)}"
    low, high = (row[f"difference_{end}"] for end in ("low", "high"))
    if low is None or high is None or low == high == 0:
        return ""
    least, most = (_signed(value, row["unit"]) for value in (low, high))
    return f"{least} to {most}"


def relative_words(row: Row) -> str:
    """Format a change with its 95 % interval, such as '+12.3 % (+5.0 % to +20.1 %)'."""
    ends = _interval(row)
    return f"{_difference(row)}{f' ({ends})' if ends else ''}"


def _difference(row: Row) -> str:
    share = row["relative_change"]
    if share is not None:
        return signed_percent(share)
    return "" if row["difference"] is None else _signed(row["difference"], row["unit"])


def _signed(value: float, unit: str) -> str:
    (words,) = values_words((abs(value),), unit)
    sign = "\N{MINUS SIGN}" if value < 0 else "+" if value > 0 else ""
    return f"{sign}{words}"


def values_words(values: Sequence[float | None], unit: str) -> list[str]:
    """Format values with their unit. All times use the same unit, so they are easy to compare."""
    if unit == "s" and None not in values:
        return alike_durations([v for v in values if v is not None])
    ending = " %" if unit in {"share", "percent"} else f" {unit.partition('/')[0]}"
    # The measure's name already contains 'per day', so write '12 jobs'.
    return ["unknown" if v is None else f"{quantity(v, unit)}{ending}" for v in values]


def _name(row: Row) -> str:
    if whole_log(row):
        return str(row["measure"])
    return f"{row['measure']} of {shorten(str(row.get('tenant', row['scope'])), 30)}"
