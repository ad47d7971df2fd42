"""What a guideline may ask, and that the Trace computes each timeline once whoever asks for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.guidelines.planted import Log
from tracekit.characterize.timeline import all_timelines
from tracekit.errors import QueryError
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

_WAITED = "SELECT job_id, wait_us FROM wait_causes WHERE wait_us > 0 ORDER BY job_id"


@pytest.fixture
def waiting(make_trace: MakeTrace) -> Trace:
    log = Log()
    log.job(0, 600, node="n")
    log.job(0, 60, queue_s=30, node="n")
    return make_trace(**log.tables)


def test_sql_finds_a_sweep_by_its_name_and_tells_its_notes(waiting: Trace) -> None:
    evidence = Evidence(waiting)
    answer = evidence.answer(_WAITED)
    assert answer.frame.rows() == [("j1", 30_000_000)]
    assert answer.notes == evidence.query("queuing/delay_causes").notes
    assert evidence.sql(_WAITED).equals(answer.frame)
    assert evidence.answer(_WAITED) is answer


def test_a_sweep_is_computed_once_for_queries_and_for_sql(waiting: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, computed = all_timelines()["wait_causes"], []

    def counting(con: Any, params: Any) -> Any:
        computed.append(params)
        return timeline.compute(con, params)

    monkeypatch.setitem(all_timelines(), "wait_causes", replace(timeline, compute=counting))
    evidence = Evidence(waiting)
    evidence.query("queuing/delay_causes")
    evidence.answer(_WAITED)
    evidence.sql("SELECT count(*) FROM wait_causes")
    assert len(computed) == 1


def test_sql_has_the_zone_of_the_trace_and_the_values_that_are_given(waiting: Trace) -> None:
    frame = Evidence(waiting).sql("SELECT $timezone AS zone, $least AS least", {"least": 3})
    assert frame.rows() == [(waiting.timezone, 3)]


def test_sql_that_fails_names_the_trace(waiting: Trace) -> None:
    with pytest.raises(QueryError, match="no_such_table") as failed:
        Evidence(waiting).sql("SELECT * FROM no_such_table")
    assert str(waiting.path) in str(failed.value)


def test_a_sweep_that_lacks_its_tables_is_lacking(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=[{"job_id": "a"}])
    with pytest.raises(LackingError, match="The trace has no table 'attempts'"):
        Evidence(trace).answer("SELECT * FROM wait_causes")
