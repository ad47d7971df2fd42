"""The interface of a target: the fields of its files, the options, and the log of all choices.

Modules in `tracekit.export.targets` can import everything they need from here.
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
    """The loader's name for the field."""
    meaning: str
    """Content, with its unit."""
    filled_from: str
    """Columns of the Trace that supply the value, or the fixed value."""


class Target(ABC):
    """A format that a simulator reads.

    A new target is one module in `tracekit/export/targets/` with an instance in its tuple MEMBERS. A target outside
    this package registers an instance under the entry-point group `tracekit.exports`.
    """

    name: ClassVar[str]
    """Name for --to."""
    title: ClassVar[str]
    """Name of the format."""
    reads: ClassVar[str]
    """Part of the simulator that reads the file, or the option that names it."""
    fields: ClassVar[tuple[Field, ...]]
    options: ClassVar[Mapping[str, Option]] = {}
    needs: ClassVar[str] = "submission, GPUs, run time"
    """Facts that must be known about a job. Other jobs are skipped."""
    folder: ClassVar[bool] = False
    """Whether -o names a folder."""
    companions: ClassVar[Mapping[str, str]] = {}
    """Suffix and content of each file next to the main file."""
    lost: ClassVar[str] = ""
    """Parts of a Trace that the format cannot represent."""
    machines: ClassVar[bool] = True
    """Whether the format needs a cluster. If so, you can choose its size."""
    dates: ClassVar[bool] = False
    """Whether the format's times are dates. If so, you can shift them."""
    sources: ClassVar[tuple[str, ...]]
    """Sources that describe the format."""

    def job_filter(self, options: Options) -> JobFilter:
        """Return the rules that select the exported jobs."""
        return JobFilter.from_options(options)

    def check(self, options: Options) -> None:  # noqa: B027 -- most targets have nothing to check
        """Reject options that are well-formed but invalid, before anything is read.

        Raises
        ------
        UsageError
            An option is invalid.
        """

    def timezone(self, options: Options) -> str:  # noqa: ARG002 -- for targets that write local times
        """Return the time zone of the dates in the file."""
        return "UTC"

    def beside(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002 -- for targets that write them only sometimes
        """Return the suffixes of the companion files that will be written."""
        return tuple(self.companions)

    @abstractmethod
    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the files.

        Parameters
        ----------
        jobs : JobSelection
            The jobs to write, in submission order.
        log : ExportLog
            Records the filled-in values and all other choices.
        """

    def fill_options(self, given: Mapping[str, str]) -> Options:
        """Fill in the defaults of options that are not given.

        Raises
        ------
        UsageError
            An option or a value does not exist, or a value has another form.
        """
        options = Options(fill_options(self.options, given, f"the target {self.name}"))
        for name, option in self.options.items():
            options.check(name, option)
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
