"""Convert answers to the format of report.json, with a sentence about their rows and the published numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import text
from tracekit.characterize import Query
from tracekit.characterize.published import compare_published
from tracekit.faults import Fault, Faults
from tracekit.report.commands import query_command
from tracekit.report.published import published_number
from tracekit.report.sections.interface import finding, question_of
from tracekit.report.structure import ROW_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer, Row, Unanswered
    from tracekit.characterize.session import Session
    from tracekit.report.facts import TraceFacts
    from tracekit.report.structure import AnswerInfo, ColumnInfo, IntervalInfo, UnansweredInfo
    from tracekit.trace import Trace

_COMMAND_LIMIT = 2000
"""Maximum length of a command on a page [characters], because cluster names may be long."""


def rows_of(answers: Mapping[str, Answer], name: str) -> list[Row]:
    """Return the rows of the answer called `name`, or no rows if there is no such answer."""
    return answers[name].rows() if name in answers else []


def metrics(answers: Mapping[str, Answer], *names: str) -> dict[str, float]:
    """Return the known numbers by metric for an answer with one metric per row (by default overview/summary)."""
    rows = [row for name in names or ("overview/summary",) for row in rows_of(answers, name)]
    # If tenants are users, the tenant metric has the same name as the user metric and comes after it.
    return {row["metric"]: row["value"] for row in reversed(rows) if row["value"] is not None}


def answer_info(
    trace: Trace,
    answer: Answer,
    facts: TraceFacts,
    remark: str | None = None,
    *,
    session: Session | None = None,
    published: bool = True,
    faults: Faults | None = None,
) -> AnswerInfo:
    """Convert an answer to the format of report.json. Published numbers are included if `published` is given.

    If the sentence about the rows cannot be written, the answer says so instead, and the error is added to `faults`.
    """
    faults = Faults() if faults is None else faults
    question, rows = answer.question, answer.rows(ROW_LIMIT)
    query = question if isinstance(question, Query) else None
    # Only answers of queries can be too long for a sentence about all rows.
    said = faults.run(
        f"the sentence of {question.name}", finding, question.name, rows if query else answer.rows(), facts
    )
    return {
        "name": question.name,
        "group": question.group,
        "kind": question.kind,
        "title": question.title,
        "question": question_of(question.name, question.question, facts),
        "paper": question.paper,
        "finding": f"The sentence could not be made: {said.reason}." if isinstance(said, Fault) else said,
        "columns": column_infos(answer),
        "rows": rows,
        "row_count": answer.frame.height,
        "params": [
            {"name": p.name, "value": text.plain(answer.params.get(p.name, p.default)), "meaning": p.meaning}
            for p in question.params
        ],
        "notes": [text.cut(note, 1000) for note in [*answer.notes, *filter(None, [remark])]],
        "coverage": dict(answer.coverage),
        "intervals": _intervals(answer),
        "definition": question.rule,
        "sql": query.sql if query else "",
        "commands": [
            text.cut(line, _COMMAND_LIMIT)
            for line in ((query_command(answer, query, trace.tenant_column),) if query else answer.commands)
        ],
        "files": list(answer.files),
        "published": [published_number(n) for n in compare_published(trace, answer, session)]
        if query and published
        else [],
    }


def column_infos(answer: Answer) -> list[ColumnInfo]:
    """Return the columns of an answer. Columns without a description have only a name."""
    described = {c.name: (c.unit, c.meaning) for c in answer.question.columns}
    columns = ((name, *described.get(name, (None, ""))) for name in answer.frame.columns)
    return [{"name": name, "unit": of, "meaning": meaning} for name, of, meaning in columns]


def _intervals(answer: Answer) -> list[IntervalInfo]:
    if answer.intervals is None:
        return []
    ends = answer.intervals.head(ROW_LIMIT)
    return [
        {
            "column": interval.column,
            "method": interval.method,
            "count": interval.count,
            "low": ends[f"{interval.column}_low"].to_list(),
            "high": ends[f"{interval.column}_high"].to_list(),
        }
        for interval in answer.question.intervals
    ]


_OF_JOBS = frozenset({"jobs", "attempts", "placements"})


def unanswered_info(unanswered: Unanswered, facts: TraceFacts) -> UnansweredInfo:
    """Convert an unanswered question to the format of report.json."""
    question, reasons = unanswered.question, unanswered.reasons
    # If a capability is missing, its reason already explains why a table is missing.
    shown = [r for r in reasons if not r.startswith("The trace has no table")] or reasons
    # Fits and replays are computed from jobs.
    needs_jobs = not isinstance(question, Query) or not _OF_JOBS.isdisjoint((*question.tables, *question.one_of))
    if not unanswered.failed and not facts.jobs and needs_jobs:
        shown = ["The trace has no jobs."]
    return {
        "name": unanswered.name,
        "title": question.title,
        "question": question.question,
        "reasons": [text.cut(r, 1000) for r in shown],
        "failed": unanswered.failed,
    }
