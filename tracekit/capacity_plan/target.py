"""What is asked of a plan: how long which jobs may wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.results.sizes import GPU_CLASSES, gpu_class, gpus_of
from tracekit.text import duration, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

__all__ = ["EVERYONE", "JobGroup", "WaitTarget", "job_group", "wait_target"]

Metric = Literal["mean", "p50", "p90", "p99"]

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_TARGET = re.compile(r"(mean|p50|p90|p99)\s*<=\s*(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_LONGEST_S = 365 * 86_400
_WORDS = {"mean": "the mean wait", "p50": "the median wait", "p90": "the 90th percentile of the wait"}


@dataclass(frozen=True)
class WaitTarget:
    """The longest wait that is accepted."""

    metric: Metric
    limit_s: float
    """[s]"""

    @property
    def text(self) -> str:
        """As a command line gives it, with a unit that keeps the number short."""
        unit = next(u for u in ("d", "h", "min", "s") if self.limit_s % _SECONDS[u] == 0 or u == "s")
        return f"{self.metric}<={self.limit_s / _SECONDS[unit]:.15g}{unit}"

    @property
    def words(self) -> str:
        """For people, such as 'the median wait at or below 1 h'."""
        figure = _WORDS.get(self.metric, "the 99th percentile of the wait")
        return f"{figure} at or below {duration(self.limit_s)}"


def wait_target(text: str) -> WaitTarget:
    """Return the target of a text such as 'p90<=1h'.

    Raises
    ------
    UsageError
        It is not mean, p50, p90 or p99, '<=', a number and s, min, h or d; or is longer than a year.
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
    """The jobs whose wait counts; all of them by default."""

    size: str | None = None
    """A number of GPUs, or one of `GPU_CLASSES`."""
    vc: str | None = None
    cluster: str | None = None

    @property
    def words(self) -> str:
        """For people, such as '8-GPU jobs of VC a'; 'all jobs' where nothing narrows them."""
        parts = ["all jobs" if self.size is None else f"{self.size}-GPU jobs"]
        parts += [f"VC {shorten(self.vc, 30)}"] if self.vc is not None else []
        parts += [f"cluster {shorten(self.cluster, 30)}"] if self.cluster is not None else []
        return " of ".join(parts)

    def among(self, jobs: Jobs) -> NDArray[np.bool_]:
        """Return which jobs belong to the group (n,).

        Raises
        ------
        UsageError
            No job has this size, or there is no such VC.
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
    """Return the group that 'size=8', 'vc=NAME' and 'cluster=NAME' name together.

    Raises
    ------
    UsageError
        A text names something else, nothing, or the same twice; or a size is neither a number nor a class.
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
