"""Names and order of policies, and the policies that a chart combines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.panels import PANEL, short, spoken
from tracekit.replay.results.answers import LEAST, alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Row

_FOLDED = 3
"""From this number of policies, a chart combines those with equal numbers."""


def policy_name(row: Row) -> str:
    """Return the name of a policy in sentences."""
    return spoken(str(row["policy"]))


def axis_name(row: Row) -> str:
    """Return the name of a policy for an axis; the log's own schedule keeps its name."""
    return short(str(row["policy"]))


def in_panel_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows by the standard panel, with the twin first. All other rows are compared with the first."""
    places = {name: place for place, name in enumerate((TWIN, *PANEL))}
    return sorted(rows, key=lambda r: places.get(r["policy"], len(places)))


def fold(numbers: Mapping[str, Sequence[float | None]]) -> dict[str, list[str]]:
    """Return the policies to draw, each with the policies that it also represents."""
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
    """Return the label of a line that represents several policies, from their axis names.

    Examples
    --------
    >>> label("backfilling (EASY)", []), label("the simulation", ["soonest to end (Gittins)", "fair share of GPUs"])
    ('backfilling (EASY)', 'the simulation +2')
    >>> label("backfilling (EASY)", ["least served first (LAS)", "the simulation"])
    'backfilling (EASY), the simulation +1'
    """
    twin = axis_name({"policy": TWIN})
    named = f"{name}, {twin}" if twin in others else name
    more = len(others) - (twin in others)
    return f"{named} +{more}" if more else named


def fold_note(folded: Mapping[str, Sequence[str]]) -> str:
    """Return a note on policies that a chart combines, and where to find each of them."""
    most = max(map(len, folded.values()), default=0)
    return f"'+{most}' stands for {most} more with the same values (see the table)." if most else ""


def differ(rows: Iterable[Row], column: str, least: float | None = None) -> bool:
    """Return whether the policies, without the log, differ visibly in a chart."""
    values = [r[column] for r in rows if r["policy"] != RECORDED and r[column] is not None]
    if not values:
        return False
    return bool(max(values) - min(values) > (LEAST * max(map(abs, values)) if least is None else least))
