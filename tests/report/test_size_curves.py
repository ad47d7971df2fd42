"""Curves of the sizes of jobs: percentiles by hand, steps, and a place for jobs of 0 GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.report.sections.interface import panels
from tracekit.report.size_curves import percentile_size, size_curve

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _rows(jobs: dict[float, int]) -> list[dict[str, Any]]:
    """Return rows as the query gives them."""
    total = sum(jobs.values())
    return [{"gpu_count": g, "jobs": n, "jobs_share": n / total, "gpu_hours_share": None} for g, n in jobs.items()]


MIXED = _rows({0.0: 3, 0.5: 1, 1.0: 6, 8.0: 8, 24.0: 2})
"""20 jobs: up to each size 3, 4, 10, 18 and 20 of them."""


@pytest.mark.parametrize(
    ("percentile", "size"),
    [
        (15, 0.0),  # 3 of 20 are 15 %
        (16, 0.5),
        (20, 0.5),
        (50, 1.0),  # 10 of 20 are half: 8 is not needed
        (51, 8.0),
        (90, 8.0),  # 18 of 20 are 90 %
        (91, 24.0),
        (100, 24.0),
    ],
)
def test_a_percentile_is_the_smallest_size_that_so_many_jobs_do_not_exceed(percentile: int, size: float) -> None:
    assert percentile_size(MIXED, percentile) == size
    assert percentile_size(MIXED[::-1], percentile) == size


def test_jobs_of_unknown_size_are_not_counted() -> None:
    unknown = {"gpu_count": None, "jobs": 1000, "jobs_share": None, "gpu_hours_share": None}
    assert percentile_size([*MIXED, unknown], 50) == 1.0
    assert percentile_size([unknown], 50) is None
    assert percentile_size([], 50) is None


def test_a_share_that_no_float_holds_counts_as_reached() -> None:
    """0.29 * 100 is 28.999999999999996 as a float."""
    assert percentile_size(_rows({1.0: 29, 2.0: 71}), 29) == 1.0


def test_steps_go_from_nothing_to_all_and_marks_stand_on_them(golden: Golden) -> None:
    curve, _ = panels("workload/gpu_request", MIXED)
    spec = curve.to_dict()
    steps, marks = spec["datasets"].values()
    # Each doubling is one step of the axis, 0 stands a doubling below the least size.
    assert [(s["at"], s["share"]) for s in steps] == [
        (-2, 0),
        (-2, 0.15),
        (-1, 0.2),
        (0, 0.5),
        (3, 0.9),
        (4.585, 1),
    ]
    assert [(m["at"], m["share"], m["words"], m["left"]) for m in marks] == [
        (0, 0.5, "median 1 GPU", False),
        (3, 0.9, "90 %: 8 GPUs", True),
    ]
    line = spec["layer"][0]
    assert line["mark"]["interpolate"] == "step-after"
    axis = line["encoding"]["x"]["axis"]
    assert axis["values"] == [-2, -1, 0, 1, 2, 3, 4, 5]
    golden(told(axis["title"], "0"))
    assert line["encoding"]["y"]["axis"]["title"] == "jobs of known size (%)"


def test_without_cpu_jobs_nothing_is_said_of_them() -> None:
    curve, _ = panels("workload/gpu_request", _rows({1.0: 1, 2.0: 1}))
    spec = curve.to_dict()
    assert spec["layer"][0]["encoding"]["x"]["axis"]["title"] == "GPUs at most (log scale)"
    assert [m["words"] for m in list(spec["datasets"].values())[1]] == ["median 1 GPU", "90 %: 2 GPUs"]


def test_jobs_of_one_size_make_no_curve() -> None:
    assert size_curve(_rows({8.0: 40})) is None
    assert size_curve(_rows({1.0: 0, 8.0: 40})) is None
    assert panels("workload/gpu_request", _rows({8.0: 40})) == []


def test_cpu_jobs_and_one_size_have_two_places() -> None:
    curve, *_ = panels("workload/gpu_request", _rows({0.0: 1, 1.0: 1}))
    spec = curve.to_dict()
    assert spec["layer"][0]["encoding"]["x"]["axis"]["values"] == [-1, 0]
    assert [m["words"] for m in list(spec["datasets"].values())[1]] == ["median 0 GPUs", "90 %: 1 GPU"]
