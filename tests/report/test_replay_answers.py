"""The replays in a report: the rows are those of `tracekit.replay`, and what they leave out is told."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tests.report.answering import told
from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.answer import Answer
from tracekit.calibration.twins import Twins
from tracekit.errors import UsageError
from tracekit.replay.api import scenario_of
from tracekit.replay.panels import standard_panel
from tracekit.replay.results.answers import ASSUMED, TENANTS, compared_answers
from tracekit.report.data import build_report
from tracekit.report.replay_answers import REPLAY_QUESTIONS, replayed_answers, unreplayed_answers
from tracekit.report.sections.interface import charts, finding
from tracekit.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.answer import Unanswered
    from tracekit.report.structure import CapacityInfo, ReplayInfo
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

CAPACITY: CapacityInfo = {
    "requested": "auto",
    "used": None,
    "gpus": None,
    "alternatives": {},
    "note": "",
    "word": "",
}


def one_node(make_trace: MakeTrace, *starts: str) -> Trace:
    """One node of 2 GPUs: a job of 2 GPUs runs an hour, then a short one and a long one ask for both."""
    jobs, attempts = [], []
    rows = [(0, 3600, 2, "a"), (60, 3600, 2, "a"), (120, 60, 2, "b")]
    for i, ((submit, run, gpus, vc), begin) in enumerate(zip(rows, starts, strict=True)):
        start = dt.datetime.fromisoformat(f"2020-03-01 {begin}:00")
        times = {"start_time": start, "end_time": start + dt.timedelta(seconds=run), "run_s": run}
        job = {"job_id": str(i), "submit_time": f"2020-03-01 00:{submit // 60:02}:00", **times, "gpu_count": gpus}
        jobs.append({**job, "vc": vc, "status": "completed", "user": "u"})
        attempts.append({"job_id": str(i), "attempt": 0, **times})
    jobs += [
        {"job_id": name, "submit_time": "2020-03-01 00:00:00", "gpu_count": gpus, "status": "cancelled"}
        for name, gpus in (("cpu", 0), ("never", 1))
    ]
    nodes = [{"node_id": "n", "gpu_count": 2}, {"node_id": "cpu", "gpu_count": 0}]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes)


@pytest.fixture(scope="module")
def trace(make_trace: MakeTrace) -> Trace:
    """The log lets all three start at 6:00, which no policy does."""
    return one_node(make_trace, "06:00", "06:00", "06:00")


@pytest.fixture(scope="module")
def in_order(make_trace: MakeTrace) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a log that is first in, first out."""
    made = one_node(make_trace, "00:00", "01:00", "02:00")
    scenario = scenario_of(made)
    results = [scenario.run(policy) for policy in standard_panel()]
    return {a.name: a.frame.to_dicts() for a in compared_answers(results, scenario) if isinstance(a, Answer)}


@pytest.fixture(scope="module")
def replayed(trace: Trace) -> tuple[Sequence[Answer | Unanswered], ReplayInfo]:
    return replayed_answers(Twins(trace, 100))


@pytest.fixture(scope="module")
def rows(replayed: tuple[Sequence[Answer | Unanswered], ReplayInfo]) -> dict[str, list[dict[str, Any]]]:
    return {a.name: a.frame.to_dicts() if isinstance(a, Answer) else [] for a in replayed[0]}


def test_what_was_replayed_and_what_was_left_out_is_reported(
    golden: Golden, replayed: tuple[Sequence[Answer | Unanswered], ReplayInfo]
) -> None:
    (_, info) = replayed
    assert info["jobs"] == 3
    assert info["cluster"] == {"nodes": 1, "gpus": 2, "nodes_without_gpus": 1}
    assert info["reason"] is None
    golden([told(info["notes"][0], "2 of the log's 5", "1"), told(info["notes"][1])])


def test_the_rows_are_those_of_a_schedule_worked_by_hand(rows: dict[str, list[dict[str, Any]]]) -> None:
    """FIFO: 0-60 min, 60-120, 120-121. SJF: 0-60, 61-121 and the short one at 60-61."""
    by = {r["policy"]: r for r in rows["replay/policies"]}
    assert by["fifo"]["avg_queue_s"] == pytest.approx((0 + 59 * 60 + 118 * 60) / 3)
    assert by["sjf"]["avg_queue_s"] == pytest.approx((0 + 60 * 60 + 58 * 60) / 3)
    assert (by["fifo"]["run_times"], by["sjf"]["run_times"], by["las"]["run_times"]) == (
        "not given",
        "given",
        "not given",
    )
    waits = {(r["vc"], r["policy"]): r["avg_queue_s"] for r in rows["replay/by_vc"]}
    assert (waits["b", "fifo"], waits["b", "sjf"]) == (118 * 60, 58 * 60)


def test_a_change_is_reported_where_the_log_is_the_first_policy(
    golden: Golden, in_order: dict[str, list[dict[str, Any]]]
) -> None:
    by = {r["policy"]: r for r in in_order["replay/policies"]}
    base, fast = (59 + 118) * 60 + 7260, (60 + 58) * 60 + 7260
    assert by["sjf"]["jct_diff_share"] == pytest.approx(fast / base - 1)
    assert (by["sjf"]["worse_share"], by["sjf"]["better_share"]) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (by["sjf"]["effect_told"], by["sjf"]["effect_reason"], by["sjf"]["recorded_jobs"]) == (True, None, 3)
    assert by["sjf"]["recorded_queue_s"] == by["sjf"]["baseline_queue_s"] == pytest.approx((59 + 118) * 60 / 3)
    assert by["sjf"]["policy_queue_s"] == pytest.approx((60 + 58) * 60 / 3)
    assert by["sjf"]["recorded_jct_s"] == pytest.approx(base / 3)
    text = finding("replay/policies", in_order["replay/policies"]) or ""
    golden(told(text, "59 min"))
    assert re.search(r"\N{MINUS SIGN}\d", text)
    assert " under the best policy" in (finding("replay/by_gpu_class", in_order["replay/by_gpu_class"]) or "")


def test_no_change_is_reported_and_nothing_ranked_where_there_is_no_twin(
    golden: Golden, rows: dict[str, list[dict[str, Any]]]
) -> None:
    """First in, first out lets the jobs wait 59 min; by the log they waited 6 h less a minute."""
    (why,) = {row["effect_reason"] for row in rows["replay/policies"]}
    effects = ("jct_diff_share", "jct_diff_share_low", "jct_diff_share_high", "worse_share", "better_share")
    for row in rows["replay/policies"]:
        assert not row["effect_told"]
        assert {row[key] for key in effects} == {None}
        assert row["recorded_queue_s"] == pytest.approx(6 * 3600 - 60)
    golden(
        [
            told(why, "2", "50"),
            told(
                finding("replay/policies", rows["replay/policies"]),
                "3",
                "1.66 h",
                "59 min",
                "1.95 h",
                "5.98 h",
                "50.4 %",
            ),
            told(finding("replay/by_gpu_class", rows["replay/by_gpu_class"]), "2-4", "59 min", "1.87 h", "5.98 h"),
            told(finding("replay/by_vc", rows["replay/by_vc"])),
        ]
    )


def test_the_rows_are_those_of_a_replay_by_itself(trace: Trace, rows: dict[str, list[dict[str, Any]]]) -> None:
    summary = tracekit.replay(trace, policy="srtf").summary
    (row,) = [r for r in rows["replay/policies"] if r["policy"] == "srtf"]
    same = {
        "avg_jct_s": "avg_jct_s",
        "median_jct_s": "median_jct_s",
        "avg_queue_s": "avg_queue_s",
        "preemptions": "preemptions",
        "jain_fairness_vc": "jain_fairness_vc",
        "gpu_utilization_share": "gpu_utilization_share",
    }
    assert [row[key] for key in same] == [summary[key] for key in same.values()]


def test_the_log_is_a_line_of_its_own_in_the_charts(rows: dict[str, list[dict[str, Any]]]) -> None:
    drawn = charts("replay/policies", rows["replay/policies"])
    assert [p.title for p in drawn] == ["Completion time", "Waiting", "Fairness between VCs"]
    spec = drawn[0].to_dict()
    dashed, label, line, point = spec["layer"]
    (values,) = spec["datasets"].values()
    (log,) = [v for v in values if v["mark"] == "by the log"]
    assert (dashed["mark"]["strokeDash"], dashed["encoding"]["x"]["field"]) == ([4, 3], "avg_jct_s")
    assert label["encoding"]["text"]["value"] == f"in the log {duration(log['avg_jct_s'])}"
    for layer in (dashed, label):
        assert layer["transform"] == [{"filter": "datum.mark === 'by the log'"}]
    for layer in (line, point):
        assert layer["transform"] == [{"filter": "datum.mark !== 'by the log'"}]
    policies = point["encoding"]["y"]["scale"]["domain"]
    waits = {v["policy"]: v["avg_queue_s"] for v in values}
    assert "recorded" not in policies
    assert [waits[name] for name in policies] == sorted(waits[name] for name in policies)


def test_the_log_holds_more_than_the_two_gpus_there_are(rows: dict[str, list[dict[str, Any]]]) -> None:
    """All three start at 6:00: for a minute 6 GPUs are held, then 4 for 59 min."""
    found = {r["policy"]: r["beyond_share"] for r in rows["replay/policies"]}
    assert found.pop("recorded") == pytest.approx((4 * 60 + 2 * 59 * 60) / (2 * 2 * 3600 + 2 * 60))
    assert set(found.values()) == {None}


def test_policies_are_reported_in_words_and_by_whether_they_keep_quotas(
    golden: Golden, rows: dict[str, list[dict[str, Any]]]
) -> None:
    by = {r["policy"]: r for r in rows["replay/policies"]}
    assert by["sjf"]["what"] == "shortest job first"
    golden(told(by["fifo,scan=skip"]["what"]))
    assert {name for name, r in by.items() if r["quotas"] == "kept"} == {"philly", "kueue", "hived"}
    assert by["recorded"]["quotas"] is None
    assert {(r["policy"], r["quotas"]) for r in rows["replay/by_vc"]} == {(n, r["quotas"]) for n, r in by.items()}


def test_each_value_of_an_assumption_names_its_policies(golden: Golden, rows: dict[str, list[dict[str, Any]]]) -> None:
    found = [(r["id"], r["value"].partition(";")[0], r["policies"]) for r in rows["replay/assumptions"]]
    golden([f"{value}: {policies}" for name, value, policies in found if name == "M9"])
    assert [policies for name, _, policies in found if name == "M9"][:2] == [
        "srtf; srsf; las; gittins; kueue",
        "philly; hived",
    ]
    assert [policies for name, _, policies in found if name in {"D1", "M7", "M11"}] == [
        "all but recorded",
        "all",
        "sjf; ssf; easy; conservative",
    ]
    names = [name for name, _, _ in found]
    assert names.index("M9") + 1 == len(names) - names[::-1].index("M9") - 1


def test_assumptions_stand_in_full_and_other_texts_are_bounded(trace: Trace, tmp_path: Path) -> None:
    with asking("overview/status"):
        done = analyze(trace.path, tmp_path / "out", replay_jobs=100, fit=False)
    report = json.loads(done.data.read_text())
    answers = {a["name"]: a for s in report["sections"] for a in s["answers"]}
    assumed = answers["replay/assumptions"]["rows"]
    assert max(len(r["value"]) for r in assumed) > 300
    assert "more characters" not in json.dumps(assumed)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 node without GPUs" in page
    for row in answers["replay/policies"]["rows"]:
        assert f'<td><bdi>{row["policy"]}</bdi></td><td class="text"><bdi>{row["what"]}</bdi></td>' in page


def test_virtual_clusters_with_nodes_of_their_own_keep_quotas(make_trace: MakeTrace) -> None:
    job = {"submit_time": "2020-03-01 00:00:00", "run_s": 60, "gpu_count": 1, "status": "completed"}
    capacity = [{"time": "2020-03-01 00:00:00", "vc": vc, "gpu_count": 8} for vc in "ab"]
    jobs = [{**job, "job_id": vc, "vc": vc} for vc in "ab"]
    divided = make_trace(jobs=jobs, capacity=capacity, manifest_overrides={"format": "helios"})
    results, _ = replayed_answers(Twins(divided, 100))
    assert isinstance(results[3], Answer)
    assert set(results[3].frame["quotas"].to_list()) == {"kept"}
    # Quotas alone are no nodes of a VC's own: only policies that know quotas keep them.
    results, _ = replayed_answers(Twins(make_trace(jobs=jobs, capacity=capacity), 100))
    assert isinstance(results[3], Answer)
    kept = dict(results[3].frame.select("policy", "quotas").rows())
    assert (kept["kueue"], kept["fifo"]) == ("kept", "ignored")


def test_a_cell_of_sentences_is_bounded(trace: Trace) -> None:
    rows = [{"what": "w" * 3000, "value": "v", "source": "s" * 400, "policies": "all", "id": "i" * 400}]
    report = build_report(trace, [ASSUMED.answered(rows)], capacity=CAPACITY, source="x")
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
            means.setdefault(r["policy"], {})[r[key]] = (r["avg_jct_s"], r["avg_queue_s"])
        first, *others = means
        assert first == standard_panel()[0]
        same = [means[policy] == means[first] for policy in others]
        assert same == sorted(same)
        assert len(set(same)) == 2
        for alike in (True, False):
            group = [policy for policy, is_same in zip(others, same, strict=True) if is_same == alike]
            assert group == [policy for policy in standard_panel() if policy in group]


def test_means_of_other_jobs_are_reported(golden: Golden, make_trace: MakeTrace) -> None:
    job = {"submit_time": "2020-03-01 00:00:00", "run_s": 60, "gpu_count": 1, "status": "completed"}
    ends = {"start_time": "2020-03-01 00:00:00", "end_time": "2020-03-01 00:01:00"}
    made = make_trace(
        jobs=[{**job, **ends, "job_id": "a"}, {**job, "job_id": "b"}], nodes=[{"node_id": "n", "gpu_count": 2}]
    )
    results, _ = replayed_answers(Twins(made, 100))
    notes = [a.notes[0] for a in results[3:5] if isinstance(a, Answer)]
    golden([told(note, "fifo", "2", "recorded", "1") for note in notes])
    assert len(notes) == 2


def test_a_limit_is_reported_where_it_cuts(golden: Golden, make_trace: MakeTrace) -> None:
    times = {"submit_time": "2020-03-01 00:00:00", "start_time": "2020-03-01 00:00:00", "run_s": 60}
    jobs = [{**times, "job_id": name, "end_time": "2020-03-01 00:01:00", "gpu_count": 1} for name in "abc"]
    made = make_trace(jobs=jobs, nodes=[{"node_id": "n", "gpu_count": 4}])
    cut, whole = (replayed_answers(Twins(made, limit))[1]["notes"] for limit in (2, 3))
    golden(told(cut[0], "2"))
    assert not any("only the first" in note for note in whole)


def test_a_sentence_about_replays_is_of_all_rows_also_where_a_report_keeps_the_first(
    golden: Golden, trace: Trace
) -> None:
    rows = [
        {"vc": f"v{k}", "policy": p, "quotas": q, "jobs": 1, "avg_jct_s": 9.0, "avg_queue_s": wait}
        for p, q, wait in (("fifo", "ignored", 60.0), ("sjf", "ignored", 70.0), ("hived", "kept", 90.0))
        for k in range(1001)
    ]
    report = build_report(trace, [TENANTS.answered(rows)], capacity=CAPACITY, source="x")
    (answer,) = report["sections"][0]["answers"]
    assert len(answer["rows"]) == 2000
    golden(told(answer["finding"]))


def test_every_policy_of_the_panel_is_there_or_has_a_reason(trace: Trace) -> None:
    results, info = replayed_answers(Twins(trace, 100))
    assert isinstance(results[3], Answer)
    frame = results[3].frame
    assert frame is not None
    assert {*frame["policy"].to_list(), *info["skipped"]} == set(standard_panel())
    assert all(info["skipped"].values())


def test_a_trace_that_cannot_be_replayed_has_the_reason(make_trace: MakeTrace) -> None:
    results, info = replayed_answers(Twins(make_trace(jobs=[{"job_id": "a"}]), 100))
    assert info["reason"] is not None
    assert info["reason"].startswith("The trace cannot be replayed: ")
    assert results == [question.unanswered(str(info["reason"])) for question in REPLAY_QUESTIONS]


def test_no_replay_and_no_fit_can_be_chosen(golden: Golden, trace: Trace, tmp_path: Path) -> None:
    with asking("overview/status"):
        done = analyze(trace.path, tmp_path / "out", replay_jobs=0, fit=False)
    (replays,), (fit,) = (done.unanswered[name] for name in ("replay/policies", "fit/run_time"))
    golden([told(replays, "--replay-jobs 0"), told(fit, "--no-fit")])
    assert not (done.folder / "workload.json").exists()
    assert "--no-fit --replay-jobs 0" in done.data.read_text()
    with pytest.raises(UsageError, match="below 0"):
        analyze(trace.path, tmp_path / "other", replay_jobs=-1)
    assert unreplayed_answers("why")[1]["reason"] == "why"
