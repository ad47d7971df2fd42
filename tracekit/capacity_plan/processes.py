"""Processes that replay resamples."""

from __future__ import annotations

import signal
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from tracekit.errors import TracekitError, UsageError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.capacity_plan.basis import PlanBasis, PlannedRun

    Floats = NDArray[np.float64]

__all__ = ["ReplayProcesses", "received"]


class ReplayProcesses:
    """Some processes that hold the same basis.

    Parameters
    ----------
    basis : PlanBasis
    number : int
        How many processes.
    """

    def __init__(self, basis: PlanBasis, number: int) -> None:
        self._started = [_Process(basis) for _ in range(number)]

    def resamples(self, runs: list[PlannedRun], numbers: Iterable[int]) -> Iterator[tuple[int, list[Floats]]]:
        """Yield resamples with the figures of some runs, as they end; one is asked for when a process is free for it.

        Raises
        ------
        UsageError
            A policy cannot run on these jobs, or a process ended before its work was done.
        """
        waiting = iter(numbers)
        busy: dict[Connection, int] = {}
        for process, resample in zip(self._started, waiting, strict=False):
            process.link.send((resample, runs))
            busy[process.link] = resample
        while busy:
            ready = wait(list(busy))
            for link in [one for one in busy if one in ready]:
                done, found = busy.pop(link), received(link)
                following = next(waiting, None)
                if following is not None:
                    link.send((following, runs))
                    busy[link] = following
                yield done, found

    def stop(self) -> None:
        """End all processes."""
        for process in self._started:
            process.stop()


class _Process:
    """A process and the link to it."""

    def __init__(self, basis: PlanBasis) -> None:
        # Spawned, not forked: threads of the libraries do not survive a fork.
        context = get_context("spawn")
        self.link, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, basis), daemon=True)
        self._process.start()
        self._key = register_cleanup(partial(end_process, self._process.pid or 0))
        other.close()

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()
        unregister_cleanup(self._key)
        self.link.close()


def received(link: Connection) -> list[Floats]:
    """Return what a process sends.

    Raises
    ------
    UsageError
        It is an error, or the process has ended.
    """
    try:
        found: list[Floats] | TracekitError = link.recv()
    except (EOFError, OSError):
        what = "a process of the plan ended, perhaps because memory ran out"
        raise UsageError(what, where="--workers", hint="use fewer workers") from None
    if isinstance(found, TracekitError):
        raise found
    return found


def _work(link: Connection, basis: PlanBasis) -> None:
    """Replay the resamples that come over a link until it is closed."""
    # Ctrl-C reaches all processes of a terminal; who started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            number, runs = link.recv()
        except (EOFError, OSError):
            return
        try:
            found: list[Floats] | TracekitError = basis.figures(number, runs)
        except TracekitError as error:
            found = error
        link.send(found)
