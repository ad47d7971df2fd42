"""What the page of a comparison opens with: what changed, by how much, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.characterize.changes.compare import ALL_JOBS, GPU_JOBS
from tracekit.characterize.changes.differences import FEWEST_DAYS
from tracekit.characterize.intervals import FEW
from tracekit.report.answers import rows_of
from tracekit.text import alike_durations, count, counted, quantity, shorten, signed_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Answer, Row, Unanswered
    from tracekit.report.structure import ChangedRow, WhatChanged

__all__ = ["MOST", "by_size_of_change", "carried", "change_words", "what_changed", "what_differs", "whole_log"]

MOST = 6
"""Most rows of its table."""
_NAMED = 2
"""Most changes that the sentence names."""
_MEASURES, _BY_VC = "change/measures", "change/by_vc"
_PAIRS = 3
"""Most traces that are set against the first."""


class _Verb(NamedTuple):
    """What the sides of a comparison do, of several measures and of one."""

    many: str
    one: str


_CHANGED = _Verb("changed", "changed")
_DIFFER = _Verb("differ", "differs")


def what_changed(answers: Mapping[str, Answer], unanswered: Sequence[Unanswered] = ()) -> WhatChanged | None:
    """Return what a report with `--compare` opens with; None where nothing was compared."""
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
    rows = [*rows_of(answers, _MEASURES), *rows_of(answers, _BY_VC)]
    return {
        **more,
        "text": _words(rows, _CHANGED),
        "rows": _table(rows, MOST),
        "periods": f"{found.notes[0][:1].upper()}{found.notes[0][1:]}." if found.notes else "",
        "place": "change",
    }


def what_differs(first: str, others: Mapping[str, Sequence[Row] | str]) -> WhatChanged:
    """Return what a comparison of traces opens with.

    Parameters
    ----------
    first : str
        Name of the trace that the others are compared with.
    others : mapping of str to sequence of dict, or str
        By name: the rows of change/measures and change/by_vc, or why there are none.
    """
    shown = dict(list(others.items())[:_PAIRS])
    known = [name for name, rows in shown.items() if not isinstance(rows, str)]
    sentences: list[str] = []
    table: list[ChangedRow] = []
    for name, rows in shown.items():
        against = f"{shorten(name, 30)} against {shorten(first, 30)}"
        if isinstance(rows, str):
            sentences.append(f"{against}: what differs cannot be told: {rows}")
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
    """Return whether a row is of all jobs, or of all GPU jobs."""
    return row.get("scope") in {ALL_JOBS, GPU_JOBS}


def carried(row: Row) -> bool:
    """Return whether a difference is a change: its interval, too, holds no 0."""
    low, high = row["difference_low"], row["difference_high"]
    return bool(row["verdict"] == "changed" and low is not None and high is not None and low * high > 0)


def by_size_of_change(row: Row) -> float:
    """Return what to sort changes by, the largest last; from nothing to something is the largest."""
    return float("inf") if row["relative_change"] is None else abs(row["relative_change"])


def _words(rows: Sequence[Row], verb: _Verb) -> str:
    """Return in two or three sentences what changed most, what may be chance, and what cannot be told."""
    whole = [r for r in rows if whole_log(r)]
    parts = [r for r in rows if not whole_log(r)]
    few = [r for r in whole if r["verdict"] == "too little data"]
    if not whole:
        return f"What {verb.one} cannot be told: no measure is known of both."
    if len(few) == len(whole):
        sides = (
            f"{counted(whole[0][f'n_{side}'], 'jobs')} on {counted(whole[0][f'days_{side}'], 'days')}"
            for side in ("before", "after")
        )
        return (
            f"What {verb.one} cannot be told: there are {' before and '.join(sides)} after, and each side needs"
            f" {FEW} jobs on {FEWEST_DAYS} days."
        )
    sure, own = (sorted(filter(carried, of), key=by_size_of_change, reverse=True) for of in (whole, parts))
    noise = len(whole) - len(sure) - len(few)
    untold = f", and {count(len(few))} cannot be told" if few else ""
    if sure:
        named = "; ".join(f"{_name(r)} {change_words(r)}" for r in sure[:_NAMED])
        sentences = [f"{count(len(sure))} of {counted(len(whole), 'measures')} {verb.many} beyond chance: {named}."]
        if noise or few:
            sentences.append(
                f"Of the others, {counted(noise, 'differences') if noise else 'none'} may be chance{untold}."
            )
    else:
        sentences = [f"Nothing {verb.one} beyond chance in {counted(noise, 'measures')} of the whole log{untold}."]
    if own:
        sentences.append(f"Of its parts, {_name(own[0])} {verb.one} most: {change_words(own[0])}.")
    return " ".join(sentences)


def _table(rows: Sequence[Row], most: int) -> list[ChangedRow]:
    """Return the changes, those of the whole log first and the largest first; then what did not change, and why."""
    whole, parts = ([r for r in rows if whole_log(r) == of] for of in (True, False))
    order = sorted(filter(carried, whole), key=by_size_of_change, reverse=True)
    order += sorted(filter(carried, parts), key=by_size_of_change, reverse=True)
    rest = [r for r in whole if not carried(r)]
    order += sorted(rest, key=lambda r: r["verdict"] == "too little data")
    return [_row(r) for r in order[:most]]


def _row(row: Row) -> ChangedRow:
    before, after = _values((row["before"], row["after"]), row["unit"])
    return {
        "what": _name(row),
        "before": before,
        "after": after,
        "change": _difference(row),
        "certainty": _certainty(row),
        "changed": carried(row),
    }


def _certainty(row: Row) -> str:
    """Return how sure a difference is."""
    ends = _interval(row)
    if carried(row):
        return f"sure: {ends}"
    if row["verdict"] != "too little data" and row["difference"] == 0:
        return "the same"
    if row["verdict"] != "too little data":
        return f"may be chance: {ends}" if ends else "may be chance"
    few = min(row["n_before"], row["n_after"])
    if few < FEW:
        return f"cannot tell, {count(few)} observations"
    return f"cannot tell, {counted(min(row['days_before'], row['days_after']), 'days')}"


def change_words(row: Row) -> str:
    """Return a change in words, such as '1 min -> 31 min (+2,900 % to +3,100 %)'."""
    before, after = _values((row["before"], row["after"]), row["unit"])
    ends = _interval(row)
    return f"{before} -> {after}{f' ({ends})' if ends else ''}"


def _interval(row: Row) -> str:
    """Return the 95 % interval of a change, relative where it can be."""
    low, high = (row[f"relative_change_{end}"] for end in ("low", "high"))
    if row["relative_change"] is not None and low is not None and high is not None:
        return f"{signed_percent(low)} to {signed_percent(high)}"
    low, high = (row[f"difference_{end}"] for end in ("low", "high"))
    if low is None or high is None or low == high == 0:
        return ""
    least, most = (_signed(value, row["unit"]) for value in (low, high))
    return f"{least} to {most}"


def _difference(row: Row) -> str:
    share = row["relative_change"]
    if share is not None:
        return signed_percent(share)
    return "" if row["difference"] is None else _signed(row["difference"], row["unit"])


def _signed(value: float, unit: str) -> str:
    (words,) = _values((abs(value),), unit)
    sign = "\N{MINUS SIGN}" if value < 0 else "+" if value > 0 else ""
    return f"{sign}{words}"


def _values(values: Sequence[float | None], unit: str) -> list[str]:
    """Return values with their unit; times in the same one, so that they can be compared at a glance."""
    if unit == "s" and None not in values:
        return alike_durations([v for v in values if v is not None])
    ending = " %" if unit in {"share", "percent"} else f" {unit.partition('/')[0]}"
    # The measure says that it is a rate: '12 jobs' of jobs a day.
    return ["unknown" if v is None else f"{quantity(v, unit)}{ending}" for v in values]


def _name(row: Row) -> str:
    if whole_log(row):
        return str(row["measure"])
    part = row["vc"] if row.get("scope") is None else row["scope"]
    return f"{row['measure']} of {shorten(str(part), 30)}"
