"""What a question may take: its time, the rows and bytes of its result, and the memory of a process of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import QueryError, TracekitError
from tracekit.estimate import bytes_of
from tracekit.interruption import end_run
from tracekit.text import count, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

LONGEST_S = 60.0
"""Longest time of a question in the sandbox, and of a question that a page asks [s]."""
MOST_ROWS = 10_000_000
"""Most rows of a result in the sandbox."""
SANDBOX_MEMORY = "1GB"
"""Memory limit in the sandbox, if the caller gives none."""

_GRACE_S = 5.0
"""Time that SQL has to end after it was interrupted [s]: one call of a function on one row hears nothing meanwhile."""
_BESIDE = 256 << 20
"""Memory of the process that DuckDB's limit does not count, such as what its readers of Parquet hold [B]."""
_BESIDE_A_CORE = 64 << 20
"""The same for each thread of DuckDB [B]."""


class StoppedError(TracekitError):
    """A question that took too long, or that nobody waits for any more."""


@dataclass(frozen=True)
class Limits:
    """What one question may take; None where there is no limit."""

    seconds: float | None = None
    """Time [s]."""
    rows: int | None = None
    """Rows of the result."""
    memory: int | None = None
    """Memory of DuckDB before it spills, and the most bytes of the result [B]."""
    sandbox: bool = False
    """Whether the limits are those of the sandbox."""

    @classmethod
    def of(cls, memory_limit: str | None, seconds: float | None, *, sandbox: bool) -> Limits:
        """Return the limits of a question that has this memory limit and time limit, and is in the sandbox or not."""
        memory = None if memory_limit is None else bytes_of(memory_limit)
        if not sandbox:
            return cls(seconds, None, memory)
        return cls(LONGEST_S if seconds is None else seconds, MOST_ROWS, memory, sandbox=True)

    def check(self, rows: int, held: int, where: Path) -> None:
        """Refuse a result of more rows or bytes than allowed.

        Raises
        ------
        QueryError
            The result is too large.
        """
        if self.rows is not None and rows > self.rows:
            what, instead = f"{count(self.rows)} rows, the most that the sandbox allows", "run it with --no-sandbox"
        elif self.memory is not None and held > self.memory:
            what, instead = f"{size(self.memory)}, the memory limit", "raise --memory-limit"
        else:
            return
        raise QueryError(f"the result has more than {what}", where=where, hint=f"add a LIMIT to the SQL, or {instead}")


NO_LIMITS = Limits()
"""A question may take what it needs."""


class Stop:
    """Stops the SQL of a question, from another thread.

    Parameters
    ----------
    where : str or Path, optional
        The question, as the error names it.
    hint : str
        What to do about a question that was stopped.
    """

    def __init__(self, where: str | Path | None = None, hint: str = "ask for a smaller part") -> None:
        self._lock = threading.Lock()
        self._running: list[duckdb.DuckDBPyConnection] = []
        self._where, self._hint = where, hint
        self.why = ""

    def watch(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have what this connection runs stopped as well.

        Raises
        ------
        StoppedError
            The question was stopped.
        """
        with self._lock:
            if self.why:
                raise self.error()
            self._running.append(con)

    def check(self) -> None:
        """Raise StoppedError if the question was stopped."""
        if self.why:
            raise self.error()

    def error(self) -> StoppedError:
        """Return the error of a question that was stopped."""
        return StoppedError(self.why, where=self._where, hint=self._hint)

    def stop(self, why: str) -> None:
        """Stop what is running, and all that the question would run next."""
        import duckdb

        with self._lock:
            self.why = self.why or why
            for con in self._running:
                with contextlib.suppress(duckdb.Error):  # it was closed
                    con.interrupt()


@contextlib.contextmanager
def timed(con: duckdb.DuckDBPyConnection, seconds: float | None, where: Path, *, own_process: bool) -> Iterator[None]:
    """Stop what the connection runs inside the block after a time.

    Parameters
    ----------
    seconds : float, optional
        The time [s]; None: there is no limit.
    where : Path
        The question, as the error names it.
    own_process : bool
        End the process, with one line and exit code 2, if the SQL does not hear that it is stopped.

    Raises
    ------
    StoppedError
        It took longer.
    """
    if seconds is None:
        yield
        return
    stop = Stop(where, "ask for less, or raise --time-limit")
    stop.watch(con)
    timers = [threading.Timer(seconds, stop.stop, (f"no answer within {seconds:g} s",))]
    if own_process:
        timers.append(threading.Timer(seconds + _GRACE_S, lambda: end_run(f"tracekit: error: {stop.error()}\n", 2)))
    for timer in timers:
        timer.daemon = True
        timer.start()
    try:
        yield
    except Exception:
        stop.check()  # what was interrupted looks like SQL that failed
        raise
    else:
        stop.check()
    finally:
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def limited_memory(limits: Limits) -> Iterator[None]:
    """Bound the memory of this process inside the block, where the system can: on Linux.

    What functions of SQL build, such as repeat('x', 2000000000), DuckDB's own limit does not count. The bound is what
    the process has now, DuckDB's limit, the largest result, and what its threads need. It is on private memory
    (RLIMIT_DATA) and not on addresses, of which each thread reserves many and uses few.
    """
    if limits.memory is None or sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _private_memory() + 2 * limits.memory + _BESIDE + (os.cpu_count() or 1) * _BESIDE_A_CORE
    allowed = [most, *(end for end in before if end != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(allowed), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _private_memory() -> int:
    """Return the private memory of this process, as Linux counts it for RLIMIT_DATA [B]."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))
