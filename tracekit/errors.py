"""Errors that a user can cause. Each says in one line what is wrong, where, and what to do.

    TracekitError
    |-- UsageError (ValueError)           an option or argument that cannot be used
    |-- SourceError (ValueError)          a raw log that cannot be read
    |   |-- UnknownFormatError            no format, or more than one, fits the source
    |   `-- TooManyRejectsError           more records were unusable than allowed
    |-- SchemaError (ValueError)          a table that does not fit its schema
    |-- TraceError (ValueError)           a folder that is not a usable Trace
    |   |-- MissingTableError (KeyError)  the Trace has no such table
    |   `-- DamagedTraceError             a file of the Trace is damaged
    |-- QueryError (ValueError)           a query that cannot be found, read or run
    |   `-- TooManyIntervalsError         a Trace too long for a query's intervals
    |-- EngineMissingError (ImportError)  an installation that cannot replay
    |-- StoreError                        an object store, such as S3, that does not provide the requested data
    |-- UnfinishedError (RuntimeError)    results that shards have not made yet
    `-- OutputError (OSError)             an output that cannot be written

Each class keeps its details as attributes and can be pickled.
"""

from __future__ import annotations

import difflib
import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


_LONGEST = 2_000
"""Maximum length of the description of the error."""
_MOST_CHOICES = 400
"""Maximum total length of the choices that a hint lists after the first."""

_QUOTATION = re.compile(r"(?<!\w)['\"].*['\"](?!\w)", re.DOTALL)

_hidden: ContextVar[bool] = ContextVar("tracekit_hidden_names", default=False)


@contextmanager
def without_names() -> Iterator[None]:
    """Hide the log's names in errors from the block, for results that are shared outside the organization."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def logged(name: str) -> str:
    """Return a log's name for an error, or '(hidden)' in a `without_names` block."""
    return "(hidden)" if _hidden.get() else name


def quoted(text: str) -> str:
    """Return a sentence for an error, treating quotations, which may come from a log, like `logged`."""
    return _QUOTATION.sub("(hidden)", text) if _hidden.get() else text


class TracekitError(Exception):
    """Base class of all errors that tracekit raises on purpose.

    Parameters
    ----------
    what : str
        What is wrong, without a final full stop. It is cut after 2,000 characters, because libraries may write very
        long messages. The hint is never cut.
    where : str or Path, optional
        The file, folder or option where the error occurred.
    line, column : int or str, optional
        Location in the file: line number from 1, and column name or number.
    hint : str, optional
        What to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        line: int | None = None,
        column: str | int | None = None,
        hint: str | None = None,
    ) -> None:
        self.what = what if len(what) <= _LONGEST else f"{what[: _LONGEST - 1]}…"
        self.where = None if where is None else str(where)
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        place = self.where or ""
        if self.line is not None:
            place += f", line {self.line}" if place else f"line {self.line}"
        if self.column is not None:
            place += f", column {self.column}" if place else f"column {self.column}"
        text = f"{place.removesuffix(':')}: {self.what}" if place else self.what  # "slurm:" is a location
        if self.hint:
            text += f"; {self.hint}"
        # A hostile name may contain line breaks or terminal escapes, so an error is reduced to one printable line.
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes, because the constructor takes keywords."""
        facts = {"where": self.where, "line": self.line, "column": self.column, "hint": self.hint}
        return _rebuild, (type(self), self.what, facts)


def _rebuild(cls: type[TracekitError], what: str, facts: dict[str, Any]) -> TracekitError:
    return cls(what, **facts)


class UsageError(TracekitError, ValueError):
    """An option or argument that cannot be used."""


class SourceError(TracekitError, ValueError):
    """A raw log that cannot be read."""


class UnknownFormatError(SourceError):
    """A source that fits no format, or more than one."""


class TooManyRejectsError(SourceError):
    """A source with more unusable records than the caller allows."""


class SchemaError(TracekitError, ValueError):
    """A table that does not fit its schema."""


class TraceError(TracekitError, ValueError):
    """A folder that is not a usable Trace."""


class MissingTableError(TraceError, KeyError):
    """A table that the Trace does not have."""

    __str__ = Exception.__str__  # KeyError would print the repr


class DamagedTraceError(TraceError):
    """A Trace with a damaged file."""


class QueryError(TracekitError, ValueError):
    """A query that cannot be found, read or run."""


class TooManyIntervalsError(QueryError):
    """A Trace that spans so much time that a query would have too many intervals."""

    @property
    def sentence(self) -> str:
        """Why the query has no answer."""
        return f"The log is too long: {self.what}."


class EngineMissingError(TracekitError, ImportError):
    """An installation without a replay engine."""


class StoreError(TracekitError):
    """An object store, such as S3, that does not provide the requested data. An OSError would be less specific."""


class UnfinishedError(TracekitError, RuntimeError):
    """Results that shards have not produced yet."""


class OutputError(TracekitError, OSError):
    """An output that cannot be written."""

    __str__ = Exception.__str__


def nearest(name: str, choices: Iterable[str], *, otherwise: str | None = None, of_log: bool = False) -> str:
    """Return a hint with the most likely choice. If none is likely, list all choices or suggest something else.

    Parameters
    ----------
    name : str
        Name given by the user.
    choices : iterable of str
        Existing names.
    otherwise : str, optional
        The hint if no choice is similar.
    of_log : bool
        Whether the choices are names from a log, which a `without_names` block hides.

    Examples
    --------
    >>> nearest("heliso", ["helios", "philly"])
    "did you mean 'helios'?"
    >>> nearest("x", ["helios", "philly"])
    'choose one of: helios, philly'
    """
    if of_log and _hidden.get():
        return "errors show no names with --anonymize; omit it to see them"
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    if otherwise is not None:
        return otherwise
    if not known:
        return "there is none"
    listed = known[:1]
    for choice in known[1:]:
        if len(", ".join([*listed, choice])) > _MOST_CHOICES:
            break
        listed.append(choice)
    more = f" and {len(known) - len(listed):,} more" if len(listed) < len(known) else ""
    return f"choose one of: {', '.join(listed)}{more}"
