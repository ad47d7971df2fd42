"""The answer to a question about a part, as a page's script puts it in place: drawn here, by the code of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from altair.utils.schemapi import debug_mode

from tracekit.report.page import chart_payload, draw_fragment, panel_views
from tracekit.report.sections.interface import panels
from tracekit.report.site_words import unit_of, with_unit
from tracekit.report.table_view import table_view
from tracekit.serve.part import words_of
from tracekit.trace import OTHERS_FREE

if TYPE_CHECKING:
    from tracekit.serve.trace import PartAnswer
    from tracekit.tables.window import Window

__all__ = ["MOST_ROWS", "answer_json"]

MOST_ROWS = 200
"""Most rows of a table."""

_OF_MACHINES = ("capacity", "free", "idle", "owned")
"""Words in names of columns that are about the machines of the cluster, whoever holds them."""


def answer_json(found: PartAnswer, part: Window) -> dict[str, Any]:
    """Return what the page's script needs: `html` to put in place, the charts in it, and the part in words."""
    facts = found.facts
    info = with_unit(found.info, facts)
    unit = unit_of(info["kind"], facts)
    with debug_mode(False):  # charts are built without validation here, and validated by tests
        drawn = [] if found.empty else panels(info["name"], info["rows"], facts)
    name = f"asked/{info['name']}"  # the chart of the whole keeps its id
    shown = table_view(info, MOST_ROWS, drawn=bool(drawn), tenant=unit, links=True)
    more = shown["more"]
    label = " ".join(filter(None, [info["question"], info["finding"]]))
    about_machines = any(word in c["name"] for c in info["columns"] for word in _OF_MACHINES)
    html = draw_fragment(
        "asked.html.j2",
        asked=words_of(part, facts),
        answer=info,
        empty=found.empty,
        panels=panel_views(name, drawn, label),
        table={**shown, "more": 0, "unprinted": 0},
        more=more,
        remark=OTHERS_FREE if part.where and about_machines else "",
    )
    return {
        "name": info["name"],
        "asked": words_of(part, facts),
        "finding": None if found.empty else info["finding"],
        "rows": info["row_count"],
        "html": html,
        "charts": chart_payload({name: drawn}),
    }
