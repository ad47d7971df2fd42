"""What a target is: the file that a loader reads, field by field, and what fills a field that the Trace lacks.

Everything that a module in `tracekit.export.targets` needs can be imported from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tracekit.export.choices import CPU_JOBS, FRACTIONS, GUARD, INCOMPLETE, ExportLog, FilledField, Options
from tracekit.export.output import Output
from tracekit.export.selection import JobFilter, JobSelection
from tracekit.options import Option, fill_options
from tracekit.plugins import Plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CPU_JOBS",
    "FRACTIONS",
    "GUARD",
    "INCOMPLETE",
    "TARGETS",
    "ExportLog",
    "Field",
    "FilledField",
    "JobFilter",
    "JobSelection",
    "Option",
    "Options",
    "Output",
    "Target",
]


@dataclass(frozen=True)
class Field:
    """One field of a target's file."""

    name: str
    """As the loader calls it."""
    meaning: str
    """What it holds, with its unit."""
    filled_from: str
    """Columns of the Trace that it comes from, or what fills it."""


class Target(ABC):
    """A format that a simulator reads.

    A new target is one module in `tracekit/export/targets/` with an instance in its tuple MEMBERS; a target outside
    this package registers an instance under the entry-point group `tracekit.exports`.
    """

    name: ClassVar[str]
    """What --to takes."""
    title: ClassVar[str]
    """Whose format it is."""
    reads: ClassVar[str]
    """What of the simulator reads the file, or with which option it is given."""
    fields: ClassVar[tuple[Field, ...]]
    options: ClassVar[Mapping[str, Option]] = {}
    needs: ClassVar[str] = "submission, GPUs, run time"
    """What has to be known of a job; other jobs are left out."""
    folder: ClassVar[bool] = False
    """Whether -o names a folder."""
    companions: ClassVar[Mapping[str, str]] = {}
    """Files beside the main one: the end of their name, and what they hold."""
    lost: ClassVar[str] = ""
    """What of a Trace the format cannot hold."""
    machines: ClassVar[bool] = True
    """Whether it needs a cluster, so that its size can be chosen."""
    dates: ClassVar[bool] = False
    """Whether its times are dates, so that they can be shifted."""
    sources: ClassVar[tuple[str, ...]]
    """Where the format is described."""

    def job_filter(self, options: Options) -> JobFilter:
        """Return which jobs are taken."""
        return JobFilter.from_options(options)

    def check(self, options: Options) -> None:  # noqa: B027 -- most targets have nothing to check
        """Refuse options that cannot be used, before anything is read.

        Raises
        ------
        UsageError
            An option cannot be used.
        """

    def timezone(self, options: Options) -> str:  # noqa: ARG002 -- for targets that write local times
        """Return the zone of the dates in the file."""
        return "UTC"

    def beside(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002 -- for targets that write them at times
        """Return the ends of the names of the companions that will be written."""
        return tuple(self.companions)

    @abstractmethod
    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the files.

        Parameters
        ----------
        jobs : JobSelection
            The jobs to write, in order of submission.
        log : ExportLog
            Receives what was filled in, and every other choice.
        """

    def fill_options(self, given: Mapping[str, str]) -> Options:
        """Return the options with defaults filled in.

        Raises
        ------
        UsageError
            An option or a value does not exist.
        """
        options = Options(fill_options(self.options, given, f"the target {self.name}"))
        self.check(options)
        return options


TARGETS: Plugins[Target] = Plugins(
    Target,
    "tracekit.export.targets",
    "tracekit.exports",
    noun="target",
    plugin="export",
    option="--to",
    key="name",
)
