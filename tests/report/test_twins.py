"""What a report says of the twins of a log: rows, sentences and charts, from a sample and from rows made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest

from tests.calibration.benches import bench_of, effect_of_change
from tests.calibration.worlds import make_world
from tests.report.answering import told
from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.answer import Answer, Unanswered
from tracekit.calibration.api import calibrate, calibrate_jobs
from tracekit.calibration.twin import write_twin
from tracekit.calibration.twins import TwinReplays, Twins
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.report.replay_answers import ALL, replayed_answers, twin_answers
from tracekit.report.sections.interface import charts, finding
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def helios(sample_trace: Callable[[str], Trace]) -> Twins:
    return Twins(sample_trace("helios"), 100_000)


@pytest.fixture(scope="module")
def answers(helios: Twins) -> dict[str, Answer | Unanswered]:
    return {answer.name: answer for answer in replayed_answers(helios)[0]}


@pytest.fixture(scope="module")
def rows(answers: dict[str, Answer | Unanswered]) -> Rows:
    return {name: answer.frame.to_dicts() for name, answer in answers.items() if isinstance(answer, Answer)}


def test_every_cluster_has_its_twin_those_that_wait_most_first(rows: Rows, helios: Twins) -> None:
    venus, earth = rows["replay/twins"]
    assert (venus["cluster"], venus["grade"], venus["effects_told"], venus["why_not"]) == ("Venus", "close", True, None)
    assert (earth["cluster"], earth["grade"], earth["effects_told"]) == ("Earth", "poor", False)
    assert venus["waiting_share"] + earth["waiting_share"] == pytest.approx(1)
    assert earth["why_not"] == helios.clusters[1].found.why_no_effect
    assert (venus["jobs"], venus["gpus"], venus["scored_jobs"]) == (731, 160, 295)


def test_effects_are_those_of_the_calibration_and_of_clusters_that_carry_them(rows: Rows, helios: Twins) -> None:
    venus = helios.clusters[0]
    told = {row["policy"]: row for row in rows["replay/effects"]}
    # Each VC holds at most its quota there, which other policies would lift.
    assert set(told) <= {"philly", "kueue", "hived"}
    assert {row["cluster"] for row in told.values()} == {"Venus"}
    effect = effect_of_change(venus.found, "kueue")
    assert not isinstance(effect, str)
    found = told["kueue"]
    assert found["recorded_queue_s"] == pytest.approx(effect.recorded_s)
    assert found["expected_queue_s"] == pytest.approx(effect.changed_s)
    assert (found["expected_queue_low_s"], found["expected_queue_high_s"]) == (effect.low_s, effect.high_s)


def test_policies_that_stop_jobs_say_how_often() -> None:
    known = calibrate_jobs(bench_of(make_world("strict", 1, 0.85, jobs=600)), "Venus", 0.5)
    trace = cast("Trace", SimpleNamespace(has=lambda _: False, ingested_tenant=VC, tenant=VC))
    clusters = [TwinReplays(replace(known, name=name), trace, Progress()) for name in ("Venus", "Earth")]
    found = twin_answers(cast("Twins", SimpleNamespace(reason=None, clusters=clusters, left_out={}, trace=trace)))[-1]
    assert isinstance(found, Answer)
    by = {(row["cluster"], row["policy"]): row["preemptions"] for row in found.frame.to_dicts()}
    outcome, _ = known.bench.replay(known.settings, "srtf")
    assert by["Venus", "srtf"] == outcome.preemptions.sum() > 0
    assert by[ALL, "srtf"] == by["Venus", "srtf"] + by["Earth", "srtf"]
    assert (by["Venus", "sjf"], by[ALL, "sjf"]) == (0, 0)


def test_the_tables_of_policies_have_the_twin_first_and_the_log_last(golden: Golden, rows: Rows) -> None:
    policies = [row["policy"] for row in rows["replay/policies"]]
    assert (policies[0], policies[-1]) == ("twin", "recorded")
    by = {row["policy"]: row for row in rows["replay/policies"]}
    assert by["kueue"]["effect_told"]
    golden(told(by["sjf"]["effect_reason"]))
    assert by["sjf"]["jct_diff_share"] is None
    assert by["twin"]["avg_queue_s"] == pytest.approx(by["recorded"]["avg_queue_s"], rel=0.01)


def test_a_plan_is_next_to_the_record(golden: Golden, rows: Rows) -> None:
    planned = rows["plan/nodes"]
    assert planned[-1]["policy"] == "recorded"
    assert planned[-1]["nodes"] in {row["nodes"] for row in planned[:-1]}
    waits = [row["mean_wait_s"] for row in planned[:-1] if row["mean_wait_s"] is not None]
    assert len(waits) > 2
    assert waits == sorted(waits, reverse=True)
    text = finding("plan/nodes", planned) or ""
    (chart,) = charts("plan/nodes", planned)
    spec = chart.to_dict()
    kinds = [layer["mark"]["type"] for layer in spec["layer"]]
    assert kinds == ["area", "line", "rule", "text", "point"]
    # The size of today stands under its name.
    label = " ".join(spec["layer"][3]["encoding"]["text"]["value"])
    golden(
        [
            told(text, "Venus"),
            told(label, f"today {planned[-1]['nodes']} nodes"),
        ]
    )


def _planned(policy: str, nodes: int, wait: float, low: float | None, high: float | None) -> dict[str, Any]:
    waits = {"mean_wait_s": wait / 2, "p90_wait_s": wait, "p90_wait_low_s": low, "p90_wait_high_s": high}
    return {"cluster": "c", "policy": policy, "nodes": nodes, "gpus": 8 * nodes, **waits}


def test_a_plan_tells_nothing_where_its_months_do_not_wait_as_the_log_did(golden: Golden) -> None:
    months = [_planned("twin", 4, 7200.0, 1800.0, 9000.0), _planned("twin", 5, 60.0, 0.0, 90.0)]
    golden(
        [
            told(
                finding("plan/nodes", [*months, _planned("recorded", 4, 3600.0, None, None)]),
                "1 h",
                "2 h",
                "4",
                "30 min",
                "30 s",
                "5",
            ),
            told(
                finding("plan/nodes", [*months, _planned("recorded", 4, 1200.0, None, None)]),
                "1 h",
                "2 h",
                "4",
                "10 min",
                "20 min",
            ),
        ]
    )
    assert len(charts("plan/nodes", [*months, _planned("recorded", 4, 3600.0, None, None)])) == 1
    assert charts("plan/nodes", [*months, _planned("recorded", 4, 1200.0, None, None)]) == []


def twin(cluster: str, grade: str | None = "close", **more: Any) -> dict[str, Any]:
    told = grade in {"close", "fair"}
    row = {"cluster": cluster, "waiting_share": 0.5, "rules": "first in, first out", "grade": grade}
    return row | {"effects_told": told, "recorded_mean_s": 32_760.0, "twin_mean_s": 33_000.0, "why_not": None} | more


def test_the_scheduler_and_its_grade_are_said_cluster_by_cluster(golden: Golden) -> None:
    rows = [twin("Venus"), twin("Mars", "poor"), twin("Moon", None, why_not="46 jobs are too few"), twin("Pluto")]
    text = finding("replay/twins", rows) or ""
    golden(
        [
            told(finding("replay/twins", [twin("all", waiting_share=1.0)]), "9.2 h", "9.1 h"),
            told(text, "50.0 %", "9.2 h", "9.1 h", "46", "2", "4"),
        ]
    )


def effect(policy: str, verdict: str, expected: float, cluster: str = "Venus", **more: Any) -> dict[str, Any]:
    row = {"cluster": cluster, "policy": policy, "run_times": "not given", "verdict": verdict, "jobs": 10}
    row["preemptions"] = 0
    for what, recorded in (("queue", 7200.0), ("jct", 36_000.0)):
        row |= {f"recorded_{what}_s": recorded, f"expected_{what}_s": expected + recorded - 7200}
        row |= {f"expected_{what}_low_s": expected / 2, f"expected_{what}_high_s": 2 * expected + recorded - 7200}
    return row | more


def test_the_policy_that_would_give_most_is_named_against_the_record(golden: Golden) -> None:
    rows = [effect("las", "shorter", 3600.0), effect("easy", "shorter", 1800.0), effect("fifo", "longer", 9000.0)]
    stopping = finding("replay/effects", [effect("las", "shorter", 1800.0, preemptions=7)])
    known = [effect("srtf", "undecided", 60.0, run_times="given")]
    golden(
        [
            told(
                finding("replay/effects", rows),
                "EASY",
                "Venus",
                "FIFO",
                "2.0 h",
                "0.5 h",
                "0.2 h",
                "1.0 h",
                "10.0 h",
                "8.5 h",
                "9.0 h",
            ),
            told(stopping, "LAS", "10.0 h", "8.5 h", "0.2 h", "9.0 h"),
            told(finding("replay/effects", known)),
        ]
    )


def test_effects_are_drawn_beside_the_record_over_all_clusters() -> None:
    rows = [effect("las", "shorter", 3600.0), effect("las", "shorter", 3000.0, "all clusters", jobs=30)]
    drawn = charts("replay/effects", rows)
    assert [chart.title for chart in drawn] == ["Mean wait", "Mean completion time"]
    spec = json.dumps(drawn[0].to_dict())
    assert "3000.0" in spec
    assert "3600.0" not in spec
    assert "in the log 2 h" in spec


def test_effects_stand_in_one_order_and_those_that_know_run_times_have_another_mark(golden: Golden) -> None:
    rows = [effect("las", "shorter", 3600.0), effect("srtf", "shorter", 60.0, run_times="given")]
    for chart in charts("replay/effects", rows):
        spec = chart.to_dict()
        *log, line, point = spec["layer"]
        assert [layer["mark"]["type"] for layer in log] == ["rule", "text"]
        assert line["encoding"]["y"]["scale"]["domain"] == [
            "least time left (SRTF)",
            "least served first (LAS)",
        ]
        assert point["encoding"]["shape"]["scale"]["range"] == ["circle", "triangle-up"]
    golden(told(charts("replay/effects", rows)[0].note))


def test_an_analysis_takes_a_twin_as_it_is_edited(
    golden: Golden, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    trace, file = sample_trace("helios"), tmp_path / "twin.toml"
    write_twin(calibrate(trace, clusters=["Venus"]).twin, file)
    edited = file.read_text().replace('quotas = "limits"', 'quotas = "none"')
    assert edited != file.read_text()
    file.write_text(edited)
    with asking("overview/status"):
        done = analyze(trace, tmp_path / "out", twin=file, fit=False)
    report = json.loads(done.data.read_text())
    found = {a["name"]: a["rows"] for s in report["sections"] for a in s["answers"]}["replay/twins"]
    assert "each VC" not in found[0]["rules"]
    assert (found[0]["grade"], found[1]["grade"]) == ("poor", None)
    golden(told(found[1]["why_not"]))
    assert f"--twin {file}" in report["command"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "cannot read the twin"),
        ("trace = 3", "trace"),
        ('trace = "sha256:0"\n[cluster.all]', "is a twin of the Trace"),
    ],
    ids=["missing", "malformed", "other Trace"],
)
def test_a_twin_file_that_cannot_be_used_ends_an_analysis_before_the_queries(
    make_trace: Callable[..., Trace], tmp_path: Path, text: str | None, what: str
) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "gpu_count": 1, "submit_time": "2024-01-01"}])
    file = tmp_path / "twin.toml"
    if text is not None:
        file.write_text(text)
    progress = mock.Mock(spec=Progress)
    with pytest.raises(UsageError, match=what) as error:
        analyze(trace, tmp_path / "out", twin=file, progress=progress)
    assert error.value.where == str(file)
    assert "asking" not in [call.args[0] for call in progress.stage.call_args_list]
    assert not (tmp_path / "out").exists()
