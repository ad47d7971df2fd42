"""The server: where it listens, what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from tracekit.analysis.reporting import report
from tracekit.errors import UsageError
from tracekit.serve.app import made_app
from tracekit.serve.trace import ServedTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tracekit.progress import Progress
    from tracekit.trace import Trace


# What stands before every answer: whose question it is, and what a browser may do with the answer.
#
# A page of another origin must not learn anything of the Trace. It cannot read answers, and where its name was made
# to mean this machine (DNS rebinding), it asks for a host of another name and is refused. A token keeps out whoever
# can connect, such as the other users of a machine.

_GATE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer. A page says in itself which of its scripts may run."""
_OF_PAGES = "frame-ancestors 'none'; base-uri 'none'"
_OF_DATA = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"

_HOST = re.compile(r"(?:\[(?P<inside>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]+)?")

_COOKIE_S = 12 * 3600
"""How long a cookie lets in [s]."""

_FORBIDDEN = "Open the address that tracekit printed: it holds the token that is missing here.\n"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, and reached from nowhere else.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Gate:
    """Lets through questions that may be asked.

    Parameters
    ----------
    app : ASGI application
        What answers them.
    names : collection of str
        Names of this machine that may stand in the Host header, besides addresses.
    local : bool
        Whether only addresses of this machine itself may stand there.
    token : str, optional
        What a question has to know; None where whoever can connect may ask.
    port : int
        Where the server listens, which tells its cookie from those of others.
    """

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], local: bool, token: str | None = None, port: int = 0
    ) -> None:
        self._app, self._local, self._token = app, local, token
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._cookie = f"tracekit-{port}"
        # Browsers send a cookie to every port of its host. This key makes it worthless to all other servers, also to
        # those with the same token; the token itself is in no cookie.
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a question, or hand it on and add headers to the answer."""
        if scope["type"] != "http":
            return  # neither sockets nor the events of a server's life are answered
        asked = Headers(scope=scope)
        body = "transfer-encoding" in asked or asked.get("content-length", "0").strip("0") != ""
        refused = self._refusal(scope, asked, body=body)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if body:
                    headers["Connection"] = "close"  # the body is not read
                for name, value in _GATE_HEADERS.items():
                    headers[name] = value
                page = headers.get("content-type", "").startswith("text/html")
                headers["Content-Security-Policy"] = _OF_PAGES if page else _OF_DATA
            await send(message)

        await (self._app if refused is None else refused)(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: Headers, *, body: bool) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return PlainTextResponse("This tracekit serves no host of that name.\n", 421)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("This server only answers GET and HEAD.\n", 405, {"Allow": "GET, HEAD"})
        if body:
            return PlainTextResponse("This server reads no request bodies.\n", 413)
        # Browsers say where a question comes from, and where they show the answer. A link that opens a page is no
        # danger; a frame in another page is.
        foreign = headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        if foreign and not opened:
            return PlainTextResponse("Only pages of this tracekit may ask this.\n", 403)
        return None if self._token is None else self._without_token(scope, headers, self._token)

    def _is_own(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        try:
            address = ipaddress.ip_address(found["inside"] or found["name"])
        except ValueError:
            return found["name"] is not None and found["name"].rstrip(".") in self._names
        return address.is_loopback or not self._local

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """Refuse a question without the token; take one from the address into a cookie, so that no page shows it."""
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens:
            if not _same(tokens[0], token):
                return PlainTextResponse(_FORBIDDEN, 403)
            rest = urlencode([(name, value) for name, value in given if name != "token"])
            # One slash: two would name another host.
            path = "/" + quote(scope["path"].lstrip("/\\"))
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            ticket = self._ticket(int(time.time()) + _COOKIE_S)
            answer.set_cookie(self._cookie, ticket, max_age=_COOKIE_S, httponly=True, samesite="lax", path="/")
            return answer
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        return None if self._has_ticket(headers) else PlainTextResponse(_FORBIDDEN, 403)

    def _ticket(self, until: int) -> str:
        """Return the value of a cookie that lets in until a time [s since 1970]."""
        return f"{until}-{hmac.digest(self._key, str(until).encode(), 'sha256').hex()}"

    def _has_ticket(self, headers: Headers) -> bool:
        for cookie in headers.get("cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            until = value.partition("-")[0]
            if name == self._cookie and re.fullmatch("[0-9]{1,12}", until):
                return int(until) > time.time() and _same(value, self._ticket(int(until)))
        return False


def _same(one: str, other: str) -> bool:
    """Compare in a time that does not tell how many letters are right."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


# How many connections are open and for how long: connections that ask nothing must not keep questions out.


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


LEAST_TOKEN = 16
"""Letters of the shortest token that is taken."""
_HEADERS = 64 * 1024
"""Longest headers of a question [bytes]: a name of thousands of letters fits into its address."""
_ACCEPTED = 64
"""Connections that are accepted at once; fewer than are open, so that none is closed before its question is read."""


def serve(
    trace: Trace,
    *,
    host: str,
    port: int,
    token: str | None,
    replay_jobs: int,
    memory_limit: str | None,
    started: Callable[[str], None],
    progress: Progress | None = None,
) -> None:
    """Make the report of a Trace, and answer for it until the process is interrupted.

    Parameters
    ----------
    trace : Trace
        With its tenant (`Trace.by`).
    host : str
        Where to listen: an address or a name of this machine.
    port : int
        0 takes any that is free.
    token : str, optional
        What whoever asks has to know; made where it is not given and the host is not this machine alone.
    replay_jobs : int
        Jobs to replay at most; 0 replays none.
    memory_limit : str, optional
        Most memory of a question before it spills to disk, such as '2GB'.
    started : callable
        Called with the address of the page as soon as it is served.
    progress : Progress, optional
        Shows how far the report is.

    Raises
    ------
    UsageError
        The port is in use, the host is none of this machine's, or the token can be guessed.
    TraceError
        The Trace cannot be read.
    """
    token = _token(host, token)
    listening = _listening(host, port)
    with listening:
        shown = report(trace, progress=progress, replay_jobs=replay_jobs, memory_limit=memory_limit)
        served = ServedTrace(trace, shown, memory_limit)
        port = listening.getsockname()[1]
        local = is_loopback(host)
        names = {"localhost"} if local else {"localhost", host, socket.gethostname(), socket.getfqdn()}
        gate = Gate(made_app(served), names=names, local=local, token=token, port=port)
        if progress is not None:
            progress.close()
        started(_address(host, port, token))
        _Server(config_of(gate)).run(sockets=[listening])


def config_of(app: ASGIApp, patience: Patience | None = None) -> uvicorn.Config:
    """Return how an application is served: by HTTP/1.1 alone, with limits for every connection.

    Parameters
    ----------
    app : ASGI application
        What answers.
    patience : Patience, optional
        Limits of connections.
    """
    connections = Connections(patience)
    return uvicorn.Config(
        connections.watched(app),
        http=connections.protocol(),
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_ACCEPTED,
        h11_max_incomplete_event_size=_HEADERS,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to tracekit, which ends the process at once and removes what is temporary."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def can_show() -> bool:
    """Return whether a browser with windows can be opened here; on a machine without a screen it would be none."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _token(host: str, token: str | None) -> str | None:
    if token is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        what = f"is too weak, or is not valid in an address: use at least {LEAST_TOKEN} letters, digits and signs"
        raise UsageError(what, where="--token", hint="leave it out: tracekit makes one if needed")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that a port in use is told before the report is made."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family)
    except socket.gaierror as error:
        raise UsageError(f"'{host}' is not an address of this machine", where="--host", hint="try 127.0.0.1") from error
    except OverflowError as error:
        raise UsageError(f"{port} is not a port", where="--port", hint="give 0 to 65535") from error
    except OSError as error:
        what = f"cannot listen on {host}, port {port}: {os.strerror(error.errno or 0)}"
        raise UsageError(what, where="--port", hint="choose another port; 0 picks a free one") from error


def _address(host: str, port: int, token: str | None) -> str:
    """Return the address of the page; of a server on all addresses, with the name of the machine."""
    name = socket.gethostname() if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 -- it is compared, not bound
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
