"""Which partitions of a Trace a newer export does not change, so that an append need not write them again.

A row may change where the export has a row of the same job, or the same sample; then the whole partition is written
again, and so is each one in which a row ends up. Everything else is as it was: partitions are left out of the merge,
and taken over as files.

To find them, ids, clusters and submissions of all jobs of the Trace are read, but no other column of what stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import JOB_TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Partition
    from tracekit.trace import Trace

_KEY = "cluster, strftime(submit_time::DATE, '%Y-%m-%d')"


def untouched_jobs(con: duckdb.DuckDBPyConnection, old: Trace) -> dict[str, list[Partition]]:
    """Return the partitions of tables of jobs that stay as they are, by table, after the rule for jobs has run."""
    if not old.has("jobs") or old.manifest.tables["jobs"].partitions is None:
        return {}
    named = " UNION ".join(f"SELECT job_id FROM new_{table}" for table in JOB_TABLES)
    changed = con.execute(
        f"""SELECT DISTINCT {_KEY} FROM new_jobs
        UNION SELECT {_KEY} FROM merged_jobs
        UNION SELECT {_KEY} FROM old_jobs
              SEMI JOIN ({named} UNION SELECT job_id FROM identity WHERE side = 0) USING (job_id)"""
    ).fetchall()
    # Rows whose job is not in the Trace lie where nothing is known; the export may bring their job.
    touched = {*changed, (None, None)}
    return {
        table: [p for p in info.partitions if (p.cluster, p.day) not in touched]
        for table, info in old.manifest.tables.items()
        if table in JOB_TABLES and info.partitions is not None
    }


def untouched_samples(con: duckdb.DuckDBPyConnection, old: Trace, table: str, nodes: Sequence[Path]) -> list[Partition]:
    """Return the partitions of a table of samples that stay; `nodes` are the files of the merged machines."""
    partitions = old.manifest.tables[table].partitions
    if partitions is None:
        return []
    merged = f"read_parquet({files_sql(nodes)})" if nodes else "old_nodes"
    # Samples of a machine whose cluster is another one than before lie elsewhere from now on.
    moved = con.execute(
        f"""SELECT DISTINCT o.cluster FROM {merged} n LEFT JOIN old_nodes o USING (node_id)
        WHERE o.cluster IS DISTINCT FROM n.cluster"""
    ).fetchall()
    changed = con.execute(
        f"""SELECT DISTINCT cluster, strftime(time::DATE, '%Y-%m-%d')
        FROM new_{table} LEFT JOIN {merged} n USING (node_id)"""
    ).fetchall()
    left, touched = {cluster for (cluster,) in moved}, set(changed)
    return [p for p in partitions if p.cluster not in left and (p.cluster, p.day) not in touched]
