"""Complete the tables of a log with the machine files next to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.companion import LISTS, companions
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.machines._rows import EVENT, HELD, MACHINE, RecordReader
from tracekit.ingest.node_events import match_machines
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import Sink


_NAMED = """SELECT node_id, min(cluster) AS cluster
FROM placements LEFT JOIN (SELECT job_id, cluster FROM jobs) USING (job_id) GROUP BY node_id"""

_NODE_CHECKS = (
    SqlCheck(
        "machines_not_listed",
        "machines with jobs that are missing from the machine list; their GPU count is the largest number "
        "allocated at one time",
        "SELECT node_id FROM known ANTI JOIN listed USING (node_id)",
        "known",
    ),
    SqlCheck(
        "jobs_above_listed",
        "machines with more GPUs allocated at one time than the machine list shows; the list is used (if a run is "
        "requeued after its end, Slurm records the requeue as its end, so it overlaps later runs)",
        """SELECT node_id || ': listed ' || l.gpu_count || ', held ' || h.gpu_count
        FROM listed l JOIN most_held h USING (node_id) WHERE h.gpu_count > l.gpu_count""",
        "listed",
    ),
)

# If the list has no number of GPUs, it comes from the log or is the most GPUs that jobs used at once.
_NODES = """SELECT node_id, coalesce(l.cluster, k.cluster, $only) AS cluster, k.vc,
       CASE WHEN l.gpu_count IS NOT NULL THEN l.gpu_count
            WHEN $from_jobs THEN h.gpu_count ELSE coalesce(k.gpu_count, h.gpu_count) END AS gpu_count,
       coalesce(l.gpu_model, k.gpu_model) AS gpu_model,
       coalesce(l.gpu_memory_gib, k.gpu_memory_gib) AS gpu_memory_gib,
       coalesce(l.cpu_count, k.cpu_count) AS cpu_count, coalesce(l.memory_gib, k.memory_gib) AS memory_gib,
       coalesce(l.rack, k.rack) AS rack, coalesce(l.partitions, k.partitions) AS partitions,
       coalesce(l.features, k.features) AS features,
       CASE WHEN l.gpu_count IS NULL THEN k.source ELSE l.source END AS source
FROM known k FULL JOIN listed l USING (node_id) LEFT JOIN most_held h USING (node_id)
ORDER BY k.row NULLS LAST, node_id"""


def attach_known(con: duckdb.DuckDBPyConnection, sink: Sink) -> list[tuple[Any, ...]]:
    """Create views of the log's tables and the most_held and known tables, and return the known machines.

    A machine is known if the log's nodes contain it or a job ran on it.
    """
    sink.attach(con, "jobs", "placements", "nodes")
    con.execute(f"CREATE TABLE most_held AS {shown_gpus('placements')}")
    con.execute(
        f"""CREATE TABLE known AS SELECT *, row_number() OVER () AS row FROM nodes
        UNION ALL BY NAME
        SELECT *, NULL::BIGINT AS row FROM ({_NAMED}) ANTI JOIN nodes USING (node_id)"""
    )
    return con.execute("SELECT node_id, cluster FROM known").fetchall()


def write_nodes(con: duckdb.DuckDBPyConnection, listed: pl.DataFrame, sink: Sink, *, from_jobs: bool) -> None:
    """Write the listed machines, and the machines that only the log names.

    Parameters
    ----------
    con : DuckDB connection
        See `attach_known`.
    listed : DataFrame
        One row per node_id, with the columns of MACHINE and `source`. Empty if there is no list.
    from_jobs : bool
        Whether the log lists no machines. A machine named by jobs then has the most of its GPUs used at once.
    """
    con.register("listed", listed)
    if listed.height:
        run_checks(con, sink, _NODE_CHECKS)
    clusters = [row[0] for row in con.execute("SELECT DISTINCT cluster FROM jobs WHERE cluster IS NOT NULL").fetchall()]
    con.execute("SET VARIABLE only_cluster = $1", [clusters[0] if len(clusters) == 1 else None])
    query = _NODES.replace("$only", "getvariable('only_cluster')").replace("$from_jobs", str(from_jobs))
    sink.rewrite("nodes", con, query)
    if listed.is_empty():
        return
    others = con.execute("SELECT count(*) FROM known ANTI JOIN listed USING (node_id)").fetchall()[0][0]
    sources = " and ".join(sorted(listed["source"].unique().to_list()))
    more = f", {others} more named only by {'jobs' if from_jobs else 'the log'}" if others else ""
    sink.note(f"{counted(listed.height, 'machines')} listed by {sources}{more}")


# A run with as many GPUs as its nodes together has all of them, so its GPUs on each node are known.
_WHOLE = """CREATE TABLE whole AS
SELECT p.row, l.gpu_count
FROM placed p
JOIN listed l USING (node_id)
JOIN ran a USING (job_id, attempt)
JOIN (
    SELECT job_id, attempt, count(*) AS parts, sum(l.gpu_count) AS gpus
    FROM placed p LEFT JOIN listed l USING (node_id)
    GROUP BY job_id, attempt
    HAVING count(p.gpu_count) = 0 AND count(DISTINCT node_id) = count(*) AND count(l.gpu_count) = count(*)) w
USING (job_id, attempt)
WHERE w.parts > 1 AND w.gpus = a.gpu_count"""


def fill_whole_nodes(con: duckdb.DuckDBPyConnection, listed: pl.DataFrame, sink: Sink) -> None:
    """Use the list of machines to fill in unknown GPUs of placements on nodes that a run had as a whole.

    Parameters
    ----------
    con : DuckDB connection
        An empty database.
    listed : DataFrame
        One row per node_id, with its GPUs.
    """
    con.register("listed", listed)
    con.execute(f"CREATE VIEW placed AS SELECT *, file_row_number AS row FROM {sink.rows('placements')}")
    con.execute(f"CREATE VIEW ran AS SELECT * FROM {sink.rows('attempts')}")
    con.execute(_WHOLE)
    (filled,) = con.execute("SELECT count(*) FROM whole").fetchall()[0]
    if filled:
        sink.note(f"the list of machines shows the GPUs of {filled:,} parts of runs that had all GPUs of their nodes")
        sink.rewrite(
            "placements",
            con,
            """SELECT p.* REPLACE (coalesce(p.gpu_count, w.gpu_count) AS gpu_count)
            FROM placed p LEFT JOIN whole w USING (row) ORDER BY row""",
        )


def write_events(happened: pl.DataFrame, sink: Sink) -> None:
    """Write the events in machine files and in the log, each once.

    Dumps overlap, so we use an event's last row with an end, or else its last row.

    Parameters
    ----------
    happened : DataFrame
        The columns of node_events, `kind`, and `rank`, which is the file's number among all files.
    """
    path = sink.path("node_events")
    if sink.has("node_events"):
        own = pl.read_parquet(path).with_columns(rank=pl.lit(-1, dtype=pl.Int64))
        happened = pl.concat([own, happened], how="diagonal_relaxed")
    once = (
        happened.sort(pl.col("end_time").is_not_null(), "rank", maintain_order=True)
        .unique(["node_id", "start_time", "state"], keep="last", maintain_order=True)
        .sort("node_id", "start_time", "state", "source")
    )
    path.unlink(missing_ok=True)
    sink.write("node_events", once.select(schema.common("node_events").names))
    sink.writer.drain()
    still = once["end_time"].null_count()
    sources = " and ".join(sorted(once["source"].drop_nulls().unique().to_list()))
    on = once["node_id"].n_unique()
    going = f", {still} of which continue" if still else ""
    sink.note(f"{counted(once.height, 'events')} of {counted(on, 'machines')} from {sources}{going}")


def still_shown(happened: pl.DataFrame, listed: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Remove states from machine lists if a later list of the same kind no longer shows them.

    Such a state has ended, but we do not know when.
    """
    newest = listed.group_by("kind", "node_id").agg(pl.col("rank").max().alias("newest"))
    shown = happened.join(newest, on=["kind", "node_id"], how="left", maintain_order="left").with_columns(
        last=pl.col("rank").max().over("kind", "node_id", "start_time", "state")
    )
    over = shown["source"].is_in(LISTS) & (shown["last"] < shown["newest"]).fill_null(value=False)
    if over.any():
        gone = shown.filter(over).unique(["node_id", "start_time", "state"], maintain_order=True)
        sink.check(
            "states_that_ended",
            gone.height,
            None,
            "machine states that a later list no longer shows; ignored, because their end is unknown (sacctmgr show "
            "event shows it)",
            gone["node_id"],
        )
    return shown.filter(~over).drop("newest", "last")


# Find each placement's GPUs from samples of running jobs.
#
# `sacct` gives only a run's nodes and total GPUs, so an even split is a guess. A sample shows the GPUs on each node and
# can fill in or correct a placement.

_SHORT = r"""CASE WHEN regexp_matches(split_part(regexp_extract({0}, '[^/]*$'), '.', 1), '[A-Za-z]')
     THEN split_part(regexp_extract({0}, '[^/]*$'), '.', 1) ELSE regexp_extract({0}, '[^/]*$') END"""
"""A machine's name without its cluster and domain."""

_STEPS = (
    f"""CREATE TABLE sample AS
    SELECT row_number() OVER () AS n, CASE WHEN array_job IS NULL THEN [job] ELSE [job, array_job] END AS names, task,
           {_SHORT.format("host")} AS short, gpu_count, gpu_index, time
    FROM (SELECT DISTINCT * FROM held WHERE time IS NOT NULL)""",
    rf"""CREATE TABLE place AS
    SELECT row, job_id, regexp_extract(job_id, '^(?:.*/)?([^/#]+)(?:#\d+)?$', 1) AS name, task,
           {_SHORT.format("node_id")} AS short, start_time, end_time
    FROM placed WHERE instance IS NULL""",
    """CREATE TABLE sight AS
    SELECT s.n, s.gpu_count, s.gpu_index, s.time, p.row, p.job_id,
           count(DISTINCT p.job_id) OVER (PARTITION BY s.n) AS jobs
    FROM (SELECT *, unnest(names) AS name FROM sample) s
    JOIN place p ON s.name = p.name AND s.short = p.short AND s.task IS NOT DISTINCT FROM p.task
         AND p.start_time <= s.time AND (p.end_time >= s.time OR p.end_time IS NULL)
    QUALIFY row_number() OVER (
        PARTITION BY s.n, p.job_id
        ORDER BY (p.end_time IS NULL OR p.end_time > s.time) DESC, p.start_time DESC, p.row) = 1""",
    """CREATE TABLE seen AS
    SELECT row, arg_max(gpu_count, row(time, n)) AS gpu_count, arg_max_null(gpu_index, row(time, n)) AS gpu_index,
           count(DISTINCT gpu_count) > 1 AS changed
    FROM sight WHERE jobs = 1 GROUP BY row""",
)

_CHECKS = (
    SqlCheck(
        "samples_without_run",
        "samples of allocated GPUs whose job did not run on that machine at that time, according to the log; ignored",
        """SELECT DISTINCT names[1] || ' on ' || short FROM sample s ANTI JOIN sight g ON s.n = g.n""",
        "sample",
    ),
    SqlCheck(
        "samples_of_several_jobs",
        "samples of allocated GPUs that match jobs of several clusters; ignored",
        "SELECT DISTINCT job_id FROM sight WHERE jobs > 1",
        "sample",
    ),
    SqlCheck(
        "gpus_split_unevenly",
        "parts of runs whose GPUs on a machine differ from an even split; the samples are used",
        "SELECT p.job_id || ' on ' || p.node_id FROM seen s JOIN placed p USING (row) WHERE p.gpu_count <> s.gpu_count",
        "seen",
    ),
    SqlCheck(
        "held_gpus_changed",
        "parts of runs whose samples show several numbers of GPUs; the last is used",
        "SELECT p.job_id || ' on ' || p.node_id FROM seen s JOIN placed p USING (row) WHERE s.changed",
        "seen",
    ),
    SqlCheck(
        "held_gpus_differ",
        "runs seen on all of their machines whose GPUs add up to a different number than in the log",
        """SELECT job_id || ': ' || sum(s.gpu_count) || ' seen, ' || any_value(a.gpu_count) || ' in the log'
        FROM placed p LEFT JOIN seen s USING (row) JOIN ran a USING (job_id, attempt)
        GROUP BY job_id, attempt
        HAVING count(*) = count(s.row) AND abs(sum(s.gpu_count) - any_value(a.gpu_count)) > 1e-6""",
        "(SELECT DISTINCT job_id, attempt FROM placed JOIN seen USING (row))",
    ),
)


def complete_placements(con: duckdb.DuckDBPyConnection, held: Path, sink: Sink) -> None:
    """Set each placement's GPUs to the GPUs in samples.

    Parameters
    ----------
    con : DuckDB connection
        An empty database.
    held : Path
        Samples with the columns of HELD.
    """
    if not sink.has("placements", "attempts"):
        sink.note("samples of allocated GPUs are ignored, because the log does not record which machines jobs ran on")
        return
    con.execute(f"CREATE VIEW held AS SELECT * FROM read_parquet({sql_text(held)})")
    con.execute(f"CREATE VIEW placed AS SELECT *, file_row_number AS row FROM {sink.rows('placements')}")
    con.execute(f"CREATE VIEW ran AS SELECT * FROM {sink.rows('attempts')}")
    for step in _STEPS:
        con.execute(step)
    run_checks(con, sink, _CHECKS)
    parts, filled = con.execute(
        "SELECT count(*), count(*) FILTER (WHERE p.gpu_count IS NULL) FROM seen s JOIN placed p USING (row)"
    ).fetchall()[0]
    sink.note(
        f"samples of running jobs show the GPUs of {parts} parts of runs on a machine, "
        f"{filled} of which had an unknown number"
    )
    if parts:
        sink.rewrite(
            "placements",
            con,
            """SELECT p.* REPLACE (coalesce(s.gpu_count, p.gpu_count) AS gpu_count,
                                   coalesce(p.gpu_index, s.gpu_index) AS gpu_index)
            FROM placed p LEFT JOIN seen s USING (row) ORDER BY row""",
        )


_ORDER = ("kubernetes-nodes", "sinfo", "slurm-json", "scontrol", "sacctmgr", "scontrol-jobs")
"""Kinds in reading order. For each column of a machine, later kinds win."""

_SOURCES = {"kubernetes-nodes": "kubernetes", "slurm-json": "sinfo"}
"""The value of nodes.source for a machine list, if it differs from the name of its kind."""

_AMBIGUOUS = "names in machine files that match several machines of the log; ignored"

_FILE = {"kind": pl.String(), "rank": pl.Int64()}
"""The kind of a row's file, and the file's number among all files."""


def complete_machines(
    files: dict[str, list[SourceFile]], frame: TimeFrame, sink: Sink, *, from_jobs: bool = False
) -> None:
    """Read the machine files, and complete nodes, node_events and placements with them.

    If several lists contain a machine, the last one counts, by kind and then by path.

    Parameters
    ----------
    from_jobs : bool
        Whether the log has only the machines named by jobs, each with the most of its GPUs used at once.

    Raises
    ------
    SourceError
        A file does not have its detected kind.
    """
    found = {"machine": [pl.DataFrame(schema=MACHINE | _FILE)], "event": [pl.DataFrame(schema=EVENT | _FILE)]}
    held = sink.stage("held", _read(files, frame, sink, found))
    listed, happened = (pl.concat(frames) for frames in found.values())
    dated = frame.base == "absolute"
    if not dated:
        sink.note(f"the log's times are {frame.base}, so we ignore the times in machine files")
        happened = happened.clear()
    with sink.connect() as con:
        if held is not None and dated:
            complete_placements(con, held, sink)
    with sink.connect() as con:
        known = attach_known(con, sink)
        named = pl.concat([listed.select("host", "cluster"), happened.select("host", "cluster")]).unique()
        ids = match_machines(known, named, sink, "ambiguous_machines", _AMBIGUOUS)
        listed, happened = (
            rows.join(ids, on=["host", "cluster"], nulls_equal=True, maintain_order="left")
            for rows in (listed, happened)
        )
        happened = still_shown(happened, listed, sink)
        if "sacctmgr" in files:
            # sacctmgr lists the same events with their ends.
            shown = happened["source"].is_in(LISTS)
            if shown.any():
                sink.note(f"states in machine lists are ignored ({shown.sum()}), because sacctmgr lists the events")
            happened = happened.filter(~shown)
        # Samples may show more GPUs on a machine than an even split would.
        machines = _one_list(listed, sink)
        if listed.height or (from_jobs and held is not None and known):
            write_nodes(con, machines, sink, from_jobs=from_jobs)
        if happened.height:
            write_events(happened, sink)
    if listed.height and sink.has("placements", "attempts"):
        with sink.connect() as con:
            fill_whole_nodes(con, machines, sink)


def _read(
    files: dict[str, list[SourceFile]], frame: TimeFrame, sink: Sink, found: dict[str, list[pl.DataFrame]]
) -> Iterator[pl.DataFrame]:
    """Yield the GPUs of jobs, and add machines and events to `found`."""
    number = 0
    for kind in sorted(files, key=lambda name: _ORDER.index(name) if name in _ORDER else -1):
        reader = cast("RecordReader", companions("machines")[kind])
        for file in files[kind]:
            number += 1
            origin = {"kind": pl.lit(kind), "rank": pl.lit(number, dtype=pl.Int64)}
            with sink.opened(file) as opened:
                for name, rows in reader.read(opened, frame):
                    if name == "held":
                        yield rows.select(list(HELD))
                    elif rows.height:
                        found[name].append(rows.with_columns(**origin))


def _one_list(listed: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Return one row per machine with the last known value of each column."""
    if listed.is_empty():
        return pl.DataFrame(schema={"node_id": pl.String, **MACHINE, "source": pl.String}).drop("host")
    several = listed.group_by("node_id").agg(pl.col("gpu_count").drop_nulls().n_unique().alias("counts"))
    differ = several.filter(pl.col("counts") > 1)["node_id"].sort()
    sink.check(
        "machine_lists_differ",
        differ.len(),
        several.height,
        "machines with different numbers of GPUs in several lists; the last list is used",
        differ,
    )
    source = pl.col("kind").replace(_SOURCES).filter(pl.col("gpu_count").is_not_null()).last()
    return (
        listed.sort("rank", maintain_order=True)
        .group_by("node_id", maintain_order=True)
        .agg(
            *(pl.col(name).drop_nulls().last() for name in MACHINE if name not in {"host", "partitions"}),
            _of_last_list("partitions"),
            source=pl.coalesce(source, pl.col("kind").replace(_SOURCES).last()),
        )
        .sort("node_id")
    )


def _of_last_list(name: str) -> pl.Expr:
    """Return the words of a list column from the last file that has them. A file may have several rows per machine."""
    known = pl.col(name).is_not_null()
    words = pl.col(name).filter(known & (pl.col("rank") == pl.col("rank").filter(known).max()))
    return (
        pl.when(known.any())
        .then(words.list.explode(keep_nulls=False).drop_nulls().unique().sort().implode())
        .alias(name)
    )
