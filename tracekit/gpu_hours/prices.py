"""Prices of GPU-hours in TOML files.

    currency = "EUR"
    decimals = 2              # digits after the point of an amount; 2 when not given

    [[price]]                 # of every GPU-hour that no other price is more specific about
    per_gpu_hour = "1.20"     # in quotes, since 1.20 without them is not exact

    [[price]]
    per_gpu_hour = "2.50"
    gpu_model = "a100"        # as the Trace spells it, but for capital letters
    partition = "gpu"
    from = 2026-01-01         # a day in the time zone of the Trace, or a time; included
    to = 2027-01-01           # not included

Each of gpu_model, partition and time (from, to or both) that a price names makes it more specific. Of the prices that
fit, the one that names most holds. Two that name equally many and may both fit one GPU-hour are an error, unless prices
that name more cover all that they share.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from itertools import combinations
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

from tracekit.decode import NonEmpty, Range, Text, abbreviated
from tracekit.timezones import known_zone
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tracekit.anonymous import HiddenTrace
    from tracekit.errors import UsageError

__all__ = ["Price", "Prices", "prices_of", "read_prices"]

_MOST = 1_000_000
"""Highest price: more is a slip of the pen."""
_DIGITS = 6
"""Most digits after the point of a price."""
_FIRST, _LAST = dt.datetime.min, dt.datetime.max


@dataclass(frozen=True)
class _Price:
    per_gpu_hour: Text | Annotated[int, Range(0, _MOST)]
    gpu_model: Text | None = None
    partition: Text | None = None
    from_: dt.date | None = None
    to: dt.date | None = None


@dataclass(frozen=True)
class _PricesFile:
    currency: Text
    price: Annotated[tuple[_Price, ...], NonEmpty()]
    decimals: Annotated[int, Range(0, 4)] = 2


@dataclass(frozen=True)
class Price:
    """What a GPU-hour costs, and of which GPU-hours."""

    amount: Decimal
    gpu_model: str | None = None
    """In small letters."""
    partition: str | None = None
    since: dt.datetime = _FIRST
    """From then on [UTC]."""
    until: dt.datetime = _LAST
    """Before then [UTC]."""

    @property
    def names(self) -> int:
        """How many of model, partition and time it names."""
        timed = self.since != _FIRST or self.until != _LAST
        return (self.gpu_model is not None) + (self.partition is not None) + timed

    def fits(self, gpu_model: str | None, partition: str | None) -> bool:
        """Return whether it may be the price of GPU-hours of a model, in small letters, in a partition."""
        return self.gpu_model in (None, gpu_model) and self.partition in (None, partition)


@dataclass(frozen=True)
class Prices:
    """The prices of a file."""

    currency: str
    decimals: int
    """Digits after the point of an amount."""
    prices: tuple[Price, ...]

    def at(self, gpu_model: str | None, partition: str | None, time: dt.datetime) -> Price | None:
        """Return the price of a GPU-hour, the most specific one that fits; None where none does.

        Parameters
        ----------
        gpu_model : str or None
            In small letters; None for a model that is unknown.
        partition : str or None
            As the Trace spells it.
        time : datetime
            When it was held [UTC].
        """
        fitting = [p for p in self.prices if p.fits(gpu_model, partition) and p.since <= time < p.until]
        return max(fitting, key=lambda p: p.names, default=None)

    def with_partitions(self, rename: Callable[[str], str]) -> Prices:
        """Return the prices with other names of the partitions."""
        named = (p if p.partition is None else replace(p, partition=rename(p.partition)) for p in self.prices)
        return replace(self, prices=tuple(named))


def read_prices(path: Path, timezone: str) -> Prices:
    """Return the prices that a TOML file states (see the module for its keys).

    Parameters
    ----------
    path : Path
        The file.
    timezone : str
        Zone of its days, and of its times without an offset.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, has a key or value that cannot be used, or two prices fit the same
        GPU-hours equally well; the error names the line.
    """
    text = TomlText(path, "prices", "docs/efficiency.md shows such a file")
    file = text.decode(_PricesFile)
    prices = [_price(text, number, price, timezone) for number, price in enumerate(file.price)]
    for (first, one), (second, other) in combinations(enumerate(prices), 2):
        if _compete(one, other, prices):
            line = text.line(("price", first))
            raise text.error(
                ("price", second),
                f"fits GPU-hours that the price on line {line} fits too, and neither is more specific",
                "name a gpu_model, a partition, from or to, so that one of them is",
            )
    return Prices(file.currency, file.decimals, tuple(prices))


def prices_of(path: Path, hidden: HiddenTrace) -> Prices:
    """Return the prices of a file as they fit a Trace: in its time zone, and of its pseudonyms where it has them.

    Raises
    ------
    UsageError
        See `read_prices`.
    """
    found = read_prices(path, known_zone(hidden.trace.timezone))
    names = hidden.pseudonyms
    return found if names is None else found.with_partitions(lambda name: names.of("partition", name))


def _price(text: TomlText, number: int, price: _Price, timezone: str) -> Price:
    def wrong(key: str, what: str, hint: str) -> UsageError:
        return text.error(("price", number, key), what, hint)

    given = str(price.per_gpu_hour)
    try:
        amount = Decimal(given)
    except InvalidOperation:
        raise wrong("per_gpu_hour", f"{abbreviated(given)} is not a number", 'write it like "2.50"') from None
    if not amount.is_finite() or not 0 <= amount <= _MOST:
        raise wrong("per_gpu_hour", f"{abbreviated(given)} is out of range", f"it may be from 0 to {_MOST:,}")
    if round(amount, _DIGITS) != amount:
        raise wrong(
            "per_gpu_hour", f"{abbreviated(given)} has too many digits", f"write at most {_DIGITS} after the point"
        )
    since, until = (_moment(time, timezone) for time in (price.from_, price.to))
    model = None if price.gpu_model is None else price.gpu_model.lower()
    found = Price(amount, model, price.partition, since or _FIRST, until or _LAST)
    if found.since >= found.until:
        raise wrong(
            "to", f"{price.to} is not after {price.from_}", "write a later day: the first day without this price"
        )
    return found


def _moment(time: dt.date | None, timezone: str) -> dt.datetime | None:
    """Return a day or a time as UTC."""
    if time is None:
        return None
    moment = time if isinstance(time, dt.datetime) else dt.datetime.combine(time, dt.time())
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(timezone))
    try:
        return zoned.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # the first or the last day that there is
        return moment.replace(tzinfo=None)


def _compete(one: Price, other: Price, prices: Sequence[Price]) -> bool:
    """Return whether two prices fit some GPU-hours equally well, and no other fits these better."""
    since, until = max(one.since, other.since), min(one.until, other.until)
    if one.names != other.names or since >= until:
        return False
    if _both(one.gpu_model, other.gpu_model) or _both(one.partition, other.partition):
        return False
    model, partition = one.gpu_model or other.gpu_model, one.partition or other.partition
    better = sorted(
        (p.since, p.until) for p in prices if p.names > one.names and p.fits(model, partition) and p.until > since
    )
    for begin, end in better:
        if begin > since:
            break
        since = max(since, end)
    return since < until


def _both(one: str | None, other: str | None) -> bool:
    """Return whether both are named and differ, so that nothing fits both."""
    return one is not None and other is not None and one != other
