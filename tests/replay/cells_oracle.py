"""Private cells in plain Python, which checks every block of every node at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.replay.oracle_time import OracleOutcome, Replay, Rule
from tests.replay.places import NodeMap, Take, _buddy, _free_blocks, wants
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Cells

__all__ = ["cells_oracle"]


def cells_oracle(jobs: Jobs, cluster: Cluster, mechanism: Cells, overhead_ms: tuple[int, int, int]) -> OracleOutcome:
    """Replay jobs in a mechanism's cells and with its guarantees."""
    return _CellsOracle(jobs, cluster, mechanism, overhead_ms).run()


class _CellsOracle(Replay):
    def __init__(self, jobs: Jobs, cluster: Cluster, mechanism: Cells, overhead_ms: tuple[int, int, int]) -> None:
        super().__init__(jobs, cluster, Rule(scan=mechanism.order.scan, placement="buddy", overhead_ms=overhead_ms))
        self.private = mechanism.cells.cluster
        self.chain = [int(chain) for chain in mechanism.cells.chain]
        self.whole = [bool(whole) for whole in mechanism.cells.whole]
        self.guaranteed = [bool(flag) for flag in mechanism.guaranteed]
        self.inside = NodeMap(self.private)
        self.inside_want = wants(jobs, self.private)
        self.inside_place: dict[int, list[Take]] = {}
        self.bound: dict[int, tuple[int, int]] = {}  # private cell -> node, first GPU
        self.moving: set[int] = set()

    def can_ever_run(self, job: int) -> bool:
        if self.guaranteed[job]:
            return _buddy(NodeMap(self.private), self.inside_want[job]) is not None
        empty = NodeMap(self.cluster)
        empty.up = [True] * len(empty.up)
        return _buddy(empty, self.want[job]) is not None

    def schedule(self, domain: int) -> None:
        self.see_nodes()
        self.moving = set()
        for guaranteed in (True, False):
            stopped = set()
            waiting = [j for j in self.waiting if self.want[j].domain == domain and self.guaranteed[j] == guaranteed]
            for job in sorted(waiting):
                line = self.inside_want[job].domain if guaranteed else -1
                if line in stopped:
                    continue
                place = self.find_inside(job) if guaranteed else self.find_outside(job)
                if place is None:
                    if self.rule.scan == "stop":
                        stopped.add(line)
                    continue
                if job in self.moving:
                    self.moving.remove(job)
                    self.state[job].migrations += 1
                self.start(job, place)
        for job in self.moving:
            self.state[job].preemptions += 1

    def see_nodes(self) -> None:
        for cell in range(len(self.inside.up)):
            self.inside.up[cell] = cell not in self.bound or self.nodes.up[self.bound[cell][0]]

    def give(self, job: int, place: list[Take]) -> None:
        super().give(job, place)
        if self.guaranteed[job]:
            self.leave_cells(job)

    def leave_cells(self, job: int) -> None:
        place = self.inside_place.pop(job)
        self.inside.give(place, self.inside_want[job].domain)
        for cell, _, _ in place:
            if self.inside.used[cell] == 0:
                self.bound.pop(cell, None)
                self.inside.up[cell] = True

    def find_inside(self, job: int) -> list[Take] | None:
        """Place a job in its VC's cells, bind them, and evict jobs in its way. Return None if it must wait."""
        place = _buddy(self.inside, self.inside_want[job])
        if place is None:
            return None
        self.inside.take(place, self.inside_want[job].domain)
        self.inside_place[job] = place
        for cell, _, _ in reversed(place):
            if cell not in self.bound:
                found = self.block_for(cell)
                if found is None:
                    assert not all(self.nodes.up), "a cell has no block although every node is there"
                    self.leave_cells(job)
                    return None
                self.bound[cell] = found
        real = [(self.bound[cell][0], self.bound[cell][1] + gpu, count) for cell, gpu, count in place]
        for node, first, count in reversed(real):
            for gpu in range(first, first + count):
                self.clear(node, gpu)
        return real

    def find_outside(self, job: int) -> list[Take] | None:
        """Return an unused block of GPUs, outside bound cells if possible."""
        apart = self.nodes.copy()
        for node, taken in enumerate(self.cells_bound()):
            apart.cells[node] = [a or b for a, b in zip(apart.cells[node], taken, strict=True)]
            apart.used[node] = sum(apart.cells[node])
        want = self.want[job]
        place = _buddy(apart, want)
        if place and len(place) == 1 and place[0][2] == 1 << (want.gpus - 1).bit_length():
            return place
        return _buddy(self.nodes, want)

    def block_for(self, cell: int) -> tuple[int, int] | None:
        """Return the smallest free block for a cell and, among equals, the one with the fewest evictable GPUs."""
        chain, size = int(self.private.rack[cell]), int(self.private.gpus[cell])
        taken = self.cells_bound()
        found = []
        for node in range(len(self.chain)):
            if self.chain[node] != chain or not self.nodes.up[node]:
                continue
            if self.whole[chain]:
                blocks = [] if any(taken[node]) else [(0, self.nodes.gpus[node])]
            else:
                blocks = _free_blocks(taken[node], 0, 64)
            found += [(length, self.soft(node, at, length), node, at) for at, length in blocks if length >= size]
        if not found:
            return None
        length, _, node, at = min(found)
        while length > size:
            length //= 2
            at = min((at, at + length), key=lambda first: (self.soft(node, first, length), first))
        return node, at

    def cells_bound(self) -> list[list[bool]]:
        """Return which GPUs on each node are bound to a private cell."""
        taken = [[False] * gpus for gpus in self.nodes.gpus]
        for cell, (node, at) in self.bound.items():
            for gpu in range(at, at + int(self.private.gpus[cell])):
                assert not taken[node][gpu]
                taken[node][gpu] = True
        return taken

    def soft(self, node: int, at: int, length: int) -> int:
        """Return how many GPUs in a block are used by jobs that can be evicted."""
        held = [
            (where, gpu)
            for job in self.running
            if not self.guaranteed[job]
            for where, first, count in self.state[job].place
            for gpu in range(first, first + count)
        ]
        return sum(where == node and at <= gpu < at + length for where, gpu in held)

    def clear(self, node: int, gpu: int) -> None:
        """Evict the job that uses a GPU, if there is one."""
        for job in sorted(self.running):
            if any(where == node and first <= gpu < first + n for where, first, n in self.state[job].place):
                assert not self.guaranteed[job]
                self.settle(job)
                self.give(job, self.state[job].place)
                self.running.remove(job)
                self.waiting.add(job)
                self.moving.add(job)
                small, medium, large = self.rule.overhead_ms
                gpus = self.want[job].gpus
                cost = small if gpus == 1 else medium if gpus <= 8 else large
                self.state[job].overhead += cost
                self.log.append((self.now, LOG_KINDS["stop"], job, -1, -1, cost))
