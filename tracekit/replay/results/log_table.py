"""The event log of a replay as a table: log.parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


_NONE = -1


def log_table(jobs: Jobs, outcome: Outcome, cluster: Cluster) -> pl.DataFrame:
    """Return one row per event, in order: the columns of log.parquet; no rows if no log was kept.

    time_ms
        Time after the first submission [ms].
    kind
        A name in `LOG_KINDS`: submit; start, followed by a row `take` for each GPU, or for the GPUs of a node, that the
        job gets; stop: the job loses all of them; finish; rate: its speed changes; up, down: a node joins or leaves;
        reject.
    job_id
        NULL for up and down.
    node, node_id
        For take, up and down: the node's index in the cluster (0..) and its name. NULL in the take of a job that got a
        number of GPUs but no place.
    gpu
        For take: the GPU's index in the node (0..), if the policy places jobs on GPUs (policies that share or divide
        GPUs, hived, and any policy with the placement buddy); NULL if it only counts the GPUs of nodes.
    value
        start, rate: speed in parts per million of the recorded speed. take: milli-GPUs. stop: time that the next start
        costs [ms]. 0 for the others.
    """
    log = outcome.log
    if log is None:
        return pl.DataFrame()
    words = {number: word for word, number in LOG_KINDS.items()}
    rows = pl.DataFrame({name: log[name].copy() for name in ("time_ms", "kind", "job", "node", "gpu", "value")})
    known = rows.with_columns(
        pl.when(pl.col(name) != _NONE).then(pl.col(name).cast(pl.Int64)).alias(name) for name in ("job", "node", "gpu")
    )
    return known.select(
        "time_ms",
        pl.col("kind").replace_strict(words, return_dtype=pl.String),
        _named(jobs.job_id, known["job"]).alias("job_id"),
        "node",
        _named(pl.Series(list(cluster.node_id), dtype=pl.String), known["node"]).alias("node_id"),
        "gpu",
        "value",
    )


def _named(names: pl.Series, place: pl.Series) -> pl.Series:
    """Return the name at each place, NULL if there is none."""
    if names.is_empty():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(place))
    found = names.gather(place.fill_null(0))
    return pl.select(pl.when(place.is_not_null()).then(found)).to_series()
