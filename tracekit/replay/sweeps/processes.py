"""The processes of a sweep."""

from __future__ import annotations

import contextlib
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from tracekit.errors import DamagedTraceError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.replay.sweeps.run import work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.context import SpawnProcess

    from tracekit.replay.sweeps.file import SweepRun

    CarryOut = Callable[[SweepRun], dict[str, Any]]

__all__ = ["carried_out"]


def carried_out(
    pending: Iterable[tuple[str, SweepRun]], workers: int, perform: CarryOut
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the digest and the summary of each run as it ends; a run is asked for when a process is free for it."""
    if workers <= 1:
        for digest, run in pending:
            yield digest, perform(run)
        return
    pool = [_Worker(perform) for _ in range(workers)]
    try:
        waiting = iter(pending)
        busy = [worker for worker in pool if worker.next_of(waiting)]
        while busy:
            ready = wait([worker.link for worker in busy])
            for worker in [w for w in busy if w.link in ready]:
                yield worker.digest, worker.answer()
                if not worker.next_of(waiting):
                    busy.remove(worker)
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    """A process that carries out one run after the other; where it dies, a new one takes its place."""

    def __init__(self, perform: CarryOut) -> None:
        self.digest = ""
        self._perform = perform
        self._start()

    def _start(self) -> None:
        # Spawned, not forked: threads of the libraries do not survive a fork.
        context = get_context("spawn")
        self.link: Connection
        self.link, other = context.Pipe()
        self._process: SpawnProcess = context.Process(target=work, args=(other, self._perform), daemon=True)
        self._process.start()
        self._key = register_cleanup(partial(end_process, self._process.pid or 0))
        other.close()

    def next_of(self, waiting: Iterator[tuple[str, SweepRun]]) -> bool:
        """Begin the next run; return whether there was one."""
        for digest, run in waiting:
            self.digest = digest
            with contextlib.suppress(OSError):  # a process that died meanwhile is noticed by its answer
                self.link.send(run)
            return True
        return False

    def answer(self) -> dict[str, Any]:
        """Return the summary of the run that ended."""
        try:
            found: dict[str, Any] | DamagedTraceError = self.link.recv()
        except (EOFError, OSError):
            self.stop()
            code = self._process.exitcode
            self._start()
            return {"error": f"its process ended (exit code {code}): memory may have run out; use fewer workers"}
        if isinstance(found, DamagedTraceError):
            raise found
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        unregister_cleanup(self._key)
        self.link.close()
