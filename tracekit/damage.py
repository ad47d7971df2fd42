"""Tell a failure that comes from a damaged Trace as one error, wherever in the work it shows.

Damage inside a file, or a value that no log can hold, may show late and anywhere: in a query of DuckDB, in an overflow
of a date, in a panic of a library. What failed is no proof of damage, so that the Trace is looked at then: the
error is that of the Trace only if `Trace.validate(deep=True)` finds something wrong with it.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from tracekit.errors import DamagedTraceError, TracekitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Readable", "explain_damage", "register_trace"]


class Readable(Protocol):
    """What is known here of a Trace."""

    @property
    def path(self) -> Path:
        """The folder."""

    def validate(self, *, deep: bool) -> list[str]:
        """Return what is wrong with it."""


_watched: ContextVar[list[Readable] | None] = ContextVar("tracekit_watched", default=None)
"""The Traces that were opened inside the outermost `explain_damage`."""


_CLEARED = "(nothing is wrong with the files of the Trace)"
"""Note of an error for which the Traces were looked at already."""


def register_trace(trace: Readable) -> None:
    """Say that what follows reads this Trace."""
    traces = _watched.get()
    if traces is not None and all(known.path != trace.path for known in traces):
        traces.append(trace)


@contextmanager
def explain_damage(*, by_warnings: bool = False) -> Iterator[None]:
    """Raise DamagedTraceError for a failure in the block if a Trace that the block read is damaged.

    Every other failure is raised as it is. Serves as a decorator too.

    Parameters
    ----------
    by_warnings : bool
        Look at the Traces, once each, when arithmetic of a library fails and it only warns, as NumPy does of infinite
        numbers (RuntimeWarning): for a whole process only. Other warnings are no failures and pass.
    """
    # A block inside another adds to the same list, so that the outer one sees a Trace while it is read.
    traces = _watched.get()
    if traces is None:
        traces = []
    token = _watched.set(traces)
    try:
        with _looked_at_by_warnings(traces) if by_warnings else nullcontext():
            yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if traces and _may_be_damage(error):
            _raise_damage(traces, error)
        raise
    finally:
        _watched.reset(token)


@contextmanager
def _looked_at_by_warnings(traces: list[Readable]) -> Iterator[None]:
    show = warnings.showwarning
    looked = 0

    def look(message: Warning | str, *details: Any, **more: Any) -> None:
        nonlocal looked
        if isinstance(message, RuntimeWarning):
            new, looked = traces[looked:], len(traces)
            _raise_damage(new, message)
        show(message, *details, **more)

    warnings.showwarning = look
    try:
        yield
    finally:
        warnings.showwarning = show


def _raise_damage(traces: list[Readable], error: BaseException) -> None:
    """Raise the first problem of the first damaged Trace; return where there is none."""
    from tracekit.tables.parquet import HINT

    for trace in traces:
        problems = trace.validate(deep=True)
        if problems:
            raise DamagedTraceError(problems[0], where=trace.path, hint=HINT) from error
    error.add_note(_CLEARED)


def _may_be_damage(error: BaseException) -> bool:
    """Return whether a damaged Trace may be why: not of what a user or the machine is to blame for."""
    import duckdb
    from polars.exceptions import PanicException

    if _CLEARED in getattr(error, "__notes__", ()):
        return False
    if isinstance(error, TracekitError):
        # What tracekit says on its own account is said; what it passes on from DuckDB may come from a file.
        cause = error.__cause__
        return not isinstance(error, DamagedTraceError) and isinstance(cause, duckdb.Error) and _may_be_damage(cause)
    if isinstance(error, duckdb.Error):
        # Errors in the text of a query, and memory that does not suffice, are no matter of the files.
        innocent = (
            duckdb.ParserException,
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.OutOfMemoryException,
            duckdb.InterruptException,
        )
        return not isinstance(error, innocent)
    return isinstance(error, Exception | PanicException) and not isinstance(error, MemoryError | OSError)
