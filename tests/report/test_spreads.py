"""Distributions as ranges and curves, sizes of jobs as a curve of steps, and maps of the hours of the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.report.sections.interface import charts, finding
from tracekit.report.spreads import SHARES, percentile_size, size_curve
from tracekit.report.theme import pale, pale_value
from tracekit.report.week import linear_shades, time_shades

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _spread(measure: str, scope: str, values: float, number: int = 9, **names: Any) -> dict[str, Any]:
    row = {"measure": measure, "scope": scope, "cluster": None, "vc": None, "gpu_class": None, "number": number}
    return row | {"mean_s": values} | {f"p{p}_s": values * p / 50 for p in SHARES} | names


DISTRIBUTIONS = [
    _spread("run time", "all", 3600),
    _spread("run time", "size", 60, gpu_class="1"),
    _spread("run time", "tenant", 600, cluster="x", vc="v"),
    _spread("run time", "tenant", 600, number=2, cluster="x", vc="w"),
    _spread("wait", "all", 10),
    _spread("wait", "size", 10, gpu_class="1"),
    _spread("wait", "size", 20, gpu_class="2-4"),
]


def test_a_curve_goes_through_the_percentiles_and_marks_median_and_nine_in_ten() -> None:
    run, wait, sizes = charts("queuing/distributions", DISTRIBUTIONS)
    spec = run.to_dict()
    lines, marks = spec["datasets"].values()
    # Two values make no curve; sizes are drawn by themselves.
    assert [(row["cluster"], row["vc"], row["names"]) for row in lines] == [(None, None, 0), ("x", "v", 2)]
    assert lines[0]["s"] == [3600 * p / 50 for p in SHARES]
    assert [(m["words"], m["share"], m["left"]) for m in marks[:2]] == [
        ("median 1 h", 0.5, True),
        ("90 %: 1.8 h", 0.9, True),
    ]
    line = spec["layer"][0]
    assert {"calculate": f"[{','.join(f'{p / 100:g}' for p in SHARES)}]", "as": "share"} in line["transform"]
    assert line["encoding"]["x"]["scale"]["type"] == "symlog"
    assert [p.title for p in (run, wait, sizes)] == ["Run time", "Wait", "Wait by size"]
    (rows,) = sizes.to_dict()["datasets"].values()
    assert [(r["gpu_class"], r["p90_s"], r["mean_s"]) for r in rows] == [("1", 18, 10), ("2-4", 36, 20)]


def test_waits_that_are_all_none_have_no_curve() -> None:
    rows = [*DISTRIBUTIONS[:4], _spread("wait", "all", 0), _spread("wait", "size", 0, gpu_class="1")]
    assert [p.title for p in charts("queuing/distributions", rows)] == ["Run time"]


def test_what_a_page_is_narrowed_to_is_drawn_in_place_of_the_whole() -> None:
    """Rows with fewest names are kept: of all, or what a choice leaves."""
    run, *_ = charts("queuing/distributions", DISTRIBUTIONS)
    for layer in run.to_dict()["layer"]:
        first, second = layer["transform"][:2]
        assert first == {"joinaggregate": [{"op": "min", "field": "names", "as": "fewest"}]}
        assert second == {"filter": "datum.names === datum.fewest"}


@pytest.mark.parametrize(("wait", "facts"), [(0, ()), (10, ("10 s", "18 s"))], ids=["no waits", "waits"])
def test_the_sentence_tells_what_the_curves_mark(golden: Golden, wait: float, facts: tuple[str, ...]) -> None:
    rows = [_spread("run time", "all", 3600), _spread("wait", "all", wait)]
    golden(told(finding("queuing/distributions", rows), "1 h", "1.8 h", *facts))


def _hour(weekday: int, hour: int, jobs: int, wait: float | None, cluster: str | None = None) -> dict[str, Any]:
    row = {"cluster": cluster, "weekday": weekday, "hour": hour, "jobs": jobs, "jobs_per_hour": jobs / 2}
    return row | {"waits": 0 if wait is None else jobs, "mean_wait_s": wait}


WEEK = [_hour(1, 0, 4, 30.0), _hour(1, 1, 0, None), _hour(7, 23, 14, 7200.0), _hour(2, 5, 1, None)]
BY_CLUSTER = [_hour(1, 0, 4, 30.0, "x"), _hour(7, 23, 14, 7200.0, "y"), _hour(2, 5, 1, None, "x")]


def test_hours_of_the_week_are_darker_the_more_jobs_come_and_the_longer_they_wait() -> None:
    come, wait = charts("queuing/week", [*WEEK, *BY_CLUSTER])
    assert [words for words, _ in come.legend] == ["below 2", "from 2", "from 4", "from 6"]
    assert [words for words, _ in wait.legend] == ["below 1 min", "from 1 min", "from 10 min", "from 1 h"]
    assert come.legend[1][1] == "color-mix(in srgb, var(--series-1) 41%, var(--paper))"
    (rows,) = come.to_dict()["datasets"].values()
    assert [(r["day"], r["hour"], r["come"], r.get("wait"), r["names"]) for r in rows] == [
        ("Mon", 0, 2, 30, 0),
        ("Sun", 23, 7, 7200, 0),
        ("Tue", 5, 0.5, None, 0),
        ("Mon", 0, 2, 30, 1),
        ("Sun", 23, 7, 7200, 1),
        ("Tue", 5, 0.5, None, 1),
    ]
    encoding = wait.to_dict()["encoding"]
    assert encoding["opacity"]["scale"] == {
        "type": "threshold",
        "domain": [60, 600, 3600],
        "range": [0.12, 0.41, 0.71, 1.0],
    }
    assert encoding["y"]["scale"]["domain"] == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def test_a_week_of_next_to_no_jobs_is_not_drawn_nor_waits_that_are_none() -> None:
    assert charts("queuing/week", WEEK[:3]) == []
    assert [p.title for p in charts("queuing/week", [_hour(d, 0, 9, 0.0) for d in (1, 2, 3)])] == [
        "Jobs submitted per hour"
    ]


def test_the_sentence_names_the_busiest_hour_and_the_longest_wait(golden: Golden) -> None:
    golden(told(finding("queuing/week", [*WEEK, *BY_CLUSTER]), "23:00", "7", "2 h"))


@pytest.mark.parametrize(
    ("top", "ends"), [(0.0, []), (0.3, [0.1, 0.2]), (5.0, [1, 2, 3, 4]), (5.1, [2, 4]), (1234.0, [500, 1000])]
)
def test_steps_are_round_and_at_most_five(top: float, ends: list[float]) -> None:
    assert linear_shades([0.0, top]).ends == ends


def test_one_duration_has_one_step() -> None:
    assert time_shades([600, 600]).ends == []
    assert time_shades([600, 601]).ends == [600]
    assert time_shades([5]).legend("series-1") == ()


def test_a_pale_colour_is_its_part_of_the_colour_and_the_rest_of_the_paper() -> None:
    """Of #0072b2 on white: a quarter of each channel's way from 255."""
    assert pale_value(pale("series-1", 0.25)) == f"#{0xBF:02x}{0xDC:02x}{0xEC:02x}"
    assert pale_value(pale("series-1", 1)) == "#0072b2"
    assert pale_value("var(--series-1)") is None


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
    curve, _ = charts("workload/gpu_request", MIXED)
    spec = curve.to_dict()
    steps, marks = spec["datasets"].values()
    # Each doubling is one step of the axis, 0 stands a doubling below the least size.
    assert [(s["s"], s["share"]) for s in steps] == [
        (-2, 0),
        (-2, 0.15),
        (-1, 0.2),
        (0, 0.5),
        (3, 0.9),
        (4.585, 1),
    ]
    assert [(m["s"], m["share"], m["words"], m["left"]) for m in marks] == [
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
    curve, _ = charts("workload/gpu_request", _rows({1.0: 1, 2.0: 1}))
    spec = curve.to_dict()
    assert spec["layer"][0]["encoding"]["x"]["axis"]["title"] == "GPUs at most (log scale)"
    assert [m["words"] for m in list(spec["datasets"].values())[1]] == ["median 1 GPU", "90 %: 2 GPUs"]


def test_jobs_of_one_size_make_no_curve() -> None:
    assert size_curve(_rows({8.0: 40})) is None
    assert size_curve(_rows({1.0: 0, 8.0: 40})) is None
    assert charts("workload/gpu_request", _rows({8.0: 40})) == []


def test_cpu_jobs_and_one_size_have_two_places() -> None:
    curve, *_ = charts("workload/gpu_request", _rows({0.0: 1, 1.0: 1}))
    spec = curve.to_dict()
    assert spec["layer"][0]["encoding"]["x"]["axis"]["values"] == [-1, 0]
    assert [m["words"] for m in list(spec["datasets"].values())[1]] == ["median 0 GPUs", "90 %: 1 GPU"]
