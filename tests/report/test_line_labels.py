"""Names at the ends of lines: apart from each other, within the chart, legible; else a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest

from tests.report.test_charts import _contrast
from tracekit.report.axes import Axis, number
from tracekit.report.charts import LINE, Chart, line, series
from tracekit.report.compare_charts import trace_hues
from tracekit.report.line_labels import LineEnd, end_labels, named_at_ends, named_in_last, nice_top, parted
from tracekit.report.page import chart_views
from tracekit.report.sections.interface import TraceFacts, charts
from tracekit.report.theme import _theme, colour, text_colour
from tracekit.report.through_time import gpu_lines


def _lines(*names: str, rows: tuple[dict[str, Any], ...] = ()) -> Chart:
    """Return a chart of lines with these names, 200 px high."""
    y = number("value", "GPUs", ticks=4)
    return Chart(rows, x=Axis("time"), y=y, marks=[line()], height=200, by=series("name", names))


def _labels(*values: float, names: tuple[str, ...] = ("a", "b", "c", "d", "e"), top: float = 100) -> int:
    """Return how many lines that end at these values have names."""
    ends = [LineEnd(name, value, {}) for name, value in zip(names, values, strict=False)]
    return len(end_labels(_lines(*names), ends, top))


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([50, 100], [50, 100]),
        ([100, 50], [100, 50]),
        # 6 px apart, 14 px needed: each gives way by 4.
        ([50, 56], [46, 60]),
        # At the upper and the lower edge a label reaches half a line beyond the 200 px, no farther.
        ([0, 100], [0, 100]),
        ([200, 100], [200, 100]),
        ([0, 6], [0, 14]),
        ([194, 200], [186, 200]),
        # Three together: the middle one stays, the others give way.
        ([50, 58, 66], [44, 58, 72]),
        # A pair that is pushed into a third takes it along: 50, 56 want 46 and 60, which meets 66.
        ([50, 56, 66], [43 + 1 / 3, 57 + 1 / 3, 71 + 1 / 3]),
    ],
)
def test_labels_stand_at_their_ends_or_as_near_as_there_is_room(places: list[float], found: list[float]) -> None:
    assert parted(places, [LINE] * len(places), 200) == pytest.approx(found)


def test_labels_never_lie_over_each_other_nor_change_their_order() -> None:
    for places in product(range(0, 201, 10), repeat=3):
        found = parted(places, [14, 28, 14], 200)
        if found is None:
            continue
        order = sorted(range(3), key=lambda i: places[i])
        heights = (14, 28, 14)
        edges = [(found[i] - heights[i] / 2, found[i] + heights[i] / 2) for i in order]
        assert edges[0][0] >= -7 - 1e-9
        assert edges[-1][1] <= 207 + 1e-9
        assert all(below[0] >= above[1] - 1e-9 for above, below in pairwise(edges))


@pytest.mark.parametrize(
    ("places", "heights", "height"),
    [
        ([50, 55], [14, 14], 200),  # 5 px: which is which cannot be seen
        ([10, 20, 27], [14, 14, 14], 27),  # 42 px of labels beside 27 + 14
        ([50, 56, 62, 68], [42, 42, 42, 42], 200),  # the outer ones would stand 54 px away
    ],
)
def test_lines_whose_names_cannot_be_parted_have_none(places: list[float], heights: list[float], height: float) -> None:
    assert parted(places, heights, height) is None


def test_names_have_the_colour_of_their_line_and_the_height_of_its_end() -> None:
    ends = [LineEnd("x", 75, {"time": 3}), LineEnd("usable by one job", 25, {})]
    first, second = end_labels(_lines("x", "usable by one job"), ends, 100)
    assert first.rows == [{"time": 3, "at": 75, "name": ["x"]}]
    assert second.rows == [{"at": 25, "name": ["usable by one", "job"]}]
    assert (first.style["color"], second.style["color"]) == ("var(--series-1)", "var(--series-2-text)")
    # Two lines of 14 px around the end: the first begins half a line above it.
    assert (first.style["dy"], second.style["dy"]) == (0, -7)
    assert first.channels["x"] == {"value": "width"}


def test_a_legend_serves_where_names_do_not() -> None:
    assert _labels(10, 30, 50, 70) == 4
    assert _labels(10, 30, 50, 70, 90) == 0  # more than four
    assert _labels(10) == 0  # one line needs no name
    assert _labels(50, 51) == 0  # 2 px apart
    assert _labels(0, 0, top=0) == 0
    assert _labels(10, 90, names=("a", "a_very_long_name_of_a_cluster")) == 0
    assert _labels(10, 90, names=("a", "fourteen chars fourteen chars of each of four")) == 0
    lines = _lines("a", "b")
    assert named_at_ends(lines, [], 100) is lines


def test_lines_are_named_where_each_ends_in_the_last_place() -> None:
    rows = ({"time": 1, "name": "a", "value": 9.0}, {"time": 2, "name": "a", "value": 8.0})
    named = named_in_last(_lines("a", "b", rows=(*rows, {"time": 2, "name": "b", "value": 1.0})), 2, "time")
    assert named.ends
    # The axis ends at 10: 8 and 1 are 40 and 180 px below its top.
    assert [mark.rows for mark in named.marks[1:] if not isinstance(mark, Sequence)] == [
        [{"time": 2, "at": 8.0, "name": ["a"]}],
        [{"time": 2, "at": 1.0, "name": ["b"]}],
    ]
    for more in ({"time": 1, "name": "b", "value": 1.0}, {"time": 2, "name": "a", "value": 1.0}):
        assert not named_in_last(_lines("a", "b", rows=(*rows, more)), 2).ends


@pytest.mark.parametrize(
    ("most", "ticks", "top"),
    [(17.9, 5, 20), (192, 4, 200), (2.1, 4, 2.5), (4.3, 4, 5), (5, 4, 5), (0.118, 5, 0.12), (0, 4, 0)],
)
def test_the_top_of_an_axis_is_that_of_the_chart(most: float, ticks: int, top: float) -> None:
    """Steps of 1, 2 and 5: 17.9 in fifths is 3.6, so by 5 to 20; 2.1 in quarters 0.5, so by 0.5 to 2.5."""
    assert nice_top(most, ticks) == pytest.approx(top)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_names_of_lines_can_be_read_on_the_paper(mode: str) -> None:
    theme = _theme()[mode]
    used = [*(colour(f"series-{i}") for i in range(1, 6)), colour("status-failed"), colour("muted")]
    used += trace_hues([f"t{i}" for i in range(7)]).colours.values()
    for hue in used:
        name = text_colour(hue).removeprefix("var(--").removesuffix(")")
        assert _contrast(theme[name], theme["paper"]) >= 4.5, name


def _hours(**clusters: list[float | None]) -> list[dict[str, Any]]:
    more = {"gpu_util_pct": None, "submitted_jobs": None, "submitted_gpu_jobs": None}
    return [
        {"cluster": name, "hour": 24 - len(shares) + i, "allocated_share": share, **more}
        for name, shares in clusters.items()
        for i, share in enumerate(shares)
    ]


def test_clusters_through_the_day_are_named_at_the_last_hour_and_narrowed_with_it() -> None:
    (chart,) = charts("utilization/cluster_by_hour", _hours(Earth=[0.1, 0.2], Venus=[0.5, 0.6]))
    assert chart.ends
    assert [words for words, _ in chart.key] == ["Earth", "Venus"]
    spec = chart.to_dict()
    names = [rows[0] for rows in spec["datasets"].values() if "name" in rows[0]]
    assert names == [
        {"cluster": "Earth", "at": 0.2, "name": ["Earth"]},
        {"cluster": "Venus", "at": 0.6, "name": ["Venus"]},
    ]


@pytest.mark.parametrize(
    "rows",
    [
        _hours(Earth=[0.1, 0.6], Venus=[0.5, 0.6]),  # they end together
        _hours(Earth=[0.1, 0.2], Venus=[0.5, None]),  # one ends before
        _hours(Earth=[0.1, 0.2]),  # alone
    ],
)
def test_clusters_that_cannot_be_named_at_their_ends_keep_the_legend(rows: list[dict[str, Any]]) -> None:
    (chart,) = charts("utilization/cluster_by_hour", rows)
    assert not chart.ends


def test_names_of_lines_through_time_vanish_with_the_last_time() -> None:
    rows = [{"time": f"2024-01-0{d}T00:00:00Z", "free": 10.0 * d, "used": 2.0} for d in (1, 2, 3)]
    chart = gpu_lines(rows, {"free": "free", "used": "of use"}, TraceFacts(vcs=False), title="")
    assert chart.ends
    names = [v[0] for v in chart.to_dict()["datasets"].values() if "name" in v[0]]
    assert [(n["name"], n["at"], n["time"][:10]) for n in names] == [
        (["free"], 30.0, "2024-01-03"),
        (["of use"], 2.0, "2024-01-03"),
    ]


def test_the_legend_of_named_lines_is_read_aloud_alone() -> None:
    views = chart_views("q", [replace(_lines("a", "b"), ends=ends) for ends in (True, False)], "")
    assert [view["ends"] for view in views] == [True, False]
