"""A result as a table for people: headings with units, cells as text, ends of intervals below their values."""

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
"""Columns by which a page can be narrowed."""
ON_PAPER = 10
"""Rows of a longer result that are printed."""
WHOLE = 20
"""Rows up to which a result is printed whole."""
SLIM = 64
"""Characters of the widest row of a table that fits beside its chart on paper."""


def filters_of(answer: AnswerInfo) -> list[str]:
    """Return the columns of a result by which a page can be narrowed."""
    return [c["name"] for c in answer["columns"] if c["name"] in FILTERS]


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
    """Return columns, rows of cells, and how many rows are left out.

    Parameters
    ----------
    answer : AnswerInfo
        Of report.json.
    limit : int
        Most visible rows.
    later : int
        Most hidden rows after them for a filter to show, where the result can be narrowed.
    choices : mapping, optional
        By column, the number of each value by which the page can be narrowed.
    drawn : bool
        Whether charts show the rows; on paper a curve is then not repeated in numbers.
    tenant : Tenant
        What the column `vc` holds.
    links : bool
        Whether jobs, nodes and users are links to what a server tells of them.
    """
    places = choices or {}
    filters = [name for name in filters_of(answer) if name in places]
    rows = answer["rows"][: limit + (later if filters else 0)]
    columns = _visible_columns(answer)
    own_units = any(c["unit"] == "see unit" for c in columns)
    heads = []
    for column in columns:
        head, unit = text.heading(column["name"], column["unit"])
        head = tenant.head if column["name"] == INGESTED else head
        numbers = any(isinstance(r[column["name"]], int | float) for r in rows)
        heads.append({"head": head, "unit": unit, "number": numbers, "meaning": column["meaning"]})
    cells = [[_cell(row, c["name"], c["unit"], tenant, own_units=own_units) for c in columns] for row in rows]
    few = _add_intervals(answer, columns, rows, cells)
    if links:
        _add_links(answer, columns, rows, cells, tenant)
    shown = min(len(rows), limit)
    printed = _printed(answer, columns, shown, drawn=drawn)
    return {
        "columns": heads,
        "rows": cells,
        "later": len(rows) - shown,
        "filters": filters,
        "marks": [{name: places[name][row[name]] for name in filters if row[name] in places[name]} for row in rows],
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
    tenant: Tenant,
) -> None:
    """Make links of the jobs, nodes and users in a table."""
    by = next((p["value"] for p in answer["params"] if p["name"] == "by"), "")
    columns_meant = {INGESTED: tenant.column, "key": by}
    for place, column in enumerate(columns):
        kind = OPENED.get(columns_meant.get(column["name"], column["name"]))
        if kind is not None:
            for row, line in zip(rows, cells, strict=True):
                if (href := link_to(kind, row[column["name"]])) is not None:
                    line[place]["href"] = href


def _printed(answer: AnswerInfo, columns: list[ColumnInfo], shown: int, *, drawn: bool) -> int:
    """Return how many rows stand on paper; few or none of the points of a curve, and none of nothing but zeros."""
    if all_zero(answer["rows"]):
        return 0
    curve = any(c["unit"] in _ALONG for c in columns[:2]) and answer["row_count"] > ON_PAPER
    if curve:
        return 0 if drawn else min(shown, ON_PAPER // 2)
    return shown if answer["row_count"] <= WHOLE else min(shown, ON_PAPER)


def _widest(heads: list[dict[str, Any]], cells: list[list[dict[str, Any]]]) -> int:
    """Return about how many characters stand beside each other where headings and intervals are broken at spaces."""
    width = 0
    for place, column in enumerate(heads):
        words = f"{column['head']} {column['unit'] or ''}".split()
        words += [part for row in cells for part in (row[place]["text"], *row[place].get("range", "").split())]
        width += max(map(len, words), default=0) + _GAP
    return width


_GAP = 2
"""Characters between two columns."""

_ALONG = ("UTC", "hour", "share")
"""Units of what a curve runs along, where they are those of the first columns."""


_RARE = ("running_gpu_h",)
"""Columns that are left out where no row has anything there."""


def _visible_columns(answer: AnswerInfo) -> list[ColumnInfo]:
    """Return the columns of a table, but for rare ones without content and a cluster that is that of all rows."""
    rows = answer["rows"]
    same = 1 < len(rows) == answer["row_count"] and len({r.get("cluster") for r in rows}) == 1
    out = {"cluster"} if same else set()
    out |= {name for name in _RARE if not any(r.get(name) for r in rows)}
    return [c for c in answer["columns"] if c["name"] not in out]


def _add_intervals(
    answer: AnswerInfo, columns: list[ColumnInfo], rows: list[Row], cells: list[list[dict[str, Any]]]
) -> bool:
    """Put the ends of confidence intervals below their values; return whether a row has few observations."""
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
    """Return a value as text, with the whole of a text that was cut as its title."""
    shown = text.quantity(value, unit, name)
    return {"text": shown, "title": text.visible(value) if isinstance(value, str) and shown != value else ""}


OPENED = {"job_id": "job", "node_id": "node", "user": "user"}
"""What can be opened, by the column that names it."""

_LONGEST = 2000
"""Most letters of an address; servers refuse longer ones."""


def link_to(kind: str, name: object) -> str | None:
    """Return the address of a job, node or user; None where there is none.

    Browsers change a path with '..' or '//' in it, even where these are quoted: such a name follows a question mark.

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
