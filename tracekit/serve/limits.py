"""Limits on requests: a few at a time, for at most a minute each. A closed page's requests are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tracekit.characterize.limits import LONGEST_S, Stop
from tracekit.characterize.session import Session
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import duckdb
    from starlette.requests import Request

    from tracekit.trace import Trace

__all__ = ["AskedSession", "BusyError", "Desk"]

_AT_ONCE = 2
"""Number of requests processed at the same time. DuckDB uses all processors for each."""
_WAITING = 32
"""Maximum number of waiting and running requests. A page sends one request after another."""
_LOOK_S = 0.2
"""Interval between checks whether the page is still open [s]."""

T = TypeVar("T")


class BusyError(TracekitError):
    """Too many requests are waiting."""


class AskedSession(Session):
    """The databases of one part of a Trace. Only one request at a time uses them."""

    def __init__(self, trace: Trace, memory_limit: str | None = None) -> None:
        super().__init__(trace, memory_limit)
        self._one = threading.Lock()
        self._stop = Stop()

    @contextlib.contextmanager
    def used_by(self, stop: Stop) -> Iterator[None]:
        """Let `stop` interrupt the block's SQL. Other requests wait until the block ends."""
        with self._one:
            self._stop = stop
            try:
                yield
            finally:
                self._stop = Stop()

    def connect(self, also: Iterable[str] = (), sql: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a connection for one query that `stop` can interrupt."""
        con = super().connect(also, sql)
        self._stop.watch(con)
        return con


class Desk:
    """Accepts requests and answers them in a few threads."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tracekit-answer")
        self._asked = 0

    async def answer(self, request: Request, work: Callable[[Stop], T]) -> T:
        """Run `work` in a thread and return its result.

        Raises
        ------
        BusyError
            Too many requests are waiting.
        StoppedError
            The request took too long, or the page that sent it is closed.
        """
        if self._asked >= _WAITING:
            raise BusyError("too many requests at the same time", hint="try again in a moment")
        stop = Stop()
        loop = asyncio.get_running_loop()
        self._asked += 1
        queued = self._threads.submit(work, stop)
        future = asyncio.wrap_future(queued)
        future.add_done_callback(self._answered)
        until = loop.time() + self._longest_s
        try:
            while True:
                done, _ = await asyncio.wait({future}, timeout=_LOOK_S)
                if done:
                    return future.result()
                if loop.time() > until:
                    stop.stop(f"no answer within {self._longest_s:g} s")
                elif await request.is_disconnected():
                    stop.stop("nobody waits for the answer")
                stop.check()
        finally:
            if not future.done():
                stop.stop("nobody waits for the answer")
                queued.cancel()  # free the slot of a request that has not started

    def _answered(self, future: asyncio.Future[T]) -> None:
        self._asked -= 1
        if not future.cancelled():
            future.exception()  # nobody waits for it, so mark it as retrieved
