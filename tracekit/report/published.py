"""Published numbers in report.json and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tracekit import text
from tracekit.characterize.published import CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.characterize.published import PublishedComparison, Release
    from tracekit.report.structure import PublishedNumber, ReleaseInfo

LIMIT = 50
"""Maximum number of published numbers that a page shows for one question."""


def published_number(found: PublishedComparison) -> PublishedNumber:
    """Return a published number and its measured counterpart in the format of report.json."""
    from tracekit.report.structure import PublishedNumber

    # Keep the key order of report.json.
    names = PublishedNumber.__annotations__
    stated = {name: getattr(found if hasattr(found, name) else found.published, name) for name in names}
    return cast("PublishedNumber", stated)


def release_info(release: Release | None) -> ReleaseInfo | None:
    """Return the information on the public trace for report.json, or None if nothing is published."""
    if release is None:
        return None
    return {"title": release.title, "jobs": release.jobs, "public": release.public, "note": release.note}


def amount(value: float | None, unit: str) -> str:
    """Format a number with its unit, for a table with different units.

    Examples
    --------
    >>> amount(0.4453, "share"), amount(47.25, "percent"), amount(1140, "s"), amount(2490, "GPUs")
    ('44.5 %', '47.2 %', '19 min', '2,490')
    """
    if value is None:
        return text.MISSING
    if unit == "share":
        return text.percent(value)
    if unit == "percent":
        return f"{value:.1f} %"
    return text.duration(value) if unit == "s" else text.count(value)


def published_text(number: PublishedNumber) -> str:
    """Format a published number as on the page, including its kind, such as a bound."""
    low, high = amount(number["low"], number["unit"]), amount(number["high"], number["unit"])
    shown = amount(number["value"], number["unit"])
    return {
        "range": f"{low} to {high}",
        "above": f"more than {low}",
        "below": f"less than {high}",
        "about": f"about {shown}",
    }.get(number["kind"], shown)


def difference(number: PublishedNumber) -> str:
    """Format the difference: in percentage points for shares, otherwise absolute and relative."""
    found = number["difference"]
    if found is None:
        return text.MISSING
    if number["value"] is None and found == 0:
        return "none"
    sign = "+" if found > 0 else "\N{MINUS SIGN}" if found < 0 else ""
    if number["unit"] in {"share", "percent"}:
        points = abs(found) * (100 if number["unit"] == "share" else 1)
        return f"{sign}{points:.1f} points" if points >= 0.05 else "0.0 points"
    shown = f"{sign}{amount(abs(found), number['unit'])}"
    part = number["relative"]
    return shown if not part else f"{shown} ({sign}{100 * abs(part):,.1f} %)"


def published_view(
    numbers: Sequence[PublishedNumber], traces: Sequence[str] = (), limit: int = LIMIT
) -> dict[str, Any]:
    """Return published numbers as a page shows them: rows, notes, and the meanings of the letters.

    Numbers without a measured counterpart, such as those for a VC that is not in the trace, are only counted.
    `traces` names the trace of each number if there are several traces. `limit` is the maximum number of rows.
    """
    named = list(zip(numbers, traces or [""] * len(numbers), strict=True))
    measured = [(n, trace) for n, trace in named if n["measured"] is not None]
    shown = measured[:limit]
    notes = list(dict.fromkeys(filter(None, (n["population_note"] for n, _ in shown))))
    return {
        "rows": [
            {
                "trace": trace,
                "what": n["what"],
                "artefact": _first(n["artefact"]),
                "source": "; ".join(
                    filter(None, [n["artefact"], n["source"], f"printed as {n['as_printed']}", n["accuracy"]])
                ),
                "published": published_text(n),
                "measured": amount(n["measured"], n["unit"]),
                "difference": difference(n),
                "confidence": n["confidence"],
                "note": notes.index(n["population_note"]) + 1 if n["population_note"] else None,
            }
            for n, trace in shown
        ],
        "notes": notes,
        "letters": {c: words for c, words in CONFIDENCE.items() if any(n["confidence"] == c for n, _ in shown)},
        "more": len(measured) - len(shown),
        "count": len(measured),
        "unmeasured": len(numbers) - len(measured),
    }


def _first(artefacts: str) -> str:
    """Name where a number was published: up to two places, or the first place and the count."""
    places = artefacts.split("; ")
    return " and ".join(places) if len(places) < 3 else f"{places[0]} and {len(places) - 1} more"
