"""Replay a log as a whole and in time windows, and measure the error of the windows.

    python benchmarks/replay_windows.py [--jobs 100000] [--nodes 40] [--load 0.6]

carried  one window after another. Jobs that run or wait at the end of a window are passed to the next window with their
         remaining run times. Memory is limited to the jobs of one window, and an interrupted replay can continue.
warmed   every window by itself, so all can run at the same time. A window starts some days early on an empty cluster
         and continues for as many days after its end. Only the jobs submitted in between count.
resumed  the engine's arrays with all jobs are saved and passed to a new run. This is exact, but all jobs are in memory.
         It works for policies that only order jobs. Backfilling has additional arrays.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from tracekit.replay.engine.run import Setting
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.registry import named_policy
from tracekit.replay.scenario import Scenario, spread_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["Schedule", "carried", "edges_of", "errors_of", "resumed", "taken", "warmed", "whole"]

_DAY_MS = 86_400_000
_FAR = np.iinfo(np.int64).max


class Schedule(NamedTuple):
    """Start and end of each job in a log [ms], or -1 if never, and the number of jobs replayed to compute them."""

    start_ms: NDArray[np.int64]
    end_ms: NDArray[np.int64]
    replayed: int


def taken(jobs: Jobs, rows: NDArray[np.int64], **changes: NDArray[np.int64]) -> Jobs:
    """Return the jobs in the given rows, in this order, with the given columns replaced."""
    found: dict[str, Any] = {}
    for one in fields(jobs):
        value = getattr(jobs, one.name)
        if isinstance(value, np.ndarray | pl.Series):
            found[one.name] = value[rows]
    return replace(jobs, **{**found, **changes})


def whole(jobs: Jobs, cluster: Cluster, policy: str) -> Schedule:
    """Replay the whole log at once."""
    outcome = Scenario.make(jobs, cluster).run(policy).outcome
    return Schedule(outcome.first_start_ms, outcome.end_ms, len(jobs))


def edges_of(jobs: Jobs, windows: int) -> list[int]:
    """Return the ends of windows that divide the submission period equally [ms]. The last window has no end."""
    last = int(jobs.submit_ms[-1])
    return [last * k // windows for k in range(1, windows)] + [_FAR]


def carried(jobs: Jobs, cluster: Cluster, policy: str, edges: Sequence[int]) -> Schedule:
    """Replay window after window, each beginning with the jobs that run or wait at the previous window's end.

    A running job enters the next window as a job that is submitted at its start, requests its remaining run time and
    comes before all waiting jobs, which follow in submission order. A job's nodes are not passed on, so the job is
    placed again. The schedule is therefore exact if GPUs are only counted (fit=count), and may differ if jobs are
    placed on nodes.
    """
    count = len(jobs)
    start, end, left = np.full(count, -1), np.full(count, -1), jobs.work_ms.copy()
    running, waiting, begin, replayed = np.zeros(0, np.int64), np.zeros(0, np.int64), 0, 0
    for edge in edges:
        low, high = np.searchsorted(jobs.submit_ms, [begin, edge])
        rows = np.concatenate([running, waiting, np.arange(low, high)])
        replayed += len(rows)
        submit = np.maximum(jobs.submit_ms[rows], begin)
        part = taken(jobs, rows, submit_ms=submit, work_ms=left[rows])
        outcome = Scenario.make(part, cluster).run(policy, log=True).outcome
        first, ran, runs = _until(outcome, edge)
        fresh = (start[rows] < 0) & (first >= 0)
        start[rows[fresh]] = first[fresh]
        done = (outcome.end_ms >= 0) & (outcome.end_ms <= edge)
        end[rows[done]] = outcome.end_ms[done]
        left[rows] -= ran
        running = np.sort(rows[runs & ~done])
        waiting = np.sort(rows[~runs & ~done])
        begin = edge
    return Schedule(start, end, replayed)


def _until(outcome: Outcome, edge: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return each job's first start before an edge (or -1), run time so far [ms], and whether it is running."""
    log, count = outcome.log, len(outcome.end_ms)
    assert log is not None, "the replay kept no log"
    first, ran, runs = np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, bool)
    told = log[np.isin(log["kind"], [LOG_KINDS["start"], LOG_KINDS["stop"], LOG_KINDS["finish"]])]
    told = told[np.argsort(told["job"], kind="stable")]
    begins = np.flatnonzero(told["kind"] == LOG_KINDS["start"])
    job, since = told["job"][begins], told["time_ms"][begins]
    after = np.minimum(begins + 1, len(told) - 1)
    closed = (told["job"][after] == job) & (after > begins)
    until = np.where(closed, told["time_ms"][after], _FAR)
    inside = since < edge
    job, since, until = job[inside], since[inside], until[inside]
    np.add.at(ran, job, np.minimum(until, edge) - since)
    # The log is in time order, so a job's first entry is the earliest.
    earliest, at = np.unique(job, return_index=True)
    first[earliest] = since[at]
    runs[job[until >= edge]] = True
    return first, ran, runs


def warmed(jobs: Jobs, cluster: Cluster, policy: str, edges: Sequence[int], days: float) -> Schedule:
    """Replay every window by itself, from `days` days before its begin to `days` days after its end."""
    count = len(jobs)
    start, end = np.full(count, -1), np.full(count, -1)
    begin, replayed, more = 0, 0, round(days * _DAY_MS)
    for edge in edges:
        inside = np.arange(*np.searchsorted(jobs.submit_ms, [begin, edge]))
        beyond = _FAR if edge == _FAR else edge + more
        rows = np.arange(*np.searchsorted(jobs.submit_ms, [max(begin - more, 0), beyond]))
        outcome = Scenario.make(taken(jobs, rows), cluster).run(policy).outcome
        start[inside] = outcome.first_start_ms[inside - rows[0]]
        end[inside] = outcome.end_ms[inside - rows[0]]
        replayed += len(rows)
        begin = edge
    return Schedule(start, end, replayed)


def resumed(jobs: Jobs, cluster: Cluster, policy: str, pieces: int) -> tuple[Schedule, int]:
    """Replay in pieces, each starting from the previous one's saved arrays, and also return their size in bytes."""
    scenario = Scenario.make(jobs, cluster)
    mechanism = named_policy(policy).mechanism(jobs, cluster, scenario.models, scenario.seed)
    spread = spread_table(scenario.models, jobs, cluster)
    setting = Setting(jobs, cluster, scenario.assignment, policy, scenario.placement, spread)
    # Each job arrives at one instant and ends at another.
    instants = max(2 * len(jobs) // pieces, 1)
    run, saved = mechanism.prepare(setting), b""
    while run.step(instants):
        saved = b"".join(array.tobytes() for array in run.state)
        run, at = mechanism.prepare(setting), 0
        for array in run.state:
            array[...] = np.frombuffer(saved, array.dtype, array.size, at).reshape(array.shape)
            at += array.nbytes
    table = run.state.jobs
    return Schedule(table["first"].copy(), table["end"].copy(), len(jobs)), len(saved)


def errors_of(jobs: Jobs, found: Schedule, truth: Schedule) -> dict[str, float]:
    """Return the relative errors of the mean and p90 wait, the share of jobs with a different end, and the work.

    The work is the number of jobs replayed divided by the number of jobs in the log.
    """
    waits = [(schedule.start_ms - jobs.submit_ms) / 1000 for schedule in (found, truth)]
    off = {}
    for name in ("mean", "p90"):
        ours, theirs = (float(w.mean() if name == "mean" else np.quantile(w, 0.9)) for w in waits)
        off[name] = (ours - theirs) / theirs if theirs else float(ours != theirs)
    differing = float(np.mean((found.end_ms != truth.end_ms) | (found.start_ms != truth.start_ms)))
    found_errors = {**off, "differing": differing, "work": found.replayed / len(jobs)}
    return {name: round(value, 5) for name, value in found_errors.items()}


def main() -> None:
    """Print the errors for each policy."""
    from replay_jobs import make

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--load", type=float, default=0.6)
    given = parser.parse_args()
    jobs, cluster = make(given.jobs, given.load, nodes=given.nodes, vcs=4)
    for row in measure(jobs, cluster):
        print(row)


def measure(jobs: Jobs, cluster: Cluster) -> list[dict[str, Any]]:
    """Return one row per policy and way of splitting the log."""
    rows: list[dict[str, Any]] = []
    days = jobs.submit_ms[-1] / _DAY_MS
    for policy in ("fifo", "srtf", "easy"):
        for name in (policy, f"{policy},fit=count"):
            truth = whole(jobs, cluster, name)
            mean_h = float(np.mean(truth.start_ms - jobs.submit_ms)) / 3_600_000
            base = {"policy": name, "days": round(float(days), 1), "mean_wait_h": round(mean_h, 4)}
            for windows in (4, 16):
                found = carried(jobs, cluster, name, edges_of(jobs, windows))
                rows.append({**base, "way": "carried", "windows": windows, **errors_of(jobs, found, truth)})
            if name == policy:
                for early in (0, 1, 3, 7, 14):
                    found = warmed(jobs, cluster, name, edges_of(jobs, 4), early)
                    way = {"way": "warmed", "windows": 4, "early_days": early}
                    rows.append({**base, **way, **errors_of(jobs, found, truth)})
                if policy != "easy":
                    found, size = resumed(jobs, cluster, name, 4)
                    more = {"way": "resumed", "windows": 4, "bytes_a_job": round(size / len(jobs))}
                    rows.append({**base, **more, **errors_of(jobs, found, truth)})
    return rows


if __name__ == "__main__":
    main()
