"""SenseTime's Helios clusters (2020): Venus, Earth, Saturn and Uranus.

Origin: github.com/S-Lab-System-Group/HeliosData, CC BY 4.0. Study: Hu et al., SC'21. The logs were exported from Slurm
accounting. The cluster's name is only in the folder name or at the beginning of the file name. Times are naive local
times. We assume UTC+8, because of the operator's location.

Known faults: job ids repeat across clusters and are not strictly in order. The recorded duration and queue time can
disagree with the times. We use the duration only if both times are missing, as in logs that tracekit writes for
synthetic jobs. A few SUSPENDED rows have an end, which we use, as in the study, but how the job ended is unknown. We
ignore the end of a few RUNNING rows. Quotas change from day to day, and the GPUs in use may exceed them. Nodes are not
named; only their number is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema
from tracekit.errors import SourceError
from tracekit.ingest.cells import limited
from tracekit.ingest.csv_table import header_columns, header_has, read_table
from tracekit.ingest.derived import disagrees, in_seconds, write_jobs
from tracekit.ingest.formats._slurm_cells import has_ended, slurm_status
from tracekit.ingest.interface import Format, FoundFiles, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.time_faults import RecordTimes, TimeColumns

if TYPE_CHECKING:
    from tracekit.schema import TableSchema

TIMEZONE = "Asia/Shanghai"

_LOG = r"(?:(\w+?)_)?cluster_log\.csv"
_QUOTA = r"(?:(\w+?)_)?cluster_gpu_number\.csv"
_SUSPENDED = "SUSPENDED"
_TIMES = TimeColumns({name: name for name in ("submit_time", "start_time", "end_time")})


class HeliosFormat(Format):
    """Job logs and quota tables of one or several Helios clusters."""

    name = "helios"
    title = "SenseTime Helios 2020"
    raw_files = (
        RawFile(
            "cluster_log",
            "job log of one cluster",
            _LOG,
            header_has("job_id", "vc", "gpu_num", "node_num", "submit_time", "queue"),
        ),
        RawFile(
            "cluster_gpu_number",
            "GPUs of each VC per day",
            _QUOTA,
            lambda head: (h := header_columns(head.partition(b"\n")[0]))[:1] == ["date"] and h[-1:] == ["total"],
        ),
    )

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every cluster of the source."""
        for key, read in (("cluster_log", _read_log), ("cluster_gpu_number", _read_quota)):
            by_cluster: dict[str, SourceFile] = {}
            for file in found.get(key):
                cluster = _cluster(file)
                if cluster in by_cluster:
                    raise SourceError(
                        f"two files for the {cluster} cluster: {by_cluster[cluster].path} and {file.path}",
                        hint="keep one folder per cluster",
                    )
                by_cluster[cluster] = file
                read(file, cluster, sink)
        sink.note(f"times have no zone; we assume {TIMEZONE} (UTC+8), the operator's location")
        return TimeFrame("absolute", TIMEZONE)


def _cluster(file: SourceFile) -> str:
    """Return the cluster's name: the prefix of the file name, or else the folder's name."""
    match = re.fullmatch(_LOG, file.name) or re.fullmatch(_QUOTA, file.name)
    prefix = match[1] if match else None
    return prefix or file.parent or file.origin.parent.resolve().name


def _read_log(file: SourceFile, cluster: str, sink: Sink) -> None:
    spec = limited(schema.source("helios", "cluster_log"), dict.fromkeys(("gpu_num", "cpu_num", "node_num"), 1e9))
    times = RecordTimes(sink, file.path)
    for raw in read_table(sink, file, spec):
        named = raw.with_columns(job_id=pl.lit(cluster + "/") + pl.col("job_id").cast(pl.String))
        log = times.possible(times.from_wall_clock(named, _TIMES, TIMEZONE), _TIMES)
        jobs = _jobs(log, cluster)
        _count_contradictions(log, jobs, sink)
        write_jobs(jobs, sink)


def _jobs(log: pl.DataFrame, cluster: str) -> pl.DataFrame:
    end = pl.when(has_ended(pl.col("status"))).then(pl.col("end_time"))
    stated = pl.when(_without_times()).then("duration")
    return log.with_columns(status=_status()).select(
        job_id="job_id",
        cluster=pl.lit(cluster),
        vc="vc",
        user="user",
        status="status",
        source_status="state",
        submit_time="submit_time",
        start_time="start_time",
        end_time=end,
        queue_s=in_seconds(pl.col("start_time") - pl.col("submit_time")),
        run_s=pl.coalesce(in_seconds(end - pl.col("start_time")), stated),
        gpu_count=pl.col("gpu_num").cast(pl.Float64),
        cpu_count=pl.col("cpu_num").cast(pl.Float64),
        node_count="node_num",
        attempt_count=(pl.col("began") | _without_times()).cast(pl.Int64),
    )


def _status() -> pl.Expr:
    """Return the common status. A suspended job with an end has ended; the log does not show how."""
    ended = (pl.col("state") == _SUSPENDED) & pl.col("end_time").is_not_null()
    return pl.when(ended).then(pl.lit("unknown")).otherwise(slurm_status(pl.col("state")))


def _without_times() -> pl.Expr:
    """Return whether a job's duration shows that it ran, even though both times are unknown, as in a synthetic log."""
    open_ended = pl.col("status").is_in(["running", "pending"]).fill_null(value=False)
    neither = ~pl.col("began") & pl.col("end_time").is_null()
    return (neither & ~open_ended & (pl.col("duration") > 0)).fill_null(value=False)


def _count_contradictions(log: pl.DataFrame, jobs: pl.DataFrame, sink: Sink) -> None:
    suspended = jobs["source_status"].eq_missing(_SUSPENDED)
    odd = pl.DataFrame(
        {
            "duration_disagrees": disagrees(log["duration"], in_seconds(log["end_time"] - log["start_time"])),
            "queue_disagrees": disagrees(log["queue"], jobs["queue_s"]),
            "end_of_unfinished_job": log["end_time"].is_not_null() & jobs["end_time"].is_null(),
            "end_of_suspended_job": suspended & jobs["end_time"].is_not_null(),
            "unknown_status_word": jobs["status"].eq_missing("unknown") & ~suspended,
        }
    )
    sink.check_flags(odd, _MEANINGS, jobs["job_id"], compared=True)


_MEANINGS = {
    "duration_disagrees": "jobs whose recorded duration differs from end minus start; the times are used",
    "queue_disagrees": "jobs whose recorded queue time differs from start minus submission; the times are used",
    "end_of_unfinished_job": "jobs with an end although their state is not final; the end is ignored",
    "end_of_suspended_job": "jobs with an end although their state is SUSPENDED; the end is used, and their "
    "status is 'unknown'",
    "unknown_status_word": "records with a status word that the format does not define; their status is 'unknown'",
}


def _read_quota(file: SourceFile, cluster: str, sink: Sink) -> None:
    days = list(read_table(sink, file, schema.source("helios", "cluster_gpu_number"), adapt=_with_vcs))
    if not days:
        return
    table = pl.concat(days).sort("date")
    vcs = [name for name in table.columns if name not in ("date", "total", "line")]
    wrong = (
        table.select(wrong=pl.sum_horizontal(vcs) != pl.col("total"))["wrong"]
        if vcs
        else pl.Series([], dtype=pl.Boolean)
    )
    sink.check(
        "quota_sum_disagrees",
        int(wrong.sum()),
        table.height,
        "days on which the VCs' GPUs do not add up to the recorded total; both are kept",
        (cluster + " " + table["date"].cast(pl.String)).filter(wrong) if vcs else None,
    )
    midnight = to_utc(table["date"].cast(pl.Datetime("us")), TIMEZONE)
    long = (
        table.with_columns(midnight=midnight)
        .unpivot([*vcs, "total"], index=["date", "midnight"], variable_name="vc", value_name="gpu_count")
        .filter(pl.col("gpu_count").is_not_null())
        .filter((pl.col("gpu_count") != pl.col("gpu_count").shift(1).over("vc", order_by="date")).fill_null(value=True))
        .select(
            time="midnight",
            cluster=pl.lit(cluster),
            vc=pl.when(pl.col("vc") != "total").then("vc"),
            gpu_count=pl.col("gpu_count").cast(pl.Float64),
        )
        .sort("time", "vc", nulls_last=True)
    )
    sink.write("capacity", long)


def _with_vcs(spec: TableSchema, header: list[str]) -> TableSchema:
    """Add a GPU column for each VC named in the header."""
    total = spec.column("total")
    vcs = tuple(
        replace(total, name=name, description=f"GPUs of the VC {name}.", required=False)
        for name in header
        if name and name not in spec.names
    )
    return replace(spec, columns=(spec.column("date"), *vcs, total), primary_key=("date",))


FORMAT = HeliosFormat()
