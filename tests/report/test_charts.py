from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit import resources
from tracekit.characterize import list_queries
from tracekit.report.bars import amounts, bars
from tracekit.report.charts import Hues, size_hues, status_hues
from tracekit.report.page import chart_payload
from tracekit.report.sections.interface import charts

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.report.charts import Chart

WITHOUT_CHART = {"overview/summary"}


def _one(query: str, rows: list[dict[str, Any]]) -> tuple[Chart, dict[str, Any], list[dict[str, Any]]]:
    """Return the only chart of a query, its specification and its data."""
    (chart,) = charts(query, rows)
    spec = chart.to_dict()
    (values,) = spec["datasets"].values()
    return chart, spec, values


def test_shares_are_drawn_beside_each_other_in_the_order_of_the_sizes() -> None:
    rows: list[dict[str, Any]] = [
        {"gpu_class": ">8", "jobs": 1, "jobs_share": 0.25, "gpu_hours": 9.0, "gpu_hours_share": 0.9},
        {"gpu_class": "1", "jobs": 2, "jobs_share": 0.5, "gpu_hours": 1.0, "gpu_hours_share": 0.1},
        {"gpu_class": None, "jobs": 1, "jobs_share": 0.25, "gpu_hours": None, "gpu_hours_share": None},
    ]
    chart, spec, values = _one("overview/job_size", rows)
    assert values == [
        {"key": ">8", "measure": "share of jobs", "share": 0.25},
        {"key": ">8", "measure": "share of GPU time", "share": 0.9},
        {"key": "1", "measure": "share of jobs", "share": 0.5},
        {"key": "1", "measure": "share of GPU time", "share": 0.1},
        {"key": "unknown", "measure": "share of jobs", "share": 0.25},
    ]
    encoding = spec["encoding"]
    assert encoding["y"]["scale"]["domain"] == ["1", ">8", "unknown"]
    assert encoding["x"]["axis"]["title"] == "share of the total (%)"
    assert (spec["width"], spec["height"]) == ("container", 3 * 34)
    assert chart.legend == (("share of jobs", "var(--series-1)"), ("share of GPU time", "var(--series-2)"))


def _shares(jobs: int) -> list[dict[str, Any]]:
    return [{"gpu_class": "1", "jobs": 40, "share": 0.5}, {"gpu_class": "2-4", "jobs": jobs, "share": 1.0}]


def _bars(jobs: int, count: str | None) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    measures = {"share": "share of jobs"}
    values = ["1", "2-4"]
    chart = bars(
        _shares(jobs), key="gpu_class", values=values, title=None, measures=measures, axis_title="share", count=count
    )
    spec = chart.to_dict()
    (rows,) = spec["datasets"].values()
    return spec["encoding"], rows, chart.note


def test_bars_of_few_observations_are_pale_where_they_are_counted() -> None:
    encoding, rows, note = _bars(29, "jobs")
    assert [r.get("few") for r in rows] == [None, True]
    assert encoding["fillOpacity"] == {"condition": {"test": "datum.few", "value": 0.35}, "value": 1}
    assert encoding["stroke"]["scale"] == encoding["color"]["scale"]
    assert note == "Pale bars: fewer than 30 jobs."


@pytest.mark.parametrize(("jobs", "count"), [(30, "jobs"), (29, None)])
def test_bars_are_full_where_nothing_is_rare_or_counted(jobs: int, count: str | None) -> None:
    encoding, rows, note = _bars(jobs, count)
    assert not {"fillOpacity", "stroke", "strokeWidth"} & set(encoding)
    assert ([r for r in rows if "few" in r], note) == ([], "")


def _run_time(low: float, high: float) -> list[dict[str, Any]]:
    return [
        {"gpu_class": "1", "jobs": 9, "mean_s": 50.0, "p10_s": low, "p25_s": 20.0, "p50_s": 60.0, "p75_s": 90.0}
        | {"p90_s": high},
        {"gpu_class": "0", "jobs": 9, **dict.fromkeys(("mean_s", "p10_s", "p25_s", "p50_s", "p75_s", "p90_s"), 30.0)},
    ]


def test_durations_stand_on_a_log_scale_with_ticks_that_people_use() -> None:
    _, spec, values = _one("queuing/run_time", _run_time(10.0, 7200.0))
    x = spec["layer"][0]["encoding"]["x"]
    assert x["scale"] == {"type": "log", "domain": [10, 7200], "nice": False}
    assert x["axis"]["values"] == [10, 60, 600, 3600, 7200]
    assert x["axis"]["title"] == "run time (log scale)"
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == ["0", "1"]
    assert values[0]["p90_s_words"] == "2 h"
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "rule", "point", "point"]


def test_a_duration_of_0_has_a_place_on_the_scale() -> None:
    _, spec, _ = _one("queuing/run_time", _run_time(0.0, 60.0))
    x = spec["layer"][0]["encoding"]["x"]
    assert x["scale"] == {"type": "symlog", "constant": 1, "domain": [-0.15, 60], "nice": False}
    assert x["axis"]["values"] == [0, 1, 10, 60]


def _wait(vc: str | None, gpu_class: str, waits: int, most: float = 50.0) -> dict[str, Any]:
    row = {"vc": vc, "gpu_class": gpu_class, "waits": waits}
    return row | {"p50_s": most / 10, "p90_s": most, "mean_s": most / 5}


def test_only_the_vcs_with_most_waits_are_drawn_and_the_others_are_counted(golden: Golden) -> None:
    rows = [_wait(f"vc{i:02}", "1", 100 + i) for i in range(30)] + [_wait("idle", "1", 999, 0.0)]
    drawn = charts("queuing/queue_delay", rows)
    assert [p.title for p in drawn] == [f"vc{i:02}" for i in range(29, 17, -1)]
    assert [p.note for p in drawn[:-1]] == [""] * 11
    golden(told(drawn[-1].note, "90th", "12", "18", "1"))


def test_the_waits_of_all_tenants_have_one_axis_and_one_order_of_sizes() -> None:
    rows = [_wait("a", "1", 3), _wait("a", ">8", 3, 7000.0), _wait("b", "2-4", 2, 2.0)]
    first, second = (chart.to_dict() for chart in charts("queuing/queue_delay", rows))
    assert first["layer"][0]["encoding"]["x"]["scale"] == second["layer"][0]["encoding"]["x"]["scale"]
    for spec in (first, second):
        assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == ["1 GPU", "2-4 GPUs", ">8 GPUs"]
    (values,) = second["datasets"].values()
    assert [(v["vc"], v["size"], v["p50_s"], v["mean_s"], v["p90_s"]) for v in values] == [
        ("b", "2-4 GPUs", 0.2, 0.4, 2)
    ]


def test_hostile_names_stay_apart_short_and_visible() -> None:
    rows = [_wait("L" * 100_000 + "a", "1", 3), _wait("L" * 100_000 + "b", "1", 2), _wait("\u202eabc", ">8", 1)]
    names = [chart.title for chart in charts("queuing/queue_delay", rows)]
    assert names == ["L" * 21 + "…", "L" * 21 + "… (2)", "\\u202eabc"]


def test_jobs_without_a_vc_have_their_own_chart() -> None:
    drawn = charts("queuing/queue_delay", [_wait("a", "1", 3), _wait(None, "1", 2)])
    assert [p.title for p in drawn] == ["a", "no VC"]
    assert [p.title for p in charts("queuing/queue_delay", [_wait(None, "1", 2)])] == [""]
    assert charts("queuing/queue_delay", [_wait("a", "1", 3, 0.0)]) == []


def test_the_classes_of_the_paper_are_drawn_for_spread() -> None:
    columns = ("gpu_class", "node_count", "jobs", "p50_s", "p90_s")
    table = [("1", 1, 99, 1.0, 2.0), ("5-8", 1, 9, 1.0, 2.0), ("5-8", 2, 9, 1.0, 2.0), (">8", 2, 9, 5.0, 9.0)]
    rows: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in table]
    chart, _, values = _one("locality/delay_by_spread", rows)
    assert [v["gpu_class"] for v in values] == ["5-8", "5-8", ">8"]
    assert chart.legend == (("5-8 GPUs", "var(--class-4)"), (">8 GPUs", "var(--class-5)"))
    assert charts("locality/delay_by_spread", rows[:2]) == []
    assert charts("locality/delay_by_spread", [*rows[:2], rows[3]]) == []


def test_statuses_stack_in_a_fixed_order() -> None:
    rows: list[dict[str, Any]] = [
        {"gpu_class": "1", "status": s, "jobs": 1, "jobs_share": 0.25, "gpu_hours": None}
        for s in ("failed", None, "completed", "out_of_memory")
    ]
    chart, spec, values = _one("failures/status_by_size", rows)
    assert [v["order"] for v in values] == [2, 9, 0, 5]
    assert spec["encoding"]["color"]["scale"]["domain"] == ["completed", "failed", "out_of_memory", "unknown"]
    assert [words for words, _ in chart.legend] == ["completed", "failed", "out of memory", "unknown"]


def test_two_measures_of_different_kinds_are_two_charts() -> None:
    row = {"gpu_class": "1", "jobs": 5, "mean_retries": 0.5, "unsuccessful_share": 0.2}
    rows = [row, {**row, "gpu_class": "2-4"}]
    titles = [p.to_dict()["encoding"]["x"]["axis"]["title"] for p in charts("failures/retries", rows)]
    assert [re.findall(r"\(.*\)", title) for title in titles] == [["(mean)"], ["(%)"]]
    assert len(charts("failures/retries", [{**one, "unsuccessful_share": None} for one in rows])) == 1


def test_the_commonest_requests_are_drawn_in_order_of_size(golden: Golden) -> None:
    rows = [{"gpu_count": g, "jobs": 100 - g, "jobs_share": 0.1, "gpu_hours_share": None} for g in range(20)]
    _, chart = charts("workload/gpu_request", rows)
    spec = chart.to_dict()
    assert spec["encoding"]["y"]["scale"]["domain"] == [str(g) for g in range(14)]
    golden(told(chart.note, "14", "6"))


def test_a_result_without_rows_draws_nothing() -> None:
    assert [query.name for query in list_queries() if charts(query.name, []) != []] == []


def test_every_answered_query_that_knows_a_chart_draws_one(drawn_charts: dict[str, list[Chart]]) -> None:
    drawn = {name for name, some in drawn_charts.items() if some}
    expected = {
        "overview/status",
        "overview/job_size",
        "overview/arrivals_by_hour",
        "queuing/run_time",
        "queuing/distributions",
        "queuing/queue_delay",
        "queuing/week",
        "queuing/cluster_timeline",
        "queuing/timeline",
        "locality/fragmentation",
        "locality/relaxation",
        "locality/utilization_by_spread",
        "locality/utilization_by_colocation",
        "utilization/gpu_by_size_status",
        "utilization/host",
        "utilization/vc",
        "utilization/cluster_by_hour",
        "utilization/efficiency",
        "failures/status_by_size",
        "failures/run_time_to_failure",
        "failures/by_user",
        "failures/goodput",
        "users/concentration",
        "users/queueing",
        "workload/gpu_request",
        "fit/run_time",
        "fit/arrival_rate",
    }
    assert drawn == expected
    assert set(drawn_charts) >= WITHOUT_CHART


def _axes(node: Any) -> list[dict[str, Any]]:
    """Return every encoding with an axis."""
    if isinstance(node, list):
        return [found for part in node for found in _axes(part)]
    if not isinstance(node, dict):
        return []
    return [node] * ("axis" in node) + [found for part in node.values() for found in _axes(part)]


def test_no_mark_stands_beyond_the_last_tick(drawn_charts: dict[str, list[Chart]]) -> None:
    drawn = [chart.to_dict() for some in drawn_charts.values() for chart in some]
    counted = [a for spec in drawn for a in _axes(spec) if (a["axis"] or {}).get("tickCount")]
    assert len(counted) > 10
    rounded = [a for a in counted if a.get("scale", {}).get("nice", "domain" not in a.get("scale", {}))]
    assert len(rounded) > 5
    assert [a for a in rounded if a["scale"]["nice"] != a["axis"]["tickCount"]] == []


def test_a_legend_of_one_colour_is_kept_where_it_tells_a_size_or_a_status() -> None:
    chart = _chart_of_bars(2)
    assert chart.key == chart.legend
    assert len(chart.key) == 2
    size, status = size_hues([{"gpu_class": "1"}]), status_hues([{"end": "completed"}], "end")
    kept = [replace(chart, by=by).key for by in (size, status, Hues("what", {"held": "var(--series-1)"}))]
    assert kept == [(("1 GPU", "var(--class-2)"),), (("completed", "var(--status-completed)"),), ()]


def test_no_legend_says_what_the_axis_or_the_note_says() -> None:
    chart = _chart_of_bars(2)
    by = size_hues([{"key": "1"}, {"key": ">8"}], "key")
    assert replace(chart, by=by).legend == ()
    assert replace(chart, by=replace(by, column="size")).legend == by.legend
    assert replace(chart, by=replace(by, column="size", told=False)).legend == ()


def _chart_of_bars(measures: int) -> Chart:
    names = {f"m{i}": f"measure {i}" for i in range(measures)}
    rows = [{"key": "a", **dict.fromkeys(names, 0.5)}]
    return bars(rows, key="key", values=["a"], title=None, measures=names, axis_title="share")


@pytest.mark.parametrize(("most", "words"), [(9_999.0, "','"), (10_000.0, "'~s'"), (0.5, "','")])
def test_only_large_amounts_are_written_in_thousands(most: float, words: str) -> None:
    rows = [{"label": "a", "x": most}, {"label": "b", "x": 0.0}]
    axis = amounts(rows, value="x", axis_title="amount", tips=[]).to_dict()["encoding"]["x"]["axis"]
    assert axis["labelExpr"] == f"format(datum.value, {words})"


def test_each_dataset_is_in_the_page_once(drawn_charts: dict[str, list[Chart]]) -> None:
    payload = chart_payload(drawn_charts)
    used = {name for c in payload["charts"] for name in re.findall(r'"name": "(data-\w+)"', json.dumps(c["spec"]))}
    assert used == set(payload["datasets"])
    assert all("datasets" not in c["spec"] and "config" not in c["spec"] for c in payload["charts"])
    assert sum(len(d) for d in payload["datasets"].values()) < 5000


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _shade() -> float:
    """Return how much ink is in the shade at the edge of a table that goes on behind it."""
    css = (resources.folder("reports") / "page.css").read_text(encoding="utf-8")
    (told,) = re.findall(r"--shade: color-mix\(in srgb, var\(--ink\) (\d+)%, transparent\)", css)
    return int(told) / 100


def _mixed(one: str, other: str, share: float) -> str:
    pairs = [(int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_distinguished_from_the_paper(mode: str) -> None:
    theme = json.loads((resources.folder("reports") / "theme.json").read_text(encoding="utf-8"))
    assert set(theme["light"]) == set(theme["dark"])
    colours = theme[mode]
    for ground in ("paper", "surface"):
        for name in ("ink", "muted", "accent", "warn"):
            assert _contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    shade = _mixed(colours["ink"], colours["paper"], _shade())
    for name in ("ink", "muted"):
        assert _contrast(colours[name], shade) >= 4.5, name
    for name, value in colours.items():
        if name.startswith(("series-", "class-", "status-")):
            assert _contrast(value, colours["paper"]) >= 3, name


def test_datasets_of_a_specification_are_lists() -> None:
    _, spec, _ = _one("overview/job_size", [{"gpu_class": "1", "jobs": 1, "jobs_share": 1.0, "gpu_hours_share": 1.0}])
    assert [type(rows) for rows in spec["datasets"].values()] == [list]
