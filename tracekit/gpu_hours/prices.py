"""Prices of GPU-hours in TOML files.

    currency = "EUR"
    decimals = 2              # decimal places of amounts; 2 by default

    [[price]]                 # for every GPU-hour without a more specific price
    per_gpu_hour = "1.20"     # in quotes, because 1.20 without quotes is not exact

    [[price]]
    per_gpu_hour = "2.50"
    gpu_model = "a100"        # as in the Trace, ignoring case
    partition = "gpu"
    from = 2026-01-01         # a day in the time zone of the Trace, or a time; inclusive
    to = 2027-01-01           # exclusive

A price is more specific the more it names of gpu_model, partition and time (from, to or both). The most specific price
that fits a GPU-hour applies. Two equally specific prices that fit the same GPU-hour are an error, unless more specific
prices cover all such GPU-hours.
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

_MOST = 1_000_000
"""Maximum price. A higher price must be a typing error."""
_DIGITS = 6
"""Maximum decimal places of a price."""
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
    """The price of a GPU-hour, and the GPU-hours that it applies to."""

    amount: Decimal
    gpu_model: str | None = None
    """In lower case."""
    partition: str | None = None
    since: dt.datetime = _FIRST
    """Start of the price, inclusive [UTC]."""
    until: dt.datetime = _LAST
    """End of the price, exclusive [UTC]."""

    @property
    def names(self) -> int:
        """How many of these the price names: GPU model, partition and time."""
        timed = self.since != _FIRST or self.until != _LAST
        return (self.gpu_model is not None) + (self.partition is not None) + timed

    def fits(self, gpu_model: str | None, partition: str | None) -> bool:
        """Return whether the price applies to GPU-hours of a GPU model (in lower case) in a partition."""
        return self.gpu_model in (None, gpu_model) and self.partition in (None, partition)


@dataclass(frozen=True)
class Prices:
    """The prices in a file."""

    currency: str
    decimals: int
    """Decimal places of amounts."""
    prices: tuple[Price, ...]

    def at(self, gpu_model: str | None, partition: str | None, time: dt.datetime) -> Price | None:
        """Return the most specific price that fits a GPU-hour, or None if none fits.

        Parameters
        ----------
        gpu_model : str or None
            The GPU model in lower case, or None if unknown.
        partition : str or None
            The partition as spelled in the Trace.
        time : datetime
            Time at which the GPU-hour was allocated [UTC].
        """
        fitting = [p for p in self.prices if p.fits(gpu_model, partition) and p.since <= time < p.until]
        return max(fitting, key=lambda p: p.names, default=None)

    def with_partitions(self, rename: Callable[[str], str]) -> Prices:
        """Return the prices with renamed partitions."""
        named = (p if p.partition is None else replace(p, partition=rename(p.partition)) for p in self.prices)
        return replace(self, prices=tuple(named))


def read_prices(path: Path, timezone: str) -> Prices:
    """Read the prices from a TOML file (see the module for its keys).

    Parameters
    ----------
    path : Path
        The price file.
    timezone : str
        Time zone of days in the file, and of times without an offset.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, has an invalid key or value, or has two prices that fit the same GPU-hours
        equally well. The error names the line.
    """
    text = TomlText(path, "prices", "see docs/efficiency.md for an example")
    file = text.decode(_PricesFile)
    prices = [_price(text, number, price, timezone) for number, price in enumerate(file.price)]
    for (first, one), (second, other) in combinations(enumerate(prices), 2):
        if _compete(one, other, prices):
            line = text.line(("price", first))
            raise text.error(
                ("price", second),
                f"fits GPU-hours that the price on line {line} also fits, and neither is more specific",
                "add a gpu_model, a partition, from or to, so that one is more specific",
            )
    return Prices(file.currency, file.decimals, tuple(prices))


def prices_of(path: Path, hidden: HiddenTrace) -> Prices:
    """Return a file's prices adapted to a Trace, in its time zone and with its pseudonyms if it has any.

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
        raise wrong("per_gpu_hour", f"{abbreviated(given)} is out of range", f"give a number from 0 to {_MOST:,}")
    if round(amount, _DIGITS) != amount:
        raise wrong(
            "per_gpu_hour",
            f"{abbreviated(given)} has too many digits",
            f"write at most {_DIGITS} after the decimal point",
        )
    since, until = (_moment(time, timezone) for time in (price.from_, price.to))
    model = None if price.gpu_model is None else price.gpu_model.lower()
    found = Price(amount, model, price.partition, since or _FIRST, until or _LAST)
    if found.since >= found.until:
        raise wrong(
            "to", f"{price.to} is not after {price.from_}", "give a later day: the first day without this price"
        )
    return found


def _moment(time: dt.date | None, timezone: str) -> dt.datetime | None:
    """Convert a day or a time to UTC."""
    if time is None:
        return None
    moment = time if isinstance(time, dt.datetime) else dt.datetime.combine(time, dt.time())
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(timezone))
    try:
        return zoned.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # the first or the last possible day
        return moment.replace(tzinfo=None)


def _compete(one: Price, other: Price, prices: Sequence[Price]) -> bool:
    """Return whether two prices fit some GPU-hours equally well, and no other price fits these better."""
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
    """Return whether both are set and differ, so no GPU-hour fits both."""
    return one is not None and other is not None and one != other
