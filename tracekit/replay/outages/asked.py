"""Outages and checkpoints as requested in the settings: the option values, and the checkpoints of each job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.outages.theory import daly_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# Options of a replay with outages: the source of outages, and the checkpoints of jobs.

_OUTAGES_HINT = "recorded, model, or rate=0.005,repair=4 (outages per node and day; hours)"
_CHECKPOINT_HINT = "such as interval=3600,cost=60,restart=300 in seconds; interval may be daly or none"


@dataclass(frozen=True)
class OutagesAsked:
    """The source of a replay's outages."""

    kind: Literal["recorded", "model", "rate"]
    rate: float = 0.0
    """For the kind 'rate', the number of outages per node and day."""
    repair_h: float | None = None
    """For the kind 'rate', the mean length of an outage [hours], or None to use the lengths in the log."""


@dataclass(frozen=True)
class CheckpointsAsked:
    """The checkpoints of jobs.

    The defaults, an hour and five minutes, are those of Kokolis et al. for training jobs ("Revisiting Reliability in
    Large-Scale Machine Learning Research Clusters", 2024).
    """

    interval_s: float | Literal["daly", "none"] = 3600.0
    """Work between two checkpoints [s], 'daly' for the optimum at each job's failure rate, or 'none' for no saving."""
    cost_s: float = 0.0
    """Time for which a checkpoint stops the work [s]."""
    restart_s: float = 300.0
    """Time from getting GPUs again until work resumes from the last checkpoint [s]."""

    @property
    def words(self) -> str:
        """The rule in words, such as 'every 3600 s at a cost of 60 s, restart in 300 s'."""
        if self.interval_s == "none":
            every = "no checkpoints: an outage costs all work"
        elif isinstance(self.interval_s, str):
            every = f"at Daly's interval for a cost of {self.cost_s:g} s"
        else:
            every = f"every {self.interval_s:g} s of work at a cost of {self.cost_s:g} s"
        return f"{every}; restart in {self.restart_s:g} s"


def read_outages(text: str) -> OutagesAsked:
    """Parse a source of outages, such as 'recorded' or 'rate=0.005,repair=4'.

    Raises
    ------
    UsageError
        The value is not a source of outages, or a number is out of range.
    """
    if text in ("recorded", "model"):
        return OutagesAsked("recorded" if text == "recorded" else "model")
    values = _values(text, _OUTAGE_PARTS, "--outages", _OUTAGES_HINT)
    if "rate" not in values:
        raise UsageError(f"'{text[:60]}' is not a source of outages", where="--outages", hint=_OUTAGES_HINT)
    return OutagesAsked("rate", values["rate"], values.get("repair"))


def read_checkpoints(text: str | None) -> CheckpointsAsked:
    """Parse a checkpoint rule, such as 'interval=3600,cost=60,restart=300'. Missing parts get their defaults.

    Raises
    ------
    UsageError
        The value is not a checkpoint rule, a number is out of range, or a checkpoint costs more time than the work that
        it saves.
    """
    if text is None:
        return CheckpointsAsked()
    values = _values(text, _CHECKPOINT_PARTS, "--checkpoint", _CHECKPOINT_HINT)
    usual = CheckpointsAsked()
    interval, cost = values.get("interval", usual.interval_s), values.get("cost", usual.cost_s)
    if interval == "daly" and cost == 0:
        raise UsageError("free checkpoints have no best interval", where="--checkpoint", hint="add cost=SECONDS")
    if interval == "none":
        cost = 0.0
    elif interval != "daly" and cost > interval:
        raise UsageError(
            f"a checkpoint of {cost:g} s after every {interval:g} s of work would take most of the time",
            where="--checkpoint",
            hint="use an interval above the cost, or interval=daly",
        )
    return CheckpointsAsked(interval, cost, values.get("restart", usual.restart_s))


_Parts = dict[str, tuple[bool, tuple[str, ...]]]
"""The parts of an option value by name: whether the number must be above 0, and the words allowed instead."""
_OUTAGE_PARTS: _Parts = {"rate": (False, ()), "repair": (True, ())}
_CHECKPOINT_PARTS: _Parts = {"interval": (True, ("daly", "none")), "cost": (False, ()), "restart": (False, ())}


def _values(text: str, parts: _Parts, where: str, hint: str) -> dict[str, Any]:
    """Return the numbers and words in an option value such as 'interval=daly,cost=60'."""
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in parts or name in values:
            raise UsageError(
                f"'{part[:60]}' is not valid here",
                where=where,
                hint=nearest(name[:60], parts) if equals and name not in parts else hint,
            )
        above, words = parts[name]
        values[name] = value if value in words else _number(value, name, where, hint, above=above)
    return values


def _number(text: str, name: str, where: str, hint: str, *, above: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0 and value <= 1e9) or (above and value == 0):
        least = "above 0" if above else "0 or more"
        raise UsageError(f"{name} must be a number {least}, not '{text[:40]}'", where=where, hint=hint)
    return value


# The checkpoint interval of each job of a replay, and the cost of a checkpoint.

_PPM = 1_000_000
_NEVER = 1 << 62


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of jobs, in the engine's units.

    A running job saves its work after every `period_ms` of running, without restarts and other overheads. We spread the
    time of checkpoints evenly, so work proceeds at `progress_ppm` of its speed. At each checkpoint, the job has done as
    much work as if it had worked for the interval and then stopped to save.
    """

    period_ms: NDArray[np.int64]
    """Checkpoint interval plus cost [ms], at least 1, or 2^62 for a job that saves nothing (n,)."""
    progress_ppm: NDArray[np.int32]
    """Share of the time spent on work rather than on saving it [ppm] (n,)."""
    restart_ms: int
    """Time from getting GPUs again after an outage until work resumes [ms]."""


def outages_unsupported(name: str) -> UsageError:
    """Return the error for a policy that cannot handle jobs that a failing node stops."""
    return UsageError(
        f"{name} does not support outages: it cannot handle a job that a failing node stops",
        hint="use policies of another kind, such as fifo, srtf or easy, or leave out --outages",
    )


def saves_nothing(jobs: int) -> Checkpoints:
    """Return the checkpoints of jobs that start over after an outage."""
    return Checkpoints(np.full(jobs, _NEVER, np.int64), np.full(jobs, 1_000_000, np.int32), 0)


def gang_nodes(jobs: Jobs, cluster: Cluster) -> NDArray[np.int64]:
    """Return the smallest number of nodes on which each job can run (n,)."""
    widest = max(int(cluster.gpus.max(initial=1)), 1)
    return np.asarray((jobs.devices.astype(np.int64) + widest - 1) // widest)


def checkpoints_for(asked: CheckpointsAsked, jobs: Jobs, cluster: Cluster, rate_per_ms: float) -> Checkpoints:
    """Return the checkpoints of each job.

    Parameters
    ----------
    rate_per_ms : float
        Outages per node and millisecond. A job on n nodes fails n times as often if nodes fail independently.
    """
    n = len(jobs)
    restart_ms = round(asked.restart_s * 1000)
    if asked.interval_s == "none":
        return Checkpoints(np.full(n, _NEVER), np.full(n, _PPM, np.int32), restart_ms)
    if asked.interval_s == "daly":
        nodes = gang_nodes(jobs, cluster)
        interval = np.full(n, np.inf)
        for count in np.unique(nodes).tolist() if rate_per_ms > 0 else []:
            mean_s = 1 / (rate_per_ms * count) / 1000
            interval[nodes == count] = max(daly_interval(asked.cost_s, mean_s), asked.cost_s)
    else:
        interval = np.full(n, float(asked.interval_s))
    ever = np.isfinite(interval) & (interval < _NEVER / 4000)
    whole = np.where(ever, interval, 1.0)
    period = np.maximum(np.rint((whole + asked.cost_s) * 1000), 1).astype(np.int64)
    progress = np.maximum(np.rint(_PPM * whole / (whole + asked.cost_s)), 1).astype(np.int32)
    return Checkpoints(np.where(ever, period, _NEVER), np.where(ever, progress, _PPM).astype(np.int32), restart_ms)
