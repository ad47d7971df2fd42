"""The tables and files of one replay: summary.json, jobs.parquet, timeline.parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from tracekit.outputs import output_errors
from tracekit.replay.jobs import gpus_of, naive_utc
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.results.summary import bounded_slowdown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


SUMMARY_NAME = "summary.json"
"""The file that marks a folder as a result."""

_ROW_GROUP = 131_072


def jobs_table(jobs: Jobs, outcome: Outcome) -> pl.DataFrame:
    """Return one row per job in submission order, with the columns of jobs.parquet.

    submit_time, first_start_time, end_time
        UTC times, to the millisecond, in the time of the replay.
    queue_s, jct_s
        First start minus submission, and end minus submission.
    run_s, wait_s
        Time for which the job had GPUs, overheads included, and jct_s minus that time.
    preemptions, nodes_spanned
        Number of times that the job lost all its GPUs, and number of nodes in its last allocation, or NULL if it was
        placed by count.
    slowdown
        Bounded slowdown (see `bounded_slowdown`).

    The policy's own columns (`Outcome.columns`) follow. They are NULL for jobs that did not end.

    Times that a job never reached are NULL.
    """
    started, ended = outcome.first_start_ms >= 0, outcome.end_ms >= 0
    jct = outcome.end_ms - jobs.submit_ms
    return pl.DataFrame(
        [
            jobs.job_id.alias("job_id"),
            _names("vc", jobs.tenant, jobs.tenants),
            _names("user", jobs.user, jobs.users),
            pl.Series("gpu_count", gpus_of(jobs) / 1000),
            _times("submit_time", jobs, jobs.submit_ms, None),
            _times("first_start_time", jobs, outcome.first_start_ms, started),
            _times("end_time", jobs, outcome.end_ms, ended),
            _seconds("queue_s", outcome.first_start_ms - jobs.submit_ms, started),
            _seconds("wait_s", jct - outcome.run_ms, ended),
            _seconds("run_s", outcome.run_ms, started),
            _seconds("jct_s", jct, ended),
            pl.Series("preemptions", outcome.preemptions.astype(np.int64)),
            _known(pl.Series("nodes_spanned", outcome.nodes_spanned.astype(np.int64)), outcome.nodes_spanned > 0),
            pl.Series("slowdown", bounded_slowdown(jobs, outcome)).fill_nan(None),
            *(_known(pl.Series(name, values), ended) for name, values in outcome.columns.items()),
        ]
    )


def timeline_table(jobs: Jobs, outcome: Outcome) -> pl.DataFrame:
    """Return the state of the cluster over time, with the columns of timeline.parquet.

    The columns are time (UTC), running_jobs, pending_jobs, running_gpus, free_gpus, and fragmented_gpus (free GPUs on
    partly used nodes). Each row applies until the next.
    """
    line = outcome.timeline
    return pl.DataFrame(
        [
            _times("time", jobs, line.time_ms, None),
            pl.Series("running_jobs", line.running),
            pl.Series("pending_jobs", line.pending),
            pl.Series("running_gpus", line.busy_milli / 1000),
            pl.Series("free_gpus", line.free_milli / 1000),
            pl.Series("fragmented_gpus", line.fragmented_milli / 1000),
        ]
    )


def summary_json(summary: Mapping[str, Any]) -> bytes:
    """Return the bytes of summary.json, with keys in order and two spaces per level."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_files(folder: Path, jobs: Jobs, outcome: Outcome, summary: Mapping[str, Any]) -> None:
    """Write a result's files to `folder`. The caller makes it visible once it is complete.

    Raises
    ------
    OutputError
        The folder cannot be written.
    """
    with output_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in (("jobs", jobs_table(jobs, outcome)), ("timeline", timeline_table(jobs, outcome))):
            table.write_parquet(folder / f"{name}.parquet", compression="zstd", row_group_size=_ROW_GROUP)
        (folder / SUMMARY_NAME).write_bytes(summary_json(summary))


def _known(values: pl.Series, known: NDArray[np.bool_] | None) -> pl.Series:
    """Return `values` with NULL in place of those whose `known` is False."""
    if known is None or known.all():
        return values
    return pl.select(pl.when(pl.Series(known)).then(values).alias(values.name)).to_series()


def _seconds(name: str, milliseconds: NDArray[np.int64], known: NDArray[np.bool_]) -> pl.Series:
    return _known(pl.Series(name, milliseconds / 1000), known)


def _times(name: str, jobs: Jobs, milliseconds: NDArray[np.int64], known: NDArray[np.bool_] | None) -> pl.Series:
    after = pl.Series(name, milliseconds * 1000).cast(pl.Duration("us"))
    return _known((pl.Series([naive_utc(jobs.origin)], dtype=pl.Datetime("us")) + after).alias(name), known)


def _names(name: str, index: NDArray[np.int32], names: Sequence[str]) -> pl.Series:
    if not names:
        return pl.Series(name, [None], dtype=pl.String).new_from_index(0, len(index))
    known = index >= 0
    return _known(pl.Series(name, names, dtype=pl.String).gather(np.where(known, index, 0).astype(np.uint32)), known)


# The event log of a replay as a table, log.parquet.

_NONE = -1


def log_table(jobs: Jobs, outcome: Outcome, cluster: Cluster) -> pl.DataFrame:
    """Return one row per event in order, with the columns of log.parquet; no rows if no log was kept.

    time_ms
        Time after the first submission [ms].
    kind
        A name in `LOG_KINDS`. After start, there is a take row for each GPU, or for the GPUs of each node, that the job
        gets. At a stop, the job loses all its GPUs. At a rate row, its speed changes. At up and down, a node joins or
        leaves. The other names are submit, finish, reject and fail.
    job_id
        NULL for up and down.
    node, node_id
        For take, up and down, the node's index in the cluster (0..) and its name. NULL in the take row of a job that
        has GPUs but no place.
    gpu
        For take, the GPU's index in the node (0..) if the policy places jobs on GPUs (policies that share or divide
        GPUs, hived, and any policy with the placement buddy), or NULL if it only counts the GPUs of nodes.
    value
        For start and rate, the speed in parts per million of the recorded speed. For take, milli-GPUs. For stop, the
        time that the next start costs [ms]. 0 for the other kinds.
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
    """Return the name at each place, or NULL if it has no name."""
    if names.is_empty():
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(place))
    found = names.gather(place.fill_null(0))
    return pl.select(pl.when(place.is_not_null()).then(found)).to_series()
