"""Scheduling rules of one candidate, and the policy that implements them.

`calibration.search` lists the values that a calibration tries.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote, unquote

from tracekit.decode import Count, Range
from tracekit.tenant import VC
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.tenant import Tenant

Seconds = Annotated[float, Range(0, 1e9)]

_ORDERS = {
    "arrival": "first in, first out",
    "priority": "the log's priorities",
    "fair-share-vc": "the {tenant.one} with the fewest GPUs goes next",
    "fair-share-user": "the user with the fewest GPUs goes next",
    "shortest": "the shortest job goes next",
    "smallest": "the job with the least GPU time goes next",
    "attained": "the job with the least GPU time so far goes next and preempts others",
    "shortest-left": "the job with the least time left goes next and preempts others",
}
_BACKFILLS = {
    "none": "",
    "easy": "later jobs go ahead if they do not delay the first waiting job (EASY)",
    "conservative": "later jobs go ahead if they delay no earlier job",
}
_BEHIND = {
    "strict": "a job that cannot start holds up its partition",
    "passing": "jobs may pass a job that cannot start",
    "easy": "later jobs go ahead if they do not delay a partition's first waiting job (EASY)",
}
_QUOTAS = {
    "none": "",
    "partitions": "each {tenant.one} has nodes of its own",
    "limits": "each {tenant.one} uses at most its quota, on any nodes",
    "idle": "{tenant.many} may borrow unused quota",
    "reclaim": "{tenant.many} may borrow unused quota, which its owners reclaim",
}


_PREEMPTIVE = {"attained": "las", "shortest-left": "srtf"}
"""Orders that let a job preempt another, and their policies."""
_QUEUES = {"vc": "{tenant.one}", "partition": "partition"}
_POOLED = {"limits": "never", "idle": "idle", "reclaim": "reclaim"}
"""Quotas on nodes that all VCs share, with the corresponding `lend` value of the policy 'limits'."""

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
    """Maximum number of GPUs allocated at once, or 0 for no limit."""

    user_gpus: Count = 0
    """Maximum GPUs of a user."""
    vc_gpus: Count = 0
    """Maximum GPUs of a VC, the same for all VCs."""

    def __bool__(self) -> bool:
        return bool(self.user_gpus or self.vc_gpus)


@dataclass(frozen=True)
class SiteSettings:
    """Rules of a site that hold together, in the terms of the policy `site`, with any order that does not preempt."""

    behind: Literal["strict", "passing", "easy"] = "passing"
    """What later jobs of a partition do while a job cannot start."""
    tiers: tuple[str, ...] = ()
    """Partitions that go first, in order."""
    limits: tuple[str, ...] = ()
    """Limits, such as 'user:gpus:16'."""
    preempts: tuple[str, ...] = ()
    """Whose jobs may stop whose, such as 'qos:high:low'."""

    def words(self) -> Iterator[str]:
        """Describe the rules for display, as templates."""
        yield _BEHIND[self.behind]
        if self.tiers:
            yield f"jobs of {' and then '.join(self.tiers)} go before those of other partitions"
        for text in self.preempts:
            per, first, second = text.split(":")
            name = "the QOS" if per == "qos" else "the partition"
            names = (shorten(unquote(one), 60) for one in (first, second))
            yield f"jobs of {name} {' may stop jobs of '.join(names)}"
        yield from self.limit_words

    @property
    def limit_words(self) -> list[str]:
        """The limits for display, as templates."""
        return [_limit_words(text) for text in self.limits]


def _limit_words(text: str) -> str:
    per, *middle, of, most = text.split(":")
    whose = {"user": "a user", "vc": "{tenant.a}", "partition": "a partition"}[per]
    if middle:
        one = {"user": "user", "vc": "{tenant.one}", "partition": "partition"}[per]
        whose = f"the {one} {shorten(unquote(middle[0]), 60)}"
    return f"{whose} {'uses' if of == 'gpus' else 'runs'} at most {int(most):,} {'GPUs' if of == 'gpus' else 'jobs'}"


@dataclass(frozen=True)
class Rules:
    """Job order, limits and placement."""

    order: Order = "arrival"
    """Which job goes next."""
    scan: Scan = "stop"
    """Whether later jobs wait or may go first if a job cannot start."""
    queues: Queues = "one"
    """Whether all jobs share one queue or each VC or partition has its own. A job holds up only its own queue."""
    backfill: Backfill = "none"
    """The backfilling rule that lets later jobs go first. It replaces `scan`."""
    estimates: Estimates = "oracle"
    """Run times used by backfilling and by the orders 'shortest' and 'smallest': the true ones, or the time limits."""
    half_life_s: Seconds = 0.0
    """For fair share, the half-life of past usage [s], or 0 to count only current allocations."""
    quotas: Quotas = "none"
    """How the quotas of VCs are enforced."""
    limits: HoldingLimits = HoldingLimits()
    """Maximum GPUs of a user or a VC."""
    placement: str = "consolidate"
    """On which nodes a multi-GPU job is placed (see `tracekit replay --placement`)."""
    fit: Literal["place", "count"] = "place"
    """Whether a job must fit on nodes, or only needs enough free GPUs in total."""
    relax_s: Seconds = 0.0
    """Wait after which a multi-GPU job takes GPUs on any nodes [s], or 0 if it never does."""
    site: SiteSettings | None = None
    """Rules of a site, which replace all rules but the order and the estimates, or None."""

    @property
    def partitioned(self) -> bool:
        """Whether each VC has nodes of its own."""
        return self.quotas == "partitions"

    @property
    def passes(self) -> bool:
        """Whether later jobs may go ahead of a job that cannot start."""
        return self.scan == "skip" or self.backfill != "none"

    @property
    def pooled(self) -> bool:
        """Whether VCs have quotas on nodes that all of them share."""
        return self.quotas in _POOLED

    def fault(self) -> str | None:
        """Return why these rules cannot be replayed together, or None if they can."""
        if self.site is None:
            return self._fault_without_site()
        others = (f for f in fields(Rules) if f.name not in {"order", "estimates", "site"})
        if all(getattr(self, f.name) == f.default for f in others) and self.order not in _PREEMPTIVE:
            return None
        return "site allows only order (without preemption) and estimates next to it"

    def _fault_without_site(self) -> str | None:
        quotas, limits = self.pooled, self.limits
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

    def changed(self, **changes: Any) -> Rules:
        """Return the rules with other values of some fields. A site's rules take `backfill` and `scan` in their terms.

        The other rules of a site stay, such as its limits.
        """
        if self.site is None:
            return replace(self, **changes)
        behind, scan = self.site.behind, changes.pop("scan", None)
        if changes.pop("backfill", "none") == "easy":
            behind = "easy"
        elif scan is not None:
            behind = "passing" if scan == "skip" else "strict"
        changes = {name: value for name, value in changes.items() if getattr(_PLAIN, name) != value}
        return replace(self, site=replace(self.site, behind=behind), **changes)

    @property
    def policy(self) -> str:
        """The policy that implements these rules, in the form that `tracekit replay -p` accepts."""
        if self.site is not None:
            return self._site_policy(self.site)
        given: dict[str, Any] = {"scan": self.scan, "fit": self.fit}
        user, vc = self.limits.user_gpus, self.limits.vc_gpus
        if self.pooled or self.limits:
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

    def _site_policy(self, site: SiteSettings) -> str:
        tiers = "/".join(quote(name, safe="") for name in site.tiers) or "none"
        limits = "/".join(site.limits) or "none"
        preempts = "/".join(site.preempts) or "none"
        return (
            f"site,order={self.order},behind={site.behind},tiers={tiers},limits={limits},preempts={preempts},"
            f"noise={self.estimates}"
        )

    def words(self, tenant: Tenant = VC) -> str:
        """Describe the rules for display, in the site's words."""
        parts = (_ORDERS[self.order], self._passing(), *self._limits(), *self._places())
        if self.site is not None:
            parts = (_ORDERS[self.order], *self.site.words())
        return "; ".join(tenant.fill(part) for part in parts)

    def _passing(self) -> str:
        if self.backfill != "none":
            return _BACKFILLS[self.backfill] + ("" if self.estimates == "oracle" else ", by the log's time limits")
        if self.scan == "skip":
            return "jobs may pass a job that cannot start"
        if self.queues != "one":
            return f"a job that cannot start holds up jobs of the same {_QUEUES[self.queues]}"
        if self.pooled or self.limits or self.order.startswith("fair-share"):
            return "a job that cannot start holds up jobs of the same {tenant.one} or user"
        return "a job that cannot start holds up all later jobs"

    def _limits(self) -> Iterator[str]:
        if self.half_life_s:
            yield f"past usage has a half-life of {self.half_life_s / 3600:g} h"
        if self.partitioned:
            yield _QUOTAS[self.quotas]
        yield from self.held_back_by

    @property
    def held_back_by(self) -> list[str]:
        """Limits that hold jobs back in any order, as templates for display.

        A VC's own nodes are not included, because they stay.
        """
        if self.site is not None:
            return self.site.limit_words
        found = [_QUOTAS[self.quotas]] if self.pooled else []
        if self.limits.user_gpus:
            found.append(f"a user uses at most {self.limits.user_gpus:,} GPUs")
        if self.limits.vc_gpus:
            found.append(f"{{tenant.a}} uses at most {self.limits.vc_gpus:,} GPUs")
        return found

    def _places(self) -> Iterator[str]:
        if self.placement != "consolidate":
            yield f"placement {self.placement}"
        if self.fit == "count":
            yield "a multi-GPU job only needs enough free GPUs, on any nodes"
        if self.relax_s:
            yield f"after {self.relax_s / 60:g} min a multi-GPU job takes GPUs on any nodes"

    @property
    def complexity(self) -> int:
        """Number of settings that differ from the defaults. Of two equally good candidates, the simpler one wins."""
        found = sum(getattr(self, f.name) != f.default for f in fields(self))
        if self.site is None:
            return found
        return (
            found
            + (self.site.behind != "passing")
            + sum(map(len, (self.site.tiers, self.site.limits, self.site.preempts)))
        )


_PLAIN = Rules()
