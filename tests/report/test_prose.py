"""Every number that the page's sentences tell is in report.json."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from tracekit.report.table_view import ON_PAPER
from tracekit.text import clock, count, duration, percent, size, visible

if TYPE_CHECKING:
    from tracekit.report.structure import Report

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
PROSE = {"p", "li", "dd", "dt", "figcaption", "h1", "h2", "h3", "h4", "summary", "q", "strong", "bdi", "span", "a"}
PROSE |= {"em", "small", "label", "option", "button", "abbr"}
OUTSIDE = {"table", "script", "style", "code", "pre", "head"}
VOID = {"meta", "br", "input", "link", "img"}
OWN = {"95", "30", "10"}
"""Numbers of the page's own words: 95 % intervals, 30 observations, one in 10."""


class _Prose(HTMLParser):
    """Collects the words outside tables and code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words = ""
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass
        self.words += " "

    def handle_data(self, data: str) -> None:
        if not OUTSIDE & set(self._open):
            self.words += data


def _plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{WORD JOINER}", "").replace("\N{RIGHTWARDS ARROW}", "->")


def _told(value: Any) -> set[str]:
    """Return the numbers that a JSON value holds, as the page may write them."""
    if isinstance(value, str):
        return set(NUMBER.findall(value)) | set(NUMBER.findall(visible(value)))
    if isinstance(value, dict):
        return set().union(*(_told(key) | _told(v) for key, v in value.items()), set(NUMBER.findall(count(len(value)))))
    if isinstance(value, list):
        # A page counts what it lists.
        return set().union(*map(_told, value), set(NUMBER.findall(count(len(value)))))
    if isinstance(value, bool) or value is None:
        return set()
    forms = {count(value), str(value), f"{value:,}"}
    if isinstance(value, float):
        forms |= {percent(value), f"{100 * value:+.1f}"}
    forms |= {duration(value), clock(value), size(value)} if value >= 0 else {count(-value), f"{-100 * value:.1f}"}
    return {number for form in forms for number in NUMBER.findall(form)}


def _derived(report: Report) -> set[str]:
    """Return what the page counts: rows that it leaves out, checks with and without a finding."""
    answers = [a for s in report["sections"] for a in s["answers"]]
    shown = [(a["row_count"] - min(a["row_count"], limit)) for a in answers for limit in (50, 20, ON_PAPER, 5)]
    bad = sum(c["count"] > 0 for c in report["quality"]["checks"])
    published = [len([p for p in a["published"] if p["measured"] is None]) for a in answers]
    beside = [len(a["published"]) - n for a, n in zip(answers, published, strict=True)]
    of = [shown, published, beside, [bad, len(report["quality"]["checks"]) - bad]]
    return {count(number) for numbers in of for number in numbers}


def test_every_number_of_the_prose_is_in_report_json(report: Report, page: str) -> None:
    words = _plain(_Prose(page).words)
    found = set(NUMBER.findall(words))
    assert len(found) > 100
    assert found - _told(dict(report)) - _derived(report) - OWN == set()


def test_a_number_that_is_not_in_report_json_is_found(report: Report, page: str) -> None:
    finding = next(a["finding"] for s in report["sections"] for a in s["answers"] if a["finding"])
    sentence = finding.split(" ")[0]
    wrong = page.replace(f"<bdi>{sentence}", f"<bdi>987,654 {sentence}", 1)
    assert wrong != page
    found = set(NUMBER.findall(_plain(_Prose(wrong).words)))
    assert found - _told(dict(report)) - _derived(report) - OWN == {"987,654"}


def test_the_first_screen_shows_what_report_json_says(report: Report, page: str) -> None:
    words = _plain(_Prose(page).words)
    opening = report["opening"]
    told = [opening["about"], opening["verdict"], *(h["text"] for h in report["headline"])]
    told += [text for c in opening["changes"] for text in (c["title"], c["finding"], c["effect"] or "")]
    assert [text for text in told if text not in words] == []
