"""How a cluster schedules: the settings of one candidate, and the policy that does the same.

`calibration.search` lists the values that a calibration tries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tracekit.decode import Count, Range

if TYPE_CHECKING:
    from collections.abc import Iterator

Seconds = Annotated[float, Range(0, 1e9)]

_ORDERS = {
    "arrival": "first in, first out",
    "priority": "the log's priorities",
    "fair-share-vc": "the VC that holds least goes next",
    "fair-share-user": "the user who holds least goes next",
    "shortest": "the shortest job goes next",
    "smallest": "the job of the least GPU time goes next",
    "attained": "the job that had the least GPU time so far goes next, and stops others",
    "shortest-left": "the job with the least time left goes next, and stops others",
}
_BACKFILLS = {
    "none": "",
    "easy": "later jobs go ahead where they do not delay the first that waits (EASY)",
    "conservative": "later jobs go ahead where they delay no job before them",
}
_QUOTAS = {
    "none": "",
    "partitions": "each VC has nodes of its own",
    "limits": "each VC holds at most its quota, on any nodes",
    "idle": "VCs may hold what others leave of their quotas",
    "reclaim": "VCs may hold what others leave of their quotas, who take it back",
}


_PREEMPTIVE = {"attained": "las", "shortest-left": "srtf"}
"""Orders in which a job may stop another, and their policies."""
_QUEUES = {"vc": "VC", "partition": "partition"}
_POOLED = {"limits": "never", "idle": "idle", "reclaim": "reclaim"}
"""Quotas on nodes that all VCs share, and how the policy 'limits' calls their lending."""

Order = Literal[
    "arrival", "priority", "fair-share-vc", "fair-share-user", "shortest", "smallest", "attained", "shortest-left"
]
Scan = Literal["stop", "skip"]
Backfill = Literal["none", "easy", "conservative"]
Estimates = Literal["oracle", "limit"]
Queues = Literal["one", "vc", "partition"]
Quotas = Literal["none", "partitions", "limits", "idle", "reclaim"]


@dataclass(frozen=True)
class HoldingLimits:
    """What one may hold at once; 0 any number of GPUs."""

    user_gpus: Count = 0
    """Most GPUs of a user."""
    vc_gpus: Count = 0
    """Most GPUs of a VC, the same for all."""

    def __bool__(self) -> bool:
        return bool(self.user_gpus or self.vc_gpus)


@dataclass(frozen=True)
class Rules:
    """How jobs are ordered, what holds them back, and where they go."""

    order: Order = "arrival"
    """Which job goes next."""
    scan: Scan = "stop"
    """What happens at a job that cannot start: later ones wait, or they may pass it."""
    queues: Queues = "one"
    """Whether all jobs are in one queue, or each VC or partition has its own, which alone a job holds up."""
    backfill: Backfill = "none"
    """By which rule later jobs go ahead, in place of `scan`."""
    estimates: Estimates = "oracle"
    """What backfilling and the orders 'shortest' and 'smallest' believe jobs run: the truth, or their time limits."""
    half_life_s: Seconds = 0.0
    """With fair share: time after which past use counts half; 0 counts only what is held now [s]."""
    quotas: Quotas = "none"
    """What the quotas of VCs do."""
    limits: HoldingLimits = HoldingLimits()
    """What a user or a VC may hold."""
    placement: str = "consolidate"
    """Which nodes a gang takes (see `tracekit replay --placement`)."""
    fit: Literal["place", "count"] = "place"
    """Whether a job needs places on nodes, or only enough free GPUs in number."""
    relax_s: Seconds = 0.0
    """Wait after which a gang takes GPUs on any nodes; 0 never [s]."""

    @property
    def partitioned(self) -> bool:
        """Whether each VC is a cluster of its own."""
        return self.quotas == "partitions"

    def fault(self) -> str | None:
        """Return why these rules cannot be replayed together; None where they can."""
        quotas, limits = self.quotas in _POOLED, self.limits
        if quotas + (limits.user_gpus > 0) + (limits.vc_gpus > 0) > 1:
            return "use only one of quotas, user_gpus and vc_gpus"
        limited = quotas or bool(limits)
        if limited and (self.order, self.backfill) != ("arrival", "none"):
            return "limits require order = 'arrival' and backfill = 'none'"
        if self.queues != "one" and (limited or (self.order, self.backfill, self.relax_s) != ("arrival", "none", 0.0)):
            return f"queues = '{self.queues}' requires order = 'arrival' and no backfill, relax_s, quotas or limits"
        if self.backfill != "none" and self.order not in {"arrival", "priority"}:
            return f"backfill = '{self.backfill}' requires order = 'arrival' or 'priority'"
        if self.relax_s and (self.order not in {"arrival", "priority"} or limited):
            return "relax_s requires order = 'arrival' or 'priority', and no limits"
        return None

    @property
    def policy(self) -> str:
        """The policy that does this, as `tracekit replay -p` takes it."""
        given: dict[str, Any] = {"scan": self.scan, "fit": self.fit}
        user, vc = self.limits.user_gpus, self.limits.vc_gpus
        if self.quotas in _POOLED or self.limits:
            name = "limits"
            given |= {"of": "user" if user else "vc", "gpus": user or vc, "lend": _POOLED.get(self.quotas, "never")}
        elif self.order == "priority":
            name = "priority"
            given |= {"backfill": self.backfill, "noise": self.estimates, "relax": self.relax_s}
        elif self.backfill != "none":
            name = self.backfill
            given = {"fit": self.fit, "noise": self.estimates, "relax": self.relax_s}
        elif self.order == "arrival":
            name = "fifo"
            given |= {"relax": self.relax_s} | ({} if self.queues == "one" else {"queues": self.queues})
        elif self.order in {"shortest", "smallest"}:
            name = "sjf" if self.order == "shortest" else "ssf"
            given |= {"noise": self.estimates}
        elif self.order in _PREEMPTIVE:
            name = _PREEMPTIVE[self.order]
        else:
            name = "fair-share"
            given |= {"of": self.order.removeprefix("fair-share-"), "half_life": self.half_life_s}
        return ",".join((name, *(f"{key}={value}" for key, value in given.items())))

    @property
    def words(self) -> str:
        """What the rules do, for people."""
        return "; ".join((_ORDERS[self.order], self._passing(), *self._limits(), *self._places()))

    def _passing(self) -> str:
        if self.backfill != "none":
            return _BACKFILLS[self.backfill] + ("" if self.estimates == "oracle" else ", by the log's time limits")
        if self.scan == "skip":
            return "jobs may pass one that cannot start"
        if self.queues != "one":
            return f"a job that cannot start holds up those of the same {_QUEUES[self.queues]}"
        if self.quotas in _POOLED or self.limits or self.order.startswith("fair-share"):
            return "a job that cannot start holds up those of the same VC or user"
        return "a job that cannot start holds up all later ones"

    def _limits(self) -> Iterator[str]:
        if self.half_life_s:
            yield f"past use counts half after {self.half_life_s / 3600:g} h"
        if self.partitioned:
            yield _QUOTAS[self.quotas]
        yield from self.held_back_by

    @property
    def held_back_by(self) -> list[str]:
        """What holds jobs back whatever their order is, for people; nodes of a VC's own, which stay, do not count."""
        found = [_QUOTAS[self.quotas]] if self.quotas in _POOLED else []
        if self.limits.user_gpus:
            found.append(f"a user holds at most {self.limits.user_gpus:,} GPUs")
        if self.limits.vc_gpus:
            found.append(f"a VC holds at most {self.limits.vc_gpus:,} GPUs")
        return found

    def _places(self) -> Iterator[str]:
        if self.placement != "consolidate":
            yield f"placement {self.placement}"
        if self.fit == "count":
            yield "a gang needs no places on nodes, only enough free GPUs"
        if self.relax_s:
            yield f"after {self.relax_s / 60:g} min a gang takes GPUs on any nodes"

    @property
    def complexity(self) -> int:
        """How many settings differ from the defaults; of two rules that fit alike the simpler one is taken."""
        return sum(getattr(self, f.name) != f.default for f in fields(self))
