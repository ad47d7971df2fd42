"""The answer to a question about a part, as a page's script puts it in place: drawn here, by the code of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from altair.utils.schemapi import debug_mode

from tracekit.faults import Fault, Faults
from tracekit.report.first_numbers import FIRST, LACKING, NAMES, OF_PART, first_numbers, state
from tracekit.report.page import chart_payload, draw_fragment, panel_views
from tracekit.report.sections.interface import panels
from tracekit.report.site_words import unit_of, with_unit
from tracekit.report.sparklines import sparkline
from tracekit.report.table_view import table_view
from tracekit.serve.part import words_of
from tracekit.trace import OTHERS_FREE

if TYPE_CHECKING:
    from tracekit.answer import Answer
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.serve.trace import PartAnswer
    from tracekit.tables.window import Window

__all__ = ["MOST_ROWS", "answer_json", "first_json"]

MOST_ROWS = 200
"""Most rows of a table."""

_OF_MACHINES = ("capacity", "free", "idle", "owned")
"""Words in names of columns that are about the machines of the cluster, whoever holds them."""
_OF_SAMPLES = "used_share"
"""The first number that is of machines, whichever jobs are asked about."""


def answer_json(found: PartAnswer, part: Window) -> dict[str, Any]:
    """Return what the page's script needs: `html` to put in place, the charts in it, and the part in words."""
    facts = found.facts
    info = with_unit(found.info, facts)
    unit = unit_of(info["kind"], facts)
    with debug_mode(False):  # charts are built without validation here, and validated by tests
        made = [] if found.empty else Faults().run("the charts", panels, info["name"], info["rows"], facts)
    drawn = [] if isinstance(made, Fault) else made
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
        undrawn=made if isinstance(made, Fault) else None,
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


def first_json(found: Answer, part: Window, facts: TraceFacts) -> dict[str, Any]:
    """Return the first sentence and numbers of a part, as the page's script puts them in place.

    Parameters
    ----------
    found : Answer
        To `FIRST`, of the part.
    part : Window
        What was asked.
    facts : TraceFacts
        What the part is said with.

    Returns
    -------
    dict
        `asked`, the part in words; `state`, the sentence; `numbers`, by name: `value`, `text`, `change` from the first
        half of the time to the second, `path` of the course and `note`, with a `value` of null where the Trace does
        not tell it.
    """
    answers = {FIRST: found}
    told = {one["name"]: one for one in first_numbers(answers, OF_PART, gpu_jobs=False)}
    numbers: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        one, machines = told.get(name), bool(part.where) and name == _OF_SAMPLES
        if one is None or machines:
            why = LACKING["machines" if machines else "none"]
            numbers[name] = {"value": None, "text": LACKING["number"], "change": None, "note": why, "path": ""}
        else:
            path = sparkline(one["series"]) if one["series"] else ""
            numbers[name] = {**{key: one[key] for key in ("value", "text", "change", "note")}, "path": path}
    whole = next((row for row in found.rows() if row["period"] == "whole"), None)
    said = facts.no_gpu_jobs or state(answers, some=bool(part.where))
    return {
        "asked": words_of(part, facts),
        "state": said or LACKING["waits" if whole is not None and whole["jobs"] else "jobs"],
        "numbers": numbers,
    }
