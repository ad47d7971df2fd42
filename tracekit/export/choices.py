"""The choices in an export: the options, and a log of everything skipped, filled in or changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.options import Option
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping


CPU_JOBS = Option("gpu", "jobs to export: only jobs that request GPUs, or all", ("gpu", "all"))
FRACTIONS = Option(
    "up",
    "round fractional GPUs up or leave out the job, because the simulator counts whole GPUs",
    ("up", "leave-out"),
)
INCOMPLETE = Option("leave-out", "jobs that never ran, are still running, or have unknown times", ("leave-out", "keep"))
GUARD = Option("yes", "put a quote before text that a spreadsheet would run as a formula", ("yes", "no"))


class Options:
    """A target's options, each with a value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.machines: int | None = None
        """Number of nodes in the cluster, if set by --machines."""
        self.target_load: float | None = None
        """Load of the cluster, if set by --target-load."""

    def check(self, name: str, option: Option) -> None:
        """Check a value against the form of its option.

        Raises
        ------
        UsageError
            The value has another form.
        """
        if not self.values[name]:
            if option.form and option.default:
                raise UsageError("is empty", where=f"--option {name}")
        elif option.form == "line":
            self.text(name)
        elif option.form == "count":
            self.count(name, least=1)
        elif option.form == "positive":
            self.positive(name)
        elif option.form:
            self.number(name, most=1 if option.form == "share" else 1e12)

    @property
    def sized(self) -> bool:
        """Whether --machines or --target-load sets the size of the cluster."""
        return self.machines is not None or self.target_load is not None

    def text(self, name: str) -> str:
        """Return a value that fits in a field on one line.

        Raises
        ------
        UsageError
            The value contains a line break or another nonprintable character.
        """
        value = self.values[name]
        if not value.isprintable():
            raise UsageError(f"'{value}' is not one printable line", where=f"--option {name}")
        return value

    def yes(self, name: str) -> bool:
        """Return whether the value is yes."""
        return self.values[name] == "yes"

    def number(self, name: str, *, least: float = 0.0, most: float = 1e12) -> float:
        """Return a value as a number.

        Raises
        ------
        UsageError
            The value is not a number, or it is out of bounds.
        """
        try:
            value = float(self.values[name])
        except ValueError:
            value = float("nan")
        if not (isfinite(value) and least <= value <= most):
            raise UsageError(
                f"'{self.values[name]}' is not a number from {least:g} to {most:g}", where=f"--option {name}"
            )
        return value

    def positive(self, name: str) -> float:
        """Return a value as a number above 0.

        Raises
        ------
        UsageError
            The value is not a number above 0.
        """
        return self.number(name, least=1e-9)

    def count(self, name: str, *, least: int = 0) -> int | None:
        """Return a value as a whole number, or None if it is empty.

        Raises
        ------
        UsageError
            The value is not a whole number, or it is below `least`.
        """
        value = self.values[name]
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= least):
            raise UsageError(f"'{value}' is not a whole number from {least}", where=f"--option {name}")
        return int(value)


@dataclass(frozen=True)
class FilledField:
    """A field that the Trace lacks, and the value written instead."""

    field: str
    value: str
    """The value that was written."""
    jobs: int
    """Number of jobs for which it was filled in."""
    option: str
    """The option that changes the value, or '' if there is none."""

    @property
    def sentence(self) -> str:
        """One sentence for the user."""
        change = f" (option {self.option})" if self.option else ""
        jobs = counted(self.jobs, "jobs")
        return f"{self.field}: {self.value} for {jobs} without a value in the Trace{change}"


@dataclass
class ExportLog:
    """Everything that an export skipped, filled in or changed. Nothing happens silently."""

    jobs: int = 0
    """Number of jobs in the Trace."""
    written: int = 0
    """Number of jobs written."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of jobs left out, by reason."""
    fills: list[FilledField] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    """Settings that the simulator needs to read the files correctly."""

    def filled(self, name: str, value: str, jobs: int, option: str = "") -> None:
        """Record that a field was filled in for some jobs. If there are no such jobs, record nothing."""
        if jobs:
            self.fills.append(FilledField(name, value, jobs, option))

    def note(self, text: str) -> None:
        """Record any other fact as one sentence."""
        self.notes.append(text)

    def setting(self, text: str) -> None:
        """Record a setting that the simulator needs, as one sentence."""
        self.settings.append(text)

    def changed(self, jobs: int, what: str) -> None:
        """Record a change in some jobs. If there are no such jobs, record nothing."""
        if jobs:
            self.notes.append(f"{counted(jobs, 'jobs')}: {what}")

    @property
    def sentences(self) -> list[str]:
        """The whole log as sentences: skipped jobs, filled-in fields, then notes."""
        out = [f"{counted(number, 'jobs')} left out: {reason}" for reason, number in self.left_out.items()]
        return out + [f.sentence for f in self.fills] + self.notes

    def to_dict(self) -> dict[str, Any]:
        """Return the log as JSON values."""
        return asdict(self)
