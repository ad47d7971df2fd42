"""The pages of a digest, as HTML and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.digests.document import shown, whose
from tracekit.digests.view import OVERVIEW_HEADS, SERIES_HEADS, overview_row, part_view
from tracekit.faults import Fault
from tracekit.guidelines.markdown import escaped, table
from tracekit.report.page import draw_plain_page, draw_unmade_page
from tracekit.report.unmade import summary_line
from tracekit.text import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.digests.document import Digest, Part
    from tracekit.faults import Faults

__all__ = ["MOST_ROWS", "pages"]

MOST_ROWS = 200
"""Most users or accounts in the table of the operator's page; digest.json has all."""
_COMPARED = ("figure", "this week", "weeks before (median)", "usual", "")


def pages(digest: Digest, faults: Faults) -> Iterator[tuple[str, str]]:
    """Return path and content of each page, the operator's last: it lists the pages that could not be made.

    A page that fails says why, and is one of `faults`.
    """
    for part in digest["parts"]:
        for ending, draw in _FORMS.items():
            yield _page(digest, part, ending, draw, faults)
    while True:
        known = len(faults.found)
        first = [_page(digest, digest["everyone"], ending, draw, faults) for ending, draw in _FORMS.items()]
        if len(faults.found) == known:
            yield from first
            return


def _page(
    digest: Digest, part: Part, ending: str, draw: Callable[[Digest, Part, Faults], str], faults: Faults
) -> tuple[str, str]:
    path = f"{part['file']}.{ending}"
    made = faults.run(f"the page {path}", draw, digest, part, faults)
    if not isinstance(made, Fault):
        return path, made
    heading, data = _heading(digest, part), "../digest.json" if "/" in path else "digest.json"
    if ending == "html":
        return path, draw_unmade_page("digest", heading, made, (data,))
    return path, f"# {escaped(heading)}\n\n{escaped(made.sentence)}\n"


def _heading(digest: Digest, part: Part) -> str:
    return f"Week {digest['week']}" if part is digest["everyone"] else shown(part["name"])


def _overview(digest: Digest, faults: Faults) -> list[dict[str, Any]]:
    """Return the rows of the table of all parts: name, address of the page, cells."""
    rows = [
        {"name": shown(part["name"]), "file": part["file"], "cells": _row(part, faults)}
        for part in digest["parts"][:MOST_ROWS]
    ]
    if digest["nobody"] is not None:
        rows.append({"name": shown(None), "file": None, "cells": _row(digest["nobody"], faults)})
    return rows


def _row(part: Part, faults: Faults) -> list[str]:
    found = faults.run(f"the row of {whose(part['name'], part['file'])}", overview_row, part)
    if isinstance(found, Fault):
        return [*[MISSING] * (len(OVERVIEW_HEADS) - 1), found.remark]
    return found


def _html(digest: Digest, part: Part, faults: Faults) -> str:
    overview = part is digest["everyone"]
    rows = _overview(digest, faults) if overview else []
    unmade = faults.found if overview else ()
    return draw_plain_page(
        "digest.html.j2",
        digest=digest,
        heading=_heading(digest, part),
        view=part_view(digest, part),
        compared=_COMPARED,
        series=SERIES_HEADS,
        heads=OVERVIEW_HEADS,
        rows=rows,
        more=max(len(digest["parts"]) - MOST_ROWS, 0) if overview else 0,
        overview=overview,
        unmade=unmade,
        unmade_line=summary_line(unmade, "digest"),
    )


def _markdown(digest: Digest, part: Part, faults: Faults) -> str:
    overview, view = part is digest["everyone"], part_view(digest, part)
    lines = [f"# {escaped(_heading(digest, part))}", ""]
    lines += [f"Week {digest['week']}, {digest['words']}, time zone {escaped(digest['timezone'])}.", ""]
    lines += table(("figure", "value", "remark"), [(c["label"], c["text"], c["note"]) for c in view["cards"]])
    lines += ["", "## What changed", ""]
    lines += [f"- {escaped(sentence)}" for sentence in view["changed"]] or [view["unchanged"]]
    lines += ["", *table(_COMPARED, view["comparison"]), ""]
    if overview:
        lines += [f"## By {digest['by']}", ""]
        rows = _overview(digest, faults)
        names = [_link(row["name"], row["file"]) for row in rows]
        body = table((digest["by"], *OVERVIEW_HEADS), [("", *row["cells"]) for row in rows])
        # A link is the one cell that is not escaped as a whole.
        lines += [
            *body[:2],
            *(line.replace("|  |", f"| {name} |", 1) for name, line in zip(names, body[2:], strict=True)),
        ]
        if len(digest["parts"]) > MOST_ROWS:
            lines += ["", f"{len(digest['parts']) - MOST_ROWS:,} more are in digest.json."]
        lines.append("")
    lines += ["## The weeks before", "", *table(SERIES_HEADS, view["series"]), ""]
    if overview and faults.found:
        lines += ["## What could not be made", "", *(f"- {escaped(fault.sentence)}" for fault in faults.found), ""]
    lines += [f"Note: {escaped(note)}." for note in digest["notes"]]
    lines += ["", escaped(digest["rule"]), ""]
    return "\n".join(lines)


_FORMS = {"html": _html, "md": _markdown}


def _link(name: str, file: str | None) -> str:
    return escaped(name) if file is None else f"[{escaped(name)}]({file}.md)"
