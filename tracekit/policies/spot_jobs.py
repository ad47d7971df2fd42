"""Guaranteed jobs and spot jobs on the same nodes: who starts where, and who is evicted."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.evictable import Evictable
from tracekit.policies.places import FEWEST, Places, Spot
from tracekit.policies.pools import make_pools
from tracekit.policies.quotas import tenants
from tracekit.policies.residents import Lines
from tracekit.policies.spot_quota import HOUR_MS, Demand, Feedback
from tracekit.replay.mechanisms import Plan, View
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.policies.interface import Value
    from tracekit.policies.places import Pool
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["SpotJobs"]

_FULL = 1_000_000
_MANY = 1 << 40
"""More than any number of GPUs."""
_LONGEST_S = 1e9


class SpotJobs:
    """The books of one run; n jobs, N nodes, P pools.

    Parameters
    ----------
    parameters : dict
        Those of the card of gfs-like.
    spot : array of bool (n,)
        Which jobs are spot jobs.
    overhead_ms : array
        What a preemption costs by gang size [ms].
    """

    def __init__(
        self,
        parameters: Mapping[str, Value],
        jobs: Jobs,
        cluster: Cluster,
        spot: NDArray[np.bool_],
        overhead_ms: NDArray[np.int64],
        view: View,
    ) -> None:
        p = {name: float(value) for name, value in parameters.items() if not isinstance(value, str)}
        self.view, self.rule, self.skip = view, parameters["quota"], parameters["scan"] == "skip"
        self.adapt = bool(parameters["adapt"])
        self.spot: list[bool] = spot.tolist()
        self.gpus: list[int] = jobs.devices.tolist()
        self.places, self.pools = Places(jobs, cluster), make_pools(jobs, cluster, "place")
        self.kind: list[int] = self.places.kind.tolist()
        self.node_pool = self.pools.group_pool[view.node_group]
        accepts, of_kind = np.unique(self.pools.accepts, axis=0, return_inverse=True)
        code = tenants(jobs) * len(accepts) + of_kind.ravel()[self.places.kind]
        known, series = np.unique(code, return_inverse=True)
        self.series: list[int] = series.ravel().tolist()
        span_ms = math.ceil(min(p["guarantee"], _LONGEST_S) * 1000)
        self.demand = Demand(accepts[known % max(len(accepts), 1)], p["q"], span_ms)
        self.feedback = Feedback(p["factor"], p["target"], p["wait"] * 1000)
        domains = max((pool.domain for pool in self.places.pools), default=0) + 1
        self.guaranteed = [Lines(self.kind) for _ in range(domains)]
        self.waiting = Lines(self.kind)
        self.hosts: set[int] = set()
        """Guaranteed jobs that run."""
        self.spots = Evictable(
            jobs.devices.astype(np.int64),
            cluster.nodes,
            p["guarantee"] * 1000,
            p["checkpoint"] * 1000,
            round(p["harm"] * 1000),
            overhead_ms,
            int(p["limit"]),
        )
        self.since: dict[int, int] = {}
        """Since when each waiting spot job waits [ms]."""
        self.spot_in = np.zeros(len(self.pools.model), np.int64)
        """GPUs of spot jobs in each pool (P,)."""
        self.limit: NDArray[np.int64] = np.zeros(len(self.pools.model), np.int64)
        """The quota of each pool [GPUs] (P,)."""
        self._known = -1, b""
        self._submitted = 0

    def plan(self, view: View) -> Plan:
        """Return who starts and who is evicted now."""
        self._follow(view)
        self.free = view.node_free.copy()
        self.there = view.node_gpus > 0
        self.named: dict[int, Spot] = {}
        self.lost: dict[int, int] = {}
        for line in self.guaranteed:
            if len(line):
                line.start(self._start_guaranteed, skip=self.skip)
        if len(self.waiting) and self.rule != "none":
            self._set_limit(view)
            self.waiting.start(self._start_spot)
        wakes = bool(len(self.waiting)) and self.rule == "forecast"
        return self._written((self.demand.hour + 1) * HOUR_MS if wakes else -1)

    def _follow(self, view: View) -> None:
        """Take out who ended, and let who came wait."""
        status, names = view.status, kernel()
        count = len(self.hosts) + len(self.spots.where)
        if view.running_jobs < count:
            running = np.fromiter(chain(self.hosts, self.spots.where), np.int64, count)
            ended = running[status[running] != names.RUNNING]
            # No plan is asked for while nothing runs or waits: an hour may have ended since.
            failed = status[ended] == names.WAITING
            end_ms = np.where(failed, view.now_ms, view.table["end"][ended])
            for at in np.lexsort((ended, end_ms)).tolist():
                self._end_hours(int(end_ms[at]))
                self._end(int(ended[at]))
                if failed[at]:
                    self._let_wait(int(ended[at]))
        self._end_hours(view.now_ms)
        for job in range(self._submitted, view.submitted):
            if status[job] == names.WAITING:
                self._let_wait(job)
        self._submitted = view.submitted

    def _end(self, job: int) -> None:
        """Take a job that ended out."""
        if self.spot[job]:
            self.spot_in[self.node_pool[self.spots.take(job).nodes[0]]] -= self.gpus[job]
        else:
            self.hosts.discard(job)
            self.demand.change(self.series[job], -self.gpus[job])

    def _let_wait(self, job: int) -> None:
        if self.spot[job]:
            self.waiting.add(job)
            self.since[job] = self.view.now_ms
        else:
            self.guaranteed[self._pool(job).domain].add(job)
            self.demand.change(self.series[job], self.gpus[job])

    def _pool(self, job: int) -> Pool:
        return self.places.pools[self.places.kind_pool[self.kind[job]]]

    def _end_hours(self, now_ms: int) -> None:
        while (self.demand.hour + 1) * HOUR_MS <= now_ms:
            self.demand.end_hour()
            end = self.demand.hour * HOUR_MS
            longest = end - min(self.since.values(), default=end)
            if self.adapt:
                self.feedback.end_hour(longest)

    def _set_limit(self, view: View) -> None:
        """Look at the quotas again if an hour has passed, or nodes came or left."""
        gpus = self.pools.gpus(view)
        known = self.demand.hour, gpus.tobytes()
        if known == self._known:
            return
        self._known = known
        if self.rule == "all":
            self.limit = np.full(len(gpus), _MANY)
        else:
            left = gpus - self.demand.forecast(gpus)
            # Rounded first: the sum of many fractions is to be whole where it is meant to be.
            self.limit = np.floor(np.round(self.feedback.factor * left, 6)).astype(np.int64)

    def _start_spot(self, job: int) -> bool:
        """Start a spot job on the node with most of them, if the quota of the pool allows it."""
        gpus = self.gpus[job]
        open_pool = self.spot_in + gpus <= self.limit
        nodes = self._pool(job).nodes
        free = np.where(open_pool[self.node_pool[nodes]], self.free[nodes], 0)
        fits = free >= gpus
        if fits.any():
            key = np.where(fits, free - self.spots.on[nodes] * _FULL, _MANY)
            spot: Spot | None = Spot([int(nodes[key.argmin()])], [gpus])
        else:
            spot = self.places.found(job, FEWEST, np.where(open_pool[self.node_pool], self.free, 0))
        if spot is None:
            return False
        del self.since[job]
        self._put(job, spot)
        return True

    def _start_guaranteed(self, job: int) -> bool:
        """Start a guaranteed job, by evicting spot jobs if it has to."""
        gpus, nodes = self.gpus[job], self._pool(job).nodes
        free, spots = self.free[nodes], self.spots.on[nodes]
        fits = free >= gpus
        if fits.any():
            key = np.where(fits, free + (spots > 0) * _FULL, _MANY)
            self._put(job, Spot([int(nodes[key.argmin()])], [gpus]))
            return True
        found = self.places.found(job, FEWEST, np.where(self.spots.on == 0, self.free, 0))
        if found is None:
            found = self.places.found(job, FEWEST, self.free)
        if found is None and spots.any():
            found = self._evict_for(job)
        if found is None:
            return False
        self._put(job, found)
        return True

    def _evict_for(self, job: int) -> Spot | None:
        """Evict spot jobs with the least harm, and return the place that a guaranteed job then has."""
        now = self.view.now_ms
        found = self.spots.cheapest(self._pool(job), self.gpus[job], self.free, self.there, now)
        if found is None:
            return None
        place, victims = found
        for victim in victims:
            spot, self.lost[victim] = self.spots.evict(victim, now)
            self.spot_in[self.node_pool[spot.nodes[0]]] -= self.gpus[victim]
            self.feedback.evictions += 1
            self.free[spot.nodes] += np.where(self.there[spot.nodes], spot.gpus, 0)
            self._let_wait(victim)
        return place

    def _put(self, job: int, spot: Spot) -> None:
        self.named[job] = spot
        self.free[spot.nodes] -= spot.gpus
        if not self.spot[job]:
            self.hosts.add(job)
            return
        self.spot_in[self.node_pool[spot.nodes[0]]] += self.gpus[job]
        self.spots.put(job, spot, self.view.now_ms)
        self.feedback.starts += 1

    def _written(self, wake_ms: int) -> Plan:
        """Return the plan that starts and stops these jobs."""
        names = [job for job in self.lost if job not in self.named]
        stopped = len(names)
        names += self.named
        rows = [
            (place, node, gpus)
            for place, spot in enumerate(self.named.values(), stopped)
            for node, gpus in zip(spot.nodes, spot.gpus, strict=True)
        ]
        return Plan(
            np.array(names, np.int64),
            np.array([0] * stopped + [self.gpus[job] for job in names[stopped:]], np.int64),
            place=np.array(rows, np.int64).reshape(-1, 3),
            keep=True,
            wake_ms=wake_ms,
            lost_ms=np.array([self.lost.get(job, 0) for job in names], np.int64),
        )
