"""The choices of an export: the options that were given, and the log of what was left out, filled in or changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.options import Option
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping


CPU_JOBS = Option("gpu", "which jobs: only those that ask for GPUs, or all", ("gpu", "all"))
FRACTIONS = Option(
    "up",
    "a part of a GPU becomes a whole one, or the job is left out: the simulator counts whole GPUs",
    ("up", "leave-out"),
)
INCOMPLETE = Option("leave-out", "jobs that never ran, still run, or whose times are unknown", ("leave-out", "keep"))
GUARD = Option("yes", "put a quote before a text that a spreadsheet would run as a formula", ("yes", "no"))


class Options:
    """The options of a target, each with a value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.machines: int | None = None
        """Nodes of the cluster, where the export as a whole says how many."""
        self.target_load: float | None = None
        """Load that the cluster is to have, where the export as a whole says it."""

    @property
    def sized(self) -> bool:
        """Whether the export as a whole says how large the cluster is."""
        return self.machines is not None or self.target_load is not None

    def text(self, name: str) -> str:
        """Return a value that fits into one field of one line.

        Raises
        ------
        UsageError
            It holds a line break or another character that is not printable.
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
            It is not a number, or outside the bounds.
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
            It is not.
        """
        return self.number(name, least=1e-9)

    def count(self, name: str, *, least: int = 0) -> int | None:
        """Return a value as a whole number, None for an empty one.

        Raises
        ------
        UsageError
            It is not, or is below `least`.
        """
        value = self.values[name]
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= least):
            raise UsageError(f"'{value}' is not a whole number from {least}", where=f"--option {name}")
        return int(value)


@dataclass(frozen=True)
class FilledField:
    """A field that is unknown in the Trace, and the value that was written instead."""

    field: str
    value: str
    """What was written."""
    jobs: int
    """For how many jobs."""
    option: str
    """The option that changes it; empty when there is none."""

    @property
    def sentence(self) -> str:
        """One sentence for the user."""
        change = f" (option {self.option})" if self.option else ""
        jobs = counted(self.jobs, "jobs")
        return f"{self.field}: {self.value}, for {jobs} where the Trace does not have it{change}"


@dataclass
class ExportLog:
    """What an export left out, filled in or changed; nothing of it happens in silence."""

    jobs: int = 0
    """Jobs of the Trace."""
    written: int = 0
    """Jobs that were written."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Jobs that were not, by reason."""
    fills: list[FilledField] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    """What the simulator has to be told so that it reads the files as they are meant."""

    def filled(self, name: str, value: str, jobs: int, option: str = "") -> None:
        """Record that a field was filled in for some jobs; nothing is recorded for none."""
        if jobs:
            self.fills.append(FilledField(name, value, jobs, option))

    def note(self, text: str) -> None:
        """Record anything else, one sentence."""
        self.notes.append(text)

    def setting(self, text: str) -> None:
        """Record what the simulator has to be told, one sentence."""
        self.settings.append(text)

    def changed(self, jobs: int, what: str) -> None:
        """Record what was changed in some jobs; nothing is recorded for none."""
        if jobs:
            self.notes.append(f"{counted(jobs, 'jobs')}: {what}")

    @property
    def sentences(self) -> list[str]:
        """Everything as sentences: what was left out, what was filled in, then the notes."""
        out = [f"{counted(number, 'jobs')} left out: {reason}" for reason, number in self.left_out.items()]
        return out + [f.sentence for f in self.fills] + self.notes

    def to_dict(self) -> dict[str, Any]:
        """Return the log as values that JSON can hold."""
        return asdict(self)
