"""The state of the queue in which a job begins to wait, and predictions from the state at a snapshot."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import tracekit
from tests.characterize.expected_wait.planted import rows
from tracekit.characterize.expected_wait.backtest import backtest
from tracekit.characterize.expected_wait.likeness import Lately, waiting_jobs
from tracekit.characterize.expected_wait.state import ROOM_TABLES, STATE, Room, States, with_states
from tracekit.characterize.free_nodes import FreeNodes
from tracekit.characterize.session import Session
from tracekit.tables.live_queue import QUEUE, Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

_SECOND = 1_000_000


def _jobs(*some: tuple[float, float, float, float, float | None]) -> pl.DataFrame:
    """Return jobs by GPUs, submission, start, end [s] and time limit [s]."""
    gpus, since, start, end, limit = (list(column) for column in zip(*some, strict=True))
    frame = rows(np.array(since), np.array(start), ["1"] * len(some), end=1e9)
    return frame.with_columns(
        gpu_count=pl.Series(gpus, dtype=pl.Float64),
        limit_s=pl.Series(limit, dtype=pl.Float64),
        ended=pl.Series([int(time * _SECOND) for time in end]),
    ).drop(STATE)


def test_jobs_ahead_by_hand() -> None:
    found = with_states(
        _jobs(
            (4, 0, 0, 100, 1000),  # starts at once
            (8, 10, 100, 200, 2000),  # waits until 100
            (2, 20, 100, 150, None),  # without a limit: the mean of 1000 and 2000
            (1, 30, 110, 120, 500),
            (1, 100, 130, 140, 500),  # the two that start at this moment are still ahead
            (0, 100, 100, 300, 500),  # a job without GPUs
        ),
        Room(),
    )
    assert found["ahead_jobs"].to_list() == [0, 0, 1, 2, 3, 0]
    assert found["ahead_gpus"].to_list() == [0, 0, 8, 10, 11, 0]
    # The most GPUs in use so far were 4, but the second job needs 8 itself.
    assert found["places"].to_list() == [4, 8, 4, 4, 4, 1]
    assert found["ahead_s"].to_list() == [0, 0, 8 * 2000 / 4, (16000 + 2 * 1500) / 4, (19000 + 500) / 4, 0]
    assert found["fits"].null_count() == 6


def test_jobs_of_other_clusters_are_not_ahead() -> None:
    jobs = _jobs((4, 0, 50, 100, 10), (4, 10, 60, 100, 10)).with_columns(cluster=pl.Series(["a", "b"]))
    assert with_states(jobs, Room())["ahead_jobs"].to_list() == [0, 0]


def test_job_fits_in_the_shape_that_it_needs() -> None:
    # Two nodes of 4 GPUs with 2 free each until 50 s, then 4 and 2.
    nodes = FreeNodes(
        np.array([4.0, 4.0]),
        np.array([0, 0, 1]),
        np.array([0, 100 * _SECOND, 0]),
        np.array([2.0, 4.0, 2.0]),
        ("m", "n"),
    )
    asked = _jobs(*((gpus, time, time, time + 1, 10) for time in (49, 50) for gpus in (2, 4, 6, 8)))
    found = with_states(asked, Room({None: nodes}))
    assert found["fits"].to_list() == [True, False, False, False, True, True, True, False]
    assert set(found["places"]) == {8.0}


def test_nearest_states_count() -> None:
    jobs = _jobs(*((1, float(i), float(i), i + 1.0, 10) for i in range(5))).with_columns(
        ahead_jobs=pl.lit(0),
        ahead_gpus=pl.lit(0.0),
        ahead_s=pl.Series([0.0, 3000.0, 3000.0, 90000.0, 3000.0]),
        places=pl.lit(1.0),
        fits=pl.Series([False, True, False, False, False]),
    )
    states = States.of(jobs)
    near = states.nearest(np.array([4]), np.array([[0, 1, 2, 3]]), Lately(least=3, most=3))
    # The same work; then 600 s against 3,600 s (1.8); that which fits (3) comes before 90,600 s (3.2).
    assert near.tolist() == [[2, 0, 1]]
    assert states.ratio(np.array([4]), near)[0] == pytest.approx([1, 6, 1])
    assert states.nearest(np.array([4]), np.array([[0, 1, 2, -1]]), Lately(least=1, most=2)).tolist() == [[2, -1]]


def _at(seconds: float) -> dt.datetime:
    return dt.datetime(2024, 1, 1) + dt.timedelta(seconds=seconds)


def _log(until: float) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a random log on three nodes, as it was at a moment [s]."""
    draw = np.random.default_rng(7)
    submit = np.sort(draw.integers(0, 400_000, 160)).astype(float)
    wait = np.where(draw.random(160) < 0.4, 0, draw.integers(60, 30_000, 160))
    run = draw.integers(600, 20_000, 160)
    gpus, node = draw.choice([1, 2, 4], 160), draw.integers(0, 3, 160)
    jobs, attempts, placements = [], [], []
    for i in range(160):
        start, end = submit[i] + wait[i], submit[i] + wait[i] + run[i]
        if submit[i] > until:
            continue
        known = start <= until, end <= until
        times = {"start_time": _at(start) if known[0] else None, "end_time": _at(end) if known[1] else None}
        name = {"job_id": f"{i:03}"}
        status = "completed" if known[1] else "running" if known[0] else "pending"
        jobs.append(
            {**name, "submit_time": _at(submit[i]), **times, "gpu_count": float(gpus[i]), "status": status}
            | {"partition": "p", "time_limit_s": 30_000.0}
        )
        if known[0]:
            attempts.append({**name, "attempt": 0, **times, "gpu_count": float(gpus[i]), "status": status})
            placements.append({**name, "attempt": 0, "node_id": f"n{node[i]}", "gpu_count": float(gpus[i])})
    nodes = [{"node_id": f"n{k}", "gpu_count": 12} for k in range(3)]
    return {"jobs": jobs, "attempts": attempts, "placements": placements, "nodes": nodes}


@pytest.mark.parametrize("job", [90, 130, 159])
def test_answer_at_a_snapshot_is_that_of_the_backtest(job: int, make_trace: Callable[..., Trace]) -> None:
    """A job asked for at the end of a log gets the interval of the next job in the backtest of a longer log."""
    whole = make_trace(**_log(1e9))
    with Session(whole).connect(ROOM_TABLES) as con:
        jobs = with_states(waiting_jobs(con)[0], Room.read(con))
    row = {**jobs.row(job, named=True), **backtest(jobs, Lately(), 0.8).rows.row(job, named=True)}
    moment = row["since"] / _SECOND - _at(0).replace(tzinfo=dt.UTC).timestamp()
    snapshot = make_trace(**_log(moment - 1))
    found = tracekit.expected_wait(snapshot, row["gpu_count"], partition="p", time_limit_s=30_000)
    assert (found.ahead_jobs, found.ahead_gpus, found.fits) == (row["ahead_jobs"], row["ahead_gpus"], row["fits"])
    assert (found.cluster_gpus, found.jobs) == (36, row["like_jobs"])
    assert found.low_s == pytest.approx(row["low_s"])
    assert found.high_s == pytest.approx(row["high_s"])
    assert _of_queue(snapshot, row, moment) == found


def _of_queue(snapshot: Trace, row: dict[str, Any], moment: float) -> Any:
    """Return the answer for the queue that equals the end of the log."""
    log = _log(moment - 1)
    on = {place["job_id"]: place["node_id"] for place in log["placements"]}
    frame = pl.DataFrame(
        [
            {
                "partitions": ["p"],
                "gpu_count": job["gpu_count"],
                "limit_s": job["time_limit_s"],
                "since": round(_at(0).replace(tzinfo=dt.UTC).timestamp() * 1e6)
                + round((begun - _at(0)).total_seconds() * 1e6),
                "waiting": job["status"] == "pending",
                "nodes": [on[job["job_id"]]] if job["status"] == "running" else [],
                "node_gpus": [job["gpu_count"]] if job["status"] == "running" else [],
            }
            for job in log["jobs"]
            if job["status"] != "completed"
            for begun in [job["start_time"] or job["submit_time"]]
        ],
        schema=QUEUE,
    )
    end = max(time for job in log["jobs"] for time in (job["submit_time"], job["start_time"], job["end_time"]) if time)
    asked = round(end.replace(tzinfo=dt.UTC).timestamp() * 1e6)
    return tracekit.expected_wait(
        snapshot, row["gpu_count"], partition="p", time_limit_s=30_000, queue=Queue(frame, asked)
    )
