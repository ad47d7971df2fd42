"""Run a query on a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.characterize.catalog import find_query, list_queries
from tracekit.characterize.engines.choice import engine_of
from tracekit.characterize.engines.duckdb import DuckdbEngine, sql_error
from tracekit.characterize.engines.interface import Asked
from tracekit.characterize.limits import SANDBOX_MEMORY, Limits, timed
from tracekit.characterize.named_tenant import with_tenant
from tracekit.characterize.parameters import bind_params
from tracekit.characterize.query import Query
from tracekit.characterize.sandbox import lies_in_trace, lock
from tracekit.characterize.session import Session
from tracekit.characterize.timeline import timelines_in
from tracekit.damage import explain_damage
from tracekit.databases import Streamed
from tracekit.errors import QueryError, UsageError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import polars as pl

    from tracekit.characterize.engines.interface import Engine
    from tracekit.characterize.timeline import TimelineRows, TimelineTable

__all__ = ["answer_query", "lacks", "run_query", "tenant_of_query"]


_FAULTS = ("rejects", "doubtful_times")
"""Tables of what is wrong with a log: a Trace without them has no such rows, and may be asked for them."""


_SPOKEN = {"failures": "reasons of failures"}
"""Capabilities whose name alone would say more than the trace lacks."""


def lacks(query: Query, trace: Trace) -> list[str]:
    """Return what `trace` lacks to answer `query`, one sentence a thing; empty when it can run.

    A file without a header states no needs, so nothing is known to be lacking.
    """
    tables = dict.fromkeys([*query.tables, *(table for timeline in timelines_in(query) for table in timeline.tables)])
    sentences = [f"The trace has no table '{table}'." for table in tables if not trace.has(table)]
    if query.one_of and not any(trace.has(table) for table in query.one_of):
        sentences.append(f"The trace has no table {' or '.join(repr(table) for table in query.one_of)}.")
    for name in query.needs:
        found = trace.capabilities.get(name)
        if found is None:
            sentences.append(f"The trace does not say whether it has {name}.")
        elif not found.available:
            note = f": {found.note.rstrip('.')}" if found.note else ""
            sentences.append(f"The trace has no {_SPOKEN.get(name, name)}{note}.")
    return sentences


def run_query(
    trace: Trace | str | Path,
    name_or_path: str | Path,
    *,
    by: str | None = None,
    memory_limit: str | None = None,
    sandbox: bool | None = None,
    time_limit_s: float | None = None,
    engine: Engine | str | None = None,
    **params: object,
) -> pl.DataFrame:
    """Return the result of a query on a Trace or its folder; `answer_query` returns its notes and intervals too.

    With `by`, such as 'account', that column of jobs is the tenant, and the result's column is called after it; a
    query that has a parameter of this name gets it instead.
    """
    query = find_query(name_or_path)
    column, given = tenant_of_query(query, by, params)
    chosen = Trace.of(trace).by(column)
    answer = answer_query(
        chosen,
        query,
        given,
        memory_limit=memory_limit,
        sandbox=sandbox,
        time_limit_s=time_limit_s,
        engine=engine,
        intervals=False,
    )
    return with_tenant(answer, chosen.tenant).frame


def tenant_of_query(
    query: Query, by: str | None, params: Mapping[str, object]
) -> tuple[str | None, Mapping[str, object]]:
    """Return the column to be the tenant, and the parameters, one of which may be what is asked for.

    Raises
    ------
    QueryError
        The answer does not depend on the tenant.
    """
    if by is not None and any(param.name == "by" for param in query.params):
        return None, {**params, "by": by}
    if by is None or query.takes_tenant:
        return by, params
    others = ", ".join(
        q.name for q in list_queries() if q.takes_tenant or any(param.name == "by" for param in q.params)
    )
    raise QueryError(f"'{query.name}' does not tell tenants apart", where=f"--by {by}", hint=f"these do: {others}")


@explain_damage()
def answer_query(
    trace: Trace | str | Path,
    question: Query | str | Path,
    params: Mapping[str, object] | None = None,
    *,
    memory_limit: str | None = None,
    session: Session | None = None,
    sandbox: bool | None = None,
    time_limit_s: float | None = None,
    own_process: bool = False,
    engine: Engine | str | None = None,
    intervals: bool = True,
) -> Answer:
    """Answer a query.

    Parameters
    ----------
    trace : Trace, str or Path
        What to ask: a Trace, which may be divided by another tenant (`Trace.by`), or its folder.
    question : Query, str or Path
        'queuing/run_time', the path of a user's own .sql file, which may use the tables of the Trace, the shared views
        and the timelines, or a query that was found before.
    params : mapping, optional
        Values of the query's parameters; the others keep their defaults. They are bound, never pasted.
    memory_limit : str, optional
        Most memory DuckDB may use before it spills to disk, such as '2GB', and most bytes of the result. In the sandbox
        it is `SANDBOX_MEMORY` by default.
    session : Session, optional
        What this query shares with others of the same Trace, memory limit included; a sandboxed query shares nothing.
    sandbox : bool, optional
        Let the SQL read the tables of the Trace and nothing else: no other file, no network. By default only where the
        SQL file lies in the folder of a Trace, since it came with that. Set it to True to run SQL written by others, as
        a server does.
    time_limit_s : float, optional
        Longest time [s]. In the sandbox it is `LONGEST_S` by default, elsewhere there is none. A single call of a
        function that works for long on one row ends late.
    own_process : bool
        Whether this process answers this question alone, as a command does. Under a memory limit its memory is then
        limited while the SQL runs, and the process ends where the SQL does not hear of the time limit.
    engine : Engine or str, optional
        What runs the SQL: 'duckdb', 'spark', or an engine (`engine_of`, which takes Spark's master). By default that
        of the session, or DuckDB.
    intervals : bool
        Compute confidence intervals too, which takes longer than most queries.

    Raises
    ------
    QueryError
        There is no such query, the trace lacks what it needs, a parameter is unknown or of another type, the engine
        cannot answer it, the SQL fails, or its result is larger than allowed.
    StoppedError
        It took longer than `time_limit_s`.
    UsageError
        `memory_limit` is not a size, or the engine cannot be used, or it knows no time limit.
    """
    trace = Trace.of(trace)
    query = question if isinstance(question, Query) else find_query(question)
    missing = lacks(query, trace)
    if missing:
        reason = " ".join(missing).rstrip(".")
        hint = "'tracekit query TRACE' lists those that can run" if query.shipped else None
        raise QueryError(f"'{query.name}' cannot run here: {reason}", where=trace.path, hint=hint)
    timelines = timelines_in(query)
    in_sql = _params_used(query)
    values = bind_params(query, params or {}, in_sql, trace, timelines)
    also = {*query.also, *query.one_of, *_FAULTS, *(table for timeline in timelines for table in timeline.also)}
    notes: list[str] = []
    locked = bool(sandbox or (sandbox is None and not query.shipped and lies_in_trace(query.path)))
    chosen = engine_of(session.engine if engine is None and session is not None else engine)
    chosen.check(query, locked=locked)
    if time_limit_s is not None and not isinstance(chosen, DuckdbEngine):
        raise UsageError(f"{chosen.name} takes no time limit", where="--time-limit", hint="use --engine duckdb")
    if locked and memory_limit is None:
        memory_limit = SANDBOX_MEMORY
    limits = Limits.of(memory_limit, time_limit_s, sandbox=locked)
    shared = Session(trace, memory_limit, chosen, alone=locked) if session is None or locked else session
    named = _named(query, timelines) if isinstance(chosen, DuckdbEngine) else None
    with shared.connect(also, named) as con, timed(con, limits.seconds, query.path, own_process=own_process):
        found: dict[str, TimelineRows] = {}
        for timeline in timelines:
            rows = found[timeline.name] = shared.timeline(con, timeline, values, chosen, also)
            con.register(timeline.name, Streamed(rows.frame))
            notes += [note for note in rows.notes if note not in notes]
        if locked:
            lock(con, trace)
        in_use = {name: values[name] for name in sorted(in_sql)}
        empty = frozenset(also).difference(trace.tables)
        frame = chosen.rows(Asked(query, trace, in_use, empty, con, found, limits, own_process))
    notes += chosen.notes(query)
    shown = frame
    if query.shipped:
        shown = frame.select(name for name in frame.columns if not name.startswith("_"))
        expected = [column.name for column in query.columns]
        if shown.columns != expected:
            what = f"gives the columns {', '.join(shown.columns)}, its header says {', '.join(expected)}"
            raise QueryError(what, where=query.path)
    covered = {name: trace.capabilities[name].coverage for name in query.needs}
    notes = [*(trace.tenant.words(note) for note in notes), *trace.notes]
    return Answer(query, shown, values, tuple(notes), _intervals(frame, query) if intervals else None, covered)


def _named(query: Query, timelines: Iterable[TimelineTable]) -> str | None:
    """Return SQL, or words, that name all tables and views that a query and its timelines read; None: it may be any."""
    words = [query.sql]
    for timeline in timelines:
        if timeline.views is None:
            return None
        words += [*timeline.tables, *timeline.also, *timeline.views]
    return "\n".join(words)


def _intervals(frame: pl.DataFrame, query: Query) -> pl.DataFrame | None:
    for interval in query.intervals:
        for name in (interval.column, interval.count, *([interval.hidden] if interval.method == "median" else ())):
            if name not in frame.columns:
                raise QueryError(
                    f"the interval of '{interval.column}' needs a column '{name}'",
                    where=query.path,
                    hint="add it to the SQL",
                )
    if not query.intervals:
        return None
    from tracekit.characterize.intervals import with_intervals

    return with_intervals(frame, query.intervals)


def _params_used(query: Query) -> set[str]:
    """Return the names of the parameters in the SQL.

    Raises
    ------
    QueryError
        The file is not one SQL statement that gives rows.
    """
    import duckdb

    try:
        statements = duckdb.extract_statements(query.sql)
    except duckdb.Error as error:
        raise sql_error(error, query) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        found = f"{len(statements)} statements" if len(statements) != 1 else "one that is no SELECT"
        raise QueryError(f"has {found}", where=query.path, hint="write one SELECT statement a file")
    return set(statements[0].named_parameters)
