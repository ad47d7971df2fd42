"""Render compare.html from the content of compare.json."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tracekit import text
from tracekit.faults import Fault, Faults
from tracekit.report.compare_charts import compare_charts, trace_hues
from tracekit.report.page import anchor, chart_views, draw_page, draw_unmade_page, made_or_fault, writable
from tracekit.report.published import published_view
from tracekit.report.sections.interface import charts
from tracekit.report.table_view import plain_cell
from tracekit.report.telling import all_zero
from tracekit.report.unmade import all_faults, summary_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.compare import ComparedAnswer, Comparison, SharedRow
    from tracekit.report.structure import ColumnInfo

_BUDGET = 10
"""Approximate number of number columns that fit next to each other."""
_EACH = 8
"""Number of rows per trace, if rows are listed trace by trace."""
_ROWS = 30
"""Maximum number of rows of a side-by-side table. Many rows belong to only one trace."""


def render_comparison(comparison: Comparison, faults: Faults | None = None) -> str:
    """Render the page of a comparison.

    If a part fails, a message replaces it on the page, and the error is added to `faults`. If the whole page fails, a
    simple page lists the tables.
    """
    faults = Faults() if faults is None else faults
    while True:
        known = len(faults.found)
        page = faults.run("the page", _page, comparison, faults)
        if isinstance(page, Fault):
            answers = [a for s in comparison["sections"] for a in s["answers"]]
            tables = [(a["question"], [a["file"]]) for a in answers if a["file"] is not None]
            return draw_unmade_page("comparison", comparison["title"], page, ("compare.json",), tables)
        if len(faults.found) == known:
            return page
        # The top of the page counts all failed parts, including those further down.


def _page(comparison: Comparison, faults: Faults) -> str:
    names = [t["name"] for t in comparison["traces"]]
    made = {
        a["name"]: faults.run(f"the charts of {a['name']}", _charts, a, names)
        for s in comparison["sections"]
        for a in s["answers"]
    }
    drawn = {name: [] if isinstance(one, Fault) else one for name, one in made.items()}
    colours = list(trace_hues(names).colours.items())
    sections = [
        {**s, "answers": [_view_or_fault(a, names, made[a["name"]], faults) for a in s["answers"]]}
        for s in comparison["sections"]
    ]
    traces = [
        {**trace, "label": label, "colour": colour}
        for trace, (label, colour) in zip(comparison["traces"], colours, strict=True)
    ]
    unmade = all_faults(comparison["faults"], faults)
    return draw_page(
        "compare.html.j2",
        drawn,
        comparison=comparison,
        traces=traces,
        sections=sections,
        shown=dict(zip(names, (label for label, _ in colours), strict=True)),
        made=partial(made_or_fault, faults),
        unmade=unmade,
        unmade_line=summary_line(unmade, "comparison"),
    )


def _view_or_fault(
    answer: ComparedAnswer, names: Sequence[str], drawn: list[Chart] | Fault, faults: Faults
) -> dict[str, Any]:
    """Return an answer as the page shows it, or the reason why it could not be made."""
    found = faults.run(
        f"the numbers of {answer['name']}", _answer_view, answer, names, [] if isinstance(drawn, Fault) else drawn
    )
    if isinstance(found, Fault):
        return {**answer, "id": anchor(answer["name"]), "charts": [], "unmade": found}
    return {**found, "undrawn": drawn if isinstance(drawn, Fault) else None, "unmade": None}


def _charts(answer: ComparedAnswer, names: Sequence[str]) -> list[Chart]:
    """Return charts that show the traces together or, if only one trace answers, the charts of its report."""
    return writable(answer["name"], _drawn(answer, names))


def _drawn(answer: ComparedAnswer, names: Sequence[str]) -> list[Chart]:
    drawn = compare_charts(answer, names)
    if drawn or len(answer["row_counts"]) != 1:
        return drawn
    ((name, count),) = answer["row_counts"].items()
    if count > len(answer["rows"]):
        return []  # a chart with only some of the rows would mislead
    rows = [{**row["key"], **(row["values"][name] or {})} for row in answer["rows"]]
    return [replace(p, title=p.title or f"{text.shorten(name, 22)} only") for p in charts(answer["name"], rows)]


_LACKS = re.compile(r"The trace has no (?P<what>[^:]+?)(?::.*|\.)")


def _lacking(reason: str) -> str:
    """Shorten the reason why a trace has no answer. The full sentence is the tooltip.

    Examples
    --------
    >>> _lacking("The trace has no gpu_index: the source does not tell which."), _lacking("Could not be made: x.")
    ('no gpu index', 'Could not be made: x.')
    """
    match = _LACKS.fullmatch(reason)
    return f"no {match['what'].replace('_', ' ')}" if match else reason


def _answer_view(answer: ComparedAnswer, names: Sequence[str], drawn: Sequence[Chart]) -> dict[str, Any]:
    numbers = answer["published"]
    beside = published_view([n["number"] for n in numbers], [n["trace"] for n in numbers])
    table = _table_view(answer, names)
    label = " ".join([answer["question"], *(f"{n}: {s}" for n, s in answer["findings"].items())])
    return {
        **answer,
        "id": anchor(answer["name"]),
        "charts": chart_views(answer["name"], drawn, text.shorten(label, 600)),
        "lacking": [
            {"trace": m["trace"], "short": ", ".join(map(_lacking, m["reasons"])), "whole": " ".join(m["reasons"])}
            for m in answer["unanswered"]
        ],
        "beside": beside,
        "table": table,
        "zero": all_zero([own for row in answer["rows"] for own in row["values"].values() if own]),
    }


def _table_view(answer: ComparedAnswer, names: Sequence[str]) -> dict[str, Any]:
    """Return the table that suits the rows. Results with a row per point in time are too long to show."""
    if any(k["name"] == "time" for k in answer["keys"]):
        return {"shared": False, "rows": [], "more": sum(answer["row_counts"].values())}
    return _side_by_side(answer, names) if answer["shared"] else _one_after_another(answer)


_BEST = (r"(?!.*harmless).*_share(_mean)?$", r"p50.*|median.*", r"p90.*", r"mean.*|value", r".*")
"""Columns to show if not all of them fit, the most important first."""


def main_measures(columns: Sequence[ColumnInfo], groups: int) -> list[ColumnInfo]:
    """Return the columns that fit into a side-by-side table with `groups` groups, in their original order.

    If three or more columns fit, one of them is the number of observations, because the others mean little without it.
    """
    room = max(1, _BUDGET // max(1, groups))
    if len(columns) <= room:
        return list(columns)
    ranked = sorted(columns, key=lambda c: next(i for i, p in enumerate(_BEST) if re.fullmatch(p, c["name"])))
    chosen = ranked[:room]
    number = columns[0]
    if room >= 3 and number not in chosen and number["unit"] not in {"s", "share", "percent"}:
        chosen[-1] = number
    return [c for c in columns if c in chosen]


def _head(column: ColumnInfo) -> dict[str, Any]:
    head, unit = text.heading(column["name"], column["unit"])
    return {"head": head, "unit": unit, "meaning": column["meaning"]}


def _side_by_side(answer: ComparedAnswer, names: Sequence[str]) -> dict[str, Any]:
    """Return a table with a group of columns per trace and another group for its published numbers."""
    have = [n for n in names if n in answer["row_counts"]]
    rows = _most_important(answer)
    stated = {name for row in rows for name in row["published"] if name in have}
    measures = main_measures(answer["measures"], len(have) + len(stated))
    own_units = any(k["name"] == "unit" for k in answer["keys"])
    keys = [k for k in answer["keys"] if k["name"] != "unit" or not own_units]
    groups: list[dict[str, Any]] = []
    for name in have:
        groups.append({"trace": name, "published": False, "columns": measures})
        also = [c for c in measures if any(c["name"] in r["published"].get(name, {}) for r in rows)]
        if also:
            groups.append({"trace": name, "published": True, "columns": also})
    return {
        "shared": True,
        "keys": [_head(k) for k in keys],
        "groups": [{**g, "columns": [_head(c) for c in g["columns"]]} for g in groups],
        "rows": [
            {
                "key": [_key_text(row["key"], k, own_units=own_units) for k in keys],
                "cells": [{**_cell(row, g, c), "first": i == 0} for g in groups for i, c in enumerate(g["columns"])],
            }
            for row in rows
        ],
        "more": len(answer["rows"]) - len(rows),
        "left_out": [text.heading(c["name"], c["unit"])[0] for c in answer["measures"] if c not in measures],
    }


def _most_important(answer: ComparedAnswer) -> list[SharedRow]:
    """Return all rows if they fit, otherwise those with the most weight in any trace, in row order."""
    rows = answer["rows"]
    if len(rows) <= _ROWS:
        return rows
    count = answer["measures"][0]["name"] if answer["measures"] else ""

    def weight(row: SharedRow) -> float:
        found = [v.get(count) for v in row["values"].values() if v is not None]
        return max((float(v) for v in found if isinstance(v, int | float)), default=0.0)

    chosen = sorted(range(len(rows)), key=lambda i: -weight(rows[i]))[:_ROWS]
    return [rows[i] for i in sorted(chosen)]


def _key_text(key: Row, column: ColumnInfo, *, own_units: bool) -> dict[str, str]:
    value = key[column["name"]]
    if own_units and column["name"] == "metric":
        head, unit = text.heading(str(value), key.get("unit"))
        # Labels such as 'GPUs listed' and 'CPU jobs' need no unit.
        return {"text": head if not unit or unit.lower() in head.lower().split() else f"{head} [{unit}]", "title": ""}
    return plain_cell(value, column["unit"], column["name"])


def _cell(row: SharedRow, group: dict[str, Any], column: ColumnInfo) -> dict[str, Any]:
    name, trace = column["name"], group["trace"]
    values = row["published"].get(trace) if group["published"] else row["values"][trace]
    unit = row["key"].get("unit") if column["unit"] == "see unit" else column["unit"]
    if values is None or name not in values:
        # If a trace has no such row, the cell is blank. An unknown value is a dash.
        return {"text": "", "number": True, "published": group["published"]}
    value = values[name]
    number = value is None or isinstance(value, int | float)
    return {"text": text.quantity(value, unit, name), "number": number, "published": group["published"]}


def _one_after_another(answer: ComparedAnswer) -> dict[str, Any]:
    """Return a table with the first rows of each trace, for traces without rows in common."""
    columns = [*answer["keys"], *answer["measures"]]
    rows: list[dict[str, Any]] = []
    for name in answer["row_counts"]:
        own = [r for r in answer["rows"] if r["values"][name] is not None][:_EACH]
        for row in own:
            cells = {**row["key"], **(row["values"][name] or {})}
            rows.append({"trace": name, "cells": [_plain(cells, c) for c in columns]})
    total = sum(answer["row_counts"].values())
    heads = [_head(c) for c in columns]
    for i, head in enumerate(heads):
        head["number"] = any(r["cells"][i]["number"] for r in rows)
    return {"shared": False, "columns": heads, "rows": rows, "more": total - len(rows)}


def _plain(row: Row, column: ColumnInfo) -> dict[str, Any]:
    value = row[column["name"]]
    return {**plain_cell(value, column["unit"], column["name"]), "number": isinstance(value, int | float)}
