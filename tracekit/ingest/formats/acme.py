"""Acme (Shanghai AI Laboratory, 2023): the Seren and Kalos clusters, used to develop large language models.

Origin: github.com/InternLM/AcmeTrace, licence in that repository. Study: Hu et al., Characterization of Large Language
Model Development in the Datacenter, NSDI'24. Seren runs Slurm, and Kalos runs Kubernetes. The cluster's name is only in
the file name. Every time has its UTC offset: +08:00 in Seren, +00:00 in Kalos. Hours of the day are in Asia/Shanghai
for both.

Known faults: in the published Kalos rows, the duration is end minus submission, so the GPU time also includes the wait.
The queue time is a decimal number. The number of jobs differs between the release's description and its summary. The
GPUs in use according to the Kalos log stay far below the cluster's size, so jobs may be missing. There are no tenants
and no node list. Utilization is a separate download of wide files, which we do not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.cells import limited
from tracekit.ingest.csv_table import header_columns, read_table
from tracekit.ingest.derived import disagrees, in_seconds, write_jobs
from tracekit.ingest.formats._slurm_cells import has_ended, slurm_status
from tracekit.ingest.interface import Format, FoundFiles, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEZONE = "Asia/Shanghai"

_CLUSTERS = {"trace_seren": "Seren", "trace_kalos": "Kalos"}
_WORKLOAD = {
    "Pretrain": "training",
    "SFT": "training",
    "MLLM": "training",
    "Debug": "training",
    "Eval": "inference",
    "Other": "other",
}
_TIMES = TimeColumns({name: name for name in ("submit_time", "start_time", "end_time")})


def _is_log(*, kalos: bool) -> Callable[[bytes], bool]:
    def looks_right(head: bytes) -> bool:
        names = header_columns(head.partition(b"\n")[0])
        return {"job_id", "type", "gpu_time", "queue"} <= set(names) and ("fail_time" in names) == kalos

    return looks_right


class AcmeFormat(Format):
    """Job logs of the Acme clusters."""

    name = "acme"
    title = "Shanghai AI Laboratory Acme 2023"
    raw_files = (
        RawFile("trace_seren", "job log of Seren", r"(?i:trace_seren\.csv)", _is_log(kalos=False)),
        RawFile("trace_kalos", "job log of Kalos", r"(?i:trace_kalos\.csv)", _is_log(kalos=True)),
    )

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the logs of both clusters."""
        for key, cluster in _CLUSTERS.items():
            files = found.get(key)
            if len(files) > 1:
                raise SourceError(
                    f"two files for the {cluster} cluster: {files[0].path} and {files[1].path}",
                    hint="keep one file per cluster",
                )
            for file in files:
                if not re.search(cluster, file.name, re.IGNORECASE):
                    sink.note(
                        f"{file.path} has the columns of the {cluster} cluster; its name does not show the cluster"
                    )
                _read_log(file, key, cluster, sink)
        sink.note("utilization files and memory per pod are not read; the source has neither tenants nor nodes")
        return TimeFrame("absolute", TIMEZONE)


def _read_log(file: SourceFile, key: str, cluster: str, sink: Sink) -> None:
    counts = ("node_num", "gpu_num", "cpu_num", "mem_per_pod_GB")
    times = RecordTimes(sink, file.path)
    for raw in read_table(sink, file, limited(schema.source("acme", key), dict.fromkeys(counts, 1e9))):
        log = times.possible(raw.with_columns(job_id=pl.lit(cluster + "/") + pl.col("job_id")), _TIMES)
        jobs = _jobs(log, cluster)
        _count_contradictions(log, jobs, sink)
        write_jobs(jobs, sink)


def _jobs(log: pl.DataFrame, cluster: str) -> pl.DataFrame:
    state, kind = pl.col("state"), pl.col("type")
    end = pl.when(has_ended(pl.col("status"))).then(pl.col("end_time"))
    return log.with_columns(status=slurm_status(state)).select(
        job_id="job_id",
        cluster=pl.lit(cluster),
        user="user",
        group=kind,
        workload=kind.replace_strict(_WORKLOAD, default=None, return_dtype=pl.String),
        status="status",
        source_status=state,
        submit_time="submit_time",
        start_time="start_time",
        end_time=end,
        queue_s=in_seconds(pl.col("start_time") - pl.col("submit_time")),
        run_s=in_seconds(end - pl.col("start_time")),
        gpu_count=pl.col("gpu_num").cast(pl.Float64),
        cpu_count="cpu_num",
        node_count="node_num",
        attempt_count=pl.col("began").cast(pl.Int64),
    )


def _count_contradictions(log: pl.DataFrame, jobs: pl.DataFrame, sink: Sink) -> None:
    start, end, gpus = pl.col("start_time"), pl.col("end_time"), pl.col("gpu_num")
    run_s, queue_s = in_seconds(end - start), in_seconds(start - pl.col("submit_time"))
    sojourn_s = in_seconds(end - pl.col("submit_time"))
    stated_s = pl.col("duration")
    # Compare the failure and cancellation times only if the file has them, as in Kalos.
    marks = [name for name in ("fail_time", "stop_time") if name in log.columns]
    kind = pl.col("type")
    odd = log.select(
        duration_disagrees=disagrees(stated_s, run_s),
        # The wait must be long enough to tell the two meanings of the duration apart.
        duration_includes_queue=pl.when(disagrees(sojourn_s, run_s)).then(
            ~disagrees(stated_s, sojourn_s) & disagrees(stated_s, run_s)
        ),
        queue_disagrees=disagrees(pl.col("queue"), queue_s),
        gpu_time_disagrees=disagrees(pl.col("gpu_time"), run_s * gpus, pl.max_horizontal(gpus, 1)),
        end_of_unfinished_job=end.is_not_null() & jobs["end_time"].is_null(),
        unknown_status_word=jobs["status"].eq_missing("unknown"),
        unknown_type_word=kind.is_not_null() & ~kind.is_in(list(_WORKLOAD)),
        **{
            f"{name}_disagrees": pl.col(name).is_not_null() & (pl.col(name) != end).fill_null(value=True)
            for name in marks
        },
    )
    sink.check_flags(odd, _MEANINGS, jobs["job_id"], compared=True)


_MEANINGS = {
    "duration_disagrees": "jobs whose recorded duration is 1 s or more off end minus start; the times are used",
    "duration_includes_queue": "jobs whose recorded duration is end minus submission, so it includes the wait",
    "queue_disagrees": "jobs whose recorded queue time is 1 s or more off start minus submission; the times are used",
    "gpu_time_disagrees": "jobs whose recorded GPU time is 1 s per GPU or more off run time times GPUs; it is ignored",
    "end_of_unfinished_job": "jobs with an end although their state is not final; the end is ignored",
    "unknown_status_word": "records with a status word that the format does not define; their status is 'unknown'",
    "unknown_type_word": "jobs with a type that the format does not define; their purpose is unknown",
    "fail_time_disagrees": "jobs whose failure time differs from their end; the end is used",
    "stop_time_disagrees": "jobs whose cancellation time differs from their end; the end is used",
}

FORMAT = AcmeFormat()
