"""Whatever a Trace holds, `generate` draws from the workload.json that `fit` writes, or one line says why not."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

import tracekit
from tests.effort import tried
from tests.fit.workloads import workload
from tracekit.errors import UsageError
from tracekit.fit.model import WorkloadModel
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIRST = dt.datetime(2020, 1, 1)
BEGINS = st.sampled_from([FIRST, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 1), dt.datetime(1970, 1, 1)])
GAPS_S = st.one_of(st.just(0), st.integers(1, 7200), st.sampled_from([86_400 * days for days in (1, 9, 400, 40_000)]))
RUNS_S = st.one_of(st.sampled_from([None, 0.0, -5.0, 1e-9, 60.0, 4e9, 1e300]), st.floats(0.1, 1e6))
GPUS = st.sampled_from([None, 0.0, 0.25, 1.0, 1.0, 8.0, 1e9])
STATUSES = st.sampled_from([None, "completed", "completed", "failed", "cancelled", "timeout", "running", "pending"])
NAMES = st.sampled_from([None, "", "a", "a", "b" * 10_000, "\u202e<b>\n"])
LAST = dt.datetime(9999, 12, 31)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Return jobs, and perhaps machines, quotas and outages; each trait of jobs is of all, or of each."""
    number = draw(st.one_of(st.integers(1, 12), st.integers(30, 150)))
    traits = {"run_s": RUNS_S, "gpu_count": GPUS, "status": STATUSES, "user": NAMES, "vc": NAMES, "cluster": NAMES}
    shared = {name: draw(values) for name, values in traits.items() if draw(st.booleans())}
    at, gap = draw(BEGINS), draw(GAPS_S) if draw(st.booleans()) else None
    jobs: list[dict[str, Any]] = []
    for i in range(number):
        own = {name: draw(values) for name, values in traits.items() if name not in shared}
        jobs.append({"job_id": f"j{i}", "submit_time": at, **shared, **own})
        at += min(dt.timedelta(seconds=draw(GAPS_S) if gap is None else gap), LAST - at)
    tables = {"jobs": jobs}
    if draw(st.booleans()):
        sizes = draw(st.lists(st.sampled_from([None, 0.0, 8.0]), min_size=1, max_size=3))
        tables["nodes"] = [{"node_id": f"n{i}", "cluster": draw(NAMES), "gpu_count": g} for i, g in enumerate(sizes)]
        if draw(st.booleans()):
            away = {
                "start_time": FIRST,
                "end_time": FIRST + dt.timedelta(hours=draw(st.integers(0, 9))),
                "state": "down",
            }
            tables["node_events"] = [{"node_id": "n0", **away}]
    if draw(st.booleans()):
        tables["capacity"] = [
            {"time": FIRST, "cluster": draw(NAMES), "vc": name, "gpu_count": draw(st.sampled_from([None, 0.0, 4.5]))}
            for name in ("a", "b")
        ]
    return tables


EXTENTS = st.sampled_from([{"jobs": 20}, {"days": 2}, {"jobs": 20, "scale_load": 10.0, "scale_gpus": 0.5}])
RATES = st.sampled_from([None, "mean", "end", "fitted"])
WAYS = st.sampled_from([("model", None), ("resample", None), ("hybrid", "arrivals"), ("hybrid", "jobs")])


@tried(12, 50, worlds=worlds(), extent=EXTENTS, load=st.sampled_from([None, 0.5]), rate=RATES, way=WAYS)
def test_what_is_fitted_can_be_drawn_from(
    make_trace: Callable[..., Trace],
    tmp_path_factory: pytest.TempPathFactory,
    worlds: dict[str, list[dict[str, Any]]],
    extent: dict[str, Any],
    load: float | None,
    rate: str | None,
    way: tuple[str, str | None],
) -> None:
    trace, folder = make_trace(**worlds), tmp_path_factory.mktemp("drawn")
    file = tracekit.fit(trace, replicates=0, scores=0).write(folder / "w.json")
    assert WorkloadModel.read(file).to_json() == file.read_bytes()
    if load is not None:
        extent = {"load": load, **{k: v for k, v in extent.items() if k != "scale_load"}}
    method, half = way
    sources: list[tuple[Path, dict[str, Any]]] = [(file, {"rate": rate})]
    if method == "resample":
        sources.append((trace.path, {"method": method}))
    else:
        uses_rate = {} if half == "arrivals" else {"rate": rate}
        sources.append((trace.path, {"method": method, "hybrid": half, "model": file, **uses_rate}))
    for number, (source, options) in enumerate(sources):
        out = folder / str(number)
        refused = ""
        try:
            tracekit.generate(source, out, **extent, **options)
        except UsageError as error:
            refused = str(error)
        assert out.exists() == (not refused)
        assert "correct the file" not in refused
        if not refused:
            drawn = Trace.open(out)
            assert drawn.validate() == []
            assert drawn.manifest.tables["jobs"].rows == extent.get("jobs", drawn.manifest.tables["jobs"].rows)


def test_arrivals_over_more_than_the_longest_time_are_not_fitted(
    make_trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.fit.arrivals.LONGEST_DAYS", 20.0)
    tables = workload(50)
    last = tables["jobs"][-1]["submit_time"]
    for days, fitted in ((20.0, True), (20.0 + 1 / 86_400, False)):
        tables["jobs"][0]["submit_time"] = last - dt.timedelta(days=days)
        arrivals = tracekit.fit(make_trace(**tables), replicates=0, scores=0).document["arrivals"]
        assert (arrivals["process"] is not None) == fitted
    assert arrivals["reason"] == "the submissions span 20 days, but at most 20 can be fitted"


def test_a_quota_that_the_log_does_not_know_is_none(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    quotas = [{"time": FIRST, "cluster": "c", "vc": vc, "gpu_count": gpus} for vc, gpus in (("a", 4.0), ("b", None))]
    trace = make_trace(**workload(50), capacity=quotas)
    cluster = tracekit.fit(trace, replicates=0, scores=0).document["cluster"]
    assert cluster["capacity"] == [{"cluster": "c", "vc": "a", "gpu_count": 4.0}]
    assert tracekit.generate(trace, tmp_path / "t", jobs=20).manifest.tables["capacity"].rows == 1


def test_a_time_without_a_job_of_a_hybrid_is_refused(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(**workload(50))
    with pytest.raises(UsageError, match="no job arrives in such a short time"):
        tracekit.generate(trace, tmp_path / "t", days=1e-6, method="hybrid", hybrid="jobs")
    assert not (tmp_path / "t").exists()


def test_a_model_that_cannot_be_read_is_not_written(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    document = json.loads(tracekit.fit(make_trace(**workload(50)), replicates=0, scores=0).to_json())
    document["arrivals"]["days"] = 10**9
    with pytest.raises(UsageError, match="the model cannot be used: arrivals/days"):
        WorkloadModel(document).write(tmp_path / "w.json")
    assert list(tmp_path.iterdir()) == []


def test_a_trace_beyond_year_9999_is_refused(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    tables = workload(50)
    for job in tables["jobs"]:
        job["submit_time"] = job["submit_time"].replace(year=9999, month=12)
    trace = make_trace(jobs=tables["jobs"])
    file = tracekit.fit(trace, replicates=0, scores=0).write(tmp_path / "w.json")
    sources: tuple[Path | Trace, ...] = (file, trace)
    for number, source in enumerate(sources):
        with pytest.raises(UsageError, match="outside the years 1 to 9999"):
            tracekit.generate(source, tmp_path / str(number), days=40)
    assert [path.name for path in tmp_path.iterdir()] == ["w.json"]


def test_runs_without_a_known_end_cannot_be_drawn(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    tables = workload(60)
    for row in (*tables["jobs"], *tables["attempts"]):
        row |= {"end_time": None, "run_s": None}
    model = tracekit.fit(make_trace(**tables), replicates=0, scores=0)
    with pytest.raises(
        UsageError, match="no durations to draw from: none of 59 has a known end; fit a Trace with runs that ended"
    ):
        tracekit.generate(model, tmp_path / "t", jobs=20)
    assert not (tmp_path / "t").exists()
