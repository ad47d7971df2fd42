"""Assumptions about jobs that share a GPU: their mutual slowdown, the memory they need, the split of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import ModelSection, Share, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.replay.assumptions.sections.kinds import Fault


@dataclass(frozen=True)
class Interference(ModelSection):
    """M1: slowdown of jobs on one GPU."""

    rule: Literal["product", "sum"]
    level: str
    levels: dict[str, Annotated[float, Range(0, 0.99)]]
    utilization: Share
    """GPU utilization of a job if it is unknown [0..1]."""
    utilization_sweep: tuple[Share, ...]
    class_thresholds: tuple[Share, ...]
    class_speed: tuple[tuple[Annotated[float, Range(0.000001, 2)], ...], ...]

    @property
    def c(self) -> float:
        """The strength of the selected level."""
        return self.levels[self.level]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("level", self.level, "levels", self.levels)
        if len(self.class_thresholds) != 2 or self.class_thresholds[0] > self.class_thresholds[1]:
            yield "class_thresholds", "must be two numbers, ascending"
        if [len(row) for row in self.class_speed] != [3, 3, 3]:
            yield "class_speed", "must be three rows of three numbers"


@dataclass(frozen=True)
class GpuMemory(ModelSection):
    """M2: GPU memory of a job."""

    level: str
    levels: dict[str, Share]

    @property
    def fraction(self) -> float:
        """The memory fraction of the selected level [0..1]."""
        return self.levels[self.level]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("level", self.level, "levels", self.levels)


@dataclass(frozen=True)
class Accumulation(ModelSection):
    """M3: sub-batches."""

    slowdown_per_doubling: Annotated[float, Range(0, 100)]
    fixed_share: Share


@dataclass(frozen=True)
class SliceProfile:
    """A slice of a GPU."""

    compute: Annotated[int, Range(1, 64)]
    memory: Annotated[int, Range(1, 64)]
    starts: tuple[Annotated[int, Range(0, 63)], ...]


@dataclass(frozen=True)
class Slices(ModelSection):
    """M32: how a GPU can be divided into slices."""

    compute: Annotated[int, Range(1, 64)]
    memory: Annotated[int, Range(1, 64)]
    profiles: dict[str, SliceProfile]

    @property
    def sizes(self) -> str:
        """Compute of the profiles as text for the printed assumptions."""
        return ", ".join(str(profile.compute) for profile in self.profiles.values())

    @property
    def memories(self) -> str:
        """Memory of the profiles as text for the printed assumptions."""
        return ", ".join(str(profile.memory) for profile in self.profiles.values())

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if not any(p.compute == self.compute and p.memory == self.memory for p in self.profiles.values()):
            yield "profiles", "has no slice that covers the whole GPU"
        for name, profile in self.profiles.items():
            if not profile.starts or max(profile.starts) + profile.memory > self.memory:
                yield f"profiles.{name}.starts", "must be starts at which the slice stays within the memory"
            if profile.compute > self.compute:
                yield f"profiles.{name}.compute", "is more than the whole GPU"


@dataclass(frozen=True)
class Online(ModelSection):
    """M33: online services."""

    load: Share
    swing: Share
    """Amplitude as a share of the load [0..1]."""
    period_h: Annotated[float, Range(0.001, 10_000)]
