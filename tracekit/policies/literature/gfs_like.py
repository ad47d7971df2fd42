"""After GFS, as far as its rule is known: spot jobs run within a forecast quota and are evicted with least harm."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.evictable import Evictable
from tracekit.policies.literature.residents import Lines
from tracekit.policies.network_tiers import FEWEST, Places, Spot
from tracekit.policies.parameters import overhead, scan
from tracekit.policies.plans import Planned, Plans
from tracekit.policies.pools import make_pools
from tracekit.policies.tenants import tenants
from tracekit.replay.assumptions.of_jobs import classes
from tracekit.replay.assumptions.speeds import PPM
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.policies.network_tiers import Pool
    from tracekit.replay.mechanisms import Plan, View


HOUR_MS = 3_600_000
_WEEK = 168
_WEEKS = 4
_DAY = 24


class Forecast:
    """Hourly guaranteed demand and its forecast. S series, P pools.

    Guaranteed demand is the number of GPUs that guaranteed jobs use or wait for. It has one series for each tenant and
    each set of pools that the tenant's jobs accept. Hours count from the first submission.

    Parameters
    ----------
    accepts : array of bool (S, P)
        The pools that the jobs of each series may use.
    q : float
        Quantile of the peak to forecast, above 0 and below 1.
    span_ms : int
        Guaranteed time of a spot job [ms].
    """

    def __init__(self, accepts: Bools, q: float, span_ms: int) -> None:
        self.accepts = accepts
        self._z = NormalDist().inv_cdf(q)
        # A job that starts at the end of the hour must not be evicted in the following hours.
        self._hours = 1 + min(-(-span_ms // HOUR_MS), _WEEK - 1)
        series = len(accepts)
        self.now: Ints = np.zeros(series, np.int64)
        """Demand of each series [GPUs] (S,)."""
        self.hour = 0
        """Number of completed hours."""
        self._peak = self.now.copy()
        self._peaks = np.zeros((_WEEKS * _WEEK, series))

    def change(self, series: int, gpus: int) -> None:
        """Add GPUs to the demand of a series, or subtract them."""
        self.now[series] += gpus
        self._peak[series] = max(self._peak[series], self.now[series])

    def end_hour(self) -> None:
        """Complete an hour and store its peaks."""
        self._peaks[self.hour % len(self._peaks)] = self._peak
        self._peak = self.now.copy()
        self.hour += 1

    def forecast(self, gpus: Ints) -> Floats:
        """Return the quantile of the peak demand in each pool from this hour on [GPUs] (P,).

        The demand of a series that accepts several pools is split in proportion to their GPUs. Series are assumed to be
        independent, and their sum to be normal.

        Parameters
        ----------
        gpus : array (P,)
            GPUs of each pool.
        """
        there = self.accepts * gpus
        part = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
        worst = np.zeros(len(gpus))
        for hour in range(self.hour, self.hour + self._hours):
            mean, variance = self._hour(hour)
            worst = np.maximum(worst, mean @ part + self._z * np.sqrt(variance @ part**2))
        return np.clip(worst, 0, gpus)

    def _hour(self, hour: int) -> tuple[Floats, Floats]:
        """Return the mean and variance of each series' peak in a future hour (S,), (S,)."""
        past = hour - _WEEK * np.arange(1, _WEEKS + 1)
        past = past[past >= 0]
        if len(past) > 1:
            seen = self._peaks[past % len(self._peaks)]
            return seen.mean(axis=0), seen.var(axis=0, ddof=1)
        # If fewer than two weeks are known, use the current demand and the hourly changes of the last day.
        last = np.arange(max(self.hour - _DAY, 0), self.hour)
        changes = np.diff(self._peaks[last % len(self._peaks)], axis=0)
        return self.now.astype(np.float64), (changes**2).sum(axis=0) / max(len(changes), 1)


class Feedback:
    """The quota's factor, adjusted every hour by the evictions and waits of spot jobs.

    Parameters
    ----------
    factor : float
        Initial factor.
    target : float
        Share of a day's spot starts that may end in eviction [0..1].
    wait_ms : float
        Wait of a spot job above which the quota grows [ms].
    """

    LOW, HIGH = 0.2, 1.2
    DOWN, UP = 0.9, 1.05

    def __init__(self, factor: float, target: float, wait_ms: float) -> None:
        self.factor, self.target, self.wait_ms = factor, target, wait_ms
        self.starts = self.evictions = 0
        """Spot starts and evictions in this hour."""
        self._day: list[tuple[int, int]] = []

    def end_hour(self, longest_ms: int) -> None:
        """Complete an hour. `longest_ms` is a spot job's longest wait at the end of the hour, or 0 [ms]."""
        self._day = [*self._day[1 - _DAY :], (self.starts, self.evictions)]
        self.starts = self.evictions = 0
        starts, evictions = (sum(column) for column in zip(*self._day, strict=True))
        if evictions > self.target * starts:
            self.factor = max(self.factor * self.DOWN, min(self.LOW, self.factor))
        elif longest_ms > self.wait_ms:
            self.factor = min(self.factor * self.UP, max(self.HIGH, self.factor))


_FULL = 1_000_000
_MANY = 1 << 40
"""A number larger than any GPU count."""
_LONGEST_S = 1e9


class _SpotJobs(Plans):
    """Plans for guaranteed and spot jobs. n jobs, N nodes, P pools."""

    def set_up(self) -> None:
        """Determine the spot jobs, and the demand series to which each job belongs."""
        jobs, cluster, models = self.jobs, self.cluster, self.models
        self.settings.update(scope=0, names_nodes=True)
        # `checkpoint` already determines the repeated work of a stopped job, so do not also charge M9's lost work.
        self.models = replace(models, overhead=replace(models.overhead, lost_work_s=0.0))
        self.rule, self.skip, self.adapt = self.p["quota"], self.p["scan"] == "skip", self.p["adapt"]
        self.spot: list[bool] = (classes(models, jobs, self.seed) == 1).tolist()
        """Whether each job is a spot job."""
        self.size: list[int] = jobs.devices.tolist()
        self.places, self.pools = Places(jobs, cluster), make_pools(jobs, cluster, "place")
        self.kind: list[int] = self.places.kind.tolist()
        accepts, of_kind = np.unique(self.pools.accepts, axis=0, return_inverse=True)
        code = tenants(jobs) * len(accepts) + of_kind.ravel()[self.places.kind]
        known, series = np.unique(code, return_inverse=True)
        self.series: list[int] = series.ravel().tolist()
        self.series_accepts = accepts[known % max(len(accepts), 1)]
        """The pools that the jobs of each series may use."""

    def begin(self, view: View) -> None:
        p = self.p
        self.view = view
        self.node_pool = self.pools.group_pool[view.node_group]
        span_ms = math.ceil(min(p["guarantee"], _LONGEST_S) * 1000)
        self.demand = Forecast(self.series_accepts, p["q"], span_ms)
        self.feedback = Feedback(p["factor"], p["target"], p["wait"] * 1000)
        domains = max((pool.domain for pool in self.places.pools), default=0) + 1
        self.guaranteed = [Lines(self.kind) for _ in range(domains)]
        self.waiting = Lines(self.kind)
        self.hosts: set[int] = set()
        """Running guaranteed jobs."""
        self.spots = Evictable(p, self.gpus, self.cluster.nodes, self.overhead_ms)
        self.since: dict[int, int] = {}
        """Time at which each waiting spot job began to wait [ms]."""
        self.spot_in = np.zeros(len(self.pools.model), np.int64)
        """GPUs of spot jobs in each pool (P,)."""
        self.limit: Ints = np.zeros(len(self.pools.model), np.int64)
        """The quota of each pool [GPUs] (P,)."""
        self._known = -1, b""
        self._submitted = 0

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start or are evicted now."""
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
        stopped = [job for job in self.lost if job not in self.named]
        lost_ms = np.array([self.lost.get(job, 0) for job in (*stopped, *self.named)], np.int64)
        wake_ms = (self.demand.hour + 1) * HOUR_MS if wakes else -1
        return self.written(stopped, dict.fromkeys(self.named, PPM), self.named, wake_ms, lost_ms=lost_ms)

    def _follow(self, view: View) -> None:
        """Remove ended jobs, and add new waiting jobs."""
        status, names = view.status, kernel()
        count = len(self.hosts) + len(self.spots.where)
        if view.running_jobs < count:
            running = np.fromiter(chain(self.hosts, self.spots.where), np.int64, count)
            ended = running[status[running] != names.RUNNING]
            # Without running or waiting jobs, no plan is requested, so hours may have passed since the last plan.
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
        """Remove a job that has ended."""
        if self.spot[job]:
            self.spot_in[self.node_pool[self.spots.take(job).nodes[0]]] -= self.size[job]
        else:
            self.hosts.discard(job)
            self.demand.change(self.series[job], -self.size[job])

    def _let_wait(self, job: int) -> None:
        if self.spot[job]:
            self.waiting.add(job)
            self.since[job] = self.view.now_ms
        else:
            self.guaranteed[self._pool(job).domain].add(job)
            self.demand.change(self.series[job], self.size[job])

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
        """Update the quotas if an hour has passed or nodes have arrived or left."""
        gpus = self.pools.gpus(view)
        known = self.demand.hour, gpus.tobytes()
        if known == self._known:
            return
        self._known = known
        if self.rule == "all":
            self.limit = np.full(len(gpus), _MANY)
        else:
            left = gpus - self.demand.forecast(gpus)
            # Round first: a sum of many fractions may miss a whole number slightly.
            self.limit = np.floor(np.round(self.feedback.factor * left, 6)).astype(np.int64)

    def _start_spot(self, job: int) -> bool:
        """If the pool's quota allows it, start a spot job on the node with the most spot GPUs among those with room."""
        gpus = self.size[job]
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
        """Start a guaranteed job, by evicting spot jobs if necessary."""
        gpus, nodes = self.size[job], self._pool(job).nodes
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
        """Evict spot jobs with the least harm, and return the spot freed for a guaranteed job."""
        now = self.view.now_ms
        found = self.spots.cheapest(self._pool(job), self.size[job], self.free, self.there, now)
        if found is None:
            return None
        place, victims = found
        for victim in victims:
            spot, self.lost[victim] = self.spots.evict(victim, now)
            self.spot_in[self.node_pool[spot.nodes[0]]] -= self.size[victim]
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
        self.spot_in[self.node_pool[spot.nodes[0]]] += self.size[job]
        self.spots.put(job, spot, self.view.now_ms)
        self.feedback.starts += 1


class GfsLike(Planned):
    """Spot jobs within a quota forecast from guaranteed demand, evicted with least harm (after GFS).

    Guaranteed jobs start first, in submission order: on nodes without spot jobs if they fit there, otherwise next to
    spot jobs, otherwise by evicting spot jobs. Evictions happen where they do the least harm, and among equals where
    fewer jobs are evicted. The harm is GPUs times the run time since the last checkpoint, plus `harm` for each job. It
    counts half for a job that has run for its guaranteed time. For a multi-node gang, an integer program chooses the
    nodes. Evicted jobs wait again in submission order and repeat their lost time. A spot job starts on the node with
    the most spot GPUs where it fits, as long as the spot GPUs of that domain and GPU model stay within the quota:
    `factor` * (GPUs - the quantile `q` of the peak guaranteed demand within the guaranteed time). Demand is the number
    of GPUs that guaranteed jobs use or wait for. It is forecast every hour for each VC and GPU model, from the mean and
    deviation of that hour of the week in the last four weeks. For the first two weeks, the forecast uses the current
    demand and the hourly changes of the last day. VCs are assumed to be independent and their sum to be normal. The
    factor is then multiplied by 0.9 if more than the share `target` of the last day's spot starts ended in eviction, or
    else by 1.05 if a spot job has waited longer than `wait`. It stays between 0.2 and 1.2.

    Equal to
    --------
    - Without spot jobs, the policy equals fifo with the same scan.
    - With quota=none, spot jobs never start, and the other jobs run as if there were no spot jobs.
    - With quota=all, checkpoint=inf, guarantee=inf and one-GPU jobs, the policy is plain preemption by priority: the
      spot job that started last is evicted and starts over.

    Sources
    -------
    - Duan et al., GFS (ASPLOS'26, arXiv 2509.11134), abstract: a probabilistic linear forecast of each organization's
      demand, a spot quota with a guaranteed time, and preemption that does least harm.
    - Our choices, because we could not read the formulas: the forecast, the quota and its factor, the harm, the
      placement and the order of victims. A job that accepts several GPU models counts towards each model in proportion
      to the model's GPUs. Spot jobs are the preemptible jobs, which M10 determines if the trace does not mark them.
    """

    plans = _SpotJobs
    card = Card(
        name="gfs-like",
        parameters=(
            Parameter(
                "quota",
                "forecast",
                "GPUs that spot jobs may use: those that the forecast leaves, all free GPUs, or none",
                ("forecast", "all", "none"),
            ),
            Parameter("q", 0.9, "quantile of the peak guaranteed demand [1]", minimum=0.001, maximum=0.999),
            Parameter("guarantee", 3600.0, "guaranteed time of a spot job, and forecast horizon [s]"),
            Parameter("factor", 1.0, "initial factor of the quota [1]", maximum=10),
            Parameter("adapt", True, "whether evictions and waits adjust the factor"),
            Parameter("target", 0.05, "share of spot starts that may end in eviction [1]", maximum=1),
            Parameter("wait", 3600.0, "wait of a spot job above which the factor grows [s]"),
            Parameter("harm", 3600.0, "harm of an eviction in addition to the lost time [GPU*s]", maximum=1e9),
            Parameter(
                "checkpoint", 1800.0, "run time between checkpoints, 0 to lose no work, or inf to lose all work [s]"
            ),
            Parameter(
                "limit",
                1000,
                "maximum number of search nodes of the program, or 0 for no limit; after that, its best solution is "
                "used, and without a solution the gang waits",
            ),
            scan("skip"),
            overhead("none"),
        ),
        assumptions=("D1", "M4", "M9", "M10"),
    )
