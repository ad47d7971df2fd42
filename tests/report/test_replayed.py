"""The replays in a report: the rows are those of `tracekit.replay`, and what they leave out is told."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tracekit.analysis import analyze
from tracekit.errors import UsageError
from tracekit.guidelines.markdown import escaped
from tracekit.guidelines.replays import LiveReplays
from tracekit.progress import Progress
from tracekit.replay.panel import standard_panel
from tracekit.report.data import Result, build_report
from tracekit.report.made import frame_of
from tracekit.report.replayed import ASSUMED, REPLAYED, TENANTS, replayed_results, unreplayed_results
from tracekit.report.sections import finding, panels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.report.structure import CapacityInfo
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

CAPACITY: CapacityInfo = {"requested": "auto", "used": None, "gpus": None, "alternatives": {}, "note": ""}


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
    jobs += [
        {"job_id": name, "submit_time": "2020-03-01 00:00:00", "gpu_count": gpus, "status": "cancelled"}
        for name, gpus in (("cpu", 0), ("never", 1))
    ]
    nodes = [{"node_id": "n", "gpu_count": 2}, {"node_id": "cpu", "gpu_count": 0}]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes)


@pytest.fixture(scope="module")
def rows(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TRACEKIT_REPLAY", raising=False)
        results, info = replayed_results(LiveReplays(trace, 100, Progress()))
    assert info["jobs"] == 3
    assert info["cluster"] == {"nodes": 1, "gpus": 2, "nodes_without_gpus": 1}
    assert info["notes"][0] == (
        "2 of the 5 jobs of the log are not replayed; each counts once, for the first of these reasons that holds. No"
        " GPUs (CPU only): 1; no start and no run time: 1"
    )
    assert info["notes"][1].startswith("the log (recorded): the log holds more GPUs than there are")
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
    assert text.startswith(
        "Under fifo (first in, first out) these 3 jobs take 1.66 h from submission to end on average, of which they"
        " wait 59 min. "
    )
    assert "Of the policies that are given the true run times in advance, s" in text
    assert "By the log, 50.4 % of the GPU-hours of these jobs were on GPUs" in text
    assert re.search(r"\N{MINUS SIGN}\d", text)
    assert [p.title for p in panels("replay/policies", rows["replay/policies"])] == [
        "Completion time",
        "Waiting",
        "Fairness between VCs",
    ]


def test_the_log_holds_more_than_the_two_gpus_there_are(rows: dict[str, list[dict[str, Any]]]) -> None:
    """All three start at 6:00: for a minute 6 GPUs are held, then 4 for 59 min."""
    found = {r["policy"]: r["beyond_share"] for r in rows["replay/policies"]}
    assert found.pop("recorded") == pytest.approx((4 * 60 + 2 * 59 * 60) / (2 * 2 * 3600 + 2 * 60))
    assert set(found.values()) == {None}


def test_policies_are_told_in_words_and_by_whether_they_keep_quotas(rows: dict[str, list[dict[str, Any]]]) -> None:
    by = {r["policy"]: r for r in rows["replay/policies"]}
    assert by["sjf"]["what"] == "shortest job first"
    assert by["fifo,scan=skip"]["what"] == "first in, first out; later jobs may pass one that cannot start"
    assert {name for name, r in by.items() if r["quotas"] == "kept"} == {"philly", "kueue", "hived"}
    assert by["recorded"]["quotas"] is None
    assert {(r["policy"], r["quotas"]) for r in rows["replay/by_vc"]} == {(n, r["quotas"]) for n, r in by.items()}


def test_each_value_of_an_assumption_names_its_policies(rows: dict[str, list[dict[str, Any]]]) -> None:
    told = [(r["id"], r["value"].partition(";")[0], r["policies"]) for r in rows["replay/assumptions"]]
    assert ("M9", "0 s (the values called 'none')", "srtf; srsf; las; gittins; kueue") in told
    assert (
        "M9",
        "7 s up to 1 GPU, 30 s up to 8 GPUs, 60 s above (the values called 'helios')",
        "philly; hived",
    ) in told
    assert [policies for name, _, policies in told if name in {"D1", "M7", "M11"}] == [
        "all but recorded",
        "all",
        "sjf; ssf; easy; conservative",
    ]
    names = [name for name, _, _ in told]
    assert names.index("M9") + 1 == len(names) - names[::-1].index("M9") - 1


def test_assumptions_stand_in_full_and_other_texts_are_bounded(trace: Trace, tmp_path: Path) -> None:
    done = analyze(trace.path, tmp_path / "out", replay_jobs=100, fit=False)
    report = json.loads(done.data.read_text())
    answers = {a["name"]: a for s in report["sections"] for a in s["answers"]}
    told = answers["replay/assumptions"]["rows"]
    assert max(len(r["value"]) for r in told) > 300
    assert "more characters" not in json.dumps(told)
    page = (tmp_path / "out" / "report.html").read_text()
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert "1 node without GPUs is left out." in page
    for row in answers["replay/policies"]["rows"]:
        assert f"<dt><bdi>{row['policy']}</bdi></dt><dd><bdi>{row['what']}</bdi></dd>" in page
        assert f"- {escaped(row['policy'])}: {escaped(row['what'])}\n" in markdown


def test_virtual_clusters_with_nodes_of_their_own_keep_quotas(make_trace: MakeTrace) -> None:
    job = {"submit_time": "2020-03-01 00:00:00", "run_s": 60, "gpu_count": 1, "status": "completed"}
    capacity = [{"time": "2020-03-01 00:00:00", "vc": vc, "gpu_count": 8} for vc in "ab"]
    made = make_trace(jobs=[{**job, "job_id": vc, "vc": vc} for vc in "ab"], capacity=capacity)
    results, _ = replayed_results(LiveReplays(made, 100, Progress()))
    assert results[0].frame is not None
    assert set(results[0].frame["quotas"].to_list()) == {"kept"}


def test_a_cell_of_sentences_is_bounded(trace: Trace) -> None:
    rows = [{"what": "w" * 3000, "value": "v", "source": "s" * 400, "policies": "all", "id": "i" * 400}]
    report = build_report(trace, [Result(ASSUMED, frame_of(ASSUMED, rows))], capacity=CAPACITY, source="x")
    (row,) = report["sections"][0]["answers"][0]["rows"]
    assert (row["what"], row["source"]) == ("w" * 2000 + "… (1,000 more characters)", "s" * 400)
    assert row["id"] == "i" * 300 + "… (100 more characters)"


def test_policies_that_change_something_come_after_the_first(
    trace: Trace, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for name in ("replay/by_gpu_class", "replay/by_vc"):
        key = name.removeprefix("replay/by_")
        means: dict[str, dict[Any, tuple[float, float]]] = {}
        for r in rows[name]:
            means.setdefault(r["policy"], {})[r[key]] = (r["mean_completion_s"], r["mean_wait_s"])
        first, *others = means
        assert first == standard_panel()[0]
        same = [means[policy] == means[first] for policy in others]
        assert same == sorted(same)
        assert len(set(same)) == 2
        for alike in (True, False):
            group = [policy for policy, is_same in zip(others, same, strict=True) if is_same == alike]
            assert group == [policy for policy in standard_panel() if policy in group]


def test_means_of_other_jobs_are_told(make_trace: MakeTrace) -> None:
    job = {"submit_time": "2020-03-01 00:00:00", "run_s": 60, "gpu_count": 1, "status": "completed"}
    ends = {"start_time": "2020-03-01 00:00:00", "end_time": "2020-03-01 00:01:00"}
    made = make_trace(
        jobs=[{**job, **ends, "job_id": "a"}, {**job, "job_id": "b"}], nodes=[{"node_id": "n", "gpu_count": 2}]
    )
    results, _ = replayed_results(LiveReplays(made, 100, Progress()))
    note = "the means of fifo are over 2 jobs, those of recorded over 1: not the same jobs"
    assert [r.notes[:1] for r in results[:2]] == [[f"{note}. A change compares only jobs that both completed"], [note]]


def test_a_limit_is_told_where_it_cuts(make_trace: MakeTrace) -> None:
    times = {"submit_time": "2020-03-01 00:00:00", "start_time": "2020-03-01 00:00:00", "run_s": 60}
    jobs = [{**times, "job_id": name, "end_time": "2020-03-01 00:01:00", "gpu_count": 1} for name in "abc"]
    made = make_trace(jobs=jobs, nodes=[{"node_id": "n", "gpu_count": 4}])
    cut, whole = (replayed_results(LiveReplays(made, limit, Progress()))[1]["notes"] for limit in (2, 3))
    assert cut[0] == "only the first 2 jobs by submission; --replay-jobs moves the limit"
    assert not any("only the first" in note for note in whole)


def test_a_sentence_about_replays_is_of_all_rows_also_where_a_report_keeps_the_first(trace: Trace) -> None:
    rows = [
        {"vc": f"v{k}", "policy": p, "quotas": q, "jobs": 1, "mean_completion_s": 9.0, "mean_wait_s": wait}
        for p, q, wait in (("fifo", "ignored", 60.0), ("sjf", "ignored", 70.0), ("hived", "kept", 90.0))
        for k in range(1001)
    ]
    report = build_report(trace, [Result(TENANTS, frame_of(TENANTS, rows))], capacity=CAPACITY, source="x")
    (answer,) = report["sections"][0]["answers"]
    assert len(answer["rows"]) == 2000
    assert "Of those that keep them (hived)" in (answer["finding"] or "")


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
