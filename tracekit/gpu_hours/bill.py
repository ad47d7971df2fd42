"""Bill allocated, idle, failed and waiting GPU-hours with their cost, by account and month."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.characterize.session import Session
from tracekit.text import counted
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import duckdb
    import polars as pl

    from tracekit.gpu_hours.prices import Prices
    from tracekit.trace import Trace


# Split a log's months where prices change, so that each kind of GPU-hour has one price per period.


@dataclass(frozen=True)
class Period:
    """A period in which neither the month nor a price changes."""

    since: dt.datetime
    """Start [UTC]."""
    until: dt.datetime
    """End, exclusive [UTC]."""
    month: str
    """Month in the Trace's time zone, such as '2026-11'."""


def periods_between(
    first: dt.datetime, last: dt.datetime, changes: Collection[dt.datetime], timezone: str
) -> list[Period]:
    """Return the periods that cover the time from `first` to `last` [UTC], in order and without gaps.

    Parameters
    ----------
    first, last : datetime
        First and last time of the log.
    changes : collection of datetime
        Other times at which a period begins, such as price changes [UTC].
    timezone : str
        Time zone of the months.
    """
    zone = ZoneInfo(timezone)
    year, month = _local(first, zone)
    months: list[tuple[dt.datetime, str]] = []
    while not months or months[-1][0] <= last:
        begin = dt.datetime(year, month, 1, tzinfo=zone).astimezone(dt.UTC).replace(tzinfo=None)
        months.append((begin, f"{year:04}-{month:02}"))
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    found = []
    for (begin, name), (end, _) in pairwise(months):
        times = [begin, *sorted(time for time in changes if begin < time < end), end]
        found += [Period(since, until, name) for since, until in pairwise(times)]
    return found


def _local(time: dt.datetime, zone: ZoneInfo) -> tuple[int, int]:
    """Return the year and month of a time [UTC] in a zone."""
    there = time.replace(tzinfo=dt.UTC).astimezone(zone)
    return there.year, there.month


# Round exact amounts so that they add up to the rounded total.


def rounded(amount: Fraction, digits: int) -> Decimal:
    """Return a nonnegative amount rounded to `digits` decimal places, halves up."""
    return Decimal((amount * 10**digits + Fraction(1, 2)).__floor__()).scaleb(-digits)


def apportion(amounts: Sequence[Fraction], digits: int) -> list[Decimal]:
    """Round nonnegative amounts to `digits` decimal places so that they add up to the rounded exact sum.

    Each amount is rounded down. The units missing from the total are added to the amounts with the largest remainders,
    and to earlier amounts first if remainders are equal (Hamilton's method). Every amount is off by less than one unit.

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


_TABLES = ("attempts", "placements", "nodes", "gpu_utilization", "job_usage")
"""Tables that are treated as empty if they are missing from the Trace."""

_KINDS = ("held", "idle", "failed", "waiting")

_HOURS = 6
"""Decimal places of GPU-hours."""

_UNITS = 3_600_000_000
"""Number of GPU*microseconds in a GPU-hour."""

_NO_DATES = "the Trace has no real dates, so months and price dates follow its own calendar"

_MOST_NAMED = 5
"""Maximum number of kinds of GPU-hours without a price that a note names."""

_FAILED = {"stated": "a.failed", "retried": "a.failed_or_retried"}
"""The column that shows whether an attempt failed, by the rule of utilization/efficiency."""

_KEY = {"user": 'j."user"', "partition": 'j."partition"', "gpu_model": "m.gpu_model"}

# Attempts and waits are split where a period begins. GPU time is a multiple of 1e-6 GPU*microseconds.
_SQL = """
WITH timed AS (
    SELECT
        a.job_id,
        a.start_time AS since,
        a.end_time AS until,
        CAST(a.gpu_count AS DECIMAL(18, 6)) AS gpus,
        CAST(a.idle_gpu_s AS DOUBLE) / CAST(a.gpu_s AS DOUBLE) AS idle,
        {failed} AND a.status IS DISTINCT FROM 'timeout' AS failed,
        FALSE AS waiting
    FROM attempt_use AS a
    WHERE a.gpu_s > 0 AND a.start_time IS NOT NULL AND a.end_time IS NOT NULL
    UNION ALL
    SELECT
        a.job_id,
        a.start_time - to_microseconds(CAST(round(a.wait_s * 1000000) AS BIGINT)),
        a.start_time,
        CAST(a.gpu_count AS DECIMAL(18, 6)),
        NULL,
        NULL,
        TRUE
    FROM attempts AS a
    WHERE a.wait_s > 0 AND a.gpu_count > 0 AND a.start_time IS NOT NULL
),

pieces AS (
    SELECT
        t.*,
        p.number AS period,
        CAST(epoch_us(least(t.until, p.until)) - epoch_us(greatest(t.since, p.since)) AS DECIMAL(19, 0)) * t.gpus
            AS gpu_us
    FROM timed AS t
    INNER JOIN bill_periods AS p ON t.since < p.until AND t.until > p.since
),

-- Attempts without dates belong to no month.
undated AS (
    SELECT
        a.job_id,
        CAST(NULL AS BIGINT) AS period,
        CAST(a.gpu_s * 1000000 AS DECIMAL(38, 6)) AS held,
        CAST(a.idle_gpu_s * 1000000 AS DECIMAL(38, 6)) AS idle,
        CASE
            WHEN {failed} AND a.status IS DISTINCT FROM 'timeout' THEN CAST(a.gpu_s * 1000000 AS DECIMAL(38, 6))
            WHEN {failed} IS NOT NULL THEN 0
        END AS failed,
        0 AS waiting
    FROM attempt_use AS a
    WHERE a.gpu_s > 0 AND (a.start_time IS NULL OR a.end_time IS NULL)
),

parts AS (
    SELECT
        job_id,
        period,
        CASE WHEN waiting THEN 0 ELSE gpu_us END AS held,
        CAST(CAST(gpu_us AS DOUBLE) * idle AS DECIMAL(38, 6)) AS idle,
        CASE WHEN failed THEN gpu_us WHEN failed IS NOT NULL THEN 0 END AS failed,
        CASE WHEN waiting THEN gpu_us ELSE 0 END AS waiting
    FROM pieces
    UNION ALL
    SELECT * FROM undated
)

SELECT
    {key} AS key,
    p.period,
    m.gpu_model,
    CASE WHEN j."partition" IN (SELECT name FROM bill_partitions) THEN j."partition" END AS partition,
    sum(p.held) AS held,
    sum(p.idle) AS idle,
    sum(p.failed) AS failed,
    sum(p.waiting) AS waiting
FROM parts AS p
INNER JOIN jobs AS j ON p.job_id = j.job_id
LEFT JOIN job_gpu_models AS m ON p.job_id = m.job_id
GROUP BY ALL
"""

_RULE = """\
Held GPU-hours are the run time of an attempt times its GPUs, as in utilization/efficiency. Attempts and
waits are split where a month (in the Trace's time zone) or a price begins. The most specific price that fits the GPU
model (view job_gpu_models), the partition and the time applies. GPU-hours without a price have their own line, without
a cost. GPU-hours without dates belong to no month and have no price. Idle GPU-hours are computed as in
utilization/efficiency and spread evenly over the attempt. Without telemetry, GPU-hours do not count as idle. Failed
GPU-hours were allocated to attempts that failed, except for timeouts. Both are NULL if unknown. They are parts of the
held GPU-hours, so their costs are parts of that cost. Waiting GPU-hours are the waits of started attempts times their
GPUs, at the price of the GPU-hours that they waited for. They are not part of the cost. Amounts are computed exactly.
The lines of each cost column add up to the rounded exact total (the largest remainders are rounded up). GPU-hours are
rounded in the same way, to six digits."""

_WORDS = {
    "held": ("gpu_hours", "cost", "allocated"),
    "idle": ("idle_gpu_hours", "idle_cost", "allocated but idle according to telemetry"),
    "failed": ("failed_gpu_hours", "failed_cost", "allocated to attempts that failed"),
    "waiting": ("waiting_gpu_hours", "waiting_cost", "waited for (not part of the cost)"),
}
"""The hour and cost columns of each kind of GPU-hours, with the kind's meaning."""


@dataclass(frozen=True)
class Bill:
    """GPU-hours and their cost, with one line for each key, month, GPU model and price."""

    by: str
    """Dimension in the first column."""
    currency: str
    total: Decimal
    """Sum of the costs."""
    frame: pl.DataFrame
    notes: tuple[str, ...]
    """One sentence each on the total and on GPU-hours without a price or dates."""

    def answer(self) -> Answer:
        """Return the bill as an Answer, with costs as plain numbers."""
        import polars as pl

        shown = self.frame.with_columns(pl.selectors.decimal().cast(pl.Float64))
        return Answer(bill_question(self.by, self.currency), shown, notes=self.notes)


def make_bill(
    trace: Trace,
    prices: Prices,
    *,
    by: str = "account",
    month: str | None = None,
    rule: str = "stated",
    session: Session | None = None,
) -> Bill:
    """Compute the cost of a Trace's GPU-hours.

    Parameters
    ----------
    trace : Trace
        The Trace with jobs and attempts.
    prices : Prices
        The prices (see `read_prices`).
    by : str
        Dimension of the lines, one of `DIMENSIONS`.
    month : str, optional
        The only month to bill, such as '2026-11'. The lines add up to the month's exact total.
    rule : str
        Attempts that count as failed: those with a failure status ('stated'), or also those with an unknown end that
        were retried ('retried').
    session : Session, optional
        Databases and timelines shared with queries of the same Trace, including the memory limit.

    Raises
    ------
    DamagedTraceError
        A table cannot be read.
    """
    session = session or Session(trace)
    with session.connect(_TABLES, _SQL) as con:
        ends = con.execute(
            "SELECT min(start_time - to_microseconds(CAST(round(coalesce(wait_s, 0) * 1000000) AS BIGINT))),"
            " max(coalesce(end_time, start_time)) FROM attempts"
        ).fetchall()
        first, last = ends[0]
        changes = {time for price in prices.prices for time in (price.since, price.until)}
        periods = [] if first is None else periods_between(first, last, changes, known_zone(trace.timezone))
        groups = _groups(con, periods, prices, by, rule)
    lines = _lines(groups, periods, prices, month)
    bill = _bill(lines, prices, by, month)
    return bill if trace.manifest.time_base == "absolute" else replace(bill, notes=(*bill.notes, _NO_DATES))


def _groups(
    con: duckdb.DuckDBPyConnection, periods: Sequence[Period], prices: Prices, by: str, rule: str
) -> Iterator[dict[str, Any]]:
    """Return GPU time by key, period, GPU model, and (if it has its own price) partition."""
    import polars as pl

    times = pl.DataFrame(
        [(number, p.since, p.until) for number, p in enumerate(periods)],
        schema={"number": pl.Int64, "since": pl.Datetime("us"), "until": pl.Datetime("us")},
        orient="row",
    )
    named = sorted({p.partition for p in prices.prices if p.partition is not None})
    con.register("bill_periods", times.to_arrow())
    con.register("bill_partitions", pl.DataFrame({"name": named}, schema={"name": pl.String}).to_arrow())
    key = _KEY.get(by, f"j.{by}")
    found: pl.DataFrame = pl.DataFrame(con.sql(_SQL.format(key=key, failed=_FAILED[rule])))
    return found.iter_rows(named=True)


_Line = tuple[str | None, str | None, str | None, Decimal | None]
"""Key, month, GPU model and price."""

_Hours = list[Fraction | None]
"""GPU-hours of each kind, or None if unknown."""


def _lines(
    groups: Iterator[dict[str, Any]], periods: Sequence[Period], prices: Prices, month: str | None
) -> dict[_Line, _Hours]:
    """Return each line's GPU-hours of each kind."""
    found: dict[_Line, _Hours] = {}
    for group in groups:
        period = None if group["period"] is None else periods[group["period"]]
        name = None if period is None else period.month
        if month is not None and name != month:
            continue
        model = group["gpu_model"]
        price = None
        if period is not None:
            price = prices.at(None if model is None else model.lower(), group["partition"], period.since)
        line = (group["key"], name, model, None if price is None else price.amount)
        hours = found.setdefault(line, [None] * len(_KINDS))
        for place, kind in enumerate(_KINDS):
            if group[kind] is not None:
                hours[place] = (hours[place] or Fraction(0)) + Fraction(group[kind]) / _UNITS
    return {line: hours for line, hours in found.items() if any(hours)}


def _bill(lines: dict[_Line, _Hours], prices: Prices, by: str, month: str | None) -> Bill:
    import polars as pl

    def order(line: _Line) -> tuple[Any, ...]:
        key, name, model, price = line
        return (name is None, name or "", key is None, key or "", model is None, model or "", price is None, price or 0)

    ordered = sorted(lines, key=order)
    columns: dict[str, pl.Series] = {
        by: pl.Series([line[0] for line in ordered], dtype=pl.String),
        "month": pl.Series([line[1] for line in ordered], dtype=pl.String),
    }
    # Name each model only once if the lines are by GPU model.
    if by != "gpu_model":
        columns["gpu_model"] = pl.Series([line[2] for line in ordered], dtype=pl.String)
    amounts = [None if line[3] is None else f"{line[3].normalize():f}" for line in ordered]
    columns["price_per_gpu_hour"] = pl.Series(amounts, dtype=pl.String)
    total = Decimal(0)
    for place, kind in enumerate(_KINDS):
        hours = [lines[line][place] for line in ordered]
        exact = [
            None if h is None or line[3] is None else h * Fraction(line[3])
            for h, line in zip(hours, ordered, strict=True)
        ]
        costs = _apportioned(exact, prices.decimals)
        hours_name, cost_name, _ = _WORDS[kind]
        columns[hours_name] = pl.Series(_apportioned(hours, _HOURS), dtype=pl.Decimal(38, _HOURS))
        columns[cost_name] = pl.Series(costs, dtype=pl.Decimal(38, prices.decimals))
        if kind == "held":
            total = sum((cost for cost in costs if cost is not None), rounded(Fraction(0), prices.decimals))
    columns["currency"] = pl.Series([prices.currency] * len(ordered), dtype=pl.String)
    return Bill(by, prices.currency, total, pl.DataFrame(columns), _notes(lines, prices, total, month))


def _apportioned(amounts: Sequence[Fraction | None], digits: int) -> list[Decimal | None]:
    """Round amounts so that they add up to the rounded total. Unknown amounts stay unknown."""
    parts = iter(apportion([amount for amount in amounts if amount is not None], digits))
    return [None if amount is None else next(parts) for amount in amounts]


def _notes(lines: dict[_Line, _Hours], prices: Prices, total: Decimal, month: str | None) -> tuple[str, ...]:
    priced = sum((hours[0] or Fraction(0) for line, hours in lines.items() if line[3] is not None), Fraction(0))
    when = "" if month is None else f" in {month}"
    found = [f"{total:,} {prices.currency} for {counted(round(float(priced), 2), 'GPU-hours')}{when}"]
    without: dict[str, Fraction] = {}
    for (_, name, model, price), hours in lines.items():
        if price is None:
            what = (
                "without dates" if name is None else f"of {model}" if model is not None else "of an unknown GPU model"
            )
            without[what] = without.get(what, Fraction(0)) + (hours[0] or Fraction(0))
    missing = {what: hours for what, hours in without.items() if hours}
    if missing:
        largest = sorted(missing, key=lambda what: (-missing[what], what))
        named = [f"{float(missing[what]):,.2f} {what}" for what in largest[:_MOST_NAMED]]
        more = f" and {len(largest) - _MOST_NAMED} more" if len(largest) > _MOST_NAMED else ""
        total_hours = float(sum(missing.values(), Fraction(0)))
        found.append(f"another {total_hours:,.2f} GPU-hours have no price and are not billed: {', '.join(named)}{more}")
    return tuple(found)


def bill_question(by: str, currency: str) -> Question:
    """Return the question that a bill by the dimension `by` answers."""
    word = by.replace("_", " ")
    columns = [
        AnswerColumn(by, "text", f"the jobs' {word}, or NULL if unknown"),
        AnswerColumn("month", "text", "the month in the Trace's time zone, or NULL for GPU-hours without dates"),
        *([] if by == "gpu_model" else [AnswerColumn("gpu_model", "text", "the GPU model, or NULL if unknown")]),
        AnswerColumn("price_per_gpu_hour", "text", "the price as written in the file, or NULL if none fits"),
    ]
    for hours, cost, what in _WORDS.values():
        columns.append(AnswerColumn(hours, "GPU-hours", what))
        columns.append(AnswerColumn(cost, currency, f"cost of the GPU-hours {what}, or NULL without a price"))
    columns.append(AnswerColumn("currency", "text", "currency of the costs"))
    return Question(
        name="money/bill",
        kind="bill",
        title=f"Bill by {word} and month",
        question="What did the GPU-hours cost, including idle, failed and waiting GPU-hours?",
        columns=tuple(columns),
        rule=_RULE,
    )
