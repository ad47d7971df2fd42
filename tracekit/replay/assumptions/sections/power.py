"""Assumptions about power and prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import ModelSection, Share, Watts, chosen
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.replay.assumptions.sections.kinds import Fault


@dataclass(frozen=True)
class Workload:
    """How power and speed depend on the clock."""

    s0: Share
    """Share of the dynamic power that does not fall with the clock."""
    a: Annotated[float, Range(0, 10)]
    """Exponent a: speed is the clock share to the power of a."""


@dataclass(frozen=True)
class PowerConfig:
    """Power of one GPU [W]."""

    idle_w: Watts
    max_w: Watts


@dataclass(frozen=True)
class Power(ModelSection):
    """M7: power and clock."""

    workload: str
    workloads: dict[str, Workload]
    config: str
    configs: dict[str, PowerConfig]
    gpu_models: dict[str, str]
    """Configuration by prefix of the GPU model's name."""

    @property
    def s0(self) -> float:
        """`s0` of the selected workload."""
        return self.workloads[self.workload].s0

    @property
    def a(self) -> float:
        """`a` of the selected workload."""
        return self.workloads[self.workload].a

    @property
    def idle_w(self) -> float:
        """Idle power if the GPU model is unknown [W]."""
        return self.configs[self.config].idle_w

    @property
    def max_w(self) -> float:
        """Full power if the GPU model is unknown [W]."""
        return self.configs[self.config].max_w

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        yield from chosen("workload", self.workload, "workloads", self.workloads)
        yield from chosen("config", self.config, "configs", self.configs)
        for model, config in self.gpu_models.items():
            yield from chosen(f"gpu_models.{model}", config, "configs", self.configs)
        for name, config_power in self.configs.items():
            if config_power.idle_w > config_power.max_w:
                yield f"configs.{name}", "has more idle power than maximum power"


@dataclass(frozen=True)
class PowerPrice(ModelSection):
    """M41: the price of power over time."""

    unit: str
    day: tuple[Annotated[float, Range(-1000, 100_000)], ...]
    """Price in each hour of the day [per kWh]."""
    series: tuple[Annotated[float, Range(-1000, 100_000)], ...]
    """Price in each hour from the first submission on [per kWh]; empty to use the daily prices."""
    utc_offset_h: Annotated[float, Range(-24, 24)]
    """Local time minus UTC [h]."""

    @property
    def told(self) -> str:
        """The prices as text for the printed assumptions."""
        prices = self.series or self.day
        span = f"{min(prices):g} to {max(prices):g} {self.unit} per kWh" if prices else "no price"
        if self.series:
            return f"{span}, {counted(len(self.series), 'hours')} from the first submission on, repeated"
        return f"{span} by the hour of the day (UTC{self.utc_offset_h:+g}), the same every day"

    def faults(self) -> Iterator[Fault]:
        """Yield values that contradict each other."""
        if not 0 < len(self.unit) <= 20:
            yield "unit", "must be the name of a currency, such as EUR"
        if len(self.day) != 24:
            yield "day", "needs a price for each of 24 hours"


@dataclass(frozen=True)
class GpuPrice(ModelSection):
    """M25: prices of GPUs."""

    default: Annotated[float, Range(0.000001, 1_000_000)]
    models: dict[str, Annotated[float, Range(0.000001, 1_000_000)]]
    """Price by prefix of the GPU model's name."""

    @property
    def listed(self) -> str:
        """The table as text for the printed assumptions."""
        return ", ".join(f"{model} {price:g}" for model, price in self.models.items())
