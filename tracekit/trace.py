"""A Trace: a folder of Parquet tables in the common schema, with their manifest.

trace = Trace.open("my-trace")
trace.scan("jobs").filter(pl.col("gpu_count") > 0).collect()
with trace.connect() as con:
    con.sql("SELECT status, count(*) FROM jobs GROUP BY ALL").pl()
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.damage import register_trace
from tracekit.databases import Database
from tracekit.errors import DamagedTraceError, MissingTableError, TraceError, TracekitError, UsageError, nearest
from tracekit.manifest import Capability, Manifest
from tracekit.notebook import Brief
from tracekit.outputs import recover
from tracekit.places import Address, failure_behind, is_remote, place_of
from tracekit.places.reader import forget
from tracekit.tables.parquet import (
    HINT,
    columns_sql,
    files_sql,
    read_through,
    require_footers,
    scan_table,
)
from tracekit.tables.partition_problems import partition_fault
from tracekit.tables.partitions import require_paths, table_files
from tracekit.tables.pools import Pool, find_pools
from tracekit.tables.window import EVERYTHING, SIZE, Window, chosen_jobs, literal, utc
from tracekit.tenant import DIMENSIONS, INGESTED, Tenant, tenant_of
from tracekit.text import count, counted, is_text, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import duckdb
    import polars as pl

    from tracekit.manifest import Partition

    _State = tuple[str, Path, int, int, int]
    """A table, one of its files, and the file properties that change on rewriting: inode, bytes and time [ns]."""


MANIFEST_NAME = "manifest.json"
_REPORT = "report.json"
"""File that identifies a report's folder, which also contains a Trace."""
_TIMES = {
    "absolute": "real dates",
    "shifted": "shifted dates with real hours and weekdays",
    "relative": "counted from the start of the trace",
}
"""Description of the times, by the manifest's time base."""
OTHERS_FREE = "GPUs allocated to other jobs count as free, because only these jobs were selected"
"""Note on numbers about machines if some of a cluster's jobs are left out."""

WITH_POOL = ("jobs", "nodes")
"""Tables whose column `cluster` is the pool in a Trace divided by pools."""

_SHOWN_VALUES = 10
"""Maximum number of column values that an error lists. There may be thousands of users."""


@dataclass(frozen=True)
class Trace:
    """A Trace on disk or in an object store."""

    path: Path
    """Folder, or its address in a store (`tracekit.places.Address`)."""
    manifest: Manifest
    """Origin, accounting, checks and capabilities."""
    tenant_column: str = INGESTED
    """Job column that is the tenant and replaces `vc` (see `by`)."""
    limits: Window = EVERYTHING
    """Selected part of the Trace (see `window`)."""
    allow_missing: bool = False
    """Whether to skip missing or damaged partitions, see `open`."""
    by_pool: bool = False
    """Whether each pool counts as a cluster, see `divided`."""

    @classmethod
    def open(
        cls, path: str | Path, *, check: bool = True, limits: Window | None = None, allow_missing: bool = False
    ) -> Trace:
        """Open the Trace in the folder `path`, like `tracekit.open_trace`.

        This reads only the manifest and the columns' names and types.

        >>> import tracekit
        >>> trace = tracekit.open_trace("my-trace")  # doctest: +SKIP

        Parameters
        ----------
        path : str or Path
            The folder written by `tracekit ingest`, or its address in a store, such as s3://bucket/trace. A report's
            folder also contains one, as `trace`.
        check : bool
            Whether to reject a Trace if a table is missing or its columns differ from its schema. `validate` also
            reports such tables.
        limits : Window, optional
            Part to open, as with `window`. Partitions outside it are not checked.
        allow_missing : bool
            Whether to skip missing or damaged partitions instead of rejecting the Trace. If so, `notes` names them, and
            the checksum of each selected partition is compared.

        Raises
        ------
        TraceError
            The folder is not a Trace, or an incompatible version wrote it.
        DamagedTraceError
            A table is missing, cannot be read, or does not have the columns of its schema.
        StoreError
            The store does not provide the Trace.
        """
        folder = place_of(path)
        if isinstance(folder, Address):
            forget(folder)
        try:
            manifest = _manifest_of(folder)
        except OSError as error:
            raise TraceError(f"cannot be read: {error.strerror}", where=folder) from error
        found = cls(folder, manifest, allow_missing=allow_missing)
        if limits:
            found = _limited(found, limits)
        if check:
            _require_tables(found)
        register_trace(found)
        return found

    def window(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        cluster: str | None = None,
        where: Mapping[str, str] | None = None,
    ) -> Trace:
        """Return this Trace with the rows of only some jobs, by time, cluster and other properties.

        `tracekit.tables.window.Window` defines which rows of each table are selected. The files do not change, and
        partitions without selected rows are not opened. The manifest's capabilities, checks and notes still describe
        the whole Trace.

        >>> trace.window(where={"user": "alice", "size": "2-4"})  # doctest: +SKIP

        Parameters
        ----------
        start, end : datetime, optional
            Beginning and end (exclusive) of the submission times, in UTC if they have no time zone.
        cluster : str, optional
            Name of a cluster.
        where : mapping of str to str, optional
            Values that selected jobs must have, by column: vc (the tenant column, see `by`), account, partition, qos,
            gpu_model, user, or size. A size is one of the classes 0, <1, 1, 2-4, 5-8 and >8 GPUs.

        Raises
        ------
        UsageError
            `end` is not after `start`, the cluster does not exist, jobs cannot be selected by one of the columns, or no
            job in the whole Trace has one of the values.
        DamagedTraceError
            A partition with selected rows is missing or cannot be read.
        """
        having = chosen_jobs(where)
        if self.tenant_column != INGESTED:
            having = self._in_columns_of_files(having)
        found = _limited(self, Window(utc(start), utc(end), cluster, having))
        _require_tables(found, partitions_only=True)
        return found

    def _in_columns_of_files(self, having: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return conditions on jobs, with the tenant column named as in the files.

        Raises
        ------
        UsageError
            The tenant is given twice, with different values.
        """
        given = dict(having)
        tenant = given.pop(INGESTED, None)
        if tenant is None:
            return having
        if given.get(self.tenant_column, tenant) != tenant:
            what = f"no job has two values of {self.tenant_column}, which is the tenant"
            raise UsageError(what, where="--where", hint=f"give vc or {self.tenant_column}")
        return chosen_jobs({**given, self.tenant_column: tenant})

    def partitions(self, table: str) -> list[Partition]:
        """Return a table's partitions that may contain selected rows, or none if it is one file."""
        return [p for p in self.manifest.tables[table].partitions or () if self.limits.meets(p)]

    @cached_property
    def missing(self) -> dict[str, str]:
        """Why partitions are skipped, by path. Empty unless `allow_missing` is set."""
        if not self.allow_missing:
            return {}
        found = {
            p.path: partition_fault(self.path, p, deep=True) for table in self.tables for p in self.partitions(table)
        }
        return {path: fault for path, fault in found.items() if fault is not None}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for every answer, about the selected part and missing partitions."""
        found = [self.limits.words] if self.limits else []
        found += [OTHERS_FREE] if self.limits.where and not self._alone_on_machines else []
        if self.missing:
            rows = {p.path: p.rows for table in self.tables for p in self.partitions(table)}
            lost, names = sum(rows[path] for path in self.missing), list(self.missing)
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            found.append(
                f"{counted(len(names), 'partitions')} with {counted(lost, 'rows')} could not be read; their rows "
                f"are missing from all results: {shown}"
            )
        return tuple(found)

    @classmethod
    def of(cls, trace: Trace | str | Path) -> Trace:
        """Return `trace` itself, or open the Trace in the folder at that path.

        Raises
        ------
        TraceError
            As in `open`.
        """
        if not isinstance(trace, Trace):
            return cls.open(trace)
        register_trace(trace)
        return trace

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools of each cluster (`tracekit.tables.pools`); empty if the jobs have fewer than two partitions.

        Like every question, this reads only the selected days if the tables are split by day.
        """
        if not self.has("jobs"):
            return ()
        split = self.manifest.tables["jobs"].partitions is not None
        period = Window(self.limits.start, self.limits.end) if split else EVERYTHING
        return _pools_of(replace(self, limits=period, tenant_column=INGESTED, by_pool=False))

    @property
    def divided(self) -> Trace:
        """The same Trace with each pool as a cluster, or this Trace if partitions divide no cluster into pools.

        The column `cluster` of jobs and nodes is then the pool's name. The files do not change. Jobs and nodes of no
        known partition keep their cluster.
        """
        if self.by_pool or not any(pool.divides for pool in self.pools):
            return self
        return replace(self, by_pool=True)

    @property
    def _alone_on_machines(self) -> bool:
        """Whether only the selected jobs may run on the selected machines: all jobs of a pool that shares none."""
        chosen = dict(self.limits.where)
        if self.limits.machines is None or set(chosen) != {"partition"}:
            return False
        return any(pool.apart and list(pool.partitions) == [chosen["partition"]] for pool in self.pools)

    def pool_sql(self, table: str) -> str:
        """Return SQL for the pool of a row of jobs or nodes, or for its cluster if that is not divided."""
        cases = []
        for pool in self.pools:
            column, values = ("partition", pool.values) if table == "jobs" else ("node_id", pool.nodes)
            if pool.divides and values:
                same = "cluster IS NULL" if pool.cluster is None else f"cluster = {literal(pool.cluster)}"
                within = f"{same} AND " if table == "jobs" else ""  # a node has one name in the Trace
                names = ", ".join(map(literal, values))
                cases.append(f'WHEN {within}"{column}" IN ({names}) THEN {literal(pool.name)}')
        return f"CASE {' '.join(cases)} ELSE cluster END"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of this Trace's tables."""
        return tuple(t for t in schema.COMMON_TABLES if t in self.manifest.tables)

    @property
    def capabilities(self) -> dict[str, Capability]:
        """The Trace's capabilities by name, with their coverage."""
        return self.manifest.capabilities

    @property
    def tenant(self) -> Tenant:
        """The tenant, in the site's words."""
        return tenant_of(self.manifest.format, self.manifest.options, self.tenant_column)

    @property
    def ingested_tenant(self) -> Tenant:
        """The tenant from the ingest, in the site's words, without reading manifest.json."""
        return tenant_of(self.manifest.format, self.manifest.options, INGESTED)

    @property
    def ingested(self) -> Trace:
        """The same Trace with the tenant from the ingest, which replays and fits always use."""
        if self.tenant_column == INGESTED:
            return self
        return replace(self, manifest=_manifest_of(self.path), tenant_column=INGESTED)

    def by(self, column: str | None) -> Trace:
        """Return this Trace with another job column as the tenant, which then becomes `vc`.

        The files do not change. What the source records about its own tenants, such as quotas, does not apply to
        tenants by another column.

        Parameters
        ----------
        column : str, optional
            One of vc (the ingested tenant), account, partition, qos, gpu_model and user. None changes nothing.

        Raises
        ------
        UsageError
            The column cannot be the tenant, or is unknown for every job.
        """
        if column is None:
            return self
        if column not in DIMENSIONS:
            raise UsageError(
                f"'{shorten(column)}' is not a tenant column", where="--by", hint=nearest(column, DIMENSIONS)
            )
        source = self.ingested
        known = source.known_dimensions()
        if not known.get(column):
            have = [name for name in DIMENSIONS if known.get(name)]
            raise UsageError(
                f"the Trace does not record the {column} of any job",
                where="--by",
                hint=f"it records {', '.join(have)}" if have else "it has no tenant column",
            )
        if column == INGESTED:
            return source
        words = tenant_of(self.manifest.format, self.manifest.options, column)
        can = Capability(available=True, coverage=known[column], note=f"which {words.one} a job belongs to")
        manifest = replace(source.manifest, capabilities={**source.manifest.capabilities, "tenants": can})
        return replace(source, manifest=manifest, tenant_column=column)

    def known_dimensions(self) -> dict[str, float]:
        """Return the share of jobs with a known value, for each column that can be the tenant."""
        import polars as pl

        if not self.has("jobs"):
            return {}
        jobs = self.scan("jobs").select(pl.col(name).is_not_null().mean() for name in DIMENSIONS)
        return {name: share or 0.0 for name, share in jobs.collect(engine="streaming").row(0, named=True).items()}

    @property
    def timezone(self) -> str:
        """Time zone for hours of the day."""
        return self.manifest.timezone

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters with submitted jobs, in alphabetical order."""
        import polars as pl

        if not self.has("jobs"):
            return ()
        # Reading one column is cheap even for millions of jobs.
        names = self.scan("jobs").select(pl.col("cluster").drop_nulls().unique().sort()).collect(engine="streaming")
        return tuple(str(name) for name in names.to_series().to_list())

    def has(self, table: str) -> bool:
        """Return whether the Trace has the table."""
        return table in self.manifest.tables

    def files(self, table: str) -> tuple[Path, ...]:
        """Return the Parquet files of a table in row order, or only the selected ones if it is partitioned.

        Raises
        ------
        MissingTableError
            The Trace has no such table.
        """
        if not self.has(table):
            raise MissingTableError(
                f"the Trace has no table '{table}'", where=self.path, hint=nearest(table, self.tables)
            )
        if self.manifest.tables[table].partitions is None:
            return table_files(self.path, table, None)
        missing = self.missing
        return table_files(self.path, table, (p for p in self.partitions(table) if p.path not in missing))

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table as a lazy frame with the columns of `schema.common(table)`.

        Columns introduced after the schema version of this Trace are NULL.

        Raises
        ------
        MissingTableError
            The Trace has no such table.
        DamagedTraceError
            Raised when the rows are collected if a file cannot be read.
        """
        rows = scan_table(table, self.files(table), self.manifest.schema_version)
        if not self._whole(table):
            rows = self.limits.take(table, rows, lambda name: self.scan(name) if self.has(name) else None)
        if self.by_pool and table in WITH_POOL:
            import polars as pl

            rows = rows.with_columns(pl.sql_expr(self.pool_sql(table)).alias("cluster"))
        if table == "jobs" and self.tenant_column != INGESTED:
            import polars as pl

            return rows.with_columns(pl.col(self.tenant_column).alias(INGESTED))
        return rows

    def _whole(self, table: str) -> bool:
        """Return whether all rows of a table's files are selected."""
        if not self.limits:
            return True
        return self.manifest.tables[table].partitions is not None and all(
            map(self.limits.holds, self.partitions(table))
        )

    def read_through(self) -> None:
        """Decode every column of every row, so that later work cannot fail on a damaged part of a file.

        Raises
        ------
        DamagedTraceError
            A table cannot be read.
        """
        for table in self.tables:
            read_through(table, self.files(table), self.manifest.schema_version)

    def connect(self, memory_limit: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection in which every table of the Trace is a view of the same name.

        Parameters
        ----------
        memory_limit : str, optional
            Maximum memory DuckDB may use before it spills to disk, such as '2GB'.

        Raises
        ------
        DamagedTraceError
            A file of a table is damaged.
        """
        con = self.database(memory_limit, alone=True).connect()
        try:
            for table in self.tables:
                self.create_view(con, table)
        except TracekitError:
            con.close()
            raise
        return con

    def create_view(self, con: duckdb.DuckDBPyConnection, table: str) -> None:
        """Create a view named after a table of the Trace. It may need the views jobs and nodes (see `condition_sql`).

        Raises
        ------
        DamagedTraceError
            A file of the table is damaged.
        """
        import duckdb

        try:
            rows = self.rows_sql(table)
            if self.by_pool and table in WITH_POOL:
                rows = f"SELECT * REPLACE ({self.pool_sql(table)} AS cluster) FROM ({rows})"
            if table == "jobs" and self.tenant_column != INGESTED:
                rows = f'SELECT * REPLACE ("{self.tenant_column}" AS {INGESTED}) FROM ({rows})'
            con.execute(f"CREATE VIEW {table} AS {rows}")
        except duckdb.Error as error:
            if (failure := failure_behind(error)) is not None:
                raise failure from error
            reason = " ".join(str(error).split())[:300]
            raise DamagedTraceError(
                f"the table {table} cannot be read: {reason}", where=self.path, hint=HINT
            ) from error

    def database(self, memory_limit: str | None = None, *, alone: bool | None = None) -> Database:
        """Return an empty `Database` whose connections can read this Trace's files."""
        if not is_remote(self.path):
            return Database(memory_limit, alone=alone)
        from tracekit.places.in_duckdb import connect_stores

        database = Database(memory_limit, alone=True)  # a store is registered with a whole instance
        with database.connect() as con:
            connect_stores(con)
        return database

    def rows_sql(self, table: str) -> str:
        """Return a DuckDB SELECT of a table's selected rows. It may refer to the views jobs and nodes.

        Raises
        ------
        MissingTableError
            The Trace has no such table.
        """
        files = self.files(table)
        if not files:
            empty = ", ".join(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in schema.common(table).columns)
            return f"SELECT {empty} WHERE false"
        columns = columns_sql(table, self.manifest.schema_version)
        rows = f"SELECT {columns} FROM read_parquet({files_sql(files)}, hive_partitioning = false)"
        taken = self.condition_sql(table)
        return f"SELECT * FROM ({rows}) WHERE {taken}" if taken else rows

    def condition_sql(self, table: str) -> str:
        """Return the SQL condition for a table's selected rows, or '' for all rows. It may refer to jobs and nodes."""
        return "" if self._whole(table) else self.limits.condition(table, self.has)

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return self._brief.html()

    @property
    def _brief(self) -> Brief:
        """Summarize the manifest in a few lines, without reading tables."""
        manifest = self.manifest
        rows = ", ".join(f"{table} {count(manifest.tables[table].rows)}" for table in self.tables)
        found = [check.count for check in manifest.checks.values() if check.count]
        doubtful = f"{count(sum(found))} found by {counted(len(found), 'checks')}" if found else None
        lacking = [name for name, capability in self.capabilities.items() if not capability.available]
        known = f"{len(self.capabilities) - len(lacking)} of {counted(len(self.capabilities), 'capabilities')}"
        return Brief.of(
            f"Trace {self.path}",
            [
                ("source", f"{manifest.format}, {counted(len(manifest.files), 'files')}"),
                ("records", f"{counted(manifest.records, 'records')}, {count(manifest.rejected)} of them set aside"),
                ("times", f"{_TIMES[manifest.time_base]}; hours of the day in {manifest.timezone}"),
                ("rows", f"{rows or 'none'}{' (of the whole Trace)' if self.limits else ''}"),
                ("doubtful", doubtful),
                ("can tell", f"{known}{'; not ' if lacking else ''}{', '.join(lacking)}"),
                ("asked", self.limits.words or None),
                ("tenant", self.tenant_column if self.tenant_column != INGESTED else None),
            ],
        )

    def validate(self, *, deep: bool = False, memory_limit: str | None = None) -> list[str]:
        """Return this Trace's problems, one sentence each. An intact Trace has none.

        Each table is compared with its schema and with the row count in the manifest. The ranges, time order,
        durations, keys and references of rows are checked (`tracekit.tables.problems`). For each source file, the
        manifest must obey the accounting law (records = kept + rejected).

        Parameters
        ----------
        deep : bool
            Whether to also compare each file's SHA-256 with the manifest and decode every column of every row. If not,
            only the columns that rules use are read.
        memory_limit : str, optional
            Maximum memory, such as '2GB', that keys and joins may use before they spill to disk.
        """
        from tracekit.tables.problems import find_problems

        with self.database(memory_limit) as database, database.connect() as con:
            return find_problems(con, self.path, self.manifest, deep=deep)


open_trace = Trace.open
"""Same as `Trace.open`, under the name that users look for first."""


def _manifest_of(folder: Path) -> Manifest:
    """Return the manifest of the Trace in a folder, after checking its schema version."""
    if not is_trace(folder):
        what = "is not a Trace: it has no manifest.json" if folder.is_dir() else "no such Trace"
        raise TraceError(what, where=folder, hint="make one with 'tracekit ingest SRC -o TRACE'")
    if not is_text(str(folder)):
        what = "its path is not UTF-8, which Parquet readers require"
        raise TraceError(what, where=folder, hint="rename the folder")
    manifest = Manifest.read(folder / MANIFEST_NAME, schema.READABLE_VERSIONS)
    unknown = [name for name in manifest.tables if name not in schema.COMMON_TABLES]
    if unknown:
        raise TraceError(
            f"its manifest lists a table '{shorten(unknown[0])}' that this tracekit does not know",
            where=folder,
            hint="update tracekit, or ingest the source again",
        )
    require_paths(folder, manifest.tables)
    return manifest


def _limited(trace: Trace, limits: Window) -> Trace:
    """Return the Trace with other limits, after checking that it contains their cluster and values."""
    if limits.cluster is not None and limits.cluster not in (names := _cluster_names(trace)):
        pools = {pool.name: pool for pool in trace.pools if pool.divides}
        if limits.cluster not in pools:
            raise UsageError(
                f"the trace has no cluster '{shorten(limits.cluster)}'",
                where="--cluster-name",
                hint=nearest(limits.cluster, (*names, *pools), of_log=True),
            )
        pool = pools[limits.cluster]
        limits = replace(limits, cluster=pool.cluster, partitions=pool.values, machines=pool.nodes)
    for column, value in limits.where:
        if column != SIZE:
            _require_value(trace, column, value, limits)
    return replace(trace, limits=replace(limits, machines=_own_machines(trace, limits)))


def _own_machines(trace: Trace, limits: Window) -> tuple[str, ...] | None:
    """Return the nodes of the selected partition, or the given machines if no partition is selected."""
    name = dict(limits.where).get("partition")
    if name is None or limits.machines is not None:
        return limits.machines
    pools = [pool for pool in trace.pools if name in pool.partitions and limits.cluster in (None, pool.cluster)]
    # Observed nodes of a partition are a lower bound, but those of a separate pool are complete.
    known = [pool for pool in pools if pool.apart or not pool.observed]
    nodes = {node for pool in known for node in (pool.nodes if pool.observed else pool.partitions[name])}
    return tuple(sorted(nodes)) if nodes and len(known) == len(pools) else None


def _require_value(trace: Trace, column: str, value: str, limits: Window) -> None:
    """Reject a value that no job of the Trace has. Check the selected jobs first: they are fewer."""
    import polars as pl

    for among in dict.fromkeys((replace(limits, where=()), EVERYTHING)):
        part = replace(trace, limits=among, tenant_column=INGESTED)
        if not part.has("jobs"):
            break
        having = part.scan("jobs").select((pl.col(column) == value).any())
        if having.collect(engine="streaming").item():
            return
    whole = replace(trace, limits=EVERYTHING, tenant_column=INGESTED)
    known: list[str] = []
    if whole.has("jobs"):
        names = whole.scan("jobs").select(pl.col(column).drop_nulls().unique().sort())
        known = names.collect(engine="streaming").to_series().to_list()
    shown = ", ".join(shorten(name) for name in known[:_SHOWN_VALUES])
    more = f" and {count(len(known) - _SHOWN_VALUES)} more" if len(known) > _SHOWN_VALUES else ""
    everyone = f"it has {shown}{more}" if known else f"it has no job with a known {column}"
    raise UsageError(
        f"no job of the trace has the {column} '{shorten(value)}'",
        where="--where",
        hint=nearest(value, known, otherwise=everyone, of_log=True),
    )


def _cluster_names(trace: Trace) -> tuple[str, ...]:
    """Return the names of all clusters, from the manifest if jobs are partitioned."""
    partitions = trace.manifest.tables["jobs"].partitions if trace.has("jobs") else None
    if partitions is None:
        return replace(trace, limits=EVERYTHING, by_pool=False).clusters
    return tuple(sorted({p.cluster for p in partitions if p.cluster is not None}))


def _require_tables(trace: Trace, *, partitions_only: bool = False) -> None:
    """Reject a missing table, or one whose columns differ from its schema."""
    files: dict[str, list[Path]] = {}
    for table in trace.tables:
        if trace.manifest.tables[table].partitions is not None:
            # Unreadable partitions are skipped if the user allows it.
            faults = (
                (partition_fault(trace.path, p) for p in trace.partitions(table)) if not trace.allow_missing else ()
            )
            if (fault := next(filter(None, faults), None)) is not None:
                hint = "ingest the source again, or use the remaining data with --allow-missing"
                raise DamagedTraceError(fault, where=trace.path, hint=hint)
        elif partitions_only:
            continue
        elif not trace.files(table)[0].is_file():
            raise DamagedTraceError(f"the table {table} is missing", where=trace.path, hint="ingest the source again")
        files[table] = list(trace.files(table))
    if not files:
        return
    if is_remote(trace.path):
        with trace.database() as database, database.connect() as con:
            require_footers(con, files, trace.manifest.schema_version)
    else:
        _require_footers_once(trace.manifest.schema_version, tuple(_states(files)))


def _pools_of(trace: Trace) -> tuple[Pool, ...]:
    """Return the pools of a whole Trace. They are computed once until one of its files is rewritten."""
    needed = [table for table in ("jobs", "nodes", "placements") if trace.has(table)]
    if is_remote(trace.path):
        return _found_pools(trace)
    return _pools_once(_Same(trace, tuple(_states({table: trace.files(table) for table in needed}))))


@dataclass(frozen=True)
class _Same:
    """A Trace that equals another one with the same files."""

    trace: Trace = field(compare=False)
    states: tuple[_State, ...]


@lru_cache(maxsize=100)
def _pools_once(same: _Same) -> tuple[Pool, ...]:
    return _found_pools(same.trace)


def _found_pools(trace: Trace) -> tuple[Pool, ...]:
    with trace.connect() as con:
        for table in ("nodes", "placements"):
            if not trace.has(table):
                columns = ", ".join(f'"{c.name}" {c.sql}' for c in schema.common(table).columns)
                con.execute(f"CREATE TABLE {table} ({columns})")
        return find_pools(con)


@lru_cache(maxsize=1000)
def _require_footers_once(version: str, states: tuple[_State, ...]) -> None:
    """Check these files only once until they are rewritten: the check takes longer than the rest of opening."""
    files: dict[str, list[Path]] = {}
    for table, path, *_ in states:
        files.setdefault(table, []).append(path)
    with Database() as database, database.connect() as con:
        require_footers(con, files, version)


def _states(tables: Mapping[str, Sequence[Path]]) -> Iterator[_State]:
    for table, files in tables.items():
        for path in files:
            found = path.stat()
            yield table, path, found.st_ino, found.st_size, found.st_mtime_ns


def home_of(path: Path) -> Path | None:
    """Return the Trace at `path`, or the one in the output of 'tracekit analyze' at `path`, or None."""
    return next((home for home in (path, path / "trace") if is_trace(home)), None)


def is_trace(path: Path) -> bool:
    """Restore a folder that a killed run was replacing, and return whether `path` has a manifest.json."""
    if not is_remote(path):
        recover(path, MANIFEST_NAME, _REPORT)
        if not path.parent.exists():
            recover(path.parent, _REPORT)
    return (path / MANIFEST_NAME).is_file()
