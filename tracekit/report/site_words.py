"""The tenant in the site's own word, wherever a report's own text speaks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.tenant import INGESTED, Tenant

if TYPE_CHECKING:
    from tracekit.answer import Kind
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.report.structure import AnswerInfo, TenantInfo, TenantWords
    from tracekit.trace import Trace


def tenant_info(trace: Trace) -> TenantInfo:
    """Return the tenant of a report: that of its queries, and that of its replays."""
    return {"queries": _words(trace.tenant), "replays": _words(trace.ingested_tenant)}


def _words(tenant: Tenant) -> TenantWords:
    return {"column": tenant.column, "one": tenant.one, "many": tenant.many, "full": tenant.full}


def tenant_of_words(words: TenantWords) -> Tenant:
    """Return the tenant that report.json describes."""
    return Tenant(words["column"], words["one"], words["many"], words["full"])


def unit_of(kind: Kind, facts: TraceFacts) -> Tenant:
    """Return the tenant of a kind of answer: replays and fits keep the one that was ingested."""
    return facts.ingested if kind in {"replay", "fit"} else facts.tenant


def head_of(tenant: Tenant) -> str:
    """Return the heading of the column `vc`: the site's word, where it has one."""
    return tenant.one if tenant.one != "VC" else INGESTED


def with_unit(answer: AnswerInfo, facts: TraceFacts) -> AnswerInfo:
    """Return an answer of report.json whose tenant is called `vc`, as sentences and charts are made from."""
    column = unit_of(answer["kind"], facts).column
    if column == INGESTED or column not in {c["name"] for c in answer["columns"]}:
        return answer
    rows = [{INGESTED if name == column else name: value for name, value in row.items()} for row in answer["rows"]]
    columns = [{**c, "name": INGESTED} if c["name"] == column else c for c in answer["columns"]]
    return {**answer, "rows": rows, "columns": columns}  # type: ignore[typeddict-item]  # the same keys, one renamed
