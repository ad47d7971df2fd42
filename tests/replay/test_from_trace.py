"""Jobs of a Trace for a replay: every row is either there or counted, and numbers are what the tables say."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tracekit.errors import MissingTableError, UsageError
from tracekit.replay.jobs import LeftOut
from tracekit.replay.workload.from_trace import jobs_of_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

THOROUGH = pytest.mark.thorough
OTHERS = ("acme", "alibaba-dlrm", "alibaba-openb", "alibaba-spot", "helios", "kubernetes", "lsf", "pbs")
SAMPLES = ["alibaba-pai", "philly", "slurm", "swf", *(pytest.param(name, marks=THOROUGH) for name in OTHERS)]


def job(job_id: str, minute: float | None = 0, *, run_s: float | None = 60, gpus: float | None = 1, **more: Any) -> Any:
    """Return a job submitted so many minutes after midnight."""
    midnight = dt.datetime(2020, 1, 1)
    submit = None if minute is None else midnight + dt.timedelta(minutes=minute)
    return {"job_id": job_id, "submit_time": submit, "run_s": run_s, "gpu_count": gpus, "attempt_count": 1, **more}


def attempt(name: str, number: int, run_s: float | None, gpus: float | None = 1) -> dict[str, Any]:
    return {"job_id": name, "attempt": number, "run_s": run_s, "gpu_count": gpus}


def told(jobs: Jobs) -> list[tuple[str, int, float | None]]:
    return [(r.reason, r.jobs, r.gpu_hours) for r in jobs.left_out]


def test_every_field_comes_from_its_column(make_trace: MakeTrace) -> None:
    first = job(
        "a",
        1,
        run_s=30.5,
        gpus=4,
        vc="v2",
        user="u1",
        name="train",
        gpu_model="V100",
        priority=7,
        preemptible=True,
        cpu_count=2.5,
        memory_gib=1.5,
        time_limit_s=3600,
        start_time="2020-01-01 00:02:00",
        end_time="2020-01-01 00:02:30.500",
    )
    second = job("b", 2, vc="v1", user="u1", group="train", preemptible=False)
    third = job("c", 3, name="other")
    jobs = jobs_of_trace(make_trace(jobs=[first, second, third]))
    assert jobs.origin == dt.datetime(2020, 1, 1, 0, 1)
    assert jobs.job_id.to_list() == ["a", "b", "c"]
    assert jobs.submit_ms.tolist() == [0, 60_000, 120_000]
    assert jobs.work_ms.tolist() == [30_500, 60_000, 60_000]
    assert jobs.devices.tolist() == [4, 1, 1]
    assert jobs.milli.tolist() == [1000, 1000, 1000]
    assert (jobs.tenant.tolist(), jobs.tenants) == ([1, 0, -1], ["v1", "v2"])
    assert (jobs.user.tolist(), jobs.users) == ([0, 0, -1], ["u1"])
    assert (jobs.model.tolist(), jobs.models) == ([0, -1, -1], ["V100"])
    assert jobs.name.tolist() == [0, 0, 1]
    assert jobs.priority.tolist() == [7, 0, 0]
    assert jobs.preemptible.tolist() == [1, 0, -1]
    assert jobs.cpu_milli.tolist() == [2500, -1, -1]
    assert jobs.memory_mib.tolist() == [1536, -1, -1]
    assert jobs.limit_ms.tolist() == [3_600_000, -1, -1]
    assert np.isnan(jobs.utilization).all()
    assert jobs.recorded_start_ms.tolist() == [60_000, -1, -1]
    assert jobs.recorded_end_ms.tolist() == [90_500, -1, -1]
    assert jobs.left_out == ()
    kinds = {name: getattr(jobs, name).dtype for name in ("submit_ms", "devices", "milli", "preemptible", "priority")}
    assert kinds == {
        "submit_ms": np.int64,
        "devices": np.int32,
        "milli": np.int32,
        "preemptible": np.int8,
        "priority": np.int32,
    }


def test_work_is_the_sum_of_attempts_then_the_run_time_then_the_span(make_trace: MakeTrace) -> None:
    times: dict[str, Any] = {"start_time": "2020-01-01 01:00", "end_time": "2020-01-01 01:10"}
    trace = make_trace(
        jobs=[
            job("retried", run_s=1000, attempt_count=2),
            job("one attempt unknown", run_s=None, attempt_count=2),
            job("attempts unknown", run_s=500, attempt_count=None),
            job("attempts not counted", run_s=1000, attempt_count=None),
            job("nothing but times", run_s=None, **times),
            job("span with a silent attempt", run_s=None, attempt_count=1, **times),
        ],
        attempts=[
            attempt("retried", 0, 100),
            attempt("retried", 1, 200),
            attempt("one attempt unknown", 0, 70),
            attempt("one attempt unknown", 1, None),
            attempt("attempts unknown", 0, None),
            attempt("attempts not counted", 0, 100),
            attempt("span with a silent attempt", 0, None),
        ],
    )
    jobs = jobs_of_trace(trace)
    assert dict(zip(jobs.job_id, jobs.work_ms.tolist(), strict=True)) == {
        "retried": 300_000,
        "one attempt unknown": 70_000,
        "attempts unknown": 500_000,
        "attempts not counted": 100_000,
        "nothing but times": 600_000,
        "span with a silent attempt": 600_000,
    }


def test_jobs_that_cannot_run_are_counted_with_their_gpu_hours(make_trace: MakeTrace) -> None:
    start = "2020-01-01 01:00"
    trace = make_trace(
        jobs=[
            job("good"),
            job("no submission", None, run_s=3600, gpus=2),
            job("before", -1, run_s=1800, gpus=4),
            job("at the end", 60, run_s=1800, gpus=4),
            job("no gpus told", gpus=None),
            job("cpu", gpus=0),
            job("running", run_s=None, status="running", start_time=start, attempt_count=2),
            job("pending", run_s=None, status="pending"),
            job("never", run_s=None, status="failed"),
            job("no end", run_s=None, start_time=start, status="failed"),
            job("backwards", run_s=-5),
            job("endless", run_s=101 * 365 * 86_400),
            job("huge", gpus=2e6, run_s=0),
            job("too much in all", gpus=1e6, run_s=86_400 * 365),
        ],
        attempts=[attempt("running", 0, 7200, 3), attempt("running", 1, None, 3)],
    )
    jobs = jobs_of_trace(trace, start=dt.datetime(2020, 1, 1), end=dt.datetime(2020, 1, 1, 1))
    assert jobs.job_id.to_list() == ["good"]
    assert told(jobs) == [
        ("no submission time", 1, 2.0),
        ("submitted outside the window", 2, 4.0),
        ("no GPU count", 1, None),
        ("no GPUs (CPU only)", 1, 0.0),
        ("still running or pending when the log ends", 2, 6.0),
        ("no start and no run time", 1, None),
        ("no end and no run time", 1, None),
        ("negative run time", 1, 0.0),
        ("run time above 100 years, or more than 1,000,000 GPUs", 3, pytest.approx(27_777_777.8 + 884_760)),
    ]


@pytest.mark.parametrize(
    ("gpus", "instances", "devices", "milli"),
    [
        (0.25, None, 1, 250),
        (0.25, 4, 1, 250),
        (0.0001, None, 1, 1),
        (0.9999, None, 1, 1000),
        (1, 3, 1, 1000),
        (4, 8, 4, 1000),
        (2.5, 5, 5, 500),
        (2.5, 2, 3, 833),
        (2.5, None, 3, 833),
        (4.25, 5, 5, 850),
        (1.5, 1, 2, 750),
        (12, None, 12, 1000),
    ],
)
def test_a_request_becomes_devices_and_their_parts(
    make_trace: MakeTrace, gpus: float, instances: int | None, devices: int, milli: int
) -> None:
    jobs = jobs_of_trace(make_trace(jobs=[job("a", gpus=gpus, instance_count=instances)]))
    assert (jobs.devices.tolist(), jobs.milli.tolist()) == ([devices], [milli])


def test_times_are_rounded_to_the_nearest_millisecond_halves_up(make_trace: MakeTrace) -> None:
    at = dt.datetime(2020, 1, 1)
    rows = [
        {**job(str(us), run_s=us / 1e6), "submit_time": at + dt.timedelta(microseconds=us)}
        for us in (0, 499, 500, 1499, 1500)
    ]
    jobs = jobs_of_trace(make_trace(jobs=rows))
    assert jobs.submit_ms.tolist() == [0, 0, 1, 1, 2]
    assert jobs.work_ms.tolist() == [0, 0, 1, 1, 2]


def test_jobs_are_sorted_by_submission_and_ties_keep_the_order_of_the_trace(make_trace: MakeTrace) -> None:
    rows = [job("late", 9), job("z", 3), job("b", 1), job("a", 3), job("m", 3)]
    jobs = jobs_of_trace(make_trace(jobs=rows))
    assert jobs.job_id.to_list() == ["b", "z", "a", "m", "late"]
    assert jobs.submit_ms.tolist() == [0, 120_000, 120_000, 120_000, 480_000]


def test_a_load_of_two_halves_the_times_between_submissions(make_trace: MakeTrace) -> None:
    start: dict[str, Any] = {"start_time": "2020-01-01 02:00", "end_time": "2020-01-01 02:01"}
    trace = make_trace(jobs=[job("a", 0, **start), job("b", 10, **start), job("c", 10.00005, **start)])
    jobs = jobs_of_trace(trace, load=2)
    assert jobs.submit_ms.tolist() == [0, 300_000, 300_002]
    assert jobs.work_ms.tolist() == [60_000] * 3
    assert jobs.recorded_start_ms.tolist() == [-1] * 3
    assert jobs.recorded_end_ms.tolist() == [-1] * 3
    assert jobs_of_trace(trace, load=0.5).submit_ms.tolist() == [0, 1_200_000, 1_200_006]


def test_a_start_before_the_first_submission_is_unknown(make_trace: MakeTrace) -> None:
    times: dict[str, Any] = {"start_time": "2019-12-31 23:00", "end_time": "2020-01-01 00:00:30"}
    jobs = jobs_of_trace(make_trace(jobs=[job("a", **times)]))
    assert (jobs.recorded_start_ms.tolist(), jobs.recorded_end_ms.tolist()) == ([-1], [30_000])


def test_the_limit_takes_the_first_by_submission(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("c", 3, run_s=3600), job("a", 1), job("cpu", 0, gpus=0), job("b", 1)])
    jobs = jobs_of_trace(trace, limit=2)
    assert jobs.job_id.to_list() == ["a", "b"]
    assert told(jobs) == [("no GPUs (CPU only)", 1, 0.0), ("beyond the limit of jobs", 1, 1.0)]
    assert told(jobs_of_trace(trace, limit=99)) == [("no GPUs (CPU only)", 1, 0.0)]


def test_a_zone_in_the_window_is_converted(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("a", 0), job("b", 61)])
    zone = dt.timezone(dt.timedelta(hours=2))
    jobs = jobs_of_trace(trace, start=dt.datetime(2020, 1, 1, 3, tzinfo=zone))
    assert jobs.job_id.to_list() == ["b"]


def test_utilization_is_that_of_job_usage_per_gpu(make_trace: MakeTrace) -> None:
    trace = make_trace(
        jobs=[job("two", gpus=2), job("instances", gpus=3), job("none"), job("over")],
        placements=[
            {"job_id": "instances", "attempt": 0, "task": "w", "instance": str(i), "node_id": "n", "gpu_count": 1}
            for i in range(3)
        ],
        job_usage=[
            {"job_id": "two", "gpu_util_pct": 50},
            {"job_id": "instances", "task": "w", "instance": "0", "gpu_util_pct": 90},
            {"job_id": "instances", "task": "w", "instance": "1", "gpu_util_pct": 30},
            {"job_id": "over", "gpu_util_pct": 140},
        ],
    )
    found = jobs_of_trace(trace).utilization
    assert found[[0, 1, 3]].tolist() == [0.25, 0.6, 1.0]
    assert math.isnan(found[2])


def test_samples_are_read_where_asked_for(make_trace: MakeTrace) -> None:
    held = {"start_time": "2020-01-01 00:00", "end_time": "2020-01-01 00:03"}
    trace = make_trace(
        jobs=[job("a"), job("b")],
        attempts=[{**attempt("a", 0, 180), **held}],
        placements=[{"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0], "gpu_count": 1}],
        gpu_utilization=[
            {"time": f"2020-01-01 00:0{minute}", "node_id": "n", "gpu_index": 0, "utilization_pct": pct}
            for minute, pct in enumerate((10, 20, 60, 100))
        ],
        job_usage=[{"job_id": "a", "gpu_util_pct": 5}, {"job_id": "b", "gpu_util_pct": 7}],
    )
    assert jobs_of_trace(trace).utilization.tolist() == [0.05, 0.07]
    assert jobs_of_trace(trace, samples=True).utilization.tolist() == [0.3, 0.07]


def test_several_clusters_need_a_choice(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("a", cluster="Earth"), job("b", cluster="Venus", gpus=6), job("c")])
    with pytest.raises(UsageError, match=r"the Trace has several clusters; choose one of: Earth, Venus$"):
        jobs_of_trace(trace)
    with pytest.raises(UsageError, match=r"no cluster 'Erth'; did you mean 'Earth'\?"):
        jobs_of_trace(trace, cluster="Erth")
    jobs = jobs_of_trace(trace, cluster="Earth")
    assert jobs.job_id.to_list() == ["a"]
    assert jobs.left_out == (LeftOut("of another cluster", 2, 7 / 60),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"load": 0}, "the load must be a number above 0, not 0; 1 keeps the recorded load"),
        ({"load": float("nan")}, "the load must be a number above 0, not nan; 1 keeps the recorded load"),
        ({"load": 1e-12}, "the submissions span 1,902,588 years, more than 100; choose a window or a higher load"),
        ({"limit": 0}, "the limit must be at least 1 job, not 0"),
        (
            {"start": dt.datetime(2020, 1, 2), "end": dt.datetime(2020, 1, 2)},
            "the window is empty: it starts at 2020-01-02 00:00:00 and ends at 2020-01-02 00:00:00; swap the two times",
        ),
    ],
)
def test_options_that_cannot_be_used_are_one_line(make_trace: MakeTrace, options: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        jobs_of_trace(make_trace(jobs=[job("a"), job("b", 1)]), **options)
    assert str(error.value) == message


def test_a_trace_without_a_job_to_replay_says_why(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[job("a", gpus=0), job("b", 5, run_s=None)])
    with pytest.raises(
        UsageError, match=r"no job can be replayed: 1 no GPUs \(CPU only\), 1 no start and no run time;"
    ):
        jobs_of_trace(trace)
    with pytest.raises(UsageError, match=r"window; submissions run from 2020-01-01 00:00:00 to 2020-01-01 00:05:00$"):
        jobs_of_trace(trace, start=dt.datetime(2021, 1, 1))
    with pytest.raises(MissingTableError):
        jobs_of_trace(make_trace(nodes=[{"node_id": "n"}]))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_row_of_a_sample_is_there_or_counted(sample_trace: Callable[[str], Trace], name: str) -> None:
    trace = sample_trace(name)
    table = trace.scan("jobs").collect()
    if name == "swf":
        with pytest.raises(UsageError, match="no GPU count"):
            jobs_of_trace(trace)
        return
    clusters = table["cluster"].unique().sort().to_list()
    for cluster in clusters:
        jobs = jobs_of_trace(trace, cluster=cluster)
        assert len(jobs) + sum(r.jobs for r in jobs.left_out) == table.height
        expected = _recomputed(trace, cluster)
        assert jobs.job_id.to_list() == [row[0] for row in expected]
        origin = expected[0][1]
        assert jobs.origin == origin
        millisecond = dt.timedelta(milliseconds=1)
        assert jobs.submit_ms.tolist() == [round((row[1] - origin) / millisecond) for row in expected]
        assert jobs.work_ms.tolist() == [math.floor(row[2] * 1000 + 0.5) for row in expected]
        asked = jobs.devices * jobs.milli / 1000
        assert np.abs(asked - [row[3] for row in expected]).max() <= 0.0005 * jobs.devices.max() + 1e-9


def _recomputed(trace: Trace, cluster: str) -> list[tuple[str, dt.datetime, float, float]]:
    """Return (job, submission, work [s], GPUs) in plain Python."""
    runs: dict[str, list[float]] = {}
    if trace.has("attempts"):
        for name, run_s in trace.scan("attempts").select("job_id", "run_s").collect().iter_rows():
            if run_s is not None:
                runs.setdefault(name, []).append(run_s)
    found = []
    for row in trace.scan("jobs").collect().iter_rows(named=True):
        span = row["end_time"] and row["start_time"] and (row["end_time"] - row["start_time"]).total_seconds()
        work = sum(runs[row["job_id"]]) if row["job_id"] in runs else row["run_s"] if row["run_s"] is not None else span
        unfinished = row["status"] in {"running", "pending"} and row["end_time"] is None
        usable = row["submit_time"] is not None and row["gpu_count"] and work is not None and work >= 0
        if row["cluster"] == cluster and usable and not unfinished:
            found.append((row["job_id"], row["submit_time"], work, row["gpu_count"]))
    return sorted(found, key=lambda r: r[1])


@pytest.mark.parametrize("name", ["alibaba-pai", *(pytest.param(name, marks=THOROUGH) for name in ("slurm", "philly"))])
def test_utilization_is_that_of_the_query_of_idle_jobs(sample_trace: Callable[[str], Trace], name: str) -> None:
    from tracekit.characterize import run_query

    trace = sample_trace(name)
    jobs = jobs_of_trace(trace, samples=True)
    means = run_query(trace, "utilization/idle_jobs", threshold_pct=1e9, min_run_s=0)
    known = dict(means.select("job_id", pl.col("mean_pct").clip(0, 100)).iter_rows())
    found = {n: u * 100 for n, u in zip(jobs.job_id, jobs.utilization.tolist(), strict=True) if not math.isnan(u)}
    both = known.keys() & set(jobs.job_id)
    assert len(both) > 5
    assert {n: found[n] for n in both} == pytest.approx({n: known[n] for n in both})
