"""Select part of a Trace: some jobs, with all their rows.

The selection is the same whether a table is one file or many. Partitions only reduce the number of files to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from tracekit.errors import UsageError, nearest
from tracekit.tables.partitions import JOB_TABLES
from tracekit.tenant import DIMENSIONS
from tracekit.text import counted, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from tracekit.manifest import Partition

SIZE = "size"
"""A selection key that is not a column: the size class of jobs."""

SIZES = {
    "0": "gpu_count = 0",
    "<1": "gpu_count > 0 AND gpu_count < 1",
    "1": "gpu_count = 1",
    "2-4": "gpu_count > 1 AND gpu_count <= 4",
    "5-8": "gpu_count > 4 AND gpu_count <= 8",
    ">8": "gpu_count > 8",
}
"""SQL conditions for the job size classes, as in the job_classes view. A job of unknown size has no class."""

WHERE = (*DIMENSIONS, SIZE)
"""Keys that select jobs."""


@dataclass(frozen=True)
class Window:
    """The rows to take from each table.

    | table | rows |
    |---|---|
    | jobs | submitted in [start, end), to the cluster and the partitions, with the values of `where` |
    | attempts, placements, job_usage, failures, doubtful_times | of these jobs, at any time |
    | gpu_utilization, host_utilization | with a time in [start, end), of machines in the cluster, or of `machines` |
    | node_events | overlapping [start, end), in full, of machines in the cluster, or of `machines` |
    | nodes | of the cluster, or `machines` |
    | capacity | of the cluster; none with `machines`, because a total or a quota covers the whole cluster |
    | rejects | all |

    A job of unknown submission is in no time window, rows of unknown cluster belong to no cluster, and a job of unknown
    user to no user. Selecting some of a cluster's jobs does not make the cluster smaller: its machines, samples, events
    and quotas stay. Only a partition has its own machines.
    """

    start: datetime | None = None
    """Beginning, in UTC and without a time zone. None means since the log began."""
    end: datetime | None = None
    """Exclusive end. None means until the log ends."""
    cluster: str | None = None
    """Cluster. None means all clusters."""
    where: tuple[tuple[str, str], ...] = ()
    """Columns of jobs (`WHERE`) and their required values, see `chosen_jobs`."""
    partitions: tuple[str, ...] = ()
    """Partitions of one pool (`Pool`) to which the jobs belong, as in jobs.partition; empty means any."""
    machines: tuple[str, ...] | None = None
    """Names of the machines; None means all machines of the cluster."""

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise UsageError(f"{self.end} is not after {self.start}", where="--to", hint="give a later end")

    def __bool__(self) -> bool:
        return self != EVERYTHING

    @property
    def words(self) -> str:
        """Description of the selected part, or '' if everything is selected."""
        if not self:
            return ""
        parts = [f"from {self.start} UTC on"] if self.start is not None else []
        parts += [f"before {self.end} UTC"] if self.end is not None else []
        parts += [f"in the cluster {shorten(self.cluster)}"] if self.cluster is not None else []
        if self.partitions:
            several = "s" if len(self.partitions) > 1 else ""
            parts.append(f"in the partition{several} {', '.join(shorten(name) for name in self.partitions)}")
        submitted = f" submitted {', '.join(parts)}" if parts else ""
        having = " and ".join(f"{column.replace('_', ' ')} {shorten(value)}" for column, value in self.where)
        joined = f"{' and' if submitted else ''} with {having}" if having else ""
        own = "" if self.machines is None else f"; capacity: the partition's own {counted(len(self.machines), 'nodes')}"
        return f"only jobs{submitted}{joined}, with all rows that belong to them{own}"

    def meets(self, partition: Partition) -> bool:
        """Return whether the window may select rows of a partition."""
        if self.cluster is not None and partition.cluster != self.cluster:
            return False
        if self.start is None and self.end is None:
            return True
        if partition.date is None:
            return False
        first, after = _bounds(partition.date)
        return (self.start is None or self.start < after) and (self.end is None or self.end > first)

    def holds(self, partition: Partition) -> bool:
        """Return whether the window selects all rows of a partition."""
        if self.where or self.partitions or self.machines is not None or not self.meets(partition):
            return False
        if partition.date is None:
            return True
        first, after = _bounds(partition.date)
        return (self.start is None or self.start <= first) and (self.end is None or self.end >= after)

    def condition(self, table: str, has: Callable[[str], bool]) -> str:
        """Return the SQL condition that selects a table's rows, or '' if all rows are selected.

        The condition may refer to the views jobs and nodes, which contain their selected rows. `has` returns whether
        the Trace has a table.
        """
        times, cluster = self._times(_TIMES.get(table, "")), self.cluster
        of_cluster = [] if cluster is None else [f'"cluster" = {literal(cluster)}']
        if table == "jobs":
            having = [
                f"({SIZES[value]})" if column == SIZE else f'"{column}" = {literal(value)}'
                for column, value in self.where
            ]
            if self.partitions:
                having.append(f'"partition" IN ({", ".join(map(literal, self.partitions))})')
            return " AND ".join(times + of_cluster + having)
        if table in JOB_TABLES:
            return _among("job_id", "jobs", has) if self else ""
        if table in _TIMES:
            return " AND ".join(times + ([_among("node_id", "nodes", has)] if self._some_machines else []))
        if table == "nodes" and self.machines is not None:
            return f"node_id IN ({', '.join(map(literal, self.machines))})" if self.machines else "false"
        if table == "capacity" and self.machines is not None:
            return "false"
        return " AND ".join(of_cluster) if table in ("nodes", "capacity") else ""

    @property
    def _some_machines(self) -> bool:
        """Whether only some of the machines are selected."""
        return self.cluster is not None or self.machines is not None

    def take(self, table: str, rows: pl.LazyFrame, scan: Callable[[str], pl.LazyFrame | None]) -> pl.LazyFrame:
        """Return the selected rows of a table.

        `scan` returns the selected rows of jobs and nodes, or None if the Trace does not have the table.
        """
        import polars as pl

        if table in JOB_TABLES and table != "jobs":
            return _semi(rows, "job_id", scan("jobs")) if self else rows
        condition = self.condition(table, lambda _: False) if table in ("jobs", "nodes", "capacity") else ""
        if condition:
            return rows.filter(pl.sql_expr(condition))
        if table in _TIMES:
            for part in self._times(_TIMES[table]):
                rows = rows.filter(pl.sql_expr(part))
            return _semi(rows, "node_id", scan("nodes")) if self._some_machines else rows
        return rows

    def _times(self, kind: str) -> list[str]:
        """Return the time conditions for a table. `kind` is its time column."""
        start = None if self.start is None else _moment(self.start)
        end = None if self.end is None else _moment(self.end)
        if kind == "events":
            # An event of unknown end continues. An event of zero length counts at its beginning.
            after = f"(end_time IS NULL OR end_time > {start} OR start_time >= {start})"
            return ([after] if start else []) + ([f"start_time < {end}"] if end else [])
        return ([f"{kind} >= {start}"] if start else []) + ([f"{kind} < {end}"] if end else [])


EVERYTHING = Window()
"""No limit."""

_TIMES = {"jobs": "submit_time", "gpu_utilization": "time", "host_utilization": "time", "node_events": "events"}


def chosen_jobs(where: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return the required column values for `Window.where`, with checked names and in the order of `WHERE`.

    Raises
    ------
    UsageError
        Jobs cannot be selected by this column, or the size class does not exist.
    """
    given = where or {}
    for name in given:
        if name not in WHERE:
            raise UsageError(
                f"jobs cannot be selected by '{shorten(name)}'", where="--where", hint=nearest(name, WHERE)
            )
    size = given.get(SIZE)
    if size is not None and size not in SIZES:
        hint = f"choose one of: {', '.join(SIZES)}"
        raise UsageError(f"'{shorten(size)}' is not a size class", where="--where", hint=hint)
    return tuple((name, given[name]) for name in WHERE if name in given)


def utc(moment: datetime | None) -> datetime | None:
    """Convert a time to the form in tables: UTC without a time zone. A time without a zone counts as UTC."""
    if moment is None or moment.tzinfo is None:
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None)


def _bounds(day: date) -> tuple[datetime, datetime]:
    """Return the beginning of a day and of the next day."""
    first = datetime.combine(day, time())
    return first, datetime.max if day == date.max else first + timedelta(days=1)


def literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _moment(moment: datetime) -> str:
    return f"CAST('{moment.isoformat(sep=' ')}' AS TIMESTAMP)"


def _among(column: str, table: str, has: Callable[[str], bool]) -> str:
    return f"{column} IN (SELECT {column} FROM {table})" if has(table) else "false"


def _semi(rows: pl.LazyFrame, column: str, known: pl.LazyFrame | None) -> pl.LazyFrame:
    if known is None:
        return rows.head(0)
    return rows.join(known.select(column).unique(), on=column, how="semi", maintain_order="left")
