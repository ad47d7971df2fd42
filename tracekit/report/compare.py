"""The structure of compare.json, which contains the answers of several traces side by side.

Rows with the same meaning in several traces (a size class, a status, an hour) become one row with a value per trace.
Rows with names from one trace (users, machines) are listed trace by trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import polars as pl

from tracekit import text
from tracekit.answer import Answer, Unanswered
from tracekit.characterize.published import release_of
from tracekit.faults import Fault, Faults
from tracekit.report.answers import column_infos
from tracekit.report.charts import GPU_CLASSES, STATUSES
from tracekit.report.data import time_info
from tracekit.report.published import published_number, release_info
from tracekit.report.sections.interface import finding, reading_order, section_title, sections_in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tracekit.answer import Question, Row
    from tracekit.characterize.published import PublishedComparison
    from tracekit.report.structure import ColumnInfo, FaultInfo, ParamInfo, PublishedNumber, ReleaseInfo, WhatChanged
    from tracekit.trace import Trace


COMPARE_SCHEMA_VERSION = "1"
"""Version of compare.json's keys. It increases when their meaning changes."""


class ComparedTrace(TypedDict):
    """One of the compared traces."""

    name: str
    path: str
    format: str
    period: str
    jobs: int
    release: ReleaseInfo | None
    """Null if nothing is published about traces of this format."""


class SharedRow(TypedDict):
    """One row of the side-by-side table."""

    key: Row
    values: dict[str, Row | None]
    """The other columns by trace, or null if the trace has no such row."""
    published: dict[str, Row]
    """Published numbers for columns of this row, by trace. Traces without published numbers are left out."""


class TraceNumber(TypedDict):
    """A published number and the trace that it is compared with."""

    trace: str
    number: PublishedNumber


class Missing(TypedDict):
    """A trace that cannot answer the question."""

    trace: str
    reasons: list[str]


class ComparedAnswer(TypedDict):
    """One question and each trace's answer."""

    name: str
    group: str
    title: str
    question: str
    paper: str
    findings: dict[str, str]
    """One sentence per trace, if a true and useful one exists."""
    keys: list[ColumnInfo]
    """The columns that identify rows."""
    measures: list[ColumnInfo]
    """The columns that do not identify rows."""
    shared: bool
    """Whether any row has the same meaning in several traces."""
    rows: list[SharedRow]
    """The first rows of each trace. The file contains all rows."""
    row_counts: dict[str, int]
    """Number of rows for each trace that answered."""
    published: list[TraceNumber]
    unanswered: list[Missing]
    notes: dict[str, list[str]]
    """Notes on the query's choices, by trace."""
    params: list[ParamInfo]
    definition: str
    file: str | None
    """File with all rows, relative to compare.json, or null if it could not be made."""


class CompareSection(TypedDict):
    """A group of questions, in reading order."""

    name: str
    title: str
    answers: list[ComparedAnswer]


class UnansweredByAll(TypedDict):
    """A question that no trace can answer."""

    name: str
    title: str
    question: str
    unanswered: list[Missing]


class Comparison(TypedDict):
    """Everything in compare.json."""

    schema_version: str
    tracekit_version: str
    created: str
    command: str
    title: str
    traces: list[ComparedTrace]
    opening: WhatChanged | None
    """Differences between the first trace and the others, or null if only single questions were asked."""
    sections: list[CompareSection]
    unanswered: list[UnansweredByAll]
    faults: list[FaultInfo]
    """Parts that could not be made because of an error."""


ROW_LIMIT = 2000
"""Maximum number of rows of one trace in compare.json. tables/ contains all rows."""
MOMENT_LIMIT = 50
"""Maximum number of rows for results with one row per point in time, which the page does not show."""


def described(name: str, trace: Trace, path: Path) -> ComparedTrace:
    """Describe one of the traces."""
    tables = trace.manifest.tables
    return {
        "name": name,
        "path": text.cut(str(path), 1000),
        "format": trace.manifest.format,
        "period": time_info(trace)["text"],
        "jobs": tables["jobs"].rows if "jobs" in tables else 0,
        "release": release_info(release_of(trace)),
    }


def sections(answers: Iterable[ComparedAnswer]) -> list[CompareSection]:
    """Return the questions by group, in reading order."""
    ordered = sorted(answers, key=lambda a: reading_order(a["name"]))
    groups = sections_in_order(a["group"] for a in ordered)
    return [{"name": g, "title": section_title(g), "answers": [a for a in ordered if a["group"] == g]} for g in groups]


_KEYS = {
    "metric",
    "unit",
    "status",
    "gpu_class",
    "gpu_count",
    "node_count",
    "instance_count",
    "hour",
    "time",
    "cluster",
    "vc",
    "user",
    "job_id",
    "node_id",
    "group",
    "resource",
    "reason",
    "category",
    "colocated",
    "user_share",
    "relaxation",
}
"""Columns that identify rows if they come first. Built-in queries list their key first."""


def key_columns(frames: Iterable[pl.DataFrame]) -> list[str]:
    """Find the shortest list of leading columns that identifies the rows of every frame.

    Raises
    ------
    ValueError
        No frame is given.
    """
    known = list(frames)
    if not known:
        raise ValueError("no frame")
    columns = known[0].columns
    count = next((i for i, name in enumerate(columns) if name not in _KEYS), len(columns)) or 1
    while count < len(columns) and any(f.select(columns[:count]).is_duplicated().any() for f in known):
        count += 1
    # A metric's unit is part of its name.
    return [*columns[:count], *(c for c in columns[count:] if c == "unit")]


def compared(
    question: Question,
    answers: Mapping[str, Answer | Unanswered],
    published: Mapping[str, Sequence[PublishedComparison]],
    file: str | None,
    faults: Faults | None = None,
) -> ComparedAnswer:
    """Return one question with each trace's answer.

    `file` is the file with all rows, relative to compare.json, or None if it could not be made. If a sentence
    cannot be written, it is replaced by the reason, and the error is added to `faults`.
    """
    faults = Faults() if faults is None else faults
    found = {name: a for name, a in answers.items() if isinstance(a, Answer)}
    keys = key_columns(a.frame for a in found.values())
    columns = {c["name"]: c for c in column_infos(next(iter(found.values())))}
    rows = {name: a.rows(MOMENT_LIMIT if "time" in keys else ROW_LIMIT) for name, a in found.items()}
    shared = shared_rows(rows, keys, {name: published.get(name, ()) for name in found})
    said = {
        name: faults.run(f"the sentence of {question.name} for {text.shorten(name, 30)}", finding, question.name, own)
        for name, own in rows.items()
    }
    return {
        "name": question.name,
        "group": question.group,
        "title": question.title,
        "question": question.question,
        "paper": question.paper,
        "findings": {name: one.remark if isinstance(one, Fault) else one for name, one in said.items() if one},
        "keys": [columns[name] for name in keys],
        "measures": [columns[name] for name in columns if name not in keys],
        "shared": any(sum(v is not None for v in row["values"].values()) > 1 for row in shared),
        "rows": shared,
        "row_counts": {name: a.frame.height for name, a in found.items()},
        "published": [
            {"trace": name, "number": published_number(n)} for name in found for n in published.get(name, ())
        ],
        "unanswered": [
            {"trace": name, "reasons": list(a.reasons)} for name, a in answers.items() if isinstance(a, Unanswered)
        ],
        "notes": {name: list(a.notes) for name, a in found.items() if a.notes},
        "params": [{"name": p.name, "value": p.default, "meaning": p.meaning} for p in question.params],
        "definition": question.rule,
        "file": file,
    }


def shared_rows(
    rows: Mapping[str, list[Row]], keys: Sequence[str], published: Mapping[str, Sequence[PublishedComparison]]
) -> list[SharedRow]:
    """Combine the traces' rows by key, each row with the values of every trace.

    Size classes, statuses and numbers are sorted. Everything else is in order of first appearance.
    """
    union: dict[str, SharedRow] = {}
    for name, own in rows.items():
        for row in own:
            key = {k: row[k] for k in keys}
            place = union.setdefault(
                _spelled(key.values()), {"key": key, "values": dict.fromkeys(rows), "published": {}}
            )
            place["values"][name] = {k: v for k, v in row.items() if k not in key}
    for name, numbers in published.items():
        # The list contains numbers about the release itself and about other jobs. Those about the release come first.
        stated = [n.published for n in numbers if n.published.value is not None]
        for number in sorted(stated, key=lambda n: bool(n.population_note)):
            cell = number.cell
            place_of = None if cell is None else _find(union, keys, cell)
            if place_of is not None:
                place_of["published"].setdefault(name, {}).setdefault(number.column, number.value)
    first = {place: i for i, place in enumerate(union)}
    ranks = [_rank([row["key"][k] for row in union.values()]) for k in keys]
    ordered = sorted(
        union,
        key=lambda p: (
            *(rank.get(_spelled([union[p]["key"][k]]), 0) for k, rank in zip(keys, ranks, strict=True)),
            first[p],
        ),
    )
    return [union[place] for place in ordered]


def _spelled(values: Iterable[Any]) -> str:
    """Convert a key to text. 1 and 1.0 are the same key, but '1' is a different key."""
    return repr([float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values])


def _find(union: Mapping[str, SharedRow], keys: Sequence[str], cell: Mapping[str, str]) -> SharedRow | None:
    if set(cell) | {"unit"} != set(keys) | {"unit"}:
        return None
    for row in union.values():
        if all(_same(row["key"][name], value) for name, value in cell.items()):
            return row
    return None


def _same(found: Any, stated: str) -> bool:
    if isinstance(found, int | float) and not isinstance(found, bool):
        return abs(found - float(stated)) < 1e-9
    return bool(found == stated)


_ORDER = {value: i for i, value in enumerate((*GPU_CLASSES, *STATUSES))}


def _rank(values: list[Any]) -> dict[str, float]:
    """Return the rank of each value in a key column. Unknown values come last."""
    known = [v for v in values if v is not None]
    last = float(len(values))
    if known and all(isinstance(v, int | float) for v in known):
        order = {v: float(i) for i, v in enumerate(sorted(set(known)))}
    elif known and all(v in _ORDER for v in known):
        order = {v: float(_ORDER[v]) for v in known}
        last = float(len(_ORDER))
    else:
        order = {v: float(i) for i, v in enumerate(dict.fromkeys(known))}
    return {_spelled([v]): order.get(v, last) if v is not None else last for v in values}


def long_table(answers: Mapping[str, Answer], published: Mapping[str, Sequence[PublishedComparison]]) -> pl.DataFrame:
    """Return all rows of all traces, with the trace's name first, and then the published numbers of cells.

    A published number gets a row named 'NAME, published (ARTEFACT)' with the key of its cell. Other columns are NULL.
    """
    frames = {name: a.frame for name, a in answers.items()}
    keys = key_columns(frames.values())
    parts = [
        frame.with_columns(pl.lit(name).alias("trace")).select("trace", *frame.columns)
        for name, frame in frames.items()
    ]
    for name, frame in frames.items():
        extra: dict[str, Row] = {}
        for number in (n.published for n in published.get(name, ()) if n.published.value is not None):
            cell = number.cell
            if cell is not None and set(cell) | {"unit"} == set(keys) | {"unit"}:
                label = f"{name}, published ({number.artefact})"
                row = extra.setdefault(_spelled([label, *cell.items()]), {"trace": label, **cell})
                row[number.column] = number.value
                if "unit" in keys:
                    row["unit"] = number.unit
        if extra:
            spelled = pl.DataFrame([{c: row.get(c) for c in ("trace", *frame.columns)} for row in extra.values()])
            parts.append(spelled.cast(frame.schema, strict=False))
    return pl.concat(parts, how="vertical_relaxed")
