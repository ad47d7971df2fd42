"""The waits of a log's jobs, and for each job the earlier jobs with the same or a similar request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.notes import Note
from tracekit.text import counted

if TYPE_CHECKING:
    import duckdb

    from tracekit.array_types import Ints

LIMITS_S = (3600, 14400, 86400)
"""Upper bounds of the time limit classes [s]. They matter because backfilling favours short jobs."""


def limit_class(seconds: str) -> str:
    """Return SQL for the class of a time limit, from 0 for the shortest; NULL if there is no limit."""
    cases = " ".join(f"WHEN {seconds} <= {limit} THEN {i}" for i, limit in enumerate(LIMITS_S))
    return f"CASE {cases} WHEN {seconds} IS NOT NULL THEN {len(LIMITS_S)} END"


def log_end_us(con: duckdb.DuckDBPyConnection) -> int | None:
    """Return the latest time of any job, which is the end of the log [us], or None if there are no times."""
    sql = "SELECT greatest(epoch_us(max(submit_time)), epoch_us(max(start_time)), epoch_us(max(end_time))) FROM jobs"
    end: int | None = con.execute(sql).fetchall()[0][0]
    return end


def waiting_jobs(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[Note]]:
    """Return one row for each job with a known wait, or a known lower bound, ordered by the start of the wait.

    Returns
    -------
    polars.DataFrame
        The columns job_id, gpu_class and class_order. The job's request: cluster, place (the partition, or the VC if
        there are no partitions), gpu_model, qos, gpu_count, limit_class, account, partition, limit_s. The wait from
        since to until [us], which ended with a start if `started`. Otherwise the job still waits at the end of the log
        (`going_on`), or left the queue. A job that started ended at `ended` [us], or at the end of the log.
    list of Note
        The excluded jobs.
    """
    end = log_end_us(con)
    columns = (
        f"job_id, gpu_class, class_order, cluster, coalesce(partition, vc) AS place, gpu_model, qos, gpu_count,"
        f' {limit_class("time_limit_s")} AS limit_class, account, "partition", time_limit_s AS limit_s,'
        " epoch_us(end_time) AS ended"
    )
    # A job submitted at the last moment of the log has waited for 0 s so far.
    frame = pl.DataFrame(
        con.sql(
            f"""SELECT {columns}, epoch_us(coalesce(eligible_time, submit_time)) AS since,
                   epoch_us(coalesce(start_time, end_time)) AS left_at, start_time IS NOT NULL AS started,
                   status = 'pending' AS waiting
            FROM job_classes ORDER BY since, job_id"""
        )
    )
    known = pl.col("since").is_not_null() & (pl.col("left_at").is_not_null() | pl.col("waiting").fill_null(False))
    kept = frame.filter(known)
    until = pl.when(pl.col("left_at").is_null()).then(pl.max_horizontal(pl.lit(end), "since")).otherwise("left_at")
    lost = frame.height - kept.height
    notes = [Note("beginning unknown", facts=(counted(lost, "jobs"),))] if lost else []
    kept = kept.with_columns(
        until.alias("until"),
        going_on=pl.col("left_at").is_null(),
        ended=pl.coalesce("ended", pl.lit(end, dtype=pl.Int64)),
    ).drop("left_at", "waiting")
    return kept.with_columns(pl.max_horizontal("since", "until").alias("until")), notes


ALWAYS = ("cluster", "gpu_class")
"""Attributes in which similar jobs never differ."""

STEPS = ("account", "limit_class", "gpu_count", "qos", "gpu_model", "place")
"""Further attributes that must agree. If too few jobs are similar, the attributes are dropped one by one, in this
order."""

_MINOR = 2
"""Number of STEPS at the beginning that matter less than the state of the queue."""

WORDS = {
    "cluster": "cluster",
    "gpu_class": "size class",
    "account": "account",
    "limit_class": "time limit class",
    "gpu_count": "number of GPUs",
    "qos": "QOS",
    "gpu_model": "GPU model",
    "place": "partition or VC",
}


@dataclass(frozen=True)
class Lately:
    """Limits on the similar jobs to use."""

    least: int = 20
    """Minimum number of similar jobs for a prediction."""
    most: int = 100
    """Maximum number of similar jobs used: those in the most similar states."""
    among: int = 400
    """Maximum number of similar jobs to choose from: the latest."""
    days: float = 56
    """Maximum age of the beginning of a similar job's wait [d]."""

    def used(self, similar: Ints) -> Ints:
        """Return how many of these similar jobs are used: half, but at least `least` and at most `most`."""
        return np.clip(similar // 2, min(self.least, self.most), self.most)

    def needed(self, dropped: int) -> int:
        """Return how many jobs must be similar if this number of STEPS is dropped.

        The state of the queue says more about a wait than account and time limit class, so these are dropped unless
        enough jobs agree in them.
        """
        return max(self.most, self.least) if dropped < _MINOR else self.least


@dataclass(frozen=True)
class Likeness:
    """The earlier similar jobs of each job, stored as a range in one of a few sorted orders instead of a list."""

    orders: tuple[Ints, ...]
    """Row numbers, sorted by the shared attributes and then by the beginning of the wait; one order per step."""
    step: Ints
    """Number of STEPS that were dropped for each job, or -1 if too few jobs are similar."""
    first: Ints
    """Start of the job's range in the order of its step."""
    end: Ints
    """End of the range, exclusive."""

    def rows(self, jobs: Ints, most: int) -> Ints:
        """Return the row numbers of the jobs similar to each of `jobs`, one row each, padded with -1."""
        found = np.full((len(jobs), most), -1, dtype=np.int64)
        for step, order in enumerate(self.orders):
            here = np.flatnonzero(self.step[jobs] == step)
            place = self.first[jobs[here], None] + np.arange(most)
            within = place < self.end[jobs[here], None]
            found[here] = np.where(within, order[np.where(within, place, 0)], -1)
        return found


def likeness(jobs: pl.DataFrame, lately: Lately) -> Likeness:
    """Return the earlier jobs similar to each job; `jobs` must be sorted by since.

    Only jobs that began to wait strictly earlier count, so jobs submitted together do not affect each other.
    """
    n = jobs.height
    since = jobs["since"].to_numpy()
    step, first, end = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    orders = []
    for given_up in range(len(STEPS) + 1):
        same = [*ALWAYS, *STEPS[given_up:]]
        code = jobs.select(pl.struct(same).rank("dense")).to_series().to_numpy().astype(np.int64)
        order = np.argsort(code, kind="stable")
        orders.append(order)
        sorted_code, moment = code[order], since[order]
        new = np.ones(n, dtype=bool)
        new[1:] = sorted_code[1:] != sorted_code[:-1]
        place = np.arange(n)
        group = np.maximum.accumulate(np.where(new, place, 0))
        new[1:] |= moment[1:] != moment[:-1]
        earlier = np.maximum.accumulate(np.where(new, place, 0))
        oldest = _places_of(sorted_code, moment, moment - int(lately.days * 86_400_000_000))
        begin = np.maximum(np.maximum(group, oldest), earlier - lately.among)
        needed = lately.needed(given_up)
        take = (step[order] < 0) & (earlier - begin >= needed)
        rows = order[take]
        step[rows], first[rows], end[rows] = given_up, begin[take], earlier[take]
    return Likeness(tuple(orders), step, first, end)


def _places_of(code: Ints, moment: Ints, bound: Ints) -> Ints:
    """Return, for each place, the first place with the same code whose moment is not before `bound`."""
    if not len(code):
        return np.zeros(0, dtype=np.int64)
    # Code and moment form one number, so a single search finds all places. Ranks keep the number small.
    moments, rank = np.unique(moment, return_inverse=True)
    width = len(moments) + 1
    return np.searchsorted(code * width + rank, code * width + np.searchsorted(moments, bound))
