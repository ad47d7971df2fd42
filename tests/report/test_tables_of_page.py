"""Tables and charts of the page in a browser: rows sort, can be searched, and leave as CSV that runs nothing."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.report.conftest import FORMULA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tracekit.analysis import Analysis
    from tracekit.report.structure import Report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_seen(browser: Browser, analysis: Analysis) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    page.goto(analysis.report.as_uri())
    page.wait_for_selector("html[data-charts^=READY]", state="attached", timeout=60_000)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    yield page
    assert errors == []
    page.close()


def _column(page: Page, article: str, place: int) -> list[float]:
    cells = page.locator(f"#{article} table").first.locator(f"tbody tr:visible > *:nth-child({place})")
    # A dagger marks few observations.
    return [float(text.split("\n")[0].replace(",", "").rstrip("†")) for text in cells.all_inner_texts()]


@pytest.mark.thorough
def test_a_heading_sorts_numbers_as_numbers_up_and_down(page_seen: Page) -> None:
    page_seen.goto(f"{page_seen.url.partition('#')[0]}#q-overview-job-size")
    heading = page_seen.locator("#q-overview-job-size table").first.locator("thead th", has_text="jobs").first
    place = 1 + heading.evaluate("th => th.cellIndex")
    before = _column(page_seen, "q-overview-job-size", place)
    heading.locator("button").click()
    numbers = _column(page_seen, "q-overview-job-size", place)
    assert numbers == sorted(numbers)
    assert len(numbers) == len(before) > 3
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").press("Enter")
    down = _column(page_seen, "q-overview-job-size", place)
    assert down == sorted(numbers, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"


@pytest.mark.thorough
def test_rows_are_searched_as_one_types(page_seen: Page) -> None:
    page_seen.goto(f"{page_seen.url.partition('#')[0]}#q-queuing-queue-delay")
    article = page_seen.locator("#q-queuing-queue-delay")
    rows = article.locator("table").first.locator("tbody tr:visible")
    every = rows.all_inner_texts()
    article.locator("input[type=search]").first.fill("quoted")
    assert rows.all_inner_texts() == [text for text in every if "quoted" in text]
    assert 0 < rows.count() < len(every)
    article.locator("input[type=search]").first.fill("")
    assert rows.all_inner_texts() == every


@pytest.mark.thorough
def test_a_chart_leaves_as_csv_in_which_no_name_is_a_formula(page_seen: Page, report: Report) -> None:
    page_seen.goto(f"{page_seen.url.partition('#')[0]}#q-users-queueing")
    with page_seen.expect_download() as waiting:
        page_seen.locator("#q-users-queueing .offers button", has_text="CSV").first.click()
    assert waiting.value.suggested_filename == "users-queueing-chart-0.csv"
    text = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) > 3
    cells = [cell for row in rows for cell in row.values()]
    assert any(cell == f"'{FORMULA}" for cell in cells)
    assert not any(cell.lstrip().startswith(("=", "+", "@")) for cell in cells)
    known = {
        row["user"]
        for s in report["sections"]
        for a in s["answers"]
        if a["name"] == "users/queueing"
        for row in a["rows"]
    }
    assert {row["user"].removeprefix("'") for row in rows} <= known


@pytest.mark.thorough
def test_a_chart_leads_to_its_query(page_seen: Page) -> None:
    page_seen.goto(f"{page_seen.url.partition('#')[0]}#q-queuing-queue-delay")
    page_seen.evaluate("document.querySelectorAll('details').forEach(d => { d.open = false; })")
    page_seen.locator("#q-queuing-queue-delay .offers button", has_text="SQL").first.click()
    shown = page_seen.locator("#q-queuing-queue-delay pre[aria-label^=SQL]")
    assert shown.is_visible()
    assert "SELECT" in shown.inner_text()
    assert shown.evaluate("pre => pre === document.activeElement")
    page_seen.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.mark.thorough
def test_every_chart_offers_its_numbers(page_seen: Page) -> None:
    charts = page_seen.locator("figure .plot").count()
    assert page_seen.locator("figure .offers button:text-is('CSV')").count() == charts > 20


@pytest.mark.thorough
def test_every_chart_leads_to_what_computes_it(page_seen: Page) -> None:
    figures = page_seen.locator("figure:has(.plot)")
    kinds = [set(figures.nth(k).locator(".offers button").all_text_contents()) for k in range(figures.count())]
    missing = [
        figures.nth(k).locator(".plot").first.get_attribute("id")
        for k, kind in enumerate(kinds)
        if len(kind & {"SQL", "Command"}) != 1
    ]
    assert missing == []
    assert {"CSV", "Command"} in kinds
    button = page_seen.locator("figure .offers button:text-is('Command')").first
    place = button.evaluate("button => button.closest('article').id")
    page_seen.goto(f"{page_seen.url.partition('#')[0]}#{place}")
    button.click()
    label, lines = page_seen.evaluate("[document.activeElement.ariaLabel, document.activeElement.innerText]")
    assert label.startswith("Commands of ")
    assert all(line.startswith("tracekit ") for line in lines.splitlines())
