"""The page in a browser, narrowed to a part: its numbers are those that the tables of the Trace give."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pytest

from tracekit.characterize import answer_query
from tracekit.text import count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from tracekit.analysis import Analysis
    from tracekit.trace import Trace

_READY = "html[data-charts^=READY][data-parts=READY]"
_NAMES = ("slurm", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("helios", "philly")))


class _Seen(NamedTuple):
    page: Page
    trace: Trace


@pytest.fixture(scope="module", params=_NAMES)
def seen(
    browser: Browser,
    sample_trace: Callable[[str], Trace],
    analyzed: Callable[[str], Analysis],
    request: pytest.FixtureRequest,
) -> Iterator[_Seen]:
    trace = sample_trace(request.param)
    place = analyzed(request.param).report
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(place.as_uri())
    page.wait_for_selector(_READY, state="attached")
    yield _Seen(page, trace)
    assert errors == []
    page.close()


@pytest.fixture(autouse=True)
def whole(seen: _Seen) -> Iterator[None]:
    yield
    if seen.page.is_enabled("#all"):
        seen.page.click("#all")
        seen.page.wait_for_selector(_READY, state="attached")


def _card(page: Page, name: str, part: str = "value") -> str:
    return page.inner_text(f".cards [data-number={name}] .{part}")


def _choose(page: Page, name: str, label: str) -> None:
    page.select_option(f"select[data-filter={name}]", label=label)
    page.wait_for_selector(_READY, state="attached")


def _jobs(trace: Trace) -> pl.DataFrame:
    """Return the jobs that the first numbers count, with the GPU time of their attempts."""
    jobs = trace.scan("jobs").collect()
    counts = pl.col("gpu_count") > 0 if (jobs["gpu_count"] > 0).any() else pl.lit(value=True)
    spent = pl.col("run_s") * pl.col("gpu_count")
    used = (
        trace.scan("attempts")
        .select("job_id", gpu_s=spent)
        .collect()
        .drop_nulls()
        .group_by("job_id")
        .agg(pl.sum("gpu_s"))
    )
    gpus, classes = pl.col("gpu_count"), pl.lit(">8")
    for most, name in ((8, "5-8"), (4, "2-4"), (1, "1"), (0.999, "<1")):
        classes = pl.when(gpus <= most).then(pl.lit(name)).otherwise(classes)
    found = jobs.filter(counts).join(used, on="job_id", how="left").with_columns(gpu_class=classes)
    if not trace.has("placements") or not trace.has("nodes"):
        return found
    # A job that accepted several models ran on that of its nodes, where they are alike.
    nodes = trace.scan("nodes").select("node_id", "gpu_model").collect()
    on = trace.scan("placements").filter(pl.col("gpu_count") > 0).select("job_id", "node_id").collect()
    models = on.join(nodes, on="node_id").group_by("job_id").agg(pl.col("gpu_model").unique())
    alike = models.filter(pl.col("gpu_model").list.len() == 1).select("job_id", ran_on=pl.col("gpu_model").list.first())
    open_ = pl.col("gpu_model").is_null() | pl.col("gpu_model").str.contains("|", literal=True)
    model = pl.when(open_).then(pl.coalesce("ran_on", "gpu_model")).otherwise("gpu_model")
    return found.join(alike, on="job_id", how="left").with_columns(gpu_model=model)


def _held_gpu_s(trace: Trace, jobs: pl.DataFrame, since: object, until: object) -> float:
    """Return the GPU time that attempts of these jobs held between two moments."""
    attempts = trace.scan("attempts").collect().join(jobs.select("job_id"), on="job_id", how="semi")
    times = trace.scan("jobs").select(pl.col("submit_time", "start_time", "end_time").max()).collect().row(0)
    last = max(time for time in (*times, attempts["end_time"].max()) if time is not None)
    ends = pl.coalesce("end_time", pl.when(pl.col("status") == "running").then(pl.lit(last)))
    inside = pl.min_horizontal(ends, pl.lit(until)) - pl.max_horizontal("start_time", pl.lit(since))
    seconds = inside.dt.total_microseconds() / 1e6
    found = attempts.filter(pl.col("start_time").is_not_null(), ends > pl.col("start_time"), seconds > 0)
    return float(found.select((seconds * pl.col("gpu_count")).sum()).item())


def _check(seen: _Seen, jobs: pl.DataFrame, ended: pl.DataFrame) -> None:
    """Compare the numbers of jobs with those that the cards show, and the tail with what their lengths allow."""
    waits = jobs["queue_s"].drop_nulls().to_numpy()
    if len(waits):
        # Rounded to six digits a row, and written with three.
        assert _card(seen.page, "mean_wait_s") in {duration(float(waits.mean()) * f) for f in (0.9999, 1, 1.0001)}
        hours = float(waits.sum()) / 3600
        assert _card(seen.page, "waited_h") == f"{count(round(hours, 1 if hours < 10 else 0))} h"
        told = re.search(r"longer than about (.+)$", _card(seen.page, "mean_wait_s", "note"))
        if told is None:
            assert np.quantile(waits, 0.88, method="lower") < 1
        else:
            # A twentieth of a decade either way, or the next wait where few are known.
            number, unit = told[1].split()
            about = float(number.replace(",", "")) * {"s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
            low, high = np.quantile(waits, 0.88, method="lower"), np.quantile(waits, 0.92, method="higher")
            assert low / 1.13 <= about <= high * 1.13
    else:
        assert _card(seen.page, "mean_wait_s") == "unknown"
    spent = float(ended["gpu_s"].sum())
    if spent:
        completed = float(ended.filter(pl.col("status") == "completed")["gpu_s"].sum())
        assert _card(seen.page, "completed_share") == percent(completed / spent)


@pytest.mark.parametrize("column", ["cluster", "vc", "user", "gpu_class", "partition", "gpu_model"])
def test_a_name_narrows_the_numbers(seen: _Seen, column: str) -> None:
    options = seen.page.locator(f"select[data-filter={column}] option").all_inner_texts()[1:]
    jobs = _jobs(seen.trace)
    assert (len(options) > 1) == (jobs[column].drop_nulls().n_unique() > 1)
    before = [_card(seen.page, name) for name in ("mean_wait_s", "held_share")]
    for label in options[:2]:
        _choose(seen.page, column, label)
        mine = jobs.filter(pl.col(column) == label)
        assert mine.height
        _check(seen, mine, mine)
        assert f"{label}." in seen.page.inner_text("#filter-status")
    if options:
        seen.page.click("#all")
    seen.page.wait_for_selector(_READY, state="attached")
    assert [_card(seen.page, name) for name in ("mean_wait_s", "held_share")] == before


def test_a_time_narrows_the_numbers_to_its_spans(seen: _Seen) -> None:
    spans = answer_query(seen.trace, "overview/through_time").frame.filter(pl.col("period") == "span")
    first, last = spans.height // 3, spans.height // 2
    since, until = spans["start_time"][first], spans["end_time"][last]
    seen.page.select_option("#since", index=first)
    seen.page.select_option("#until", index=last)
    seen.page.wait_for_selector(_READY, state="attached")
    jobs = _jobs(seen.trace)
    within = jobs.filter(pl.col("submit_time") >= since, pl.col("submit_time") < until)
    _check(seen, within, jobs.filter(pl.col("end_time") >= since, pl.col("end_time") < until))
    # The time that counts is that of the intervals by which the load is averaged, and which begin within the spans.
    times = answer_query(seen.trace, "queuing/cluster_timeline").frame["time"].unique().sort()
    begins = [times.filter(times >= end)[0] for end in (since, until)]
    held = _held_gpu_s(seen.trace, jobs, *begins)
    owned = answer_query(seen.trace, "overview/parts").frame.filter(
        pl.col("kind") == "owned", pl.col("span").is_between(first + 1, last + 1)
    )["amount"]
    assert _card(seen.page, "held_share") == percent(held / float(owned.sum()))


@pytest.mark.thorough
def test_a_name_and_a_time_narrow_together(seen: _Seen) -> None:
    spans = answer_query(seen.trace, "overview/through_time").frame.filter(pl.col("period") == "span")
    half = spans.height // 2
    _choose(seen.page, "vc", label := seen.page.locator("select[data-filter=vc] option").nth(1).inner_text())
    seen.page.select_option("#since", index=half)
    seen.page.wait_for_selector(_READY, state="attached")
    jobs, since = _jobs(seen.trace).filter(pl.col("vc") == label), spans["start_time"][half]
    until = spans["end_time"][-1]
    ended = jobs.filter(pl.col("end_time") >= since, pl.col("end_time") <= until)
    _check(seen, jobs.filter(pl.col("submit_time") >= since), ended)


@pytest.mark.thorough
def test_the_table_tells_the_same_and_its_names_choose(seen: _Seen) -> None:
    page = seen.page
    page.select_option("#closer-by", "vc")
    rows = page.locator("#closer-table tbody tr:not(.rest)")
    cells = [rows.nth(i).locator("th, td").all_inner_texts() for i in range(rows.count())]
    jobs = _jobs(seen.trace)
    assert {row[0]: row[1] for row in cells} == {
        vc: count(number) for vc, number in jobs.group_by("vc").len().iter_rows() if vc in {row[0] for row in cells}
    }
    name, mean = cells[0][0], cells[0][2]
    rows.nth(0).locator("button").click()
    page.wait_for_selector(_READY, state="attached")
    assert page.locator("select[data-filter=vc] option:checked").inner_text() == name
    assert _card(page, "mean_wait_s") == mean


def test_a_brush_over_the_strip_chooses_a_time_and_a_click_takes_it_back(seen: _Seen) -> None:
    page = seen.page
    box = page.locator(".strip .plot").first.bounding_box()
    assert box is not None
    y, (left, right) = box["y"] + 30, (box["x"] + box["width"] * part for part in (0.4, 0.6))
    page.mouse.move(left, y)
    page.mouse.down()
    page.mouse.move(right, y, steps=4)
    page.mouse.up()
    page.wait_for_selector(_READY, state="attached")
    chosen = [int(page.input_value(f"#{end}")) for end in ("since", "until")]
    assert 0 < chosen[0] < chosen[1] < page.locator("#until option").count()
    shades = [page.locator(".strip .unchosen").nth(i).bounding_box() for i in (0, 1)]
    assert all(shade is not None and shade["width"] > 20 for shade in shades)
    page.mouse.move((left + right) / 2, y)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector(_READY, state="attached")
    assert page.is_disabled("#all")
    assert page.locator(".strip .unchosen:visible").count() == 0


def test_numbers_are_written_as_everywhere(seen: _Seen) -> None:
    """The script's own writing of waits and shares, on the spans of the page: as that of the other numbers."""
    page = seen.page
    for first, last in itertools.pairwise(range(0, page.locator("#since option").count(), 20)):
        page.select_option("#since", index=first)
        page.select_option("#until", index=last - 1)
        page.wait_for_selector(_READY, state="attached")
        for name, pattern in (
            ("mean_wait_s", r"(0 s|\d[\d,.]* (s|min|h|d)|unknown)"),
            ("held_share", r"([<>] )?[\d.]+ %"),
        ):
            assert re.fullmatch(pattern, _card(page, name))
