"""Traces in which little or nothing can be fitted, and files that are no models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import tracekit
from tracekit.errors import OutputError, TraceError, UsageError
from tracekit.fit.model import WorkloadModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

ONE = {"job_id": "a", "submit_time": "2020-01-01", "status": "completed", "gpu_count": 1, "run_s": 60.0}


def many(number: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {**ONE, "job_id": f"j{i}", "submit_time": f"2020-01-01 {i // 60:02}:{i % 60:02}", **changes}
        for i in range(number)
    ]


@pytest.mark.parametrize(
    ("jobs", "note"),
    [
        ([ONE], "all jobs (until_end): no family could be fitted: 1 durations have a known end"),
        (many(300), "all jobs (until_end): no family could be fitted: all durations are the same"),
        (many(300, run_s=0.0), "all durations are the same"),
        (many(300, run_s=-5.0), "300 jobs of negative run time are excluded"),
        ([*many(299), {**ONE, "job_id": "x", "run_s": 1e300}], "1 job of more than 100 years is excluded"),
        (many(300, run_s=None), "no run times could be fitted, because no job has one"),
        (many(300, run_s=None, status="pending"), "no run times could be fitted"),
        (many(300, status="cancelled"), "all jobs (demand): no family could be fitted: 0 durations have a known end"),
        (many(300, gpu_count=None, status=None), "all durations are the same"),
        (
            many(300, submit_time=None),
            "arrivals could not be fitted: jobs with at least two submission times are needed",
        ),
        (many(300, submit_time="2020-01-01"), "arrivals could not be fitted"),
        (many(300, run_s=None, start_time="2020-01-01", status="running"), "0 durations have a known end"),
    ],
)
def test_a_trace_with_little_in_it_says_what_is_missing(
    make_trace: Callable[..., Trace], tmp_path: Path, jobs: list[dict[str, Any]], note: str
) -> None:
    model = tracekit.fit(make_trace(jobs=jobs), replicates=9, scores=0)
    assert any(note in said for said in model.document["notes"]), model.document["notes"]
    path = model.write(tmp_path / "w.json")
    again = WorkloadModel.read(path)
    assert again.to_json() == model.to_json()
    # What can be drawn is drawn; what cannot is refused in one line.
    if model.document["arrivals"]["process"] is None or not model.document["statuses"]["groups"]:
        with pytest.raises(UsageError, match="the model has no"):
            tracekit.generate(again, tmp_path / "t", jobs=50)
        assert not (tmp_path / "t").exists()
    else:
        trace = tracekit.generate(again, tmp_path / "t", jobs=50)
        assert trace.validate() == []
        assert trace.manifest.tables["jobs"].rows == 50


def test_a_trace_without_jobs_is_refused(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no table 'jobs'"):
        tracekit.fit(make_trace(nodes=[{"node_id": "n", "gpu_count": 8}]))
    with pytest.raises(TraceError, match="no such Trace"):
        tracekit.fit(tmp_path / "absent")
    with pytest.raises(UsageError, match="at least 0"):
        tracekit.fit(make_trace(jobs=[ONE]), seed=-1)


@pytest.fixture(scope="module")
def document(fitted: WorkloadModel) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fitted.to_json())
    return found


def broken(document: dict[str, Any], *path: Any, value: Any = None) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(document))
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copied


APART = [
    {"from_day": low, "to_day": high, "per_hour": 1.0, "standard_error": 0.1} for low, high in ((0.0, 3.0), (4.0, 9.0))
]
"""Pieces with a day between them."""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("version",), 2, "has version 2, but tracekit reads 1"),
        (("format",), "other", "is not a workload model"),
        (("sizes",), None, "'sizes' is a required property"),
        (("arrivals", "rate"), None, "arrivals: 'rate' is missing"),
        (("arrivals", "rate", "profile"), [1.0, 2.0], "the profile needs 1, 24 or 168"),
        (("arrivals", "timezone"), "Mars/Olympus", "no time zone 'Mars/Olympus'"),
        (("arrivals", "process"), "mmpp", "'mmpp' is not among the candidates"),
        (("run_times", 0, "chosen"), "cauchy", "the chosen family 'cauchy' has no parameters"),
        (("run_times", 0, "families", 1, "parameters", "s"), -1.0, "lognorm: s must be a number above 0, not -1.0"),
        (("run_times", 0, "n"), "many", "run_times/0/n: 'many' is not of type 'integer'"),
        (("run_times", 0), None, "the entry of all jobs is missing"),
        (("users", "tenants", 0, "share"), 0.9, "users/tenants: the shares sum to"),
        (("extra",), 1, "'extra' was unexpected"),
        (("arrivals", "start"), 10**18, "arrivals/start: 1000000000000000000 is greater than the maximum"),
        (("arrivals", "rate", "trend_per_day"), 1e9, "arrivals/rate/trend_per_day: 1000000000.0 is greater than"),
        (("arrivals", "rate", "pieces"), APART, "each piece must begin where the previous piece ends"),
        (("arrivals", "batch", "sizes", 0), 10**12, "arrivals/batch/sizes/0: 1000000000000 is greater than"),
        (("arrivals", "batch", "sizes"), [1, 2, 3, 4], "arrivals/batch: 2 values for 4"),
        (("arrivals", "process"), "none", "'none' is not one of"),
        (("statuses", "groups", 0, "attempts"), [10**9], "statuses/groups/0/attempts/0: 1000000000 is greater than"),
        (("statuses", "groups", 0, "status"), "finished", "'finished' is not one of"),
        (
            ("cluster", "capacity"),
            [{"cluster": None, "vc": "a", "gpu_count": 1.0}] * 2,
            "cluster/capacity: a VC is named twice",
        ),
        (("correlation", "levels"), [0.0, 1.0], "correlation/vcs: 17 values for 2"),
    ],
)
def test_a_damaged_model_is_refused_in_one_line(
    document: dict[str, Any], tmp_path: Path, path: tuple[Any, ...], value: Any, said: str
) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps(broken(document, *path, value=value)))
    with pytest.raises(UsageError) as caught:
        WorkloadModel.read(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("{")
    (tmp_path / "list").write_text("[]")
    with pytest.raises(UsageError, match="is not JSON"):
        WorkloadModel.read(tmp_path / "text")
    with pytest.raises(UsageError, match="is not a workload model"):
        WorkloadModel.read(tmp_path / "list")
    with pytest.raises(UsageError, match="cannot be read"):
        WorkloadModel.read(tmp_path / "absent")


def test_a_model_is_not_written_over_another_without_force(document: dict[str, Any], tmp_path: Path) -> None:
    model = WorkloadModel.checked(document)
    path = model.write(tmp_path / "w.json")
    with pytest.raises(OutputError, match="exists already"):
        model.write(path)
    with pytest.raises(OutputError, match="is a folder"):
        model.write(tmp_path)
    model.write(path, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["w.json"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give either --jobs or --days"),
        ({"jobs": 5, "days": 1.0}, "give either --jobs or --days"),
        ({"jobs": 0}, "jobs: must be from 1 to 200,000,000, not 0"),
        ({"days": -1.0}, "days: must be above 0"),
        ({"days": float("nan")}, "days: must be above 0"),
        ({"jobs": 5, "scale_load": 0.0}, "scale-load: must be above 0"),
        ({"jobs": 5, "scale_gpus": float("inf")}, "scale-gpus: must be above 0"),
        ({"jobs": 5, "seed": -1}, "seed: must be at least 0"),
        ({"days": 36_000.0, "scale_load": 1e4}, "more than 200,000,000 jobs"),
        ({"jobs": 100_000_000, "scale_load": 1e-4}, "more than 36,500 days"),
    ],
)
def test_wrong_options_are_refused(
    document: dict[str, Any], tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        tracekit.generate(WorkloadModel.checked(document), tmp_path / "t", **options)
    assert said in str(caught.value)
    assert not (tmp_path / "t").exists()
