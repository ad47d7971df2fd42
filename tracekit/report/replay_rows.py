"""Rows of replays, policy by policy: what they are called, in which order, and which are as good as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.panels import PANEL
from tracekit.replay.policy_words import short, spoken
from tracekit.replay.results.answers import LEAST, alike
from tracekit.replay.results.recorded_times import RECORDED, TWIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Row

_FOLDED = 3
"""From so many policies on, those whose numbers are alike are drawn as one."""


def policy_name(row: Row) -> str:
    """Return what a policy is called in sentences."""
    return spoken(str(row["policy"]))


def axis_name(row: Row) -> str:
    """Return what a policy is called beside an axis; the log's own schedule keeps its name."""
    return short(str(row["policy"]))


def in_panel_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of the standard panel, after the twin; the others are compared with the first."""
    places = {name: place for place, name in enumerate((TWIN, *PANEL))}
    return sorted(rows, key=lambda r: places.get(r["policy"], len(places)))


def fold(numbers: Mapping[str, Sequence[float | None]]) -> dict[str, list[str]]:
    """Return which policies are drawn, each with those that it stands for besides itself."""
    groups: dict[str, list[str]] = {}
    for name, found in numbers.items():
        same = (first for first in groups if RECORDED not in {first, name} and alike(numbers[first], found))
        first = next(same, None)
        if first is None:
            groups[name] = []
        else:
            groups[first].append(name)
    many = {first: others for first, others in groups.items() if len(others) + 1 >= _FOLDED}
    hidden = {name for others in many.values() for name in others}
    return {name: many.get(name, []) for name in numbers if name not in hidden}


def label(name: str, others: Sequence[str]) -> str:
    """Return what a line is called that stands for a policy and others, by their names beside an axis.

    Examples
    --------
    >>> label("backfilling (EASY)", []), label("the twin", ["soonest to end (Gittins)", "least served first (LAS)"])
    ('backfilling (EASY)', 'the twin +2')
    >>> label("backfilling (EASY)", ["least served first (LAS)", "the twin"])
    'backfilling (EASY), the twin +1'
    """
    twin = axis_name({"policy": TWIN})
    named = f"{name}, {twin}" if twin in others else name
    more = len(others) - (twin in others)
    return f"{named} +{more}" if more else named


def fold_note(folded: Mapping[str, Sequence[str]]) -> str:
    """Return where a chart draws policies as one, and where each of them stands."""
    most = max(map(len, folded.values()), default=0)
    return f"'+{most}': {most} more alike; the table has each." if most else ""


def differ(rows: Iterable[Row], column: str, least: float | None = None) -> bool:
    """Return whether the policies, the log left aside, differ by so much that it can be seen in a chart."""
    values = [r[column] for r in rows if r["policy"] != RECORDED and r[column] is not None]
    if not values:
        return False
    return bool(max(values) - min(values) > (LEAST * max(map(abs, values)) if least is None else least))
