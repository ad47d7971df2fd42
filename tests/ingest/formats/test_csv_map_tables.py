"""Mapped tables other than jobs: nodes, quotas, telemetry and node events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]


def test_plain_tables_are_filled_by_their_columns(mapped: Mapped, rows: Rows) -> None:
    mapping = """
    [source]
    cluster = "c"
    [nodes]
    files = "nodes.csv"
    [nodes.columns]
    node_id = "n"
    gpu_count = "g"
    memory_gib = { column = "m", unit = "MiB" }
    [capacity]
    files = "quota.csv"
    [capacity.columns]
    time = "t"
    vc = "v"
    gpu_count = "g"
    """
    trace = mapped(
        mapping,
        {"nodes.csv": "n,g,m\na,8,1024\na,8,1\nb,,\nc,0.5,\n", "quota.csv": "t,v,g\n2020-01-01,x,8\n,x,9\n"},
    )
    assert rows(trace, "nodes") == [
        {"node_id": "a", "cluster": "c", "gpu_count": 8, "memory_gib": 1.0},
        {"node_id": "b", "cluster": "c"},
        {"node_id": "c", "cluster": "c"},
    ]
    assert rows(trace, "capacity") == [{"time": "2020-01-01 00:00:00", "cluster": "c", "vc": "x", "gpu_count": 8.0}]
    assert [(r["source_file"], r["line"]) for r in rows(trace, "rejects")] == [
        ("nodes.csv", 3),
        ("quota.csv", 3),
    ]


LONG = r"""
[source]
time_format = "epoch_s"
[telemetry.dcgm]
files = "dcgm.csv"
layout = "long"
time = "ts"
uuid = "uuid"
metric = "m"
value = "v"
gpu_metrics = { utilization_pct = "UTIL", memory_used_gib = { column = "FB", unit = "MiB" } }
[telemetry.host]
files = "host.csv"
layout = "long"
time = "ts"
node = { column = "instance", regex = "([^:]+)" }
metric = "m"
value = "v"
host_metrics = { cpu_pct = { column = "cpu", unit = "share" } }
[gpus]
files = "gpus.csv"
uuid = "u"
node = "h"
gpu = "i"
"""


def test_long_samples_are_joined_by_time_and_gpu(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    trace = mapped(
        LONG,
        {
            "dcgm.csv": "ts,uuid,m,v\n60,G1,UTIL,50\n60,G1,FB,2048\n0,G2,UTIL,7\n0,G2,UTIL,9\n0,G2,TEMP,hot\n"
            "0,G9,UTIL,1\n0,G1,UTIL,x\n",
            "host.csv": "ts,instance,m,v\n0,n1:9400,cpu,0.25\n",
            "gpus.csv": "u,h,i\nG1,n1,0\nG2,n1,1\n",
        },
    )
    assert rows(trace, "gpu_utilization") == [
        {"time": "1970-01-01 00:00:00", "node_id": "n1", "gpu_index": 1, "utilization_pct": 9.0},
        {
            "time": "1970-01-01 00:01:00",
            "node_id": "n1",
            "gpu_index": 0,
            "utilization_pct": 50.0,
            "memory_used_gib": 2.0,
        },
    ]
    assert rows(trace, "host_utilization") == [{"time": "1970-01-01 00:00:00", "node_id": "n1", "cpu_pct": 25.0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (7, "uuid", "is not in the table of GPUs"),
        (8, "value", "is not a finite number"),
    ]
    assert found_checks(trace) == {"unmapped_metric": (1, 6), "repeated_gpu_utilization_values": (1, 4)}
    assert [(f.path, f.records, f.kept) for f in trace.manifest.files] == [
        ("gpus.csv", 2, 2),
        ("dcgm.csv", 7, 5),
        ("host.csv", 1, 1),
    ]


def test_wide_matrices_and_rows_are_unpivoted(mapped: Mapped, rows: Rows) -> None:
    mapping = r"""
    [source]
    time_format = "epoch_s"
    [telemetry.util]
    files = "util.csv"
    layout = "wide"
    server = '(?<node>\w+)-(?<gpu>\d+)'
    gpu_metrics = { utilization_pct = "*" }
    [telemetry.cpu]
    files = "cpu.csv"
    layout = "wide"
    host_metrics = { cpu_pct = { column = "*", unit = "share" } }
    [telemetry.smi]
    files = "smi.csv"
    layout = "row"
    time = "t"
    node = "n"
    gpu = "g"
    gpu_metrics = { power_w = "w" }
    """
    trace = mapped(
        mapping,
        {
            "util.csv": "Time,a-0,a-1,other\n0,10,,1\n60,x,5,2\n120,20,30,\n",
            "cpu.csv": "Time,a,b\n0,0.5,\n",
            "smi.csv": "t,n,g,w\n0,a,0,250\n0,a,1,-5\n",
        },
    )
    assert rows(trace, "gpu_utilization") == [
        {"time": "1970-01-01 00:00:00", "node_id": "a", "gpu_index": 0, "utilization_pct": 10.0, "power_w": 250.0},
        {"time": "1970-01-01 00:01:00", "node_id": "a", "gpu_index": 1, "utilization_pct": 5.0},
        {"time": "1970-01-01 00:02:00", "node_id": "a", "gpu_index": 0, "utilization_pct": 20.0},
        {"time": "1970-01-01 00:02:00", "node_id": "a", "gpu_index": 1, "utilization_pct": 30.0},
    ]
    assert rows(trace, "host_utilization") == [{"time": "1970-01-01 00:00:00", "node_id": "a", "cpu_pct": 50.0}]
    assert rows(trace, "rejects") == []
    assert {name: check.count for name, check in trace.manifest.checks.items() if name.startswith("unreadable")} == {
        "unreadable_a_0": 1,
        "unreadable_w": 1,
    }


def test_a_sample_whose_wall_clock_names_no_instant_is_rejected(mapped: Mapped, rows: Rows) -> None:
    mapping = """
    [source]
    timezone = "America/Los_Angeles"
    [telemetry.cpu]
    layout = "wide"
    host_metrics = { cpu_pct = "*" }
    """
    trace = mapped(mapping, {"a.csv": "t,n1\n2017-11-05 00:30:00,5\n2017-11-05 01:30:00,6\n"})
    assert rows(trace, "host_utilization") == [{"time": "2017-11-05 07:30:00", "node_id": "n1", "cpu_pct": 5.0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (3, "t", "is missing, or means no instant")
    ]


EVENTS = """
[jobs]
files = "jobs.csv"
[jobs.columns]
job_id = "id"
[node_events]
files = "events.csv"
time_format = "%Y-%m-%d %H:%M"
timezone = "Europe/Berlin"
[node_events.columns]
node_id = "host"
start_time = "since"
end_time = "until"
state = { column = "state", words = { down = ["DOWN", "FAIL"], drained = "DRAIN", maintenance = "MAINT" } }
cause = { column = "why", words = { hardware = ["Xid 79"] } }
source_cause = "why"
source = { value = "scontrol" }
"""
EVENTS_HEADER = "host,since,until,state,why\n"


def test_a_mapped_file_of_events_gives_node_events(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    lines = "n1,2024-03-04 08:00,2024-03-04 09:30,FAIL,Xid 79\nn1,2024-03-05 08:00,,DRAIN,\n"
    trace = mapped(EVENTS, {"jobs.csv": "id\n1\n", "events.csv": EVENTS_HEADER + lines})
    assert trace.tables == ("jobs", "node_events")
    assert rows(trace, "node_events") == [
        {
            "node_id": "n1",
            "start_time": "2024-03-04 07:00:00",
            "end_time": "2024-03-04 08:30:00",
            "state": "down",
            "cause": "hardware",
            "source_cause": "Xid 79",
            "source": "scontrol",
        },
        {"node_id": "n1", "start_time": "2024-03-05 07:00:00", "state": "drained", "source": "scontrol"},
    ]
    assert found_checks(trace) == {}


def test_an_event_without_usable_times_or_state_is_rejected(mapped: Mapped, rows: Rows) -> None:
    bad = [
        "n1,2024-03-04 08:00,2024-03-04 07:59,FAIL,",  # ends before it starts
        "n1,2024-03-04 08:00,1970-01-01 01:00,FAIL,",  # would never end
        "n1,1970-01-01 01:00,2024-03-04 08:00,FAIL,",
        "n1,2024-03-04 08:00,9999-12-31 00:00,FAIL,",
        "n1,2024-03-04 08:00,soon,FAIL,",
        "n1,2024-03-04 08:00,2024-10-27 02:30,FAIL,",  # one of two instants
        "n1,,2024-03-04 08:00,FAIL,",
        "n1,2024-03-04 08:00,,ALLOC,",
        ",2024-03-04 08:00,,FAIL,",
        "n1,2024-03-05 08:00,2024-03-06 08:00,FAIL,",  # the key of an earlier one
    ]
    good = [f"n1,2024-03-{day:02} 08:00,2024-03-{day:02} 09:00,FAIL," for day in range(5, 15)]
    text = EVENTS_HEADER + "\n".join([*good, *bad]) + "\n"
    trace = mapped(EVENTS, {"jobs.csv": "id\n1\n", "events.csv": text})
    assert len(rows(trace, "node_events")) == 10
    assert [(r["line"] - 11, r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (1, "until", "is before the start"),
        (2, "until", "cannot be a date of this log"),
        (3, "since", "cannot be a date of this log"),
        (4, "until", "cannot be a date of this log"),
        (5, "until", "is not a time like %Y-%m-%d %H:%M"),
        (6, "until", "means no instant"),
        (7, "since", "is missing, or means no instant"),
        (8, "state", "is not a listed word for state"),
        (9, "host", "is missing"),
        (10, "node_id, start_time, state, source", "repeats the key of an earlier record"),
    ]


@pytest.mark.parametrize("name", ["node_id", "start_time", "state"])
def test_node_events_need_a_node_a_start_and_a_state(mapped: Mapped, name: str) -> None:
    lines = [line for line in EVENTS.splitlines() if not line.startswith(f"{name} =")]
    with pytest.raises(UsageError, match=rf"line 10: node_events\.columns: does not define {name}"):
        mapped("\n".join(lines), {"jobs.csv": "id\n1\n", "events.csv": EVENTS_HEADER})
