"""Show a result as a readable table, with units in the headings, cells as text, and intervals below their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tracekit import text
from tracekit.characterize.intervals import FEW
from tracekit.report.telling import all_zero
from tracekit.tenant import INGESTED, VC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Row
    from tracekit.report.structure import AnswerInfo, ColumnInfo
    from tracekit.tenant import Tenant

FILTERS = ("cluster", "vc", "partition", "user", "gpu_model", "gpu_class")
"""Columns for which a page can offer filters."""
ON_PAPER = 10
"""Number of rows that are printed of a long result."""
WHOLE = 20
"""Maximum number of rows for a result to be printed in full."""
SLIM = 64
"""Maximum width of a table that fits next to its chart on paper [characters]."""


def filters_of(answer: AnswerInfo, tenant: Tenant) -> dict[str, str]:
    """Return the filters that a page can offer for a result, with their columns. The tenant's filter is called vc."""
    found = {INGESTED if c["name"] == tenant.column else c["name"]: c["name"] for c in answer["columns"]}
    return {name: column for name, column in found.items() if name in FILTERS}


def table_view(
    answer: AnswerInfo,
    limit: int,
    later: int = 0,
    choices: Mapping[str, Mapping[str, int]] | None = None,
    *,
    drawn: bool = False,
    tenant: Tenant = VC,
    links: bool = False,
) -> dict[str, Any]:
    """Return the columns, the rows of cells, and the number of rows that are left out.

    Parameters
    ----------
    answer : AnswerInfo
        Answer in the format of report.json.
    limit : int
        Maximum number of visible rows.
    later : int
        Maximum number of additional hidden rows that a filter can show, if filters apply to the result.
    choices : mapping, optional
        For each filter column, the numbers of the filter's values.
    drawn : bool
        Whether charts show the rows. If so, the points of a curve are not also printed as numbers.
    tenant : Tenant
        The answer's tenant.
    links : bool
        Whether jobs, nodes and users are links to their pages on the server.
    """
    places = choices or {}
    filters = {name: column for name, column in filters_of(answer, tenant).items() if name in places}
    rows = answer["rows"][: limit + (later if filters else 0)]
    columns = _visible_columns(answer)
    own_units = any(c["unit"] == "see unit" for c in columns)
    heads = []
    for column in columns:
        head, unit = text.heading(column["name"], column["unit"])
        head = tenant.head if column["name"] == tenant.column else head
        numbers = any(isinstance(r[column["name"]], int | float) for r in rows)
        heads.append({"head": head, "unit": unit, "number": numbers, "meaning": column["meaning"]})
    cells = [[_cell(row, c["name"], c["unit"], tenant, own_units=own_units) for c in columns] for row in rows]
    few = _add_intervals(answer, columns, rows, cells)
    if links:
        _add_links(answer, columns, rows, cells)
    shown = min(len(rows), limit)
    printed = _printed(answer, columns, shown, drawn=drawn)
    return {
        "columns": heads,
        "rows": cells,
        "later": len(rows) - shown,
        "filters": list(filters),
        "marks": [
            {name: places[name][row[column]] for name, column in filters.items() if row[column] in places[name]}
            for row in rows
        ],
        "more": answer["row_count"] - shown,
        "printed": printed,
        "unprinted": answer["row_count"] - printed,
        "slim": printed > 0 and _widest(heads, cells[:printed]) <= SLIM,
        "methods": sorted({i["method"] for i in answer["intervals"]}, reverse=True),
        "few": few,
    }


def _add_links(
    answer: AnswerInfo,
    columns: list[ColumnInfo],
    rows: list[Row],
    cells: list[list[dict[str, Any]]],
) -> None:
    """Turn the jobs, nodes and users in a table into links."""
    by = next((p["value"] for p in answer["params"] if p["name"] == "by"), "")
    for place, column in enumerate(columns):
        kind = OPENED.get(str(by) if column["name"] == "key" else column["name"])
        if kind is not None:
            for row, line in zip(rows, cells, strict=True):
                if (href := link_to(kind, row[column["name"]])) is not None:
                    line[place]["href"] = href


def _printed(answer: AnswerInfo, columns: list[ColumnInfo], shown: int, *, drawn: bool) -> int:
    """Return the number of rows to print: few or none for points of a curve, and none if all values are 0."""
    if all_zero(answer["rows"]):
        return 0
    curve = any(c["unit"] in _ALONG for c in columns[:2]) and answer["row_count"] > ON_PAPER
    if curve:
        return 0 if drawn else min(shown, ON_PAPER // 2)
    return shown if answer["row_count"] <= WHOLE else min(shown, ON_PAPER)


def _widest(heads: list[dict[str, Any]], cells: list[list[dict[str, Any]]]) -> int:
    """Estimate the table width [characters] if headings and intervals are wrapped at spaces."""
    width = 0
    for place, column in enumerate(heads):
        words = f"{column['head']} {column['unit'] or ''}".split()
        words += [part for row in cells for part in (row[place]["text"], *row[place].get("range", "").split())]
        width += max(map(len, words), default=0) + _GAP
    return width


_GAP = 2
"""Gap between two columns [characters]."""

_ALONG = ("UTC", "hour", "share")
"""Units of leading columns that mark the points of a curve."""


_RARE = ("running_gpu_h",)
"""Columns that are left out if all their cells are empty."""


def _visible_columns(answer: AnswerInfo) -> list[ColumnInfo]:
    """Return a table's columns, except empty rare columns and a constant cluster."""
    rows = answer["rows"]
    same = 1 < len(rows) == answer["row_count"] and len({r.get("cluster") for r in rows}) == 1
    out = {"cluster"} if same else set()
    out |= {name for name in _RARE if not any(r.get(name) for r in rows)}
    return [c for c in answer["columns"] if c["name"] not in out]


def _add_intervals(
    answer: AnswerInfo, columns: list[ColumnInfo], rows: list[Row], cells: list[list[dict[str, Any]]]
) -> bool:
    """Put confidence intervals below their values, and return whether any row has few observations."""
    place = {c["name"]: i for i, c in enumerate(columns)}
    units = {c["name"]: c["unit"] for c in answer["columns"]}
    few = False
    for interval in answer["intervals"]:
        name = interval["column"]
        for number, row in enumerate(rows):
            low, high = interval["low"][number], interval["high"][number]
            if low is not None and high is not None:
                ends = (text.quantity(end, units[name], name) for end in (low, high))
                cells[number][place[name]]["range"] = " to ".join(ends)
            observed = row.get(interval["count"])
            if isinstance(observed, int | float) and observed < FEW:
                cells[number][place[interval["count"]]]["few"] = few = True
    return few


def _cell(row: Row, name: str, unit: str | None, tenant: Tenant, *, own_units: bool) -> dict[str, Any]:
    value = row[name]
    if own_units and row.get("metric") == "vcs" and tenant.one != VC.one and name in {"metric", "unit"}:
        return {"text": tenant.many, "title": ""}
    if own_units and unit == "see unit":
        return {"text": text.quantity(value, row.get("unit")), "title": ""}
    if own_units and name == "unit":
        return {"text": text.display_unit(value).strip(), "title": ""}
    if own_units and name == "metric":
        return {"text": text.heading(str(value), row.get("unit"))[0], "title": ""}
    if unit == "sentence" and isinstance(value, str):
        return {"text": text.visible(value), "title": "", "long": True}
    return plain_cell(value, unit, name)


def plain_cell(value: Any, unit: str | None, name: str) -> dict[str, Any]:
    """Convert a value to text. If the text is shortened, its title has the full text."""
    shown = text.quantity(value, unit, name)
    return {"text": shown, "title": text.visible(value) if isinstance(value, str) and shown != value else ""}


OPENED = {"job_id": "job", "node_id": "node", "user": "user"}
"""The kind of page that a link opens, by the column that contains the name."""

_LONGEST = 2000
"""Maximum length of an address [characters]. Servers reject longer addresses."""


def link_to(kind: str, name: object) -> str | None:
    """Return the address of a job, node or user, or None if it has no address.

    Browsers rewrite paths with '..' or '//', even quoted ones, so such names become a query parameter.

    Examples
    --------
    >>> link_to("job", "j 1"), link_to("user", ".."), link_to("node", None)
    ('/job/j%201', '/user?name=..', None)
    """
    if not isinstance(name, str):
        return None
    quoted = quote(name, safe="", errors="replace")
    if len(quoted) > _LONGEST:
        return None
    awkward = not name or name.startswith(".") or "/" in name or "\\" in name
    return f"/{kind}?name={quoted}" if awkward else f"/{kind}/{quoted}"
