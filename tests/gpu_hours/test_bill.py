"""The bill: cut at months and prices, exact to the cent, with what has no price told apart."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracekit
from tracekit.errors import UsageError
from tracekit.gpu_hours.bill import rounded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

PRICES = """\
currency = "EUR"
[[price]]
per_gpu_hour = "2.00"
gpu_model = "a100"
[[price]]
per_gpu_hour = "3.00"
gpu_model = "a100"
from = 2026-11-01
"""


def prices_file(folder: Path, text: str = PRICES) -> Path:
    file = folder / "prices.toml"
    file.write_text(text)
    return file


def attempt(name: str, start: str, end: str, gpus: float, status: str = "completed", **more: Any) -> dict[str, Any]:
    run = (dt.datetime.fromisoformat(end) - dt.datetime.fromisoformat(start)).total_seconds()
    times = {"start_time": start, "end_time": end, "run_s": run, "wait_s": 0}
    return {"job_id": name, "attempt": 0, "gpu_count": gpus, "status": status, **times, **more}


def test_attempts_and_waits_are_cut_where_a_month_and_a_price_begins(
    make_trace: MakeTrace, tmp_path: Path, golden: Golden
) -> None:
    # In Berlin November begins at 23:00 UTC, and the price rises.
    trace = make_trace(
        jobs=[
            {"job_id": "a", "account": "p", "gpu_count": 2, "gpu_model": "a100"},
            {"job_id": "b", "account": "q", "gpu_count": 1, "gpu_model": "v100"},
            {"job_id": "c", "account": "p", "gpu_count": 1, "gpu_model": "A100"},
            {"job_id": "d", "account": "p", "gpu_count": 1, "gpu_model": "a100"},
        ],
        attempts=[
            # Waits from 21:00, runs from 22:00 to 01:00.
            attempt("a", "2026-10-31 22:00", "2026-11-01 01:00", 2, "failed", wait_s=3600),
            attempt("b", "2026-11-02 00:00", "2026-11-02 10:00", 1),
            attempt("c", "2026-11-03 00:00", "2026-11-03 01:00", 1),
            {"job_id": "d", "attempt": 0, "gpu_count": 1, "run_s": 7200},
        ],
        job_usage=[{"job_id": "a", "gpu_util_pct": 50}],
        manifest_overrides={"timezone": "Europe/Berlin"},
    )
    found = tracekit.efficiency(trace, prices=prices_file(tmp_path))
    assert found.bill is not None
    names = ["account", "month", "gpu_model", "price_per_gpu_hour", "gpu_hours", "cost", "idle_cost", "failed_cost"]
    rows = found.bill.frame.select(*names, "waiting_gpu_hours", "waiting_cost").rows()
    euro, hours = Decimal, Decimal
    # a: of each GPU-hour 75 % are idle. c's model is the same in other letters. b's has no price, d no dates.
    assert rows == [
        ("p", "2026-10", "a100", "2", hours(2), euro("4.00"), euro("3.00"), euro("4.00"), hours(2), euro("4.00")),
        ("p", "2026-11", "A100", "3", hours(1), euro("3.00"), None, euro("0.00"), hours(0), euro("0.00")),
        ("p", "2026-11", "a100", "3", hours(4), euro("12.00"), euro("9.00"), euro("12.00"), hours(0), euro("0.00")),
        ("q", "2026-11", "v100", None, hours(10), None, None, None, hours(0), None),
        ("p", None, "a100", None, hours(2), None, None, None, hours(0), None),
    ]
    assert found.bill.total == Decimal("19.00")
    golden(found.bill.notes)
    november = tracekit.efficiency(trace, prices=tmp_path / "prices.toml", month="2026-11").bill
    assert november is not None
    assert november.total == Decimal("15.00")
    assert november.frame["month"].unique().to_list() == ["2026-11"]


SOME_ATTEMPTS = {
    "attempts": st.lists(
        st.tuples(
            st.sampled_from("pqr"),
            st.sampled_from(["a100", "h100"]),
            st.integers(min_value=0, max_value=90 * 86_400),
            st.integers(min_value=1, max_value=40 * 86_400),
            st.sampled_from([0.25, 1.0, 3.0, 8.0]),
        ),
        min_size=1,
        max_size=12,
    ),
    "cheap": st.decimals(min_value=0, max_value=9, places=3),
    "dear": st.decimals(min_value=0, max_value=9, places=3),
}


def lines_add_up(
    make_trace: MakeTrace,
    tmp_path: Path,
    attempts: list[tuple[str, str, int, int, float]],
    cheap: Decimal,
    dear: Decimal,
) -> None:
    first, change = dt.datetime(2026, 1, 1), dt.datetime(2026, 2, 10)
    spans = [(first + dt.timedelta(seconds=s), first + dt.timedelta(seconds=s + n)) for _, _, s, n, _ in attempts]
    trace = make_trace(
        jobs=[
            {"job_id": str(i), "account": a, "gpu_count": g, "gpu_model": m}
            for i, (a, m, _, _, g) in enumerate(attempts)
        ],
        attempts=[
            {"job_id": str(i), "attempt": 0, "gpu_count": a[4], "start_time": s, "end_time": e, "run_s": float(a[3])}
            for i, (a, (s, e)) in enumerate(zip(attempts, spans, strict=True))
        ],
    )
    text = f'currency = "EUR"\n[[price]]\nper_gpu_hour = "{cheap}"\n[[price]]\nper_gpu_hour = "{dear}"\n'
    text += f"from = {change.date()}\n"
    bill = tracekit.efficiency(trace, prices=prices_file(tmp_path, text)).bill
    assert bill is not None
    # Second by second of each attempt, before and after the change.
    exact = Fraction(0)
    for (_, _, _, _, gpus), (start, end) in zip(attempts, spans, strict=True):
        before = max((min(end, change) - start).total_seconds(), 0)
        after = max((end - max(start, change)).total_seconds(), 0)
        exact += (Fraction(before) * Fraction(cheap) + Fraction(after) * Fraction(dear)) * Fraction(gpus) / 3600
    assert sum(bill.frame["cost"], Decimal(0)) == bill.total == rounded(exact, 2)
    held = sum((Fraction(n) * Fraction(g) for _, _, _, n, g in attempts), Fraction(0)) / 3600
    assert sum(bill.frame["gpu_hours"], Decimal(0)) == rounded(held, 6)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**SOME_ATTEMPTS)
def test_the_lines_add_up_to_the_exact_total_to_the_cent(make_trace: MakeTrace, tmp_path: Path, **drawn: Any) -> None:
    lines_add_up(make_trace, tmp_path, **drawn)


def test_attempts_on_both_sides_of_a_new_price_add_up_to_the_cent(make_trace: MakeTrace, tmp_path: Path) -> None:
    # 40 days lie before the new price: one attempt ends before it, one goes over it, and one begins after it.
    attempts = [("p", "a100", 7, 86_399, 0.25), ("q", "h100", 39 * 86_400, 3 * 86_400 + 1, 3.0)]
    attempts.append(("p", "h100", 41 * 86_400, 7, 8.0))
    lines_add_up(make_trace, tmp_path, attempts, cheap=Decimal("0.333"), dear=Decimal("8.999"))


@pytest.mark.thorough
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(**SOME_ATTEMPTS)
def test_the_lines_of_many_logs_add_up(make_trace: MakeTrace, tmp_path: Path, **drawn: Any) -> None:
    lines_add_up(make_trace, tmp_path, **drawn)


@pytest.mark.parametrize(
    "sample", ["slurm", *(pytest.param(s, marks=pytest.mark.thorough) for s in ("philly", "helios"))]
)
def test_the_bill_of_a_sample_is_that_of_its_gpu_hours(
    sample: str, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    trace = sample_trace(sample)
    text = 'currency = "EUR"\n[[price]]\nper_gpu_hour = "1.37"\n[[price]]\nper_gpu_hour = "2.11"\ngpu_model = "h100"\n'
    bill = tracekit.efficiency(trace, prices=prices_file(tmp_path, text)).bill
    assert bill is not None
    models = trace.scan("jobs").select("job_id", dear=(pl.col("gpu_model") == "h100").fill_null(value=False)).collect()
    held = (
        trace.scan("attempts")
        .collect()
        .join(models, on="job_id")
        .drop_nulls(["start_time", "end_time", "gpu_count"])
        .select("dear", us=(pl.col("end_time") - pl.col("start_time")).dt.total_microseconds(), gpus="gpu_count")
    )
    exact = sum(
        (Fraction("2.11") if dear else Fraction("1.37")) * us * Fraction(gpus).limit_denominator(10**6)
        for dear, us, gpus in held.iter_rows()
    )
    assert sum(bill.frame["cost"].drop_nulls(), Decimal(0)) == rounded(Fraction(exact) / 3_600_000_000, 2)
    idle, failed = (bill.frame[name].drop_nulls().sum() for name in ("idle_cost", "failed_cost"))
    assert 0 <= float(idle) <= float(bill.total)
    assert 0 <= float(failed) <= float(bill.total)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"month": "2026-13"}, "'2026-13' is not a month"),
        ({"month": "2026-1"}, "'2026-1' is not a month"),
        ({"month": "2026-01", "prices": None}, "month: works only with prices"),
        ({"jobs": -1}, "is below 0"),
        ({"salt_file": "salt"}, "works only with --anonymize"),
    ],
)
def test_what_makes_no_bill_is_one_line(
    make_trace: MakeTrace, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "account": "p", "gpu_count": 1}],
        attempts=[attempt("a", "2026-01-01 00:00", "2026-01-01 01:00", 1)],
    )
    with pytest.raises(UsageError, match=message):
        tracekit.efficiency(trace, **({"prices": prices_file(tmp_path)} | given))


def test_a_log_without_a_single_date_has_one_line_without_a_month(make_trace: MakeTrace, tmp_path: Path) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "user": "x", "gpu_count": 1}],
        attempts=[{"job_id": "a", "attempt": 0, "gpu_count": 1, "run_s": 3600}],
    )
    bill = tracekit.efficiency(trace, prices=prices_file(tmp_path)).bill
    assert bill is not None
    assert bill.frame.select("user", "month", "gpu_hours", "cost").rows() == [("x", None, Decimal(1), None)]
    assert bill.total == 0


def test_months_of_a_log_without_a_calendar_are_reported_to_be_none(
    make_trace: MakeTrace, tmp_path: Path, golden: Golden
) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "user": "x", "gpu_count": 1, "gpu_model": "a100"}],
        attempts=[attempt("a", "1970-01-31 23:00", "1970-02-01 01:00", 1)],
        manifest_overrides={"time_base": "relative"},
    )
    bill = tracekit.efficiency(trace, prices=prices_file(tmp_path)).bill
    assert bill is not None
    assert bill.frame["month"].to_list() == ["1970-01", "1970-02"]
    golden(bill.notes[-1])
