"""The part of a Trace that a page requests: parse it from an address, and describe it."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from tracekit.errors import UsageError, nearest
from tracekit.report.times import local, moment_words, period_words, trace_day
from tracekit.tables.window import SIZE, WHERE, Window, chosen_jobs, utc
from tracekit.tenant import INGESTED
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.report.sections.interface import TraceFacts
    from tracekit.trace import Trace

__all__ = ["narrowed", "part_of", "words_of"]

_WHERE = "where."
_CLUSTER = "cluster"
_TIMES = ("since", "until")


def part_of(given: Iterable[tuple[str, str]]) -> Window:
    """Return the part that an address selects with its parameters: since, until (ISO 8601), where.user and so on.

    `narrowed` checks whether these values exist in the Trace.

    Raises
    ------
    UsageError
        A parameter is unknown or given twice, a time is invalid, or the times are in the wrong order.
    """
    found: dict[str, str] = {}
    known = [*_TIMES, *(f"{_WHERE}{name}" for name in (_CLUSTER, *WHERE))]
    for name, value in given:
        if name not in known:
            raise UsageError(f"unknown parameter '{shorten(name)}'", hint=nearest(name, known))
        if name in found:
            raise UsageError(f"'{name}' is given twice")
        found[name] = value
    since, until = (_time(name, found[name]) if name in found else None for name in _TIMES)
    where = {name.removeprefix(_WHERE): value for name, value in found.items() if name.startswith(_WHERE)}
    cluster = where.pop(_CLUSTER, None)
    return Window(since, until, cluster, chosen_jobs(where))


def _time(name: str, value: str) -> datetime | None:
    try:
        return utc(datetime.fromisoformat(value))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"'{shorten(value)}' is not a time", where=name, hint="write it like 2017-10-03") from error


def narrowed(trace: Trace, part: Window) -> Trace:
    """Return the given part of a Trace. `where.vc` refers to the Trace's tenant.

    Raises
    ------
    UsageError
        The cluster does not exist in the Trace, or no job has the value.
    DamagedTraceError
        A partition that contains some of the rows is missing or cannot be read.
    """
    return trace.window(part.start, part.end, part.cluster, dict(part.where)) if part else trace


def words_of(part: Window, facts: TraceFacts) -> str:
    """Describe a part, or return '' for the whole Trace.

    Examples
    --------
    >>> from tracekit.report.sections.interface import TraceFacts
    >>> may = Window(datetime(2020, 5, 3), datetime(2020, 5, 10), None, (("user", "alice"), ("size", "2-4")))
    >>> words_of(may, TraceFacts())
    'only user alice, jobs of 2-4 GPUs, submitted 3 to 9 May 2020'
    """
    if not part:
        return ""
    found = [] if part.cluster is None else [f"cluster {shorten(part.cluster)}"]
    for column, value in part.where:
        if column == SIZE:
            found.append(f"jobs of {value} {'GPU' if value in {'1', '<1'} else 'GPUs'}")
        else:
            name = facts.tenant.spelled if column == INGESTED else column.replace("_", " ").replace("gpu", "GPU")
            found.append(f"{name} {shorten(value)}")
    if part.start is not None or part.end is not None:
        found.append(f"submitted {_period(part.start, part.end, facts)}")
    return f"only {', '.join(found)}"


def _period(since: datetime | None, until: datetime | None, facts: TraceFacts) -> str:
    if not facts.dated:
        ends = [(word, time.isoformat()) for word, time in (("from", since), ("to", until)) if time is not None]
        if facts.clocked:
            return " ".join(f"{word} {moment_words(time, facts)}" for word, time in ends)
        return " ".join(f"{word} day {trace_day(time, facts):g}" for word, time in ends)
    first = None if since is None else local(since.isoformat(), facts.timezone)
    after = None if until is None else local(until.isoformat(), facts.timezone)
    # No hours can be added at the ends of the calendar, so the two times may be equal.
    apart = first is None or after is None or first < after
    whole = apart and all(t is None or t.time() == time.min for t in (first, after))
    form = "%-d %B %Y" if whole else "%-d %B %Y %H:%M"
    if first is None or after is None:
        if first is not None:
            return f"from {first.strftime(form)} on"
        return "" if after is None else f"before {after.strftime(form)}"
    if not whole:
        return f"{first.strftime(form)} to {after.strftime(form)}"
    last = after - timedelta(days=1)
    days = period_words(first, last)
    return f"on {days}" if first.date() == last.date() else days
