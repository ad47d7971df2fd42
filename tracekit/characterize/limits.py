"""The limits of a question: its time, the rows and bytes of its result, and the memory of its process."""

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
"""Time limit of a question in the sandbox, and of a question that a page asks [s]."""
MOST_ROWS = 10_000_000
"""Maximum number of rows in a result in the sandbox."""
SANDBOX_MEMORY = "1GB"
"""Default memory limit in the sandbox."""

_GRACE_S = 5.0
"""Time for SQL to end after an interrupt [s]. A function call on a single row cannot be interrupted."""
_BESIDE = 256 << 20
"""Process memory outside DuckDB's limit, such as its Parquet readers [B]."""
_BESIDE_A_CORE = 64 << 20
"""Memory outside DuckDB's limit, per DuckDB thread [B]."""


class StoppedError(TracekitError):
    """The question took too long, or nobody waits for the answer any more."""


@dataclass(frozen=True)
class Limits:
    """The limits of one question, where None means no limit."""

    seconds: float | None = None
    """Time limit [s]."""
    rows: int | None = None
    """Maximum number of rows in the result."""
    memory: int | None = None
    """Memory that DuckDB uses before it spills to disk, and the maximum size of the result [B]."""
    sandbox: bool = False
    """Whether the limits are those of the sandbox."""

    @classmethod
    def of(cls, memory_limit: str | None, seconds: float | None, *, sandbox: bool) -> Limits:
        """Return the limits of a question with this memory limit and time limit, inside or outside the sandbox."""
        memory = None if memory_limit is None else bytes_of(memory_limit)
        if not sandbox:
            return cls(seconds, None, memory)
        return cls(LONGEST_S if seconds is None else seconds, MOST_ROWS, memory, sandbox=True)

    def check(self, rows: int, held: int, where: Path) -> None:
        """Reject a result with more rows or bytes than allowed.

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
"""No limits at all."""


class Stop:
    """Stops the SQL of a question from another thread.

    Parameters
    ----------
    where : str or Path, optional
        Name of the question in the error.
    hint : str
        What the user can do if the question was stopped.
    """

    def __init__(self, where: str | Path | None = None, hint: str = "ask for a smaller part") -> None:
        self._lock = threading.Lock()
        self._running: list[duckdb.DuckDBPyConnection] = []
        self._where, self._hint = where, hint
        self.why = ""

    def watch(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let `stop` also stop the SQL on this connection.

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
        """Return the error for a question that was stopped."""
        return StoppedError(self.why, where=self._where, hint=self._hint)

    def stop(self, why: str) -> None:
        """Stop the running SQL, and everything that the question would run next."""
        import duckdb

        with self._lock:
            self.why = self.why or why
            for con in self._running:
                with contextlib.suppress(duckdb.Error):  # the connection was closed
                    con.interrupt()


@contextlib.contextmanager
def timed(con: duckdb.DuckDBPyConnection, seconds: float | None, where: Path, *, own_process: bool) -> Iterator[None]:
    """Stop the connection's SQL in this block after a time limit.

    Parameters
    ----------
    seconds : float, optional
        The time limit [s], or None for no limit.
    where : Path
        Name of the question in the error.
    own_process : bool
        Whether to end the process, with one line and exit code 2, if the SQL does not react to the interrupt.

    Raises
    ------
    StoppedError
        The block took longer.
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
        stop.check()  # interrupted SQL looks like failed SQL
        raise
    else:
        stop.check()
    finally:
        for timer in timers:
            timer.cancel()


@contextlib.contextmanager
def limited_memory(limits: Limits) -> Iterator[None]:
    """Limit the memory of this process in this block, if the system supports it (Linux).

    DuckDB's own limit does not count the results of SQL functions such as repeat('x', 2000000000). The limit set here
    is the sum of the current memory of the process, DuckDB's limit, the largest result, and the needs of the threads.
    It limits private memory (RLIMIT_DATA), not addresses, because each thread reserves many more addresses than it
    uses.
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
