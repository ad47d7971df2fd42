"""The jobs of a log as waits, and which earlier jobs are like one: the same in all that it asked for, or in less."""

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
"""Time limits up to which jobs are alike: backfilling favours short ones [s]."""


def limit_class(seconds: str) -> str:
    """Return SQL that gives the class of a time limit: 0 the shortest; NULL where there is none."""
    cases = " ".join(f"WHEN {seconds} <= {limit} THEN {i}" for i, limit in enumerate(LIMITS_S))
    return f"CASE {cases} WHEN {seconds} IS NOT NULL THEN {len(LIMITS_S)} END"


def log_end_us(con: duckdb.DuckDBPyConnection) -> int | None:
    """Return the latest time of any job, up to which the log knows what happened [us]; None without times."""
    sql = "SELECT greatest(epoch_us(max(submit_time)), epoch_us(max(start_time)), epoch_us(max(end_time))) FROM jobs"
    end: int | None = con.execute(sql).fetchall()[0][0]
    return end


def waiting_jobs(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[Note]]:
    """Return one row a job whose wait is known, or known to be at least so long, in the order of its beginning.

    Returns
    -------
    polars.DataFrame
        job_id, gpu_class, class_order; what it asked for: cluster, place (partition, or VC where there is none),
        gpu_model, qos, gpu_count, limit_class, account; since and until [us]: the wait, which ended with a start where
        `started`, and else by leaving the queue, or with the log.
    list of Note
        What was left out.
    """
    end = log_end_us(con)
    columns = (
        f"job_id, gpu_class, class_order, cluster, coalesce(partition, vc) AS place, gpu_model, qos, gpu_count,"
        f" {limit_class('time_limit_s')} AS limit_class, account"
    )
    # A job that was submitted at the log's last moment has waited for no time yet.
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
    kept = kept.with_columns(until.alias("until")).drop("left_at", "waiting")
    return kept.with_columns(pl.max_horizontal("since", "until").alias("until")), notes


ALWAYS = ("cluster", "gpu_class")
"""In what jobs that are alike never differ."""

STEPS = ("account", "limit_class", "gpu_count", "qos", "gpu_model", "place")
"""In what else they are the same; where too few are, the first of these is given up, then the second, and so on."""

WORDS = {
    "cluster": "cluster",
    "gpu_class": "size class",
    "account": "account",
    "limit_class": "class of time limit",
    "gpu_count": "number of GPUs",
    "qos": "QOS",
    "gpu_model": "GPU model",
    "place": "partition or VC",
}


@dataclass(frozen=True)
class Lately:
    """Which of the jobs that are alike are looked at."""

    least: int = 20
    """Fewest that tell anything."""
    most: int = 100
    """The latest so many."""
    days: float = 56
    """Jobs that began to wait longer ago are left out [d]."""


@dataclass(frozen=True)
class Likeness:
    """For each job the earlier jobs that are like it, without a list for each: a stretch of one of a few orders."""

    orders: tuple[Ints, ...]
    """Row numbers, sorted by what is the same and then by when they began to wait; one order a step."""
    step: Ints
    """How many of STEPS were given up for each job; -1: too few are like it."""
    first: Ints
    """Where its stretch begins in the order of its step."""
    end: Ints
    """Where it ends, exclusive."""

    def rows(self, jobs: Ints, most: int) -> Ints:
        """Return the row numbers of the jobs like each of `jobs`, one row each, filled up with -1."""
        found = np.full((len(jobs), most), -1, dtype=np.int64)
        for step, order in enumerate(self.orders):
            here = np.flatnonzero(self.step[jobs] == step)
            place = self.first[jobs[here], None] + np.arange(most)
            within = place < self.end[jobs[here], None]
            found[here] = np.where(within, order[np.where(within, place, 0)], -1)
        return found


def likeness(jobs: pl.DataFrame, lately: Lately) -> Likeness:
    """Return which earlier jobs are like each; `jobs` is sorted by since.

    Only jobs that began to wait strictly before count: those submitted together know nothing of each other.
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
        begin = np.maximum(np.maximum(group, oldest), earlier - lately.most)
        take = (step[order] < 0) & (earlier - begin >= lately.least)
        rows = order[take]
        step[rows], first[rows], end[rows] = given_up, begin[take], earlier[take]
    return Likeness(tuple(orders), step, first, end)


def _places_of(code: Ints, moment: Ints, bound: Ints) -> Ints:
    """Return for each place the first place of the same code whose moment is not before `bound`."""
    if not len(code):
        return np.zeros(0, dtype=np.int64)
    # One number for code and moment, so that one search finds all; ranks keep it small.
    moments, rank = np.unique(moment, return_inverse=True)
    width = len(moments) + 1
    return np.searchsorted(code * width + rank, code * width + np.searchsorted(moments, bound))
