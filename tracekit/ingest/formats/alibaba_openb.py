"""Alibaba's GPU-sharing cluster (2023), cluster-trace-gpu-v2023, known as openb.

Origin: github.com/alibaba/clusterdata, licence in that repository. Study: Weng et al., Beware of Fragmentation, ATC'23.
Times are whole seconds since the start of the trace, without a zone or a date.

Known faults: every pod has a deletion time, even if it continued to run. 34 of them equal the end of the trace,
12,902,960 s, and count as right-censored. Running means "ran until its deletion", so we do not know whether the pod
succeeded. The lists are samples of pods alive in the last 34 days, not queue logs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit import schema
from tracekit.errors import SourceError, UsageError, nearest
from tracekit.ingest.cells import limited
from tracekit.ingest.csv_table import header_begins, read_table
from tracekit.ingest.derived import in_seconds, write_jobs
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.time_faults import RecordTimes, TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACE_END_S = 12_902_960
"""End of the trace [s since its start]. A deletion at this time only means the end of the window."""

_STATUS = {"Running": "unknown", "Failed": "failed", "Pending": "pending", "Succeeded": "completed"}
_CLUSTER = "openb"
_TIMES = TimeColumns(
    {"creation_time": "submit_time", "scheduled_time": "start_time", "deletion_time": "end_time"}, names="name"
)
_POD_LIST = r"openb_pod_list_(\w+)\.csv"


class AlibabaOpenbFormat(Format):
    """Pods and nodes of Alibaba's GPU-sharing cluster."""

    name = "alibaba-openb"
    title = "Alibaba GPU sharing 2023 (cluster-trace-gpu-v2023)"
    raw_files = (
        RawFile(
            "openb_pod_list",
            "pods; if there are several lists, one is read",
            _POD_LIST,
            header_begins("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
        ),
        RawFile(
            "openb_node_list",
            "nodes; if there are several lists, the one with the most nodes is read",
            r"openb_node_list_\w+\.csv",
            header_begins("sn", "cpu_milli", "memory_mib", "gpu", "model"),
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "list": Option("default", "which pod list to read if there are several: NAME in openb_pod_list_NAME.csv")
    }
    no_append: ClassVar[str] = "its times count from the start of the release"

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read one pod list and one node list."""
        if found.get("openb_pod_list"):
            _read_pods(_selected_pods(found.get("openb_pod_list"), sink), sink)
        if found.get("openb_node_list"):
            _read_nodes(_larger_nodes(found.get("openb_node_list"), sink), sink)
        return TimeFrame.relative("times are seconds since the start of the trace; its date is unknown")


def _list_name(file: SourceFile) -> str:
    match = re.fullmatch(_POD_LIST, file.name)
    return match[1] if match else file.name


def _selected_pods(files: list[SourceFile], sink: Sink) -> SourceFile:
    if len(files) == 1:
        return files[0]
    wanted = sink.options["list"]
    names = [_list_name(f) for f in files]
    if wanted not in names:
        raise UsageError(
            f"the pod list '{wanted}' does not exist", hint=nearest(wanted, names) + " (--option list=NAME)"
        )
    if names.count(wanted) > 1:
        raise SourceError(f"several pod lists have the name '{wanted}'", hint="name one folder")
    others = ", ".join(n for n in names if n != wanted)
    sink.note(f"only one pod list is read: '{wanted}', not {others} (choose with --option list=NAME)")
    return files[names.index(wanted)]


def _larger_nodes(files: list[SourceFile], sink: Sink) -> SourceFile:
    chosen = max(files, key=lambda f: (f.size, f.path))
    if len(files) > 1:
        others = ", ".join(f.name for f in files if f is not chosen)
        sink.note(f"only the largest node list is read: {chosen.name}, not {others}")
    return chosen


def _read_pods(file: SourceFile, sink: Sink) -> None:
    largest = dict.fromkeys(("cpu_milli", "memory_mib", "num_gpu"), 1e9)
    times = RecordTimes(sink, file.path)
    for raw in read_table(sink, file, limited(schema.source("alibaba-openb", "openb_pod_list"), largest)):
        pods = _with_absent_columns(raw)
        cut = pl.col("deletion_time") >= TRACE_END_S
        dated = pods.with_columns(cut.alias("cut"), *(clipped_seconds(pl.col(name)) for name in _TIMES.columns))
        jobs = _jobs(times.possible(dated, _TIMES))
        _count_contradictions(pods, sink)
        write_jobs(jobs, sink)


def _with_absent_columns(pods: pl.DataFrame) -> pl.DataFrame:
    """Add missing columns with unknown values: the multigpu lists contain only requests."""
    absent = schema.source("alibaba-openb", "openb_pod_list").columns
    return pods.with_columns(pl.lit(None, dtype=c.polars).alias(c.name) for c in absent if c.name not in pods.columns)


def _jobs(pods: pl.DataFrame) -> pl.DataFrame:
    phase = pl.col("pod_phase")
    cut = pl.col("cut")
    status = phase.replace_strict(_STATUS, default="unknown", return_dtype=pl.String)
    end = pl.when(~cut.fill_null(value=False)).then("deletion_time")
    return pods.select(
        job_id="name",
        cluster=pl.lit(_CLUSTER),
        group="qos",
        status=pl.when(phase.is_null())
        .then(None)
        .when((phase == "Running") & cut)
        .then(pl.lit("running"))
        .otherwise(status),
        source_status=phase,
        submit_time="creation_time",
        start_time="scheduled_time",
        end_time=end,
        queue_s=in_seconds(pl.col("scheduled_time") - pl.col("creation_time")),
        run_s=in_seconds(end - pl.col("scheduled_time")),
        gpu_count=pl.col("num_gpu").cast(pl.Float64) * pl.col("gpu_milli") / 1000,
        cpu_count=pl.col("cpu_milli") / 1000,
        memory_gib=pl.col("memory_mib") / 1024,
        gpu_model=pl.col("gpu_spec").str.split("|").list.unique(maintain_order=True).list.join("|"),
        attempt_count=pl.col("began").cast(pl.Int64),
        preemptible=pl.col("qos") == "BE",
        qos="qos",
    )


def _count_contradictions(pods: pl.DataFrame, sink: Sink) -> None:
    ran = pl.col("pod_phase").is_in(["Running", "Succeeded", "Failed"])
    flags = pods.select(
        ran_without_schedule=ran & pl.col("scheduled_time").is_null() & pl.col("creation_time").is_not_null(),
        scheduled_but_pending=(pl.col("pod_phase") == "Pending") & pl.col("scheduled_time").is_not_null(),
        cut_by_window_end=pl.col("deletion_time") >= TRACE_END_S,
        unknown_status_word=pl.col("pod_phase").is_not_null() & ~pl.col("pod_phase").is_in(list(_STATUS)),
        share_of_several_gpus=(pl.col("num_gpu") > 1) & (pl.col("gpu_milli") != 1000),
        share_without_gpu=(pl.col("num_gpu") == 0) & (pl.col("gpu_milli") > 0),
        no_memory_asked=pl.col("memory_mib") == 0,
    )
    sink.check_flags(flags, _MEANINGS, pods["name"])


_MEANINGS = {
    "ran_without_schedule": "pods that ran according to their phase, but have no scheduling time",
    "scheduled_but_pending": "pods in the Pending phase that have a scheduling time",
    "cut_by_window_end": "pods alive at the end of the trace; their end is unknown (right-censored)",
    "unknown_status_word": "records with a status word that the format does not define; their status is 'unknown'",
    "share_of_several_gpus": "pods that request a part of each of several GPUs, which the format does not allow",
    "share_without_gpu": "pods that request a part of a GPU but no GPU",
    "no_memory_asked": "pods that request 0 MiB of memory",
}


def _read_nodes(file: SourceFile, sink: Sink) -> None:
    for raw in read_table(sink, file, schema.source("alibaba-openb", "openb_node_list")):
        sink.write(
            "nodes",
            raw.select(
                node_id="sn",
                cluster=pl.lit(_CLUSTER),
                gpu_count="gpu",
                gpu_model="model",
                cpu_count=pl.col("cpu_milli") / 1000,
                memory_gib=pl.col("memory_mib") / 1024,
            ),
        )


FORMAT = AlibabaOpenbFormat()
