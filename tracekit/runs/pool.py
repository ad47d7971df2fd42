"""Worker processes that perform one run after another, each with its own copy of the shared data."""

from __future__ import annotations

import contextlib
import signal
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tracekit.errors import TracekitError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.context import SpawnProcess

K = TypeVar("K")
R = TypeVar("R")


class ProcessPool(Generic[R]):
    """Worker processes that keep the same function until the pool is closed.

    The standard library's pools abandon all work if one process dies. Here, a process that dies, perhaps for lack of
    memory, loses only its own run.

    Parameters
    ----------
    perform : callable
        Performs a run. It is pickled once per process, together with everything that it refers to.
    workers : int
        Number of processes. With fewer than 2, everything runs in the current process.
    lost : callable
        Takes the exit code of a process that died, and returns a substitute for its run's result or raises an error.
    """

    def __init__(self, perform: Callable[..., R], workers: int, lost: Callable[[int | None], R]) -> None:
        self._perform, self._lost = perform, lost
        self._processes = [_Process(perform) for _ in range(workers)] if workers > 1 else []

    def close(self) -> None:
        """End the processes, even if they are busy."""
        for process in self._processes:
            process.stop()

    def results(self, pending: Iterable[tuple[K, tuple[Any, ...]]]) -> Iterator[tuple[K, R]]:
        """Yield the name and result of each run as it ends. Fetch the next run when a process is free.

        Parameters
        ----------
        pending : iterable
            The name of each run, and the arguments for `perform`.

        Raises
        ------
        TracekitError
            A run or `lost` raised it.
        """
        if not self._processes:
            for name, arguments in pending:
                yield name, self._perform(*arguments)
            return
        waiting = iter(pending)
        busy: dict[_Process, K] = {}

        def give(process: _Process) -> None:
            for name, arguments in waiting:
                process.send(arguments)
                busy[process] = name
                return

        for process in self._processes:
            give(process)
        while busy:
            ready = wait([process.link for process in busy])
            for process in [one for one in busy if one.link in ready]:
                name, found = busy.pop(process), self._answer(process)
                give(process)
                yield name, found

    def _answer(self, process: _Process) -> R:
        try:
            found: R | TracekitError = process.link.recv()
        except (EOFError, OSError):
            return self._lost(process.restart())
        if isinstance(found, TracekitError):
            raise found
        return found


class _Process:
    """A process and the connection to it."""

    def __init__(self, perform: Callable[..., Any]) -> None:
        self._perform = perform
        self._start()

    def _start(self) -> None:
        # Spawn instead of forking: library threads do not survive a fork.
        context = get_context("spawn")
        self.link: Connection
        self.link, other = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_work, args=(other, self._perform), daemon=True)
        self._process.start()
        self._key = register_cleanup(partial(end_process, self._process.pid or 0))
        other.close()

    def send(self, arguments: tuple[Any, ...]) -> None:
        """Begin a run."""
        with contextlib.suppress(OSError):  # if the process has died, the missing answer shows it
            self.link.send(arguments)

    def restart(self) -> int | None:
        """Replace a process that died, and return its exit code."""
        self.stop()
        code = self._process.exitcode
        self._start()
        return code

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        unregister_cleanup(self._key)
        self.link.close()


def _work(link: Connection, perform: Callable[..., Any]) -> None:
    """Perform the runs that arrive over a connection until it is closed."""
    # Ctrl-C reaches all processes of a terminal. Ignore it here: the parent process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            arguments = link.recv()
        except (EOFError, OSError):
            return
        try:
            found: Any = perform(*arguments)
        except TracekitError as error:
            found = error
        try:
            link.send(found)
        except OSError:
            return
