"""The times between which a page can be narrowed, in words: those of the log, on the page's own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.report.answering import told
from tracekit.characterize import answer_query
from tracekit.report.axes import shown_time, times
from tracekit.report.data import time_info, trace_facts
from tracekit.report.parts import moments, parts_info
from tracekit.report.quality import quality
from tracekit.report.sections.interface import TraceFacts
from tracekit.report.times import moment_words, start_of_day

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.report.structure import Report
    from tracekit.trace import Trace

SHIFTED = TraceFacts(dated=False, timezone="Asia/Shanghai", day_zero="1970-01-17T16:00:00")


def _told(trace: Trace) -> tuple[list[str], TraceFacts]:
    parts = parts_info(answer_query(trace, "overview/parts"), answer_query(trace, "overview/through_time"))
    when = time_info(trace)
    facts = trace_facts(quality(trace), when)
    return moments(cast("Report", {"parts": parts, "time": when}), facts), facts


@pytest.mark.parametrize(
    ("name", "first", "second", "last"),
    [
        # Weeks and half days from the start; the last submission is on day 27.5, and its job ends on day 31.
        ("alibaba-openb", "day 0.00", "day 7.00", "day 149.25"),
        ("alibaba-dlrm", "day 0.01", "day 0.50", "day 31.00"),
        # Dates are shifted, hours are those of Shanghai.
        ("alibaba-pai", "day 0, 01:07", "day 0, 12:00", "day 28, 01:38"),
        # Dates of the header, on clocks of Los Angeles and Shanghai.
        ("philly", "9 Oct 2017 01:46", "10 Oct 2017 00:00", "12 Nov 2017 21:15"),
        pytest.param("helios", "31 Mar 2020 22:00", "1 Apr 2020 00:00", "3 May 2020 07:45", marks=pytest.mark.thorough),
        pytest.param("swf", "1 Mar 2020 01:56", "1 Mar 2020 03:00", "8 Mar 2020 05:14", marks=pytest.mark.thorough),
    ],
)
def test_a_page_is_narrowed_between_the_ends_of_its_log(
    sample_trace: Callable[[str], Trace], name: str, first: str, second: str, last: str
) -> None:
    told, facts = _told(sample_trace(name))
    assert [told[0], told[1], told[-1]] == [first, second, last]
    assert len(set(told)) == len(told)
    when = time_info(sample_trace(name))
    assert told[0] == moment_words(str(when["first"]), facts)
    assert told[-1] == moment_words(str(when["last"]), facts)
    assert not any("1970" in words or "-" in words for words in told)


def test_days_of_shifted_dates_begin_at_midnight(golden: Golden) -> None:
    noon = "1970-01-20T04:00:00"
    assert (shown_time(noon, SHIFTED), start_of_day(noon, SHIFTED)) == (2.5, "day 2")
    assert moment_words("1970-01-20T04:05:59", SHIFTED) == "day 2, 12:05"
    axis = times(["1970-01-18T17:00:00", noon], SHIFTED)
    golden(told(axis.title))
    assert axis.labels["values"][:3] == [0.0, 0.5, 1.0]


def test_a_trace_that_counts_from_its_start_has_no_hours() -> None:
    facts = TraceFacts(dated=False)
    assert not facts.clocked
    assert moment_words("1970-01-03T12:00:00", facts) == "day 2.50"
