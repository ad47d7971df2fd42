"""Every function of the API that takes a Trace takes its folder too, as text or as a path."""

from __future__ import annotations

import datetime as dt
import inspect
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tracekit
from tracekit.errors import MissingTableError, UsageError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _analyzed(trace: Any, out: Path) -> object:
    """Return what an analysis would read; the analysis itself takes long."""
    with mock.patch("tracekit.analysis.one.analyze_into", lambda source, *_, **__: source):
        return tracekit.analyze(trace, out)


def _reported(trace: Any) -> object:
    """Return what a report would ask; asking takes long."""
    with mock.patch("tracekit.analysis.reporting._answered", lambda source, *_: mock.Mock(report=source)):
        return tracekit.report(trace).data


def _refused(function: Callable[[Any], object], trace: Any) -> str:
    """Return why a function refuses a Trace, which it has read for that."""
    with pytest.raises(UsageError) as error:
        function(trace)
    return error.value.what


def _missing(function: Callable[[Any], object], trace: Any) -> str:
    """Return which table a function misses in a Trace, which it has read for that."""
    with pytest.raises(MissingTableError) as error:
        function(trace)
    return error.value.what


CALLS: dict[str, Callable[[Any, Path], object]] = {
    "analyze": _analyzed,
    "calibrate": lambda trace, out: _refused(tracekit.calibrate, trace),
    "compare": lambda trace, out: sorted(
        tracekit.compare([("a", trace), ("b", trace)], out, queries=["overview/status"]).tables
    ),
    "digest": lambda trace, out: _refused(lambda one: tracekit.digest(one, out), trace),
    "efficiency": lambda trace, out: tracekit.efficiency(trace).frame.rows(),
    "expected_wait": lambda trace, out: tracekit.expected_wait(trace, 1).row(),
    "export": lambda trace, out: tracekit.export(trace, "swf", out).jobs,
    "fidelity": lambda trace, out: _refused(tracekit.fidelity, trace),
    "fit": lambda trace, out: tracekit.fit(trace, replicates=0, scores=0).document["source"]["jobs"],
    "generate": lambda trace, out: tracekit.generate(trace, out, days=3).manifest.tables["jobs"].rows,
    "guidelines": lambda trace, out: len(tracekit.guidelines(trace).judged),
    "plan": lambda trace, out: _refused(tracekit.plan, trace),
    "plan_spares": lambda trace, out: _missing(lambda one: tracekit.plan_spares(one, 8), trace),
    "replay": lambda trace, out: tracekit.replay(trace, policy="fifo").summary["jobs"],
    "report": lambda trace, out: _reported(trace),
    "run_query": lambda trace, out: tracekit.run_query(trace, "overview/status").rows(),
}


def test_every_exported_function_that_takes_a_trace_is_called_below() -> None:
    takers = set()
    for name in tracekit.__all__:
        found = getattr(tracekit, name)
        if isinstance(found, type) or not callable(found):
            continue
        parameters = inspect.signature(found).parameters.values()
        if any("Trace" in str(p.annotation) for p in parameters):
            takers.add(name)
            for p in parameters:
                if "Trace" in str(p.annotation):
                    assert "str | Path" in str(p.annotation), f"{name}({p.name})"
    assert takers == set(CALLS)


@pytest.fixture(scope="module")
def small(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace of twelve jobs that wait a minute each and run an hour, on two machines."""
    start = [dt.datetime(2020, 1, 1, hour, 1) for hour in range(12)]
    minute, hour = dt.timedelta(minutes=1), dt.timedelta(hours=1)
    spans = [{"start_time": time, "end_time": time + hour, "run_s": 3600.0, "gpu_count": 1.0} for time in start]
    jobs = [
        {"job_id": f"j{i}", "status": "completed", "submit_time": time - minute, "queue_s": 60.0} | span
        for i, (time, span) in enumerate(zip(start, spans, strict=True))
    ]
    attempts = [{"job_id": f"j{i}", "attempt": 0, "wait_s": 60.0} | span for i, span in enumerate(spans)]
    nodes = [{"node_id": name, "gpu_count": 4} for name in "ab"]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_path_serves_as_well_as_the_trace(name: str, small: Trace, tmp_path: Path) -> None:
    trace = small
    given = (trace, str(trace.path), trace.path)
    first, *others = (CALLS[name](form, tmp_path / str(i) / "out") for i, form in enumerate(given))
    assert others == [first, first]


def test_of_opens_a_path_and_gives_a_trace_back(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("helios")
    assert Trace.of(trace) is trace
    assert Trace.of(str(trace.path)) == trace
