"""One part that fails: its reason is recorded, and the rest of the run goes on or ends as the error asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest
from polars.exceptions import PanicException

from tracekit.damage import explain_damage, register_trace
from tracekit.errors import DamagedTraceError, OutputError, QueryError, StoreError, UsageError
from tracekit.faults import REASON_LIMIT, Fault, Faults
from tracekit.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path


def fails(error: BaseException) -> None:
    raise error


class Heard(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no\nsuch \x1b[31mthing"), r"ValueError: no such \x1b[31mthing"),
        (ValueError(), "ValueError"),
        (QueryError("ran out of memory", where="/a/b", hint="give more"), "ran out of memory; give more"),
        (MemoryError(), "MemoryError"),
        (PanicException("a panic."), "PanicException: a panic"),
        (ValueError("password=hunter2"), "ValueError: password=..."),
    ],
)
def test_an_error_is_one_printable_line(error: BaseException, reason: str) -> None:
    faults = Faults()
    found = faults.run("the thing", fails, error)
    assert isinstance(found, Fault)
    assert (found.part, found.reason) == ("the thing", reason)
    assert "test_faults.py" in found.traceback
    assert faults.found == (found,)
    assert (found.sentence, found.remark) == (
        f"The thing could not be made: {reason}.",
        f"Could not be made: {reason}.",
    )


@pytest.mark.parametrize(("more", "cut"), [(0, False), (1, True)])
def test_a_long_reason_is_cut(more: int, cut: bool) -> None:
    found = Faults().run("it", fails, ValueError("x" * (REASON_LIMIT - len("ValueError: ") + more)))
    assert isinstance(found, Fault)
    assert (len(found.reason), found.reason.endswith("…")) == (REASON_LIMIT, cut)


def test_what_succeeds_is_returned_and_nothing_is_recorded() -> None:
    faults = Faults()
    assert faults.run("a sum", sum, [1, 2]) == 3
    assert faults.run_or(0, "another", sum, [1, 2]) == 3
    assert faults.run_or(7, "a third", int, "x") == 7
    assert [fault.part for fault in faults.found] == ["a third"]


def test_a_part_that_fails_twice_is_one_fault_and_heard_once() -> None:
    heard = Heard()
    faults = Faults(heard, [Fault("known", "x")])
    for _ in range(2):
        faults.run("new", fails, ValueError("y"))
    faults.run("known", fails, ValueError("z"))
    assert [(fault.part, fault.reason) for fault in faults.found] == [("known", "x"), ("new", "ValueError: y")]
    assert heard.notes == ["New could not be made: ValueError: y."]


def test_without_messages_only_the_kind_of_an_error_is_said() -> None:
    found = Faults(with_messages=False).run("it", fails, KeyError("alice"))
    assert isinstance(found, Fault)
    assert found.reason.startswith("KeyError (")
    assert "alice" not in found.sentence


@pytest.mark.parametrize(
    "error",
    [
        DamagedTraceError("a hole"),
        StoreError("no answer"),
        UsageError("no"),
        OutputError("full"),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
)
def test_what_concerns_the_whole_run_is_raised(error: BaseException) -> None:
    faults = Faults()
    with pytest.raises(type(error)):
        faults.run("it", fails, error)
    assert faults.found == ()


class _Opened:
    def __init__(self, path: Path, problems: list[str]) -> None:
        self.path, self._problems, self.validated = path, problems, 0

    def validate(self, *, deep: bool) -> list[str]:
        assert deep
        self.validated += 1
        return self._problems


def test_a_failure_that_a_damaged_trace_causes_is_raised(tmp_path: Path) -> None:
    faults = Faults()
    with explain_damage():
        register_trace(_Opened(tmp_path, ["jobs: a hole"]))
        with pytest.raises(DamagedTraceError, match="a hole"):
            faults.run("it", fails, ZeroDivisionError())


def test_a_sound_trace_is_read_once_however_many_parts_fail(tmp_path: Path) -> None:
    faults, trace = Faults(), _Opened(tmp_path, [])
    with explain_damage():
        register_trace(trace)
        for part in "abc":
            faults.run(part, fails, duckdb.IOException("x"))
    assert (len(faults.found), trace.validated) == (3, 1)
