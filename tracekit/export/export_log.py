"""The log of an export: jobs left out, fields filled in, choices made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tracekit.text import counted


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
