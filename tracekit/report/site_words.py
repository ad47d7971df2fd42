"""Use the site's own word for the tenant in all text that a report writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from tracekit.answer import Kind
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.report.structure import AnswerInfo
    from tracekit.tenant import Tenant


def unit_of(kind: Kind, facts: TraceFacts) -> Tenant:
    """Return the tenant for a kind of answer: replays and fits keep the tenant set at ingest."""
    return facts.ingested if kind in {"replay", "fit"} else facts.tenant


def with_unit(answer: AnswerInfo, facts: TraceFacts) -> AnswerInfo:
    """Return an answer of report.json with the tenant column renamed to `vc`, as sentences and charts expect."""
    column = unit_of(answer["kind"], facts).column
    if column == INGESTED or column not in {c["name"] for c in answer["columns"]}:
        return answer
    rows = [{INGESTED if name == column else name: value for name, value in row.items()} for row in answer["rows"]]
    columns = [{**c, "name": INGESTED} if c["name"] == column else c for c in answer["columns"]]
    return {**answer, "rows": rows, "columns": columns}  # type: ignore[typeddict-item]  # the same keys, one renamed
