"""The page in a real browser, without a network."""

from __future__ import annotations

import functools
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import pytest

import tracekit
from tracekit.analysis import analyze_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route, ViewportSize

    from tracekit.analysis import Analysis
    from tracekit.trace import Trace

pytestmark = pytest.mark.browser


class _Visit:
    """A page opened with no network, what it asked for and what it complained about."""

    def __init__(
        self, browser: Browser, path: Path, *, width: int = 1400, dark: bool = False, foreign: bool = False
    ) -> None:
        self.size: ViewportSize = {"width": width, "height": 900}
        self.scheme: Literal["dark", "light"] = "dark" if dark else "light"
        # A foreign script, such as that of axe-core, runs only where the page's policy is not applied.
        self.context = browser.new_context(
            viewport=self.size,
            offline=True,
            color_scheme=self.scheme,
            bypass_csp=foreign,
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.route("**/*", self._route)
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.goto(path.as_uri())

    def _route(self, route: Route) -> None:
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()

    def charts(self) -> str:
        self.page.wait_for_selector(
            "html[data-charts^=READY], html[data-charts^=FAILED]", state="attached", timeout=60_000
        )
        return str(self.page.evaluate("document.documentElement.dataset.charts"))

    def restore(self) -> None:
        """Show the first part on the screen again, from its top."""
        self.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        self.page.emulate_media(media="screen", color_scheme=self.scheme)
        self.page.set_viewport_size(self.size)
        self.page.evaluate("location.hash = 'part-overview'")
        self.page.wait_for_selector("#part-overview:not(.away)")
        self.page.evaluate("window.scrollTo(0, 0)")


@pytest.fixture
def visit(browser: Browser, analysis: Analysis, request: pytest.FixtureRequest) -> Iterator[_Visit]:
    opened = _Visit(browser, analysis.report, **getattr(request, "param", {}))
    yield opened
    opened.context.close()


@pytest.fixture(scope="module")
def visits(browser: Browser, analysis: Analysis) -> Iterator[Callable[..., _Visit]]:
    """Return a function that opens the page with some options once, and waits for its charts."""
    opened: list[_Visit] = []

    @functools.cache
    def visit(**options: Any) -> _Visit:
        opened.append(_Visit(browser, analysis.report, **options))
        opened[-1].charts()
        return opened[-1]

    yield visit
    for one in opened:
        one.context.close()


@pytest.fixture
def shared(visits: Callable[..., _Visit], request: pytest.FixtureRequest) -> Iterator[_Visit]:
    """Return a page that tests share, because its charts take seconds. Tests may turn it over and print it only."""
    opened = visits(**getattr(request, "param", {}))
    yield opened
    opened.restore()


@pytest.mark.parametrize(
    "shared",
    [
        pytest.param({}, id="wide"),
        pytest.param({"width": 375}, id="phone", marks=pytest.mark.thorough),
        pytest.param({"dark": True}, id="dark", marks=pytest.mark.thorough),
    ],
    indirect=True,
)
def test_every_chart_draws_and_nothing_is_asked_of_a_network(shared: _Visit) -> None:
    state = shared.charts()
    marks = shared.page.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('svg .role-mark path').length)"
    )
    assert state == f"READY {len(marks)}"
    assert len(marks) > 20
    assert min(marks) > 0
    assert shared.requests == []
    assert shared.complaints == []


@pytest.mark.thorough
@pytest.mark.parametrize("visit", [{"width": 375}], indirect=True)
def test_a_phone_needs_no_sideways_scrolling_even_with_all_unfolded(visit: _Visit) -> None:
    visit.charts()
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375


_BEYOND = """() => [...document.querySelectorAll('.plot svg')].flatMap(svg => {
  const edge = svg.getBoundingClientRect();
  const seen = [...svg.querySelectorAll('text')].filter(t => t.textContent && getComputedStyle(t).opacity !== '0');
  return seen.filter(t => {
    const own = t.getBoundingClientRect();
    return own.width && (own.left < edge.left - 1 || own.right > edge.right + 1);
  }).map(t => [svg.closest('.plot').id, t.textContent]);
})"""
"""Words of charts that reach out of their picture."""


@pytest.mark.thorough
@pytest.mark.parametrize("visit", [{"width": 390}], indirect=True)
def test_no_words_of_a_chart_leave_it_on_a_phone(visit: _Visit) -> None:
    visit.charts()
    visit.page.evaluate("document.querySelectorAll('.tab').forEach(tab => tab.classList.remove('away'))")
    assert (
        visit.page.evaluate("[...document.querySelectorAll('.plot svg')].filter(s => s.clientWidth > 300).length") > 20
    )
    assert visit.page.evaluate(_BEYOND) == []


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [{"width": 375}], indirect=True)
def test_a_table_that_goes_on_behind_the_edge_has_a_shade_there(shared: _Visit) -> None:
    """The cover of the shade moves along with the table, the shade itself does not."""
    style = "getComputedStyle(document.querySelector('.scroll'))"
    assert shared.page.evaluate(f"{style}.backgroundAttachment") == "local, local, scroll, scroll"
    shared.page.emulate_media(media="print")
    assert shared.page.evaluate(f"{style}.backgroundImage") == "none"


@pytest.mark.thorough
def test_colours_follow_the_scheme_of_the_reader(shared: _Visit) -> None:
    colour = "getComputedStyle(document.querySelector('.plot svg .mark-rect path')).fill"
    light = shared.page.evaluate(colour)
    shared.page.emulate_media(color_scheme="dark")
    dark = shared.page.evaluate(colour)
    shared.page.emulate_media(color_scheme="dark", media="print")
    assert (light, dark) == ("rgb(0, 114, 178)", "rgb(86, 180, 233)")
    assert shared.page.evaluate(colour) == light


@pytest.mark.thorough
def test_paper_has_no_navigation_and_shows_the_tables(shared: _Visit) -> None:
    table = shared.page.locator("#q-overview-status table").first
    assert not table.is_visible()
    shared.page.emulate_media(media="print")
    assert not shared.page.locator("nav").is_visible()
    assert table.evaluate("t => t.getBoundingClientRect().height") > 0
    widest = "Math.max(...[...document.querySelectorAll('.plot svg')].map(s => s.getBoundingClientRect().right))"
    shared.page.set_viewport_size({"width": 680, "height": 900})
    assert shared.page.evaluate(widest) <= 680


@pytest.mark.thorough
def test_paper_shows_what_to_change_and_no_chart_beyond_its_edge(shared: _Visit) -> None:
    shared.page.emulate_media(media="print")
    shared.page.set_viewport_size({"width": 680, "height": 900})
    assert shared.page.locator(".changes").is_visible()
    assert not shared.page.locator(".filters").is_visible()
    assert not shared.page.locator("#theme").is_visible()
    inside = "[...document.querySelectorAll('.plot')].every(p => p.scrollWidth <= p.clientWidth + 1)"
    assert shared.page.evaluate(inside)


def _printing(visit: _Visit, event: str) -> None:
    visit.page.evaluate(f"window.dispatchEvent(new Event('{event}'))")
    visit.page.emulate_media(media="print" if event == "beforeprint" else "screen")


@pytest.mark.thorough
def test_paper_shows_no_more_than_a_few_rows_of_each_table_and_tells_of_the_rest(shared: _Visit) -> None:
    _printing(shared, "beforeprint")
    rows = shared.page.evaluate(
        "[...document.querySelectorAll('article table[data-printed]')].filter(t => t.offsetParent).map(t =>"
        " [t.dataset.printed, [...t.querySelectorAll('tbody tr')].filter(r => r.offsetParent).length,"
        " t.closest('.fold').innerText.includes(' more rows in tables/')])"
    )
    assert rows
    assert [r for r in rows if r != [str(r[1]), r[1], True] or r[1] > 10] == []
    curve = shared.page.locator("#q-queuing-cluster-timeline")
    assert not curve.locator("table").first.is_visible()
    assert re.search(r"The \d+ rows are in tables/", curve.inner_text())


@pytest.mark.thorough
def test_charts_are_drawn_for_the_sheet_and_again_for_the_screen(shared: _Visit) -> None:
    size = "[...document.querySelectorAll('.plot svg')].map(s => [s.getAttribute('width'), s.getAttribute('height')])"
    before = shared.page.evaluate(size)
    _printing(shared, "beforeprint")
    printed = shared.page.evaluate(size)
    assert {width for width, _ in printed} <= {"760", "400", "300"}
    assert {width for width, _ in shared.page.evaluate(size.replace(".plot", ".strip .plot"))} == {"760"}
    _printing(shared, "afterprint")
    assert shared.page.evaluate(size) == before != printed


@pytest.mark.thorough
@pytest.mark.parametrize(
    "shared",
    [pytest.param({"width": 360}, id="phone"), pytest.param({}, id="wide", marks=pytest.mark.thorough)],
    indirect=True,
)
def test_labels_of_an_axis_stand_at_equal_distances_and_apart(shared: _Visit) -> None:
    axes = shared.page.evaluate(
        "['q-overview-arrivals-by-hour', 'q-queuing-cluster-timeline'].map(id => [...document.querySelectorAll("
        "`#${id} .role-axis-label`)[0].querySelectorAll('text')].filter(t => t.getAttribute('opacity') !== '0')"
        ".map(t => [t.textContent, t.getBoundingClientRect().left, t.getBoundingClientRect().right]))"
    )
    hours, dates = ([label for label, _, _ in axis] for axis in axes)
    assert hours == [f"{h}:00" for h in range(0, 24, 6 if shared.page.evaluate("innerWidth") < 400 else 3)]
    assert len(dates) > 2
    assert all(second[1] - first[2] > 5 for axis in axes for first, second in pairwise(axis))


_DARK_PHONE = {"foreign": True, "dark": True, "width": 390}


@pytest.mark.parametrize(
    ("visit", "parts"),
    [
        pytest.param({"foreign": True}, None, id="light", marks=pytest.mark.thorough),
        pytest.param(_DARK_PHONE, 2, id="dark phone", marks=pytest.mark.thorough),
        pytest.param(_DARK_PHONE, None, id="dark phone, every part", marks=pytest.mark.slow),
    ],
    indirect=["visit"],
)
def test_nothing_keeps_people_from_reading_the_page(visit: _Visit, parts: int | None) -> None:
    """No violation that axe-core finds, in the first parts of the page or in every part, with all unfolded."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    visit.charts()
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    seen = []
    for part in _every_part(visit)[:parts]:
        _turn_to(visit, part)
        # What is not seen is no finding either, and is left out to save time.
        found = axe.Axe().run(visit.page, {"exclude": [[".tab.away"]]}).response
        assert len(found["passes"]) > 20
        seen += [(part, v["id"], v["nodes"][0]["target"]) for v in found["violations"]]
    assert seen == []


def _every_part(visit: _Visit) -> list[str]:
    return [tab.get_attribute("id") or "" for tab in visit.page.query_selector_all(".tab")]


def _turn_to(visit: _Visit, part: str) -> None:
    visit.page.evaluate("id => { location.hash = id; }", part)
    visit.page.wait_for_selector(f"#{part}:not(.away)")


@pytest.mark.thorough
def test_the_key_of_marks_stands_above_the_charts_that_draw_them(shared: _Visit) -> None:
    key = shared.page.locator("main .mark-key")
    shown = {}
    for part in _every_part(shared):
        _turn_to(shared, part)
        shown[part] = key.is_visible()
    # Of the questions of this trace, waits alone are drawn as distributions.
    assert [part for part, there in shown.items() if there] == ["part-queueing"]
    assert len(shown) > 7
    shared.page.emulate_media(media="print")
    assert key.is_visible()


@pytest.mark.thorough
def test_a_button_turns_the_colours(visit: _Visit) -> None:
    visit.charts()
    paper = "getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(paper)
    visit.page.click("#theme")
    dark = visit.page.evaluate(paper)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(21, 24, 28)")
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate(paper) == light
    visit.page.emulate_media(media="screen")
    visit.page.click("#theme")
    assert visit.page.evaluate(paper) == light


def _rows(visit: _Visit, article: str) -> list[str]:
    """Return the first cell of each row that is shown of an article's first table."""
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    rows = visit.page.locator(f"#{article} table").first.locator("tbody tr:visible td:first-child")
    return rows.all_inner_texts()


@pytest.mark.thorough
def test_a_filter_narrows_tables_and_charts_to_a_virtual_cluster(visit: _Visit) -> None:
    visit.charts()
    visit.page.click("text=Queueing")
    whole = _rows(visit, "q-queuing-queue-delay")
    marks = "document.querySelectorAll('#q-queuing-queue-delay .plot svg .role-mark path').length"
    drawn = visit.page.evaluate(marks)
    choice = visit.page.locator("select[data-filter=vc]")
    name = choice.locator("option").nth(1).inner_text()
    choice.select_option(index=1)
    visit.charts()
    kept = _rows(visit, "q-queuing-queue-delay")
    assert len(set(whole)) > 1
    assert set(kept) == {name}
    assert len(kept) == whole.count(name)
    assert 0 < visit.page.evaluate(marks) < drawn
    assert f"only virtual cluster {name}." in visit.page.locator("#q-queuing-queue-delay .only").inner_text()
    said = visit.page.locator("#q-overview-status .only").text_content() or ""
    assert said.startswith("This answer covers the whole log")
    assert visit.page.locator("#filter-status").inner_text() == f"Only virtual cluster {name}."
    choice.select_option(index=0)
    visit.charts()
    assert (_rows(visit, "q-queuing-queue-delay"), visit.page.evaluate(marks)) == (whole, drawn)
    assert visit.page.locator(".only").count() == 0
    assert (visit.requests, visit.complaints) == ([], [])


def _parts(visit: _Visit) -> list[str]:
    """Return the parts of the report that are seen."""
    return [e.get_attribute("id") or "" for e in visit.page.query_selector_all(".tab") if e.is_visible()]


@pytest.mark.thorough
def test_one_part_is_seen_and_the_address_leads_to_it(shared: _Visit) -> None:
    assert _parts(shared) == ["part-overview"]
    shared.page.click("text=Failures and goodput")
    assert _parts(shared) == ["part-failing"]
    assert shared.page.url.endswith("#part-failing")
    assert shared.page.evaluate("scrollY") == 0
    assert shared.page.locator(".tabs a[aria-current]").all_inner_texts() == ["Failures and goodput"]
    shared.page.go_back()
    assert _parts(shared) == ["part-overview"]
    shared.page.goto(shared.page.url.partition("#")[0] + "#q-queuing-queue-delay")
    assert _parts(shared) == ["part-queueing"]
    place = shared.page.locator("#q-queuing-queue-delay h3").bounding_box()
    assert place is not None
    assert 0 < place["y"] < 300


@pytest.mark.thorough
def test_paper_has_all_parts_or_the_one_that_is_seen(visit: _Visit) -> None:
    visit.charts()
    visit.page.evaluate("window.print = () => {}")
    visit.page.click("#print-part")
    visit.page.emulate_media(media="print")
    assert _parts(visit) == ["part-overview"]
    visit.page.emulate_media(media="screen")
    visit.page.click("#print-all")
    visit.page.emulate_media(media="print")
    assert len(_parts(visit)) == visit.page.locator(".tab").count() > 7


def test_the_first_screen_has_the_strip_the_numbers_and_what_to_change(shared: _Visit) -> None:
    seen = "[...document.querySelectorAll('.strip .plot svg, .cards > div, .changes h3')]"
    bottoms = shared.page.evaluate(f"{seen}.map(e => e.getBoundingClientRect().bottom)")
    assert len(bottoms) >= 1 + 5 + 1
    assert max(bottoms) < 900
    assert shared.page.locator(".cards .sparkline path").count() == 5


def test_the_keyboard_reaches_the_report_first(visit: _Visit) -> None:
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the report"


FOCUSED = """() => {
    const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (e === document.body) return null;
    const framed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    const there = box.width * box.height > 0 && e.checkVisibility({ visibilityProperty: true });
    e.dataset.reached = "yes";
    return framed && there ? "seen" : e.outerHTML;
}"""
LEFT = """part => [...document.querySelectorAll(':is(a[href], button, select, input, summary, [tabindex="0"])')]
    .filter(e => e.closest("#" + part))
    .filter(e => !e.dataset.reached && !e.disabled && e.checkVisibility({ visibilityProperty: true }))
    .map(e => e.outerHTML.slice(0, 200))"""


@pytest.mark.thorough
def test_the_keyboard_reaches_everything_and_shows_where_it_is(visit: _Visit) -> None:
    visit.charts()
    visit.page.wait_for_selector("html[data-parts=READY]", state="attached")
    keys = visit.page.keyboard
    for part in _every_part(visit):
        visit.page.focus(f".tabs a[data-tab={part}]")
        keys.press("Enter")
        visit.page.wait_for_selector(f"#{part}:not(.away)")
        assert visit.page.evaluate("document.activeElement.id") == part
        # The table that holds what a chart is drawn from is unfolded by keys too.
        fold = visit.page.locator(f"#{part} summary").first
        if fold.count():
            fold.focus()
            keys.press("Enter")
        visit.page.focus(".skip")
        seen = []
        for _ in range(600):
            keys.press("Tab")
            focused = visit.page.evaluate(FOCUSED)
            if focused is None:
                break
            seen.append(focused)
        assert set(seen) == {"seen"}
        assert visit.page.evaluate(LEFT, part) == []


@pytest.mark.thorough
def test_keys_move_a_time_over_the_strip_and_take_it_back(visit: _Visit) -> None:
    visit.charts()
    visit.page.wait_for_selector("html[data-parts=READY]", state="attached")
    page, keys = visit.page, visit.page.keyboard
    moments = page.locator("#since option").all_inner_texts()
    last = page.locator("#until option").last.inner_text()
    handle = page.get_by_role("slider")
    whole = page.locator(".cards").inner_text()

    def pressed(*several: str) -> str:
        handle.focus()
        for key in several:
            keys.press(key)
        said = handle.get_attribute("aria-valuetext") or ""
        page.wait_for_timeout(500)
        visit.charts()
        assert page.evaluate("document.activeElement.className") == "handle screen"
        assert handle.get_attribute("aria-valuetext") == said
        return said

    assert handle.get_attribute("aria-valuetext") == f"all, {moments[0]} to {last}"
    assert pressed("ArrowRight") == f"{moments[0]} to {moments[1]}"
    assert pressed("ArrowRight", "ArrowRight", "Shift+ArrowRight") == f"{moments[2]} to {moments[4]}"
    assert page.inner_text("#filter-status") == f"Only {moments[2]} to {moments[4]}."
    assert [page.input_value(f"#{end}") for end in ("since", "until")] == ["2", "4"]
    assert page.locator(".cards").inner_text() != whole
    assert pressed("ArrowLeft", "Shift+ArrowLeft") == f"{moments[1]} to {moments[2]}"
    assert pressed("End") == f"{moments[-1]} to {last}"
    assert pressed("Escape") == f"all, {moments[0]} to {last}"
    assert page.locator(".cards").inner_text() == whole
    assert (page.is_disabled("#all"), visit.complaints) == (True, [])


@pytest.mark.thorough
def test_tables_and_charts_are_used_by_keys(visit: _Visit) -> None:
    visit.charts()
    visit.page.wait_for_selector("html[data-parts=READY]", state="attached")
    page, keys = visit.page, visit.page.keyboard
    name = page.locator("#closer-table tbody button").first
    said = name.inner_text()
    name.focus()
    keys.press("Enter")
    visit.charts()
    # The table is written anew, and the keyboard stays where it was.
    assert page.evaluate("[document.activeElement.textContent, document.activeElement.ariaPressed]") == [said, "true"]
    page.locator("#closer-table thead button").nth(1).focus()
    keys.press("Enter")
    assert page.locator("#closer-table th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.locator(".strip .offers button").first.focus()
    with page.expect_download() as saved:
        keys.press("Enter")
    assert saved.value.suggested_filename.endswith(".csv")
    page.locator(".strip .offers button").nth(1).focus()
    keys.press("Enter")
    page.wait_for_selector("#part-queueing:not(.away)")
    sql = page.locator("#q-queuing-queue-delay .offers button").last
    sql.focus()
    keys.press("Enter")
    assert (page.evaluate("document.activeElement.ariaLabel") or "").startswith("SQL of queuing/queue_delay")


def test_no_name_from_the_log_ran(shared: _Visit) -> None:
    assert shared.page.evaluate("document.querySelectorAll('img, [onerror]').length") == 0
    assert shared.page.evaluate("document.scripts.length") == 5


@pytest.mark.thorough
def test_a_table_of_parts_has_no_column_of_which_nothing_is_known(
    browser: Browser, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    """The log of SWF's sample tells waits, and neither GPUs nor what became of their time."""
    place = tmp_path / "page.html"
    place.write_text(tracekit.report(sample_trace("swf")).html(), encoding="utf-8")
    opened = _Visit(browser, place)
    opened.charts()
    opened.page.wait_for_selector("html[data-parts=READY]", state="attached")
    heads = opened.page.locator("#closer-table thead th").all_inner_texts()
    assert heads == ["queue", "jobs", "mean wait", "total wait"]
    opened.context.close()


@pytest.mark.thorough
def test_the_page_of_several_reports_leads_to_each(browser: Browser, hostile_trace: Trace, tmp_path: Path) -> None:
    index = analyze_many([hostile_trace.path, hostile_trace.path], tmp_path / "out", fit=False, replay_jobs=0)
    opened = _Visit(browser, index, width=375)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 375
    links = opened.page.locator("main a")
    assert links.count() == 2
    links.nth(1).click()
    opened.page.wait_for_url("**/report.html")
    assert re.fullmatch(r"READY [1-9]\d+", opened.charts())
    assert (opened.requests, opened.complaints) == ([], [])
    opened.context.close()
