"""Pictures of a fitted workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.report.answering import told
from tracekit.fit.choice import Effort, describe
from tracekit.fit.model import WorkloadModel
from tracekit.fit.sample import Sample
from tracekit.report.charts import Hues
from tracekit.report.fit_pictures import (
    against,
    arrivals_picture,
    curves,
    run_time_picture,
    undrawn,
    workload_pictures,
)

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _line_and_points(spec: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a chart and those of its last mark."""
    return spec["data"]["values"], spec["layer"][-1]["data"]["values"]


@pytest.fixture(scope="module")
def entry() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shape = describe(Sample.make(np.round(rng.lognormal(7, 1.5, 2000)), resolution_s=1), rng, Effort(replicates=0))
    key = {"gpu_class": ">8", "status": "failed", "cluster": None, "vc": None}
    return {"measure": "until_end", **key, "pooled_to": None, **shape}


@pytest.fixture
def model(entry: dict[str, Any]) -> WorkloadModel:
    profile = [2.0 if hour < 48 else 0.6 for hour in range(168)]
    rate = {"kind": "hour_of_week", "per_hour": 10.0, "profile": profile}
    arrivals = {
        "process": "poisson",
        "rate": {**rate, "trend_per_day": 0.0},
        "timezone": "UTC",
        "start": 0,
        "days": 28.0,
    }
    arrivals |= {"step_s": 1.0, "batches": 500, "observed_per_hour": [None, *[7.0] * 167]}
    whole = {**entry, "gpu_class": None, "status": None}
    tenant = {**entry, "vc": "a"}
    empty = {"measure": "until_end", "gpu_class": "1", "status": None, "cluster": None, "vc": None, "pooled_to": "all"}
    tiny = {**empty, "n": 12, "median_ratio": None}
    small = {**empty, "gpu_class": "2-4", "n": 100, "median_ratio": 3.0, "quantiles_s": [[0.5, 3000.0], [0.9, 9000.0]]}
    by_status = {**tiny, "status": "failed"}
    source = {"hour_of_day_known": True}
    run_times = [whole, entry, tenant, tiny, small, by_status]
    return WorkloadModel({"source": source, "arrivals": arrivals, "run_times": run_times})


def test_there_is_a_picture_of_arrivals_and_of_each_fitted_group_but_vcs(model: WorkloadModel) -> None:
    drawn = workload_pictures(model)
    assert list(drawn) == ["arrivals", "run_time_all", "run_time_class_above-8_failed", "run_time_class_2-4"]
    assert all(text.startswith("<svg") and "var(--" not in text for text in drawn.values())
    assert "more than 8 GPUs with status failed" in drawn["run_time_class_above-8_failed"]
    assert "2,000 jobs" in drawn["run_time_class_above-8_failed"]
    again = workload_pictures(WorkloadModel({**model.document, "run_times": []}))
    assert again == {"arrivals": drawn["arrivals"]}


def test_what_has_no_picture_is_reported(golden: Golden, model: WorkloadModel) -> None:
    small, by_status, by_tenant = undrawn(model)
    golden(
        [
            told(small, "1-GPU jobs", "12", "200", "20"),
            told(by_status, "1 group by status", "200"),
            told(by_tenant, "1 VC"),
        ]
    )


def test_a_pooled_size_class_has_the_line_of_all_jobs_at_its_own_median(golden: Golden, model: WorkloadModel) -> None:
    small, whole = (model.run_time(gpu_class=size) for size in ("2-4", None))
    assert small is not None
    assert whole is not None
    spec = run_time_picture(model, small)
    golden(told(spec["title"]["subtitle"][0]))
    curve = spec["hconcat"][0]["data"]["values"]
    parameters = next(f for f in whole["families"] if f["family"] == "lognorm")["parameters"]
    near = min(curve, key=lambda row: abs(row["below"] - 0.5))
    assert near["s"] == pytest.approx(3 * parameters["scale"], rel=0.1)


def test_a_line_of_survival_ends_where_the_axis_ends(model: WorkloadModel) -> None:
    spec = run_time_picture(model, model.whole)
    line, points = _line_and_points(spec["hconcat"][1])
    assert min(row["beyond"] for row in line) == pytest.approx(0.001, rel=1e-3)
    assert min(row["beyond"] for row in points) >= 0.001 - 1e-9
    encoded = spec["hconcat"][1]["layer"][0]["encoding"]
    assert [encoded[axis]["scale"]["type"] for axis in "xy"] == ["log", "log"]
    assert "clamp" not in encoded["y"]["scale"]


def test_arrivals_are_drawn_hour_by_hour(model: WorkloadModel) -> None:
    spec = arrivals_picture(model)
    rows, seen = _line_and_points(spec)
    # The last hour is drawn to its end.
    assert [row["hour_of_week"] for row in rows] == list(range(169))
    assert rows[168]["batches"] == rows[167]["batches"]
    assert (rows[47]["batches"], rows[48]["batches"]) == (20.0, 6.0)
    # The first hour was never seen whole; a point stands in the middle of its hour.
    assert [(p["hour_of_week"], p["batches"]) for p in seen[:2]] == [(1.5, 7.0), (2.5, 7.0)]
    assert spec["layer"][1]["encoding"]["color"]["scale"]["domain"] == ["observed", "fitted"]


def test_a_group_is_drawn_as_distribution_survival_and_quantiles(model: WorkloadModel, entry: dict[str, Any]) -> None:
    below, beyond, against = run_time_picture(model, entry)["hconcat"]
    curve, seen = _line_and_points(below)
    assert {row["what"] for row in curve} == {"fitted (lognorm)"}
    assert [row["s"] for row in curve] == sorted(row["s"] for row in curve)
    middle = next(row for row in seen if row["below"] == 0.5)
    assert middle["s"] == dict(entry["quantiles_s"])[0.5]
    assert beyond["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    points = against["data"]["values"]
    # A lognormal against its own sample: the middle of the quantiles lies on the line.
    inner = points[8:20]
    assert all(abs(np.log(row["observed_s"] / row["fitted_s"])) < 0.2 for row in inner)


def _pairs(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    """Return rows of a chart from observed and fitted run times [s]."""
    return [
        {"what": "all", "share": (i + 1) / 10, "observed_s": seen, "fitted_s": fitted}
        for i, (seen, fitted) in enumerate(pairs)
    ]


def test_observed_and_fitted_run_times_share_a_domain_and_even_ticks() -> None:
    # A tail fitted to 1,000 days beside 10 that were seen: ten times the longest is shown.
    day = 86400.0
    rows = _pairs((6.0, 8.0), (600.0, 500.0), (10 * day, 1000 * day))
    same, points = against(rows).drawn()["layer"]
    x, y = (points["encoding"][axis] for axis in "xy")
    assert x["scale"]["domain"] == y["scale"]["domain"]
    assert x["scale"]["domain"][0] < 6.0
    assert 100 * day < x["scale"]["domain"][1] < 200 * day
    assert x["axis"]["values"] == y["axis"]["values"] == [5, 60, 3600, 86400, 120 * 86400]
    assert [row["fitted_s"] for row in same["data"]["values"]] == [6.0, 100 * day]
    assert all(row["fitted_s"] == row["observed_s"] for row in same["data"]["values"])


def test_a_short_range_keeps_all_its_ticks() -> None:
    for chart in (
        against(_pairs((20.0, 25.0), (4000.0, 5000.0))),
        curves(_pairs((20.0, 25.0), (4000.0, 5000.0)), "below", Hues("what", {})),
    ):
        assert chart.drawn()["layer"][1]["encoding"]["x"]["axis"]["values"] == [10, 60, 600, 3600, 7200]


def test_run_times_rounded_to_0_keep_their_place_on_both_axes() -> None:
    points = against(_pairs((0.0, 0.2), (90.0, 100.0))).drawn()["layer"][1]["encoding"]
    assert [points[axis]["scale"]["type"] for axis in "xy"] == ["symlog", "symlog"]
    assert points["x"]["scale"]["domain"] == points["y"]["scale"]["domain"]
