"""Exported and read back, a Trace has the same jobs: for the three formats that tracekit both writes and reads."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tracekit import ingest_logs
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

SAMPLES = Path(__file__).parent.parent.parent / "sample_traces"
THOROUGH = pytest.mark.thorough
ENDED = ("completed", "failed", "cancelled", "timeout", "node_fail", "out_of_memory", "preempted")

OF_SLURM = ["account", "partition", "qos", "eligible_time"]
SWF_LOST = ["job_id", "source_status", "name", "workload", "gpu_model", "cpu_count", "priority", "preemptible",
            "instance_count", "attempt_count", "node_count", "user", "group", "vc", "cluster", "suspended_s",
            *OF_SLURM]  # fmt: skip
HELIOS_LOST = ["source_status", "group", "name", "workload", "gpu_model", "memory_gib", "priority", "time_limit_s",
               "preemptible", "instance_count", "attempt_count", *OF_SLURM]  # fmt: skip
CSV_LOST = ["attempt_count", "source_status"]
SWF_STATUS = {"timeout": "failed", "node_fail": "failed", "out_of_memory": "failed", "preempted": "cancelled",
              "running": "unknown", "pending": "unknown"}  # fmt: skip


def jobs_of(trace: Trace, lost: list[str], *, by: tuple[str, ...] = ("submit_time", "job_id")) -> pl.DataFrame:
    """Return the jobs in the order of an export, without what the format cannot hold."""
    return trace.scan("jobs").sort(by, nulls_last=True).collect().drop(lost)


def read_back(trace: Trace, folder: Path, to: str, **options: str) -> Trace:
    """Export to a format and read the files again."""
    out = folder / {"swf": "log.swf", "helios": "logs", "csv": "jobs.csv"}[to]
    export(trace, to, out, options=options, force=True)
    given_options = {"swf": {"processors_are_gpus": "yes"}, "helios": {}, "csv": {"map": str(folder / "jobs.map.toml")}}
    return ingest_logs(out, folder / "back", format_name=to, options=given_options[to], force=True)


def through_swf(trace: Trace, folder: Path, **options: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the jobs before and after; the log numbers jobs in the order in which it lists them."""
    back = read_back(trace, folder, "swf", jobs="all", **options)
    after = back.scan("jobs").sort(pl.col("job_id").cast(pl.Int64)).collect().drop(SWF_LOST)
    before = jobs_of(trace, SWF_LOST).with_columns(pl.col("status").replace(SWF_STATUS).fill_null("unknown"))
    return before, after


@pytest.mark.parametrize(
    "sample",
    [
        *("slurm", "alibaba-pai"),
        *(pytest.param(s, marks=THOROUGH) for s in ("helios", "acme", "alibaba-openb", "alibaba-spot", "philly")),
    ],
)
def test_jobs_of_the_samples_survive_swf(sample: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    trace = sample_trace(sample)
    before, after = through_swf(trace, tmp_path, fractions="keep", seconds="exact")
    # A job that never ran keeps its end in the log only when it was cancelled.
    odd = before["start_time"].is_null() & (before["status"] != "cancelled") & before["end_time"].is_not_null()
    before = before.with_columns(end_time=pl.when(~odd).then("end_time"))
    # Times count from the submission: without one they are lost. And a cancelled job of unknown length, or of none on
    # no processor, is to a reader one that never ran.
    ran = (before["run_s"] > 0) | (before["gpu_count"] > 0) & before["run_s"].is_not_null()
    idle = (before["status"] == "cancelled") & ~ran.fill_null(value=False) & before["start_time"].is_not_null()
    comparable = before["submit_time"].is_not_null() & ~idle
    before, after = (f.filter(comparable).drop("memory_gib") for f in (before, after))
    assert_frame_equal(before, after, abs_tol=1e-6)


def test_a_log_in_swf_comes_back_with_its_numbers(tmp_path: Path) -> None:
    given_options = {"processors_are_gpus": "yes"}
    trace = ingest_logs(SAMPLES / "swf", tmp_path / "trace", options=given_options)
    back = read_back(trace, tmp_path, "swf", jobs="all")
    kept = ["job_id", "cluster", "vc", "user", "group", "status", "submit_time", "start_time", "end_time", "run_s",
            "gpu_count", "time_limit_s"]  # fmt: skip
    assert_frame_equal(jobs_of(back, []).select(kept), jobs_of(trace, []).select(kept))
    assert back.manifest.rejected == 0


@pytest.mark.parametrize("sample", ["helios", "slurm", pytest.param("alibaba-openb", marks=THOROUGH)])
def test_jobs_of_the_samples_survive_helios(sample: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    trace = sample_trace(sample)
    back = read_back(trace, tmp_path, "helios", incomplete="keep", user="", vc="")
    assert back.manifest.rejected == 0
    lost = (
        HELIOS_LOST
        if sample == "helios"
        else [*HELIOS_LOST, "job_id", "cluster", "gpu_count", "cpu_count", "end_time", "run_s", "suspended_s"]
    )
    before, after = jobs_of(trace, lost), jobs_of(back, lost)
    if sample == "helios":
        assert_frame_equal(before, after)
        capacity = (t.scan("capacity").sort("cluster", "vc", "time").collect() for t in (trace, back))
        assert_frame_equal(*capacity)
    else:  # numbered anew: jobs of one second may stand in another order
        assert_frame_equal(before.sort(pl.all()), after.sort(pl.all()))


def test_run_times_of_jobs_without_start_and_end_survive(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    at = {"submit_time": "2020-05-01", "cluster": "Earth", "vc": "a", "user": "u", "gpu_count": 1, "status": "failed"}
    jobs = [{**at, "job_id": f"Earth/{n}", "run_s": float(n)} for n in range(1, 4)]
    trace = make_trace(jobs=jobs)
    for to in ("swf", "helios", "csv"):
        back = read_back(trace, tmp_path, to)
        found = back.scan("jobs").sort("run_s").select("run_s", "start_time", "gpu_count").collect()
        assert found.rows() == [(1.0, None, 1.0), (2.0, None, 1.0), (3.0, None, 1.0)], to


@pytest.mark.parametrize(
    "sample",
    [
        *("slurm", "alibaba-pai"),
        *(pytest.param(s, marks=THOROUGH) for s in ("helios", "acme", "alibaba-spot", "alibaba-dlrm", "philly")),
    ],
)
def test_jobs_of_the_samples_survive_csv(sample: str, sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    trace = sample_trace(sample)
    back = read_back(trace, tmp_path, "csv")
    assert_frame_equal(jobs_of(trace, CSV_LOST), jobs_of(back, CSV_LOST), check_exact=False)
    assert back.manifest.time_base == (
        "absolute" if trace.manifest.time_base == "shifted" else trace.manifest.time_base
    )


# Names that no table would change: a cell's blanks at its ends are not part of it, and words such as NULL, which the
# logs of Helios write for what is unknown, name nobody.
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: text == text.strip() and text.casefold() not in {"null", "none", "nan", "na", "n/a"}
)


@st.composite
def tables(draw: st.DrawFn, *, step_us: int = 1, whole: bool = False) -> list[dict[str, Any]]:
    """Draw jobs whose times are multiples of `step_us`; `whole` GPUs only."""
    rows = []
    for number in range(draw(st.integers(1, 6))):
        start = dt.datetime(2001, 1, 1) + dt.timedelta(
            microseconds=draw(st.integers(0, 3 * 10**12 // step_us)) * step_us
        )
        submit = start - dt.timedelta(microseconds=draw(st.integers(0, 10**6)) * step_us)
        end = start + dt.timedelta(microseconds=draw(st.integers(0, 10**6)) * step_us)
        started = draw(st.booleans())
        status = draw(st.sampled_from(ENDED)) if started else draw(st.sampled_from(("cancelled", "pending")))
        gone = started or status == "cancelled"
        gpus = st.integers(1, 64) if whole else st.integers(1, 64) | st.sampled_from((0.25, 0.5))
        rows.append(
            {
                "job_id": f"j{number}",
                "submit_time": submit,
                "start_time": start if started else None,
                "end_time": end if gone else None,
                "queue_s": (start - submit) / dt.timedelta(seconds=1) if started else None,
                "run_s": (end - start) / dt.timedelta(seconds=1) if started else None,
                "status": status,
                "source_status": status,
                "gpu_count": draw(gpus),
                "user": draw(NAMES),
                "vc": draw(NAMES),
                "time_limit_s": draw(st.none() | st.integers(1, 10**6)),
                "attempt_count": int(started),
            }
        )
    return rows


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """Return a function that gives an empty folder each time."""
    numbers = itertools.count()

    def make() -> Path:
        shutil.rmtree(tmp_path / str(next(numbers)), ignore_errors=True)
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return folder

    return make


def survives(make_trace: Callable[..., Trace], folder: Path, to: str, rows: list[dict[str, Any]]) -> None:
    """Assert that jobs are the same when they were written in a format and read again."""
    if to == "helios":
        rows = [{**row, "job_id": f"Earth/{row['job_id'][1:]}", "cluster": "Earth"} for row in rows]
    trace = make_trace(jobs=rows)
    if to == "swf":
        before, after = through_swf(trace, folder, fractions="keep", seconds="exact")
        assert_frame_equal(before.drop("memory_gib"), after.drop("memory_gib"), abs_tol=1e-6)
    elif to == "helios":
        back = read_back(trace, folder, to, incomplete="keep", user="", vc="", guard="no")
        assert_frame_equal(jobs_of(back, HELIOS_LOST), jobs_of(trace, HELIOS_LOST))
    else:
        assert_frame_equal(jobs_of(read_back(trace, folder, to), []), jobs_of(trace, []))


ONE_FIXTURE = [HealthCheck.function_scoped_fixture]
FORMATS = {"swf": tables(), "helios": tables(step_us=1_000_000, whole=True), "csv": tables()}
"""Helios' log has whole seconds and whole GPUs."""


@pytest.mark.parametrize("to", FORMATS)
@settings(max_examples=3, suppress_health_check=ONE_FIXTURE)
@given(data=st.data())
def test_any_jobs_survive(
    make_trace: Callable[..., Trace], fresh: Callable[[], Path], data: st.DataObject, to: str
) -> None:
    survives(make_trace, fresh(), to, data.draw(FORMATS[to]))


@pytest.mark.thorough
@pytest.mark.parametrize("to", FORMATS)
@settings(max_examples=16, suppress_health_check=ONE_FIXTURE)
@given(data=st.data())
def test_any_jobs_survive_in_more_cases(
    make_trace: Callable[..., Trace], fresh: Callable[[], Path], data: st.DataObject, to: str
) -> None:
    survives(make_trace, fresh(), to, data.draw(FORMATS[to]))
