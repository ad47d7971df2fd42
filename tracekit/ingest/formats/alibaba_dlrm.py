"""Alibaba's disaggregated recommendation inference (2025), cluster-trace-gpu-v2025.

Origin: github.com/alibaba/clusterdata, licence in that repository. Study: Yang et al., GPU-Disaggregated Serving for
Deep Learning Recommendation Models at Scale, NSDI'25. Times are seconds since the start of the trace, without a zone or
a date. The trace covers about 31 days.

Known faults, with counts from the release: creation and scheduling times are blank for 7,280 instances that existed
before the trace began. The deletion time is blank for 8,878 instances that were alive at its end. All three times are
blank for 4,677 instances. Times contain floating-point noise in their last digits. Nodes are not named. A Trace has no
columns for RDMA, disk, the limit on instances per node, or the coupling of an application's two parts.
"""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from tracekit import schema
from tracekit.ingest.cells import limited
from tracekit.ingest.csv_table import header_begins, read_table
from tracekit.ingest.derived import in_seconds, write_jobs
from tracekit.ingest.interface import Format, FoundFiles, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.time_faults import RecordTimes, TimeColumns, clipped_seconds

_CLUSTER = "dlrm"
_FILE = "disaggregated_DLRM_trace"
_GPUS = {"CN": 0, "HN": 1}
"""GPUs per instance, by role."""
_TIMES = ("creation_time", "scheduled_time", "deletion_time")
_SEQUENCE = TimeColumns(dict(zip(_TIMES, ("submit_time", "start_time", "end_time"), strict=True)), names="instance_sn")


class AlibabaDlrmFormat(Format):
    """Instances of recommendation models served by Alibaba."""

    name = "alibaba-dlrm"
    title = "Alibaba disaggregated DLRM 2025 (cluster-trace-gpu-v2025)"
    raw_files = (
        RawFile(
            _FILE,
            "inference instances",
            r"disaggregated_DLRM_trace\.csv",
            header_begins("instance_sn", "role", "app_name"),
        ),
    )
    no_append: ClassVar[str] = "its times count from the start of the release"

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the instances."""
        for file in found.get(_FILE):
            _read_instances(file, sink)
        sink.note("a Trace has no columns for RDMA, disk, limits and max_instance_per_node; they are ignored")
        return TimeFrame.relative("times are seconds since the start of the trace; its date is unknown")


def _read_instances(file: SourceFile, sink: Sink) -> None:
    largest = dict.fromkeys(("cpu_request", "gpu_request", "memory_request"), 1e9)
    spec = limited(schema.source("alibaba-dlrm", _FILE), largest)
    times = RecordTimes(sink, file.path)
    for raw in read_table(sink, file, spec):
        timed = raw.with_columns(clipped_seconds(pl.col(name)) for name in _TIMES)
        jobs = _jobs(times.possible(timed, _SEQUENCE))
        _count_contradictions(raw, sink)
        # An instance from before the trace did run, so it has an attempt with an unknown start.
        write_jobs(jobs, sink)


def _jobs(instances: pl.DataFrame) -> pl.DataFrame:
    created, scheduled, deleted = (pl.col(name) for name in _TIMES)
    ran = pl.col("began") | created.is_null()
    return instances.select(
        job_id="instance_sn",
        cluster=pl.lit(_CLUSTER),
        group="app_name",
        workload=pl.lit("inference"),
        status=pl.when(ran & pl.col("finished"))
        .then(pl.lit("completed"))
        .when(ran)
        .then(pl.lit("running"))
        .when(~pl.col("finished"))
        .then(pl.lit("pending"))
        .otherwise(pl.lit("unknown")),
        submit_time=created,
        start_time=scheduled,
        end_time=deleted,
        queue_s=in_seconds(scheduled - created),
        run_s=in_seconds(deleted - scheduled),
        gpu_count="gpu_request",
        cpu_count="cpu_request",
        memory_gib="memory_request",
        attempt_count=ran.cast(pl.Int64),
    )


def _count_contradictions(instances: pl.DataFrame, sink: Sink) -> None:
    created, scheduled, deleted = (pl.col(name).is_not_null() for name in _TIMES)
    role = pl.col("role")
    limits = ("cpu", "gpu", "rdma", "memory")
    odd = instances.select(
        began_before_window=~created & ~scheduled,
        cut_by_window_end=~deleted,
        created_without_schedule=created & ~scheduled,
        scheduled_without_creation=scheduled & ~created,
        unknown_role=role.is_not_null() & ~role.is_in(list(_GPUS)),
        gpus_against_role=role.replace_strict(_GPUS, default=None, return_dtype=pl.Float64) != pl.col("gpu_request"),
        request_against_limit=pl.any_horizontal(pl.col(f"{c}_request") != pl.col(f"{c}_limit") for c in limits),
    )
    sink.check_flags(odd, _MEANINGS, instances["instance_sn"])


_MEANINGS = {
    "began_before_window": "instances that existed before the trace; their submission and start are unknown "
    "(left-censored)",
    "cut_by_window_end": "instances alive at the end of the trace; their end is unknown (right-censored)",
    "created_without_schedule": "instances with a creation time but no scheduling time; they have no attempt",
    "scheduled_without_creation": "instances with a scheduling time but no creation time; their wait is unknown",
    "unknown_role": "records whose role is neither CN nor HN",
    "gpus_against_role": "instances whose GPU count does not fit their role: none for CN, one for HN",
    "request_against_limit": "instances whose CPU, GPU, RDMA or memory limit differs from their request; the "
    "request is used",
}

FORMAT = AlibabaDlrmFormat()
