"""The replays in a report: the rows are those of `tracekit.replay`, and what they leave out is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tracekit.analysis import analyze
from tracekit.errors import UsageError
from tracekit.guidelines.replays import LiveReplays
from tracekit.progress import Progress
from tracekit.replay.panel import standard_panel
from tracekit.report.replayed import REPLAYED, replayed_results, unreplayed_results
from tracekit.report.sections import finding, panels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


@pytest.fixture(scope="module")
def trace(make_trace: MakeTrace) -> Trace:
    """One node of 2 GPUs: a job of 2 GPUs runs an hour, then a short one and a long one ask for both."""
    jobs, attempts = [], []
    for i, (submit, run, gpus, vc) in enumerate([(0, 3600, 2, "a"), (60, 3600, 2, "a"), (120, 60, 2, "b")]):
        times = {"submit_time": f"2020-03-01 00:{submit // 60:02}:00", "start_time": "2020-03-01 06:00:00"}
        end = f"2020-03-01 0{6 + run // 3600}:{run % 3600 // 60:02}:00"
        job = {"job_id": str(i), **times, "end_time": end, "gpu_count": gpus, "run_s": run, "vc": vc}
        jobs.append({**job, "status": "completed", "user": "u"})
        attempts.append(
            {"job_id": str(i), "attempt": 0, "start_time": times["start_time"], "end_time": end, "run_s": run}
        )
    nodes = [{"node_id": "n", "gpu_count": 2}]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes)


@pytest.fixture(scope="module")
def rows(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    results, info = replayed_results(LiveReplays(trace, 100, Progress()))
    assert info["jobs"] == 3
    assert info["cluster"] == {"nodes": 1, "gpus": 2}
    assert info["reason"] is None
    return {r.query.name: [] if r.frame is None else r.frame.to_dicts() for r in results}


def test_the_rows_are_those_of_a_schedule_worked_by_hand(rows: dict[str, list[dict[str, Any]]]) -> None:
    """FIFO: 0-60 min, 60-120, 120-121. SJF: 0-60, 61-121 and the short one at 60-61."""
    by = {r["policy"]: r for r in rows["replay/policies"]}
    assert by["fifo"]["mean_wait_s"] == pytest.approx((0 + 59 * 60 + 118 * 60) / 3)
    assert by["sjf"]["mean_wait_s"] == pytest.approx((0 + 60 * 60 + 58 * 60) / 3)
    base, fast = (59 + 118) * 60 + 7260, (60 + 58) * 60 + 7260
    assert by["sjf"]["change_share"] == pytest.approx(fast / base - 1)
    assert (by["fifo"]["run_times"], by["sjf"]["run_times"], by["las"]["run_times"]) == (
        "not given",
        "given",
        "not given",
    )
    waits = {(r["vc"], r["policy"]): r["mean_wait_s"] for r in rows["replay/by_vc"]}
    assert (waits["b", "fifo"], waits["b", "sjf"]) == (118 * 60, 58 * 60)


def test_the_rows_are_those_of_a_replay_by_itself(trace: Trace, rows: dict[str, list[dict[str, Any]]]) -> None:
    summary = tracekit.replay(trace, policy="srtf").summary
    (row,) = [r for r in rows["replay/policies"] if r["policy"] == "srtf"]
    same = {
        "mean_completion_s": "avg_jct_s",
        "median_completion_s": "median_jct_s",
        "mean_wait_s": "avg_queue_s",
        "preemptions": "preemptions",
        "fairness_share": "jain_fairness_vc",
        "gpus_busy_share": "gpu_utilization_share",
    }
    assert [row[key] for key in same] == [summary[key] for key in same.values()]


def test_the_finding_names_the_best_with_and_without_run_times(rows: dict[str, list[dict[str, Any]]]) -> None:
    text = finding("replay/policies", rows["replay/policies"]) or ""
    assert text.startswith("Under fifo jobs take 1.66 h from submission to end on average, 59 min of it waiting.")
    assert "of those that are given them, s" in text.lower()
    assert re.search(r"\N{MINUS SIGN}\d", text)
    assert [p.title for p in panels("replay/policies", rows["replay/policies"])] == [
        "Completion time",
        "Waiting",
        "Fairness and utilization",
    ]


def test_every_policy_of_the_panel_is_there_or_has_a_reason(trace: Trace) -> None:
    results, info = replayed_results(LiveReplays(trace, 100, Progress()))
    frame = results[0].frame
    assert frame is not None
    assert {*frame["policy"].to_list(), *info["skipped"]} == set(standard_panel())
    assert all(info["skipped"].values())


def test_a_trace_that_cannot_be_replayed_has_the_reason(make_trace: MakeTrace) -> None:
    results, info = replayed_results(LiveReplays(make_trace(jobs=[{"job_id": "a"}]), 100, Progress()))
    assert info["reason"] is not None
    assert info["reason"].startswith("The trace cannot be replayed: ")
    assert [(r.query, r.frame, r.reasons) for r in results] == [(q, None, [info["reason"]]) for q in REPLAYED]


def test_no_replay_and_no_fit_can_be_chosen(trace: Trace, tmp_path: Path) -> None:
    done = analyze(trace.path, tmp_path / "out", replay_jobs=0, fit=False)
    assert done.unanswered["replay/policies"] == ("No replay was asked for (--replay-jobs 0).",)
    assert done.unanswered["fit/run_time"] == ("No fit was asked for (--no-fit).",)
    assert not (done.folder / "workload.json").exists()
    assert "--no-fit --replay-jobs 0" in done.data.read_text()
    with pytest.raises(UsageError, match="below 0"):
        analyze(trace.path, tmp_path / "other", replay_jobs=-1)
    assert unreplayed_results("why")[1]["reason"] == "why"
