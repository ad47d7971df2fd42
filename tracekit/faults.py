"""Record which parts of a result fail and why, and continue with the other parts.

A report has many parts: answers, charts, guidelines, files. An error in a part becomes a fault, which the report shows
in place of the part. Errors that concern the whole run are raised: a damaged Trace, a failing store, an invalid option,
an output that cannot be written, an interruption.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tracekit.damage import explain_damage
from tracekit.errors import DamagedTraceError, OutputError, StoreError, TracekitError, UsageError
from tracekit.progress import Progress
from tracekit.text import passed_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


REASON_LIMIT = 300
"""Maximum length of a reason."""

_ENDS = (DamagedTraceError, StoreError, UsageError, OutputError)
"""Errors that end the run, regardless of the part that raises them."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Fault:
    """A part that could not be made."""

    part: str
    """The part that failed, such as 'the charts of queuing/queue_delay'."""
    reason: str
    """Kind and message of the error, on one line without a final full stop."""
    traceback: str = ""
    """Traceback of the error, for developers."""

    @property
    def sentence(self) -> str:
        """The part and the reason."""
        return f"{self.part[:1].upper()}{self.part[1:]} could not be made: {self.reason}."

    @property
    def remark(self) -> str:
        """The reason alone, for places that already name the part."""
        return f"Could not be made: {self.reason}."


class Faults:
    """Makes parts one by one, and records the parts that fail.

    Parameters
    ----------
    progress : Progress, optional
        Receives each new fault.
    earlier : iterable of Fault
        Faults that are already known.
    with_messages : bool
        Whether reasons include error messages. If not, they give only the kind of error: a message may contain a name
        that the result must not show.
    """

    def __init__(
        self, progress: Progress | None = None, earlier: Iterable[Fault] = (), *, with_messages: bool = True
    ) -> None:
        self._progress, self._with_messages = progress or Progress(), with_messages
        self._found = {fault.part: fault for fault in earlier}

    @property
    def found(self) -> tuple[Fault, ...]:
        """The faults, in order of occurrence."""
        return tuple(self._found.values())

    def run(self, part: str, make: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | Fault:
        """Return the result of `make`, or a fault if `make` raises an error.

        A part that fails more than once is recorded once.

        Raises
        ------
        DamagedTraceError
            The error comes from a damaged Trace.
        StoreError
            An object store fails.
        UsageError
            An option is invalid.
        OutputError
            The output cannot be written.
        """
        from polars.exceptions import PanicException

        try:
            with explain_damage():
                return make(*args, **kwargs)
        except _ENDS:
            raise
        except (Exception, PanicException) as error:  # noqa: BLE001 -- an error in one part must not prevent the others
            return self._record(part, error)

    def run_or(self, default: _T, part: str, make: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return the result of `make`, or `default` if `make` raises an error.

        Raises
        ------
        DamagedTraceError, StoreError, UsageError, OutputError
            As in `run`.
        """
        made = self.run(part, make, *args, **kwargs)
        return default if isinstance(made, Fault) else made

    def settled(self, make: Callable[[], _T]) -> _T:
        """Call `make` until it causes no new fault: a page begins with the faults of all its parts."""
        while True:
            known = len(self._found)
            made = make()
            if len(self._found) == known:
                return made

    def _record(self, part: str, error: BaseException) -> Fault:
        if part not in self._found:
            lines = "".join(traceback.format_exception(error))
            self._found[part] = fault = Fault(part, _reason(error, with_message=self._with_messages), lines)
            self._progress.fault(fault.sentence, lines)
        return self._found[part]


def _reason(error: BaseException, *, with_message: bool) -> str:
    kind = type(error).__name__
    if not with_message:
        return f"{kind} (run with --debug for its message)"
    text = f"{kind}: {error}"
    if isinstance(error, TracekitError):
        text = "; ".join(filter(None, (error.what, error.hint)))
    line = passed_on(text, REASON_LIMIT).rstrip(": ") or kind
    return line if line.endswith("..") else line.removesuffix(".")
