"""Helios: each cluster's job log and quota table, in the released form that the study's simulator reads.

Source: github.com/S-Lab-System-Group/HeliosData (the columns) and HeliosArtifact, framework/QSSF Service/utils.py
(trace_process) and data/vc_dict_generator.py. The simulator reads job_id, user, vc, jobname, gpu_num, cpu_num, state,
submit_time and duration; the released logs have no jobname, which is written as the last column. The simulator takes
the VCs from cluster_gpu_number.csv, which has one line per day and one column per VC, in units of 8 GPUs. Times are
local, in whole seconds.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from typing import TYPE_CHECKING, BinaryIO, ClassVar
from zoneinfo import ZoneInfo

import polars as pl

from tracekit.errors import UsageError
from tracekit.export.interface import (
    FRACTIONS,
    GUARD,
    INCOMPLETE,
    ExportLog,
    Field,
    JobFilter,
    JobSelection,
    Option,
    Options,
    Output,
    Target,
)
from tracekit.export.targets._cluster import nodes_for_load
from tracekit.export.text import local_time, whole_seconds
from tracekit.spreadsheets import guarded
from tracekit.text import counted
from tracekit.timezones import is_known_zone

if TYPE_CHECKING:
    from collections.abc import Mapping


# Write each VC's GPUs by day as a Helios quota table.

_NODE = 8
"""GPUs per node in that simulator, which rounds a VC's used GPUs up to whole nodes."""

_LONGEST = 36_525
"""Maximum number of days in a table."""


def quota_table(
    jobs: JobSelection, cluster: str | None, zone: ZoneInfo, options: Options, log: ExportLog
) -> pl.DataFrame:
    """Return one row per day with the date, a column with each VC's GPUs, and the total.

    With --machines or --target-load, the nodes are divided in proportion to each VC's GPU time. Otherwise, the GPUs
    come from the table capacity or, if it has no rows for the cluster, from the peak use of its jobs, in whole nodes of
    8 GPUs.

    `cluster` is None for jobs without a cluster. The option `vc` names the VC of jobs without a VC. Days begin at
    midnight in `zone`.
    """
    unknown_vc = options.values["vc"]
    changes: dict[str | None, list[tuple[dt.date, int]]]
    first: dt.date | None
    last: dt.date | None
    first, last = _days(jobs, cluster, zone)
    stated = None if options.sized else _stated(jobs, cluster, zone)
    if options.sized:
        share = _divided(jobs, cluster, options, log)
        begin = first or dt.date.min
        changes = {(vc if vc is not None else unknown_vc): [(begin, nodes * _NODE)] for vc, nodes in share.items()}
    elif stated:
        changes, first, until = stated
        last = max(last or until, until)
    else:
        held = {key[1]: value for key, value in jobs.peak_by("cluster", "vc").items() if key[0] == cluster}
        begin = first or dt.date.min
        changes = {
            (vc if vc is not None else unknown_vc): [(begin, -(-gpus // _NODE) * _NODE)] for vc, gpus in held.items()
        }
        shown = cluster if cluster is not None else "unknown"
        log.note(
            f"the Trace has no quotas, so each VC of cluster {shown} gets the GPUs that it used at once, in whole "
            "nodes of 8; hardly any job waits, and policies do not differ (--machines, --target-load)"
        )
    names = sorted(name for name in changes if name not in (None, "date", "total", ""))
    if first is None or last is None or (last - first).days > _LONGEST:
        return pl.DataFrame(
            {"date": [], **{name: [] for name in names}, "total": []}, schema_overrides={"date": pl.String}
        )
    days = [first + dt.timedelta(n) for n in range((last - first).days + 1)]
    columns = {name: _by_day(days, changes[name]) for name in names}
    total = _by_day(days, changes[None]) if None in changes else [sum(v) for v in zip(*columns.values(), strict=True)]
    table = {"date": [day.isoformat() for day in days], **columns, "total": total or [0] * len(days)}
    return pl.DataFrame(table)


def _divided(jobs: JobSelection, cluster: str | None, options: Options, log: ExportLog) -> dict[str | None, int]:
    """Divide the nodes set by --machines or --target-load among VCs, in proportion to their jobs' GPU time."""
    rows = jobs.rows(
        "SELECT vc, sum(work_s * size), max(size) FROM chosen WHERE cluster IS NOT DISTINCT FROM $cluster AND size > 0 "
        "GROUP BY vc ORDER BY vc NULLS LAST",
        {"cluster": cluster},
    )
    if not rows:
        return {}
    least = [max(1, -(-int(largest or 0) // _NODE)) for _, _, largest in rows]
    work = [float(gpu_s or 0) for _, gpu_s, _ in rows]
    nodes = options.machines
    if nodes is None:
        nodes = nodes_for_load(jobs, options.target_load or 1.0, _NODE, log, cluster=cluster)
    # Round to whole nodes by the largest remainder.
    exact = [nodes * part / (sum(work) or 1) for part in work]
    given = [int(part) for part in exact]
    order = sorted(range(len(rows)), key=lambda k: given[k] - exact[k])
    for k in order[: nodes - sum(given)]:
        given[k] += 1
    found = [max(pair) for pair in zip(given, least, strict=True)]
    if sum(found) != nodes:
        log.note(f"{nodes:,} nodes became {sum(found):,}, because each VC has room for its largest job")
    return {vc: count for (vc, _, _), count in zip(rows, found, strict=True)}


def _stated(
    jobs: JobSelection, cluster: str | None, zone: ZoneInfo
) -> tuple[dict[str | None, list[tuple[dt.date, int]]], dt.date, dt.date] | None:
    """Return each VC's recorded quota changes (None for the whole cluster), and the first and last day of changes."""
    if not jobs.trace.has("capacity"):
        return None
    rows = (
        jobs.trace.scan("capacity")
        .filter(pl.col("cluster").eq_missing(pl.lit(cluster, dtype=pl.String)), pl.col("time").is_not_null())
        .select("time", "vc", "gpu_count")
        .sort("time", maintain_order=True)
        .with_columns(pl.col("time") + pl.duration(microseconds=jobs.shift_us))
        .collect()
    )
    changes: dict[str | None, list[tuple[dt.date, int]]] = {}
    for time, vc, gpus in rows.iter_rows():
        changes.setdefault(vc, []).append((_local_day(time, zone), int(gpus or 0)))
    if not changes:
        return None
    every = [day for steps in changes.values() for day, _ in steps]
    return changes, min(every), max(every)


def _days(jobs: JobSelection, cluster: str | None, zone: ZoneInfo) -> tuple[dt.date | None, dt.date | None]:
    """Return the days of the first and last submission to a cluster."""
    query = "SELECT min(submit_time), max(submit_time) FROM chosen WHERE cluster IS NOT DISTINCT FROM $cluster"
    (times,) = jobs.rows(query, {"cluster": cluster})
    if times[0] is None:
        return None, None
    first, last = (_local_day(time, zone) for time in times)
    return first, last


def _local_day(time: dt.datetime, zone: ZoneInfo) -> dt.date:
    return time.replace(tzinfo=dt.UTC).astimezone(zone).date()


def _by_day(days: list[dt.date], steps: list[tuple[dt.date, int]]) -> list[int]:
    """Return the value on each day: that of the latest change, or 0 before the first."""
    out, place, value = [], 0, 0
    for day in days:
        while place < len(steps) and steps[place][0] <= day:
            value = steps[place][1]
            place += 1
        out.append(value)
    return out


_BEGIN = dt.date(2020, 4, 1)
"""Local time before which the study's simulator drops jobs (trace_process in its utils.py)."""
_FOLDER = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_ID = r"0|-?[1-9][0-9]{0,17}"
_STATES = {
    "completed": "COMPLETED",
    "cancelled": "CANCELLED",
    "failed": "FAILED",
    "timeout": "TIMEOUT",
    "node_fail": "NODE_FAIL",
    "out_of_memory": "OUT_OF_MEMORY",
    "preempted": "PREEMPTED",
    "running": "RUNNING",
    "pending": "PENDING",
    "unknown": "UNKNOWN",
}


class HeliosTarget(Target):
    """A folder for each cluster."""

    name = "helios"
    title = "Helios logs and their simulator"
    reads = "data/<Cluster>/cluster_log.csv and cluster_gpu_number.csv; tracekit reads it back"
    folder = True
    dates = True
    fields = (
        Field("job_id", "whole number, unique in its cluster", "job_id without the cluster, else numbers from 1"),
        Field("user", "submitting user", "user (option user)"),
        Field("vc", "virtual cluster", "vc (option vc)"),
        Field("gpu_num", "GPUs", "gpu_count"),
        Field("cpu_num", "CPU cores", "cpu_count; empty if unknown"),
        Field("node_num", "nodes", "node_count; empty if unknown"),
        Field("state", "COMPLETED, CANCELLED, FAILED, ...", "status"),
        Field("submit_time", "local time (option timezone)", "submit_time"),
        Field("start_time", "local time", "start_time"),
        Field("end_time", "local time", "end_time"),
        Field("duration", "s", "sum of the attempts' run times"),
        Field("queue", "s", "start_time - submit_time"),
        Field("jobname", "name of the job, for predictions", "name, else empty"),
        Field(
            "cluster_gpu_number.csv", "each VC's GPUs by day", "capacity, else the most GPUs that each VC used at once"
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "jobs": Option("all", "jobs to export; the simulator drops jobs without GPUs", ("all", "gpu")),
        "incomplete": INCOMPLETE,
        "fractions": FRACTIONS,
        "timezone": Option("Asia/Shanghai", "time zone of the times; tracekit reads Helios logs in Asia/Shanghai"),
        "cluster": Option("Cluster", "folder for jobs whose cluster is unknown"),
        "user": Option("unknown", "user of jobs without a user; may be empty"),
        "vc": Option("default", "VC of jobs without a VC; may be empty"),
        "least_s": Option("0", "shortest duration written [s]; the simulator never ends a job of 0 s"),
        "guard": GUARD,
    }
    needs = "submission, GPUs, run time; with incomplete=keep, only the submission"
    lost = "fractions of a GPU and of a second, GPU models, memory, attempts, time limits"
    sources = ("github.com/S-Lab-System-Group/HeliosData", "github.com/S-Lab-System-Group/HeliosArtifact")

    def job_filter(self, options: Options) -> JobFilter:
        """Return the rules that select the exported jobs."""
        return JobFilter.from_options(options, dated=True)

    def timezone(self, options: Options) -> str:
        """Return the time zone of the dates in the file."""
        return options.values["timezone"]

    def check(self, options: Options) -> None:
        """Reject an unknown time zone, and a cluster name that cannot be a folder name."""
        zone = options.values["timezone"]
        if not is_known_zone(zone):
            raise UsageError(
                f"'{zone}' is not a time zone", where="--option timezone", hint="for example Asia/Shanghai"
            )
        if not _FOLDER.fullmatch(options.values["cluster"]):
            raise UsageError(f"'{options.values['cluster']}' cannot name a folder", where="--option cluster")
        for name in ("user", "vc"):
            options.text(name)
        options.count("least_s")

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write each cluster's log and quotas."""
        folders = _folders(jobs, options, log)
        for column in ("user", "vc"):
            log.filled(column, f"'{options.values[column]}'", jobs.unknown(column), column)
        log.filled("jobname", "empty", jobs.unknown("name"))
        renumbered = _renumbered(jobs)
        if renumbered:
            where = counted(len(renumbered), "clusters")
            log.note(f"some job ids are not whole numbers, so jobs are numbered from 1 in {where}")
        _write_logs(jobs, out, log, options, folders, renumbered)
        zone = ZoneInfo(options.values["timezone"])
        _note_simulator_limits(jobs, zone, log, least=options.count("least_s") or 0)
        for cluster, folder in folders.items():
            table = quota_table(jobs, cluster, zone, options, log)
            safe = table.rename(_safe_names(table)) if options.yes("guard") else table
            safe.write_csv(out.member(f"{folder}/cluster_gpu_number.csv"))


def _note_simulator_limits(jobs: JobSelection, zone: ZoneInfo, log: ExportLog, *, least: int) -> None:
    """Note the valid jobs that the study's simulator drops or never ends."""
    begin = dt.datetime.combine(_BEGIN, dt.time(), zone).astimezone(dt.UTC).replace(tzinfo=None)
    early = jobs.count_where(f"size > 0 AND submit_time < TIMESTAMP '{begin}'")
    log.changed(
        early,
        f"the study's simulator drops them, because they were submitted before it begins on {_BEGIN} (--shift-to)",
    )
    log.setting(
        f"data/vc_dict_generator.py first; then simulator.py treats the first job as submitted on {_BEGIN} and uses "
        f"only the days in trace_range: to use all jobs, set it to ('{_BEGIN} 00:00:00', the last day)"
    )
    if not least:
        empty = jobs.count_where("size > 0 AND work_s < 0.5")
        log.changed(empty, "they ran for 0 s; the study's simulator never ends such jobs (option least_s)")


def _folders(jobs: JobSelection, options: Options, log: ExportLog) -> dict[str | None, str]:
    """Return the folder of each cluster. Numbers replace names that cannot be folder names."""
    folders: dict[str | None, str] = {}
    for number, cluster in enumerate(jobs.distinct("cluster"), start=1):
        fits = _FOLDER.fullmatch(cluster) and cluster not in folders.values()
        folders[cluster] = cluster if fits else f"cluster-{number}"
        if not fits:
            log.note(
                f"the cluster '{cluster}' is in the folder {folders[cluster]}, because its name is not a valid folder "
                "name"
            )
    unknown = jobs.unknown("cluster")
    if unknown:
        log.filled("cluster", options.values["cluster"], unknown, "cluster")
        if options.values["cluster"] in folders.values():
            raise UsageError(
                "is already the name of a cluster of the Trace", where="--option cluster", hint="choose another"
            )
        folders[None] = options.values["cluster"]
    return folders


def _renumbered(jobs: JobSelection) -> set[str | None]:
    """Return the clusters whose job ids are not all whole numbers."""
    rows = jobs.rows(
        "SELECT DISTINCT cluster FROM chosen WHERE NOT regexp_full_match("
        "CASE WHEN starts_with(job_id, cluster || '/') THEN job_id[length(cluster) + 2:] ELSE job_id END, "
        f"'{_ID}')"
    )
    return {row[0] for row in rows}


def _write_logs(
    jobs: JobSelection,
    out: Output,
    log: ExportLog,
    options: Options,
    folders: Mapping[str | None, str],
    renumbered: set[str | None],
) -> None:
    files: dict[str | None, BinaryIO] = {}
    written = dict.fromkeys(folders, 0)
    rounded = quoted = 0
    with contextlib.ExitStack() as stack:
        for block in jobs.blocks():
            rounded += int(block.select(_with_parts().sum()).item())
            for key, part in block.partition_by("cluster", as_dict=True, maintain_order=True).items():
                cluster = None if key[0] is None else str(key[0])
                rows = _rows(part, cluster, cluster in renumbered, written[cluster], options)
                rows, count = guarded(rows) if options.yes("guard") else (rows, 0)
                quoted += count
                if cluster not in files:
                    path = out.member(f"{folders[cluster]}/cluster_log.csv")
                    files[cluster] = stack.enter_context(path.open("wb"))
                rows.write_csv(files[cluster], include_header=written[cluster] == 0)
                written[cluster] += rows.height
    log.changed(rounded, "times were truncated to whole seconds")
    if quoted:
        log.note(f"{quoted:,} values that look like formulas got a leading quote (option guard)")


def _with_parts() -> pl.Expr:
    names = ("submit_time", "start_time", "end_time")
    return pl.any_horizontal((pl.col(name).dt.microsecond() != 0).fill_null(value=False) for name in names)


def _rows(part: pl.DataFrame, cluster: str | None, count: bool, before: int, options: Options) -> pl.DataFrame:
    own = pl.col("job_id") if cluster is None else pl.col("job_id").str.strip_prefix(f"{cluster}/")
    zone = options.values["timezone"]
    # Use the difference of truncated times, as in the file.
    cut = {name: pl.col(name).dt.truncate("1s") for name in ("submit_time", "start_time", "end_time")}
    instead = {name: pl.lit(options.values[name] or None, dtype=pl.String) for name in ("user", "vc")}
    texts = {name: pl.coalesce(name, value) for name, value in instead.items()}
    return part.select(
        job_id=pl.int_range(before + 1, before + 1 + pl.len()) if count else own.cast(pl.Int64),
        user=texts["user"],
        vc=texts["vc"],
        gpu_num=pl.col("size").cast(pl.Int64),
        cpu_num=pl.col("cpu_count").ceil().cast(pl.Int64),
        node_num=pl.col("node_count"),
        state=pl.col("status").replace_strict(_STATES, default=None, return_dtype=pl.String),
        submit_time=local_time("submit_time", zone),
        start_time=local_time("start_time", zone),
        end_time=local_time("end_time", zone),
        duration=whole_seconds("work_s").clip(lower_bound=options.count("least_s") or 0),
        queue=(cut["start_time"] - cut["submit_time"]).dt.total_seconds(),
        jobname=pl.col("name"),
    )


def _safe_names(table: pl.DataFrame) -> dict[str, str]:
    names, _ = guarded(pl.DataFrame({"name": table.columns}))
    return dict(zip(table.columns, names["name"], strict=True))


MEMBERS = (HeliosTarget(),)
