"""Assumptions about jobs and their costs: restarts, classes, estimates, deadlines, quotas."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import ModelSection, Seconds, Share, chosen, is_count
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.replay.assumptions.sections.kinds import Fault


@dataclass(frozen=True)
class Preset:
    """The charge of one preset of M9, either by steps of gang size or by its logarithm."""

    seconds: tuple[Seconds, ...] = ()
    up_to: tuple[Annotated[int, Range(1, 1_000_000)], ...] = ()
    base_s: Seconds | None = None
    per_doubling_s: Seconds | None = None
    migrate_s: Seconds | None = None
    resize_s: Seconds | None = None

    def __str__(self) -> str:
        if self.base_s is not None and self.per_doubling_s is not None:
            text = f"{self.base_s:g} s + {self.per_doubling_s:g} s * (log2(GPUs) + 1)"
        else:
            sizes = [counted(size, "GPUs") for size in self.up_to]
            steps = [f"{s:g} s up to {size}" for s, size in zip(self.seconds, sizes, strict=False)]
            text = ", ".join((*steps, f"{self.seconds[-1]:g} s{' above' if steps else ''}"))
        moves = (("migration", self.migrate_s), ("resize", self.resize_s))
        return text + "".join(f", {name} {seconds:g} s" for name, seconds in moves if seconds is not None)


@dataclass(frozen=True)
class Overhead(ModelSection):
    """M9: costs without progress."""

    default: str
    lost_work_s: Seconds
    lost_work_sweep_s: tuple[Seconds, ...]
    presets: dict[str, Preset]
    families: dict[str, dict[str, Seconds]]
    """Costs of the preset muri by family and smallest gang size [s]."""

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("default", self.default, "presets", self.presets)
        for name, preset in self.presets.items():
            by_size = preset.base_s is not None and preset.per_doubling_s is not None
            half = (preset.base_s is None) != (preset.per_doubling_s is None)
            if half or by_size == bool(preset.seconds):
                yield f"presets.{name}", "needs either seconds, or base_s and per_doubling_s"
            elif not by_size and len(preset.seconds) != len(preset.up_to) + 1:
                yield f"presets.{name}", "needs one more value in seconds than in up_to"
            elif any(a >= b for a, b in pairwise(preset.up_to)):
                yield f"presets.{name}.up_to", "must ascend"
        for family, sizes in self.families.items():
            for size in sizes:
                if not is_count(size):
                    yield f"families.{family}.{size}", "is not a number of GPUs"


@dataclass(frozen=True)
class Classes(ModelSection):
    """M10: guaranteed and opportunistic jobs."""

    opportunistic_share: Share


@dataclass(frozen=True)
class Estimates(ModelSection):
    """M11 and D8: run times that a policy expects."""

    noise: Literal["oracle", "helios"] | Annotated[float, Range(0, 5)]
    errors: tuple[tuple[Annotated[float, Range(0, 10_000)], ...], ...]
    """For each band: share of jobs, smallest and largest relative error."""

    @property
    def bands(self) -> str:
        """The bands as text for the printed assumptions."""
        return ", ".join(f"{100 * share:g} % off by {low:g} to {high:g}" for share, low, high in self.errors)

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if not self.errors or any(len(band) != 3 or band[1] > band[2] for band in self.errors):
            yield "errors", "must be bands of three numbers: share, from, to"
        elif abs(sum(band[0] for band in self.errors) - 1) > 1e-9:
            yield "errors", "has shares that do not sum to 1"
        elif any(band[1] < 1 < band[2] for band in self.errors):
            yield "errors", "has a band on both sides of 1; split it there"


@dataclass(frozen=True)
class Deadlines(ModelSection):
    """D7: deadlines."""

    factor: tuple[Annotated[float, Range(0, 1000)], ...]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if len(self.factor) != 2 or self.factor[0] > self.factor[1]:
            yield "factor", "must be two numbers, ascending"


@dataclass(frozen=True)
class Quotas(ModelSection):
    """D9: quotas if no table has them."""

    percentile: Annotated[float, Range(0, 100)]
