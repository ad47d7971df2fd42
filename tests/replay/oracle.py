"""A slow and simple replay engine in plain Python, with the compiled engine's rules as they are written.

This module shares nothing with tracekit.replay except the containers of its inputs. "Reading:" marks interpretations of
rules that the text leaves open.
"""

from __future__ import annotations

import bisect
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.replay.oracle_time import Fit, Mode, OracleOutcome, Replay, Row, Rule, Scan
from tests.replay.places import Take, find_place

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Fit", "Mode", "OracleOutcome", "Row", "Rule", "Scan", "oracle"]


def oracle(jobs: Jobs, cluster: Cluster, rule: Rule) -> OracleOutcome:
    """Replay jobs on a cluster under the given rule."""
    return _Oracle(jobs, cluster, rule).run()


class _Oracle(Replay):
    """The scheduling passes."""

    def schedule(self, domain: int) -> None:
        """Run one scheduling pass over a domain."""
        modes = {
            "list": self.list_pass,
            "preemptive": self.preemptive_pass,
            "easy": self.easy_pass,
            "conservative": self.conservative_pass,
            "fair": self.fair_pass,
        }
        modes[self.rule.mode](domain)

    def queue(self, domain: int) -> list[int]:
        """Return the waiting jobs of a domain in key order."""
        return sorted((j for j in self.waiting if self.want[j].domain == domain), key=lambda j: (self.key(j), j))

    def running_in(self, domain: int) -> list[int]:
        """Return the running jobs of a domain by index."""
        return sorted(j for j in self.running if self.want[j].domain == domain)

    def list_pass(self, domain: int) -> None:
        """Start jobs in key order, skipping a job that cannot start, or stopping at it for jobs of its partitions."""
        closed = set()
        failed = set()  # nothing is released in this pass, so equal requests fail alike
        for job in self.queue(domain):
            if self.want[job].sets in closed:
                continue
            level = sum(self.now - self.submit[job] >= wait for wait in self.rule.relax_ms)
            asked = (self.want[job], level, int(self.jobs.tenant[job]))
            place = None if asked in failed else self.find(job)
            if place is not None:
                self.start(job, place)
            elif self.rule.scan == "stop":
                closed.add(self.want[job].sets)
            else:
                failed.add(asked)

    def preemptive_pass(self, domain: int) -> None:
        """Start jobs in key order. A job without a place takes the GPUs of jobs with strictly greater keys."""
        for job in self.running_in(domain):
            self.settle(job)
        queue = [(self.key(job), job) for job in self.queue(domain)]
        old: dict[int, list[Take]] = {}  # places of jobs evicted in this pass
        row_of: dict[int, int] = {}  # their stop rows
        closed = set()
        while queue:
            key, job = queue.pop(0)
            if self.want[job].sets in closed:
                continue
            place, victims = self.find_or_evict(job, key, domain, old)
            if place is None:
                if self.rule.scan == "stop":
                    closed.add(self.want[job].sets)
                continue
            for victim in victims:
                old[victim] = self.state[victim].place
                row_of[victim] = len(self.log)
                self.write("stop", victim)
                self.running.remove(victim)
                self.waiting.add(victim)
                bisect.insort(queue, (self.key(victim), victim))
            if job in old and place != old[job]:
                self.state[job].migrations += 1
                self.charge(job, row_of[job])
            self.start(job, place)
        for job in sorted(old):
            if job in self.waiting:
                self.state[job].preemptions += 1
                self.charge(job, row_of[job])

    def find_again(self, job: int, old: dict[int, list[Take]]) -> list[Take] | None:
        """Return a job's place from before this pass if that is still free, or else a place by the rule."""
        if job in old and self.within_quota(job, old[job]):
            same = old[job]
            by_count = self.rule.fit == "count" and self.nodes.free_by_count(self.want[job].domain) >= same[0][2]
            if by_count or self.nodes.has_room(same):
                return same
        return self.find(job)

    def find_or_evict(
        self, job: int, key: tuple[int, ...], domain: int, old: dict[int, list[Take]]
    ) -> tuple[list[Take] | None, list[int]]:
        """Return a job's place and the jobs that have to go for it."""
        place = self.find_again(job, old)
        return (place, []) if place is not None else self.evict_for(job, key, domain, old)

    def evict_for(
        self, job: int, key: tuple[int, ...], domain: int, old: dict[int, list[Take]]
    ) -> tuple[list[Take] | None, list[int]]:
        """Release running jobs from the greatest key down until the job fits. If it never fits, put them all back."""
        keys = sorted(((self.key(k), k) for k in self.running_in(domain)), reverse=True)
        greater = [k for other, k in keys if other > key]
        released: list[int] = []
        place = None
        # no need to try if all of their GPUs together are too few
        there = sum(sum(n for _, _, n in self.state[k].place) for k in greater) + self.nodes.free_by_count(domain)
        drained = not all(self.nodes.up)
        for victim in greater if there >= self.want[job].gpus or drained else []:
            self.give(victim, self.state[victim].place)
            released.append(victim)
            place = self.find_again(job, old)
            if place is not None:
                taken = {node for node, _, _ in place}
                # Jobs without GPUs on the nodes of this place continue as before.
                for other in released:
                    if taken.isdisjoint(node for node, _, _ in self.state[other].place):
                        self.take(other, self.state[other].place)
                return place, [k for k in released if not taken.isdisjoint(n for n, _, _ in self.state[k].place)]
        for victim in released:
            self.take(victim, self.state[victim].place)
        return None, []

    def charge(self, job: int, row: int) -> None:
        """Add the overhead of a preemption or migration, and write it to the stop row."""
        small, medium, large = self.rule.overhead_ms
        gpus = self.want[job].gpus
        cost = small if gpus == 1 else medium if gpus <= 8 else large
        self.state[job].overhead += cost
        self.state[job].unsaved = []
        self.log[row] = (*self.log[row][:5], cost)

    def estimate(self, job: int) -> int:
        """Return a job's estimated run time [ms]."""
        return self.work[job] if self.rule.estimates is None else self.rule.estimates[job]

    def believed_end(self, job: int) -> int:
        """Return when a running job is estimated to end.

        Reading: an estimate that has passed is doubled until it lies in the future.
        """
        estimate = max(1, self.estimate(job))
        while self.state[job].started + estimate <= self.now:
            estimate *= 2
        exact = self.rule.estimates is None and self.work[job] == 0
        return self.now if exact else self.state[job].started + estimate

    def easy_pass(self, domain: int) -> None:
        """Start jobs from the head. After the first job that must wait, start jobs that do not delay it."""
        queue = self.queue(domain)
        while queue:
            place = self.find(queue[0])
            if place is None:
                break
            self.start(queue.pop(0), place)
        if not queue:
            return
        shadow, spare = self.shadow(queue[0], domain)
        for job in queue[1:]:
            place = self.find(job)
            if place is None:
                continue
            if shadow is None or self.now + self.estimate(job) <= shadow:
                self.start(job, place)
            elif all(spare[node] >= count for node, _, count in place):
                for node, _, count in place:
                    spare[node] -= count
                self.start(job, place)

    def shadow(self, head: int, domain: int) -> tuple[int | None, dict[int, int]]:
        """Return when the head can start by the estimates, and how many GPUs are then left on each node.

        Reading: all jobs estimated to end in the same ms are released together. The time is None if the head cannot
        start even after all jobs have ended (because nodes have left), so that nothing holds the others back.
        """
        nodes = self.nodes.copy()
        ends = sorted((self.believed_end(job), job) for job in self.running_in(domain))
        for at in sorted({end for end, _ in ends}):
            for end, job in ends:
                if end == at:
                    nodes.give(self.state[job].place, domain)
            level = sum(at - self.submit[head] >= wait for wait in self.rule.relax_ms)
            place = find_place(nodes, self.want[head], self.rule.placement, self.rule.fit, level)
            if place is not None:
                nodes.take(place, domain)
                spare = {node: nodes.free(node) for node in range(len(nodes.gpus))}
                spare[-1] = nodes.free_by_count(domain)
                return at, spare
        return None, {}

    def conservative_pass(self, domain: int) -> None:
        """Rebuild all reservations in queue order on the profile of free GPUs. Jobs that are due now and fit start.

        A job without run time uses its GPUs for an instant, which is set to 1 ms.
        """
        steps = [(self.now, self.nodes.free_by_count(domain))]  # (time, change of the free GPUs)
        steps += [
            (self.believed_end(job), sum(n for _, _, n in self.state[job].place)) for job in self.running_in(domain)
        ]
        for job in self.queue(domain):
            gpus, estimate = self.want[job].gpus, max(1, self.estimate(job))
            at = self.earliest(steps, gpus, estimate)
            if at is None:
                continue
            self.reservations[job].append(at)
            steps += [(at, -gpus), (at + estimate, gpus)]
            place = self.find(job) if at == self.now else None
            if place is not None:
                self.start(job, place)

    @staticmethod
    def earliest(steps: list[tuple[int, int]], gpus: int, length: int) -> int | None:
        """Return the first time from which enough GPUs are free for the whole length."""
        totals: dict[int, int] = {}
        for time, change in steps:
            totals[time] = totals.get(time, 0) + change
        free = 0
        since = None
        for time in sorted(totals):
            if since is not None and time >= since + length:
                return since
            free += totals[time]
            if free < gpus:
                since = None
            elif since is None:
                since = time
        return since

    def fair_pass(self, domain: int) -> None:
        """Repeatedly start the first job of the tenant with the least usage relative to its weight.

        Reading: with skip, a tenant whose first job cannot be placed is excluded from this pass with all its jobs.
        """
        queue = self.queue(domain)
        while queue:
            firsts: dict[int, int] = {}
            for job in queue:
                firsts.setdefault(int(self.jobs.tenant[job]), job)
            tenant = min(firsts, key=lambda v: self.share(domain, v))
            job = firsts[tenant]
            place = self.find(job)
            if place is not None:
                self.start(job, place)
                queue.remove(job)
            elif self.rule.scan == "stop":
                return
            else:
                queue = [j for j in queue if int(self.jobs.tenant[j]) != tenant]

    def share(self, domain: int, tenant: int) -> tuple[bool, Fraction, int]:
        """Return the sort key of a tenant: usage relative to weight, then index. Tenants without weight come last."""
        name = self.jobs.tenants[tenant] if tenant >= 0 else None
        if self.rule.weights is not None:
            weight = self.rule.weights.get(name or "", 0)
        elif not self.cluster.tenants:
            weight = 1
        elif name in self.cluster.tenants:
            weight = int(self.cluster.quota[self.next_quota - 1][self.cluster.tenants.index(name)])
        else:
            weight = 0
        used = self.usage[domain, tenant]
        return (weight == 0, Fraction(used, weight) if weight else Fraction(used), tenant)
