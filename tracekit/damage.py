"""Report every failure that a damaged Trace causes as the same type of error, wherever it occurs.

Damage inside a file, or an impossible value, may cause a failure late and anywhere: in a DuckDB query, a date overflow,
a panic in a library. The failure alone does not prove damage. We therefore validate the Trace, and the error becomes a
DamagedTraceError only if `Trace.validate(deep=True)` finds a problem.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from tracekit.errors import DamagedTraceError, TracekitError, without_names
from tracekit.outputs import full_disk
from tracekit.places import failure_behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class OpenedTrace(Protocol):
    """The parts of a Trace that this module needs."""

    @property
    def path(self) -> Path:
        """The folder."""

    def validate(self, *, deep: bool) -> list[str]:
        """Return the problems of the Trace."""


class _Opened(list[OpenedTrace]):
    """The Traces opened inside the outermost `explain_damage`."""

    def __init__(self) -> None:
        super().__init__()
        self.sound: list[OpenedTrace] = []
        """Traces found intact after an earlier failure, because reading a whole Trace takes long."""


_opened: ContextVar[_Opened | None] = ContextVar("tracekit_opened_traces", default=None)

_CLEARED = "(the files of the Trace are intact)"
"""Note added to an error once its Traces have been validated."""


def register_trace(trace: OpenedTrace) -> None:
    """Record that the code that follows reads this Trace."""
    traces = _opened.get()
    if traces is not None and all(known.path != trace.path for known in traces):
        traces.append(trace)


@contextmanager
def explain_damage(*, by_warnings: bool = False) -> Iterator[None]:
    """If the block fails and a Trace that it read is damaged, raise DamagedTraceError.

    A full disk raises an OutputError, whichever library reports it. Any other failure is raised unchanged. This also
    works as a decorator.

    Parameters
    ----------
    by_warnings : bool
        Whether a RuntimeWarning, such as NumPy's for infinite numbers, also validates the Traces, once each. This
        applies to the whole process. Other warnings are ignored.
    """
    # A nested block adds to the same list, so the outer block knows its Traces.
    traces = _opened.get()
    if traces is None:
        traces = _Opened()
    token = _opened.set(traces)
    try:
        with _validated_at_warnings(traces) if by_warnings else nullcontext():
            yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if (failure := _failure_of_store(error)) is not None:
            raise failure from error
        if (full := full_disk(error)) is not None and full is not error:
            raise full from error
        if traces and _may_be_damage(error):
            _raise_damage(traces, error)
        raise
    finally:
        _opened.reset(token)


@contextmanager
def hidden_names(*, hide: bool = True) -> Iterator[None]:
    """With `hide`, hide the log's names in errors from the block, including errors about a damaged Trace."""
    if not hide:
        yield
        return
    with without_names(), explain_damage():
        yield


@contextmanager
def _validated_at_warnings(traces: _Opened) -> Iterator[None]:
    show = warnings.showwarning

    def check(message: Warning | str, *details: Any, **more: Any) -> None:
        if isinstance(message, RuntimeWarning):
            _raise_damage(traces, message)
        show(message, *details, **more)

    warnings.showwarning = check
    try:
        yield
    finally:
        warnings.showwarning = show


def _failure_of_store(error: BaseException) -> TracekitError | None:
    """Return the store failure described in the message of a DuckDB error, or of an error that wraps one."""
    import duckdb

    found = error.__cause__ if isinstance(error, TracekitError) else error
    return failure_behind(found) if isinstance(found, duckdb.Error) else None


def _raise_damage(traces: _Opened, error: BaseException) -> None:
    """Raise the first problem of the first damaged Trace. Return if all Traces are intact."""
    from tracekit.tables.parquet import HINT

    for trace in traces:
        if any(trace is known for known in traces.sound):
            continue
        if not trace.path.is_dir():  # made by the block itself, and removed with its unfinished output
            continue
        problems = trace.validate(deep=True)
        if problems:
            raise DamagedTraceError(problems[0], where=trace.path, hint=HINT) from error
        traces.sound.append(trace)
    error.add_note(_CLEARED)


def _may_be_damage(error: BaseException) -> bool:
    """Return whether the cause may be a damaged Trace rather than the user or the machine."""
    import duckdb
    from polars.exceptions import PanicException

    if _CLEARED in getattr(error, "__notes__", ()):
        return False
    if isinstance(error, TracekitError):
        # tracekit's own errors already name the cause, but one that wraps a DuckDB error may come from a file.
        cause = error.__cause__
        return not isinstance(error, DamagedTraceError) and isinstance(cause, duckdb.Error) and _may_be_damage(cause)
    if isinstance(error, duckdb.Error):
        # Errors in a query's SQL, and out-of-memory errors, do not come from the files.
        other_causes = (
            duckdb.ParserException,
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.OutOfMemoryException,
            duckdb.InterruptException,
        )
        return not isinstance(error, other_causes)
    return isinstance(error, Exception | PanicException) and not isinstance(error, MemoryError | OSError)
