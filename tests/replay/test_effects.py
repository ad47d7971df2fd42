"""Whether an effect can be told: the rule's edges, in whole milliseconds, and the log's own schedule as a row."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tracekit.replay.jobs import RecordedTimes, recorded_times
from tracekit.replay.results.comparison import ReplayResult, compare_policies, comparison_rows
from tracekit.replay.results.effects import beside_record, effect_sentences, support_of
from tracekit.replay.results.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from tests.reviewed import Golden
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.results.effects import Support


def support(recorded: list[int], baseline: list[int], policy: list[int] | None) -> Support:
    known = np.array(recorded, dtype=np.int64)
    waits = [None if w is None else np.array(w, dtype=np.int64) for w in (baseline, policy)]
    assert waits[0] is not None
    return support_of("easy", RecordedTimes(known, np.where(known >= 0, known + 1000, -1)), waits[0], waits[1])


@pytest.mark.parametrize(
    ("recorded", "baseline", "told"),
    [
        (1_000_000, 1_250_000, True),  # a factor of exactly 1.25
        (1_000_000, 1_250_001, False),
        (1_250_000, 1_000_000, True),
        (1_250_001, 1_000_000, False),
        (1_000, 61_000, True),  # a minute more
        (1_000, 61_001, False),
        (61_001, 1_000, False),
        (60_000, 0, True),
        (0, 60_001, False),
        (0, 0, True),
    ],
)
def test_a_baseline_reproduces_the_log_within_a_factor_or_a_minute(recorded: int, baseline: int, told: bool) -> None:
    for jobs in (1, 3):
        found = support([recorded] * jobs, [baseline] * jobs, None)
        assert found.supported is told
        assert (found.reason is None) is told


@pytest.mark.parametrize(("policy", "told"), [(1_000_000, True), (1_000_001, False), (0, True)])
def test_a_policy_must_not_wait_longer_than_the_log_did(policy: int, told: bool) -> None:
    found = support([1_000_000, 1_000_000], [1_100_000, 1_000_000], [1_000_000, policy])
    assert found.supported is told


def test_all_means_are_over_the_jobs_whose_wait_the_log_tells(golden: Golden) -> None:
    found = support([60_000, -1, 180_000], [60_000, 9_000_000, 200_000], [0, 9_000_000, 100_000])
    assert (found.recorded_jobs, found.recorded_queue_s, found.recorded_jct_s) == (2, 120.0, 121.0)
    assert (found.baseline_queue_s, found.policy_queue_s, found.reason) == (130.0, 50.0, None)
    none = support([-1], [0], [0])
    assert (none.recorded_jobs, none.recorded_queue_s, none.supported) == (0, None, False)
    golden(str(none.sentence))


@given(
    st.lists(st.tuples(*[st.integers(0, 400_000)] * 3), min_size=1, max_size=9),
)
def test_the_rule_is_that_of_exact_means(rows: list[tuple[int, int, int]]) -> None:
    recorded, baseline, policy = (Fraction(sum(column), len(rows)) for column in zip(*rows, strict=True))
    ratio = recorded and Fraction(4, 5) <= baseline / recorded <= Fraction(5, 4)
    near = bool(ratio) or abs(baseline - recorded) <= 60_000
    columns = [list(column) for column in zip(*rows, strict=True)]
    assert support(*columns).supported is (near and policy <= recorded)


def test_times_in_the_wrong_order_are_unknown() -> None:
    jobs = make_jobs(
        [(10, 1, 5), (20, 1, 5), (30, 1, 5), (40, 1, 5)],
        recorded_start_ms=[12_000, 19_000, 31_000, -1],
        recorded_end_ms=[17_000, 25_000, 30_500, 50_000],
    )
    found = recorded_times(jobs)
    assert found.queue_ms.tolist() == [2000, -1, 1000, -1]
    assert found.jct_ms.tolist() == [7000, -1, -1, -1]


def compared(name: str, jobs: Jobs, spans: Sequence[tuple[float, float] | None]) -> ReplayResult:
    outcome = make_outcome(jobs, spans)
    facts: dict[str, Any] = {"policy": name, "parameters": {}, "placement": "consolidate", "assumptions": {}}
    return ReplayResult(name, jobs, outcome, summarize(jobs, make_cluster((8,)), outcome, **facts))


def beside(starts: list[int], **spans: list[tuple[float, float] | None]) -> pl.DataFrame:
    """Return policies side by side; the log starts jobs of 100 s at these seconds, which all come at 0 s."""
    ends = [start + 100 if start >= 0 else -1 for start in starts]
    jobs = make_jobs(
        [(0, 1, 100)] * len(starts),
        recorded_start_ms=[1000 * s if s >= 0 else -1 for s in starts],
        recorded_end_ms=[1000 * e if e >= 0 else -1 for e in ends],
    )
    results = [compared(name, jobs, own) for name, own in spans.items()]
    return beside_record(compare_policies(results), results)


EFFECT = ("jct_diff_s", "jct_diff_share", "queue_diff_s", "queue_diff_share", "better_share", "worse_share")


def test_the_log_is_a_row_of_its_own_and_effects_that_it_carries_stay(golden: Golden) -> None:
    found = beside(
        [0, 200, -1],
        fifo=[(0, 100), (150, 250), (0, 100)],
        fast=[(0, 100), (100, 200), (0, 100)],
        slow=[(0, 100), (201, 301), (0, 100)],
    )
    fifo, fast, slow, log = found.rows(named=True)
    assert [r["effect_told"] for r in (fifo, fast, slow, log)] == [True, True, False, None]
    assert (fast["recorded_jobs"], fast["recorded_queue_s"], fast["recorded_jct_s"]) == (2, 100.0, 200.0)
    assert (fast["baseline_queue_s"], fast["policy_queue_s"]) == (75.0, 50.0)
    assert fast["jct_diff_s"] == pytest.approx(-50 / 3)
    assert {slow[key] for key in EFFECT} == {None}
    assert (log["policy"], log["jobs"], log["completed"]) == ("recorded", 3, 2)
    assert (log["avg_queue_s"], log["avg_jct_s"], log["median_jct_s"]) == (100.0, 200.0, 200.0)
    assert log["gpu_utilization_share"] is None
    golden(effect_sentences(found))
    headers, rows = comparison_rows(found)
    assert [row[headers.index("JCT against fifo")] for row in rows][1:] == ["-11.1 %", None, None]
    assert rows[-1][:3] == ["recorded", 2, 200.0]


def test_where_the_first_policy_is_not_what_ran_no_effect_is_left_and_one_sentence_says_so(golden: Golden) -> None:
    found = beside(
        [0, 10, 20],
        fifo=[(3600, 3700), (3600, 3700), (3600, 3700)],
        fast=[(0, 100), (0, 100), (0, 100)],
        faster=[(0, 100), (0, 100), None],
    )
    assert found["effect_told"].to_list() == [False, False, False, None]
    assert all(found[key].null_count() == found.height for key in EFFECT)
    golden(effect_sentences(found))


def test_a_log_that_records_nothing_has_no_row_and_carries_nothing(golden: Golden) -> None:
    found = beside([-1, -1], fifo=[(0, 100), (0, 100)], fast=[(0, 100), (0, 100)])
    assert found["policy"].to_list() == ["fifo", "fast"]
    assert found["effect_told"].to_list() == [False, False]
    golden(effect_sentences(found))
    assert effect_sentences(found.head(1)) == []


def test_the_policy_of_that_name_is_the_row_of_the_log() -> None:
    found = beside([5, 10], fifo=[(5, 105), (10, 110)], recorded=[(5, 105), (10, 110)])
    assert found["policy"].to_list() == ["fifo", "recorded"]
