"""The reference page of all queries, generated from the headers of their files."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tools.manual.markdown import code, codes, head, plain, sentence, table
from tracekit.characterize import list_queries
from tracekit.characterize.session import list_views
from tracekit.characterize.timeline import all_timelines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.answer import AnswerColumn, Param
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineTable

__all__ = ["page"]

_INTRO = """\
`tracekit query TRACE NAME` answers one of these questions. `tracekit query TRACE` shows which of them a Trace can
answer. Set a parameter with `--param NAME=VALUE`; the first choice is the default. Each column has its unit: a share
ranges from 0 to 1, a percentage from 0 to 100. NULL means unknown. Size classes are 0, <1, 1, 2-4, 5-8 and >8 GPUs.
`--intervals` adds 95 % confidence intervals to the marked columns."""

_VIEWS = """\
Several queries share these definitions. Your own queries can read them like tables, as
[Write a query](../howto/query.md) shows."""

_TIMELINES = "These relations describe a trace over time. Python computes them, and SQL reads them like tables."


def page() -> str:
    """Return the page as Markdown."""
    lines = head("Queries", "queries/*/*.sql", plain(_INTRO))
    for group, members in groupby(list_queries(), key=lambda query: query.name.partition("/")[0]):
        lines += ["", f"## {group}"]
        for query in members:
            lines += _query(query)
    lines += ["", "## Shared views", "", _VIEWS]
    for view in sorted(list_views(), key=lambda view: view.name):
        lines += ["", f"### {view.name}", "", plain(sentence(view.title))]
        lines += [*_reads(view), *_rule(view.rule), *_columns(view.columns)]
    lines += ["", "## Timelines", "", _TIMELINES]
    for timeline in all_timelines().values():
        lines += ["", f"### {timeline.name}", "", plain(sentence(timeline.title))]
        lines += [*_reads(timeline), *_rule(timeline.rule), *_params(timeline.params), *_columns(timeline.columns)]
    return "\n".join(lines) + "\n"


def _query(query: Query) -> list[str]:
    lines = ["", f"### {query.name}", "", f"{plain(sentence(query.title))} *{plain(query.question)}*"]
    lines += ["", f"Source: {plain(sentence(query.paper))}"]
    lines += [*_reads(query), *_rule(query.rule), *_params(query.params)]
    told = {i.column: ("median" if i.method == "median" else "proportion") for i in query.intervals}
    return [*lines, *_columns(query.columns, told)]


def _reads(what: Query | TimelineTable) -> list[str]:
    parts = []
    if what.tables:
        parts.append(f"needs the tables {codes(what.tables)}")
    one_of = getattr(what, "one_of", ())
    if one_of:
        parts.append(f"needs one of {codes(one_of)}")
    if what.also:
        parts.append(f"reads {codes(what.also)} if they exist")
    needs = getattr(what, "needs", ())
    if needs:
        parts.append(f"needs the capabilities {codes(needs)}")
    if not parts:
        return []
    text = "; ".join(parts)
    return ["", f"{text[0].upper()}{text[1:]}."]


def _rule(text: str) -> list[str]:
    return ["", plain(text)] if text else []


def _params(params: Iterable[Param]) -> list[str]:
    rows = [(code(p.name), code(p.default), codes(p.choices) or "any", plain(p.meaning)) for p in params]
    return table(("parameter", "default", "values", "meaning"), rows)


def _columns(columns: Iterable[AnswerColumn], intervals: dict[str, str] | None = None) -> list[str]:
    rows = []
    for column in columns:
        mark = f" (interval of a {intervals[column.name]})" if intervals and column.name in intervals else ""
        rows.append((code(column.name), plain(column.unit), plain(column.meaning) + mark))
    return table(("column", "unit", "meaning"), rows)
