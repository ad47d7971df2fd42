"""What a target is: the file that a loader reads, field by field, and what fills a field that the Trace lacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.options import Option, fill_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.export.chosen import Chosen
    from tracekit.export.output import Output
    from tracekit.export.told import Told

__all__ = ["CPU_JOBS", "FRACTIONS", "GUARD", "INCOMPLETE", "Field", "Option", "Options", "Target", "Wanted"]


@dataclass(frozen=True)
class Field:
    """One field of a target's file."""

    name: str
    """As the loader calls it."""
    meaning: str
    """What it holds, with its unit."""
    filled_from: str
    """Columns of the Trace that it comes from, or what fills it."""


CPU_JOBS = Option("gpu", "which jobs: only those that ask for GPUs, or all", ("gpu", "all"))
FRACTIONS = Option(
    "up",
    "a part of a GPU becomes a whole one, or the job is left out: the simulator counts whole GPUs",
    ("up", "leave-out"),
)
INCOMPLETE = Option("leave-out", "jobs that never ran, still run, or whose times are unknown", ("leave-out", "keep"))
GUARD = Option("yes", "put a quote before a text that a spreadsheet would run as a formula", ("yes", "no"))


@dataclass(frozen=True)
class Wanted:
    """Which jobs a target takes."""

    cpu_jobs: bool = False
    """Whether jobs without GPUs are taken too."""
    incomplete: bool = False
    """Whether jobs are taken whose submission or work is unknown."""
    fractions: str = "keep"
    """What a request for a part of a GPU becomes: keep, up or leave-out."""
    size: str = "gpu_count"
    """Column that says how much a job asks for: gpu_count, cpu_count or node_count."""
    dated: bool = False
    """Whether every job needs its submission, even where others may be incomplete."""
    keep_zero: bool = False
    """Whether times of a trace without dates go on counting from its own zero, not from the first submission."""

    @classmethod
    def by(cls, options: Options, *, size: str = "gpu_count", dated: bool = False, keep_zero: bool = False) -> Wanted:
        """Return what the usual options ask for."""
        given = options.values
        return cls(
            cpu_jobs=given.get("jobs", "gpu") == "all",
            incomplete=given.get("incomplete", "leave-out") == "keep",
            fractions=given.get("fractions", "keep"),
            size=size,
            dated=dated,
            keep_zero=keep_zero,
        )


class Options:
    """The options of a target, each with a value.

    Parameters
    ----------
    values : mapping
        Name to value, complete.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = dict(values)

    def text(self, name: str) -> str:
        """Return a value that stands in one field of one line.

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
            It is none, or outside the bounds.
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
            It is none.
        """
        return self.number(name, least=1e-9)

    def count(self, name: str, *, least: int = 0) -> int | None:
        """Return a value as a whole number, None for an empty one.

        Raises
        ------
        UsageError
            It is none, or below `least`.
        """
        value = self.values[name]
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= 9 and int(value) >= least):
            raise UsageError(f"'{value}' is not a whole number from {least}", where=f"--option {name}")
        return int(value)


class Target(ABC):
    """A format that a simulator reads.

    A new target is one module in `tracekit/export/targets/` with an instance called TARGET; a target outside this
    package registers an instance under the entry-point group `tracekit.exports`.
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
    sources: ClassVar[tuple[str, ...]]
    """Where the format is described."""

    def wanted(self, options: Options) -> Wanted:
        """Return which jobs are taken."""
        return Wanted.by(options)

    def check(self, options: Options) -> None:  # noqa: B027 -- most targets have nothing to check
        """Refuse options that cannot be used, before anything is read.

        Raises
        ------
        UsageError
            An option cannot be used.
        """

    def beside(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002 -- for targets that write them at times
        """Return the ends of the names of the companions that will be written."""
        return tuple(self.companions)

    @abstractmethod
    def write(self, jobs: Chosen, out: Output, told: Told, options: Options) -> None:
        """Write the files.

        Parameters
        ----------
        jobs : Chosen
            The jobs to write, in order of submission.
        out : Output
            Where the files go.
        told : Told
            Receives what was filled in, and every other choice.
        options : Options
            Values of all options.
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
