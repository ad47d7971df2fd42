"""Pictures of a fitted workload."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pytest

from tracekit.fit.choice import Effort, describe
from tracekit.fit.model import WorkloadModel
from tracekit.fit.sample import Sample
from tracekit.report.workload_charts import arrivals_chart, run_time_chart, workload_pictures


def spec_of(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the specification with the data where it is used."""
    with alt.data_transformers.enable(consolidate_datasets=False):
        return dict(chart.to_dict())


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
    arrivals = {"process": "poisson", "rate": rate, "timezone": "UTC"}
    whole = {**entry, "gpu_class": None, "status": None}
    tenant = {**entry, "vc": "a"}
    pooled = {"measure": "until_end", "gpu_class": "1", "status": None, "cluster": None, "vc": None, "pooled_to": "all"}
    return WorkloadModel({"arrivals": arrivals, "run_times": [whole, entry, tenant, pooled]})


def test_there_is_a_picture_of_arrivals_and_of_each_fitted_group_but_vcs(model: WorkloadModel) -> None:
    drawn = workload_pictures(model)
    assert list(drawn) == ["arrivals", "run_time_all", "run_time_class_above-8_failed"]
    assert all(text.startswith("<svg") and "var(--" not in text for text in drawn.values())
    assert "run time of &gt;8 GPUs, failed, 2,000 jobs" in drawn["run_time_class_above-8_failed"]


def test_arrivals_are_drawn_hour_by_hour(model: WorkloadModel) -> None:
    spec = spec_of(arrivals_chart(model))
    rows = (spec.get("data") or spec["layer"][0]["data"])["values"]
    # The last hour is drawn to its end.
    assert [row["hour_of_week"] for row in rows] == list(range(169))
    assert rows[168]["expected"] == rows[167]["expected"]
    assert (rows[47]["expected"], rows[48]["expected"]) == (20.0, 6.0)


def test_a_group_is_drawn_as_distribution_survival_and_quantiles(entry: dict[str, Any]) -> None:
    below, beyond, against = spec_of(run_time_chart(entry))["hconcat"]
    curve, seen = (layer["data"]["values"] for layer in below["layer"])
    assert {row["what"] for row in curve} == {"fitted (lognorm)"}
    assert [row["seconds"] for row in curve] == sorted(row["seconds"] for row in curve)
    middle = next(row for row in seen if row["below"] == 0.5)
    assert middle["seconds"] == dict(entry["quantiles_s"])[0.5]
    assert beyond["layer"][0]["encoding"]["y"]["scale"]["type"] == "log"
    points = against["layer"][1]["data"]["values"]
    # A lognormal against its own sample: the middle of the quantiles lies on the line.
    inner = points[8:20]
    assert all(abs(np.log(row["observed"] / row["fitted"])) < 0.2 for row in inner)
