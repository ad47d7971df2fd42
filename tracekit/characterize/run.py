"""Run a query on a Trace."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.characterize.engines import engine_of
from tracekit.characterize.engines.duckdb import DuckdbEngine, sql_error
from tracekit.characterize.engines.interface import Asked
from tracekit.characterize.limits import SANDBOX_MEMORY, Limits, timed
from tracekit.characterize.query import RESERVED_PARAMS, Query, find_query, list_queries, number_or_text
from tracekit.characterize.session import Session
from tracekit.characterize.timeline import timelines_in
from tracekit.damage import explain_damage
from tracekit.databases import Streamed
from tracekit.errors import QueryError, UsageError, nearest
from tracekit.tables.parquet import files_sql
from tracekit.trace import MANIFEST_NAME, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import duckdb
    import polars as pl

    from tracekit.answer import Param, Value
    from tracekit.characterize.engines.interface import Engine
    from tracekit.characterize.timeline import TimelineRows, TimelineTable


# Bind the parameters of a query to values.


def bind_params(
    query: Query, given: Mapping[str, object], in_sql: set[str], trace: Trace, timelines: Iterable[TimelineTable] = ()
) -> dict[str, Value]:
    """Return the value of each parameter that the SQL (`in_sql`) or a timeline in it uses.

    A number may be given as text. The reserved parameters `timezone` and `time_base` take the Trace's values. If both a
    timeline and the query declare a parameter, the query's default applies.

    Raises
    ------
    QueryError
        A parameter is unknown, has a value of the wrong type, or has no value.
    """
    of_timelines = {param.name: param for timeline in timelines for param in timeline.params}
    declared = of_timelines | {param.name: param for param in query.params}
    used = in_sql | set(of_timelines)
    # A file without a header declares no parameters, so all parameters in its SQL are accepted.
    known = set(declared) if query.described else (used | set(declared)) - set(RESERVED_PARAMS)
    for name in given:
        if name not in known:
            raise QueryError(f"the query '{query.name}' has no parameter '{name}'", hint=nearest(name, known))
    values: dict[str, Value] = {"timezone": trace.timezone, "time_base": trace.manifest.time_base}
    values |= {param.name: param.default for param in declared.values()}
    for name, value in given.items():
        values[name] = _typed(declared[name], value) if name in declared else _untyped(name, value)
    for name in sorted(used):
        if name not in values:
            hint = f"give it a value, or declare it with '-- param {name}: DEFAULT | meaning'"
            raise QueryError(f"the parameter '{name}' has no value", where=query.path, hint=hint)
    return {name: values[name] for name in sorted(used)}


def _typed(param: Param, value: object) -> Value:
    """Convert `value` to the type of the parameter's default."""
    if param.choices:
        if not isinstance(value, str) or value not in param.choices:
            raise QueryError(
                f"the parameter '{param.name}' cannot be {value!r}", hint=nearest(str(value), param.choices)
            )
        return value
    if isinstance(param.default, str):
        if not isinstance(value, str):
            raise QueryError(f"the parameter '{param.name}' is text, not {value!r}", hint=f"default: {param.default!r}")
        return value
    number = _untyped(param.name, value)
    if isinstance(number, str):
        raise QueryError(f"the parameter '{param.name}' is a number, not {value!r}", hint=f"default: {param.default}")
    return number


def _untyped(name: str, value: object) -> Value:
    """Return `value` as a number if it is a finite number or text for one, otherwise as text."""
    if isinstance(value, str):
        return number_or_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise QueryError(f"the parameter '{name}' cannot be {value!r}", hint="give a finite number or text")


# The sandbox: SQL of unknown origin can read only the tables of one Trace.
#
# DuckDB's own settings enforce this: the SQL can use no files except those of the tables, no network, no extensions and
# no variables of the Python program, and it cannot change these settings. `tracekit.characterize.limits` limits the
# time and memory of the SQL.


def lies_in_trace(file: Path) -> bool:
    """Return whether a file came with a Trace: its path, as given or with links resolved, is in a Trace's folder."""
    folders = {*Path(os.path.realpath(file)).parents, *Path(os.path.abspath(file)).parents}  # noqa: PTH100 -- resolves no link
    return any(
        (folder / MANIFEST_NAME).is_file() and any(any(folder.glob(p)) for p in ("*.parquet", "*/cluster=*"))
        for folder in folders
    )


def lock(con: duckdb.DuckDBPyConnection, trace: Trace) -> None:
    """Restrict a connection permanently to the tables of `trace`."""
    # DuckDB 1.5 and 2.0 document these settings. Paths must be allowed before access is removed.
    files = files_sql([path for table in trace.tables for path in trace.files(table)])
    con.execute(f"SET allowed_paths = {files}")
    for setting in (
        "python_enable_replacements = false",
        "autoload_known_extensions = false",
        "allow_community_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",  # must be last, because no setting can change after it
    ):
        con.execute(f"SET {setting}")


_FAULTS = ("rejects", "doubtful_times")
"""Tables of problems in a log. A Trace without them has no such problems, so queries may use them."""


_SPOKEN = {"failures": "reasons of failures"}
"""Names for sentences, for capabilities whose own names would overstate what is missing."""


def lacks(query: Query, trace: Trace) -> list[str]:
    """Return the reasons why `trace` cannot answer `query`, one sentence each, or an empty list if the query can run.

    A file without a header declares no needs, so the result is empty.
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
    """Run a query on a Trace or its folder and return the result; `answer_query` also returns notes and intervals.

    With `by`, such as 'account', that column of jobs is the tenant, and the result's column has its name. If the query
    has a parameter `by`, that parameter gets the value instead.
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
    return answer.frame


def tenant_of_query(
    query: Query, by: str | None, params: Mapping[str, object]
) -> tuple[str | None, Mapping[str, object]]:
    """Return the column to use as the tenant, and the parameters, which may include `by`.

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
    raise QueryError(
        f"'{query.name}' has no breakdown by tenant", where=f"--by {by}", hint=f"these queries do: {others}"
    )


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
    """Run a query on a Trace and return its answer in the site's words, with notes and intervals.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, which may be divided by another tenant (`Trace.by`), or its folder.
    question : Query, str or Path
        'queuing/run_time', the path of a user's own .sql file, or a Query. A user's file may use the tables of the
        Trace, the shared views and the timelines.
    params : mapping, optional
        Values of the query's parameters; the others keep their defaults. Values are bound, never inserted into the SQL.
    memory_limit : str, optional
        Memory limit of DuckDB before it spills to disk, such as '2GB', and maximum size of the result. In the sandbox
        the default is `SANDBOX_MEMORY`.
    session : Session, optional
        Databases and timelines shared with other queries on the same Trace, including the memory limit. A sandboxed
        query shares nothing.
    sandbox : bool, optional
        Whether the SQL may read only the tables of the Trace: no other files and no network. By default this is so only
        if the SQL file is in a Trace's folder, because it then came with that Trace. Set this to True to run SQL
        written by others, as a server does.
    time_limit_s : float, optional
        Time limit [s]. The default is `LONGEST_S` in the sandbox, and no limit elsewhere. A long function call on a
        single row is stopped late.
    own_process : bool
        Whether this process answers only this question, as a command does. If so, a memory limit also applies to the
        process while the SQL runs, and the process ends if the SQL does not react to the time limit.
    engine : Engine or str, optional
        Engine that runs the SQL: 'duckdb', 'spark', or an Engine (see `engine_of`, which takes Spark's master). By
        default the session's engine, or DuckDB.
    intervals : bool
        Whether to also compute confidence intervals, which takes longer than most queries do.

    Raises
    ------
    QueryError
        The query does not exist, the trace does not have what the query needs, a parameter is unknown or has the wrong
        type, the engine cannot answer the query, the SQL fails, or the result is too large.
    StoppedError
        The query took longer than `time_limit_s`.
    UsageError
        `memory_limit` is not a size, or the engine cannot be used or does not support a time limit.
    """
    query = question if isinstance(question, Query) else find_query(question)
    # A user's own SQL sees the clusters as named in the files.
    trace = Trace.of(trace).divided if query.shipped else Trace.of(trace)
    missing = lacks(query, trace)
    if missing:
        reason = " ".join(missing).rstrip(".")
        hint = "'tracekit query TRACE' lists those that can run" if query.shipped else None
        raise QueryError(f"'{query.name}' cannot run here: {reason}", where=trace.path, hint=hint)
    timelines = timelines_in(query)
    in_sql = _params_used(query)
    values = bind_params(query, params or {}, in_sql, trace, timelines)
    also = {*query.also, *query.one_of, *_FAULTS, *(table for timeline in timelines for table in timeline.also)}
    locked = bool(sandbox or (sandbox is None and not query.shipped and lies_in_trace(query.path)))
    chosen = engine_of(session.engine if engine is None and session is not None else engine)
    chosen.check(query, locked=locked)
    if time_limit_s is not None and not isinstance(chosen, DuckdbEngine):
        raise UsageError(
            f"{chosen.name} does not support a time limit", where="--time-limit", hint="use --engine duckdb"
        )
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
        if locked:
            lock(con, trace)
        in_use = {name: values[name] for name in sorted(in_sql)}
        empty = frozenset(also).difference(trace.tables)
        frame = chosen.rows(Asked(query, trace, in_use, empty, con, found, limits, own_process))
    shown = frame
    if query.shipped:
        shown = frame.select(name for name in frame.columns if not name.startswith("_"))
        expected = [column.name for column in query.columns]
        if shown.columns != expected:
            what = f"returns the columns {', '.join(shown.columns)}, but its header says {', '.join(expected)}"
            raise QueryError(what, where=query.path)
    covered = {name: trace.capabilities[name].coverage for name in query.needs}
    noted = dict.fromkeys(note.sentence(trace.tenant) for rows in found.values() for note in rows.notes)
    notes = (*noted, *chosen.notes(query), *trace.notes)
    answer = Answer(query, shown, values, notes, _intervals(frame, query) if intervals else None, covered)
    return answer.of(trace.tenant)


def _named(query: Query, timelines: Iterable[TimelineTable]) -> str:
    """Return SQL text that names all tables and views that a query and its timelines read."""
    names = (name for timeline in timelines for name in (*timeline.tables, *timeline.also, *timeline.views))
    return "\n".join([query.sql, *names])


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
        The file is not a single SQL statement that returns rows.
    """
    import duckdb

    try:
        statements = duckdb.extract_statements(query.sql)
    except duckdb.Error as error:
        raise sql_error(error, query) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        found = f"{len(statements)} statements" if len(statements) != 1 else "one statement, but no SELECT"
        raise QueryError(f"has {found}", where=query.path, hint="write one SELECT statement per file")
    return set(statements[0].named_parameters)
