"""Each rule finds the row that breaks it, and names it; a Trace that keeps all of them has no problem."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit import schema
from tracekit.manifest import FileAccount
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Job a ran twice: it waited 10 s, ran 20 s, waited 5 s, ran 25 s. Job b waits.
JOBS: list[dict[str, Any]] = [
    {
        "job_id": "a",
        "status": "completed",
        "submit_time": "2017-10-03 00:00:00",
        "start_time": "2017-10-03 00:00:10",
        "end_time": "2017-10-03 00:01:00",
        "queue_s": 10.0,
        "run_s": 50.0,
        "gpu_count": 2.0,
        "attempt_count": 2,
    },
    {"job_id": "b", "status": "pending", "submit_time": "2017-10-03 00:00:05", "attempt_count": 0},
]
ATTEMPTS: list[dict[str, Any]] = [
    {
        "job_id": "a",
        "attempt": 0,
        "start_time": "2017-10-03 00:00:10",
        "end_time": "2017-10-03 00:00:30",
        "run_s": 20.0,
        "wait_s": 10.0,
    },
    {
        "job_id": "a",
        "attempt": 1,
        "start_time": "2017-10-03 00:00:35",
        "end_time": "2017-10-03 00:01:00",
        "run_s": 25.0,
        "wait_s": 5.0,
    },
]
PLACEMENTS: list[dict[str, Any]] = [
    {
        "job_id": "a",
        "attempt": 0,
        "node_id": "n",
        "gpu_index": [0, 1],
        "gpu_count": 2.0,
        "start_time": "2017-10-03 00:00:10",
        "end_time": "2017-10-03 00:00:30",
    }
]
OTHERS: dict[str, list[dict[str, Any]]] = {
    "nodes": [{"node_id": "n", "gpu_count": 8}],
    "capacity": [{"time": "2017-10-03", "gpu_count": 8.0}],
    "gpu_utilization": [{"time": "2017-10-03", "node_id": "n", "gpu_index": 0, "utilization_pct": 50.0}],
    "host_utilization": [{"time": "2017-10-03", "node_id": "n", "cpu_pct": 50.0, "memory_used_gib": 1.0}],
    "job_usage": [{"job_id": "a", "gpu_util_pct": 150.0}],
    "node_events": [{"node_id": "n", "start_time": "2017-10-03", "end_time": "2017-10-04", "state": "down"}],
    "failures": [{"job_id": "a", "attempt": 0, "reason": "oom"}],
    "doubtful_times": [{"source_file": "log.csv", "line": 2, "column": "end_time", "value": "0", "reason": "none"}],
    "rejects": [{"source_file": "log.csv", "line": 4, "reason": "is broken"}],
}

EVENT = "node_id n, start_time 2017-10-03 00:00:00"
LATE_WAIT = "attempts: wait_s is not start_time minus the previous attempt's end_time"


@pytest.fixture(scope="session")
def sound(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace with every table, which no test may change."""
    file = FileAccount("log.csv", bytes=10, sha256="0", records=3, kept=2, rejected=1)
    overrides = {"files": [file]}
    return make_trace(jobs=JOBS, attempts=ATTEMPTS, placements=PLACEMENTS, **OTHERS, manifest_overrides=overrides)


@pytest.fixture
def trace(sound: Trace, tmp_path: Path) -> Trace:
    """Return the same for the test to change."""
    shutil.copytree(sound.path, tmp_path / "trace")
    return Trace.open(tmp_path / "trace")


def put(trace: Trace, table: str, **values: Any) -> None:
    """Set values in the first row of a table."""
    path = trace.path / f"{table}.parquet"
    frame = pl.read_parquet(path)
    types = schema.common(table).polars
    first = frame.head(1).with_columns(pl.lit(v, dtype=types[n]).alias(n) for n, v in values.items())
    pl.concat([first, frame.tail(-1)]).write_parquet(path)


def moment(clock: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2017-10-03 {clock}")


def test_a_trace_that_keeps_the_rules_has_no_problem(sound: Trace) -> None:
    assert sound.validate() == []
    assert sound.validate(deep=True) == []
    assert set(sound.tables) == set(schema.COMMON_TABLES)


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        (
            {"queue_s": -100.0},
            [
                "jobs: queue_s below 0 in 1 row: job_id a",
                "jobs: queue_s is not start_time minus submit_time in 1 row: job_id a",
            ],
        ),
        ({"queue_s": 10.002}, ["jobs: queue_s is not start_time minus submit_time in 1 row: job_id a"]),
        ({"queue_s": 10.0005}, []),
        ({"queue_s": None, "run_s": None}, []),
        ({"run_s": 45.0}, ["jobs: run_s is not end_time minus start_time in 1 row: job_id a"]),
        ({"attempt_count": 3}, ["jobs: attempt_count is not the number of attempts in 1 row: job_id a"]),
        ({"gpu_count": -1.0}, ["jobs: gpu_count below 0 in 1 row: job_id a"]),
        ({"memory_gib": float("nan")}, ["jobs: memory_gib is not finite in 1 row: job_id a"]),
        (
            {"time_limit_s": float("-inf")},
            [f"jobs: time_limit_s {what} in 1 row: job_id a" for what in ("is not finite", "below 0")],
        ),
        ({"status": "asleep"}, ["jobs: status not an allowed word in 1 row: job_id a"]),
        ({"priority": -5}, []),
        ({"eligible_time": moment("00:00:00")}, []),
        ({"eligible_time": moment("00:00:10")}, []),
        (
            {"eligible_time": moment("00:00:11")},
            ["jobs: start_time before eligible_time in 1 row: job_id a"],
        ),
        (
            {"eligible_time": dt.datetime(2017, 10, 2)},
            ["jobs: eligible_time before submit_time in 1 row: job_id a"],
        ),
        (
            {"start_time": moment("00:00:11"), "queue_s": 11.0, "run_s": 49.0},
            ["jobs: start_time is not the first attempt's in 1 row: job_id a"],
        ),
        (
            {"end_time": moment("00:01:01"), "run_s": 51.0},
            ["jobs: end_time is not the last attempt's in 1 row: job_id a"],
        ),
        (
            {"start_time": None, "queue_s": None, "run_s": None, "submit_time": moment("00:02:00")},
            [
                "jobs: end_time before submit_time in 1 row: job_id a",
                "attempts: start_time before the job's submit_time in 2 rows, such as job_id a, attempt 0",
                "attempts: wait_s is not start_time minus the job's submit_time in 1 row: job_id a, attempt 0",
            ],
        ),
    ],
)
def test_a_rule_of_jobs_that_is_broken_is_reported_with_a_row(
    trace: Trace, values: dict[str, Any], problems: list[str]
) -> None:
    put(trace, "jobs", **values)
    assert trace.validate() == problems


@pytest.mark.parametrize(
    ("table", "values", "problems"),
    [
        (
            "attempts",
            {"run_s": -20.0},
            [
                "attempts: run_s below 0 in 1 row: job_id a, attempt 0",
                "attempts: run_s is not end_time minus start_time in 1 row: job_id a, attempt 0",
            ],
        ),
        (
            "attempts",
            {"wait_s": 9.0},
            ["attempts: wait_s is not start_time minus the job's submit_time in 1 row: job_id a, attempt 0"],
        ),
        (
            "attempts",
            {"end_time": moment("00:00:40"), "run_s": 30.0},
            [
                "attempts: start_time before the previous attempt's end_time in 1 row: job_id a, attempt 1",
                f"{LATE_WAIT} in 1 row: job_id a, attempt 1",
            ],
        ),
        (
            "attempts",
            {"end_time": moment("00:00:05"), "run_s": None},
            [
                "attempts: end_time before start_time in 1 row: job_id a, attempt 0",
                f"{LATE_WAIT} in 1 row: job_id a, attempt 1",
            ],
        ),
        ("attempts", {"attempt": 1}, ["attempts: repeated key (job_id, attempt) in 1 row: job_id a, attempt 1"]),
        (
            "placements",
            {"end_time": moment("00:00:09"), "gpu_index": [-1, 0]},
            [
                "placements: end_time before start_time in 1 row: job_id a, attempt 0, node_id n",
                "placements: gpu_index below 0 in 1 row: job_id a, attempt 0, node_id n",
            ],
        ),
        ("placements", {"node_id": None}, ["placements: no node_id in 1 row: job_id a, attempt 0, node_id NULL"]),
        ("nodes", {"gpu_count": -8}, ["nodes: gpu_count below 0 in 1 row: node_id n"]),
        (
            "capacity",
            {"gpu_count": float("inf")},
            ["capacity: gpu_count is not finite in 1 row: time 2017-10-03 00:00:00, cluster NULL, vc NULL"],
        ),
        (
            "gpu_utilization",
            {"memory_used_gib": -1.0},
            [
                (
                    "gpu_utilization: memory_used_gib below 0 in 1 row: time 2017-10-03 00:00:00, node_id n, "
                    "gpu_index 0, gpu_instance NULL"
                )
            ],
        ),
        (
            "host_utilization",
            {"memory_total_gib": -1.0},
            ["host_utilization: memory_total_gib below 0 in 1 row: time 2017-10-03 00:00:00, node_id n"],
        ),
        ("job_usage", {"job_id": "z"}, ["job_usage: job_id not in jobs in 1 row: job_id z"]),
        (
            "node_events",
            {"end_time": moment("00:00").replace(day=2)},
            [
                f"node_events: end_time before start_time in 1 row: {EVENT}, state down, source NULL",
            ],
        ),
        (
            "node_events",
            {"state": "broken"},
            [
                f"node_events: state not an allowed word in 1 row: {EVENT}, state broken, source NULL",
            ],
        ),
        ("failures", {"reason": None}, ["failures: no reason in 1 row: job_id a, reason NULL"]),
        ("rejects", {"source_file": "other"}, ["log.csv: 1 rejected, but 0 rows in rejects"]),
        ("rejects", {"line": 0}, ["rejects: line below 1 in 1 row: source_file log.csv, reason is broken"]),
    ],
)
def test_a_rule_of_another_table_that_is_broken_is_reported_with_a_row(
    trace: Trace, table: str, values: dict[str, Any], problems: list[str]
) -> None:
    put(trace, table, **values)
    assert trace.validate() == problems


@pytest.mark.parametrize("column", ["submit_time", "start_time", "end_time"])
@pytest.mark.parametrize("microseconds", [-(2**63) + 2, 2**63 - 2, 253_402_300_800_000_000])
def test_a_time_that_no_calendar_holds_is_found(trace: Trace, column: str, microseconds: int) -> None:
    path = trace.path / "jobs.parquet"
    frame = pl.read_parquet(path)
    wild = pl.lit(microseconds, dtype=pl.Int64).cast(pl.Datetime("us"))
    frame.with_columns(wild.alias(column), queue_s=None, run_s=None).cast(frame.schema).write_parquet(path)
    assert f"jobs: {column} outside the years 1 to 9999 in 2 rows, such as job_id a" in trace.validate()


def test_a_wait_from_eligibility_may_be_shorter_but_not_longer(trace: Trace) -> None:
    path = trace.path / "manifest.json"
    raw = json.loads(path.read_bytes())
    raw["options"] = {"queue_from": "eligible"}
    path.write_text(json.dumps(raw))
    put(trace, "jobs", queue_s=4.0)
    put(trace, "attempts", wait_s=4.0)
    assert Trace.open(trace.path).validate() == []
    put(trace, "jobs", queue_s=10.5)
    put(trace, "attempts", wait_s=10.5)
    assert Trace.open(trace.path).validate() == [
        "jobs: queue_s is more than start_time minus submit_time in 1 row: job_id a",
        "attempts: wait_s is not start_time minus the job's submit_time in 1 row: job_id a, attempt 0",
    ]


def test_keys_that_repeat_a_thousand_times_are_not_joined(trace: Trace) -> None:
    for table in ("jobs", "attempts"):
        path = trace.path / f"{table}.parquet"
        pl.concat([pl.read_parquet(path).head(1)] * 1000).write_parquet(path)
    assert trace.validate() == [
        "jobs has 1,000 rows, but the manifest says 2",
        "jobs: repeated key (job_id) in 999 rows, such as job_id a",
        "attempts has 1,000 rows, but the manifest says 2",
        "attempts: repeated key (job_id, attempt) in 999 rows, such as job_id a, attempt 0",
    ]


def test_the_account_of_a_file_has_to_add_up(trace: Trace) -> None:
    path = trace.path / "manifest.json"
    raw = json.loads(path.read_bytes())
    raw["source"]["files"][0]["kept"] = 1
    raw["timezone"] = "Mars/Olympus"
    raw["capabilities"]["arrivals"]["coverage"] = 1.5
    del raw["capabilities"]["retries"]
    path.write_text(json.dumps(raw))
    assert Trace.open(trace.path).validate() == [
        "log.csv: 3 records, but 1 kept + 1 rejected",
        "the manifest does not say whether the Trace has retries",
        "the manifest's coverage of arrivals is 1.5, not from 0 to 1",
        "the manifest has the unknown time zone 'Mars/Olympus'",
    ]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f.drop("vc"), "the table jobs has no vc"),
        (lambda f: f.with_columns(y=1), "the table jobs has unknown y"),
        (lambda f: f.with_columns(run_s=pl.lit("1")), "the table jobs has the wrong types in run_s"),
        (lambda f: f.rename({"vc": "VC"}), "the table jobs has no vc; has unknown VC"),
        (
            lambda f: f.rename({"vc": "x" * 70_000}),
            f"the table jobs has no vc; has unknown {'x' * 47}…",
        ),
        (lambda f: f.select(pl.exclude("vc"), "vc"), "the table jobs has its columns in a different order"),
    ],
)
def test_columns_that_differ_are_named(
    trace: Trace, change: Callable[[pl.DataFrame], pl.DataFrame], problem: str
) -> None:
    path = trace.path / "jobs.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    assert trace.validate() == [problem]
