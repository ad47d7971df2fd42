"""A server's state for its Trace: the report, and the databases of recently requested parts."""

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
"""Number of parts whose databases are kept. Recent parts are often requested again."""


@dataclass(frozen=True)
class PartAnswer:
    """The answer to a question about a part of the Trace."""

    info: AnswerInfo
    facts: TraceFacts
    """Facts for its sentence and charts."""
    empty: str | None
    """Why its rows contain no information, or None if they do."""


@dataclass
class _Part:
    trace: Trace
    session: AskedSession
    facts: TraceFacts
    """Facts without telemetry coverage."""


@contextlib.contextmanager
def _worked_on(asked: _Part, stop: Stop) -> Iterator[None]:
    """Let `stop` interrupt the block's SQL, and report interrupted SQL as stopped."""
    with asked.session.used_by(stop):
        try:
            yield
        except QueryError:
            stop.check()  # interrupted SQL cannot be distinguished from failed SQL
            raise


class ServedTrace:
    """A Trace and its report, ready to answer questions.

    Parameters
    ----------
    trace : Trace
        The opened Trace with its tenant (`Trace.by`).
    report : TraceReport
        Report of the Trace.
    memory_limit : str, optional
        Maximum memory for a question before it spills to disk, such as '2GB'.
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
        """Facts about the whole Trace."""
        return self._whole.facts

    @property
    def whole(self) -> AskedSession:
        """The databases of the whole Trace."""
        return self._whole.session

    def question(self, name: str) -> Query:
        """Look up a question that the report answers by SQL.

        Raises
        ------
        QueryError
            No question has this name.
        """
        known = [one.name for one in self._answered.values() if one.question.kind == "query"]
        if name not in known:
            raise QueryError(f"the report has no question '{shorten(name)}'", hint=nearest(name, known))
        return find_query(name)

    def answer(self, name: str, part: Window, stop: Stop) -> PartAnswer:
        """Answer a question of the report for a part of the Trace, in the report's format.

        Parameters
        ----------
        name : str
            Name of the question.
        part : Window
            The selected part.
        stop : Stop
            Stops the SQL from another thread.

        Raises
        ------
        QueryError
            The report has no such question, or the SQL fails.
        UsageError
            The Trace has no such part.
        DamagedTraceError
            A table cannot be read.
        StoppedError
            The question was stopped.
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
        """Return the answer to `FIRST` for a part: waits, GPU time and completions of its jobs in its period.

        Jobs submitted earlier also use GPUs in the period. So jobs are selected regardless of their submission time,
        and the query itself is limited to the period.

        Raises
        ------
        TracekitError
            In the same cases as `answer`.
        """
        question = self.question(FIRST)
        asked = self._part(replace(part, start=None, end=None))
        bounds = {"from_us": part.start, "to_us": part.end}
        epoch, unit = datetime(1970, 1, 1), timedelta(microseconds=1)
        given = {name: (time - epoch) // unit for name, time in bounds.items() if time is not None}
        with _worked_on(asked, stop):
            return self._found(asked, question, given)[0]

    def _found(self, asked: _Part, question: Query, given: dict[str, int] | None = None) -> tuple[Answer, list[str]]:
        """Return the answer to a question, with notes on why parameters differ from the defaults."""
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
        # Days are the same for a part as for the whole Trace.
        facts = replace(facts, day_zero=trace_facts(data["quality"], data["time"]).day_zero)
        return _Part(trace, AskedSession(trace, self._memory_limit), facts)

    def _with_telemetry(self, asked: _Part, question: Query) -> TraceFacts:
        """Return facts, with the coverage of samples if the question is about telemetry. This reads the samples."""
        tables = {*question.tables, *question.also, *question.one_of}
        if tables.isdisjoint(SAMPLE_TABLES):
            return asked.facts
        return replace(asked.facts, telemetry=telemetry_coverage(asked.trace, asked.session))
