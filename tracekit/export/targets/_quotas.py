"""The GPUs of each VC by day, as a Helios quota table."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import polars as pl

from tracekit.export.targets._cluster import nodes_for_load

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from tracekit.export.interface import ExportLog, JobSelection, Options

__all__ = ["quota_table"]

_NODE = 8
"""GPUs of a node in that simulator: what a VC held is rounded up to whole nodes."""

_LONGEST = 36_525
"""Most days of a table."""


def quota_table(
    jobs: JobSelection, cluster: str | None, zone: ZoneInfo, options: Options, log: ExportLog
) -> pl.DataFrame:
    """Return one row a day: date, a column for each VC with its GPUs, total.

    From the nodes that --machines or --target-load say, in proportion to the GPU time of each VC; else from the table
    capacity; without rows for the cluster, from what its jobs held at once, as whole nodes of 8 GPUs.

    `cluster` is None for jobs that name none, the option `vc` the VC of jobs that name none; days begin in `zone`.
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
            f"quotas are not in the Trace: each VC of cluster {shown} has what it held at once, in whole nodes of 8, "
            "so that hardly a job waits and policies tie (--machines, --target-load)"
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
    """Return the nodes of each VC: those that --machines or --target-load say, by the GPU time of its jobs."""
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
    # Whole nodes by the largest remainder.
    exact = [nodes * part / (sum(work) or 1) for part in work]
    given = [int(part) for part in exact]
    order = sorted(range(len(rows)), key=lambda k: given[k] - exact[k])
    for k in order[: nodes - sum(given)]:
        given[k] += 1
    found = [max(pair) for pair in zip(given, least, strict=True)]
    if sum(found) != nodes:
        log.note(f"{nodes:,} nodes became {sum(found):,}: each VC has room for its largest job")
    return {vc: count for (vc, _, _), count in zip(rows, found, strict=True)}


def _stated(
    jobs: JobSelection, cluster: str | None, zone: ZoneInfo
) -> tuple[dict[str | None, list[tuple[dt.date, int]]], dt.date, dt.date] | None:
    """Return the stated changes of each VC (None is the whole cluster), and the first and last day of one."""
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
    """Return the days of the first and the last submission to a cluster."""
    query = "SELECT min(submit_time), max(submit_time) FROM chosen WHERE cluster IS NOT DISTINCT FROM $cluster"
    (times,) = jobs.rows(query, {"cluster": cluster})
    if times[0] is None:
        return None, None
    first, last = (_local_day(time, zone) for time in times)
    return first, last


def _local_day(time: dt.datetime, zone: ZoneInfo) -> dt.date:
    return time.replace(tzinfo=dt.UTC).astimezone(zone).date()


def _by_day(days: list[dt.date], steps: list[tuple[dt.date, int]]) -> list[int]:
    """Return the value of each day: that of the latest change until then, 0 before the first."""
    out, place, value = [], 0, 0
    for day in days:
        while place < len(steps) and steps[place][0] <= day:
            value = steps[place][1]
            place += 1
        out.append(value)
    return out
