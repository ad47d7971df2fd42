"""AntMan: guaranteed jobs within quotas, and opportunistic ones on the GPUs that have least to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.quotas import NO_QUOTA, quotas, tenants
from tracekit.policies.residents import FULL, Demand, Lines, Residents
from tracekit.replay.assumptions.of_jobs import classes
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["AntMan"]


class _Seats:
    """Plans of one replay; of one run at a time."""

    def __init__(
        self,
        demand: Demand,
        guest: NDArray[np.int8],
        tenant: NDArray[np.int32],
        quota: NDArray[np.int64],
        quota_ms: NDArray[np.int64],
        *,
        cap: float,
        guests: int,
        least: float,
    ) -> None:
        self.demand, self.guest, self.tenant = demand, guest.tolist(), tenant.tolist()
        self.quota, self.quota_ms = quota, quota_ms
        self.cap, self.guests, self.least = round(cap * FULL), guests, round(least * FULL)
        self.view: View | None = None

    def _begin(self, view: View) -> None:
        demand = self.demand
        # Jobs of one line have the same class and tenant too: both decide which jobs may start.
        self.view, self.books = view, Residents(demand, view)
        self.hosts, self.lodgers = Lines(demand.type), Lines(demand.type)
        self.held = np.zeros(self.quota.shape[1], np.int64)
        size = len(demand.node)
        self.load, self.host = np.zeros(size, np.int64), np.full(size, -1)
        self.room = np.bincount(demand.node, minlength=len(demand.first)).astype(np.int64)
        self.guests_on = np.zeros(size, np.int64)
        self.where: dict[int, list[int]] = {}

    def plan(self, view: View) -> Plan:
        """Return which jobs start, and the current speed of every job."""
        if self.view is not view:
            self._begin(view)
        new, ended = self.books.follow(view)
        for job in ended:
            self._count(job, -1)
        for job in new:
            (self.lodgers if self.guest[job] else self.hosts).add(job)
        row = max(int(np.searchsorted(self.quota_ms, view.now_ms, side="right")) - 1, 0)
        limit = self.quota[row]
        up = view.node_gpus > 0
        if len(self.hosts):
            self.hosts.start(lambda job: self._host(job, limit, np.where(up, self.room, 0)))
        if len(self.lodgers):
            there = up[self.demand.node]
            self.lodgers.start(lambda job: self._lodge(job, there))
        later = self.quota_ms[self.quota_ms > view.now_ms]
        wake = int(later[0]) if len(later) and len(self.hosts) else -1
        return self.books.plan(self._speed, wake)

    def _host(self, job: int, limit: NDArray[np.int64], room: NDArray[np.int64]) -> bool:
        """Start a guaranteed job, if its tenant may have more GPUs and some have no guaranteed jobs."""
        tenant = self.tenant[job]
        if self.held[tenant] + self.demand.gpus[job] > limit[tenant]:
            return False
        found = self.demand.nodes_for(job, room)
        if found is None:
            return False
        gpus = []
        for node, count in found:
            first = int(self.demand.first[node])
            free = [first + at for at in range(int(self.books.view.node_gpus[node])) if self.host[first + at] < 0]
            gpus += sorted(free, key=lambda gpu: (int(self.load[gpu]), gpu))[:count]
        self._seat(job, sorted(gpus))
        return True

    def _lodge(self, job: int, there: NDArray[np.bool_]) -> bool:
        """Start an opportunistic job on the GPUs with the least load."""
        demand, books, gpus = self.demand, self.books, self.demand.gpus[job]
        best: tuple[int, list[int]] | None = None
        for own in demand.gpus_of(job):
            if len(own) < gpus:
                continue
            fits = there[own] & (self.load[own] < self.cap) & (self.guests_on[own] < self.guests)
            fits &= books.memory[own] + demand.memory[job] <= FULL
            load = np.where(fits, self.load[own], self.cap)
            chosen = np.array([load.argmin()]) if gpus == 1 else np.argsort(load, kind="stable")[:gpus]
            if load[chosen[-1]] < self.cap:
                total = int(load[chosen].sum())
                if best is None or total < best[0]:
                    best = total, sorted(own[chosen].tolist())
        if best is None:
            return False
        self._seat(job, best[1])
        return True

    def _seat(self, job: int, gpus: list[int]) -> None:
        self.books.put(job, gpus)
        self.where[job] = gpus
        self._count(job, 1)

    def _count(self, job: int, sign: int) -> None:
        gpus = self.where[job] if sign > 0 else self.where.pop(job)
        self.load[gpus] += sign * self.demand.used[job]
        if self.guest[job]:
            self.guests_on[gpus] += sign
            return
        self.held[self.tenant[job]] += sign * len(gpus)
        self.host[gpus] = job if sign > 0 else -1
        for gpu in gpus:
            self.room[self.demand.node[gpu]] -= sign

    def _speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job: guaranteed jobs are never slowed, the others share what is left."""
        if not self.guest[job]:
            return FULL
        host = int(self.host[gpu])
        left = FULL if host < 0 else max(FULL - self.demand.used[host], self.least)
        needed = max(self.demand.used[job] * int(self.guests_on[gpu]), 1)
        return max(min(left * FULL // needed, FULL), 1)


class AntMan(Policy):
    """Guaranteed jobs by quota, opportunistic jobs on what these leave."""

    card: ClassVar[Card] = Card(
        name="antman",
        title="guaranteed jobs within quotas; opportunistic jobs share the least loaded GPUs",
        rule=(
            "Guaranteed jobs start first, in order of submission, if their VC's quota allows it and enough GPUs "
            "without guaranteed jobs are in one place. They take the least loaded GPUs of a node, even if "
            "opportunistic jobs run there. Opportunistic jobs count against no quota. Each of their GPUs must "
            "have a load (the sum of the utilizations there) below `cap`, enough memory left and fewer than "
            "`guests` opportunistic jobs; the least loaded GPUs come first, on any nodes. No job is stopped, and "
            "a job that cannot start is skipped. A guaranteed job runs as if it were alone. Opportunistic jobs "
            "share what it leaves, at least the share `least`, in equal parts. Utilization and memory are counted "
            "in whole percent."
        ),
        parameters=(
            Parameter("cap", 0.8, "a GPU at this load or above takes no opportunistic job [0..1; inf]"),
            Parameter("guests", 1, "most opportunistic jobs on a GPU", minimum=1, maximum=8),
            Parameter(
                "least", 0.05, "share that opportunistic jobs get at least [0..1]", minimum=0.000001, maximum=1.0
            ),
            Parameter(
                "quota",
                "stated",
                "quotas for guaranteed jobs: those that the cluster defines; or, if it defines none, also those "
                "of D9; or none",
                ("stated", "held", "off"),
            ),
            Parameter("gap", 0.0, "least time between two decisions [s]"),
        ),
        assumptions=("D1", "D9", "M1", "M2", "M4", "M10"),
        quotas=True,
        equal_to=(
            "Without opportunistic jobs: limits; with quota=off: fifo,scan=skip.",
            "With cap=0: no opportunistic job ever starts.",
        ),
        sources=(
            (
                "Xiao et al., AntMan (OSDI'20), and the scheduler plugin that Alibaba released: an opportunistic "
                "pod has exactly one GPU, the one with the lowest utilization below 80 %, if memory is left."
            ),
            (
                "Own choices: a job of several GPUs is as many pods, placed at once; load is the sum of mean "
                "utilizations instead of 30 samples, and memory is that of M2 instead of 16 GiB; guaranteed jobs "
                "always find memory, because other jobs' memory moves to the host; no class 'auto' and no "
                "promotion, which are still to be done in the plugin too."
            ),
        ),
    )

    @property
    def lends(self) -> bool:
        """Opportunistic jobs use the nodes of all VCs."""
        return True

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job.

        Raises
        ------
        UsageError
            With quota=held there are neither quotas nor recorded starts.
        """
        p = self.parameters
        guest, tenant = classes(models, jobs, seed), tenants(jobs)
        if p["quota"] == "held" or (p["quota"] == "stated" and cluster.tenants):
            table, times = quotas(jobs, cluster, models)
        else:
            table, times = np.full((1, len(jobs.tenants) + 1), NO_QUOTA, np.int64), np.zeros(1, np.int64)
        seats = _Seats(
            Demand(jobs, cluster, models, tenant.astype(np.int64)),
            guest,
            tenant,
            table,
            times,
            cap=min(p["cap"], 1000.0),
            guests=p["guests"],
            least=p["least"],
        )
        return Planner(seats.plan, gap_ms=round(p["gap"] * 1000), scope=0, names_nodes=True, share=1 + p["guests"])
