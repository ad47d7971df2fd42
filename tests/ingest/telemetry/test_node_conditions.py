"""Conditions of Kubernetes nodes become events: when they show, until they no longer do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.telemetry.monitored import DAY, Cluster, series
from tracekit.ingest.telemetry._node_conditions import outages

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

READY, CORDONED = "kube_node_status_condition", "kube_node_spec_unschedulable"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path / "logs")
    found.jobs(("1", "10:00", "12:00", 2, "n1"), ("2", "10:00", "12:00", 2, "n2"))
    return found


def ready(status: str, values: dict[str, int], **labels: str) -> dict[str, Any]:
    return series(READY, values, condition="Ready", status=status, **labels)


def events(trace: Trace) -> list[tuple[object, ...]]:
    if not trace.has("node_events"):
        return []
    frame = trace.scan("node_events").collect()
    clocks = [frame[name].dt.strftime("%H:%M").alias(name) for name in ("start_time", "end_time")]
    columns = ("node_id", "start_time", "end_time", "state", "cause", "source_cause", "source")
    return frame.with_columns(clocks).select(columns).rows()


def counts(trace: Trace) -> dict[str, int]:
    return {name: c.count for name, c in trace.manifest.checks.items() if c.count and "condition" in name}


def test_a_node_is_down_from_the_first_sample_to_the_first_that_no_longer_shows_it(cluster: Cluster) -> None:
    times = ("10:00", "10:01", "10:02", "10:03", "10:04", "10:05")
    cluster.answer(
        "a.json",
        [
            ready("unknown", dict(zip(times, (0, 1, 0, 0, 0, 0), strict=True)), node="n1"),
            ready("false", dict(zip(times, (0, 0, 1, 1, 0, 1), strict=True)), node="n1", instance="10.0.0.9:8080"),
            ready("true", dict(zip(times, (1, 0, 0, 0, 1, 0), strict=True)), node="n1"),
            ready("false", dict.fromkeys(times, 0), node="n2"),
            series(CORDONED, {"10:00": 0, "10:03": 1, "10:05": 0}, node="n2"),
            series(READY, {"10:00": 1}, condition="MemoryPressure", status="true", node="n2"),
        ],
    )
    trace = cluster.trace()
    by = "kube-state-metrics"
    # Unknown and then false is one time down; the one from 10:05 goes on.
    assert events(trace) == [
        ("n1", "10:01", "10:04", "down", "unknown", "Ready is unknown", by),
        ("n2", "10:03", "10:05", "drained", None, None, by),
        ("n1", "10:05", None, "down", "unknown", "Ready is false", by),
    ]
    assert counts(trace) == {}
    assert trace.manifest.checks["unused_telemetry_metrics"].count == 1
    assert "3 events of 2 Kubernetes nodes from kube-state-metrics" in trace.manifest.notes
    assert trace.validate() == []


def test_only_ready_is_known_and_answers_of_several_days_are_one_series(cluster: Cluster) -> None:
    cluster.answer("1.json", [ready("true", {"10:00": 1, "10:10": 0, "10:20": 0}, node="n1.example.org")])
    cluster.answer("2.json", [ready("true", {"10:20": 0, "10:30": 0, "10:40": 1}, node="n1.example.org")])
    assert events(cluster.trace()) == [("n1", "10:10", "10:40", "down", None, None, "kube-state-metrics")]


def test_what_the_first_sample_shows_began_before_and_is_counted(cluster: Cluster) -> None:
    cluster.answer("a.json", [ready("false", {"10:00": 1, "10:01": 0}, node="n1")])
    trace = cluster.trace()
    assert [event[:4] for event in events(trace)] == [("n1", "10:00", "10:01", "down")]
    assert counts(trace) == {"node_conditions_before_samples": 1}


def test_unknown_nodes_nameless_series_and_renamed_labels(cluster: Cluster) -> None:
    cluster.nodes = {}
    cluster.answer(
        "a.json",
        [
            ready("false", {"10:00": 0, "10:01": 1, "10:02": 0}, node="monitor-1", exported_node="n1"),
            ready("false", {"10:00": 0, "10:01": 1, "10:02": 0}, node="stranger"),
            ready("false", {"10:00": 0, "10:01": 1}),
        ],
    )
    trace = cluster.trace()
    assert [event[0] for event in events(trace)] == ["n1", "stranger"]
    assert counts(trace) == {"node_conditions_without_node": 1}
    assert trace.manifest.checks["events_of_unlisted_nodes"].count == 1


def test_errors_of_gpus_and_samples_are_next_to_conditions(cluster: Cluster) -> None:
    labels = {"Hostname": "n1", "gpu": "0"}
    cluster.answer(
        "a.json",
        [
            series("DCGM_FI_DEV_XID_ERRORS", {"10:00": 0, "10:01": 79}, **labels),
            series("DCGM_FI_DEV_GPU_UTIL", {"10:00": 50}, **labels),
            ready("unknown", {"10:00": 0, "10:02": 1, "10:09": 0}, node="n1"),
        ],
    )
    trace = cluster.trace()
    assert [(e[0], e[3], e[6]) for e in events(trace)] == [
        ("n1", "degraded", "xid"),
        ("n1", "down", "kube-state-metrics"),
    ]
    assert trace.scan("gpu_utilization").collect().height == 1


def test_a_list_of_nodes_makes_place_for_samples_that_know_the_end(cluster: Cluster) -> None:
    import json

    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": f"{DAY}T10:00:30Z", "reason": "Lost"}
    items = [
        {
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"capacity": {"cpu": "8"}, "conditions": [condition]},
        }
        for name in ("n1", "n2")
    ]
    (cluster.folder / "nodes.json").write_text(json.dumps({"kind": "NodeList", "items": items}))
    cluster.answer("a.json", [ready("unknown", {"10:00": 0, "10:01": 1, "10:09": 0}, node="n1")])
    trace = cluster.trace()
    assert [(e[0], e[1], e[2], e[6]) for e in events(trace)] == [
        ("n2", "10:00", None, "kubernetes"),
        ("n1", "10:01", "10:09", "kube-state-metrics"),
    ]
    assert any("in Kubernetes node lists are ignored (1)" in note for note in trace.manifest.notes)


SAMPLES = st.dictionaries(st.integers(0, 20), st.booleans(), min_size=1)


@given(SAMPLES, SAMPLES)
def test_spans_agree_with_a_walk_through_the_minutes(unknown: dict[int, bool], false: dict[int, bool]) -> None:
    rows = [
        ("n", metric, minute, holds)
        for metric, samples in (("u", unknown), ("f", false))
        for minute, holds in samples.items()
    ]
    kinds = {"host": pl.String, "metric": pl.String, "time": pl.Int64, "holds": pl.Boolean}
    found = outages(pl.DataFrame(rows, schema=kinds, orient="row"), {"u": "unknown", "f": None}, "down")
    now, began = [False, False], None
    expected: list[tuple[int, int | None]] = []
    for minute in range(21):
        for number, samples in enumerate((unknown, false)):
            now[number] = samples.get(minute, now[number])
        if any(now) and began is None:
            began = minute
        elif not any(now) and began is not None:
            expected.append((began, minute))
            began = None
    if began is not None:
        expected.append((began, None))
    spans = found.select(pl.col("start_time", "end_time").cast(pl.Int64)).rows()
    assert spans == expected
    assert found["first"].to_list() == [start == min([*unknown, *false]) for start, _ in spans]
