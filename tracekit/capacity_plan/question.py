"""The question of a plan: the longest wait of some jobs, or the useful time of a large job."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self, cast

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.jobs import GPU_CLASSES, gpu_class, gpus_of
from tracekit.replay.outages.asked import CheckpointsAsked, read_checkpoints
from tracekit.replay.registry import named_policy
from tracekit.text import duration, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

Metric = Literal["mean", "p50", "p90", "p99"]

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_TARGET = re.compile(r"(mean|p50|p90|p99)\s*<=\s*(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_LONGEST_S = 365 * 86_400
_WORDS = {"mean": "the mean wait", "p50": "the median wait", "p90": "the 90th percentile of the wait"}
_SIZE = re.compile(r"([1-9]\d{0,6})(nodes?)?")
_FEWEST_RESAMPLES, _MOST_RESAMPLES = 5, 1000
_LARGEST_GROWTH = 100.0
_MOST_NODES = 1_000_000
_HIGHEST_COST = 1e12


@dataclass(frozen=True)
class WaitTarget:
    """The longest acceptable wait."""

    metric: Metric
    limit_s: float
    """[s]"""

    @property
    def text(self) -> str:
        """The target as on the command line, in a unit that keeps the number short."""
        unit = next(u for u in ("d", "h", "min", "s") if self.limit_s % _SECONDS[u] == 0 or u == "s")
        return f"{self.metric}<={self.limit_s / _SECONDS[unit]:.15g}{unit}"

    @property
    def words(self) -> str:
        """The target in words, such as 'the median wait at or below 1 h'."""
        figure = _WORDS.get(self.metric, "the 99th percentile of the wait")
        return f"{figure} at or below {duration(self.limit_s)}"


def wait_target(text: str) -> WaitTarget:
    """Read a target such as 'p90<=1h'.

    Raises
    ------
    UsageError
        The target is not mean, p50, p90 or p99, followed by '<=', a number and s, min, h or d, or the wait is longer
        than a year.
    """
    found = _TARGET.fullmatch(text.strip())
    if found is None:
        hint = "write it like 'p90<=1h': mean, p50, p90 or p99, then a number with s, min, h or d"
        raise UsageError(f"'{text[:60]}' is not a target", where="--target", hint=hint)
    limit = float(found[2]) * _SECONDS[found[3]]
    if limit > _LONGEST_S:
        raise UsageError(f"'{text[:60]}' is longer than a year", where="--target", hint="give a shorter wait")
    return WaitTarget(cast("Metric", found[1]), limit)


@dataclass(frozen=True)
class JobGroup:
    """The jobs whose wait counts, by default all jobs."""

    size: str | None = None
    """A number of GPUs, or one of `GPU_CLASSES`."""
    vc: str | None = None
    cluster: str | None = None

    @property
    def words(self) -> str:
        """The group in words, such as '8-GPU jobs of VC a', or 'all jobs' by default."""
        parts = ["all jobs" if self.size is None else f"{self.size}-GPU jobs"]
        parts += [f"VC {shorten(self.vc, 30)}"] if self.vc is not None else []
        parts += [f"cluster {shorten(self.cluster, 30)}"] if self.cluster is not None else []
        return " of ".join(parts)

    def among(self, jobs: Jobs) -> NDArray[np.bool_]:
        """Return a mask of the jobs in the group (n,).

        Raises
        ------
        UsageError
            No job has this size, or the VC does not exist.
        """
        found = np.ones(len(jobs), np.bool_)
        if self.vc is not None:
            if self.vc not in jobs.tenants:
                raise UsageError(f"no VC '{self.vc[:60]}'", where="--for", hint=nearest(self.vc[:60], jobs.tenants))
            found &= jobs.tenant == jobs.tenants.index(self.vc)
        if self.size is not None:
            milli = gpus_of(jobs)
            found &= (
                gpu_class(milli) == GPU_CLASSES.index(self.size)
                if self.size in GPU_CLASSES
                else milli == 1000 * int(self.size)
            )
        if not found.any():
            raise UsageError(
                f"the twin starts none of these jobs: {self.words}", where="--for", hint="choose other jobs"
            )
        return found


EVERYONE = JobGroup()


def job_group(texts: Sequence[str]) -> JobGroup:
    """Return the group of jobs that match all the given conditions, such as 'size=8', 'vc=NAME' and 'cluster=NAME'.

    Raises
    ------
    UsageError
        A condition has another key or no value, a key is given twice, or a size is neither a number nor a size class.
    """
    given: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if key not in {"size", "vc", "cluster"} or not equals or not value:
            hint = "write size=8, vc=NAME or cluster=NAME"
            raise UsageError(f"'{text[:60]}' does not select jobs", where="--for", hint=hint)
        if key in given:
            raise UsageError(f"'{key}' is given twice", where="--for")
        given[key] = value
    size = given.get("size")
    if size is not None and size not in GPU_CLASSES[1:] and not re.fullmatch(r"[1-9]\d{0,5}", size):
        hint = f"give a number of GPUs, or one of: {', '.join(GPU_CLASSES[1:])}"
        raise UsageError(f"'{size[:60]}' is not a job size", where="--for", hint=hint)
    return JobGroup(**given)


@dataclass(frozen=True)
class HourlyCosts:
    """The cost of nodes and of waiting, in any currency.

    Raises
    ------
    UsageError
        A cost is negative or not a number.
    """

    node: float | None = None
    """Cost of owning one node for one hour."""
    wait: float | None = None
    """Cost of one job waiting for one hour."""

    def __post_init__(self) -> None:
        for option, value in (("--node-cost", self.node), ("--wait-cost", self.wait)):
            if value is not None and not (math.isfinite(value) and 0 <= value <= _HIGHEST_COST):
                raise UsageError(f"a cost must be at least 0, not {value:g}", where=option, hint="give a plain number")


@dataclass(frozen=True)
class PlanQuestion:
    """The question that a plan for nodes answers.

    Raises
    ------
    UsageError
        A number is out of range.
    """

    target: WaitTarget | None = None
    group: JobGroup = EVERYONE
    """The jobs whose wait counts."""
    numbers: tuple[int, ...] | None = None
    """Numbers of nodes to try, by default the most informative ones (see `default_numbers`)."""
    model: str | None = None
    """The GPU model whose nodes vary, or None to vary all models in proportion."""
    growths: tuple[float, ...] = (1.0,)
    """Jobs per day as multiples of the log's."""
    policies: tuple[str, ...] = ()
    """Policies to try in addition to the twin's own, in the form that `tracekit replay -p` accepts."""
    costs: HourlyCosts = HourlyCosts()
    resamples: int = 40
    seed: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        for number in self.numbers or ():
            if not 1 <= number <= _MOST_NODES:
                what = f"a number of nodes must be from 1 to {_MOST_NODES:,}, not {number:,}"
                raise UsageError(what, where="--nodes", hint="give whole numbers above 0")
        if self.numbers == ():
            raise UsageError("the list of node counts is empty", where="--nodes", hint="write it like 10,12,16")
        for growth in self.growths:
            if not 0 < growth <= _LARGEST_GROWTH:  # also rejects NaN
                what = f"the growth must be above 0 and at most {_LARGEST_GROWTH:g}, not {growth:g}"
                raise UsageError(what, where="--growth", hint="1 is the load of the log, 1.2 is a fifth more")
        if not self.growths:
            raise UsageError("the list of growth factors is empty", where="--growth", hint="1 is the load of the log")
        _check_resamples(self.resamples)
        for policy in self.policies:
            named_policy(policy)


@dataclass(frozen=True)
class GangSize:
    """The size of a multi-GPU job, in GPUs or nodes."""

    number: int
    in_nodes: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a size such as '256' (GPUs) or '32nodes'.

        Raises
        ------
        UsageError
            The size has neither form.
        """
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            hint = "write a number of GPUs, such as 256, or of nodes, such as 32nodes"
            raise UsageError(f"'{text[:60]}' is not a job size", where="--gang", hint=hint)
        return cls(int(found[1]), found[2] is not None)


@dataclass(frozen=True)
class SpareQuestion:
    """The question that a plan for spares answers.

    Raises
    ------
    UsageError
        A number is out of range.
    """

    gang: GangSize
    ettr: float = 0.95
    """Target effective training time ratio [0..1]."""
    checkpoint: CheckpointsAsked = field(default_factory=CheckpointsAsked)
    model: str | None = None
    """The only GPU model whose nodes are used, or None for all nodes."""
    cluster: str | None = None
    resamples: int = 40
    """Number of random draws, both for recorded outages and for outages with a random shift."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ettr < 1:  # also rejects NaN
            hint = "0.95 means 95 % of the time"
            raise UsageError(
                f"the share of useful time must be above 0 and below 1, not {self.ettr:g}", where="--ettr", hint=hint
            )
        _check_resamples(self.resamples)

    @classmethod
    def of(cls, gang: str | int, ettr: float = 0.95, checkpoint: str | None = None, **others: object) -> Self:
        """Return the question that the arguments of a command line ask.

        Raises
        ------
        UsageError
            An argument cannot be read, or a number is out of range.
        """
        return cls(GangSize.of(str(gang)), ettr, read_checkpoints(checkpoint), **others)  # type: ignore[arg-type]


def _check_resamples(number: int) -> None:
    if not _FEWEST_RESAMPLES <= number <= _MOST_RESAMPLES:
        raise UsageError(
            f"the number of resamples must be from {_FEWEST_RESAMPLES} to {_MOST_RESAMPLES:,}, not {number:,}",
            where="--resamples",
            hint="40 are enough for 95 % intervals",
        )
