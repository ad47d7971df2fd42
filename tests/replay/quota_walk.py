"""The rule of Helios's (SRTF) and Lucid's (Tiresias) simulators, in whole seconds and plain Python.

A decision goes through all jobs in order, with waiting jobs before running jobs. Each job takes its number of GPUs off
the quota or is skipped. Running jobs that were skipped are stopped, and then the others look for places. A job that
finds none waits, and its part of the quota stays unused until the next decision. A job ends one second late.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["QuotaWalk"]

_NODE = 8
"""Number of GPUs per node."""


class QuotaWalk:
    """One run, which afterwards contains each job's `start` and `end` [s] and `preemptions`."""

    def __init__(
        self,
        submit: Sequence[int],
        gpus: Sequence[int],
        work: Sequence[int],
        nodes: int,
        overhead: Callable[[int], int],
    ) -> None:
        self.submit, self.gpus, self.left, self.overhead = submit, gpus, list(work), overhead
        self.free = [_NODE] * nodes
        self.attained = [0] * len(submit)
        self.start, self.end, self.preemptions = ([-1] * len(submit), [-1] * len(submit), [0] * len(submit))
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.held: dict[int, list[tuple[int, int]]] = {}

    def srtf(self) -> QuotaWalk:
        """Decide at every second by the remaining time."""
        self._run(lambda job: self.left[job], 1, None)
        return self

    def two_queues(self, threshold: int, every: int) -> QuotaWalk:
        """Decide every `every` seconds, jobs below the threshold [GPU*s] first, and by submission within a queue."""
        self._run(lambda job: (self.attained[job] >= threshold, self.submit[job]), every, threshold)
        return self

    def _run(self, order: Callable[[int], object], every: int, threshold: int | None) -> None:
        now, before, come = 0, 0, 0
        while come < len(self.submit) or self.waiting or self.running:
            self._progress(now, now - before)
            before = now
            while come < len(self.submit) and self.submit[come] <= now:
                self.waiting.append(come)
                come += 1
            stopped = now % every == 0 and self._decide(now, order)
            times = [now + self.left[job] + 1 for job in self.running]
            times += [self.submit[come]] if come < len(self.submit) else []
            if not times:
                return
            times += [(now // every + 1) * every] if stopped or now % every else []
            if self.waiting and threshold is None:
                times += self._overtaking(now)
            elif self.waiting and threshold is not None:
                rest = [(threshold - self.attained[j], self.gpus[j]) for j in self.running]
                times += [now - -missing // gpus for missing, gpus in rest if missing > 0]
            now = max(min(times), now + 1)

    def _progress(self, now: int, elapsed: int) -> None:
        for job in list(self.running):
            if self.left[job] < elapsed:
                self.end[job] = now
                self.running.remove(job)
                self._release(job)
            else:
                self.left[job] -= elapsed
                self.attained[job] += elapsed * self.gpus[job]

    def _overtaking(self, now: int) -> list[int]:
        """Return when the order of running and waiting jobs may next change."""
        waiting = sorted({self.left[job] for job in self.waiting})
        found = []
        for job in self.running:
            place = bisect.bisect_right(waiting, self.left[job]) - 1
            if place >= 0:
                found.append(now + max(self.left[job] - waiting[place], 1))
        return found

    def _decide(self, now: int, order: Callable[[int], object]) -> bool:
        """Stop and start jobs, and return whether any job was stopped."""
        quota, runs = _NODE * len(self.free), set(self.running)
        stop, go = [], []
        for job in sorted(self.waiting + self.running, key=order):  # type: ignore[arg-type]  # one kind of key a run
            if self.gpus[job] <= quota:
                quota -= self.gpus[job]
                if job not in runs:
                    go.append(job)
            elif job in runs:
                stop.append(job)
        for job in stop:
            self.preemptions[job] += 1
            self.left[job] += self.overhead(self.gpus[job])
            self._release(job)
            self.running.remove(job)
            self.waiting.append(job)
        for job in go:
            place = self._place(self.gpus[job])
            if place is None:
                continue
            for node, count in place:
                self.free[node] -= count
            self.held[job] = place
            self.start[job] = now if self.start[job] < 0 else self.start[job]
            self.waiting.remove(job)
            self.running.append(job)
        return bool(stop)

    def _release(self, job: int) -> None:
        for node, count in self.held.pop(job):
            self.free[node] += count

    def _place(self, gpus: int) -> list[tuple[int, int]] | None:
        if gpus <= _NODE:
            fits = [(free, node) for node, free in enumerate(self.free) if free >= gpus]
            return [(min(fits)[1], gpus)] if fits else None
        whole = [node for node, free in enumerate(self.free) if free == _NODE][: gpus // _NODE]
        if len(whole) < gpus // _NODE:
            return None
        found, rest = [(node, _NODE) for node in whole], gpus % _NODE
        if rest:
            others = [(-free, node) for node, free in enumerate(self.free) if free >= rest and node not in whole]
            if not others:
                return None
            found.append((min(others)[1], rest))
        return found
