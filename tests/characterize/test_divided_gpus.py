"""Means over all GPUs of a cluster: a sample of a part of a GPU (MIG) weighs as the part, in every query alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit.characterize import answer_query
from tracekit.characterize.changes.periods import read_period

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

DAY = "2024-03-04 "


def _sample(minute: str, gpu: int, pct: float, part: str | None = None) -> dict[str, Any]:
    return {"time": DAY + minute, "node_id": "n", "gpu_index": gpu, "gpu_instance": part, "utilization_pct": pct}


@pytest.fixture
def divided(make_trace: Callable[..., Trace]) -> Trace:
    """Return two hours of two GPUs, of which the second is divided; it has a part that no profile names."""
    jobs = [
        {"job_id": str(i), "cluster": "c", "submit_time": f"{DAY}0{i}:00", "start_time": f"{DAY}0{i}:00",
         "end_time": f"{DAY}0{i}:30", "gpu_count": 1.0, "queue_s": 0.0, "run_s": 1800.0, "status": "completed"}
        for i in (1, 2, 3)
    ]  # fmt: skip
    attempts = [
        {**{k: j[k] for k in ("job_id", "start_time", "end_time", "gpu_count", "status", "run_s")}, "attempt": 0}
        for j in jobs
    ]
    samples = [
        _sample("01:10", 0, 100.0),
        _sample("01:10", 1, 70.0, "3g.40gb/1"),
        _sample("01:10", 1, 0.0, "1g.10gb+me/2"),
        _sample("01:10", 1, 50.0, "7"),
        _sample("02:10", 1, 35.0, "1g.10gb/2"),
        _sample("02:10", 1, 0.0, "1g.10gb/3"),
    ]
    nodes = [{"node_id": "n", "cluster": "c", "gpu_count": 2}]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes, gpu_utilization=samples)


# 1 x 100 %, 3/7 x 70 % and 1/7 x 0 % of 11/7 GPUs; the part without a profile is not counted.
FIRST = (100 + 30) / (11 / 7)
# 1/7 x 35 % and 1/7 x 0 % of 2/7 GPUs.
SECOND = 17.5
WHOLE = (130 + 5) / (13 / 7)


def test_each_hour_and_the_whole_by_hand(divided: Trace) -> None:
    hours = answer_query(divided, "utilization/cluster_by_hour").frame.drop_nulls("gpu_util_pct")
    assert hours.select("hour", "gpu_util_pct").rows() == [(1, pytest.approx(FIRST)), (2, pytest.approx(SECOND))]
    through = answer_query(divided, "overview/through_time").frame
    used = {(r["period"], r["number"]): r["used_share"] for r in through.to_dicts() if r["used_share"] is not None}
    assert used["whole", 1] == pytest.approx(WHOLE / 100)
    assert used["span", 1] == pytest.approx(FIRST / 100)


def test_the_parts_of_a_page_add_up_to_the_same(divided: Trace) -> None:
    rows = answer_query(divided, "overview/parts").frame.filter(pl.col("kind") == "used")
    samples, amount = (sum(rows[column].to_list()) for column in ("jobs", "amount"))
    assert samples == pytest.approx(13 / 7)
    assert amount / samples == pytest.approx(WHOLE)


def test_two_times_are_compared_by_the_same_mean(divided: Trace) -> None:
    ((_, busy, samples),) = read_period(divided).telemetry.rows()
    assert busy / samples == pytest.approx(WHOLE)


def test_parts_that_no_profile_names_leave_the_use_unknown(make_trace: Callable[..., Trace], divided: Trace) -> None:
    jobs, attempts = (divided.scan(table).collect().to_dicts() for table in ("jobs", "attempts"))
    trace = make_trace(jobs=jobs, attempts=attempts, gpu_utilization=[_sample("01:10", 1, 50.0, "7")])
    assert answer_query(trace, "overview/through_time").frame["used_share"].drop_nulls().is_empty()
    assert answer_query(trace, "overview/parts").frame.filter(pl.col("kind") == "used").is_empty()
