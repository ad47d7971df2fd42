"""Gang placement that avoids contention: by least cost, by a pair test (Ada-SRSF), or on quiet links (SJF-BCO)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.gangs import GAP, Gangs
from tracekit.policies.interface import Card, Parameter
from tracekit.policies.network_tiers import ANYWHERE, FEWEST, RACK, Spot, gathered
from tracekit.policies.parameters import NOISE
from tracekit.policies.plans import Planned
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Ints
    from tracekit.replay.mechanisms import View


class _Greedy(Gangs):
    """Place gangs where they cost least now."""

    def order(self, waiting: Ints) -> Ints:
        """Return waiting jobs by submission or run time, and forget the next end computed for the last plan."""
        self._next_ms = -1.0
        if self.p["order"] == "shortest":
            return waiting[np.argsort(self.jobs.work_ms[waiting], kind="stable")]
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Compare placements and return the cheapest, or None if waiting for the next end costs less."""
        least, best = math.inf, None
        alone = self.left_ms(job)
        for spot in self._spots(job):
            cost = alone if len(spot.nodes) == 1 else self.cost_ms(job, spot)
            if cost < least:
                least, best = cost, spot
            if least <= alone:
                break
        if best is not None and self.p["wait"] and least > alone and self._next_end_ms() - self.now_ms + alone < least:
            return None
        return best

    def _spots(self, job: int) -> list[Spot]:
        """Return the placements to compare: one of each tier, and those with the least traffic."""
        found = [spot for tier in (FEWEST, RACK, ANYWHERE) if (spot := self.places.find(job, tier)) is not None]
        if not found or len(found[0].nodes) == 1:
            return found[:1]
        pool, gpus = self.places.pools[int(self.places.job_pool[job])], int(self.gpus[job])
        for low, high, _ in (*pool.racks, *pool.models):
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) >= gpus:
                found.append(gathered(nodes, free, np.lexsort((-free, self.network.load[nodes])), gpus))
        return found

    def _next_end_ms(self) -> float:
        """Return the earliest end of a job that already runs, at current speeds [ms]."""
        if self._next_ms < 0:
            running, left = self.view.running, self.view.remaining_ms.astype(np.float64)
            ends = self.view.overhead_ms + left * PPM / np.maximum(self.view.rate, 1)
            self._next_ms = self.now_ms + float(ends[running].min(initial=math.inf))
        return self._next_ms


class ContentionGreedy(Planned):
    """Gangs go where they delay themselves and others least, or wait (a bound for learned contention policies).

    Jobs are considered in submission order, or by run time with order=shortest. A job that does not start is skipped,
    and no job is stopped. For a gang that fits on no single node, these placements are compared: the fewest nodes of a
    rack, any nodes of one rack, any nodes of one GPU model, and in each rack and model the nodes whose links carry the
    fewest gangs. The cost of a placement is the gang's run time there plus the delay of the gangs that share its links,
    over all their remaining work at current speeds. With wait=on, a gang waits if it would finish sooner by starting
    when the next running job ends, on GPUs as close together as possible. Run times are known. Learned contention
    policies are trained for this objective. The cost overstates delays, because the other gangs speed up again when a
    gang ends. Gangs too large for a tier use the links of the next tier. If racks are not known, all nodes count as one
    rack.

    Equal to
    --------
    - With one-GPU jobs and gap=0, the policy equals fifo,scan=skip. With order=shortest, it equals sjf,scan=skip.
    - With one GPU model and links that slow no job, the waits equal those of delay-scheduling,rack=0,any=0.

    Sources
    -------
    - Ryu and Eo, arXiv 2310.20209 (ICPADS'23), abstract: a learned policy that knows how sensitive jobs are to
      contention. Its neural network cannot be replayed from a log.
    - Our choices: the placements compared, their cost, and the test for waiting.
    """

    plans = _Greedy
    card = Card(
        name="contention-greedy",
        parameters=(
            Parameter("wait", True, "whether gangs may wait for the next job end if that costs less"),
            Parameter("order", "arrival", "order in which jobs are considered", ("arrival", "shortest")),
            Parameter("look", 30, "number of jobs that choose to wait after which a plan stops", minimum=1),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
    )


def sum_of_ends(first: float, second: float, slower_first: float, slower_second: float) -> float:
    """Return the sum of the end times of two jobs that start together and slow each other down until one ends.

    Parameters
    ----------
    first, second : float
        Time that each job takes alone.
    slower_first, slower_second : float
        Factor by which each job is slower while both run, at least 1.
    """
    early, late = first * slower_first, second * slower_second
    if early <= late:
        return early + early + second - early / slower_second
    return late + late + first - late / slower_first


class _Links(Gangs):
    """Smallest GPU time first, with a test before gangs share a link."""

    def set_up(self) -> None:
        """Compute the GPU time of each job, of which the least goes first."""
        super().set_up()
        self.accept, self.place, self.kappa = self.p["accept"], self.p["place"], self.p["kappa"]
        self.service = (self.jobs.work_ms + self.error_ms) * self.gpus

    def begin(self, view: View) -> None:
        """Begin a run with idle nodes."""
        super().begin(view)
        self._ends, self._held = np.zeros(len(self.places.gpus)), np.zeros(len(self.places.gpus))
        self._end: dict[int, float] = {}

    def order(self, waiting: Ints) -> Ints:
        """Return waiting jobs by run time times GPUs."""
        return waiting[np.argsort(self.service[waiting], kind="stable")]

    def choose(self, job: int) -> Spot | None:
        """Return GPUs on the nodes with least work, if the gang may use their links."""
        gpus = int(self.gpus[job])
        for nodes, free in self.with_room(job):
            spot = gathered(nodes, free, self._node_order(nodes, free, gpus), gpus)
            if len(spot.nodes) == 1 or self._may_send(job, spot):
                return spot
        return None

    def _node_order(self, nodes: Ints, free: Ints, gpus: int) -> NDArray[np.intp]:
        """Return the order in which a gang takes nodes."""
        if self.place == "first-fit":
            return np.arange(len(nodes))
        work = self._ends[nodes] - self.now_ms * self._held[nodes]
        if gpus <= self.kappa:
            return np.argsort(work, kind="stable")
        # Prefer one node with room for the whole gang, else as few nodes as possible, and among equals the least work.
        return np.lexsort((work, np.where(free >= gpus, -(2**40), -free)))

    def _may_send(self, job: int, spot: Spot) -> bool:
        """Return whether a gang may share the links of a spot with the gangs that use them."""
        others = self.network.neighbours(spot.nodes)
        if self.accept == "any" or not others:
            return True
        if self.accept == "never":
            return False
        on = [len(self.network.on.get(link, ())) for link in self.network.links_of(spot.nodes).tolist()]
        crowded = np.array(on) > self.network.lanes[self.network.links_of(spot.nodes)]
        return not crowded.any() and (self.accept == "two" or all(self._pays(job, spot, other) for other in others))

    def _pays(self, job: int, spot: Spot, other: int) -> bool:
        """Return whether the sum of two gangs' ends is smaller if this gang starts now than after the other."""
        together = self.network.speeds_with(job, spot.nodes)
        now, alone = self.network.speed(other), self.network.speed_alone(job, spot.nodes)
        first, second = self.left_ms(other) * PPM / now, self.left_ms(job) * PPM / alone
        joined = sum_of_ends(first, second, max(now / together[other], 1.0), max(alone / together[job], 1.0))
        return joined < first + first + second

    def started(self, job: int, spot: Spot) -> None:
        """Record the work that a job puts on its nodes until its end, at its initial speed."""
        self._end[job] = end = self.now_ms + self.left_ms(job) * PPM / self.network.speed(job)
        self._ends[spot.nodes] += np.array(spot.gpus) * end
        self._held[spot.nodes] += spot.gpus

    def ended(self, job: int, spot: Spot) -> None:
        """Remove the work of an ended job from its nodes."""
        self._ends[spot.nodes] -= np.array(spot.gpus) * self._end.pop(job)
        self._held[spot.nodes] -= spot.gpus


class AdaSrsf(Planned):
    """Smallest GPU time first, where gangs share a link only if that helps (Ada-SRSF).

    Jobs are considered by run time times GPUs, the smallest first. A job that cannot start is skipped, and no job is
    stopped. A gang of at most `kappa` GPUs takes the nodes with the least work. A larger gang takes a node with room
    for all of it, otherwise the nodes with the most room, and among equals those with the least work. A node's work is
    the GPU time of its jobs until their ends, as expected when they started. A gang on several nodes starts only if it
    may send over all its links. With accept=never, no other gang may send there. With accept=two, at most one other
    gang may send there per parallel link. With accept=any, a gang may always send. With accept=test, the rule of
    accept=two applies, and each gang that would be slowed is tested: the sum of both ends must be smaller than if the
    new gang waited for the other gang to end. Gangs too large for a node always send, and gangs too large for a rack
    send over the spine. If racks are not known, all nodes count as one rack.

    Equal to
    --------
    - With one-GPU jobs, one GPU model and gap=0, the policy equals ssf,scan=skip.
    - With accept=any, one GPU model, links that slow no job and gap=0, the policy equals ssf,scan=skip,fit=count.
    - If every gang fits on one node and must run there, `accept` makes no difference.

    Sources
    -------
    - Wang et al., Ada-SRSF (arXiv 2002.10105): the order, least work first with kappa, and the test for two messages on
      a link; accept=never and accept=two are the paper's SRSF(1) and SRSF(2).
    - Our choices: the test uses the remaining work of whole jobs instead of messages, because a replay has no
      iterations; for gangs that only send, it equals the paper's threshold of 1 / (2 * (1 + eta / b)). A GPU runs one
      job, and a gang that may not send waits without GPUs.
    """

    plans = _Links
    card = Card(
        name="ada-srsf",
        parameters=(
            Parameter("accept", "test", "when gangs may send over the same link", ("test", "never", "two", "any")),
            Parameter(
                "place",
                "lwf",
                "which nodes to take first: those with the least work (lwf), or the first",
                ("lwf", "first-fit"),
            ),
            Parameter("kappa", 1, "largest gang that is not kept together [GPUs]"),
            NOISE,
            Parameter("look", 200, "number of refused jobs after which a plan stops", minimum=1),
            GAP,
        ),
        assumptions=("D1", "M11", "M36", "M37", "M38"),
    )


class _Balanced(Gangs):
    """Place gangs packed, or away from busy links."""

    def order(self, waiting: Ints) -> Ints:
        """Return the smallest gangs first, and equals by submission."""
        return waiting[np.argsort(self.gpus[waiting], kind="stable")]

    def choose(self, job: int) -> Spot | None:
        """Return the packed or the quiet placement, as the rule says, on the first GPU model with enough free GPUs."""
        for nodes, free in self.with_room(job):
            return self._chosen(job, nodes, free, int(self.gpus[job]))
        return None

    def _chosen(self, job: int, nodes: Ints, free: Ints, gpus: int) -> Spot:
        enough = np.where(free >= gpus, free, 2**62)
        tightest = int(enough.argmin())
        place = self.p["place"]
        packs = place == "packed" or (place == "kappa" and gpus <= self.p["kappa"])
        if free[tightest] >= gpus and (packs or place == "best"):
            # On one node a gang uses no link, which is optimal.
            return Spot([int(nodes[tightest])], [gpus])
        idle = free == self.places.gpus[nodes]
        packed = gathered(nodes, free, np.lexsort((-free, idle)), gpus)
        if packs:
            return packed
        quiet = gathered(nodes, free, np.lexsort((-free, self.network.load[nodes])), gpus)
        if place != "best":
            return quiet
        return min((quiet, packed), key=lambda spot: self.cost_ms(job, spot))


class SjfBcoLike(Planned):
    """Smallest gang first, packed or on quiet links, whichever costs less (after SJF-BCO).

    Jobs are considered by their GPUs, the smallest first, and among equals by submission. A job that finds too few free
    GPUs is skipped, and no job is stopped. Two placements are compared. The packed placement takes the tightest node
    with room for the whole gang, otherwise nodes in use before idle nodes, most room first. This keeps idle nodes
    whole, but gangs share links. The quiet placement takes the nodes whose links carry the fewest gangs first, then
    those with most room. With place=best, the placement with the smaller cost is taken: the gang's own time plus the
    delays of the gangs that it slows, all at current speeds. With place=kappa, gangs of at most `kappa` GPUs are
    packed, and larger gangs get quiet links. Gangs too large for a node always send, and gangs too large for a rack
    send over the spine. If racks are not known, all nodes count as one rack.

    Equal to
    --------
    - With one-GPU jobs, one GPU model and gap=0, the policy equals fifo,scan=skip.
    - With one GPU model and links that slow no job, `place` does not change waits.
    - If `kappa` exceeds the size of every gang, place=kappa equals place=packed. With kappa=0, it equals place=quiet.

    Sources
    -------
    - Yu et al., SJF-BCO (MobiHoc'22, arXiv 2207.07817), abstract: rings of GPUs, smallest job first, contention
      balanced against overhead.
    - Our choices: the two placements; comparing them instead of solving an approximate integer program for the
      makespan; jobs that arrive one by one.
    """

    plans = _Balanced
    card = Card(
        name="sjf-bco-like",
        parameters=(
            Parameter("place", "best", "which placement a gang gets", ("best", "kappa", "packed", "quiet")),
            Parameter("kappa", 4, "largest gang that place=kappa packs [GPUs]"),
            NOISE,
            GAP,
        ),
        assumptions=("D1", "M11", "M36", "M37", "M38"),
    )
