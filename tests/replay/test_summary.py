"""The figures of a replay, on schedules small enough to check on paper and recomputed in plain Python."""

from __future__ import annotations

import datetime as dt
import json
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tracekit import resources
from tracekit.characterize.session import STATUS_MACROS
from tracekit.databases import connect_duckdb
from tracekit.errors import UsageError
from tracekit.replay.jobs import GPU_CLASSES, gpu_class
from tracekit.replay.results.summary import (
    bounded_slowdown,
    finish_time_ratios,
    jain_index,
    mean_contention,
    measured_jobs,
    service_ratios,
    summarize,
)
from tracekit.replay.results.tables import summary_json

if TYPE_CHECKING:
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

KEYS = [
    "policy",
    "parameters",
    "placement",
    "assumptions",
    "cluster",
    "jobs",
    "completed",
    "unschedulable",
    "avg_jct_s",
    "median_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "avg_queue_s",
    "median_queue_s",
    "p95_queue_s",
    "p99_queue_s",
    "max_queue_s",
    "avg_bounded_slowdown",
    "makespan_s",
    "gpu_utilization_share",
    "fragmentation_share",
    "preemptions",
    "migrations",
    "gpu_hours_lost_to_overhead",
    "goodput_share",
    "lost_gpu_hours",
    "restarts",
    "ettr",
    "jain_fairness_vc",
    "max_finish_time_ratio",
    "late_share",
    "energy_kwh",
    "energy_cost",
    "by_gpu_class",
    "by_vc",
    "engine",
]


def summary(jobs: Jobs, outcome: Outcome, **more: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"policy": "fifo", "parameters": {}, "placement": "consolidate", "assumptions": {}}
    return summarize(jobs, make_cluster((8,)), outcome, **(facts | more))


def test_a_schedule_by_hand() -> None:
    # 8 GPUs. a: 8 GPUs 0..100. b: 4 GPUs, submitted 0, waits for a, 100..300. c: 1 GPU, submitted 50, 100..105.
    # d asks for 16 GPUs and can never run. The last end is 300 s.
    jobs = make_jobs([(0, 8, 100), (0, 4, 200), (50, 1, 5), (60, 16, 10)], vc=["x", "y", "y", None])
    outcome = make_outcome(
        jobs, [(0, 100), (100, 300), (100, 105), None], free_fragmented=0.25, energy_kwh=1.5, wall_s=0.25
    )
    found = summary(jobs, outcome, parameters={"scan": "stop", "x": float("nan")}, assumptions={"sigma": np.float64(1)})
    assert list(found) == KEYS
    times = {"avg_jct_s": 455 / 3, "median_jct_s": 100.0, "p95_jct_s": 280.0, "p99_jct_s": 296.0}
    times |= {"avg_queue_s": 50.0, "median_queue_s": 50.0, "p95_queue_s": 95.0, "p99_queue_s": 99.0}
    held = 8 * 100 + 4 * 200 + 5
    expected = {
        "policy": "fifo",
        "placement": "consolidate",
        "jobs": 4,
        "completed": 3,
        "unschedulable": 1,
        **times,
        "max_queue_s": 100.0,
        # a 100/100, b 300/200, c 55/10 since 5 s of work count as 10 s.
        "avg_bounded_slowdown": (1 + 1.5 + 5.5) / 3,
        "makespan_s": 300.0,
        "gpu_utilization_share": held / 2400,
        "fragmentation_share": 0.25,
        "preemptions": 0,
        "migrations": 0,
        "gpu_hours_lost_to_overhead": 0.0,
        "goodput_share": None,
        "lost_gpu_hours": None,
        "restarts": None,
        "ettr": None,
        # x progressed at 1, y at (4*200 + 1*5) / (4*300 + 1*55).
        "jain_fairness_vc": (1 + 805 / 1255) ** 2 / (2 * (1 + (805 / 1255) ** 2)),
        # In the system: 12 GPUs in 0..50, 13 in 50..100, 5 in 100..105, 4 until 300. c sees (13*50 + 5*5) / 55 of 8.
        "max_finish_time_ratio": 55 / (5 * (675 / 55 / 8)),
        "energy_kwh": 1.5,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert found["parameters"] == {"scan": "stop", "x": None}
    assert found["assumptions"] == {"sigma": 1.0}
    assert found["cluster"] == {"nodes": 1, "gpus": 8}
    by_class = {row["gpu_class"]: row for row in found["by_gpu_class"]}
    assert list(by_class) == ["1", "2-4", "5-8", ">8"]
    assert by_class["2-4"] == pytest.approx(
        {
            "gpu_class": "2-4",
            "jobs": 1,
            "completed": 1,
            "unschedulable": 0,
            "gpu_hours": 800 / 3600,
            "avg_jct_s": 300.0,
            "median_jct_s": 300.0,
            "p95_jct_s": 300.0,
            "p99_jct_s": 300.0,
            "avg_queue_s": 100.0,
            "median_queue_s": 100.0,
            "p95_queue_s": 100.0,
            "p99_queue_s": 100.0,
            "max_queue_s": 100.0,
            "avg_bounded_slowdown": 1.5,
            "preemptions": 0,
            "goodput_share": None,
            "lost_gpu_hours": None,
            "restarts": None,
            "ettr": None,
        }
    )
    assert by_class[">8"]["avg_jct_s"] is None
    assert by_class[">8"]["gpu_hours"] == 0.0
    assert [(row["name"], row["jobs"], row["avg_queue_s"]) for row in found["by_vc"]] == [
        ("x", 1, 0.0),
        ("y", 2, 75.0),
        (None, 1, None),
    ]
    assert [row["service_ratio"] for row in found["by_vc"]] == [1.0, pytest.approx(805 / 1255), None]
    assert found["engine"] == {"events": 8, "wall_s": 0.25, "jobs_per_s": 16.0}


def test_overheads_count_the_gpus_that_waited() -> None:
    jobs = make_jobs([(0, 2, 100), (0, 4, 100)])
    outcome = make_outcome(
        jobs,
        [(0, 150), (0, 100)],
        run_ms=[136_000, 100_000],
        overhead_ms=[36_000, 0],
        held_milli_ms=[2000 * 136_000, 4000 * 100_000],
        preemptions=[3, 1],
        migrations=[0, 2],
    )
    found = summary(jobs, outcome)
    assert found["gpu_hours_lost_to_overhead"] == pytest.approx(0.02)
    assert (found["preemptions"], found["migrations"]) == (4, 2)


def test_nothing_that_ran_leaves_unknowns_and_no_nan() -> None:
    jobs = make_jobs([(0, 16, 10)], vc=None)
    found = summary(jobs, make_outcome(jobs, [None]))
    unknown = {key for key, value in found.items() if value is None}
    assert unknown == {
        *("avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "median_queue_s", "p95_queue_s"),
        *("p99_queue_s", "max_queue_s", "avg_bounded_slowdown", "gpu_utilization_share", "fragmentation_share"),
        *("jain_fairness_vc", "max_finish_time_ratio", "late_share", "energy_kwh", "energy_cost"),
        *("goodput_share", "lost_gpu_hours", "restarts", "ettr"),
    }
    text = summary_json(found)
    assert b"NaN" not in text
    assert list(json.loads(text)) == KEYS
    assert found["by_vc"][0]["name"] is None


def test_only_measured_jobs_count_but_the_cluster_is_whole() -> None:
    jobs = make_jobs([(0, 1, 10), (3600, 1, 20), (7200, 1, 40)], vc=["a", "b", "b"])
    outcome = make_outcome(jobs, [(0, 10), (3600, 3620), (7200, 7240)])
    begin = jobs.origin.replace(tzinfo=None) + dt.timedelta(hours=1)
    measured = measured_jobs(jobs, begin, begin + dt.timedelta(hours=1))
    assert measured.tolist() == [False, True, False]
    found = summary(jobs, outcome, measured=measured)
    assert (found["jobs"], found["avg_jct_s"], found["makespan_s"]) == (1, 20.0, 7240.0)
    assert [row["name"] for row in found["by_vc"]] == ["b"]
    assert found["gpu_utilization_share"] == summary(jobs, outcome)["gpu_utilization_share"]
    assert measured_jobs(jobs, None, None).all()
    with pytest.raises(UsageError, match="no job was submitted in the measuring window; submissions run from 2020"):
        measured_jobs(jobs, dt.datetime(2030, 1, 1), None)


def test_jain_is_one_for_equals_and_one_nth_for_a_winner() -> None:
    assert jain_index([0.5, 0.5, 0.5]) == 1.0
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain_index([1.0]) is None
    assert jain_index([0.0, 0.0]) is None


def test_a_job_that_never_completed_counts_against_its_vc() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 1, 50)], vc=["a", "b"])
    outcome = make_outcome(jobs, [(0, 100), None], unschedulable=[False, False])
    assert service_ratios(jobs, outcome, np.array([True, True])) == {0: 1.0, 1: 0.0}
    # It asks for its GPU until the replay ends.
    assert mean_contention(jobs, outcome)[0] == pytest.approx(2 / 8)


def test_alone_on_the_cluster_the_finish_time_ratio_is_one() -> None:
    jobs = make_jobs([(0, 8, 100), (200, 8, 0)])
    assert finish_time_ratios(jobs, make_outcome(jobs, [(0, 100), (200, 200)])).tolist() == [
        1.0,
        pytest.approx(float("nan"), nan_ok=True),
    ]


def test_classes_are_those_of_the_shared_view() -> None:
    milli = np.array([0, 1, 999, 1000, 1001, 2000, 4000, 4001, 8000, 8001, 512_000])
    view = (resources.folder("queries") / "views" / "job_classes.sql").read_text(encoding="utf-8")
    with connect_duckdb() as con:
        con.execute(STATUS_MACROS["is_unsuccessful"])
        con.execute(
            "CREATE TABLE jobs AS SELECT unnest(?::DOUBLE[]) / 1000 AS gpu_count, 'x' AS status", [milli.tolist()]
        )
        expected = con.execute(f"SELECT gpu_class FROM ({view}) ORDER BY gpu_count").fetchall()
    assert [GPU_CLASSES[i] for i in gpu_class(milli)] == [name for (name,) in expected]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 300),  # submission
        st.integers(1, 12),  # GPUs
        st.integers(0, 200),  # work
        st.integers(0, 100),  # wait
        st.sampled_from(["a", "b", "c", None]),
        st.booleans(),  # ran
    ),
    min_size=1,
    max_size=12,
)


def schedule(rows: list[tuple[int, int, int, int, str | None, bool]]) -> tuple[Jobs, Outcome]:
    rows = sorted(rows, key=lambda r: r[0])
    jobs = make_jobs([(r[0], r[1], r[2]) for r in rows], vc=[r[4] for r in rows])
    spans = [(r[0] + r[3], r[0] + r[3] + r[2]) if r[5] else None for r in rows]
    return jobs, make_outcome(jobs, spans, gpus=150, free_fragmented=0.5)


@given(rows=ROWS)
def test_figures_agree_with_plain_python(rows: list[tuple[int, int, int, int, str | None, bool]]) -> None:
    jobs, outcome = schedule(rows)
    found = summary(jobs, outcome)
    ran = [r for r in rows if r[5]]
    jct = sorted(r[2] + r[3] for r in ran)
    assert (found["jobs"], found["completed"], found["unschedulable"]) == (len(rows), len(ran), len(rows) - len(ran))
    if not ran:
        assert found["avg_jct_s"] is None
        return
    assert found["avg_jct_s"] == pytest.approx(statistics.fmean(jct))
    assert found["median_jct_s"] == pytest.approx(statistics.median(jct))
    place = 0.95 * (len(jct) - 1)
    above = jct[min(int(place) + 1, len(jct) - 1)]
    assert found["p95_jct_s"] == pytest.approx(jct[int(place)] + (place - int(place)) * (above - jct[int(place)]))
    assert found["max_queue_s"] == max(r[3] for r in ran)
    slow = [max(1, (r[2] + r[3]) / max(r[2], 10)) for r in ran]
    assert found["avg_bounded_slowdown"] == pytest.approx(statistics.fmean(slow))
    assert np.nanmax(bounded_slowdown(jobs, outcome)) == pytest.approx(max(slow))
    ratios = [rho for r in ran if r[2] for rho in [_ratio(r, ran)]]
    assert found["max_finish_time_ratio"] == (pytest.approx(max(ratios)) if ratios else None)
    pace = [p for vc in "abc" for p in [_pace([r for r in ran if r[4] == vc])] if p is not None]
    fair = sum(pace) ** 2 / (len(pace) * sum(p * p for p in pace)) if len(pace) > 1 and any(pace) else None
    assert found["jain_fairness_vc"] == (None if fair is None else pytest.approx(fair))


def _ratio(job: tuple[Any, ...], ran: list[tuple[Any, ...]]) -> float:
    """Return rho with the contention added up second by second."""
    submit, _, work, wait, *_ = job
    end = submit + wait + work
    last = max(r[0] + r[2] + r[3] for r in ran)
    asked = sum(sum(r[1] for r in ran if r[0] <= t < r[0] + r[2] + r[3]) for t in range(submit, min(end, last)))
    return float((end - submit) / (work * max(1, asked / (end - submit) / 150)))


def _pace(rows: list[tuple[Any, ...]]) -> float | None:
    stay = sum(r[1] * (r[2] + r[3]) for r in rows)
    return sum(r[1] * r[2] for r in rows) / stay if stay else None


@given(rows=ROWS)
def test_shares_lie_between_nought_and_one(rows: list[tuple[int, int, int, int, str | None, bool]]) -> None:
    jobs, outcome = schedule(rows)
    found = summary(jobs, outcome)
    for key in ("gpu_utilization_share", "fragmentation_share", "jain_fairness_vc"):
        assert found[key] is None or 0 <= found[key] <= 1
    assert sum(row["jobs"] for row in found["by_gpu_class"]) == len(rows)
    assert sum(row["jobs"] for row in found["by_vc"]) == len(rows)
    hours = outcome.busy_milli_ms / 3.6e9 if any(r[5] for r in rows) else 0
    assert sum(row["gpu_hours"] for row in found["by_vc"]) == pytest.approx(hours)


@given(rows=ROWS, seed=st.integers(0, 9))
def test_the_order_of_jobs_is_irrelevant(rows: list[tuple[int, int, int, int, str | None, bool]], seed: int) -> None:
    mixed = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    one, other = summary(*schedule(rows)), summary(*schedule(mixed))
    for key in KEYS[5:27]:
        assert one[key] == (None if other[key] is None else pytest.approx(other[key]))
    for left, right in zip(one["by_vc"] + one["by_gpu_class"], other["by_vc"] + other["by_gpu_class"], strict=True):
        assert left == pytest.approx(right)
