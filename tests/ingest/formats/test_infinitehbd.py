"""InfiniteHBD-Trace: faults become times in which a server was down, and what cannot be one is told."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit.errors import SourceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.node_events import CAUSES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

ECC = {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU DBE(Double Bit ECC) > Threshold"}
CABLE = {"Level": "Hardware Failure", "Class": "Parameter Plane Cable", "Desc": "Link Down"}
EPOCH = dt.datetime(1970, 1, 1)
OFFLINE = {"Level": "Other Failure", "Class": "Test", "Desc": "Temporarily Offline"}


def record(node: str, day: float, *, ends: bool = False, kind: dict[str, str] = ECC) -> dict[str, Any]:
    what = "fault_end" if ends else "fault_start"
    return {"node_id": node, "event_time": day, "event_type": what, "fault_type": kind}


def ingest(folder: Path, records: list[Any] | str, statistics: Any = None, **options: str) -> Trace:
    source = folder / "source"
    source.mkdir(exist_ok=True)
    text = records if isinstance(records, str) else json.dumps(records)
    (source / "fault_trace.json").write_text(text)
    if statistics is not None:
        (source / "fault_statistics.json").write_text(json.dumps(statistics))
    return ingest_logs(source, folder / "trace", options=options, force=True, max_reject_share=1)


def test_begin_and_end_become_one_event(tmp_path: Path) -> None:
    records = [
        record("a", 0.5),
        record("b", 1, kind=CABLE),
        record("a", 1.25, kind=CABLE),
        record("a", 1.5, ends=True),
        record("a", 2, ends=True, kind=CABLE),
        record("c", 2, kind=OFFLINE),
        record("c", 2.0001, ends=True, kind=OFFLINE),
    ]
    trace = ingest(tmp_path, records, servers="5", gpus_per_server="8")
    events = trace.scan("node_events").sort("start_time").collect()
    shown = events.with_columns(events[name].dt.to_string("%dT%H:%M:%S%.3f") for name in ("start_time", "end_time"))
    source = "fault_trace"
    cable = "Hardware Failure: Parameter Plane Cable: Link Down"
    assert shown.rows() == [
        ("a", "01T12:00:00.000", "02T12:00:00.000", "down", "gpu memory",
         "Hardware Failure: GPU: GPU DBE(Double Bit ECC) > Threshold", source),
        ("b", "02T00:00:00.000", None, "down", "network cable", cable, source),
        ("a", "02T06:00:00.000", "03T00:00:00.000", "down", "network cable", cable, source),
        ("c", "03T00:00:00.000", "03T00:00:08.640", "maintenance", "maintenance",
         "Other Failure: Test: Temporarily Offline", source),
    ]  # fmt: skip
    assert trace.scan("nodes").select("node_id", "gpu_count").collect().rows() == [
        ("a", 8), ("b", 8), ("c", 8), ("unnamed-1", 8), ("unnamed-2", 8),
    ]  # fmt: skip
    assert trace.manifest.time_base == "relative"
    assert trace.validate(deep=True) == []


def test_what_cannot_be_a_fault_is_reported(tmp_path: Path, found_checks: FoundChecks) -> None:
    records = [
        record("a", 1, ends=True),
        record("a", 2),
        record("a", 3),
        record("a", 4, ends=True),
        record("", 5),
        record("a", -1),
        record("a", True),
        record("a", 40_000),
        {**record("a", 6), "event_type": "fault"},
        {"node_id": "a", "event_time": 7, "event_type": "fault_start"},
        {"node_id": "a", "event_time": 8, "event_type": "fault_start", "fault_type": "GPU"},
    ]
    trace = ingest(tmp_path, records, servers="0")
    rejects = trace.scan("rejects").select("column", "reason").collect().rows()
    days = ("event_time", "is not a number of days from 0 to 36,500")
    assert rejects == [
        ("node_id", "is missing"),
        days,
        days,
        days,
        ("event_type", "is neither fault_start nor fault_end"),
        ("fault_type", "is not an object"),
        ("event_type", "ends a fault that has no start"),
    ]
    assert trace.manifest.files[0].kept == 4
    # The second begin of one fault, and the two that never end.
    assert found_checks(trace) == {"faults_that_began_twice": (1, 3), "faults_without_end": (2, 3)}
    causes = trace.scan("node_events").collect()["cause"].to_list()
    assert causes == ["gpu memory", "gpu memory", "unknown"]


def test_faults_that_begin_together_are_one_time_out_of_service(tmp_path: Path, found_checks: FoundChecks) -> None:
    records = [record("a", 1), record("a", 1, kind=CABLE), record("a", 1, kind=CABLE), record("a", 2, ends=True)]
    trace = ingest(tmp_path, [*records, record("a", 4, ends=True, kind=CABLE)], servers="0")
    (event,) = trace.scan("node_events").collect().to_dicts()
    assert (event["end_time"] - event["start_time"]).days == 3
    assert event["cause"] == "gpu memory"
    assert event["source_cause"].endswith("Threshold; Hardware Failure: Parameter Plane Cable: Link Down")
    assert found_checks(trace) == {"faults_that_begin_together": (1, 2)}
    assert trace.scan("rejects").collect()["reason"].to_list() == ["starts a fault that already started at this time"]


def test_damaged_text_is_set_aside_or_refused(tmp_path: Path) -> None:
    good = json.dumps([record("a", 1), record("a", 2, ends=True)])
    trace = ingest(tmp_path, good[:-1] + ', {"node_id": a}]', servers="0")
    assert trace.scan("rejects").collect()["reason"].str.starts_with("is not JSON").to_list() == [True]
    with pytest.raises(SourceError, match="truncated"):
        ingest(tmp_path, good[:-20])


def test_statistics_are_held_to_the_trace(tmp_path: Path, found_checks: FoundChecks) -> None:
    stated = {
        "Hardware Failure": {
            "LevelTotal": 3,
            "GPU": {"ClassTotal": 1, ECC["Desc"]: 1},
            "Parameter Plane Cable": {"ClassTotal": 2, "Link Down": 2},
        },
    }
    records = [record("a", 1), record("a", 2, ends=True), record("a", 3, kind=CABLE), record("b", 3, kind=OFFLINE)]
    trace = ingest(tmp_path, records, stated, servers="0")
    # One cable too few, and an offline server of which the statistics do not know.
    assert found_checks(trace)["faults_against_statistics"] == (2, 3)
    with pytest.raises(SourceError, match="is not a table of faults"):
        ingest(tmp_path, records, {"Hardware Failure": {"LevelTotal": 1, "GPU": 3}, "LevelTotal": []})


@pytest.mark.parametrize("number", ["", 1.5, True])
def test_a_statistic_that_is_no_number_differs_from_the_trace(
    tmp_path: Path, found_checks: FoundChecks, number: Any
) -> None:
    stated = {"Hardware Failure": {"LevelTotal": 1, "GPU": {"ClassTotal": 1, ECC["Desc"]: number}}}
    trace = ingest(tmp_path, [record("a", 1), record("a", 2, ends=True)], stated, servers="0")
    assert found_checks(trace)["faults_against_statistics"] == (1, 1)


@pytest.mark.parametrize(("name", "value"), [("servers", "-1"), ("servers", "many"), ("gpus_per_server", "4097")])
def test_a_wrong_number_is_one_line(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"--option {name}: '{value}' is not a whole number"):
        ingest(tmp_path, [record("a", 1)], **{name: value})


@settings(max_examples=examples(20), deadline=None)
@given(
    faults=st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 50), st.sampled_from([ECC, CABLE, OFFLINE])
        ),
        max_size=12,
    ),
    data=st.data(),
)
def test_every_fault_comes_back(
    faults: list[tuple[str, int, int, dict[str, str]]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = [record("z", 0), record("z", 0, ends=True)]
    for node, begin, length, kind in faults:
        records += [record(node, begin, kind=kind), record(node, begin + length, ends=True, kind=kind)]
    trace = ingest(tmp_path_factory.mktemp("faults"), data.draw(st.permutations(records)), servers="0")
    events = trace.scan("node_events").collect()
    # A begin that is there twice is set aside, and one of its ends with it.
    twice = trace.manifest.files[0].rejected // 2
    together = trace.manifest.checks["faults_that_begin_together"].count
    assert events.height + together + twice == len(faults) + 1
    assert (events["end_time"] >= events["start_time"]).all()
    # Whichever end goes with which begin: a day on which something was down is one on which something is.
    down = {(node, day) for node, begin, length, _ in faults for day in range(begin, begin + length)}
    seen = {
        (node, day)
        for node, begin, end in events.select("node_id", "start_time", "end_time").iter_rows()
        for day in range((begin - EPOCH).days, (end - EPOCH).days)
    }
    assert seen == down or twice


def test_the_release_has_the_faults_that_its_statistics_state(
    real_data: Callable[[str], Path], tmp_path: Path, found_checks: FoundChecks
) -> None:
    folder = real_data("infinitehbd")
    trace = ingest_logs(folder, tmp_path / "trace")
    events = trace.scan("node_events").collect()
    assert (events.height, events["node_id"].n_unique(), trace.scan("nodes").collect().height) == (584, 231, 400)
    assert found_checks(trace) == {}
    stated = json.loads((folder / "fault_statistics.json").read_text())
    expected = {
        f"{level}: {part}: {text}": count
        for level, parts in stated.items()
        for part, texts in parts.items()
        if part != "LevelTotal"
        for text, count in texts.items()
        if text != "ClassTotal"
    }
    assert Counter(events["source_cause"].to_list()) == expected
    assert set(events["cause"].to_list()) <= set(CAUSES)
    # The time down, added up from the raw records without pairing them.
    raw = json.loads((folder / "fault_trace.json").read_text())
    days = sum(r["event_time"] * (1 if r["event_type"] == "fault_end" else -1) for r in raw)
    down = int((events["end_time"] - events["start_time"]).dt.total_milliseconds().sum())
    assert down / 86_400e3 == pytest.approx(days, abs=1e-3)
