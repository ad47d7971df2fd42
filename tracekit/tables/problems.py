"""Find problems in a Trace: check its files against the manifest and the schema, and its rows against the rules.

DuckDB streams the rows and spills to disk, so memory use is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit import schema
from tracekit.errors import DamagedTraceError, logged
from tracekit.manifest import CAPABILITIES
from tracekit.places import failure_behind, is_remote
from tracekit.tables.parquet import NO_YEAR, checksum, columns_sql, files_sql, footers_faults, read_through
from tracekit.tables.partition_problems import partition_problems
from tracekit.tables.partitions import JOB_TABLES, key_sql, table_files
from tracekit.text import counted, shorten
from tracekit.timezones import is_known_zone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Manifest
    from tracekit.schema import Column, TableSchema


# The rules for a Trace's rows, as SQL that finds rows that break them. The rules for single columns and rows come from
# `schemas/common/`. The rules between rows and tables are defined in this module. A rule does not apply to a row in
# which any of the rule's values is NULL.

LARGEST_SLIP_S = 0.001
"""Maximum difference between a duration and its times, caused by rounding to microseconds and by floats [s]."""


@dataclass(frozen=True)
class TableRule:
    """One rule for the rows of a table."""

    broken: str
    """What is wrong, followed by 'in N rows'."""
    found: str
    """SQL condition that is true for a row that breaks the rule."""


@dataclass(frozen=True)
class Relation:
    """A table's rows, joined with the rows that they must agree with."""

    table: str
    """The table whose rows break the rules."""
    needs: tuple[str, ...]
    """Other tables that the relation reads."""
    sql: str
    """SQL text after FROM. The table itself is called t."""
    rules: tuple[TableRule, ...]


def rules_of(table: str, options: Mapping[str, str]) -> tuple[TableRule, ...]:
    """Return the rules for a table's single columns and rows in a Trace ingested with `options`."""
    spec = schema.common(table)
    of_columns = [rule for column in spec.columns for rule in _column_rules(column)]
    of_rows = [
        TableRule(rule.broken, f"NOT ({rule.holds})")
        for rule in spec.rules
        if not (rule.unless and _ingested(options, rule.unless)) and (not rule.only or _ingested(options, rule.only))
    ]
    return (*of_columns, *of_rows)


def _ingested(options: Mapping[str, str], option: str) -> bool:
    name, _, value = option.partition("=")
    return options.get(name) == value


def _column_rules(column: Column) -> list[TableRule]:
    name = f'"{column.name}"'
    rules = []
    if column.required:
        rules.append(TableRule(f"no {column.name}", f"{name} IS NULL"))
    if column.enum:
        words = ", ".join(f"'{word}'" for word in column.enum)
        rules.append(TableRule(f"{column.name} not an allowed word", f"{name} NOT IN ({words})"))
    if column.kind == "number":
        # DuckDB treats NaN as larger than every number.
        rules.append(TableRule(f"{column.name} is not finite", f"NOT isfinite({name})"))
    if column.minimum is not None:
        rules.append(TableRule(f"{column.name} below {column.minimum:g}", f"{name} < {column.minimum:g}"))
    if column.maximum is not None:
        above = f"isfinite({name}) AND {name} > {column.maximum:g}"
        rules.append(TableRule(f"{column.name} above {column.maximum:g}", above))
    if column.kind == "datetime":
        outside = f"NOT isfinite({name}) OR {name} < '0001-01-01'::TIMESTAMP OR {name} >= '10000-01-01'::TIMESTAMP"
        rules.append(TableRule(f"{column.name} outside the years 1 to 9999", outside))
    return rules


def label_of(spec: TableSchema) -> str:
    """Return an SQL expression that identifies a row of the table `t` by its key, or else by its required columns."""
    names = spec.primary_key or tuple(c.name for c in spec.columns if c.required)
    parts = [f"'{name} ' || coalesce(t.\"{name}\"::VARCHAR, 'NULL')" for name in names]
    return " || ', ' || ".join(parts)


def _differs(duration: str, later: str, earlier: str) -> str:
    return f"abs({duration} - (epoch_us({later}) - epoch_us({earlier})) / 1e6) > {LARGEST_SLIP_S}"


def relations_between(options: Mapping[str, str]) -> tuple[Relation, ...]:
    """Return the rules between rows and tables of a Trace ingested with `options`."""
    # With queue_from=eligible, the first wait does not start at the submission.
    first_wait = (
        "t.wait_s > (epoch_us(t.start_time) - epoch_us(j.submit_time)) / 1e6 + 0.001"
        if _ingested(options, "queue_from=eligible")
        else _differs("t.wait_s", "t.start_time", "j.submit_time")
    )
    owners = tuple(
        Relation(
            child,
            ("jobs",),
            f"{child} t ANTI JOIN jobs j ON t.job_id = j.job_id",
            (TableRule("job_id not in jobs", "t.job_id IS NOT NULL"),),
        )
        for child in ("attempts", "placements", "job_usage", "failures")
    )
    return (
        *owners,
        Relation(
            "attempts",
            ("jobs",),
            "attempts t JOIN jobs j ON t.job_id = j.job_id",
            (
                TableRule("start_time before the job's submit_time", "t.start_time < j.submit_time"),
                TableRule(
                    "wait_s is not start_time minus the job's submit_time",
                    f"t.attempt = 0 AND {first_wait}",
                ),
            ),
        ),
        Relation(
            "attempts",
            (),
            "(SELECT * FROM attempts WHERE attempt > 0) t JOIN attempts p "
            "ON t.job_id = p.job_id AND t.attempt = p.attempt + 1",
            (
                TableRule("start_time before the previous attempt's end_time", "t.start_time < p.end_time"),
                TableRule(
                    "wait_s is not start_time minus the previous attempt's end_time",
                    _differs("t.wait_s", "t.start_time", "p.end_time"),
                ),
            ),
        ),
        Relation(
            "jobs",
            ("attempts",),
            """jobs t LEFT JOIN (
                SELECT job_id, count(*) AS attempts, arg_min_null(start_time, attempt) AS first_start,
                       arg_max_null(end_time, attempt) AS last_end
                FROM attempts GROUP BY job_id) a ON t.job_id = a.job_id""",
            (
                TableRule("attempt_count is not the number of attempts", "t.attempt_count <> coalesce(a.attempts, 0)"),
                TableRule("start_time is not the first attempt's", "t.start_time <> a.first_start"),
                TableRule("end_time is not the last attempt's", "t.end_time <> a.last_end"),
            ),
        ),
    )


def find_problems(con: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest, *, deep: bool) -> list[str]:
    """Return the problems in the Trace in `folder`, as one sentence each (see `tracekit.trace.Trace.validate`)."""
    return _Inspection(con, folder, manifest).problems(deep=deep)


class _Inspection:
    """One validation of a Trace."""

    def __init__(self, con: duckdb.DuckDBPyConnection, folder: Path, manifest: Manifest) -> None:
        self._con = con
        self._folder = folder
        self._manifest = manifest
        self._sound: set[str] = set()
        """Readable tables with unique keys; only these can be joined."""
        self._placed: list[str] = []
        """Readable tables that are partitioned."""
        self._footers: dict[str, tuple[str | None, str | None]] = {}
        """Faults in each table's footers (see `footers_faults`)."""

    def problems(self, *, deep: bool) -> list[str]:
        found = _manifest_problems(self._manifest)
        tables = [table for table in schema.COMMON_TABLES if table in self._manifest.tables]
        if not deep:  # a deep check first reads each table from beginning to end
            self._read_footers([table for table in tables if self._manifest.tables[table].partitions is None])
        for table in tables:
            found += self._table_problems(table, deep=deep)
        for relation in relations_between(self._manifest.options):
            if self._sound.issuperset((relation.table, *relation.needs)):
                found += self._relation_problems(relation)
        for table in self._placed:
            found += self._place_problems(table)
        return found + self._reject_problems()

    def _table_problems(self, table: str, *, deep: bool) -> list[str]:
        info, version = self._manifest.tables[table], self._manifest.schema_version
        files = table_files(self._folder, table, info.partitions)
        if info.partitions is not None:
            found = partition_problems(self._con, self._folder, table, info.partitions, version, deep=deep)
            return found or self._row_problems(table, files)
        if not files[0].is_file():
            return [f"the table {table} is missing"]
        if deep and is_remote(files[0]) and (size := files[0].stat().st_size) != info.bytes:
            return [f"the object {files[0]} has {counted(size, 'bytes')}, but the manifest says {info.bytes:,}"]
        found = []
        # This reads the whole file, so a store that returns too few bytes fails here.
        if deep and info.sha256 is not None and checksum(files[0]) != info.sha256:
            found.append(f"the file of {table} has changed: its SHA-256 differs from the manifest")
        if table not in self._footers:
            self._read_footers([table])
        fault, _ = self._footers[table]
        if fault is not None:
            return [fault]
        if deep:
            try:
                read_through(table, files, version)
            except DamagedTraceError as error:
                return [error.what, *found]
        return [*found, *self._row_problems(table, files)]

    def _read_footers(self, tables: Sequence[str]) -> None:
        """Read the footers of these tables at once. Tables with a missing file are left out."""
        infos = self._manifest.tables
        files = {table: table_files(self._folder, table, infos[table].partitions) for table in tables}
        there = {t: paths for t, paths in files.items() if infos[t].partitions is not None or paths[0].is_file()}
        self._footers |= footers_faults(self._con, there, self._manifest.schema_version)

    def _row_problems(self, table: str, files: Sequence[Path]) -> list[str]:
        import duckdb

        try:
            columns = columns_sql(table, self._manifest.schema_version)
            paths = [str(path) for path in files]
            self._con.read_parquet(paths, hive_partitioning=False).project(columns).create_view(table)
            rules = rules_of(table, self._manifest.options)
            query = f"SELECT count(*), count(*) FILTER (WHERE {_any(rules)}) FROM {table} t"
            rows, broken = self._con.execute(query).fetchall()[0]
            stated = self._manifest.tables[table].rows
            found = [] if rows == stated else [f"{table} has {counted(rows, 'rows')}, but the manifest says {stated:,}"]
            if broken:
                found += self._broken(table, f"{table} t", rules)
            if self._manifest.tables[table].partitions is not None:
                self._placed.append(table)
            repeated = self._repeated(table)
            if table not in self._footers:
                self._read_footers([table])
            _, column = self._footers[table]
            if column is not None and not any(f"{column} outside the years" in problem for problem in found):
                found.append(f"{table}: {column} {NO_YEAR} in a footer")
        except duckdb.Error as error:
            if (failure := failure_behind(error)) is not None:
                raise failure from error
            return [_unreadable(table, error)]
        if not repeated:
            self._sound.add(table)
        return [*found, *repeated]

    def _relation_problems(self, relation: Relation) -> list[str]:
        import duckdb

        try:
            # Checking whether any rule is broken is cheaper than counting how often each is.
            if not self._value(f"SELECT count(*) FROM {relation.sql} WHERE {_any(relation.rules)}"):
                return []
            return self._broken(relation.table, relation.sql, relation.rules)
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            if (failure := failure_behind(error)) is not None:
                raise failure from error
            return [_unreadable(relation.table, error)]

    def _place_problems(self, table: str) -> list[str]:
        """Return a sentence for each partition with rows that belong elsewhere."""
        known = "jobs" if table in JOB_TABLES else "nodes"
        if table != known and known in self._manifest.tables and known not in self._sound:
            return []  # the row's partition is unknown, which is already reported
        partitions = self._manifest.tables[table].partitions or []
        files = files_sql(table_files(self._folder, table, partitions))
        rows = f"(SELECT *, file_index::BIGINT + 1 AS part FROM read_parquet({files}, hive_partitioning = false))"
        nodes = "nodes" if "nodes" in self._manifest.tables else _NO_NODES
        query = f"""SELECT part, count(*) FROM ({key_sql(table, rows, jobs="jobs", nodes=nodes)})
        WHERE part_cluster IS DISTINCT FROM list_extract(?::VARCHAR[], part)
           OR part_day IS DISTINCT FROM list_extract(?::VARCHAR[], part)::DATE
        GROUP BY part ORDER BY part"""
        stated = [[p.cluster for p in partitions], [p.day for p in partitions]]
        return [
            f"the partition {partitions[part - 1].path} has {counted(count, 'rows')} of a different cluster or day"
            for part, count in self._con.execute(query, stated).fetchall()
        ]

    def _broken(self, table: str, relation: str, rules: tuple[TableRule, ...]) -> list[str]:
        """Return a sentence for each broken rule, with an example row."""
        counts = ", ".join(f"count(*) FILTER (WHERE {rule.found})" for rule in rules)
        found = []
        for rule, n in zip(rules, self._con.execute(f"SELECT {counts} FROM {relation}").fetchall()[0], strict=True):
            if n:
                # Naming a row costs more than finding it, so only rows that break a rule are named.
                label = label_of(schema.common(table))
                example = self._value(f"SELECT min({label}) FROM {relation} WHERE {rule.found}")
                found.append(_sentence(table, rule.broken, n, example))
        return found

    def _repeated(self, table: str) -> list[str]:
        key = schema.common(table).primary_key
        if not key:
            return []
        names = ", ".join(f'"{name}"' for name in key)
        groups = f"SELECT {names}, count(*) AS n FROM {table} GROUP BY {names} HAVING count(*) > 1"
        n, example = self._con.execute(
            f"SELECT coalesce(sum(n - 1), 0)::BIGINT, min({label_of(schema.common(table))}) FROM ({groups}) t"
        ).fetchall()[0]
        return [_sentence(table, f"repeated key ({', '.join(key)})", n, example)] if n else []

    def _reject_problems(self) -> list[str]:
        if "rejects" in self._manifest.tables and "rejects" not in self._sound:
            return []
        by_file: dict[str, int] = {}
        if "rejects" in self._sound:
            by_file = dict(
                self._con.execute("SELECT source_file, count(*) FROM rejects GROUP BY source_file").fetchall()
            )
        return [
            f"{_file(f.path)}: {f.rejected:,} rejected, but {counted(by_file.get(f.path, 0), 'rows')} in rejects"
            for f in self._manifest.files
            if f.rejected != by_file.get(f.path, 0)
        ]

    def _value(self, query: str) -> Any:
        return self._con.execute(query).fetchall()[0][0]


def _any(rules: Sequence[TableRule]) -> str:
    """Return the SQL condition that a row breaks any of the rules."""
    return " OR ".join(f"({rule.found})" for rule in rules)


_NO_NODES = "(SELECT NULL::VARCHAR AS node_id, NULL::VARCHAR AS cluster WHERE false)"


def _manifest_problems(manifest: Manifest) -> list[str]:
    found = [
        f"{_file(f.path)}: {counted(f.records, 'records')}, but {f.kept:,} kept + {f.rejected:,} rejected"
        for f in manifest.files
        if f.records != f.kept + f.rejected
    ]
    unstated = [name for name in CAPABILITIES if name not in manifest.capabilities]
    if unstated:
        found.append(f"the manifest does not say whether the Trace has {', '.join(unstated)}")
    for name, capability in manifest.capabilities.items():
        if capability.coverage is not None and not 0 <= capability.coverage <= 1:
            found.append(f"the manifest's coverage of {shorten(name)} is {capability.coverage:g}, not from 0 to 1")
    if not is_known_zone(manifest.timezone):
        found.append(f"the manifest has the unknown time zone '{shorten(manifest.timezone)}'")
    return found


def _file(path: str) -> str:
    return logged(shorten(path, 200))


def _unreadable(table: str, error: Exception) -> str:
    return f"the table {table} cannot be read: {' '.join(str(error).split())[:300]}"


def _sentence(table: str, broken: str, rows: int, example: object) -> str:
    such = ", such as" if rows > 1 else ":"
    return f"{table}: {broken} in {counted(rows, 'rows')}{such} {logged(shorten(str(example), 100))}"
