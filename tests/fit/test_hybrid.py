"""Hybrids: one half of the log, one of its model; and which way a synthetic Trace is made when nothing is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit
from tests.fit.test_resample import log
from tracekit.errors import UsageError
from tracekit.fit.model import WorkloadModel
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(**log(), nodes=[{"node_id": "n", "gpu_count": 8}])


@pytest.fixture(scope="module")
def model(trace: Trace) -> WorkloadModel:
    fitted: WorkloadModel = tracekit.fit(trace, replicates=0, scores=0)
    return fitted


class Notes(Progress):
    """What a user is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def jobs_of(trace: Trace) -> pl.DataFrame:
    return trace.scan("jobs").collect()


def test_arrivals_of_the_log_have_run_times_of_the_model(trace: Trace, model: WorkloadModel, tmp_path: Path) -> None:
    found = tracekit.generate(trace, tmp_path / "h", days=60, seed=1, method="hybrid", model=model)
    days = jobs_of(tracekit.generate(trace, tmp_path / "r", days=60, seed=1, method="resample"))
    jobs = jobs_of(found)
    assert found.validate() == []
    same = ["submit_time", "user", "cluster", "vc"]
    assert jobs.select(same).equals(days.select(same))
    assert jobs["run_s"].to_list() != days["run_s"].to_list()
    # Ann asks for 1 and 2 GPUs alike often, bob for 3 and cat for 4, who are of one size class.
    one = jobs.group_by("user").agg((pl.col("gpu_count") == 1).mean().alias("share")).sort("user")
    assert one["share"].to_list() == pytest.approx([0.5, 0, 0], abs=4 * (0.25 / 120) ** 0.5)
    assert set(jobs["gpu_count"]) == {1, 2, 3, 4}
    assert found.manifest.options == {
        "days": "60",
        "seed": "1",
        "method": "hybrid",
        "hybrid": "arrivals",
        "scale_load": "1",
        "scale_gpus": "1",
    }
    assert found.manifest.tables["nodes"].rows == 1


def test_a_larger_load_has_more_tenants(trace: Trace, model: WorkloadModel, tmp_path: Path) -> None:
    found = tracekit.generate(trace, tmp_path / "h", days=9, scale_load=2, method="hybrid", model=model)
    assert set(jobs_of(found)["user"]) == {"u1", "u2", "u3", "u1.2", "u2.2", "u3.2"}


def test_jobs_of_the_log_come_when_the_model_says(trace: Trace, model: WorkloadModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"jobs": 200, "seed": 2, "model": model}
    found = tracekit.generate(trace, tmp_path / "h", method="hybrid", hybrid="jobs", **options)
    drawn = jobs_of(tracekit.generate(trace, tmp_path / "m", method="model", **options))
    jobs = jobs_of(found)
    assert found.validate() == []
    assert jobs["submit_time"].to_list() == drawn["submit_time"].to_list()
    # The run time of a job of the log tells its day and its number on it: 3600 * day + number.
    place = ((jobs["run_s"] // 3600) * 4 + jobs["run_s"] % 3600).cast(pl.Int64)
    steps = place.diff().drop_nulls().to_numpy()
    # Runs of four jobs, as many as come on a day; the first job of the log, on its second day, follows the last.
    assert all(step in (1, 1 - 4 * 28) for at, step in enumerate(steps, 1) if at % 4)
    assert (steps[3::4] != 1).sum() > 40
    assert (jobs["gpu_count"] == (place % 4) + 1).all()
    attempts = found.scan("attempts").collect().group_by("job_id").agg(pl.len().alias("count"))
    both = jobs.join(attempts, on="job_id", how="left").with_columns(pl.col("count").fill_null(0))
    assert (both["count"] == (both["user"] == "u1").cast(pl.Int64) * 2).all()
    assert found.manifest.options["hybrid"] == "jobs"
    assert found.manifest.options["rate"] == "mean"


def scored(model: WorkloadModel, best: str, hybrid: str = "arrivals") -> WorkloadModel:
    return WorkloadModel({**model.document, "scores": {"reason": None, "best": best, "hybrid": hybrid}})


@pytest.mark.parametrize(
    ("best", "given", "expected"),
    [
        ("model", {}, ("model", None)),
        ("resample", {}, ("resample", None)),
        ("hybrid", {}, ("hybrid", "jobs")),
        ("model", {"method": "hybrid"}, ("hybrid", "jobs")),
        ("model", {"hybrid": "arrivals"}, ("hybrid", "arrivals")),
        ("hybrid", {"method": "resample"}, ("resample", None)),
    ],
)
def test_what_scored_best_is_taken_unless_another_is_asked_for(
    trace: Trace, model: WorkloadModel, tmp_path: Path, best: str, given: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    notes = Notes()
    with_scores = scored(model, best, "jobs")
    found = tracekit.generate(trace, tmp_path / "t", jobs=5, model=with_scores, progress=notes, **given)
    assert (found.manifest.options["method"], found.manifest.options.get("hybrid")) == expected
    assert notes.said == []


def test_without_scores_days_are_resampled_and_it_says_so(trace: Trace, tmp_path: Path, golden: Golden) -> None:
    notes = Notes()
    found = tracekit.generate(trace, tmp_path / "t", days=3, progress=notes)
    assert found.manifest.options["method"] == "resample"
    golden(notes.said)


def test_a_model_alone_says_what_would_be_nearer(model: WorkloadModel, tmp_path: Path) -> None:
    for best, said in (
        ("model", []),
        ("resample", ["'resample' scored better than the model on the last part of the log, but it needs the Trace"]),
    ):
        notes = Notes()
        tracekit.generate(scored(model, best), tmp_path / best, jobs=5, progress=notes)
        assert notes.said == said
    with pytest.raises(UsageError, match="needs a Trace"):
        tracekit.generate(model, tmp_path / "t", jobs=5, method="hybrid")
    with pytest.raises(UsageError, match="the source is a model"):
        tracekit.generate(model, tmp_path / "t", jobs=5, model=model)


def test_a_model_is_fitted_where_one_is_needed(trace: Trace, model: WorkloadModel, tmp_path: Path) -> None:
    with_it = tracekit.generate(trace, tmp_path / "a", jobs=50, method="model", model=model)
    alone = tracekit.generate(trace, tmp_path / "b", jobs=50, method="model")
    assert jobs_of(alone).equals(jobs_of(with_it))
