"""Names at the ends of lines: apart from each other, within the chart, legible; else a legend."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import altair as alt
import pytest

from tests.report.test_charts import _contrast
from tracekit.report.charts import Panel, data
from tracekit.report.compare_charts import trace_colours
from tracekit.report.line_labels import LINE, LineEnd, end_labels, named_at_ends, nice_top, parted
from tracekit.report.lines import gpu_lines
from tracekit.report.page import panel_views
from tracekit.report.sections.interface import TraceFacts, panels
from tracekit.report.theme import _theme, colour, text_colour

Y = alt.Y("value:Q", axis=alt.Axis(title="GPUs", tickCount=4), scale=alt.Scale(domainMin=0))


def _ends(*values: float, names: tuple[str, ...] = ("a", "b", "c", "d", "e")) -> list[LineEnd]:
    return [LineEnd(name, value, colour("series-1"), {}) for name, value in zip(names, values, strict=False)]


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
    ends = [
        LineEnd("x", 75, colour("series-1"), {"time": 3}),
        LineEnd("of use to one gang", 25, colour("series-2"), {}),
    ]
    first, second = (layer.to_dict() for layer in end_labels(ends, top=100, height=200, axis=Y))
    assert list(*first["datasets"].values()) == [{"time": 3, "at": 75, "name": ["x"]}]
    assert list(*second["datasets"].values()) == [{"at": 25, "name": ["of use to one", "gang"]}]
    assert (first["mark"]["color"], second["mark"]["color"]) == ("var(--series-1)", "var(--series-2-text)")
    # Two lines of 14 px around the end: the first begins half a line above it.
    assert (first["mark"]["dy"], second["mark"]["dy"]) == (0, -7)
    assert first["encoding"]["x"] == {"value": "width"}


def test_a_legend_serves_where_names_do_not() -> None:
    def number(ends: list[LineEnd], top: float = 100) -> int:
        return len(end_labels(ends, top=top, height=200, axis=Y))

    assert number(_ends(10, 30, 50, 70)) == 4
    assert number(_ends(10, 30, 50, 70, 90)) == 0  # more than four
    assert number(_ends(10)) == 0  # one line needs no name
    assert number(_ends(50, 51)) == 0  # 2 px apart
    assert number(_ends(0, 0), top=0) == 0
    assert number(_ends(10, 90, names=("a", "a_very_long_name_of_a_cluster"))) == 0
    assert number(_ends(10, 90, names=("a", "fourteen chars fourteen chars of each of four"))) == 0
    lines = alt.Chart(data([])).mark_line().properties(height=200)
    assert named_at_ends(lines, []) == (lines, False)


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
    used += trace_colours([f"t{i}" for i in range(7)]).values()
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
    (panel,) = panels("utilization/cluster_by_hour", _hours(Earth=[0.1, 0.2], Venus=[0.5, 0.6]))
    assert panel.ends
    assert [words for words, _ in panel.key] == ["Earth", "Venus"]
    spec = panel.to_dict()
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
    (panel,) = panels("utilization/cluster_by_hour", rows)
    assert not panel.ends


def test_names_of_lines_through_time_vanish_with_the_last_time() -> None:
    rows = [{"time": f"2024-01-0{d}T00:00:00Z", "free": 10.0 * d, "used": 2.0} for d in (1, 2, 3)]
    panel = gpu_lines(rows, {"free": "free", "used": "of use"}, TraceFacts(vcs=False), title="")
    assert panel.ends
    names = [v[0] for v in panel.to_dict()["datasets"].values() if "name" in v[0]]
    assert [(n["name"], n["at"], n["time"][:10]) for n in names] == [
        (["free"], 30.0, "2024-01-03"),
        (["of use"], 2.0, "2024-01-03"),
    ]


def test_the_legend_of_named_lines_is_read_aloud_alone() -> None:
    chart = alt.Chart(data([])).mark_line()
    views = panel_views("q", [Panel(chart, (("a", "red"),) * 2, ends=ends) for ends in (True, False)], "")
    assert [view["ends"] for view in views] == [True, False]
