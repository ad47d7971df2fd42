"""How much less busy GPUs are in one circumstance than in another, worked by hand."""

from __future__ import annotations

import polars as pl
import pytest

from tracekit.guidelines.interface import Number
from tracekit.guidelines.intervals import pooled_drop, strata_with_both

Rows = list[tuple[int, float, bool, int, float]]
SCHEMA = {"day": pl.Int64, "gpu_count": pl.Float64, "worse": pl.Boolean, "samples": pl.Int64, "total": pl.Float64}


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def day(number: int) -> Rows:
    """Return a day: jobs of 1 GPU lose 30 points in 5 samples, those of 8 GPUs 20 points in 20 samples."""
    return [
        (number, 1.0, False, 10, 800.0),
        (number, 1.0, True, 5, 250.0),
        (number, 8.0, False, 4, 240.0),
        (number, 8.0, True, 20, 800.0),
    ]


def test_sizes_are_weighted_by_their_worse_samples() -> None:
    assert pooled_drop(frame(day(0)), 39) == Number(22.0, 39)  # (5 * 30 + 20 * 20) / 25
    # Five equal days leave nothing to chance.
    found = pooled_drop(frame([row for number in range(5) for row in day(number)]), 195)
    for number in (found.value, found.low, found.high):
        assert number == pytest.approx(22.0)


def test_one_size_is_the_difference_of_its_means() -> None:
    assert pooled_drop(frame(day(0)[:2]), 15) == Number(30.0, 15)
    assert pooled_drop(frame(day(0)[2:]), 24) == Number(20.0, 24)


def test_a_size_may_be_busier_in_the_worse_circumstance() -> None:
    assert pooled_drop(frame([(0, 1.0, False, 2, 100.0), (0, 1.0, True, 2, 140.0)]), 4) == Number(-20.0, 4)


def test_a_size_without_samples_on_one_side_does_not_count() -> None:
    empty: Rows = [(0, 2.0, False, 0, 0.0), (0, 2.0, True, 7, 70.0), (0, 4.0, False, 7, 630.0), (0, 4.0, True, 0, 0.0)]
    assert pooled_drop(frame(day(0) + empty), 53) == Number(22.0, 53)
    assert pooled_drop(frame(empty), 14) == Number(None, 14)


def test_sizes_of_one_circumstance_are_left_out() -> None:
    alone: Rows = [(0, 2.0, False, 3, 270.0), (1, 2.0, False, 3, 270.0), (0, 4.0, True, 3, 30.0)]
    kept = strata_with_both(frame([*day(0), *alone]))
    assert sorted(kept.rows()) == sorted(day(0))


def test_one_sample_on_each_side_is_enough() -> None:
    assert pooled_drop(frame([(0, 1.0, False, 1, 80.0), (0, 1.0, True, 1, 50.0)]), 2) == Number(30.0, 2)


def test_strata_may_have_several_columns() -> None:
    """Beside others all are 20 points less busy; spreading costs 10 points alone, and 4 points beside others."""
    schema = {**SCHEMA, "neighbours": pl.Int64}
    rows = [(0, 8.0, False, 9, 9 * 80.0, 0), (0, 8.0, True, 1, 70.0, 0), (0, 8.0, False, 1, 60.0, 1)]
    rows += [(0, 8.0, True, 9, 9 * 56.0, 1), (0, 8.0, True, 5, 5 * 10.0, 2), (0, 4.0, False, 5, 5 * 10.0, 0)]
    by = ("gpu_count", "neighbours")
    kept = strata_with_both(pl.DataFrame(rows, schema=schema, orient="row"), by)
    assert sorted(kept.rows()) == sorted(rows[:4])
    assert pooled_drop(kept, 10, by).value == pytest.approx((10 + 9 * 4) / 10)
    # By size alone most of it is interference.
    assert pooled_drop(kept, 10).value == pytest.approx(78.0 - 57.4)
