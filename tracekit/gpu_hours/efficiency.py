"""Find out the efficiency and cost of GPU-hours in one call."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.anonymous import HiddenTrace, opened
from tracekit.characterize.run import answer_query
from tracekit.characterize.session import Session
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.gpu_hours.bill import make_bill
from tracekit.gpu_hours.dimensions import check_dimension, first_known
from tracekit.gpu_hours.prices import prices_of

if TYPE_CHECKING:
    import polars as pl

    from tracekit.gpu_hours.bill import Bill
    from tracekit.trace import Trace


_LIST = "utilization/jobs_to_look_at"


@dataclass(frozen=True)
class Efficiency:
    """Who gets GPU-hours, which jobs waste them, and what they cost."""

    by: str
    """The dimension of the rows in `frame`, which is also the name of its first column."""
    frame: pl.DataFrame
    """One row per value of the dimension, worst first. The other columns come from utilization/efficiency."""
    jobs: pl.DataFrame | None
    """Jobs to look at, with the columns of utilization/jobs_to_look_at, or None if not requested."""
    bill: Bill | None = None
    """The bill, or None without prices."""
    notes: tuple[str, ...] = field(default=())
    """Caveats for the reader, one sentence each."""


@explain_damage()
def efficiency(
    trace: Trace | str | Path,
    by: str | None = None,
    *,
    jobs: int = 20,
    prices: str | Path | None = None,
    month: str | None = None,
    anonymize: bool = False,
    salt_file: str | Path | None = None,
    memory_limit: str | None = None,
) -> Efficiency:
    """Find out who gets GPU-hours, how many are used, idle, failed or preempted, and what they cost.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    by : str, optional
        One of user, account, partition, qos, gpu_model, vc and cluster. The default is user or, with prices, the first
        of account, vc, user and cluster that the Trace records.
    jobs : int
        Maximum number of jobs to look at, or 0 for no list.
    prices : str or Path, optional
        Price file for the bill (TOML).
    month : str, optional
        Month of the bill, such as '2026-11'. The default is all months.
    anonymize : bool
        Whether to replace names with pseudonyms.
    salt_file : str or Path, optional
        File with the salt of the pseudonyms, which is created if it does not exist.
    memory_limit : str, optional
        Memory limit of DuckDB before it spills to disk, such as '2GB'.

    Raises
    ------
    UsageError
        The dimension does not exist, the Trace does not record it for any job, or the prices or the month are invalid.
    QueryError
        The Trace has no attempts, so it is unknown who was allocated GPUs.
    """
    if jobs < 0:
        raise UsageError("is below 0", where="jobs", hint="give a number of jobs")
    if month is not None and prices is None:
        raise UsageError("works only with prices", where="month", hint="add --prices FILE")
    if month is not None and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month) is None:
        raise UsageError(f"'{month[:60]}' is not a month", where="month", hint="write it like 2026-11")
    salt = None if salt_file is None else Path(salt_file)
    with opened(trace, anonymize=anonymize, salt_file=salt, memory_limit=memory_limit) as hidden:
        found = _measured(hidden, by, jobs, None if prices is None else Path(prices), month, memory_limit)
    return replace(found, notes=(*hidden.notes, *found.notes))


def _measured(
    hidden: HiddenTrace, by: str | None, jobs: int, prices: Path | None, month: str | None, memory_limit: str | None
) -> Efficiency:
    trace = hidden.trace
    stated = None if prices is None else prices_of(prices, hidden)
    if by is None:
        by = first_known(trace, *(["user"] if stated is None else []), "account", "vc", "user", "cluster")
    else:
        check_dimension(trace, by)
    session = Session(trace, memory_limit)
    rows = answer_query(trace, "utilization/efficiency", {"by": by}, session=session)
    # Compute the list only if it was requested.
    listed = answer_query(trace, _LIST, {"n": jobs}, session=session) if jobs else None
    bill = None if stated is None else make_bill(trace, stated, by=by, month=month, session=session)
    notes = dict.fromkeys((*rows.notes, *(listed.notes if listed else ()), *(bill.notes if bill else ())))
    return Efficiency(by, rows.frame.rename({"key": by}), listed.frame if listed else None, bill, tuple(notes))
