"""Jobs whose records lie in several exports, as a file a day gives them: what each export says is combined.

A record of a later day may say little: Torque's D names the job alone. So what a newer export does not know of a job is
filled from the Trace before the runs of both are combined, by the rules that `_slurm_append` states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.ingest.formats._slurm_append import merge_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

__all__ = ["merge_records"]

# What tells how far the job has come is each export's own.
_OWN = ("job_id", "status", "source_status", "start_time", "end_time", "queue_s", "run_s", "attempt_count")


def merge_records(con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:  # noqa: ARG001 -- as merge_jobs calls it
    """Combine both exports; `tracekit.ingest.merge_jobs` lists the tables it creates."""
    filled = ", ".join(
        f'coalesce(n."{c.name}", o."{c.name}") AS "{c.name}"'
        for c in schema.common("jobs").columns
        if c.name not in _OWN
    )
    con.execute(
        f"""CREATE OR REPLACE VIEW both_jobs AS
        SELECT * FROM old_jobs
        UNION ALL BY NAME SELECT n.* REPLACE ({filled}) FROM new_jobs n LEFT JOIN old_jobs o ON n.job_id = o.job_id"""
    )
    merge_runs(con, {"queue_from": "submit"})
