"""Policies side by side: paired differences, and intervals from resampled days."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tracekit.errors import UsageError
from tracekit.replay.results import comparison
from tracekit.replay.results.comparison import ReplayResult, compare_policies, comparison_rows, day_intervals
from tracekit.replay.results.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.jobs import Jobs

DAY = 86_400


def compared(name: str, jobs: Jobs, spans: Sequence[tuple[float, float] | None]) -> ReplayResult:
    outcome = make_outcome(jobs, spans, gpus=1000)
    facts: dict[str, Any] = {"policy": name, "parameters": {}, "placement": "consolidate", "assumptions": {}}
    return ReplayResult(name, jobs, outcome, summarize(jobs, make_cluster((8,)), outcome, **facts))


def test_differences_are_paired_over_the_jobs_that_both_completed() -> None:
    jobs = make_jobs([(0, 1, 100), (10, 1, 100), (20, 1, 100), (30, 1, 100)])
    fifo = compared("fifo", jobs, [(0, 100), (110, 210), (120, 220), (130, 230)])
    sjf = compared("sjf", jobs, [(0, 100), (10, 110), (140, 240), None])
    found = compare_policies([fifo, sjf])
    first, second = found.rows(named=True)
    assert first["policy"] == "fifo"
    assert first["avg_jct_s"] == pytest.approx((100 + 200 + 200 + 200) / 4)
    assert all(first[c] is None for c in found.columns[found.columns.index("common_jobs") :])
    # Of three common jobs one is 100 s faster and one 20 s slower; fifo needs 500 s for them and lets them wait 200 s.
    assert {k: second[k] for k in found.columns[found.columns.index("common_jobs") :]} == {
        "common_jobs": 3,
        "jct_diff_s": pytest.approx(-80 / 3),
        "jct_diff_share": pytest.approx(-80 / 500),
        "jct_diff_low_s": None,
        "jct_diff_high_s": None,
        "jct_diff_share_low": None,
        "jct_diff_share_high": None,
        "queue_diff_s": pytest.approx(-80 / 3),
        "queue_diff_share": pytest.approx(-80 / 200),
        "queue_diff_low_s": None,
        "queue_diff_high_s": None,
        "queue_diff_share_low": None,
        "queue_diff_share_high": None,
        "better_share": pytest.approx(1 / 3),
        "equal_share": pytest.approx(1 / 3),
        "worse_share": pytest.approx(1 / 3),
        "note": "no interval: the jobs were submitted on fewer than 5 days",
    }
    assert (second["completed"], second["unschedulable"]) == (3, 1)
    only = compare_policies([fifo, sjf], measured=np.array([False, True, False, True]))
    assert only.rows(named=True)[1]["jct_diff_s"] == -100


def test_a_difference_that_is_the_same_each_day_has_no_width() -> None:
    jobs = make_jobs([(day * DAY, 1, 10) for day in range(5)])
    spans = [(day * DAY, day * DAY + 10.0) for day in range(5)]
    late = [(start + 5, end + 5) for start, end in spans]
    row = compare_policies([compared("a", jobs, spans), compared("b", jobs, late)]).rows(named=True)[1]
    assert (row["jct_diff_low_s"], row["jct_diff_s"], row["jct_diff_high_s"]) == (5.0, 5.0, 5.0)
    assert (row["queue_diff_share"], row["jct_diff_share"], row["note"]) == (None, 0.5, None)
    assert (row["jct_diff_share_low"], row["jct_diff_share_high"], row["queue_diff_share_low"]) == (0.5, 0.5, None)


def test_the_interval_of_a_share_resamples_its_divisor_too() -> None:
    # On one of six days waits are long and all of the gain is there: with a fixed divisor the share could pass -100 %.
    jobs = make_jobs([(day * DAY, 1, 10) for day in range(6)])
    long = [(day * DAY + (10_000 if day == 0 else 0), day * DAY + 10 + (10_000 if day == 0 else 0)) for day in range(6)]
    short = [(day * DAY, day * DAY + 10) for day in range(6)]
    row = compare_policies([compared("a", jobs, long), compared("b", jobs, short)]).rows(named=True)[1]
    assert -1 < row["jct_diff_share_low"] < row["jct_diff_share"] < row["jct_diff_share_high"] <= 0


def test_jobs_without_a_common_end_have_no_difference() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)])
    pair = [compared("a", jobs, [(0, 10), None]), compared("b", jobs, [None, (0, 10)])]
    row = compare_policies(pair).rows(named=True)[1]
    assert (row["common_jobs"], row["jct_diff_s"]) == (0, None)
    assert row["note"] == "no job was completed under both policies"


def test_days_are_calendar_days_and_not_hours_since_the_first_job() -> None:
    # From 00:00 on 2020-01-01: four days and a job one second before the fifth.
    seconds = [0, DAY, 2 * DAY, 3 * DAY, 4 * DAY - 1]
    for extra, known in ((0, False), (1, True)):
        jobs = make_jobs([(s + extra * (s == 4 * DAY - 1), 1, 10) for s in seconds])
        spans = [(s, s + 10) for s in (jobs.submit_ms / 1000).tolist()]
        row = compare_policies([compared("a", jobs, spans), compared("b", jobs, spans)]).rows(named=True)[1]
        assert (row["jct_diff_low_s"] is not None) is known


def test_intervals_are_those_of_resampled_days() -> None:
    generator = np.random.default_rng(3)
    days = generator.integers(0, 12, 400)
    values = generator.normal(size=400) + days
    found = day_intervals(days, [values], seed=1)
    assert found is not None
    # The same resampling, job by job, with draws of its own.
    groups = [values[days == d] for d in range(12)]
    draws = np.random.default_rng(99).integers(0, 12, size=(4000, 12))
    means = [np.concatenate([groups[d] for d in row]).mean() for row in draws]
    low, high = np.quantile(means, [0.025, 0.975])
    assert found[0] == pytest.approx((low, high), abs=0.25)
    assert found[0][0] < values.mean() < found[0][1]
    assert day_intervals(days, [values], seed=1) == found
    assert day_intervals(days, [values], seed=2) != found
    turned = day_intervals(days[::-1].copy(), [values[::-1].copy()], seed=1)
    assert turned is not None
    assert turned[0] == pytest.approx(found[0])


@pytest.mark.parametrize(("number", "chunk"), [(1500, 20_000), pytest.param(30_000, None, marks=pytest.mark.thorough)])
def test_resampling_many_days_in_parts_keeps_every_draw(
    monkeypatch: pytest.MonkeyPatch, number: int, chunk: int | None
) -> None:
    if chunk is not None:
        monkeypatch.setattr(comparison, "_CHUNK", chunk)
    days = np.repeat(np.arange(number), 2)
    values = (days % 2).astype(np.float64)
    found = day_intervals(days, [values, -values], seed=0)
    assert found is not None
    (low, high), (negative_low, negative_high) = found
    assert low == pytest.approx(0.5 - 1.96 * 0.5 / np.sqrt(number), abs=0.18 / np.sqrt(number))
    assert high == pytest.approx(0.5 + 1.96 * 0.5 / np.sqrt(number), abs=0.18 / np.sqrt(number))
    assert negative_low == pytest.approx(-high)
    assert negative_high == pytest.approx(-low)


def test_results_that_cannot_be_compared_are_one_line() -> None:
    jobs, others = make_jobs([(0, 1, 10)]), make_jobs([(1, 1, 10)])
    one = compared("fifo", jobs, [(0, 10)])
    with pytest.raises(UsageError, match="a comparison needs at least one policy"):
        compare_policies([])
    with pytest.raises(UsageError, match="two results are called 'fifo'; distinguish them by their parameters"):
        compare_policies([one, one])
    with pytest.raises(UsageError, match="'fifo' and 'sjf' did not replay the same jobs"):
        compare_policies([one, compared("sjf", others, [(1, 11)])])
    same = compared("sjf", make_jobs([(0, 1, 10)]), [(0, 10)])
    assert compare_policies([one, same])["equal_share"].to_list() == [None, 1.0]


def test_the_table_for_a_terminal() -> None:
    jobs = make_jobs([(day * DAY, 1, 3600) for day in range(6)])
    spans = [(day * DAY, day * DAY + 3600.0) for day in range(6)]
    late = [(start + 60 * (start > 0), end + 60 * (start > 0)) for start, end in spans]
    headers, rows = comparison_rows(compare_policies([compared("fifo", jobs, spans), compared("sjf", jobs, late)]))
    assert headers == [
        "policy",
        "completed",
        "mean JCT [h]",
        "median JCT [h]",
        "mean queue [s]",
        "p99 queue [s]",
        "makespan [h]",
        "GPUs busy [%]",
        "preemptions",
        "JCT against fifo",
        "better / worse",
    ]
    assert rows[0] == ["fifo", 6, 1.0, 1.0, 0.0, 0.0, 121.0, 0.0, 0, None, None]
    assert rows[1][4] == 50.0
    assert rows[1][10] == "0 / 83 %"
    text = rows[1][9]
    assert isinstance(text, str)
    assert text.startswith("+1.4 % (+")
    assert all(isinstance(row, list) and len(row) == len(headers) for row in rows)


def test_outages_have_columns_of_their_own_and_only_where_they_were_replayed() -> None:
    jobs = make_jobs([(0, 1, 100)])
    calm, other = compared("fifo", jobs, [(0, 100)]), compared("sjf", jobs, [(0, 100)])
    assert "goodput_share" not in compare_policies([calm, other]).columns
    lost = {"goodput_share": 0.91236, "lost_gpu_hours": 2.5, "restarts": 3, "ettr": None}
    failing = replace(calm, summary={**calm.summary, **lost})
    found = compare_policies([failing, replace(failing, policy="sjf")])
    keys = list(lost)
    assert found.select(keys).rows(named=True) == [lost, lost]
    assert found.columns[found.columns.index("goodput_share") - 1] == "max_finish_time_ratio"
    headers, rows = comparison_rows(found)
    assert headers[8:13] == ["preemptions", "goodput [%]", "lost [GPU-h]", "restarts", "JCT against fifo"]
    assert [row[9:12] for row in rows] == [[91.24, 2.5, 3], [91.24, 2.5, 3]]
    nothing_held = replace(failing, summary={**failing.summary, "goodput_share": None})
    assert comparison_rows(compare_policies([nothing_held]))[1][0][9:12] == [None, 2.5, 3]


CASES = st.lists(
    st.tuples(
        st.integers(0, 9),  # day
        st.integers(0, 500),  # work
        st.one_of(st.none(), st.integers(0, 300)),  # wait under the one
        st.one_of(st.none(), st.integers(0, 300)),  # wait under the other
    ),
    min_size=1,
    max_size=20,
)


@given(cases=CASES)
def test_the_mean_of_differences_is_the_difference_of_means(
    cases: list[tuple[int, int, int | None, int | None]],
) -> None:
    cases = sorted(cases, key=lambda c: c[0])
    jobs = make_jobs([(c[0] * DAY, 1, c[1]) for c in cases])
    spans = [
        [None if c[i] is None else (c[0] * DAY + c[i], c[0] * DAY + c[i] + c[1]) for c in cases]  # type: ignore[operator]  # None is told apart
        for i in (2, 3)
    ]
    row = compare_policies([compared("a", jobs, spans[0]), compared("b", jobs, spans[1])]).rows(named=True)[1]
    both = [(c[1], c[2], c[3], c[0]) for c in cases if c[2] is not None and c[3] is not None]
    assert row["common_jobs"] == len(both)
    if not both:
        return
    mean = [sum(work + (a, b)[i] for work, a, b, _ in both) / len(both) for i in (0, 1)]
    assert row["jct_diff_s"] == pytest.approx(mean[1] - mean[0])
    assert row["jct_diff_s"] == pytest.approx(row["queue_diff_s"])
    assert row["better_share"] + row["equal_share"] + row["worse_share"] == pytest.approx(1)
    enough = len({day for *_, day in both}) >= 5
    assert (row["note"] is None) is enough
    if enough:
        differences = [b - a for _, a, b, _ in both]
        assert min(differences) <= row["jct_diff_low_s"] <= row["jct_diff_high_s"] <= max(differences)


def test_a_policy_against_itself_changes_nothing() -> None:
    jobs = make_jobs([(day * DAY, 1, 10) for day in range(7)])
    spans = [(day * DAY + day, day * DAY + day + 10) for day in range(7)]
    found = compare_policies([compared("a", jobs, spans), compared("b", jobs, spans)])
    changes = found.select(pl.selectors.contains("_diff_")).row(1)
    assert changes == (0.0,) * 12
    assert found["equal_share"].to_list() == [None, 1.0]
