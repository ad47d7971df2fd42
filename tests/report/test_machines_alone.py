"""The report of a Trace that has machines and their outages, and no jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import answers_of, told
from tracekit.analysis import analyze
from tracekit.report.headline import headline, machine_cards
from tracekit.report.sections.failures_of_nodes import cause_shares
from tracekit.report.sections.interface import TraceFacts, charts, finding, section_lead
from tracekit.report.summary import about_machines, summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.report.structure import TimeInfo
    from tracekit.trace import Trace

METRICS: dict[str, tuple[float | None, str]] = {
    "nodes": (4, "nodes"),
    "observed_h": (100, "hours"),
    "nodes_hit": (3, "nodes"),
    "outages": (5, "outages"),
    "events": (6, "events"),
    "going_on": (1, "events"),
    "down_node_h": (40, "hours"),
    "availability_share": (0.9, "share"),
    "known_gpu_nodes": (3, "nodes"),
    "down_gpu_h": (200, "GPU-hours"),
    "outages_per_node_year": (109.5, "outages/year"),
    "most_down_at_once": (2, "nodes"),
}
CAUSES = [
    {"cause": "unknown", "state": "down", "events": 3, "going_on": 1, "node_hours": 10.0, "gpu_hours": 80.0},
    {"cause": "fan", "state": "down", "events": 1, "going_on": 0, "node_hours": 20.0, "gpu_hours": 40.0},
    {"cause": "fan", "state": "maintenance", "events": 1, "going_on": 0, "node_hours": 5.0, "gpu_hours": None},
    {"cause": "nic", "state": "down", "events": 1, "going_on": 0, "node_hours": 5.0, "gpu_hours": 80.0},
    {"cause": "xid", "state": "degraded", "events": 9, "going_on": 0, "node_hours": 99.0, "gpu_hours": 99.0},
]


def _answers(causes: list[dict[str, Any]], **changed: float | None) -> Any:
    values = {name: changed.get(name, value) for name, (value, _) in METRICS.items()}
    rows = [{"metric": name, "value": value, "unit": METRICS[name][1]} for name, value in values.items()]
    return answers_of(failures__cluster_availability=rows, failures__out_of_service=causes)


WHEN: TimeInfo = {
    "base": "relative",
    "timezone": "UTC",
    "first": None,
    "last": None,
    "last_submission": None,
    "span_s": 100 * 86400.0,
    "text": "",
}


def test_the_opening_tells_what_was_observed_and_what_it_cost(golden: Golden) -> None:
    assert (about_machines(_answers(CAUSES[:1]), None) or "").endswith(" Their causes are unknown.")
    none = about_machines(_answers([], outages=0, down_node_h=0, availability_share=1), None)
    golden(
        [
            told(about_machines(_answers(CAUSES), WHEN), "4", "100", "90.0 %", "5", "3", "40", "62.5 %", "25.0 %"),
            told(about_machines(_answers(CAUSES[1:]), None), "fan", "83.3 %"),
            told(none, "4"),
        ]
    )
    assert about_machines({}, WHEN) is None


def test_causes_are_compared_by_hours_and_degraded_nodes_are_left_out() -> None:
    assert cause_shares(CAUSES, "node_hours") == [
        {"cause": "fan", "hours": 25.0, "share": 0.625, "events_share": pytest.approx(2 / 6)},
        {"cause": "unknown", "hours": 10.0, "share": 0.25, "events_share": 0.5},
        {"cause": "nic", "hours": 5.0, "share": 0.125, "events_share": pytest.approx(1 / 6)},
    ]
    # By GPU-hours nic and unknown took twice as much as the fan; of equals the first by name comes first.
    assert [r["cause"] for r in cause_shares(CAUSES, "gpu_hours")] == ["nic", "unknown", "fan"]
    assert cause_shares(CAUSES[4:], "gpu_hours") == []
    (chart,) = charts("failures/out_of_service", CAUSES)
    (values,) = chart.to_dict()["datasets"].values()
    assert [(v["key"], v["share"]) for v in values if "GPU-hours" in v["measure"]] == [
        ("nic", 0.4),
        ("unknown", 0.4),
        ("fan", 0.2),
    ]


def test_the_numbers_of_the_first_screen_are_of_machines(golden: Golden) -> None:
    cards = machine_cards(_answers(CAUSES))
    assert [c["text"] for c in cards] == ["90.0 %", "4", "5", "40", "2"]
    numbers = ((), ("3",), ("4", "1"), ("200", "3"), ())
    notes = [told(c["note"], *stated) for c, stated in zip(cards, numbers, strict=True)]
    # A rate a year is told of a log of a week or more.
    weeks = machine_cards(_answers([], observed_h=876, outages_per_node_year=12.5))[2]["note"]
    golden(
        [
            *(f"{c['label']}: {note}" for c, note in zip(cards, notes, strict=True)),
            told(machine_cards(_answers([], down_gpu_h=None))[3]["note"]),
            told(weeks, "12.5", "1"),
        ]
    )
    assert machine_cards(_answers([], availability_share=None)) == []
    capacity: Any = {"gpus": None}
    assert headline(_answers(CAUSES), capacity) == cards
    jobs = answers_of(overview__summary=[{"metric": "jobs", "value": 3.0, "unit": "jobs"}])
    assert [c["label"] for c in headline(_answers(CAUSES) | jobs, capacity)] == ["jobs"]


def test_what_nobody_could_judge_is_not_an_absence_of_problems(golden: Golden) -> None:
    entry = {"id": "x", "title": "X", "verdict": "cannot tell", "effect": None, "no_effect": None}
    found = summary(_answers(CAUSES), {"guidelines": [entry, entry]})
    jobs = answers_of(overview__summary=[{"metric": "jobs", "value": 3.0}])
    decided = summary(jobs, {"guidelines": [entry, {**entry, "verdict": "does not hold"}]})
    golden(
        [
            told(found["heading"]),
            told(found["verdict"], "2"),
            told(summary(jobs, {"guidelines": [entry]})["heading"]),
            told(decided["heading"]),
        ]
    )


def test_sentences_of_the_cluster_and_of_its_worst_time(golden: Golden) -> None:
    rows = [{"metric": name, "value": value} for name, (value, _) in METRICS.items()]
    short = [{**row, "value": 0.077} if row["metric"] in {"down_node_h", "down_gpu_h"} else row for row in rows]
    whole = {"node_id": None, "rank": 0, "span_h": 48.0}
    spans = [
        {**whole, "start_time": "1970-01-01T00:00:00", "nodes_down": 0.5, "down_h": 24.0, "down_share": 0.125},
        {**whole, "start_time": "1970-01-03T00:00:00", "nodes_down": 1.5, "down_h": 72.0, "down_share": 0.375},
    ]
    relative = TraceFacts(dated=False)
    golden(
        [
            told(finding("failures/cluster_availability", rows), "4", "90.0 %", "5", "3", "40", "200", "2"),
            told(str(finding("failures/cluster_availability", short)), "0.077"),
            told(finding("failures/availability_over_time", spans, relative), "1", "1.5", "48.0", "2"),
        ]
    )
    assert finding("failures/availability_over_time", [{**s, "nodes_down": 0.0} for s in spans], relative) is None
    assert charts("failures/availability_over_time", spans, relative) == []


@pytest.mark.parametrize("dated", [True, False])
def test_a_strip_has_a_row_for_each_of_the_worst_nodes(golden: Golden, dated: bool) -> None:
    base = {"start_time": "1970-01-03T00:00:00", "span_h": 24.0}
    base |= {"nodes_down": 1.0, "down_h": 24.0, "down_share": 0.5}
    whole = [{**base, "node_id": None, "rank": 0, "start_time": f"1970-01-0{day}T00:00:00"} for day in (2, 3)]
    long = "rack-17-chassis-3-node-"
    nodes = [{**base, "node_id": f"{long}{i}", "rank": i} for i in (1, 2)]
    total, strip = charts("failures/availability_over_time", whole + nodes, TraceFacts(dated=dated))
    (spans,) = total.to_dict()["datasets"].values()
    assert [(s["from"], s["to"], s["nodes"]) for s in spans] == (
        [("1970-01-02T00:00Z", "1970-01-03T00:00Z", 1.0), ("1970-01-03T00:00Z", "1970-01-04T00:00Z", 1.0)]
        if dated
        else [(1.0, 2.0, 1.0), (2.0, 3.0, 1.0)]
    )
    spec = strip.to_dict()
    # Names that are alike once they are cut are told apart by their rank.
    assert [name.rpartition(" ")[2] for name in spec["encoding"]["y"]["scale"]["domain"]] == ["(1)", "(2)"]
    golden(told(strip.note, "2"))


def test_the_lead_speaks_of_what_is_there() -> None:
    alone, both = TraceFacts(jobs=False, outages=True), TraceFacts(outages=True)
    assert "attempt" not in section_lead("failures", alone)
    assert "outage" in section_lead("failures", alone)
    assert {"outage", "attempt"} <= set(section_lead("failures", both).replace(".", "").split())
    assert "outage" not in section_lead("failures")


def test_a_trace_without_jobs_gives_a_report_that_says_so(
    golden: Golden, make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    times = [("a", "2020-01-01", "2020-01-03", "down", "fan"), ("b", "2020-01-05", "2020-01-11", "degraded", None)]
    events = [dict(zip(("node_id", "start_time", "end_time", "state", "cause"), one, strict=True)) for one in times]
    absent = {name: {"available": False, "note": "not stated"} for name in ("arrivals", "run_time", "statuses")}
    trace = make_trace(
        node_events=events,
        nodes=[{"node_id": name, "gpu_count": 8} for name in "abcd"],
        manifest_overrides={"capabilities": absent},
    )
    analyze(trace.path, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["time"]["text"] == "1 to 11 January 2020"
    golden(
        [
            told(report["opening"]["about"], "4", "10", "95.0 %", "1", "48", "100 %"),
            told(report["opening"]["heading"]),
        ]
    )
    assert {
        tuple(u["reasons"]) for u in report["unanswered"] if u["name"].startswith(("queuing", "fit", "replay"))
    } == {("The trace has no jobs.",)}
    assert [s["name"] for s in report["sections"]] == ["failures"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "What could not be checked" in page
    assert "No problem found" not in page
