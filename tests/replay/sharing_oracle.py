"""SJF-FFS and SJF-BSBF in plain Python, trying every waiting job in each pass, with exact fractions."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.replay.places import wants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Rules", "end_together", "pair", "simulate_plainly"]

PPM = 1_000_000
Gpu = tuple[int, int]


@dataclass(frozen=True)
class Rules:
    """Inputs of the policy."""

    utilization: Sequence[int]
    memory: Sequence[Sequence[int]]
    """Values by number of sub-batches, then by job."""
    speeds: Sequence[int] = (PPM,)
    c: int = 500_000
    residents: int = 2
    test: bool = True
    consolidate: bool = False
    by_service: bool = False


def pair(c: int, u: int, v: int) -> int:
    """Return a job's speed next to another job [ppm]."""
    return max(PPM - (c * u * v + 5 * 10**11) // 10**12, 1)


def end_together(a: int, b: int | Fraction, ra: int, rb: int) -> Fraction:
    """Return the sum of both ends if the jobs share from now on, by simulating them."""
    fa, fb = Fraction(ra, PPM), Fraction(rb, PPM)
    if a / fa >= b / fb:
        end_b = b / fb
        return end_b + end_b + a - end_b * fa
    end_a = a / fa
    return end_a + end_a + b - end_a * fb


@dataclass
class Plain:
    """A run."""

    jobs: Jobs
    cluster: Cluster
    rules: Rules
    now: int = 0
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    rate: dict[int, int] = field(default_factory=dict)
    step: dict[int, int] = field(default_factory=dict)
    places: dict[int, list[Gpu]] = field(default_factory=dict)
    on: dict[Gpu, list[int]] = field(default_factory=dict)
    busy_ms: int = 0

    def run(self) -> None:
        """Follow time event by event."""
        count = len(self.jobs)
        self.up = [not gone for gone in self.cluster.absent]
        self.want = wants(self.jobs, self.cluster)
        self.on = {(n, g): [] for n in range(self.cluster.nodes) for g in range(int(self.cluster.gpus[n]))}
        self.left = {j: int(self.jobs.work_ms[j]) * PPM for j in range(count)}
        changes = self.cluster
        moves = list(zip(changes.change_ms, changes.change_node, changes.change_up, strict=True))
        coming = list(range(count))
        waiting: list[int] = []
        while coming or waiting or self.rate:
            times = [self.due(j) for j in self.rate]
            times += [int(self.jobs.submit_ms[j]) for j in coming[:1]] + [int(move[0]) for move in moves[:1]]
            if not times:
                return
            self.pass_time(min(times))
            self.finish()
            while moves and moves[0][0] <= self.now:
                _, node, up = moves.pop(0)
                self.up[node] = bool(up)
            while coming and self.jobs.submit_ms[coming[0]] <= self.now:
                waiting += [j for j in [coming.pop(0)] if self.possible(j)]
            self.set_rates()
            self.schedule(waiting)

    def finish(self) -> None:
        """End the jobs without work left."""
        for j in [j for j in sorted(self.rate) if self.left[j] == 0]:
            self.end[j] = self.now
            for gpu in self.places[j]:
                self.on[gpu].remove(j)
            del self.rate[j]

    def schedule(self, waiting: list[int]) -> None:
        """Try every waiting job in key order."""
        for j in sorted(waiting, key=self.key):
            found = self.choose(j)
            if found is not None:
                self.step[j], self.places[j] = found
                waiting.remove(j)
                self.start[j], self.rate[j] = self.now, PPM
                for gpu in self.places[j]:
                    self.on[gpu].append(j)
                self.set_rates()

    def due(self, j: int) -> int:
        return self.now + -(-self.left[j] // self.rate[j])

    def pass_time(self, until: int) -> None:
        self.busy_ms += (until - self.now) * sum(bool(holders) for holders in self.on.values())
        for j, rate in self.rate.items():
            self.left[j] = max(0, self.left[j] - rate * (until - self.now))
        self.now = until

    def key(self, j: int) -> tuple[int, int]:
        return int(self.jobs.work_ms[j]) * (self.want[j].gpus if self.rules.by_service else 1), j

    def set_rates(self) -> None:
        u = self.rules.utilization
        for j in self.rate:
            slowest = PPM
            for gpu in self.places[j]:
                product = PPM
                speeds = sorted(pair(self.rules.c, u[j], u[k]) for k in self.on[gpu] if k != j)
                for i, speed in enumerate(speeds):
                    product = speed if i == 0 else (product * speed + PPM // 2) // PPM
                slowest = min(slowest, max(product, 1))
            self.rate[j] = max(slowest * self.rules.speeds[self.step[j]] // PPM, 1)

    def models(self, j: int) -> list[list[int]]:
        """Return the accepted nodes in the job's domain by GPU model."""
        found: dict[int, list[int]] = {}
        for n in range(self.cluster.nodes):
            model = int(self.cluster.model[n])
            if self.cluster.domain[n] == self.want[j].domain and self.want[j].model in {
                None,
                self.cluster.models[model],
            }:
                found.setdefault(model, []).append(n)
        return list(found.values())

    def possible(self, j: int) -> bool:
        return any(sum(int(self.cluster.gpus[n]) for n in nodes) >= self.want[j].gpus for nodes in self.models(j))

    def load(self, node: int) -> int:
        return len({j for (n, _), holders in self.on.items() if n == node for j in holders})

    def gpus(self, nodes: list[int]) -> list[Gpu]:
        """Return the GPUs, ordered by their node's number of jobs."""
        order = sorted((n for n in nodes if self.up[n]), key=lambda n: (self.load(n), n))
        return [(n, g) for n in order for g in range(int(self.cluster.gpus[n]))]

    def may_share(self, j: int, step: int, gpu: Gpu) -> bool:
        holders, memory = self.on[gpu], self.rules.memory
        held = sum(memory[self.step[k]][k] for k in holders) + memory[step][j]
        if not 0 < len(holders) < self.rules.residents or held > PPM:
            return False
        if not self.rules.test:
            return True
        if len(holders) > 1:
            return False
        a, b, together = self.pair_end(j, step, holders[0])
        return together < 2 * b + a

    def pair_end(self, j: int, step: int, other: int) -> tuple[int, int, Fraction]:
        """Return the work of both jobs, and the sum of their ends if they share."""
        a, b = int(self.jobs.work_ms[j]), -(-self.left[other] // PPM)
        longer = -(-a * PPM // self.rules.speeds[step])
        r = pair(self.rules.c, self.rules.utilization[j], self.rules.utilization[other])
        return a, b, end_together(longer, b, r, r)

    def partners(self, j: int, step: int, nodes: list[int]) -> list[tuple[int, int, Gpu]]:
        """Return (sum of ends, partner, GPU) in the order of preference."""
        found = []
        for gpu in self.gpus(nodes):
            if self.may_share(j, step, gpu):
                if not self.rules.test:
                    found.append((0, 0, gpu))
                    continue
                other = self.on[gpu][0]
                found.append((int(self.pair_end(j, step, other)[2] // 1), other, gpu))
        if self.rules.test:
            found.sort(key=lambda p: (p[0], p[1], self.places[p[1]].index(p[2])))
        return found

    def choose(self, j: int) -> tuple[int, list[Gpu]] | None:
        """Return (sub-batches, GPUs), or None if the job must wait."""
        wanted = self.want[j].gpus
        models = self.models(j)
        steps = range(len(self.rules.speeds))
        idle = {n: [gpu for gpu in self.gpus([n]) if not self.on[gpu]] for nodes in models for n in nodes}
        if self.rules.consolidate:
            enough = [n for n in idle if len(idle[n]) >= wanted]
            if enough:
                return 0, idle[min(enough, key=lambda n: (len(idle[n]), n))][:wanted]
        for nodes in models:
            free = [gpu for gpu in self.gpus(nodes) if not self.on[gpu]]
            if len(free) >= wanted:
                return 0, free[:wanted]
        if self.rules.consolidate:
            for step in steps:
                every = {n: [*idle[n], *(p[2] for p in self.partners(j, step, [n]))] for n in idle}
                enough = [n for n in every if len(every[n]) >= wanted]
                if enough:
                    return step, every[min(enough, key=lambda n: (len(every[n]), n))][:wanted]
        for nodes in models:
            found = self.spread(j, nodes)
            if found is not None:
                return found
        return None

    def spread(self, j: int, nodes: list[int]) -> tuple[int, list[Gpu]] | None:
        """Return all idle GPUs, and shared GPUs for the rest."""
        free = [gpu for gpu in self.gpus(nodes) if not self.on[gpu]]
        wanted = self.want[j].gpus - len(free)
        best: tuple[int, int, list[Gpu]] | None = None
        for step in range(len(self.rules.speeds)):
            others = self.partners(j, step, nodes)[:wanted]
            if len(others) == wanted and (best is None or others[-1][0] < best[0]):
                best = (others[-1][0], step, [*free, *(p[2] for p in others)])
        return None if best is None else best[1:]


def simulate_plainly(jobs: Jobs, cluster: Cluster, rules: Rules) -> Plain:
    """Run the jobs."""
    plain = Plain(jobs, cluster, rules)
    plain.run()
    return plain
