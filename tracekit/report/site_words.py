"""The tenant in the site's own word, wherever a report's own text speaks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from tracekit.answer import Kind
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.report.structure import AnswerInfo
    from tracekit.tenant import Tenant


def unit_of(kind: Kind, facts: TraceFacts) -> Tenant:
    """Return the tenant of a kind of answer: replays and fits keep the one that was ingested."""
    return facts.ingested if kind in {"replay", "fit"} else facts.tenant


def with_unit(answer: AnswerInfo, facts: TraceFacts) -> AnswerInfo:
    """Return an answer of report.json whose tenant is called `vc`, as sentences and charts are made from."""
    column = unit_of(answer["kind"], facts).column
    if column == INGESTED or column not in {c["name"] for c in answer["columns"]}:
        return answer
    rows = [{INGESTED if name == column else name: value for name, value in row.items()} for row in answer["rows"]]
    columns = [{**c, "name": INGESTED} if c["name"] == column else c for c in answer["columns"]]
    return {**answer, "rows": rows, "columns": columns}  # type: ignore[typeddict-item]  # the same keys, one renamed
