"""Compute the bill of an analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.faults import Fault
from tracekit.gpu_hours.bill import bill_question, make_bill
from tracekit.gpu_hours.dimensions import first_known
from tracekit.gpu_hours.prices import prices_of, read_prices

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.anonymous import HiddenTrace
    from tracekit.answer import Answer, Unanswered
    from tracekit.characterize.session import Session
    from tracekit.faults import Faults
    from tracekit.gpu_hours.bill import Bill
    from tracekit.progress import Progress

__all__ = ["PRICES", "bill_answers", "find_prices"]

PRICES = "prices.toml"
"""A price file with this name in the analyzed folder is used automatically."""

_EFFICIENCY = "utilization/efficiency"


def find_prices(source: Path, prices: Path | None, progress: Progress) -> Path | None:
    """Return the given price file, or else the price file in the source. Reject an invalid file before any work.

    Raises
    ------
    UsageError
        As in `read_prices`.
    """
    beside = source / PRICES
    if prices is None and beside.is_file():
        progress.note(f"prices of GPU-hours: {beside}")
        prices = beside
    if prices is not None:
        read_prices(prices, "UTC")
    return prices


def bill_answers(
    source: HiddenTrace,
    prices: Path | None,
    answers: Iterable[Answer | Unanswered],
    session: Session,
    faults: Faults,
    by: str | None = None,
) -> tuple[list[Answer | Unanswered], Bill | None]:
    """Return the bill's lines for the report, and the bill; nothing without prices. The user may set `by`.

    Failed jobs are those of the answer on efficiency. `faults` records a failed bill.
    """
    if prices is None:
        return [], None
    by = by or first_known(source.trace, "account", "vc", "user", "cluster")
    billed = faults.run("the bill", _billed, source, prices, answers, session, by)
    if isinstance(billed, Fault):
        return [bill_question(by, "").unanswered(billed.remark, failed=True)], None
    return billed


def _billed(
    source: HiddenTrace, prices: Path, answers: Iterable[Answer | Unanswered], session: Session, by: str
) -> tuple[list[Answer | Unanswered], Bill | None]:
    trace = source.trace
    stated = prices_of(prices, source)
    if not trace.has("jobs") or not trace.has("attempts"):
        why = "The trace does not record how long jobs used GPUs."
        return [bill_question(by, stated.currency).unanswered(why)], None
    rule = next((str(a.params["rule"]) for a in answers if a.name == _EFFICIENCY and hasattr(a, "params")), "stated")
    bill = make_bill(trace, stated, by=by, rule=rule, session=session)
    return [bill.answer()], bill
