"""Effective training time: two jobs on paper, and planted ones whose ratio renewal theory knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from tests.characterize.planted_faults import hour
from tests.characterize.test_lost_work import fault
from tracekit.characterize import answer_query, run_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def trace_of(make_trace: MakeTrace, jobs: dict[str, Any], **tables: Any) -> Trace:
    """Return a Trace of jobs, each (GPUs, nodes, status, [(wait, run, status of the attempt), ...]) in hours."""
    rows: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for job, (gpus, nodes, status, runs) in jobs.items():
        now = 0.0
        for k, (wait, run, end) in enumerate(runs):
            start = now + (wait or 0)
            rows["attempts"].append(
                {
                    "job_id": job,
                    "attempt": k,
                    "start_time": hour(start),
                    "end_time": None if run is None else hour(start + run),
                    "run_s": None if run is None else run * 3600,
                    "wait_s": None if wait is None else wait * 3600,
                    "gpu_count": gpus,
                    "node_count": nodes,
                    "status": end,
                }
            )
            rows["placements"].append({"job_id": job, "attempt": k, "node_id": f"node of {job}"})
            now = start + (run or 0)
        rows["jobs"].append({"job_id": job, "submit_time": hour(0), "gpu_count": gpus, "status": status})
    return make_trace(**rows, **tables)


JOBS = {
    "a": (12, 2, "completed", [(1, 5, "node_fail"), (2, 4, "completed")]),
    "b": (16, 2, "failed", [(0, 2.5, "failed")]),
    "short": (16, 2, "completed", [(0, 0.5, "completed")]),
    "running": (16, 2, "running", [(0, 9, "failed"), (1, None, "running")]),
    "no wait known": (16, 2, "completed", [(0, 9, "failed"), (None, 2, "completed")]),
    "no gpus": (0, 2, "completed", [(0, 9, "completed")]),
    "one": (1, 1, "completed", [(3, 9, "completed")]),
}


def test_two_jobs_on_paper(make_trace: MakeTrace) -> None:
    trace = trace_of(make_trace, JOBS)
    rows = run_query(trace, "failures/ettr", checkpoint_h=2, start_up_min=30).to_dicts()
    assert [(row["gpus"], row["jobs"], row["attempts"], row["interruptions"]) for row in rows] == [
        (1, 1, 1, 0),
        (16, 2, 3, 2),
    ]
    one, row = rows
    # a: 4.5 h of work of which half an hour is lost, then 3.5 h; b: 2 h of work, all of it saved.
    assert (row["wall_h"], row["productive_h"]) == (12 + 2.5, 4 + 3.5 + 2)
    assert row["ettr"] == pytest.approx(9.5 / 14.5)
    assert row["median_ettr"] == pytest.approx((7.5 / 12 + 2 / 2.5) / 2)
    assert (one["ettr"], one["ettr_low"]) == (pytest.approx(8.5 / 12), None)
    # Linearized by hand: residuals u - r w of the two jobs.
    residuals = np.array([7.5, 2]) - 9.5 / 14.5 * np.array([12, 2.5])
    error = (residuals**2).sum() ** 0.5 * 2**0.5 / 14.5
    odds = np.log(9.5 / 5) + np.array([-1, 1]) * 1.959963984540054 * error / (9.5 / 14.5 * 5 / 14.5)
    assert [row["ettr_low"], row["ettr_high"]] == pytest.approx(1 / (1 + np.exp(-odds)))
    # Four attempts cut short, of 11.5 + 0.5 + 9 + 11 hours of two nodes and 9 of one.
    rate = 4 / (2 * (11.5 + 0.5 + 9 + 11) + 9)
    assert row["failures_per_1000_node_d"] == pytest.approx(rate * 24_000)
    gang, work, wait = 2 * rate, 9.5 / 2, 3 / 3
    scheduled = (work + 0.5) / (1 - gang * (0.5 + 1))
    assert row["expected_ettr"] == pytest.approx(work / (scheduled + (1 + gang * scheduled) * wait))
    begun = run_query(trace, "failures/ettr", checkpoint_h=2, start_up_min=30, since="start").to_dicts()[1]
    assert begun["wall_h"] == 13.5
    assert begun["expected_ettr"] == pytest.approx(work / (scheduled + gang * scheduled * 2))
    assert run_query(trace, "failures/ettr", checkpoint_h=0)["expected_ettr"].to_list() == [None, None]
    assert run_query(trace, "failures/ettr", min_run_h=0)["jobs"].to_list() == [1, 3]


def test_what_nodes_did_is_distinguished_from_the_rest(make_trace: MakeTrace) -> None:
    jobs = {
        "a": (8, 1, "completed", [(0, 5.5, "cancelled"), (0, 4, "completed")]),
        "b": (8, 1, "completed", [(0, 5.5, "failed"), (0, 4, "completed")]),
        "c": (8, 1, "completed", [(0, 5.5, "node_fail"), (0, 4, "completed")]),
    }
    trace = trace_of(make_trace, jobs, node_events=[fault("node of a", 5.5, "fan")])
    both = {name: run_query(trace, "failures/ettr", interruptions=name).to_dicts()[0] for name in ("all", "node")}
    assert [(row["interruptions"], row["productive_h"]) for row in both.values()] == [(3, 27.0), (2, 27.5)]


def test_attempts_of_unknown_end_that_were_tried_again_may_count(make_trace: MakeTrace) -> None:
    trace = trace_of(make_trace, {"a": (8, 1, "completed", [(0, 5.5, None), (0, 4, "completed")])})
    found = [run_query(trace, "failures/ettr", rule=rule).to_dicts()[0] for rule in ("stated", "retried")]
    assert [(row["interruptions"], row["productive_h"]) for row in found] == [(0, 9.5), (1, 9.0)]


def test_an_unknown_number_of_nodes_has_no_expectation(make_trace: MakeTrace) -> None:
    trace = trace_of(make_trace, {"a": (8, None, "failed", [(0, 5, "failed")])})
    row = run_query(trace, "failures/ettr").to_dicts()[0]
    assert (row["nodes"], row["failures_per_1000_node_d"], row["expected_ettr"]) == (None, None, None)
    assert row["ettr"] == 1.0  # it failed at a checkpoint


def planted(nodes: int, rng: np.random.Generator, rate: float, work: float = 40, every: float = 2.0) -> Any:
    """Return a job that starts up for half an hour, saves every two hours, and waits for half an hour in the mean."""
    runs, saved = [], 0.0
    while True:
        wait, fails = rng.exponential(0.5), rng.exponential(1 / (rate * nodes))
        if fails >= 0.5 + work - saved:
            runs.append((wait, 0.5 + work - saved, "completed"))
            return 8 * nodes, nodes, "completed", runs
        runs.append((wait, fails, "node_fail"))
        saved += max(0.0, (fails - 0.5) // every * every)


@pytest.mark.parametrize("rate", [0.0005, 0.004])
def test_planted_jobs_have_the_ratio_of_renewal_theory(make_trace: MakeTrace, rate: float) -> None:
    rng = np.random.default_rng(8)
    jobs = {f"{n} nodes {k}": planted(n, rng, rate) for n in (1, 4, 16) for k in range(150)}
    answer = answer_query(trace_of(make_trace, jobs), "failures/ettr", {"checkpoint_h": 2, "start_up_min": 30})
    rows = answer.frame.to_dicts()
    assert [row["gpus"] for row in rows] == [8, 32, 128]
    for row, nodes in zip(rows, (1, 4, 16), strict=True):
        assert row["nodes"] == nodes
        assert row["failures_per_1000_node_d"] == pytest.approx(rate * 24_000, rel=0.15)
        # Every job gets ahead by 40 hours. By first-step analysis: from its start an attempt needs 2.5 hours without a
        # failure until it saves, and has a wait before each try; from a checkpoint on it needs two, and a failure there
        # sends it back to a start.
        a = rate * nodes
        from_start = np.expm1(2.5 * a) / a + 0.5 * np.exp(2.5 * a)
        fails = 1 - np.exp(-2 * a)
        expected = 40 / (from_start + 19 * (fails / a + fails * from_start))
        reach = row["ettr_high"] - row["ettr_low"]
        assert row["ettr"] == pytest.approx(expected, abs=reach)
        # The formula is of the first order in failures an interval: 13 % at most here.
        assert row["expected_ettr"] == pytest.approx(row["ettr"], abs=reach + 0.02)
    assert rows[0]["ettr"] > rows[1]["ettr"] > rows[2]["ettr"]


@pytest.mark.parametrize("traces", [4, pytest.param(12, marks=pytest.mark.thorough)])
def test_intervals_hold_the_ratio_as_often_as_they_say(make_trace: MakeTrace, traces: int) -> None:
    rng = np.random.default_rng(9)
    # One gang size a world: sizes are powers of two, and so tell 10 worlds of a Trace apart.
    ratios: list[tuple[float, float, float]] = []
    for _ in range(traces):
        jobs = {}
        for size in range(10):
            for k in range(40):
                _, nodes, status, runs = planted(1, rng, 0.02)
                jobs[f"{size} {k}"] = (2**size, nodes, status, runs)
        rows = run_query(trace_of(make_trace, jobs), "failures/ettr", checkpoint_h=2, start_up_min=30).to_dicts()
        ratios += [(row["ettr_low"], row["ettr"], row["ettr_high"]) for row in rows]
    truth = 1 / float(np.mean([1 / ratio for _, ratio, _ in ratios]))
    worlds = len(ratios)
    held = sum(low <= truth <= high for low, _, high in ratios)
    assert worlds == 10 * traces
    # 93 % to 95 % of the time, since forty jobs are few; 0.1 % at either end of the binomial.
    assert stats.binom(worlds, 0.93).ppf(0.001) <= held <= stats.binom(worlds, 0.95).ppf(0.999)
