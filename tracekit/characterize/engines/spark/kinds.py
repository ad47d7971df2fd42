"""In which way each query is answered on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.engines.spark.crossing import parsed, relations
from tracekit.characterize.engines.spark.merging import merged_name, tail
from tracekit.characterize.timeline import timelines_in
from tracekit.characterize.views import list_views

if TYPE_CHECKING:
    from tracekit.characterize.query import Query


def ways_of(query: Query) -> str:
    """Return how a query crosses to Spark, in words.

    Examples
    --------
    >>> from tracekit.characterize import find_query
    >>> ways_of(find_query("overview/status"))
    'SQL'
    >>> ways_of(find_query("utilization/gpu_by_size_status"))
    'telemetry by day, merged; the rest on the driver'
    >>> ways_of(find_query("queuing/delay_causes"))
    'timeline by cluster; SQL'
    """
    views = {view.name: view for view in list_views()}
    words = [f"timeline {'by cluster' if timeline.by_cluster else 'on the driver'}" for timeline in timelines_in(query)]
    below, todo = [query], [query]
    while todo:
        one = todo.pop()
        named = [views[name] for name in relations(parsed(one.sql, one.path)) if name in views]
        fresh = [view for view in named if view not in below]
        below += fresh
        todo += fresh
    known = {table: merged_name(query.name, table) for table in query.merge}
    if any(one.merge for one in below):
        words.append("telemetry by day, merged")
    local = bool(known) and relations(tail(query, known)) <= set(known.values())
    return "; ".join([*dict.fromkeys(words), "the rest on the driver" if local else "SQL"])
