"""Efficiency of the samples, recomputed job by job without SQL."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from tracekit.trace import Trace

FAILED = {"failed", "node_fail", "out_of_memory"}
Gpu = tuple[str, int]


def table(trace: Trace, name: str) -> list[dict[str, Any]]:
    return trace.scan(name).collect().to_dicts() if trace.has(name) else []


def intervals(samples: dict[Gpu, list[tuple[dt.datetime, float | None]]]) -> dict[Gpu, float]:
    """Return the seconds that a sample of each GPU stands for, of samples that come at least twice in some hour."""
    found = {}
    for gpu, known in samples.items():
        hours: dict[dt.datetime, list[dt.datetime]] = defaultdict(list)
        for time, _ in known:
            hours[time.replace(minute=0, second=0, microsecond=0)].append(time)
        gaps = [(max(ts) - min(ts)).total_seconds() / (len(ts) - 1) for ts in hours.values() if len(ts) > 1]
        found[gpu] = median(gaps)
    return found


def test_gpu_hours_of_the_philly_sample(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("philly")
    users = {job["job_id"]: job["user"] for job in table(trace, "jobs") if (job["gpu_count"] or 0) > 0}
    samples: dict[Gpu, list[tuple[dt.datetime, float | None]]] = defaultdict(list)
    for row in table(trace, "gpu_utilization"):
        samples[row["node_id"], row["gpu_index"]].append((row["time"], row["utilization_pct"]))
    stands_for = intervals(samples)
    gpus: dict[tuple[str, int], set[Gpu]] = defaultdict(set)
    for row in table(trace, "placements"):
        gpus[row["job_id"], row["attempt"]] |= {(row["node_id"], index) for index in row["gpu_index"] or []}
    last: dict[str, int] = defaultdict(int)
    for row in table(trace, "attempts"):
        last[row["job_id"]] = max(last[row["job_id"]], row["attempt"])
    expected: dict[str | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in table(trace, "attempts"):
        job = row["job_id"]
        if job not in users or row["run_s"] is None or row["gpu_count"] is None:
            continue
        mine, hours = expected[users[job]], row["run_s"] * row["gpu_count"] / 3600
        mine["held"] += hours
        covered = used = 0.0
        for gpu in gpus[job, row["attempt"]]:
            since = row["start_time"].replace(second=0, microsecond=0)
            values = [pct for t, pct in samples.get(gpu, []) if pct is not None and since <= t < row["end_time"]]
            covered += len(values) * stands_for.get(gpu, 0) / 3600
            used += sum(values) / 100 * stands_for.get(gpu, 0) / 3600
        if covered:
            part = min(1, hours / covered)
            mine["covered"] += covered * part
            mine["used"] += used * part
        unknown = row["status"] in (None, "unknown")
        if row["status"] in FAILED or (unknown and row["attempt"] < last[job]):
            mine["failed"] += hours
    found = run_query(trace, "utilization/efficiency", rule="retried").to_dicts()
    assert len(found) > 20
    for row in found:
        mine = expected[row["key"]]
        assert row["held_gpu_h"] == pytest.approx(mine["held"], abs=1e-6)
        assert row["failed_gpu_h"] == pytest.approx(mine["failed"], abs=1e-6)
        assert (row["used_gpu_h"] or 0) == pytest.approx(mine["used"], abs=1e-4)
        assert (row["idle_gpu_h"] or 0) == pytest.approx(mine["covered"] - mine["used"], abs=1e-4)
        assert row["coverage_share"] == pytest.approx(mine["covered"] / mine["held"], abs=1e-6)
    assert sum(mine["used"] for mine in expected.values()) > 100


def test_gpu_hours_and_limits_of_the_slurm_sample(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("slurm")
    jobs = {job["job_id"]: job for job in table(trace, "jobs") if (job["gpu_count"] or 0) > 0}
    expected: dict[str | None, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    runs: dict[str, list[float | None]] = defaultdict(list)
    for row in table(trace, "attempts"):
        if row["job_id"] not in jobs:
            continue
        runs[row["job_id"]].append(row["run_s"])
        if row["run_s"] is None or row["gpu_count"] is None:
            continue
        mine, hours = expected[jobs[row["job_id"]]["account"]], row["run_s"] * row["gpu_count"] / 3600
        mine["held"] += hours
        mine["failed"] += hours * (row["status"] in FAILED)
        mine["timeout"] += hours * (row["status"] == "timeout")
        mine["preempted"] += hours * (row["status"] == "preempted")
    for name, known in runs.items():
        limit = jobs[name]["time_limit_s"]
        if limit and None not in known:
            mine = expected[jobs[name]["account"]]
            mine["ran"] += max(run for run in known if run is not None)
            mine["limit"] += limit
    found = run_query(trace, "utilization/efficiency", by="account").to_dicts()
    assert len(found) == len({job["account"] for job in jobs.values()})
    for row in found:
        mine = expected[row["key"]]
        for name in ("held", "failed", "timeout", "preempted"):
            assert row[f"{name}_gpu_h"] == pytest.approx(mine[name], abs=1e-6)
        assert row["time_limit_used_share"] == pytest.approx(mine["ran"] / mine["limit"])
    wasted = [row["wasted_gpu_h"] for row in found]
    assert wasted == sorted(wasted, reverse=True)


@pytest.mark.parametrize(
    "sample",
    [
        "philly",
        "slurm",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("alibaba-pai", "helios", "acme", "alibaba-openb")
        ),
    ],
)
def test_no_hour_is_counted_twice_and_none_is_negative(sample: str, sample_trace: Callable[[str], Trace]) -> None:
    rows = run_query(sample_trace(sample), "utilization/efficiency").to_dicts()
    assert rows
    hours = [name for name in rows[0] if name.endswith("_gpu_h")]
    for row in rows:
        held = row["held_gpu_h"] or 0
        assert all(0 <= (row[name] or 0) <= held + 1e-6 for name in hours)
        assert (row["used_gpu_h"] or 0) + (row["idle_gpu_h"] or 0) <= held + 1e-6
        assert 0 <= (row["coverage_share"] or 0) <= 1
        assert (row["used_gpu_h"] is None) == (not row["coverage_share"])
