"""The assumption models of models.toml as typed objects: one class per section.

The type of a field defines its allowed values: an `Annotated` number has a range, a `dict` is a table with the user's
own keys, and a class is a table with fixed keys. `faults` checks values that depend on several keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from tracekit.decode import Range
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


# Building blocks of the sections of a models file: their base class, and kinds of numbers with ranges.

Share: TypeAlias = Annotated[float, Range(0, 1)]
Rate: TypeAlias = Annotated[float, Range(0.000001, 1)]
Factor: TypeAlias = Annotated[float, Range(0, 1000)]
Seconds: TypeAlias = Annotated[float, Range(0, 10_000_000)]
Watts: TypeAlias = Annotated[float, Range(0, 100_000)]
Fault: TypeAlias = tuple[str, str]
"""Dotted key inside a section, and the error in its value."""


class ModelSection:
    """A section. Its `level` names an entry of `levels`. `_faults` checks other keys that depend on each other."""

    def faults(self) -> Iterator[Fault]:
        """Yield errors for keys that contradict each other."""
        fields = vars(self)
        if "level" in fields:
            yield from chosen("level", fields["level"], "levels", fields["levels"])
        yield from self._faults()

    def _faults(self) -> Iterator[Fault]:
        yield from ()


def chosen(key: str, name: str, table: str, choices: Collection[str]) -> Iterator[Fault]:
    """Yield an error if a key names no entry of a table."""
    if name not in choices:
        yield key, f"'{name[:80]}' is not in {table}: {', '.join(choices)}"


def is_count(text: str) -> bool:
    """Return whether a string is a whole number of at least 1."""
    return text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text) >= 1


# Assumptions about jobs and their costs: restarts, classes, estimates, deadlines, quotas.


@dataclass(frozen=True)
class Preset:
    """The cost that one preset of M9 charges, either by steps of gang size or by the logarithm of the gang size."""

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
    """M9: time without progress."""

    default: str
    lost_work_s: Seconds
    lost_work_sweep_s: tuple[Seconds, ...]
    presets: dict[str, Preset]
    families: dict[str, dict[str, Seconds]]
    """Costs of the preset muri by family and smallest gang size [s]."""

    def _faults(self) -> Iterator[Fault]:
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
    """Bands, each with the share of jobs and the smallest and largest relative error."""

    @property
    def bands(self) -> str:
        """The bands in words, for the printed assumptions."""
        return ", ".join(f"{100 * share:g} % off by {low:g} to {high:g}" for share, low, high in self.errors)

    def _faults(self) -> Iterator[Fault]:
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

    def _faults(self) -> Iterator[Fault]:
        if len(self.factor) != 2 or self.factor[0] > self.factor[1]:
            yield "factor", "must be two numbers, ascending"


@dataclass(frozen=True)
class Quotas(ModelSection):
    """D9: quotas if no table contains them."""

    percentile: Annotated[float, Range(0, 100)]


# Assumptions about the links between GPUs, nodes and racks, and about the traffic of gangs on them.


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


@dataclass(frozen=True)
class TrafficFamily:
    """An iteration of a model family."""

    share: Share
    """Share of the jobs."""
    message_mb: Annotated[float, Range(0, 1_000_000)]
    """Size of the gradients that all GPUs sum up [MB]."""
    compute_s: Annotated[float, Range(0.000001, 1_000_000)]
    """Time for which the GPUs compute and send nothing [s]."""


@dataclass(frozen=True)
class Traffic(ModelSection):
    """M37: traffic of gangs."""

    families: dict[str, TrafficFamily]

    @property
    def listed(self) -> str:
        """The families in words, for the printed assumptions."""
        return ", ".join(
            f"{name} {100 * f.share:g} % ({f.message_mb:g} MB, {f.compute_s:g} s)" for name, f in self.families.items()
        )

    def _faults(self) -> Iterator[Fault]:
        if abs(sum(family.share for family in self.families.values()) - 1) > 1e-9:
            yield "families", "has shares that do not sum to 1"


@dataclass(frozen=True)
class Contention(ModelSection):
    """M38: gangs that share a link."""

    sharing: Literal["always", "duty"]
    """Whether a gang loads its links all the time, or only during the part of an iteration in which it sends."""
    extra: Annotated[float, Range(0, 100)]
    """Extra cost of each further gang, beyond its share of the link."""
    least: Rate
    """Share of a link that a gang always keeps, even if others have priority."""


# Assumptions about nodes that come and go: switched off or on loan.


@dataclass(frozen=True)
class SwitchedNodes(ModelSection):
    """M40: nodes that are switched off and on."""

    wake_s: Seconds
    """Time from switching on until jobs may start [s]."""
    wake_sweep_s: tuple[Seconds, Seconds, Seconds]
    off_share: Share
    """Power of a node that is off, relative to its idle power [0..1]."""


@dataclass(frozen=True)
class Loans(ModelSection):
    """M42: idle inference servers that are available for training."""

    servers: Annotated[float, Range(0, 100)]
    """Number of servers per training node of a domain and GPU model."""
    mean: Share
    """Mean share of free servers."""
    swing: Share
    """Amplitude of that share."""
    period_h: Annotated[float, Range(0.001, 10_000)]
    peak_h: Annotated[float, Range(0, 24)]
    """Hour of the day at which the free share is highest, UTC [h]."""
    series: tuple[Share, ...]
    """Free share in each hour from the first submission on, or empty to use the sine wave."""

    @property
    def told(self) -> str:
        """The free share in words, for the printed assumptions."""
        if self.series:
            span = f"{100 * min(self.series):g} to {100 * max(self.series):g} %"
            return f"{span} by {counted(len(self.series), 'hours')} from the first submission on, repeated"
        wave = f"{100 * self.mean:g} % plus or minus {100 * self.swing:g} %"
        return (
            f"{wave}, a sine wave of {self.period_h:g} h with its maximum at {self.peak_h:g} h UTC, in steps of an hour"
        )


# Assumptions about power and prices.


@dataclass(frozen=True)
class Workload:
    """Power and speed as functions of the clock."""

    s0: Share
    """Share of the dynamic power that does not depend on the clock."""
    a: Annotated[float, Range(0, 10)]
    """Exponent a: the speed is the clock share to the power of a."""


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

    def _faults(self) -> Iterator[Fault]:
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
    """Price in each hour from the first submission on [per kWh], or empty to use the daily prices."""
    utc_offset_h: Annotated[float, Range(-24, 24)]
    """Local time minus UTC [h]."""

    @property
    def told(self) -> str:
        """The prices in words, for the printed assumptions."""
        prices = self.series or self.day
        span = f"{min(prices):g} to {max(prices):g} {self.unit} per kWh" if prices else "no price"
        if self.series:
            return f"{span}, {counted(len(self.series), 'hours')} from the first submission on, repeated"
        return f"{span} by the hour of the day (UTC{self.utc_offset_h:+g}), the same every day"

    def _faults(self) -> Iterator[Fault]:
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
        """The table in words, for the printed assumptions."""
        return ", ".join(f"{model} {price:g}" for model, price in self.models.items())


# Assumptions about jobs that share a GPU: how they slow each other, the memory they need, how a GPU is split.


@dataclass(frozen=True)
class Interference(ModelSection):
    """M1: slowdown of jobs on one GPU."""

    rule: Literal["product", "sum"]
    level: str
    levels: dict[str, Annotated[float, Range(0, 0.99)]]
    utilization: Share
    """Assumed GPU utilization of a job whose utilization is unknown [0..1]."""
    utilization_sweep: tuple[Share, ...]
    class_thresholds: tuple[Share, ...]
    class_speed: tuple[tuple[Annotated[float, Range(0.000001, 2)], ...], ...]

    @property
    def c(self) -> float:
        """The strength of the selected level."""
        return self.levels[self.level]

    def _faults(self) -> Iterator[Fault]:
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
    """M32: the slices into which a GPU can be divided."""

    compute: Annotated[int, Range(1, 64)]
    memory: Annotated[int, Range(1, 64)]
    profiles: dict[str, SliceProfile]

    @property
    def sizes(self) -> str:
        """Compute parts of the profiles in words, for the printed assumptions."""
        return ", ".join(str(profile.compute) for profile in self.profiles.values())

    @property
    def memories(self) -> str:
        """Memory parts of the profiles in words, for the printed assumptions."""
        return ", ".join(str(profile.memory) for profile in self.profiles.values())

    def _faults(self) -> Iterator[Fault]:
        if not any(p.compute == self.compute and p.memory == self.memory for p in self.profiles.values()):
            yield "profiles", "has no slice that covers the whole GPU"
        for name, profile in self.profiles.items():
            if not profile.starts or max(profile.starts) + profile.memory > self.memory:
                yield f"profiles.{name}.starts", "must be starts from which the slice fits into the memory"
            if profile.compute > self.compute:
                yield f"profiles.{name}.compute", "is more than the whole GPU"


@dataclass(frozen=True)
class Online(ModelSection):
    """M33: online services."""

    load: Share
    swing: Share
    """Amplitude as a share of the load [0..1]."""
    period_h: Annotated[float, Range(0.001, 10_000)]


# Assumptions about the speed of a job: on more nodes, other GPU models, fewer CPUs or more workers.


@dataclass(frozen=True)
class Work(ModelSection):
    """M0: recorded run times. This section has no settings."""


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

    def _faults(self) -> Iterator[Fault]:
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
    """Shares of input, GPU and network, by family and number of GPUs."""

    def _faults(self) -> Iterator[Fault]:
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
    """Host memory per GPU that each point needs [GB]. If empty, every point needs the reference."""


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

    def _faults(self) -> Iterator[Fault]:
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
    """Whether every job keeps its number of GPUs."""
    sigma: Share
    sigma_sweep: tuple[Share, ...]
    shrink: Annotated[int, Range(1, 1024)]
    grow: Annotated[int, Range(1, 1024)]

    @property
    def rigidly(self) -> str:
        """Words for the printed assumptions if jobs are rigid."""
        return "; no job is resized (rigid)" if self.rigid else ""


@dataclass(frozen=True)
class Servers(ModelSection):
    """M28: speed with parameter servers, and shares of an iteration."""

    fixed: Share
    pull: Share
    worker: Share
    server: Share
    per_gpu: Annotated[float, Range(0, 1000)]
    """Number of servers per GPU for which the cluster has room."""

    def _faults(self) -> Iterator[Fault]:
        if self.fixed + self.pull <= 0:
            yield "fixed", "leaves no time for an iteration: it is 0 like pull"


@dataclass(frozen=True)
class TypeSpeed(ModelSection):
    """D6: speed on another GPU model."""

    ratio: dict[str, dict[str, Annotated[float, Range(0.001, 1000)]]]
    """Ratios by recorded model and replay model."""

    @property
    def pairs(self) -> int:
        """Number of pairs in the table."""
        return sum(len(row) for row in self.ratio.values())

    def _faults(self) -> Iterator[Fault]:
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
    """Time to exchange gradients between two GPUs, in units of a pass with the recorded batch."""
    more: Factor
    """Additional exchange time for each further GPU, in the same units."""
    gamma: Annotated[float, Range(1, 10)]
    """Overlap of computing and exchange: 1 means none, and larger values mean more."""
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
        """The classes in words, for the printed assumptions."""
        return "; ".join(
            f"{name} to {a.gpu_h:g} GPU-hours (fixed {a.fixed:g}, sync {a.sync:g}, more {a.more:g}, "
            f"gamma {a.gamma:g}, noise {a.noise[0]:g} to {a.noise[1]:g}, most {a.most:g})"
            for name, a in self.classes.items()
        )

    def _faults(self) -> Iterator[Fault]:
        if list(self.classes) != ["small", "medium", "large", "xlarge"]:
            yield "classes", "must be small, medium, large, xlarge"
        if any(a.gpu_h >= b.gpu_h for a, b in pairwise(self.classes.values())):
            yield "classes", "needs ascending gpu_h"
        for name, application in self.classes.items():
            if len(application.noise) != 2 or min(application.noise) <= 0:
                yield f"classes.{name}.noise", "must be two numbers above 0: at the start and at the end"


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
