"""GPUs that the accounting database does not record.

Without `AccountingStorageTRES=gres/gpu` in slurm.conf AllocTRES lists no GPUs, and nothing in a record tells a job on a
GPU node from one without. What shows it is a command line that asked for GPUs, or a partition named after GPUs in a
cluster that lists none at all. The GPUs of such runs are unknown, unless the option gpus_from says where to take them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.derived import most_held

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["check_gpus_from", "find_unlisted_gpus"]

_CURE = "set AccountingStorageTRES=gres/gpu in slurm.conf for the jobs to come"
_NAMED = "gpu|dgx|hgx|rtx|tesla|gh200|(^|[^a-z0-9])([abhpv][0-9]{2,3}|l40s?|mi[0-9]{3})([^a-z0-9]|$)"
"""Partitions named after GPUs."""

_UNLISTED = f"""
CREATE TABLE unlisted AS
SELECT ord, coalesce("partition", '') AS "partition", cluster, node_count, asked_gpus, gpu_count FROM part
WHERE has_tres AND start_local IS NOT NULL AND gpu_count = 0 AND (
    (asked_gpus > 0 AND component IS NULL)
    OR (regexp_matches("partition", '{_NAMED}', 'i')
        AND cluster NOT IN (SELECT cluster FROM part WHERE gpu_count > 0)))"""

# The typical node of a partition: the number of GPUs that most of the nodes have on which its jobs ran, where single
# jobs, which need no assumption, show how many were held at once.
_TYPICAL = f"""
CREATE TABLE typical AS
WITH alone AS (
    SELECT cluster || '/' || node_list[1] AS node_id, gpu_count, "start", "end" FROM part
    WHERE len(node_list) = 1 AND gpu_count > 0),
held AS ({most_held("alone", '"start"', '"end"')}),
used AS (
    SELECT DISTINCT cluster, "partition", cluster || '/' || node AS node_id
    FROM (SELECT cluster, "partition", unnest(node_list) AS node FROM part WHERE start_local IS NOT NULL))
SELECT cluster, "partition", mode(gpu_count ORDER BY gpu_count) AS gpus FROM used JOIN held USING (node_id)
GROUP BY cluster, "partition" """


def check_gpus_from(text: str) -> dict[str, int] | None:
    """Return the value of the option gpus_from: GPUs of a node [GPUs] by partition, or None for a named source.

    Raises
    ------
    UsageError
        The text is neither 'listed' nor 'partition' nor a list like gpu:4,dgx:8.
    """
    if text in {"listed", "partition"}:
        return None
    parts = [re.fullmatch(r"([^:,\s]+):(\d{1,4})", part) for part in text.split(",")]
    if not all(parts):
        hint = "give listed, partition, or the GPUs of a node by partition, like gpu:4,dgx:8"
        raise UsageError(f"'{text[:80]}' is not a source of GPU counts", where="--option gpus_from", hint=hint)
    return {match[1]: int(match[2]) for match in parts if match}


def find_unlisted_gpus(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Set `gpu_count` [GPUs] of runs whose GPUs the database does not record, and count these runs.

    The value is NULL with gpus_from=listed. Otherwise it is the number that the command requests, or the number of
    nodes times the GPUs of a node of the partition.

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        Has the table `part` with one row a run (or component of one), which this function updates.
    sink : Sink
        Has the options, and receives checks and notes.

    Raises
    ------
    UsageError
        The option gpus_from has no meaning.
    """
    con.execute(_UNLISTED)
    count = int(con.execute("SELECT count(*) FROM unlisted").fetchall()[0][0])
    chosen = sink.options["gpus_from"]
    stated = check_gpus_from(chosen)
    if count and chosen != "listed":
        con.execute(_TYPICAL if stated is None else "CREATE TABLE typical (cluster TEXT, partition TEXT, gpus BIGINT)")
        if stated:
            con.executemany(
                "INSERT INTO typical SELECT DISTINCT cluster, ?, ? FROM part", [list(pair) for pair in stated.items()]
            )
        con.execute(
            """UPDATE unlisted SET gpu_count = coalesce(asked_gpus, node_count * (
                SELECT t.gpus FROM typical t WHERE t.cluster = unlisted.cluster AND t."partition" = unlisted."partition"
            ))"""
        )
    else:
        con.execute("UPDATE unlisted SET gpu_count = NULL")
    con.execute("UPDATE part SET gpu_count = u.gpu_count FROM unlisted u WHERE part.ord = u.ord")
    run_checks(con, sink, _CHECKS)
    if count:
        unknown = int(con.execute("SELECT count(*) FROM unlisted WHERE gpu_count IS NULL").fetchall()[0][0])
        found = (
            f"{count - unknown} of them have what their command asked for, else whole nodes of their partition"
            if chosen != "listed"
            else "--option gpus_from=partition, or gpus_from=PARTITION:GPUS, takes them from the partition's nodes"
        )
        sink.note(
            f"{count} runs in GPU partitions do not list GPUs, and {unknown} have an unknown number: {_CURE}; {found}"
        )


_CHECKS = (
    SqlCheck(
        "gpus_not_listed",
        f"runs that asked for GPUs or ran in a partition named after them, whose AllocTRES lists none; {_CURE}",
        "SELECT p.job_id FROM unlisted u JOIN part p USING (ord)",
        "part WHERE start_local IS NOT NULL",
    ),
    SqlCheck(
        "gpus_assumed",
        "runs without listed GPUs, taken from the command or the nodes of the partition (option gpus_from)",
        "SELECT p.job_id FROM unlisted u JOIN part p USING (ord) WHERE u.gpu_count IS NOT NULL",
        "part WHERE start_local IS NOT NULL",
    ),
)
