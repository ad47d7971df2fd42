"""Microsoft's Philly cluster (2017): job log, machine list, GPU, CPU and memory utilization.

Origin: github.com/msr-fiddle/philly-traces, CC BY 4.0. Study: Jeon et al., ATC'19. Job-log times are naive US
Pacific wall clock; telemetry times end in PST or PDT.

Known faults: the machine list contradicts the log and the telemetry (machines listed with 2 GPUs run 8-GPU jobs),
so capacity needs a named source; wall-clock times between 01:00 and 02:00 on 2017-11-05 name two instants and
are unknown here unless an option says otherwise; attempts may lack a start or an end; telemetry rows end with a
comma, and some have another number of fields; only the job has a status, so that earlier attempts have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.csv_table import header_begins, read_table
from tracekit.ingest.formats._philly_jobs import CLUSTER, TIMEZONE, read_jobs
from tracekit.ingest.formats._philly_telemetry import read_gpu_samples, read_host_samples
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT"]

_TELEMETRY = ("cluster_gpu_util", "cluster_cpu_util", "cluster_mem_util")
_DAY = r"([-_.]\d[-_\d]*)?"
"""What the name of one of several files has: cluster_gpu_util-2017-10-03.csv."""


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
            "GPU utilization by minute",
            rf"cluster_gpu_util{_DAY}(\.csv)?",
            header_begins("time", "machineId", "gpu0_util"),
        ),
        RawFile(
            "cluster_cpu_util",
            "CPU utilization by minute",
            rf"cluster_cpu_util{_DAY}(\.csv)?",
            header_begins("time", "machine_id", "cpu_util"),
        ),
        RawFile(
            "cluster_mem_util",
            "host memory by minute",
            rf"cluster_mem_util{_DAY}(\.csv)?",
            header_begins("time", "machine_id", "mem_total"),
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "times": Option(
            "utc",
            "utc: honour zones; naive: take every wall clock unchanged, as the published notebook does",
            ("utc", "naive"),
        ),
    }

    def one_by_one(self, found: FoundFiles, options: Mapping[str, str]) -> list[SourceFile]:  # noqa: ARG002 -- of every one
        """Return the files of telemetry."""
        return [file for key in _TELEMETRY for file in found.get(key)]

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read whichever of the five files are there; telemetry may be several, such as one a day."""
        sink.retries = True
        for key, files in found.files.items():
            if len(files) > 1 and key not in _TELEMETRY:
                raise SourceError(f"several files are {key}: {files[0].path}, {files[1].path}", hint="keep one of them")
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
                "wall-clock times are taken unchanged (times=naive): across the clock change they are an hour off; "
                "of GPU samples that share a moment the last counts, CPU and memory samples all do, a microsecond apart"
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
