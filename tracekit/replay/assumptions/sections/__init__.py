"""The assumption models of models.toml as typed objects: one class per section, one module per subject.

A field's type defines what the file may contain: `Annotated` numbers have a range, a `dict` is a table with the user's
own keys, and a class is a table with fixed keys. `faults` checks what depends on several keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.replay.assumptions.sections.jobs import Classes, Deadlines, Estimates, Overhead, Quotas
from tracekit.replay.assumptions.sections.network import Contention, Links, Traffic
from tracekit.replay.assumptions.sections.nodes import Loans, SwitchedNodes
from tracekit.replay.assumptions.sections.power import GpuPrice, Power, PowerPrice
from tracekit.replay.assumptions.sections.sharing import Accumulation, GpuMemory, Interference, Online, Slices
from tracekit.replay.assumptions.sections.speed import (
    Applications,
    Cpu,
    Elastic,
    Locality,
    Servers,
    Spread,
    Stages,
    TypeSpeed,
    Work,
)

__all__ = ["Sections"]


@dataclass(frozen=True)
class Sections:
    """All sections of a models file."""

    work: Work
    interference: Interference
    memory: GpuMemory
    accumulation: Accumulation
    spread: Spread
    locality: Locality
    stages: Stages
    cpu: Cpu
    power: Power
    elastic: Elastic
    servers: Servers
    overhead: Overhead
    classes: Classes
    estimates: Estimates
    type_speed: TypeSpeed
    deadlines: Deadlines
    quotas: Quotas
    links: Links
    traffic: Traffic
    contention: Contention
    slices: Slices
    online: Online
    switching: SwitchedNodes
    power_price: PowerPrice
    applications: Applications
    loans: Loans
    gpu_price: GpuPrice
