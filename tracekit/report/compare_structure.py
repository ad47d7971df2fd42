"""The shape of compare.json; compare.html is drawn from nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.structure import ColumnInfo, FaultInfo, ParamInfo, PublishedNumber, ReleaseInfo, WhatChanged

__all__ = [
    "COMPARE_SCHEMA_VERSION",
    "CompareSection",
    "ComparedAnswer",
    "ComparedTrace",
    "Comparison",
    "Missing",
    "SharedRow",
    "TraceNumber",
    "UnansweredByAll",
]

COMPARE_SCHEMA_VERSION = "1"
"""Version of compare.json's keys; a change of their meaning raises it."""


class ComparedTrace(TypedDict):
    """One of the traces."""

    name: str
    path: str
    format: str
    period: str
    jobs: int
    release: ReleaseInfo | None
    """Null when nothing is published about traces of this format."""


class SharedRow(TypedDict):
    """One row of the side-by-side table."""

    key: Row
    values: dict[str, Row | None]
    """The other columns, by trace; null where the trace has no such row."""
    published: dict[str, Row]
    """Published numbers for columns of this row, by trace; traces without any are left out."""


class TraceNumber(TypedDict):
    """A published number and the trace that it is compared with."""

    trace: str
    number: PublishedNumber


class Missing(TypedDict):
    """A trace that cannot answer."""

    trace: str
    reasons: list[str]


class ComparedAnswer(TypedDict):
    """One question, and the answer of each trace."""

    name: str
    group: str
    title: str
    question: str
    paper: str
    findings: dict[str, str]
    """One sentence a trace, where there is something true and useful to say."""
    keys: list[ColumnInfo]
    """The columns that identify rows."""
    measures: list[ColumnInfo]
    """The other columns."""
    shared: bool
    """Whether some row stands for the same thing in several traces."""
    rows: list[SharedRow]
    """The first ones of each trace; the file holds all."""
    row_counts: dict[str, int]
    """Rows of each trace that answered."""
    published: list[TraceNumber]
    unanswered: list[Missing]
    notes: dict[str, list[str]]
    """Choices made by the query, by trace."""
    params: list[ParamInfo]
    definition: str
    file: str | None
    """All rows, relative to compare.json; null if the file could not be made."""


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
    """Everything that compare.json states."""

    schema_version: str
    tracekit_version: str
    created: str
    command: str
    title: str
    traces: list[ComparedTrace]
    opening: WhatChanged | None
    """What differs between the first trace and the others; null where single questions were asked."""
    sections: list[CompareSection]
    unanswered: list[UnansweredByAll]
    faults: list[FaultInfo]
    """Parts that could not be made because of an error."""
