"""How many nodes a target takes, from waits that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.capacity_plan.nodes import NodeAxis
from tracekit.capacity_plan.plan import default_numbers, month_ratios, nodes_answer, steps_up, wait_curve
from tracekit.capacity_plan.question import WaitTarget
from tracekit.capacity_plan.replays import FIGURES, quantile
from tracekit.capacity_plan.result import NodesAnswer
from tracekit.capacity_plan.search import Ends, interval, interval_share, log_among, mean_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.reviewed import Golden
    from tracekit.capacity_plan.replays import PlannedRun
    from tracekit.capacity_plan.search import Answer

AXIS = NodeAxis(("",), (16,))
TARGET = WaitTarget("p90", 100.0)


class KnownWaits:
    """Replays whose 90th percentile of the wait is a function of the nodes and the month.

    The log waits as long as the months do on average.
    """

    def __init__(self, wait: Callable[[int, int], float], resamples: int = 40) -> None:
        self.wait, self.resamples, self.asked = wait, resamples, list[int]()

    def of(self, runs: Iterable[PlannedRun]) -> dict[PlannedRun, Any]:
        found = {}
        for run in runs:
            nodes = sum(run.capacity)
            self.asked.append(nodes)
            values = np.full((1 + self.resamples, len(FIGURES)), np.nan)
            months = [self.wait(nodes, k) for k in range(self.resamples)]
            values[:, FIGURES.index("p90_wait_s")] = [float(np.mean(months)), *months]
            found[run] = values
        return found


def answer(
    wait: Callable[[int, int], float], numbers: Iterable[int], *, refine: bool = True
) -> tuple[Answer, list[int]]:
    known = KnownWaits(wait)
    curve = wait_curve(known, AXIS, "fifo", 1.0)  # type: ignore[arg-type]  # has the one method that is used
    curve.look(numbers)
    return nodes_answer(curve, AXIS.now, TARGET, refine=refine), known.asked


def words(found: Answer) -> NodesAnswer:
    return NodesAnswer("fifo", 1.0, found, full=False)


def test_the_answer_is_found_between_the_numbers_of_the_grid(golden: Golden) -> None:
    # Resample k waits 100 s with 17 + k / 4 nodes; the mean of them with 21.875: 22 nodes.
    found, asked = answer(lambda n, k: 1000 + 100 * (8 + k / 4 - n + 0.0), (8, 16, 32))
    assert (found.number, found.low, found.high, found.or_fewer) == (22, 17, 27, False)
    assert len(asked) == len(set(asked))
    assert len(asked) <= 3 + 3 * 4
    golden(words(found).sentence(TARGET, "all jobs"))


def test_without_refining_only_what_was_asked_for_is_tried() -> None:
    found, asked = answer(lambda n, k: 1000 + 100 * (8 + k / 4 - n), (8, 16, 24, 32), refine=False)
    assert (found.number, found.low, found.high) == (24, 24, 32)
    assert asked == [8, 16, 24, 32]


def test_a_target_on_the_limit_is_kept() -> None:
    assert answer(lambda n, _: 100.0 if n >= 5 else 100.001, (4, 5, 6), refine=False)[0].number == 5


def test_a_target_that_no_number_keeps_is_looked_for_up_to_eight_times_and_the_best_is_named(golden: Golden) -> None:
    found, asked = answer(lambda n, _: 101.0 + 100 / n, (8, 16, 32))
    assert found.number is None
    assert (found.best_number, found.most) == (128, 128)
    assert found.best == pytest.approx(101.78125)
    assert asked == [8, 16, 32, 64, 128]
    golden(words(found).sentence(TARGET, "all jobs"))


def test_jobs_that_never_start_keep_no_target(golden: Golden) -> None:
    found, _ = answer(lambda n, _: np.inf, (8, 16))
    assert (found.number, found.best) == (None, np.inf)
    golden(words(found).sentence(TARGET, "all jobs"))


def test_a_target_that_all_numbers_keep_is_looked_for_further_down(golden: Golden) -> None:
    found, asked = answer(lambda n, _: 0.0 if n >= 3 else 1000.0, (8, 16))
    assert (found.number, found.or_fewer) == (3, False)
    assert asked[:4] == [8, 16, 4, 2]
    least, _ = answer(lambda n, _: 0.0, (8, 16))
    assert (least.number, least.or_fewer) == (1, False)
    kept, _ = answer(lambda n, _: 0.0, (8, 16), refine=False)
    assert (kept.number, kept.or_fewer) == (8, True)
    golden(words(kept).sentence(TARGET, "all jobs"))


def test_a_number_counts_only_if_all_larger_ones_keep_the_target_too() -> None:
    waits = {4: 50.0, 5: 150.0, 6: 60.0, 7: 50.0}
    assert answer(lambda n, _: waits[n], (4, 5, 6, 7), refine=False)[0].number == 6


def test_where_the_unluckiest_resamples_never_keep_it_the_upper_end_is_open() -> None:
    found, _ = answer(lambda n, k: 101.0 if k < 2 else 0.0, (8, 16))
    assert found.number == 1
    assert found.high is None
    assert "(1 to more than 128)" not in words(found).sentence(TARGET, "all jobs")  # only what was tried is named
    assert "(1 to more than 16)" in words(found).sentence(TARGET, "all jobs")


@pytest.mark.parametrize(("resamples", "share", "outside"), [(5, 4 / 6, 0), (40, 39 / 41, 0), (100, 97 / 101, 1)])
def test_the_ends_of_an_interval_are_values_of_resamples(resamples: int, share: float, outside: int) -> None:
    assert interval_share(resamples) == pytest.approx(share)
    values = np.random.default_rng(0).permutation(resamples).astype(float)
    assert interval(values) == (outside, resamples - 1 - outside)


def test_an_interval_of_waits_that_never_end_is_open() -> None:
    assert interval(np.array([1.0, np.inf, 2.0])) == (1.0, np.inf)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 3))
def test_quantiles_are_those_of_numpy_and_infinite_values_stand_at_the_end(
    values: list[float], share: float, endless: int
) -> None:
    assert quantile(np.array(values), share) == pytest.approx(float(np.quantile(values, share)))
    whole = np.array([*values, *[np.inf] * endless])
    place = int(np.ceil(share * (len(whole) - 1)))
    assert np.isinf(quantile(whole, share)) == (place >= len(values))


def test_the_quantile_of_nothing_is_unknown() -> None:
    assert np.isnan(quantile(np.array([]), 0.5))


def test_the_default_numbers_span_from_a_filled_cluster_to_twice_the_nodes() -> None:
    assert default_numbers(AXIS, 7.2) == [8, 10, 12, 14, 16, 18, 22, 26, 32]
    assert default_numbers(AXIS, 0.1)[0] == 4  # a quarter of 16
    assert default_numbers(AXIS, 30.0)[0] == 16
    assert default_numbers(AXIS, 30.0)[-1] == 60
    assert default_numbers(NodeAxis(("",), (1,)), 0.5) == [1, 2]
    assert 16 in default_numbers(AXIS, 13.0)


def test_steps_up_are_whole_nodes() -> None:
    assert (steps_up(1), steps_up(16), steps_up(400)) == ([1, 2, 4], [1, 2, 4], [1, 40, 100])


def test_the_log_is_a_month_too() -> None:
    months = [3.0, np.nan, 1.0, 2.0]
    assert log_among(np.array([1.5, *months])) == Ends(1.5, 1, 3)
    assert log_among(np.array([9.0, *months])) == Ends(9, 1, 9)
    assert log_among(np.array([0.5, *months])) == Ends(0.5, 0.5, 3)
    assert log_among(np.array([4.0, np.nan])) == Ends(4, 4, 4)
    assert np.isnan(log_among(np.array([np.nan, 1.0]))).all()
    assert mean_of(np.array([1.0, 2.0, 6.0])) == Ends(3, 1, 6)


def test_the_limit_is_met_by_the_log_and_its_ends_by_the_months() -> None:
    # The months wait 0 s with 4 nodes and more; the log, whose long queue no month has, with 6 and more.
    known = KnownWaits(lambda n, _: 0.0 if n >= 4 else 200.0)
    curve = wait_curve(known, AXIS, "fifo", 1.0)  # type: ignore[arg-type]  # has the one method that is used
    curve.look((3, 4, 5, 6))
    for nodes, values in curve.tried.items():
        values[0] = 0.0 if nodes >= 6 else 200.0
    found = nodes_answer(curve, AXIS.now, TARGET, refine=False)
    assert (found.number, found.low, found.high, found.best) == (6, 4, 6, 0)


def test_ratios_of_months_are_paired_and_leave_out_the_log() -> None:
    column = FIGURES.index("mean_wait_s")
    here, there = (np.full((5, len(FIGURES)), np.nan) for _ in range(2))
    here[:, column], there[:, column] = [10, 20, 40, 0.2, np.nan], [10, 10, 10, 0.1, np.nan]
    assert month_ratios(here, there) == pytest.approx(np.log([1 / 2, 1 / 4, 1]))
    there[1, column] = np.inf
    assert month_ratios(here, there) == pytest.approx(np.log([1 / 4, 1]))
    there[:, column] = np.inf
    assert month_ratios(here, there) is None
