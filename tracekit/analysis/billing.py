"""The bill of an analysis: its lines in the report, and bill.csv beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.gpu_hours.bill import bill_question, make_bill
from tracekit.gpu_hours.dimensions import first_known
from tracekit.gpu_hours.prices import prices_of, read_prices
from tracekit.outputs import output_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.anonymous import HiddenTrace
    from tracekit.answer import Answer, Unanswered
    from tracekit.characterize.session import Session
    from tracekit.progress import Progress

__all__ = ["BILL", "PRICES", "bill_answers", "find_prices"]

BILL = "bill.csv"
"""The bill's file, relative to the report."""

PRICES = "prices.toml"
"""The name of a file of prices that is used without being named, in the folder that is analyzed."""

_EFFICIENCY = "utilization/efficiency"


def find_prices(source: Path, prices: Path | None, progress: Progress) -> Path | None:
    """Return the prices that are named, else those that lie in the source; they are refused before any work.

    Raises
    ------
    UsageError
        See `read_prices`.
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
    folder: Path,
    answers: Iterable[Answer | Unanswered],
    session: Session,
    by: str | None = None,
) -> list[Answer | Unanswered]:
    """Return the bill and write it to `folder`; nothing where there are no prices. `by` is what the user chose.

    What counts as failed follows the answer on efficiency, so that the two agree.
    """
    if prices is None:
        return []
    trace = source.trace
    by = by or first_known(trace, "account", "vc", "user", "cluster")
    stated = prices_of(prices, source)
    if not trace.has("jobs") or not trace.has("attempts"):
        return [bill_question(by, stated.currency).unanswered("The trace does not say how long jobs held GPUs.")]
    rule = next((str(a.params["rule"]) for a in answers if a.name == _EFFICIENCY and hasattr(a, "params")), "stated")
    bill = make_bill(trace, stated, by=by, rule=rule, session=session)
    with output_errors(folder):
        (folder / BILL).write_text(bill.frame.write_csv(), encoding="utf-8", newline="")
    return [bill.answer()]
