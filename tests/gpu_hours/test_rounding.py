"""Rounded amounts add up to the rounded total."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tracekit.gpu_hours.bill import apportion, rounded

AMOUNTS = st.lists(st.fractions(min_value=0, max_value=10**6, max_denominator=10**7), max_size=30)


@given(amounts=AMOUNTS, digits=st.integers(min_value=0, max_value=6))
def test_the_parts_add_up_and_none_is_off_by_a_unit(amounts: list[Fraction], digits: int) -> None:
    parts = apportion(amounts, digits)
    assert sum(parts, Decimal(0)) == rounded(sum(amounts, Fraction(0)), digits)
    unit = Fraction(1, 10**digits)
    assert all(abs(Fraction(part) - amount) < unit for part, amount in zip(parts, amounts, strict=True))
    assert all(part >= 0 for part in parts)


def test_the_largest_remainders_are_rounded_up_and_halves_of_the_total() -> None:
    # 0.004 + 0.006 + 0.0049 = 0.0149, which is 0.01: the 0.006 gets it.
    assert apportion([Fraction(4, 1000), Fraction(6, 1000), Fraction(49, 10_000)], 2) == [
        Decimal("0.00"),
        Decimal("0.01"),
        Decimal("0.00"),
    ]
    assert apportion([], 2) == []
    assert rounded(Fraction(5, 1000), 2) == Decimal("0.01")
    assert rounded(Fraction(4999, 10**6), 2) == Decimal("0.00")
