"""Assumptions about links between GPUs, nodes and racks, and the traffic of gangs on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import ModelSection, Rate, Share, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.replay.assumptions.sections.kinds import Fault


@dataclass(frozen=True)
class LinkSpeeds:
    """Bandwidth of each kind of link for one gang alone [Gbit/s]."""

    gpu_gbit: Annotated[float, Range(0.001, 1_000_000)]
    """Between the GPUs of a node."""
    node_gbit: Annotated[float, Range(0.001, 1_000_000)]
    """From a node to its rack's switch."""
    spine_gbit: Annotated[float, Range(0.001, 1_000_000)]
    """One of the links from a rack to the spine."""


@dataclass(frozen=True)
class Links(ModelSection):
    """M36: bandwidth of links."""

    level: str
    levels: dict[str, LinkSpeeds]
    oversubscription: Annotated[float, Range(0.001, 1000)]
    """Bandwidth of a rack's nodes relative to the bandwidth of its links to the spine."""

    @property
    def gbit(self) -> LinkSpeeds:
        """The bandwidth of the selected level."""
        return self.levels[self.level]

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("level", self.level, "levels", self.levels)


@dataclass(frozen=True)
class TrafficFamily:
    """What the GPUs of a model family do in an iteration."""

    share: Share
    """Share of the jobs."""
    message_mb: Annotated[float, Range(0, 1_000_000)]
    """Gradients that all GPUs sum up [MB]."""
    compute_s: Annotated[float, Range(0.000001, 1_000_000)]
    """Time for which they compute and send nothing [s]."""


@dataclass(frozen=True)
class Traffic(ModelSection):
    """M37: traffic of gangs."""

    families: dict[str, TrafficFamily]

    @property
    def listed(self) -> str:
        """The families as text for the printed assumptions."""
        return ", ".join(
            f"{name} {100 * f.share:g} % ({f.message_mb:g} MB, {f.compute_s:g} s)" for name, f in self.families.items()
        )

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if abs(sum(family.share for family in self.families.values()) - 1) > 1e-9:
            yield "families", "has shares that do not sum to 1"


@dataclass(frozen=True)
class Contention(ModelSection):
    """M38: gangs on one link."""

    sharing: Literal["always", "duty"]
    """Whether a gang always loads its links, or only during the part of an iteration in which it sends."""
    extra: Annotated[float, Range(0, 100)]
    """Additional cost of each further gang, beyond its share of the link."""
    least: Rate
    """Share of a link that a gang always keeps, even if others have precedence."""
