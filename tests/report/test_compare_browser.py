"""The comparison page in a real browser, without a network."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tracekit.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Route

    from tracekit.trace import Trace

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def samples(sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page over the philly, helios and alibaba-pai sample traces."""
    traces = [sample_trace(name) for name in ("philly", "helios", "alibaba-pai")]
    return compare(traces, tmp_path_factory.mktemp("samples") / "out").page


class _Visit:
    """A page opened with no network, what it asked for and what it complained about."""

    def __init__(self, browser: Browser, path: Path, width: int) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.route("**/*", self._route)
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.goto(path.as_uri())
        # By a selector: the page's policy forbids the eval with which a function would be asked again.
        self.page.wait_for_selector("html[data-charts]", state="attached", timeout=60_000)
        self.charts = str(self.page.evaluate("document.documentElement.dataset.charts"))

    def _route(self, route: Route) -> None:
        if route.request.url.startswith("file://"):
            route.continue_()
        else:
            self.requests.append(route.request.url)
            route.abort()


@pytest.fixture(scope="module")
def visits(browser: Browser, samples: Path) -> Iterator[Callable[[int], _Visit]]:
    """Return a function that opens the samples' page once for each width [px], because its charts take seconds."""
    opened: list[_Visit] = []

    @functools.cache
    def visit(width: int) -> _Visit:
        opened.append(_Visit(browser, samples, width))
        return opened[-1]

    yield visit
    for one in opened:
        one.context.close()


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1400, 375])
def test_every_chart_draws_and_nothing_is_asked_of_a_network(visits: Callable[[int], _Visit], width: int) -> None:
    visit = visits(width)
    marks = visit.page.evaluate(
        "[...document.querySelectorAll('.plot')].map("
        "p => p.querySelectorAll('svg .role-mark path, svg .role-mark line').length)"
    )
    assert len(marks) >= 8
    assert visit.charts == f"READY {len(marks)}"
    assert min(marks) > 0
    assert (visit.requests, visit.complaints) == ([], [])


@pytest.mark.thorough
def test_a_phone_needs_no_sideways_scrolling_even_with_all_unfolded(visits: Callable[[int], _Visit]) -> None:
    visit = visits(375)
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375


@pytest.mark.thorough
def test_paper_shows_the_tables_and_no_navigation(visits: Callable[[int], _Visit]) -> None:
    visit = visits(1400)
    table = visit.page.locator("#q-overview-status table").first
    assert not table.is_visible()
    visit.page.emulate_media(media="print")
    assert not visit.page.locator("nav").is_visible()
    assert table.evaluate("t => t.getBoundingClientRect().height") > 0
    visit.page.emulate_media(media="screen")


@pytest.mark.thorough
def test_hostile_names_do_not_run(browser: Browser, hostile_trace: Trace, tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)>"
    done = compare([(bad, hostile_trace.path), ("\u202eb", hostile_trace.path)], tmp_path / "out")
    visit = _Visit(browser, done.page, 375)
    assert visit.page.evaluate("document.querySelectorAll('img, [onerror]').length") == 0
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert visit.charts.startswith("READY ")
    assert (visit.requests, visit.complaints) == ([], [])
    visit.context.close()
