"""Prices of GPU-hours: which one holds, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tracekit.errors import UsageError
from tracekit.gpu_hours.prices import read_prices

if TYPE_CHECKING:
    from pathlib import Path

HEAD = 'currency = "EUR"\n'


def price(amount: str = '"1"', **keys: str) -> str:
    lines = [f"{name.rstrip('_')} = {value}" for name, value in keys.items()]
    return "\n".join(["[[price]]", f"per_gpu_hour = {amount}", *lines, ""])


def write(folder: Path, *parts: str) -> Path:
    file = folder / "prices.toml"
    file.write_text(HEAD + "".join(parts))
    return file


def test_the_most_specific_price_holds(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        price('"1.00"'),
        price('"2.00"', gpu_model='"A100"'),
        price('"3.00"', gpu_model='"a100"', partition='"big"'),
        price("4", gpu_model='"a100"', partition='"big"', from_="2026-11-01", to="2026-12-01"),
    )
    prices = read_prices(file, "Europe/Berlin")

    def at(model: str | None, partition: str | None, time: str) -> Decimal | None:
        found = prices.at(model, partition, dt.datetime.fromisoformat(time))
        return None if found is None else found.amount

    assert at(None, None, "2026-11-05") == Decimal("1.00")
    assert at("a100", "small", "2026-11-05") == Decimal("2.00")
    # November in Berlin begins at 23:00 UTC and ends there too.
    assert at("a100", "big", "2026-10-31T22:59:59") == Decimal("3.00")
    assert at("a100", "big", "2026-10-31T23:00") == Decimal(4)
    assert at("a100", "big", "2026-11-30T22:59:59") == Decimal(4)
    assert at("a100", "big", "2026-11-30T23:00") == Decimal("3.00")
    assert (prices.currency, prices.decimals) == ("EUR", 2)


def test_nothing_costs_nothing_unsaid(tmp_path: Path) -> None:
    prices = read_prices(write(tmp_path, price(gpu_model='"a100"')), "UTC")
    assert prices.at("h100", None, dt.datetime(2026, 1, 1)) is None
    assert prices.at(None, None, dt.datetime(2026, 1, 1)) is None


def test_a_time_with_an_offset_is_taken_as_it_is(tmp_path: Path) -> None:
    prices = read_prices(write(tmp_path, price(from_="2026-01-01T00:00:00+02:00")), "Asia/Tokyo")
    assert prices.prices[0].since == dt.datetime(2025, 12, 31, 22)


@pytest.mark.parametrize(
    ("parts", "message", "line"),
    [
        ([price("2.5")], "price[1].per_gpu_hour: 2.5 is neither a text nor a whole number", 3),
        ([price("nan")], "is neither a text nor a whole number", 3),
        ([price('"nan"')], "'nan' is out of range", 3),
        ([price('"-1"')], "'-1' is out of range", 3),
        ([price("-1")], "-1 is out of range", 3),
        ([price('"1e99"')], "'1e99' is out of range", 3),
        ([price('"0.0000001"')], "has too many digits", 3),
        ([price('"two"')], "'two' is not a number", 3),
        ([price("true")], "is neither a text nor a whole number", 3),
        ([price(gpu_modell='"a"')], "price[1].gpu_modell: no such key", 4),
        ([price(gpu_model='""')], "price[1].gpu_model", 4),
        ([price(from_='"2026-01-01"')], "is not a date", 4),
        ([price(from_="2026-02-01", to="2026-02-01")], "price[1].to: 2026-02-01 is not after 2026-02-01", 5),
        ([price(), price()], "price[2]: fits GPU-hours that the price on line 2 also fits", 4),
        ([price(gpu_model='"a"'), price(partition='"p"')], "also fits, and neither is more specific", 5),
        ([price(from_="2026-01-01"), price(from_="2026-06-01")], "also fits, and neither is more specific", 5),
        ([price(gpu_model='"a"'), price(gpu_model='"A"')], "also fits, and neither is more specific", 5),
        (["price = []\n"], "price: is empty", 2),
        (["[[price]]\n"], "price[1]: has no per_gpu_hour", 2),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, parts: list[str], message: str, line: int
) -> None:
    with pytest.raises(UsageError) as error:
        read_prices(write(tmp_path, *parts), "UTC")
    assert message in str(error.value)
    assert error.value.line == line
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "parts",
    [
        [price(to="2026-06-01"), price(from_="2026-06-01")],
        [price(gpu_model='"a"'), price(gpu_model='"b"')],
        # Where both fit, a third says what holds.
        [price(gpu_model='"a"'), price(partition='"p"'), price(gpu_model='"a"', partition='"p"')],
        [
            price(gpu_model='"a"', from_="2026-01-01", to="2026-03-01"),
            price(partition='"p"', from_="2026-02-01", to="2026-04-01"),
            price(gpu_model='"a"', partition='"p"', from_="2026-02-01", to="2026-02-11"),
            price(gpu_model='"a"', partition='"p"', from_="2026-02-11", to="2026-03-01"),
        ],
    ],
)
def test_prices_that_never_meet_stand_side_by_side(tmp_path: Path, parts: list[str]) -> None:
    assert len(read_prices(write(tmp_path, *parts), "UTC").prices) == len(parts)


def test_a_gap_between_those_that_decide_is_found(tmp_path: Path) -> None:
    parts = [
        price(gpu_model='"a"', from_="2026-01-01", to="2026-03-01"),
        price(partition='"p"', from_="2026-02-01", to="2026-04-01"),
        price(gpu_model='"a"', partition='"p"', from_="2026-02-01", to="2026-02-11"),
        price(gpu_model='"a"', partition='"p"', from_="2026-02-12", to="2026-03-01"),
    ]
    with pytest.raises(UsageError, match="neither is more specific"):
        read_prices(write(tmp_path, *parts), "UTC")


def test_no_file_and_no_toml_are_one_line_each(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the prices"):
        read_prices(tmp_path / "absent.toml", "UTC")
    file = tmp_path / "prices.toml"
    file.write_text("currency = EUR\n")
    with pytest.raises(UsageError, match="is not TOML") as error:
        read_prices(file, "UTC")
    assert error.value.line == 1
