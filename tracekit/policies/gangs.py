"""Planners that place gangs one after the other, by tiers and links, and let them run to their end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.places import ANYWHERE, FEWEST, RACK
from tracekit.replay.assumptions.speeds import PPM, spread_ppm
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.policies.places import Places, Spot
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs

__all__ = ["Gangs"]

_CHUNK = 256
"""Jobs between two checks of which jobs still fit."""


class Gangs(ABC):
    """Plans of a policy that considers waiting jobs one after the other and never stops one for another.

    Parameters
    ----------
    jobs : Jobs
        All jobs.
    places : Places
        Places of these jobs and the cluster.
    network : Network, optional
        Links of these jobs and the cluster; None leaves speeds to the engine (M4).
    models : Models
        Assumptions.
    stop : bool
        Whether a job that does not start holds up all later jobs in its domain.
    believed_ms : array, optional
        Run times believed in (n,) [ms]; the truth when None.
    look : int
        How many jobs that do not start a plan considers.
    """

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network | None,
        models: Models,
        *,
        stop: bool = False,
        believed_ms: NDArray[np.int64] | None = None,
        look: int = 1_000_000_000,
    ) -> None:
        self.look = look
        self.jobs, self.places, self.network, self.models, self.stop = jobs, places, network, models, stop
        self.gpus = jobs.devices.astype(np.int64)
        self.error_ms = np.zeros(len(jobs), np.int64) if believed_ms is None else believed_ms - jobs.work_ms
        self._view: View | None = None
        self._runs = np.zeros(len(jobs), np.bool_)
        self.spots: dict[int, Spot] = {}
        """Where each running job is."""
        self.now_ms = 0
        self._wake_ms = -1

    @property
    def view(self) -> View:
        """The jobs and the cluster while a plan is made."""
        if self._view is None:
            raise RuntimeError("no plan is in progress")
        return self._view

    @abstractmethod
    def choose(self, job: int) -> Spot | None:
        """Return where a waiting job starts now, None if it waits."""

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return waiting jobs, given by submission, in the order in which they are considered."""
        return waiting

    def reset(self) -> None:  # noqa: B027 -- most policies remember nothing
        """Begin a run."""

    def moves(self) -> dict[int, Spot]:
        """Return running jobs that move, and their new spots; the old ones leave `places` and `network`."""
        return {}

    def started(self, job: int, spot: Spot) -> None:  # noqa: B027 -- most policies need not know
        """Look at a job that starts."""

    def ended(self, job: int, spot: Spot) -> None:  # noqa: B027 -- most policies need not know
        """Process a job that has ended since the last plan."""

    def left_ms(self, job: int) -> float:
        """Return the run time that a job is believed to have left at its recorded speed, at least 1 [ms]."""
        return max(float(self.view.table["remaining"][job]) / PPM + float(self.error_ms[job]), 1.0)

    def speed_on(self, job: int, spot: Spot) -> int:
        """Return the speed that a job without GPUs would have on a spot, with the traffic of the others there [ppm]."""
        if self.network is not None:
            return self.network.speeds_with(job, spot.nodes)[job]
        least = -(-int(self.gpus[job]) // int(self.places.gpus[spot.nodes].max()))
        return int(spread_ppm(self.models, int(self.gpus[job]), len(spot.nodes), least))

    def cost_ms(self, job: int, spot: Spot) -> float:
        """Return the time that a job is expected to take on a spot, and by which it would delay others [ms].

        Everybody keeps the speed of the moment.
        """
        if self.network is None:
            return self.left_ms(job) * PPM / self.speed_on(job, spot)
        then = self.network.speeds_with(job, spot.nodes)
        found = self.left_ms(job) * PPM / then.pop(job)
        for other, speed in then.items():
            found += self.left_ms(other) * (PPM / speed - PPM / self.network.speed(other))
        return found

    def nearest(self, job: int) -> Spot | None:
        """Return the GPUs of the nearest tier that has enough."""
        for tier in (FEWEST, RACK, ANYWHERE):
            spot = self.places.find(job, tier)
            if spot is not None:
                return spot
        return None

    def wake(self, time_ms: float) -> None:
        """Ask for a plan at a later time [ms]."""
        if time_ms < 2**62 and (self._wake_ms < 0 or time_ms < self._wake_ms):
            self._wake_ms = int(np.ceil(time_ms))

    def planner(self, gap_s: float, overhead_ms: NDArray[np.int64] | None = None) -> Planner:
        """Return the mechanism, which plans at most once per gap if only events ask for it."""
        return Planner(
            self.plan,
            gap_ms=round(gap_s * 1000),
            names_nodes=True,
            wide=True,
            spread=self.network is None,
            overhead_ms=overhead_ms,
        )

    def plan(self, view: View) -> Plan:
        """Return which jobs start and move now, and the speeds that change."""
        job, running = view.job, view.running
        self._begin(view, job[running])
        changed = self.moves()
        rates = dict.fromkeys(changed, PPM)
        for other in self._candidates(job[~running]):
            spot = self.choose(other)
            if spot is None:
                if self.stop:
                    self._stopped.add(self.places.pools[int(self.places.job_pool[other])].domain)
                continue
            self.places.take(spot)
            self.spots[other] = changed[other] = spot
            rates[other] = PPM
            if self.network is not None:
                self.network.enter(other, spot.nodes)
            self.started(other, spot)
        if self.network is not None:
            changed_speed = self.network.take_changed()
            rates |= zip(changed_speed, self.network.speeds(changed_speed), strict=True)
        return self._written(rates, changed)

    def _begin(self, view: View, running: NDArray[np.int64]) -> None:
        if view is not self._view:
            self._view, self.spots = view, {}
            if self.network is not None:
                self.network.clear()
            self.reset()
        self.now_ms, self._wake_ms = view.now_ms, -1
        self._stopped: set[int] = set()
        if len(running) < len(self.spots):
            mine = np.fromiter(self.spots, np.int64, len(self.spots))
            self._runs[running] = True
            ended = mine[~self._runs[mine]].tolist()
            self._runs[running] = False
            for j in ended:
                self.ended(j, self.spots.pop(j))
                if self.network is not None:
                    self.network.leave(j)
        self.places.renew(view.node_free)

    def _candidates(self, waiting: NDArray[np.int64]) -> Iterator[int]:
        """Yield the waiting jobs in order that have enough free GPUs; all of them if one may hold up others."""
        places, refused = self.places, 0
        ordered = self.order(waiting if self.stop else self._that_fit(waiting))
        for low in range(0, len(ordered), _CHUNK):
            chunk = ordered[low : low + _CHUNK]
            for job in (chunk if self.stop else self._that_fit(chunk)).tolist():
                if max(places.room) == 0 or refused >= self.look:
                    return
                pool = int(places.job_pool[job])
                if places.pools[pool].domain in self._stopped:
                    continue
                if self.stop or self.gpus[job] <= places.room[pool]:
                    yield job
                    refused += job not in self.spots

    def _that_fit(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the jobs that have enough free GPUs."""
        return waiting[self.gpus[waiting] <= np.array(self.places.room, np.int64)[self.places.job_pool[waiting]]]

    def _written(self, rates: dict[int, int], spots: dict[int, Spot]) -> Plan:
        """Return the plan that gives these speeds, and places to some of the jobs."""
        job = np.fromiter(rates, np.int64, len(rates))
        index = {j: place for place, j in enumerate(rates)}
        rows = [(index[j], n, g) for j, spot in spots.items() for n, g in zip(spot.nodes, spot.gpus, strict=True)]
        return Plan(
            job,
            self.gpus[job],
            rate=np.fromiter(rates.values(), np.int64, len(rates)),
            place=np.array(rows, np.int64).reshape(len(rows), 3),
            keep=True,
            wake_ms=self._wake_ms,
        )
