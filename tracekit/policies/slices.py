"""A GPU cut into slices: every way to cut it, and the best one for the jobs that it has."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.assumptions.sections.sharing import Slices

__all__ = ["Cut", "Layouts", "Resident", "Slice"]

_WHOLE = 1_000_000


class Slice(NamedTuple):
    """A slice of a GPU."""

    start: int
    compute: int
    memory: int


class Resident(NamedTuple):
    """A job of one GPU as a partition sees it."""

    used: int
    """Utilization of a whole GPU [ppm]."""
    memory: int
    """Memory of a whole GPU [ppm]."""
    online: bool
    """Whether it has a slice to itself, that is large enough and never changes."""


class Cut(NamedTuple):
    """How a GPU is cut, and where its jobs are."""

    place: tuple[Slice, ...]
    """The slice of each job."""
    speed: tuple[int, ...]
    """Speed of each [ppm]."""


class Layouts:
    """All ways to cut a GPU (M32), and the best for some jobs."""

    def __init__(
        self, slices: Slices, beside: Callable[[int, int], int], *, most: int, slack: float, whole_only: bool = False
    ) -> None:
        """Take M32, the speed of a job beside another by utilization [ppm], and how many may have a slice.

        `slack` is what an online job's slice has beyond its load, as a share of that; with `whole_only` a GPU is one
        slice.
        """
        self.compute, self.memory = slices.compute, slices.memory
        self.beside, self.most, self.slack = beside, most, slack
        found = [
            Slice(start, profile.compute, profile.memory)
            for profile in slices.profiles.values()
            for start in profile.starts
            if not whole_only or profile.compute == slices.compute
        ]
        self.layouts = _maximal(sorted(found))
        self._best: dict[tuple[tuple[Resident, ...], tuple[Slice | None, ...]], Cut | None] = {}

    def best(self, jobs: tuple[Resident, ...], fixed: tuple[Slice | None, ...]) -> Cut | None:
        """Return a cut with the largest sum of speeds; None where the jobs find no room together.

        Parameters
        ----------
        jobs : tuple
            Who is to be there.
        fixed : tuple
            The slice that each keeps, None any.
        """
        key = jobs, fixed
        if key not in self._best:
            self._best[key] = self._found(jobs, fixed)
        return self._best[key]

    def _found(self, jobs: tuple[Resident, ...], fixed: tuple[Slice | None, ...]) -> Cut | None:
        best: tuple[tuple[int, int], Cut] | None = None
        for layout in self.layouts:
            choices = [
                [piece for piece in layout if (keep is None or keep == piece) and self._suits(job, piece)]
                for job, keep in zip(jobs, fixed, strict=True)
            ]
            for place in product(*choices):
                speed = self._speeds(jobs, place)
                if speed is None:
                    continue
                # Between equals the smallest slices for online jobs, which keep them.
                kept = sum(piece.compute for job, piece in zip(jobs, place, strict=True) if job.online)
                if best is None or (sum(speed), -kept) > best[0]:
                    best = (sum(speed), -kept), Cut(place, speed)
        return None if best is None else best[1]

    def _suits(self, job: Resident, piece: Slice) -> bool:
        """Return whether a slice has the memory that a job needs, and for an online one enough to compute with."""
        if job.memory * self.memory > piece.memory * _WHOLE:
            return False
        needed = min(job.used * (1 + self.slack), _WHOLE)
        return not job.online or needed * self.compute <= piece.compute * _WHOLE

    def _speeds(self, jobs: tuple[Resident, ...], place: tuple[Slice, ...]) -> tuple[int, ...] | None:
        """Return the speed of each job; None where a slice has too many, or more than are good for it."""
        speeds = []
        for at, (job, piece) in enumerate(zip(jobs, place, strict=True)):
            others = [jobs[i] for i, other in enumerate(place) if other == piece and i != at]
            if others:
                memory = job.memory + sum(other.memory for other in others)
                crowded = len(others) >= self.most or memory * self.memory > piece.memory * _WHOLE
                if crowded or job.online or any(other.online for other in others):
                    return None
            speeds.append(self._speed(job, piece, others))
        for piece in set(place):
            there = [i for i, other in enumerate(place) if other == piece]
            alone = max(self._speed(jobs[i], piece, []) for i in there)
            if len(there) > 1 and sum(speeds[i] for i in there) <= alone:
                return None
        return tuple(speeds)

    def _speed(self, job: Resident, piece: Slice, others: list[Resident]) -> int:
        part = piece.compute * _WHOLE // self.compute
        speed = min(_WHOLE, part * _WHOLE // max(job.used, 1))
        for other in others:
            speed = speed * self.beside(_scaled(job.used, part), _scaled(other.used, part)) // _WHOLE
        return max(speed, 1)


def _scaled(used: int, part: int) -> int:
    """Return the utilization of a slice by a job that uses so much of a whole GPU, in whole percent [ppm]."""
    return min(used * _WHOLE // part // 10_000 * 10_000, _WHOLE)


def _maximal(slices: list[Slice]) -> list[tuple[Slice, ...]]:
    """Return the sets of slices that do not overlap in memory and to which none can be added."""

    @cache
    def cells(piece: Slice) -> frozenset[int]:
        return frozenset(range(piece.start, piece.start + piece.memory))

    found: list[tuple[Slice, ...]] = []

    def grow(chosen: tuple[Slice, ...], at: int) -> None:
        held = frozenset[int]().union(*(cells(piece) for piece in chosen))
        free = [piece for piece in slices if not cells(piece) & held]
        if not free:
            found.append(chosen)
        for piece in free:
            index = slices.index(piece)
            if index >= at:
                grow((*chosen, piece), index + 1)

    grow((), 0)
    return found
