"""Exact amounts as rounded ones that add up to the rounded total."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["apportion", "rounded"]


def rounded(amount: Fraction, digits: int) -> Decimal:
    """Return an amount of 0 or more with so many digits after the point, halves up."""
    return Decimal((amount * 10**digits + Fraction(1, 2)).__floor__()).scaleb(-digits)


def apportion(amounts: Sequence[Fraction], digits: int) -> list[Decimal]:
    """Return amounts of 0 or more with so many digits after the point, whose sum is that of the exact ones, rounded.

    Each is rounded down; the units that the total lacks go to those with the largest remainders, the earlier ones first
    where these are equal (Hamilton's method). None is off by a whole unit.

    Examples
    --------
    >>> [str(part) for part in apportion([Fraction(1, 3)] * 3, 2)]
    ['0.34', '0.33', '0.33']
    """
    scaled = [amount * 10**digits for amount in amounts]
    units = [amount.__floor__() for amount in scaled]
    lacking = (sum(scaled, Fraction(0)) + Fraction(1, 2)).__floor__() - sum(units)
    order = sorted(range(len(scaled)), key=lambda i: (units[i] - scaled[i], i))
    for place in order[:lacking]:
        units[place] += 1
    return [Decimal(unit).scaleb(-digits) for unit in units]
