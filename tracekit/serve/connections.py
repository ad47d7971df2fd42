"""How many connections are open and for how long: connections that ask nothing must not keep questions out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Connections", "Patience"]


@dataclass(frozen=True)
class Patience:
    """How long the server waits for a client, and for how many."""

    headers_s: float = 10
    """Time from the accept, or from the last answer, to the end of the headers of the next question [s]."""
    answer_s: float = 60
    """Time in which a client takes no part of its answer [s]."""
    connections: int = 128
    """Most open connections; macOS lets a process open 256 files."""
    of_address: int = 96
    """Most open connections of one address."""


class _Connection:
    """An open connection: the server works for it, or waits for its client."""

    def __init__(self, transport: asyncio.Transport, patience: Patience) -> None:
        peer = transport.get_extra_info("peername") or ("", 0)  # a client that left already has no address
        self.client: tuple[str, int] = tuple(peer[:2])
        self.transport, self._patience = transport, patience
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.wait()

    @property
    def unsent(self) -> int:
        """Part of the last answer that the client has not taken [bytes]."""
        return self.transport.get_write_buffer_size()

    def work(self) -> None:
        """Have the server work, whose time is limited by `Desk`."""
        self.works = True
        self._stop_timer()

    def wait(self) -> None:
        """Wait until the client takes its answer and sends its next question."""
        self.works = False
        self.since = self._loop.time()
        self._start_timer()

    def close(self) -> None:
        """Close the connection at once; what is unsent is lost."""
        self._closed = True
        self._stop_timer()
        self.transport.abort()

    def _start_timer(self) -> None:
        self._stop_timer()
        if not self._closed:
            unsent = self.unsent
            seconds = self._patience.answer_s if unsent else self._patience.headers_s
            self._timer = self._loop.call_later(seconds, self._late, unsent)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _late(self, unsent: int) -> None:
        if self.unsent < unsent:  # the client is slow, but reads
            self._start_timer()
        else:
            self.close()


class Connections:
    """The open connections of a server.

    At either limit of number, a new connection takes the place of the one that has waited for its client the longest;
    one that still sends an answer comes last. No place is taken from a question in work.

    Parameters
    ----------
    patience : Patience, optional
        Limits of time and number.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._open: dict[tuple[str, int], _Connection] = {}

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the class for `uvicorn.Config(http=...)` that has its connections limited here."""
        connections = self

        class Limited(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
                super().connection_made(transport)
                self.limited = connections._made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                connections._lost(self.limited)

        return Limited

    def watched(self, app: ASGIApp) -> ASGIApp:
        """Return an application that marks the connections whose questions are in work."""

        async def watched_app(scope: Scope, receive: Receive, send: Send) -> None:
            connection = self._open.get(tuple(scope.get("client") or ()))
            if connection is None:  # it is closed already
                await app(scope, receive, send)
                return

            async def sent(message: Message) -> None:
                connection.wait()  # a client that does not read keeps `send` from ending
                await send(message)

            connection.work()
            try:
                await app(scope, receive, sent)
            finally:
                connection.wait()

        return watched_app

    def _made(self, transport: asyncio.Transport) -> _Connection:
        made = _Connection(transport, self._patience)
        same = [one for one in self._open.values() if one.client[0] == made.client[0]]
        if len(same) >= self._patience.of_address:
            room = self._make_room(same)
        else:
            room = len(self._open) < self._patience.connections or self._make_room(self._open.values())
        if room:
            self._open[made.client] = made
        else:
            made.close()
        return made

    def _make_room(self, among: Collection[_Connection]) -> bool:
        """Close a connection that waits for its client; return whether there is one."""
        waiting = [one for one in among if not one.works]
        if waiting:
            self._lost(min(waiting, key=lambda one: (one.unsent > 0, one.since)))
        return bool(waiting)

    def _lost(self, lost: _Connection) -> None:
        if self._open.get(lost.client) is lost:
            del self._open[lost.client]
        lost.close()
