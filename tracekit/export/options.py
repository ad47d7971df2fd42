"""The options of targets: those that several have, and the values that a user gave."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.options import Option

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
