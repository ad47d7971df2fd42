"""Microsoft's Philly cluster (2017): job log, machine list, and GPU, CPU and memory utilization.

Origin: github.com/msr-fiddle/philly-traces, CC BY 4.0. Study: Jeon et al., ATC'19. Times in the job log are naive US
Pacific wall-clock times. Telemetry times end in PST or PDT.

Known faults: the machine list contradicts the log and the telemetry (machines listed with 2 GPUs run 8-GPU jobs), so
the source of the capacity must be named. Wall-clock times between 01:00 and 02:00 on 2017-11-05 are ambiguous and
become unknown unless an option sets another rule. Attempts may have no start or no end. Telemetry rows end with a
comma, and some have a different number of fields. Only the job has a status, so earlier attempts have none.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import SourceError
from tracekit.ingest.checks import RepeatProof
from tracekit.ingest.csv_table import header_begins, read_table
from tracekit.ingest.file_tasks import read_each
from tracekit.ingest.formats._philly_jobs import CLUSTER, TIMEZONE, read_jobs
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tracekit.schema import TableSchema


# Read Philly's telemetry, which has one GPU, CPU and memory sample per minute.

_KIB_PER_GIB = 1024 * 1024
_LINES = 1 << 40
"""A number larger than the number of lines of any file."""
_NOT_AVAILABLE = re.compile(rb",[ \t]*NA[ \t]*(?=[,\r\n])")


def _telemetry_schema(name: str, sink: Sink) -> TableSchema:
    spec = schema.source("philly", name)
    if sink.options["times"] == "utc":
        return spec
    columns = tuple(replace(c, zones=dict.fromkeys(c.zones, 0)) if c.zones else c for c in spec.columns)
    return replace(spec, columns=columns)


def read_gpu_samples(files: list[SourceFile], sink: Sink) -> None:
    """Read the GPU files. Each cell that contains a number becomes one row."""
    proof = RepeatProof()
    for told in read_each([(None, file) for file in files], _read_gpu_file, sink):
        proof.follow(told)
    sink.distinct_samples = proof.holds


def _read_gpu_file(_: None, file: SourceFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Write the samples of a file, and yield what shows whether any sample repeats."""
    spec = _telemetry_schema("cluster_gpu_util", sink)
    spec = replace(spec, primary_key=())  # repeated samples are counted below, not rejected
    cells = [c.name for c in spec.columns if c.name.startswith("gpu")]

    def count_offline(text: bytes) -> None:
        sink.check(
            "offline_gpu_cells",
            _count_not_available(text),
            None,
            "GPU cells with NA (the GPU was offline); neither these nor empty cells (the GPU does not exist) are "
            "samples",
        )

    proof = RepeatProof()
    times = RecordTimes(sink, file.path)
    for found in read_table(sink, file, spec, inspect=count_offline):
        raw = times.dated(found, TimeColumns({"time": "time"}, names="machineId")).drop_nulls("time")
        proof.add(raw.select("time", node_id="machineId"))
        samples = _long(raw, cells)
        odd = (samples["utilization_pct"] < 0) | (samples["utilization_pct"] > 100)
        sink.check(
            "gpu_utilization_out_of_range", int(odd.sum()), samples.height, "GPU samples below 0 or above 100 percent"
        )
        sink.write("gpu_utilization", samples)
    yield proof.told()


def _long(raw: pl.DataFrame, cells: list[str]) -> pl.DataFrame:
    """Return one row per cell that contains a number, row by row."""
    values = raw.select(cells).to_numpy(order="c").ravel()
    known = np.flatnonzero(~np.isnan(values))
    row = known // len(cells)
    return raw.select("time", node_id="machineId")[row].with_columns(
        gpu_index=pl.Series(known - row * len(cells), dtype=pl.Int64),
        utilization_pct=pl.Series(values[known], dtype=pl.Float64),
    )


def _count_not_available(text: bytes) -> int:
    """Count the cells that are NA, with or without surrounding blanks."""
    array = np.frombuffer(text, dtype=np.uint8)
    at = np.flatnonzero(array == ord("N"))
    if not len(at):
        return 0
    if at[0] and at[-1] + 2 < len(array):
        after = array[at + 2]
        ended = (after == ord(",")) | (after == ord("\r")) | (after == ord("\n"))
        if (ended & (array[at - 1] == ord(",")) & (array[at + 1] == ord("A"))).all():
            return len(at)
    # If cells contain blanks or a machine name has an N, only the regular expression is right.
    return len(_NOT_AVAILABLE.findall(text))


def read_host_samples(found: FoundFiles, sink: Sink) -> None:
    """Join the CPU and memory files on time and machine. Samples in only one kind of file are kept.

    If samples repeat, the last sample in the last file is kept. With times=naive, all samples are kept, as in the
    published notebook, because the two hours around a clock change have the same wall-clock times. For each time, the
    first CPU sample is paired with the first memory sample, and the second with the second. The second pair's time is
    one microsecond later, because a row is one machine at one time.
    """
    staged = {key: _stage(found.get(key), key, sink) for key in ("cluster_cpu_util", "cluster_mem_util")}
    if not any(staged.values()):
        return
    with sink.connect() as con:
        every = sink.options["times"] == "naive"
        cpu, memory = (_samples_sql(path, key, every=every) for key, path in staged.items())
        sink.writer.copy(
            "host_utilization",
            con,
            "SELECT coalesce(c.time, m.time) + to_microseconds(coalesce(c.nth, m.nth) - 1) AS time, "
            "coalesce(c.machine_id, m.machine_id) AS node_id, "
            f"c.cpu_util AS cpu_pct, (m.mem_total - m.mem_free) / {_KIB_PER_GIB} AS memory_used_gib, "
            f"m.mem_total / {_KIB_PER_GIB} AS memory_total_gib "
            f"FROM ({cpu}) c FULL JOIN ({memory}) m "
            "ON c.time = m.time AND c.machine_id = m.machine_id AND c.nth = m.nth ORDER BY 1, 2",
        )
        samples = f"read_parquet({sql_text(sink.folder / 'host_utilization.parquet')})"
        odd = "cpu_pct NOT BETWEEN 0 AND 100 OR memory_used_gib NOT BETWEEN 0 AND memory_total_gib"
        count, of = con.execute(f"SELECT count(*) FILTER (WHERE {odd}), count(*) FROM {samples}").fetchall()[0]
        sink.check(
            "host_utilization_out_of_range",
            count,
            of,
            "host samples with a CPU share below 0 or above 100 percent, more memory used than installed, or "
            "negative memory; they are kept",
        )


def _stage(files: list[SourceFile], key: str, sink: Sink) -> Path | None:
    every = [((key, number), file) for number, file in enumerate(files)]
    return sink.stage(key, read_each(every, _read_host_file, sink))


def _read_host_file(place: tuple[str, int], file: SourceFile, sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the samples of a file. Line numbers continue after the numbers of earlier files, with gaps."""
    key, number = place
    times = RecordTimes(sink, file.path)
    for rows in read_table(sink, file, _telemetry_schema(key, sink)):
        dated = times.dated(rows, TimeColumns({"time": "time"}, names="machine_id")).drop_nulls("time")
        yield dated.with_columns(pl.col("line") + number * _LINES)


def _samples_sql(path: Path | None, key: str, *, every: bool) -> str:
    """Return the query for all or only the last of one file's samples, numbered from 1 per machine and time."""
    values = ["cpu_util"] if key == "cluster_cpu_util" else ["mem_total", "mem_free"]
    if path is None:
        nulls = ", ".join(f"NULL::DOUBLE AS {v}" for v in values)
        return f"SELECT NULL::TIMESTAMP AS time, NULL::VARCHAR AS machine_id, {nulls}, NULL::BIGINT AS nth WHERE false"
    samples = f"FROM read_parquet({sql_text(path)})"
    if every:
        nth = "row_number() OVER (PARTITION BY time, machine_id ORDER BY line) AS nth"
        return f"SELECT time, machine_id, {', '.join(values)}, {nth} {samples}"
    # max_by over a struct keeps a NULL in the last row; max_by over the value would skip it.
    last = ", ".join(f"max_by({{'v': {v}}}, line).v AS {v}" for v in values)
    return f"SELECT time, machine_id, {last}, 1::BIGINT AS nth {samples} GROUP BY time, machine_id"


_TELEMETRY = ("cluster_gpu_util", "cluster_cpu_util", "cluster_mem_util")
_DAY = r"([-_.]\d[-_\d]*)?"
"""Suffix in the name of one of several files, as in cluster_gpu_util-2017-10-03.csv."""


class PhillyFormat(Format):
    """The five files of the Philly release."""

    name = "philly"
    title = "Microsoft Philly 2017"
    raw_files = (
        RawFile(
            "cluster_job_log",
            "jobs with their attempts, JSON",
            r"cluster_job_log(\.json)?",
            lambda head: head.lstrip().startswith(b"[") and b'"attempts"' in head and b'"submitted_time"' in head,
        ),
        RawFile(
            "cluster_machine_list",
            "machines",
            r"cluster_machine_list(\.csv)?",
            header_begins("machineId", "number of GPUs"),
        ),
        RawFile(
            "cluster_gpu_util",
            "GPU utilization per minute",
            rf"cluster_gpu_util{_DAY}(\.csv)?",
            header_begins("time", "machineId", "gpu0_util"),
        ),
        RawFile(
            "cluster_cpu_util",
            "CPU utilization per minute",
            rf"cluster_cpu_util{_DAY}(\.csv)?",
            header_begins("time", "machine_id", "cpu_util"),
        ),
        RawFile(
            "cluster_mem_util",
            "host memory per minute",
            rf"cluster_mem_util{_DAY}(\.csv)?",
            header_begins("time", "machine_id", "mem_total"),
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "times": Option(
            "utc",
            "utc honours zones; naive uses every wall-clock time unchanged, as the published notebook does",
            ("utc", "naive"),
        ),
    }

    def one_by_one(self, found: FoundFiles, options: Mapping[str, str]) -> list[SourceFile]:  # noqa: ARG002 -- the files are the same for all options
        """Return the telemetry files."""
        return [file for key in _TELEMETRY for file in found.get(key)]

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the files that are present. Telemetry may be in several files, such as one per day."""
        sink.retries = True
        for key, files in found.files.items():
            if len(files) > 1 and key not in _TELEMETRY:
                raise SourceError(
                    f"several files contain {key}: {files[0].path}, {files[1].path}", hint="keep one of them"
                )
        for file in found.get("cluster_job_log"):
            read_jobs(file, sink)
        for file in found.get("cluster_machine_list"):
            _read_machines(file, sink)
        if found.get("cluster_gpu_util"):
            read_gpu_samples(found.get("cluster_gpu_util"), sink)
        read_host_samples(found, sink)
        naive = sink.options["times"] == "naive"
        if naive:
            sink.note(
                "wall-clock times are kept unchanged (times=naive), so they are an hour off after the clock change; "
                "of GPU samples with the same time, the last is used; CPU and memory samples are all kept, 1 us apart"
            )
        return TimeFrame("absolute", "UTC" if naive else TIMEZONE)


def _read_machines(file: SourceFile, sink: Sink) -> None:
    for raw in read_table(sink, file, schema.source("philly", "cluster_machine_list")):
        memory = pl.col("single GPU mem").str.extract(r"^([0-9]+(?:\.[0-9]+)?)\s*G(?:i?B)?$").cast(pl.Float64)
        sink.write(
            "nodes",
            raw.select(node_id="machineId", cluster=pl.lit(CLUSTER), gpu_count="number of GPUs", gpu_memory_gib=memory),
        )


FORMAT = PhillyFormat()
