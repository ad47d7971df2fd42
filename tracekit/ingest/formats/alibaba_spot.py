"""Alibaba's GPU cluster with spot jobs (2026), cluster-trace-v2026-spot-gpu.

Origin: github.com/alibaba/clusterdata, licence in that repository. Study: Duan et al., ASPLOS'26 (arXiv 2509.11134).
Times are seconds since the first job's submission, without a zone or a date.

Known faults: the node list's columns are not in the order that the release describes, so files are read by their
header. Node names are consecutive numbers with gaps. Two GPU models have disguised names. We have not seen the job
list, so we follow the release's description. It lists planned work: a job has a submission and a duration, but no
start, end or outcome, so there are no attempts.
"""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from tracekit import schema
from tracekit.ingest.cells import LAST_SECOND, limited
from tracekit.ingest.csv_table import header_has, read_table
from tracekit.ingest.interface import Format, FoundFiles, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.time_faults import RecordTimes, TimeColumns, clipped_seconds

_CLUSTER = "spot"
_TIMES = TimeColumns({"submit_time": "submit_time"}, names="job_name")
_PRIORITY = {"HP": 1, "Spot": 0}
"""Priority by job type. Larger values go first."""

_LARGEST = {"duration": LAST_SECOND} | dict.fromkeys(("cpu_request", "gpu_request", "worker_num"), 1e9)
"""Largest values used in calculations. Their products are finite."""


class AlibabaSpotFormat(Format):
    """Jobs and nodes of a cluster that sells its idle GPUs as spot jobs."""

    name = "alibaba-spot"
    title = "Alibaba spot GPU 2026 (cluster-trace-v2026-spot-gpu)"
    raw_files = (
        RawFile(
            "job_info_df",
            "jobs, with requests, submission and work",
            r"job_info_df\.csv",
            header_has("job_name", "organization", "worker_num", "job_type"),
        ),
        RawFile("node_info_df", "nodes", r"node_info_df\.csv", header_has("gpu_capacity_num", "node_name")),
    )
    no_append: ClassVar[str] = "its times count from the first job of the release"

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the jobs and the nodes."""
        for file in found.get("job_info_df"):
            _read_jobs(file, sink)
        for file in found.get("node_info_df"):
            _read_nodes(file, sink)
        return TimeFrame.relative("times are seconds since the first job; its date is unknown")


def _read_jobs(file: SourceFile, sink: Sink) -> None:
    spec = limited(schema.source("alibaba-spot", "job_info_df"), _LARGEST)
    times = RecordTimes(sink, file.path)
    for raw in read_table(sink, file, spec):
        _count_contradictions(raw, sink)
        dated = raw.with_columns(clipped_seconds(pl.col("submit_time")))
        sink.write("jobs", _jobs(times.possible(dated, _TIMES)))
    sink.note("the source has no starts, ends or outcomes of jobs; run_s is a job's listed work")


def _jobs(raw: pl.DataFrame) -> pl.DataFrame:
    workers, kind = pl.col("worker_num"), pl.col("job_type")
    priority = kind.replace_strict(_PRIORITY, default=None, return_dtype=pl.Int64)
    return raw.select(
        job_id="job_name",
        cluster=pl.lit(_CLUSTER),
        vc="organization",
        submit_time="submit_time",
        run_s="duration",
        gpu_count=pl.col("gpu_request") * workers,
        cpu_count=pl.col("cpu_request") * workers,
        gpu_model="gpu_model",
        instance_count=workers,
        priority=priority,
        preemptible=pl.when(kind.is_in(list(_PRIORITY))).then(kind == "Spot"),
        account="organization",
        qos=kind,
    )


def _count_contradictions(raw: pl.DataFrame, sink: Sink) -> None:
    kind = pl.col("job_type")
    odd = raw.select(
        unknown_job_type=kind.is_not_null() & ~kind.is_in(list(_PRIORITY)),
        job_without_workers=pl.col("worker_num") == 0,
        model_without_gpu=(pl.col("gpu_request") == 0) & pl.col("gpu_model").is_not_null(),
    )
    sink.check_flags(odd, _MEANINGS, raw["job_name"])


_MEANINGS = {
    "unknown_job_type": "jobs whose type is neither HP nor Spot; their priority and preemptibility are unknown",
    "job_without_workers": "jobs that request no workers; their GPUs and CPUs count as 0",
    "model_without_gpu": "jobs that name a GPU model but request no GPU",
}


def _read_nodes(file: SourceFile, sink: Sink) -> None:
    for raw in read_table(sink, file, schema.source("alibaba-spot", "node_info_df")):
        sink.write(
            "nodes",
            raw.select(
                node_id="node_name",
                cluster=pl.lit(_CLUSTER),
                gpu_count="gpu_capacity_num",
                gpu_model="gpu_model",
                cpu_count=pl.col("cpu_num").cast(pl.Float64),
            ),
        )


FORMAT = AlibabaSpotFormat()
