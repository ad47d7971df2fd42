"""What an analysis is made with."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["REPLAY_JOBS", "Given", "Settings"]

REPLAY_JOBS = 100_000
"""Jobs that a report replays unless told otherwise: a panel of policies in seconds, and months of most clusters."""


class Given(TypedDict, total=False):
    """The fields of `Settings`, as keywords."""

    format_name: str | None
    options: Mapping[str, str] | None
    max_reject_share: float
    max_inflation: float
    capacity: str
    memory_limit: str | None
    fit: bool
    replay_jobs: int
    compare: str | None
    pdf: bool


@dataclass(frozen=True)
class Settings:
    """What an analysis is made with."""

    format_name: str | None = None
    """The source format; detected when None."""
    options: Mapping[str, str] | None = None
    """Options of the source format."""
    max_reject_share: float = 0.5
    """Refuse a source when more than this share of a file's records is unusable [0..1]."""
    max_inflation: float = 200
    """Most bytes that one byte of a compressed file may become."""
    capacity: str = "listed"
    """Where the number of GPUs comes from: 'listed', 'observed' or a CSV file."""
    memory_limit: str | None = None
    """Most memory for joins before they spill to disk, such as '2GB'."""
    fit: bool = True
    """Fit the workload."""
    replay_jobs: int = REPLAY_JOBS
    """Replay the first so many jobs; none when 0."""
    compare: str | None = None
    """What to compare with: logs or a Trace of another time, or a day that splits this one."""
    pdf: bool = False
    """Print the page to report.pdf too."""

    def command(self, source: Path, out: Path) -> str:
        """Return the command that makes the report again; settings left at their defaults are not told."""
        words = ["tracekit", "analyze", str(source), "-o", str(out)]
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            option = _OPTIONS.get(field.name, "--" + field.name.replace("_", "-"))
            if isinstance(value, bool):
                words.append(option)
            elif isinstance(value, float | int):
                words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
            elif isinstance(value, str):
                words += [option, value]
            else:
                words += [w for key, text in (value or {}).items() for w in (option, f"{key}={text}")]
        return shlex.join(words)


_OPTIONS = {"format_name": "--format", "options": "--option", "fit": "--no-fit"}
