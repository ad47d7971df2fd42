"""Assumptions about the speed of a job: on more nodes, other GPU models, fewer CPUs or more workers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import Factor, ModelSection, Rate, Share, chosen, is_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.replay.assumptions.sections.kinds import Fault


@dataclass(frozen=True)
class Work(ModelSection):
    """M0: recorded run times; this section has no settings."""


@dataclass(frozen=True)
class Spread(ModelSection):
    """M4: speed on more nodes than needed."""

    level: str
    levels: dict[str, Annotated[float, Range(0, 100)]]
    families: dict[str, dict[str, Rate]]
    """Speeds by family and 'GPUs/nodes'."""

    @property
    def b(self) -> float:
        """The penalty of the selected level."""
        return self.levels[self.level]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("level", self.level, "levels", self.levels)
        for family, speeds in self.families.items():
            for key in speeds:
                gang, _, nodes = key.partition("/")
                if not (is_count(gang) and is_count(nodes) and 2 <= int(nodes) <= int(gang)):
                    yield f"families.{family}.{key}", "is not GPUs/nodes such as 8/2"


@dataclass(frozen=True)
class Locality(ModelSection):
    """D4: the simple form of M4."""

    sensitive: Literal["none", "all"]
    slowdown: Rate


@dataclass(frozen=True)
class Stages(ModelSection):
    """M5: shares of input, GPU and network."""

    network_share: Share
    families: dict[str, dict[str, tuple[Share, ...]]]
    """By family and number of GPUs: shares of input, GPU and network."""

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        for family, sizes in self.families.items():
            if not sizes:
                yield f"families.{family}", "is empty"
            for size, shares in sizes.items():
                if not is_count(size):
                    yield f"families.{family}.{size}", "is not a number of GPUs"
                if len(shares) != 3 or sum(shares) <= 0:
                    yield f"families.{family}.{size}", "must be three shares: input, GPU, network"


@dataclass(frozen=True)
class CpuCurve:
    """Speed of a family as a function of CPUs per GPU."""

    kind: Literal["image", "language", "speech"]
    speed: tuple[Factor, ...]
    memory_gb: tuple[Annotated[float, Range(0, 1_000_000)], ...] = ()
    """Host memory per GPU that each point needs [GB]; if empty, the reference everywhere."""


@dataclass(frozen=True)
class Split:
    """Shares of jobs by kind of model."""

    image: Share
    language: Share
    speech: Share


@dataclass(frozen=True)
class Cpu(ModelSection):
    """M6: speed as a function of CPUs."""

    reference_cpus: Annotated[float, Range(0.001, 10_000)]
    reference_memory_gb: Annotated[float, Range(0, 1_000_000)]
    cpus: tuple[Annotated[float, Range(0.001, 10_000)], ...]
    """Points of every curve [CPUs per GPU]."""
    split: Split
    families: dict[str, CpuCurve]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if not self.cpus or any(a >= b for a, b in pairwise(self.cpus)):
            yield "cpus", "must ascend"
        if abs(self.split.image + self.split.language + self.split.speech - 1) > 1e-9:
            yield "split", "does not sum to 1"
        for kind in ("image", "language", "speech"):
            if getattr(self.split, kind) > 0 and not any(c.kind == kind for c in self.families.values()):
                yield f"split.{kind}", "has no family of this kind"
        for family, curve in self.families.items():
            if len(curve.speed) != len(self.cpus) or any(a > b for a, b in pairwise(curve.speed)):
                yield f"families.{family}.speed", f"must be {len(self.cpus)} numbers that never fall, one per point"
            if curve.memory_gb and len(curve.memory_gb) != len(self.cpus):
                yield f"families.{family}.memory_gb", f"must be {len(self.cpus)} numbers, one per point"


@dataclass(frozen=True)
class Elastic(ModelSection):
    """M8 and D3: speed as a function of the number of GPUs."""

    rigid: bool
    """Whether no job changes its number of GPUs."""
    sigma: Share
    sigma_sweep: tuple[Share, ...]
    shrink: Annotated[int, Range(1, 1024)]
    grow: Annotated[int, Range(1, 1024)]

    @property
    def rigidly(self) -> str:
        """Text for the printed assumptions if jobs are rigid."""
        return "; no job is resized (rigid)" if self.rigid else ""


@dataclass(frozen=True)
class Servers(ModelSection):
    """M28: speed with parameter servers, and shares of an iteration."""

    fixed: Share
    pull: Share
    worker: Share
    server: Share
    per_gpu: Annotated[float, Range(0, 1000)]
    """Number of servers for which the cluster has room, per GPU."""

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if self.fixed + self.pull <= 0:
            yield "fixed", "leaves no time for an iteration: it is 0 like pull"


@dataclass(frozen=True)
class TypeSpeed(ModelSection):
    """D6: speed on another GPU model."""

    ratio: dict[str, dict[str, Annotated[float, Range(0.001, 1000)]]]
    """Ratios by recorded model and replay model."""

    @property
    def pairs(self) -> int:
        """Pairs in the table."""
        return sum(len(row) for row in self.ratio.values())

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        for one, row in self.ratio.items():
            for other, value in row.items():
                back = self.ratio.get(other, {}).get(one)
                if back is not None and abs(back * value - 1) > 0.01:
                    yield f"ratio.{one}.{other}", f"is not the inverse of ratio.{other}.{one}"


@dataclass(frozen=True)
class Application:
    """Speed of an application class as a function of GPUs and batch size."""

    gpu_h: Annotated[float, Range(0, 1e12)]
    """Largest recorded GPU time of jobs in this class [GPU*h]."""
    fixed: Share
    """Share of a pass with the recorded batch that does not grow with the batch."""
    sync: Factor
    """Time to exchange gradients between two GPUs, in units of such a pass."""
    more: Factor
    """Additional exchange time for each further GPU, in the same units."""
    gamma: Annotated[float, Range(1, 10)]
    """Overlap of computing and exchange: 1 means none, a larger value more."""
    noise: tuple[Annotated[float, Range(0, 1_000_000)], ...]
    """Gradient noise scale at the start and the end, in units of the recorded batch."""
    most: Annotated[float, Range(1, 1_000_000)]
    """Largest batch, in units of the recorded batch."""


@dataclass(frozen=True)
class Applications(ModelSection):
    """M43: jobs whose batch adapts."""

    local: Annotated[float, Range(0.001, 1000)]
    stages: Annotated[int, Range(1, 1000)]
    classes: dict[str, Application]

    @property
    def listed(self) -> str:
        """The classes as text for the printed assumptions."""
        return "; ".join(
            f"{name} to {a.gpu_h:g} GPU-hours (fixed {a.fixed:g}, sync {a.sync:g}, more {a.more:g}, "
            f"gamma {a.gamma:g}, noise {a.noise[0]:g} to {a.noise[1]:g}, most {a.most:g})"
            for name, a in self.classes.items()
        )

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if list(self.classes) != ["small", "medium", "large", "xlarge"]:
            yield "classes", "must be small, medium, large, xlarge"
        if any(a.gpu_h >= b.gpu_h for a, b in pairwise(self.classes.values())):
            yield "classes", "needs ascending gpu_h"
        for name, application in self.classes.items():
            if len(application.noise) != 2 or min(application.noise) <= 0:
                yield f"classes.{name}.noise", "must be two numbers above 0: at the start and at the end"
