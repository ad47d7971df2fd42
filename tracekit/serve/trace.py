"""What a server knows of its Trace: the report, and the databases of the parts that were asked lately."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tracekit.analysis.query_defaults import parameters_of, query_defaults
from tracekit.characterize import answer_query, find_query
from tracekit.errors import QueryError, nearest
from tracekit.report.answers import answer_info
from tracekit.report.data import all_facts, time_info, trace_facts
from tracekit.report.facts import NO_TELEMETRY
from tracekit.report.headline import FIRST
from tracekit.report.page import render_report
from tracekit.report.sections.interface import why_empty
from tracekit.report.structure import ROW_LIMIT
from tracekit.report.telemetry import telemetry_coverage
from tracekit.serve.limits import AskedSession
from tracekit.serve.part import narrowed
from tracekit.tables.partitions import SAMPLE_TABLES
from tracekit.tables.window import EVERYTHING
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.analysis.reporting import TraceReport
    from tracekit.answer import Answer
    from tracekit.characterize import Query
    from tracekit.characterize.limits import Stop
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.report.structure import AnswerInfo
    from tracekit.tables.window import Window
    from tracekit.trace import Trace

__all__ = ["PartAnswer", "ServedTrace"]

_KEPT_PARTS = 4
"""Parts whose databases are kept: what was asked just now is often asked again."""


@dataclass(frozen=True)
class PartAnswer:
    """The answer to a question about a part of the Trace."""

    info: AnswerInfo
    facts: TraceFacts
    """What its sentence and charts are made with."""
    empty: str | None
    """Why its rows say nothing; None where they do say something."""


@dataclass
class _Part:
    trace: Trace
    session: AskedSession
    facts: TraceFacts
    """Without telemetry."""


@contextlib.contextmanager
def _worked_on(asked: _Part, stop: Stop) -> Iterator[None]:
    """Have the block's SQL stopped by `stop`, and an error of SQL that was stopped say so."""
    with asked.session.used_by(stop):
        try:
            yield
        except QueryError:
            stop.check()  # what was interrupted looks like SQL that failed
            raise


def _micros(time: datetime) -> int:
    """Return a time without a zone, of UTC, as microseconds since 1970."""
    return (time - datetime(1970, 1, 1)) // timedelta(microseconds=1)


class ServedTrace:
    """A Trace and its report, which questions are asked of.

    Parameters
    ----------
    trace : Trace
        As it was opened, with its tenant (`Trace.by`).
    report : TraceReport
        Its report.
    memory_limit : str, optional
        Most memory of a question before it spills to disk, such as '2GB'.
    """

    def __init__(self, trace: Trace, report: TraceReport, memory_limit: str | None = None) -> None:
        self.trace, self.report, self._memory_limit = trace, report, memory_limit
        data = report.data
        self.title = data["title"]
        self._answered = report.answered
        self._defaults = query_defaults(trace, data["capacity"])
        self._parts: OrderedDict[Window, _Part] = OrderedDict()
        self._lock = threading.Lock()
        self.page = render_report(data, served=True).encode("utf-8", errors="replace")
        self._whole = self._made(EVERYTHING)

    @property
    def facts(self) -> TraceFacts:
        """What is known of the whole."""
        return self._whole.facts

    @property
    def whole(self) -> AskedSession:
        """The databases of the whole."""
        return self._whole.session

    def question(self, name: str) -> Query:
        """Return a question that the report answers by SQL.

        Raises
        ------
        QueryError
            There is none of that name.
        """
        known = [one.name for one in self._answered.values() if one.question.kind == "query"]
        if name not in known:
            raise QueryError(f"the report has no question '{shorten(name)}'", hint=nearest(name, known))
        return find_query(name)

    def answer(self, name: str, part: Window, stop: Stop) -> PartAnswer:
        """Return the answer to a question of the report about a part of the Trace, as the report would state it.

        Parameters
        ----------
        name : str
            Of the question.
        part : Window
            What is asked.
        stop : Stop
            Ends the SQL from another thread.

        Raises
        ------
        QueryError
            The report has no such question, or the SQL fails.
        UsageError
            The Trace has no such part.
        DamagedTraceError
            A table cannot be read.
        StoppedError
            It was stopped.
        """
        question = self.question(name)
        asked = self._part(part)
        with _worked_on(asked, stop):
            found, why = self._found(asked, question)
            facts = self._with_telemetry(asked, question)
            remarks = [note for note in found.notes if note not in asked.trace.notes]
            found = replace(found, notes=(*remarks, *why))
            info = answer_info(asked.trace, found, facts, session=asked.session, published=False)
        return PartAnswer(info, facts, why_empty(name, found.rows(ROW_LIMIT), facts))

    def first(self, part: Window, stop: Stop) -> Answer:
        """Return the answer to `FIRST` about a part: what its jobs waited, held and completed in its time.

        GPUs that are held in a time are held by jobs that came earlier too; so the jobs are those of the part whenever
        they were submitted, and the question itself is asked about the time.

        Raises
        ------
        TracekitError
            As `answer` does.
        """
        question = self.question(FIRST)
        asked = self._part(replace(part, start=None, end=None))
        bounds = {"from_us": part.start, "to_us": part.end}
        given = {name: _micros(time) for name, time in bounds.items() if time is not None}
        with _worked_on(asked, stop):
            return self._found(asked, question, given)[0]

    def _found(self, asked: _Part, question: Query, given: dict[str, int] | None = None) -> tuple[Answer, list[str]]:
        """Return the answer to a question, and why parameters of it are not its own defaults."""
        params, why = parameters_of(question, self._defaults)
        return answer_query(asked.trace, question, {**params, **(given or {})}, session=asked.session), why

    def _part(self, part: Window) -> _Part:
        if not part:
            return self._whole
        with self._lock:
            known = self._parts.get(part)
            if known is None:
                known = self._parts[part] = self._made(part)
            self._parts.move_to_end(part)
            while len(self._parts) > _KEPT_PARTS:
                self._parts.popitem(last=False)
        return known

    def _made(self, part: Window) -> _Part:
        trace = narrowed(self.trace, part)
        data = self.report.data
        facts = all_facts(trace, self._answered, data["capacity"], data["quality"], time_info(trace), NO_TELEMETRY)
        # A part has the days of the whole.
        facts = replace(facts, day_zero=trace_facts(data["quality"], data["time"]).day_zero)
        return _Part(trace, AskedSession(trace, self._memory_limit), facts)

    def _with_telemetry(self, asked: _Part, question: Query) -> TraceFacts:
        """Return facts with the coverage of samples, which takes reading them, where the question is about these."""
        tables = {*question.tables, *question.also, *question.one_of}
        if tables.isdisjoint(SAMPLE_TABLES):
            return asked.facts
        return replace(asked.facts, telemetry=telemetry_coverage(asked.trace, asked.session))
