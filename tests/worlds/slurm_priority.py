"""Slurm's multifactor priority with the fair tree algorithm, in plain Python.

The rules come from priority/multifactor in Slurm 22.05, and from the pages priority_multifactor and fair_tree in its
documentation. Usage and fair-share factors change only at ticks, once per PriorityCalcPeriod. A submitted job is rated
with the factors of the last tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Association(NamedTuple):
    """An account or a user of an account."""

    name: str
    parent: str | None
    shares: int
    user: bool = False


@dataclass(frozen=True)
class Weights:
    """Weights and times from slurm.conf."""

    age: float = 0
    fair_share: float = 0
    job_size: float = 0
    partition: float = 0
    qos: float = 0
    max_age: float = 7 * 86_400
    """PriorityMaxAge [s]."""
    half_life: float = 7 * 86_400
    """PriorityDecayHalfLife [s], or 0 for no decay."""
    partition_factors: Mapping[str, int] = field(default_factory=dict)
    """PriorityJobFactor of each partition."""
    qos_priorities: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 1
    cpus: int = 1
    """Numbers of nodes and CPUs in the cluster."""
    counts_ends: bool = True
    """Whether usage after the last tick before a job's end counts, as with `limits` in AccountingStorageEnforce."""


class Asked(NamedTuple):
    """The values on which a job's priority depends."""

    user: str
    partition: str
    qos: str
    nodes: int
    cpus: int
    """Numbers of nodes and CPUs of the whole job."""
    billing: float
    """Sum of TRESBillingWeights."""
    nice: int = 0


class FairTree:
    """The usage in a tree of associations, and each user's factor at the last tick.

    Parameters
    ----------
    tree : sequence of Association
        Associations, with parents before children. User names are unique.
    """

    def __init__(self, tree: Sequence[Association], weights: Weights) -> None:
        self._of = {a.name: a for a in tree}
        self._children: dict[str | None, list[Association]] = {}
        for a in tree:
            self._children.setdefault(a.parent, []).append(a)
        self._users = sum(a.user for a in tree)
        self._weights = weights
        self._decay = 1 - 0.693 / weights.half_life if weights.half_life else 1.0
        self.usage = dict.fromkeys(self._of, 0.0)
        """Decayed usage [billing x s]."""
        self.factor = dict.fromkeys((a.name for a in tree if a.user), 0.0)
        self._last: float | None = None
        self._known: set[str] = set()

    def submit(self, user: str) -> None:
        """Register a user, whose factor is 0 until the next tick after the user's first job."""
        self._known.add(user)

    def tick(self, now: float, running: Sequence[tuple[str, float, float]]) -> None:
        """Decay usage, add the usage of running jobs since the last tick, and rank the users again.

        Parameters
        ----------
        now : float
            [s]
        running : sequence of (user, start [s], billing)
        """
        if self._last is not None:
            passed = now - self._last
            for name in self.usage:
                self.usage[name] *= self._decay**passed
            for user, start, billing in running:
                self._add(user, now - max(start, self._last), billing)
        self._last = now
        self._rank()

    def end(self, now: float, user: str, start: float, billing: float) -> None:
        """Add an ending job's usage since the last tick."""
        if self._weights.counts_ends:
            since = start if self._last is None else max(start, self._last)
            self._add(user, now - since, billing)

    def _add(self, user: str, seconds: float, billing: float) -> None:
        used = seconds * self._decay**seconds * billing
        name: str | None = user
        while name is not None:
            self.usage[name] += used
            name = self._of[name].parent

    def _rank(self) -> None:
        left = rank = self._users
        tops = [(a, self._level(a)) for a in self._children[None]]

        def visit(siblings: list[tuple[Association, float]]) -> None:
            nonlocal left, rank
            ordered = sorted(siblings, key=lambda pair: -pair[1])
            k = 0
            while k < len(ordered):
                level = ordered[k][1]
                group = [a for a, other in ordered if other == level]
                for a in (a for a in group if a.user):
                    if a is group[0]:
                        rank = left
                    if a.name in self._known:
                        self.factor[a.name] = rank / self._users
                    left -= 1
                # Children of accounts with equal levels are ranked together.
                below = [(c, self._level(c)) for a in group if not a.user for c in self._children.get(a.name, [])]
                if below:
                    visit(below)
                k += len(group)

        visit(tops)

    def _level(self, a: Association) -> float:
        """Return the share of `a` among its siblings divided by its share of their parent's usage."""
        siblings = self._children[a.parent]
        whole = self.usage[a.parent] if a.parent is not None else sum(self.usage[s.name] for s in siblings)
        if not self.usage[a.name]:
            return float("inf")
        return a.shares / sum(s.shares for s in siblings) / (self.usage[a.name] / whole)


def priority(weights: Weights, job: Asked, age: float, fair_share: float) -> int:
    """Return a job's priority at an age [s], with its user's factor."""
    highest = max(weights.partition_factors.values(), default=0) or 1
    best = max(weights.qos_priorities.values(), default=0) or 1
    return int(
        weights.age * min(1.0, age / weights.max_age)
        + weights.fair_share * fair_share
        + weights.job_size * (job.nodes / weights.nodes + job.cpus / weights.cpus) / 2
        + weights.partition * weights.partition_factors.get(job.partition, 0) / highest
        + weights.qos * weights.qos_priorities.get(job.qos, 0) / best
        - job.nice
    )
