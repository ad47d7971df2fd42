"""The pages of a digest, as HTML and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.digests.document import shown
from tracekit.digests.view import OVERVIEW_HEADS, SERIES_HEADS, overview_row, part_view
from tracekit.guidelines.markdown import escaped, table
from tracekit.report.page import draw_plain_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.digests.document import Digest, Part

__all__ = ["MOST_ROWS", "pages"]

MOST_ROWS = 200
"""Most users or accounts in the table of the operator's page; digest.json has all."""
_COMPARED = ("figure", "this week", "weeks before (median)", "usual", "")


def pages(digest: Digest) -> Iterator[tuple[str, str]]:
    """Return path and content of each page, the operator's first."""
    yield "index.html", _html(digest, digest["everyone"], overview=True)
    yield "index.md", _markdown(digest, digest["everyone"], overview=True)
    for part in digest["parts"]:
        yield f"{part['file']}.html", _html(digest, part, overview=False)
        yield f"{part['file']}.md", _markdown(digest, part, overview=False)


def _heading(digest: Digest, part: Part) -> str:
    return f"Week {digest['week']}" if part is digest["everyone"] else shown(part["name"])


def _overview(digest: Digest) -> list[dict[str, Any]]:
    """Return the rows of the table of all parts: name, address of the page, cells."""
    rows = [
        {"name": shown(part["name"]), "file": part["file"], "cells": overview_row(part)}
        for part in digest["parts"][:MOST_ROWS]
    ]
    if digest["nobody"] is not None:
        rows.append({"name": shown(None), "file": None, "cells": overview_row(digest["nobody"])})
    return rows


def _html(digest: Digest, part: Part, *, overview: bool) -> str:
    return draw_plain_page(
        "digest.html.j2",
        digest=digest,
        heading=_heading(digest, part),
        view=part_view(digest, part),
        compared=_COMPARED,
        series=SERIES_HEADS,
        heads=OVERVIEW_HEADS,
        rows=_overview(digest) if overview else [],
        more=max(len(digest["parts"]) - MOST_ROWS, 0) if overview else 0,
        overview=overview,
    )


def _markdown(digest: Digest, part: Part, *, overview: bool) -> str:
    view = part_view(digest, part)
    lines = [f"# {escaped(_heading(digest, part))}", ""]
    lines += [f"Week {digest['week']}, {digest['words']}, time zone {escaped(digest['timezone'])}.", ""]
    lines += table(("figure", "value", "remark"), [(c["label"], c["text"], c["note"]) for c in view["cards"]])
    lines += ["", "## What changed", ""]
    lines += [f"- {escaped(sentence)}" for sentence in view["changed"]] or [view["unchanged"]]
    lines += ["", *table(_COMPARED, view["comparison"]), ""]
    if overview:
        lines += [f"## By {digest['by']}", ""]
        names = [_link(row["name"], row["file"]) for row in _overview(digest)]
        body = table((digest["by"], *OVERVIEW_HEADS), [("", *row["cells"]) for row in _overview(digest)])
        # A link is the one cell that is not escaped as a whole.
        lines += [
            *body[:2],
            *(line.replace("|  |", f"| {name} |", 1) for name, line in zip(names, body[2:], strict=True)),
        ]
        if len(digest["parts"]) > MOST_ROWS:
            lines += ["", f"{len(digest['parts']) - MOST_ROWS:,} more are in digest.json."]
        lines.append("")
    lines += ["## The weeks before", "", *table(SERIES_HEADS, view["series"]), ""]
    lines += [f"Note: {escaped(note)}." for note in digest["notes"]]
    lines += ["", escaped(digest["rule"]), ""]
    return "\n".join(lines)


def _link(name: str, file: str | None) -> str:
    return escaped(name) if file is None else f"[{escaped(name)}]({file}.md)"
