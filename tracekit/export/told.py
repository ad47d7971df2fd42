"""What an export says about itself: jobs left out, fields filled in, choices made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tracekit.text import counted

__all__ = ["Filled", "Told"]


@dataclass(frozen=True)
class Filled:
    """A field that the Trace does not know, and what stands there instead."""

    field: str
    value: str
    """What was written."""
    jobs: int
    """For how many jobs."""
    option: str
    """The option that changes it; empty when there is none."""

    @property
    def sentence(self) -> str:
        """Return it in words."""
        change = f" (option {self.option})" if self.option else ""
        jobs = counted(self.jobs, "jobs")
        return f"{self.field}: {self.value}, for {jobs} of which the Trace does not tell it{change}"


@dataclass
class Told:
    """Collects what there is to say; nothing is filled in or left out in silence."""

    jobs: int = 0
    """Jobs of the Trace."""
    written: int = 0
    """Jobs that were written."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Jobs that were not, by reason."""
    fills: list[Filled] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def filled(self, name: str, value: str, jobs: int, option: str = "") -> None:
        """Say that a field was filled in for some jobs; for none there is nothing to say."""
        if jobs:
            self.fills.append(Filled(name, value, jobs, option))

    def note(self, text: str) -> None:
        """Say something else, one sentence."""
        self.notes.append(text)

    def changed(self, jobs: int, what: str) -> None:
        """Say what was changed in some jobs; for none there is nothing to say."""
        if jobs:
            self.notes.append(f"{counted(jobs, 'jobs')}: {what}")

    @property
    def sentences(self) -> list[str]:
        """Everything as sentences: what was left out, filled in, chosen."""
        out = [f"{counted(number, 'jobs')} left out: {reason}" for reason, number in self.left_out.items()]
        return out + [f.sentence for f in self.fills] + self.notes

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)
