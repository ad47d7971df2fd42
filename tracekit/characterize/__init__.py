"""Questions about a Trace: SQL files with a documented header, run in DuckDB.

for query in list_queries():
    print(query.name, lacks(query, trace) or "can run")
frame = run_query(trace, "queuing/run_time")
"""

from __future__ import annotations

from tracekit.characterize.cluster_size import Capacity, capacity
from tracekit.characterize.query import Query, find_query, list_queries
from tracekit.characterize.run import answer_query, lacks, run_query
from tracekit.characterize.session import list_views

__all__ = [
    "Capacity",
    "Query",
    "answer_query",
    "capacity",
    "find_query",
    "lacks",
    "list_queries",
    "list_views",
    "run_query",
]
