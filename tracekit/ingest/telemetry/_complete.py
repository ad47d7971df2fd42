"""Fill gpu_utilization, and node_events by errors (XID) and conditions of nodes, from the telemetry beside a log.

The samples wait in a file of numbers; then the metrics of a GPU at one time become one row, with the job that held the
GPU, some machines at once, so that memory stays bounded. The rules:

- A host is a machine of the log that has its name, or whose name without cluster or without domain is the same.
- One metric that several series state for one GPU and time is a contradiction, unless one of the series had ended:
  `query_range` goes on for 5 minutes. The series that began last counts; else the largest value does.
- A sample belongs to the job that its labels name if an attempt of it ran then; without such labels, to the only
  attempt that can have held the GPU: by index where the log knows it, else the one that held all GPUs of the machine.
- Placements get the indices that labels show, if they are as many as the GPUs that the log states there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

from tracekit.databases import sql_text
from tracekit.errors import SourceError, UsageError
from tracekit.ingest.companion import answers_of, companions
from tracekit.ingest.file_tasks import read_each
from tracekit.ingest.files import source_files
from tracekit.ingest.telemetry._joined import write_samples
from tracekit.ingest.telemetry._live import Prometheus
from tracekit.ingest.telemetry._node_conditions import NodeConditions
from tracekit.ingest.telemetry._own_samples import own_samples, samples_lack_jobs
from tracekit.ingest.telemetry._places import place_series
from tracekit.ingest.telemetry._sample_file import SampleFile
from tracekit.ingest.telemetry._series import SeriesTable
from tracekit.outputs import output_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb

    from tracekit.ingest.companion import CompanionFiles
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._interface import Samples, TelemetryReader

__all__ = ["attach_log", "complete_telemetry", "join"]


def complete_telemetry(beside: CompanionFiles, frame: TimeFrame, sink: Sink) -> None:
    """Read telemetry, and join it to the machines and jobs of the log, whose tables are complete.

    Raises
    ------
    SourceError
        A file cannot be read as what it claims to be, or a server does not answer.
    """
    series, conditions = SeriesTable(), NodeConditions()
    with sink.connect() as con, SampleFile(sink.writer.scratch / "telemetry.samples") as samples:
        attach_log(con, sink)
        hosts = _hosts(con)
        files = {name: list(found) for name, found in beside.telemetry.items()}
        for address in beside.servers:
            files.setdefault("prometheus", []).extend(_pulled(con, address, beside.window, sink))
        with output_errors(sink.writer.target):
            own = own_samples(con, sink) if samples_lack_jobs(sink) else ()
            for part in chain(own, _parts(files, frame, hosts, sink)):
                if not conditions.add(part):
                    samples.add(series.number(part.labels, part.metric), part.times, part.values)
        if conditions:
            _write_conditions(con, conditions, frame, sink)
            if not series.numbers:
                return
        if not series.numbers:
            sink.note("the telemetry holds no sample that fills a column")
            return
        join(con, samples, series, sink)


def _write_conditions(con: duckdb.DuckDBPyConnection, conditions: NodeConditions, frame: TimeFrame, sink: Sink) -> None:
    if frame.base != "absolute":
        sink.note(f"the times of the log are {frame.base}, so what telemetry says about nodes is left out")
        return
    conditions.write(con, sink)


def join(con: duckdb.DuckDBPyConnection, samples: SampleFile, series: SeriesTable, sink: Sink) -> None:
    """Write gpu_utilization and the errors of GPUs, beside the tables of the log (see `attach_log`)."""
    sink.progress.stage("joining telemetry with jobs")
    con.register("series_label", series.frame().to_arrow())
    con.execute("CREATE TABLE label AS SELECT * FROM series_label")
    place_series(con, sink)
    write_samples(con, samples, sink)


def _pulled(
    con: duckdb.DuckDBPyConnection, address: str, window: tuple[datetime | None, datetime | None], sink: Sink
) -> list[SourceFile]:
    """Return the answers of a server for the time in which attempts ran, or for the one that the user names in UTC."""
    first, last, running = con.execute(
        """SELECT epoch(min(start_time)), epoch(max(greatest(start_time, end_time))), count(*) > count(end_time)
        FROM attempts WHERE start_time IS NOT NULL"""
    ).fetchall()[0]
    asked = [None if moment is None else moment.replace(tzinfo=UTC).timestamp() for moment in window]
    if first is None and None in asked:
        raise SourceError("no job has started, so that no telemetry can belong to one", where=address)
    begin = first if asked[0] is None else asked[0]
    end = asked[1] if asked[1] is not None else time.time() if running else last
    if begin > end or (None not in asked and begin == end):
        spans = "jobs ran from {:%Y-%m-%dT%H:%M:%S} to {:%Y-%m-%dT%H:%M:%S}, in UTC"
        hint = spans.format(*(datetime.fromtimestamp(t, UTC) for t in (first, last))) if first is not None else None
        raise UsageError("the time for which telemetry is asked ends before it begins", where="--from/--to", hint=hint)
    digest = sha256(address.encode()).hexdigest()[:12]
    server = Prometheus(address, answers_of(sink.writer.target) / digest)
    saved = {path.name for path in server.fetch(begin, end, sink.progress)}
    bounds = "as --from and --to bound them" if any(window) else "from the first start to the last end"
    sink.note(f"telemetry of {address}: {len(saved)} answers, raw samples {bounds}")
    return [replace(file, path=f"{digest}/{file.path}") for file in source_files(server.folder) if file.path in saved]


def _parts(
    files: Mapping[str, list[SourceFile]], frame: TimeFrame, hosts: frozenset[str], sink: Sink
) -> Iterator[Samples]:
    every = [(name, file) for name, found in files.items() for file in found]
    return read_each(every, partial(_read_file, frame, hosts), sink)


def _read_file(frame: TimeFrame, hosts: frozenset[str], name: str, file: SourceFile, sink: Sink) -> Iterator[Samples]:
    reader: TelemetryReader = companions("telemetry")[name]  # type: ignore[assignment]  # the family says so
    with sink.opened(file) as opened:
        yield from reader.read(opened, frame, hosts, sink)


def attach_log(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Create views of the tables that the log has filled; a table without a row is empty."""
    from tracekit import schema

    for table in ("jobs", "attempts", "placements", "nodes"):
        path = sink.folder / f"{table}.parquet"
        if path.is_file():
            con.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({sql_text(path)})")
        else:
            nothing = ", ".join(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in schema.common(table).columns)
            con.execute(f"CREATE VIEW {table} AS SELECT {nothing} WHERE false")


def _hosts(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of the log's machines, with and without their cluster."""
    rows = con.execute(
        """SELECT DISTINCT unnest([node_id, split_part(node_id, '/', -1)])
        FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM placements)"""
    ).fetchall()
    return frozenset(str(row[0]) for row in rows)
