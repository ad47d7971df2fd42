"""Gang placement by waiting for tiers (Dally), link priorities (Crux), link allocation (vClos) and sampling (FfDL)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.gangs import GAP, LINKS, Gangs, Waits
from tracekit.policies.interface import Card, Parameter
from tracekit.policies.network_tiers import ANYWHERE, FEWEST, NODE, RACK, RACKS, SPINE, Spot, gathered
from tracekit.policies.parameters import overhead, scan
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.of_jobs import ring_s, traffic_of
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View


_REFERENCE = 0.3
"""Slowdown between tiers from which a gang waits for the whole timer."""
_KNOWN = 5
"""Minimum number of known waits for tuning a timer."""


class _Tiers(Gangs):
    """Gangs that wait for tiers and move to closer tiers."""

    def set_up(self) -> None:
        """Read the timers, and compute each job's patience."""
        super().set_up()
        p = self.p
        self.tier_of, self.best = self.network.tier_of, self.network.best
        self.timer_ms: tuple[float, float] = (p["node"] * 1000, p["rack"] * 1000)
        self.most_ms: float = p["most"] * 1000
        self.quantum_ms, self.tune, self.migrate = p["quantum"] * 1000, p["tune"], p["migrate"]
        alone = self.network.alone_s
        slower = np.stack([alone[:, RACKS] / alone[:, NODE], alone[:, SPINE] / alone[:, RACKS]], axis=1) - 1
        if not self.links:
            slower[:] = self.models.spread.b
        self.patience = np.minimum(slower / _REFERENCE, 1.0)

    def begin(self, view: View) -> None:
        """Begin a run, in which no waits or moves are known yet."""
        super().begin(view)
        self.waits, self.moved_ms = Waits(), dict[int, int]()

    def _timer_ms(self, job: int, tier: int) -> float:
        """Return the time that a job waits for a tier before it accepts the next tier [ms]."""
        patience = float(self.patience[job, tier])
        if patience <= 0:
            return 0.0
        timer = self.timer_ms[tier]
        if self.tune:
            known = self.waits.upper((int(self.jobs.model[job]), tier), _KNOWN, timer)
            timer = min(known, self.most_ms)
        return timer * patience

    def choose(self, job: int) -> Spot | None:
        """Return the closest free GPUs whose tier the job already accepts."""
        best = int(self.best[job])
        due = float(self.arrival_ms[job])
        dues = [due, due, due]
        for tier in range(best, SPINE):
            due += self._timer_ms(job, tier)
            dues[tier + 1] = due
        for near in range(FEWEST, ANYWHERE + 1):
            spot = self.places.find(job, near)
            if spot is None:
                continue
            due = dues[self.tier_of(spot.nodes)]
            if due <= self.now_ms:
                return spot
            self.wake(due)
        return None

    def started(self, job: int, spot: Spot) -> None:
        """Record how long a gang waited for its tier. One-GPU jobs do not wait for tiers."""
        if self.tune and self.gpus[job] > 1:
            wait = float(self.now_ms - self.arrival_ms[job])
            self.waits.add((int(self.jobs.model[job]), self.tier_of(spot.nodes)), wait)

    def moves(self) -> dict[int, Spot]:
        """Return the gangs that move to a closer tier, those with the least work done for their run time first."""
        if not self.migrate:
            return {}
        far = [j for j, spot in self.spots.items() if len(spot.nodes) > 1 and self.tier_of(spot.nodes) > self.best[j]]
        table = self.view.table
        found: dict[int, Spot] = {}
        for job in sorted(far, key=lambda j: (self._progress(table, j), j)):
            if self.now_ms - self.moved_ms.get(job, -(2**62)) < self.quantum_ms:
                continue
            new = self._nearer(job, self.spots[job])
            if new is not None:
                found[job] = self.spots[job] = new
                self.moved_ms[job] = self.now_ms
        return found

    def _progress(self, table: NDArray[np.void], job: int) -> float:
        """Return a job's completed work, divided by its run time so far."""
        done = float(self.jobs.work_ms[job]) - float(table["remaining"][job]) / PPM
        return done / max(float(table["ran"][job]), 1.0)

    def _nearer(self, job: int, old: Spot) -> Spot | None:
        """Move a running gang if it pays. Return its new spot, or None."""
        tier = self.tier_of(old.nodes)
        self.places.give(old)
        for near in range(FEWEST, ANYWHERE):
            spot = self.places.find(job, near)
            if spot is None or self.tier_of(spot.nodes) >= tier:
                continue
            now, then = self._speeds(job, old, spot)
            if self.left_ms(job) * (PPM / then - PPM / now) < -float(self.overhead_ms[self.gpus[job]]):
                self.places.take(spot)
                return spot
            self._stay(job, spot, old)
        self.places.take(old)
        return None

    def _speeds(self, job: int, old: Spot, new: Spot) -> tuple[int, int]:
        """Return a gang's speeds on its old and new spots, and move its traffic to the new links."""
        if not self.links:
            return self.speed_on(job, old), self.speed_on(job, new)
        now = self.network.speed(job)
        self.network.leave(job)
        self.network.enter(job, new.nodes)
        return now, self.network.speed(job)

    def _stay(self, job: int, new: Spot, old: Spot) -> None:
        if self.links and len(old.nodes) > 1:
            if len(new.nodes) > 1:
                self.network.leave(job)
            self.network.enter(job, old.nodes)


class DallyLike(Planned):
    """Gangs wait for closer tiers with self-tuning timers, and move closer if it pays (after Dally).

    Jobs are considered in submission order, and no job blocks others. At first a gang accepts only GPUs of one node.
    After `node` seconds it accepts GPUs of one rack, and after another `rack` seconds GPUs of any nodes of one GPU
    model. A gang that is too large for a tier begins with the next tier. If racks are not known, all nodes count as one
    rack. Timers are multiplied by the gang's slowdown from one tier to the next over 0.3, at most by 1, so gangs with
    little communication hardly wait. With tune=on, once five waits are known, a timer is the mean plus one standard
    deviation of the last 20 waits of gangs that got the same tier and requested the same GPU model, but at most `most`.
    With migrate=on, running gangs move to a closer tier if the move saves more of the remaining time than it costs.
    Those that did the least work for their run time move first. A gang that has moved stays for `quantum` seconds.
    Speeds depend on the tiers and on other traffic on the same links.

    Equal to
    --------
    - With node=0, rack=0, tune=off and migrate=off, the policy equals delay-scheduling,rack=0,any=0.
    - If distance slows no job, the policy equals delay-scheduling,rack=0,any=0.
    - With node=inf, tune=off, migrate=off and gangs that fit on a node and slow down by 30 % or more, the policy equals
      delay-scheduling,rack=inf,any=inf.

    Sources
    -------
    - Sharma et al., Dally (arXiv 2401.16492), abstract: delay scheduling over tiers, network-sensitive preemption,
      self-tuning timers.
    - Our choices, because we could not read the formulas: every number and test above; preemption is a migration to
      free GPUs, and no job is stopped for another job; the cost of a move comes from M9.
    """

    plans = _Tiers
    card = Card(
        name="dally-like",
        parameters=(
            Parameter("node", 600.0, "initial wait for one node, or inf to wait forever [s]"),
            Parameter("rack", 1200.0, "initial additional wait for one rack, or inf to wait forever [s]"),
            Parameter("most", 3600.0, "longest timer that tuning may set [s]"),
            Parameter("tune", True, "whether the waits of other gangs tune the timers"),
            Parameter("migrate", True, "whether running gangs move to closer GPUs if it pays"),
            Parameter("quantum", 1800.0, "minimum time between two moves of a gang [s]"),
            overhead("muri"),
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M9", "M36", "M37", "M38"),
    )


def intensity(models: Models, jobs: Jobs, seed: int) -> Floats:
    """Return an iteration's GPU time, divided by the time of its traffic alone on a node's link (n,).

    Without traffic, the intensity is infinite.
    """
    message_mb, compute_s = traffic_of(models, jobs, seed)
    sends = ring_s(message_mb, jobs.devices, models.links.gbit.node_gbit)
    endless = np.full(len(jobs), np.inf)
    found: Floats = np.divide(jobs.devices * compute_s, sends, out=endless, where=sends > 0)
    return found


class _Ranked(Gangs):
    """Gangs whose traffic goes first if they have a high intensity."""

    def priority(self) -> Floats | None:
        """Return the intensities or their levels, or None if gangs share links evenly."""
        if self.p["priority"] == "none":
            return None
        found, levels = intensity(self.models, self.jobs, self.seed), self.p["levels"]
        return _levels(found, levels) if levels else found


class CruxLike(Planned):
    """Gangs with much computation relative to their traffic go first on links (after Crux).

    Jobs start in submission order and run to their end. A gang takes the fewest nodes of a rack if it can, otherwise
    nodes of one rack, otherwise any nodes of one GPU model. With scan=skip, later jobs may overtake a job that cannot
    start. With priority=intensity, the gangs on a link send in the order of their intensity: GPUs times the computing
    time of an iteration, divided by the time of its traffic on a node's link. The first gang gets the whole link. Each
    later gang gets the time in which no earlier gang sends, but at least M38's part. Traffic is spread evenly over
    parallel links. With `levels`, intensities within a factor of two have the same priority, counted down from the
    highest intensity of all jobs. Within a priority, the earlier job goes first. With priority=none, gangs share links
    evenly. If racks are not known, all nodes count as one rack, and gangs too large for a tier use the links of the
    next tier.

    Equal to
    --------
    - With priority=none and gap=0, the policy equals delay-scheduling,rack=0,any=0 with the same scan.
    - If no two gangs share a link, `priority` makes no difference.
    - With one-GPU jobs and gap=0, the policy equals fifo,scan=skip.

    Sources
    -------
    - Cao et al., Crux (SIGCOMM'24), abstract: priority on links by GPU intensity.
    - Our choices: intensity from the assumed traffic and a single link speed, so that it does not depend on the
      placement; levels of a factor of two; the bandwidth left for lower priorities; no choice of paths and no time
      shift of iterations, which a replay of jobs cannot show.
    """

    plans = _Ranked
    card = Card(
        name="crux-like",
        parameters=(
            Parameter("priority", "intensity", "order in which gangs send on a link", ("intensity", "none")),
            Parameter("levels", 8, "number of priority levels on links, or 0 for one per job", maximum=64),
            scan("skip"),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
    )


def _levels(values: Floats, levels: int) -> Floats:
    """Return priorities from 0 to levels - 1. The largest finite value and infinite values get the highest priority."""
    finite = values[np.isfinite(values) & (values > 0)]
    if not len(finite):
        return np.full(len(values), levels - 1.0)
    below = np.floor(np.log2(finite.max() / np.clip(values, finite.min(), finite.max())))
    found: Floats = np.maximum(levels - 1 - below, 0.0)
    return found


class _Isolated(Gangs):
    """Gangs that, with isolate=on, do not share links."""

    def order(self, waiting: Ints) -> Ints:
        """Return jobs in submission order, and retry jobs that found no links in the last plan."""
        self._none: set[int] = set()
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Return the GPUs that are closest together and whose links are free."""
        if not self.p["isolate"]:
            return super().choose(job)
        kind = int(self.places.kind[job])
        if kind in self._none:
            return None
        spot = self.places.find(job, FEWEST)
        if spot is None or len(spot.nodes) > 1:
            spot = self._own(job)
        if spot is None:
            self._none.add(kind)
        return spot

    def _own(self, job: int) -> Spot | None:
        """Return the closest GPUs on several nodes that have free node links and, if needed, free rack links."""
        network = self.network
        has = np.array([len(network.on.get(link, ())) for link in range(len(network.lanes))]) < network.lanes
        nodes, racks = has[: network.nodes], has[network.nodes :]
        free = np.where(nodes, self.places.free, 0)
        for tier in (FEWEST, RACK):
            spot = self.places.found(job, tier, free)
            if spot is not None:
                return spot
        return self.places.found(job, ANYWHERE, np.where(racks[network.rack], free, 0))


class VclosLike(Planned):
    """Links are allocated together with GPUs, so no gang slows another (after vClos).

    Jobs start in submission order and run to their end. A gang takes the fewest nodes of a rack if it can, otherwise
    nodes of one rack, otherwise any nodes of one GPU model. With isolate=on, a gang on several nodes gets exclusive use
    of their links to the rack. A gang over several racks also gets exclusive use of one link from each rack to the
    spine. If GPUs are free but such links are not, the gang waits; with scan=skip, later jobs may overtake it. So every
    gang runs as if it were alone. With isolate=off, no links are allocated. Gangs share links, and each gang is equally
    likely to use any of a rack's parallel links. If racks are not known, all nodes count as one rack, and only the
    links of nodes count.

    Equal to
    --------
    - With isolate=off and gap=0, the policy equals delay-scheduling,rack=0,any=0 with the same scan.
    - With one-GPU jobs and gap=0, the policy equals fifo,scan=skip.
    - If every gang fits on one node and nodes have enough GPUs for all gangs, `isolate` makes no difference.

    Sources
    -------
    - Han et al., Isolated Scheduling for Distributed Training Tasks in GPU Clusters (arXiv 2308.05692), abstract: a
      virtual Clos network of leaf and spine links for each job, compared with ECMP.
    - Our choices: one link to the spine for each rack of a gang, each node link for one gang, placement as in delay
      scheduling without waiting, and no optical switches; sharing by ECMP is the mean over the links to which gangs may
      be hashed.
    """

    plans = _Isolated
    card = Card(
        name="vclos-like",
        parameters=(
            Parameter("isolate", True, "whether gangs get exclusive links or share links"),
            scan("skip"),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
    )


_STREAM = 36
"""Seed of the random numbers."""


class _Sampled(Gangs):
    """Gangs that get the best of several random placements."""

    def set_up(self) -> None:
        """Read how placements are sampled."""
        super().set_up()
        self.pack, self.samples, self.most_nodes = self.p["place"] == "pack", self.p["samples"], self.p["nodes"]

    def begin(self, view: View) -> None:
        """Begin a run. Every run uses the same random numbers."""
        super().begin(view)
        self.draws = np.random.default_rng((self.seed % 2**64, _STREAM))

    def order(self, waiting: Ints) -> Ints:
        """Return jobs in submission order. Among jobs submitted at once, the largest gang goes first."""
        return waiting[np.lexsort((waiting, -self.gpus[waiting], self.jobs.arrival_ms[waiting]))]

    def choose(self, job: int) -> Spot | None:
        """Return the best of the placements sampled on nodes of the first GPU model with enough free GPUs."""
        for nodes, free in self.with_room(job):
            some = np.flatnonzero(free)
            return self._drawn(nodes[some], free[some], int(self.gpus[job]))
        return None

    def _drawn(self, nodes: Ints, free: Ints, gpus: int) -> Spot:
        used = self.places.gpus[nodes] - free
        best = _best_first(free, gpus, pack=self.pack)
        if self.samples == 0:
            return _given(nodes, free, best, gpus, pack=self.pack)
        # Sample from this many of the best nodes, or from more if the gang needs them.
        enough = int(np.searchsorted(np.cumsum(free[best]), gpus)) + 1
        best = best[: max(self.most_nodes, enough)]
        bias = (used if self.pack else free)[best] / self.places.gpus[nodes[best]]
        # Sorting exponential times divided by weights is equivalent to weighted sampling one by one.
        times = self.draws.standard_exponential((self.samples, len(best))) / (bias + 1 / (1 + len(best)))
        orders = best[_least(times, min(gpus, len(best)))]
        chosen = _best_order(free[orders], gpus, pack=self.pack)
        return _given(nodes, free, orders[chosen], gpus, pack=self.pack)


def _least(times: Floats, count: int) -> NDArray[np.intp]:
    """Return the columns of the smallest values of each row, in ascending order of value (rows, count)."""
    if count == 1:
        first: NDArray[np.intp] = np.argmin(times, axis=1, keepdims=True)
        return first
    some = np.argpartition(times, count - 1, axis=1)[:, :count]
    order = np.take_along_axis(times, some, axis=1).argsort(axis=1)
    return np.take_along_axis(some, order, axis=1)


def _best_order(room: Ints, gpus: int, *, pack: bool) -> int:
    """Return the row with the fewest nodes, or the most room left. Rows have the nodes' free GPUs as sampled."""
    if not pack:
        # Compare the fullest node if the gang gets one GPU per node; otherwise all orders are equal.
        return int((room.min(axis=1) if room.shape[1] == gpus else np.zeros(len(room))).argmax())
    used = np.cumsum(room, axis=1) - room < gpus
    return int(np.lexsort(((room * used).sum(axis=1), used.sum(axis=1)))[0])


def _best_first(free: Ints, gpus: int, *, pack: bool) -> NDArray[np.intp]:
    """Sort nodes for a placement without sampling: first the tightest node with enough room, or the emptiest node."""
    if not pack:
        return np.argsort(-free, kind="stable")
    # Nodes with room for the whole gang come first, tightest first. Then come the other nodes, most room first.
    return np.lexsort((np.where(free >= gpus, free, -free), free < gpus))


def _given(nodes: Ints, free: Ints, order: NDArray[np.intp], gpus: int, *, pack: bool) -> Spot:
    """Return the gang's GPUs from nodes in order: all of each node, or one of each node in turn."""
    if pack:
        return gathered(nodes, free, order, gpus)
    left, share = gpus, np.zeros(len(order), np.int64)
    room = free[order].copy()
    while left > 0:
        each = np.flatnonzero(room > 0)[:left]
        share[each] += 1
        room[each] -= 1
        left -= len(each)
    taken = np.flatnonzero(share)
    return Spot(nodes[order[taken]].tolist(), share[taken].tolist())


class Ffdl(Planned):
    """Gangs in submission order, packed or spread by biased sampling (FfDL).

    Jobs start in submission order. Among jobs submitted at once, the largest gang goes first. Each gang gets all its
    GPUs at once, on any nodes of one GPU model, and runs to its end. The policy tries `samples` random placements and
    takes the best. It samples nodes one by one from the `nodes` best nodes. With place=pack, nodes are weighted by the
    share of their GPUs in use, and with place=spread by the share that is free. A packed gang takes all free GPUs of a
    node before the next node. Fewer nodes are better, then less room left on them. A spread gang takes one GPU of each
    node in turn. More room left on the fullest node is better. With samples=0, no placements are sampled. A packed gang
    then takes the tightest node with enough room, otherwise the nodes with the most room, and a spread gang takes the
    nodes with the most room. With scan=stop, a gang that finds too few GPUs blocks all later gangs. Speeds depend on
    the tiers and on other traffic on the same links. If racks are not known, all nodes count as one rack, and gangs too
    large for a tier use the next tier.

    Equal to
    --------
    - With samples=0, gap=0 and one-GPU jobs that arrive one by one, the policy equals fifo with placement best-fit, or
      worst-fit with place=spread.
    - With one GPU model and one-GPU jobs, pack and spread give the same waits.
    - With one GPU model, links=off, no cost of spreading, gap=0, and jobs that arrive one by one, the policy equals
      fifo,fit=count.

    Sources
    -------
    - Jayaram et al., FfDL (Middleware'19): gang scheduling, pack and spread. In the released platform, pack is the
      default.
    - Our choices, because the sampler is not released: weights and scores, 100 samples, and the nodes to sample from;
      one GPU per learner; no quotas, so that no job is evicted.
    """

    plans = _Sampled
    card = Card(
        name="ffdl",
        parameters=(
            Parameter("place", "pack", "whether to pack or spread gangs", ("pack", "spread")),
            Parameter("samples", 100, "number of placements sampled for each gang, or 0 for none", maximum=10_000),
            Parameter("nodes", 64, "number of best nodes to sample from", minimum=1, maximum=100_000),
            scan("stop"),
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M36", "M37", "M38"),
    )
