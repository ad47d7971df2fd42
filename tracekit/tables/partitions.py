"""Store a large table as partitions: a folder with one file per cluster and day.

    gpu_utilization/cluster=philly/day=2017-10-03/part-0.parquet

The manifest lists the files with cluster, day, rows, bytes and checksum, and tracekit trusts only the manifest. Folder
names are for readers and other programs. A job's rows are in the partition of its cluster and of the day (UTC) of its
submission. Samples are in the partition of their day and of their machine's cluster. Within a file, rows keep the
table's order.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from tracekit.errors import TraceError
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date
    from pathlib import Path

    from tracekit.manifest import Partition, TableInfo

JOB_TABLES = ("jobs", "attempts", "placements", "job_usage", "failures", "doubtful_times")
"""Tables whose rows belong to a job. In a Trace, either all or none of them are partitioned."""

SAMPLE_TABLES = ("gpu_utilization", "host_utilization")
"""Tables of samples, each partitioned separately."""

PARTITIONED_TABLES = (*JOB_TABLES, *SAMPLE_TABLES)

AUTO_ROWS = 100_000_000
AUTO_BYTES = 2 * 2**30
"""By default, a table that exceeds either of these limits is partitioned.

One machine reads a whole table of this size in seconds. With a larger table, a question about one week should not read
the whole year, and an append should not rewrite everything.
"""

_LONGEST = 120
"""Maximum number of characters of a cluster name in a path. File systems allow 255 for a name."""
_UNKNOWN = "__HIVE_DEFAULT_PARTITION__"
"""Hive's and Spark's spelling of an unknown value."""
_UNKNOWN_DAY = "unknown"
_AS_IT_IS = re.compile(rb"[a-z0-9._-]")


def is_large(rows: int, size: int) -> bool:
    """Return whether a table with this number of rows and bytes is partitioned by default."""
    return rows > AUTO_ROWS or size > AUTO_BYTES


def partition_path(table: str, cluster: str | None, day: date | None, number: int = 0) -> str:
    """Return a partition's path within the Trace's folder, with '/' between folders.

    Different clusters have different paths, even on a file system that ignores case.

    Examples
    --------
    >>> from datetime import date
    >>> partition_path("jobs", "Venus/a", date(2020, 4, 1))
    'jobs/cluster=%56enus%2Fa/day=2020-04-01/part-0.parquet'
    >>> partition_path("jobs", None, None)
    'jobs/cluster=__HIVE_DEFAULT_PARTITION__/day=unknown/part-0.parquet'
    """
    stated = _UNKNOWN_DAY if day is None else day.isoformat()
    return f"{table}/cluster={_encoded(cluster)}/day={stated}/part-{number}.parquet"


def _encoded(cluster: str | None) -> str:
    """Encode a cluster name as part of a path, as in Hive. A long name ends in its checksum."""
    if cluster is None:
        return _UNKNOWN
    raw = cluster.encode()
    parts = [chr(byte) if _AS_IT_IS.match(bytes([byte])) else f"%{byte:02X}" for byte in raw]
    # A name that begins with '_' could be the name of the unknown cluster, and Windows drops a trailing dot.
    for place, signs in ((0, "_."), (-1, ".")):
        if parts and len(parts[place]) == 1 and parts[place] in signs:
            parts[place] = f"%{ord(parts[place]):02X}"
    name = "".join(parts)
    if len(name) <= _LONGEST:
        return name
    # No other name contains '~', because it is written as %7E.
    return f"{name[: _LONGEST - 33]}~{hashlib.sha256(raw).hexdigest()[:32]}"


def require_paths(folder: Path, tables: Mapping[str, TableInfo]) -> None:
    """Reject a manifest with partitions whose paths do not match their cluster and day.

    After this check, every path lies inside the Trace's folder, and no file is read for another cluster or day.

    Raises
    ------
    TraceError
        A path is wrong or repeated, or the table cannot have partitions.
    """
    for table, info in tables.items():
        seen: set[str] = set()
        for partition in info.partitions or ():
            place = re.search(r"/part-(0|[1-9][0-9]{0,8})\.parquet$", partition.path)
            number = int(place[1]) if place else 0
            stated = partition_path(table, partition.cluster, partition.date, number)
            if table not in PARTITIONED_TABLES or partition.path != stated or partition.path in seen:
                raise TraceError(
                    f"the manifest is damaged: {table} cannot have the partition '{shorten(partition.path, 200)}'",
                    where=folder,
                    hint="ingest the source again",
                )
            seen.add(partition.path)


def table_files(folder: Path, table: str, partitions: Iterable[Partition] | None) -> tuple[Path, ...]:
    """Return a table's files in order: its partitions, or its single file if it has none."""
    if partitions is None:
        return (folder / f"{table}.parquet",)
    return tuple(folder / partition.path for partition in partitions)


def in_order(partitions: Iterable[Partition]) -> list[Partition]:
    """Sort partitions in table order, by cluster and day, with unknown values last."""
    return sorted(partitions, key=lambda p: (p.cluster is None, p.cluster or "", p.day is None, p.day or "", p.path))


def key_sql(table: str, rows: str, *, jobs: str, nodes: str) -> str:
    """Return the query for a table's rows with `part_cluster` and `part_day`, the keys of each row's partition.

    Parameters
    ----------
    rows, jobs, nodes : str
        Relations to select from: the table's rows, the jobs that they belong to, and the machines.
    """
    if table == "jobs":
        return f"SELECT *, cluster AS part_cluster, submit_time::DATE AS part_day FROM {rows}"
    if table in JOB_TABLES:
        # A Trace with repeated ids is damaged, but its rows must not multiply.
        known = "SELECT job_id, min(cluster) AS part_cluster, min(submit_time)::DATE AS part_day"
        known = f"{known} FROM {jobs} GROUP BY job_id"
        return f"SELECT t.*, k.part_cluster, k.part_day FROM {rows} t LEFT JOIN ({known}) k USING (job_id)"
    known = f"SELECT node_id, min(cluster) AS part_cluster FROM {nodes} GROUP BY node_id"
    return f"SELECT t.*, k.part_cluster, t.time::DATE AS part_day FROM {rows} t LEFT JOIN ({known}) k USING (node_id)"
