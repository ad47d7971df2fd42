"""The server: its address, its output, its limits and its shutdown."""

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


# Checks before every answer: who sent the request, and what a browser may do with the answer.
#
# A page from another origin must learn nothing about the Trace. It cannot read answers. If its host name resolves to
# this machine (DNS rebinding), the Host header contains a different name and the request is rejected. A token keeps out
# others who can connect, such as other users of the machine.

_GATE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every answer. Each page declares which of its own scripts may run."""
_OF_PAGES = "frame-ancestors 'none'; base-uri 'none'"
_OF_DATA = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"

_HOST = re.compile(r"(?:\[(?P<inside>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]+)?")

_COOKIE_S = 12 * 3600
"""Lifetime of a cookie [s]."""

_FORBIDDEN = "Open the address that tracekit printed. It contains the token that is missing here.\n"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine and cannot be reached from other machines.

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
    """Passes on allowed requests and rejects all others.

    Parameters
    ----------
    app : ASGI application
        Application that answers the requests.
    names : collection of str
        Names of this machine that the Host header may contain in addition to addresses.
    local : bool
        Whether the Host header may contain only loopback addresses.
    token : str, optional
        Token that a request must contain, or None if everybody who can connect may send requests.
    port : int
        Port of the server, which distinguishes its cookie from other servers' cookies.
    """

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], local: bool, token: str | None = None, port: int = 0
    ) -> None:
        self._app, self._local, self._token = app, local, token
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._cookie = f"tracekit-{port}"
        # Browsers send a cookie to every port of its host. This key makes the cookie worthless to other servers, even
        # with the same token. No cookie contains the token itself.
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, or pass it on and add headers to the answer."""
        if scope["type"] != "http":
            return  # ignore websockets and lifespan events
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
            return PlainTextResponse("This tracekit server does not have this host name.\n", 421)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("This server answers only GET and HEAD.\n", 405, {"Allow": "GET, HEAD"})
        if body:
            return PlainTextResponse("This server reads no request bodies.\n", 413)
        # Browsers say where a request comes from and where they show the answer. A link that opens a page is harmless,
        # but a frame in another page is dangerous.
        foreign = headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        if foreign and not opened:
            return PlainTextResponse("Only pages of this tracekit server may send this request.\n", 403)
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
        """Reject a request without the token. Move a token from the address to a cookie, so no page shows it."""
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens:
            if not _same(tokens[0], token):
                return PlainTextResponse(_FORBIDDEN, 403)
            rest = urlencode([(name, value) for name, value in given if name != "token"])
            # Use only one slash, because two slashes would start a host name.
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
        """Return a cookie value that is valid until a time [s since 1970]."""
        return f"{until}-{hmac.digest(self._key, str(until).encode(), 'sha256').hex()}"

    def _has_ticket(self, headers: Headers) -> bool:
        for cookie in headers.get("cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            until = value.partition("-")[0]
            if name == self._cookie and re.fullmatch("[0-9]{1,12}", until):
                return int(until) > time.time() and _same(value, self._ticket(int(until)))
        return False


def _same(one: str, other: str) -> bool:
    """Compare in constant time. Otherwise the time could reveal how many characters are correct."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


# Limits on the number and duration of connections, so that idle connections cannot block requests.


@dataclass(frozen=True)
class Patience:
    """Limits on the time that the server waits for clients and on the number of connections."""

    headers_s: float = 10
    """Maximum time from the accept or the last answer to the end of the next request's headers [s]."""
    answer_s: float = 60
    """Maximum time for which a client reads nothing of its answer [s]."""
    connections: int = 128
    """Maximum number of open connections. On macOS, a process can open 256 files."""
    of_address: int = 96
    """Maximum number of open connections from one address."""


class _Connection:
    """An open connection. The server is working on its request or waiting for the client."""

    def __init__(self, transport: asyncio.Transport, patience: Patience) -> None:
        peer = transport.get_extra_info("peername") or ("", 0)  # a client that has already left has no address
        self.client: tuple[str, int] = tuple(peer[:2])
        self.transport, self._patience = transport, patience
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.wait()

    @property
    def unsent(self) -> int:
        """Part of the last answer that the client has not read yet [bytes]."""
        return self.transport.get_write_buffer_size()

    def work(self) -> None:
        """Mark the connection's request as in progress. `Desk` limits the time."""
        self.works = True
        self._stop_timer()

    def wait(self) -> None:
        """Wait until the client reads its answer and sends its next request."""
        self.works = False
        self.since = self._loop.time()
        self._start_timer()

    def close(self) -> None:
        """Close the connection at once. Unsent data are lost."""
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
        if self.unsent < unsent:  # the client is slow but still reading
            self._start_timer()
        else:
            self.close()


class Connections:
    """The open connections of a server.

    At either limit, a new connection replaces the longest-idle one. Connections that are still sending an answer come
    last, and those with a request in progress are never replaced.

    Parameters
    ----------
    patience : Patience, optional
        Time and connection limits.
    """

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._open: dict[tuple[str, int], _Connection] = {}

    def protocol(self) -> type[asyncio.Protocol]:
        """Return a class for `uvicorn.Config(http=...)` whose connections observe these limits."""
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
        """Return an application that marks connections whose requests are in progress."""

        async def watched_app(scope: Scope, receive: Receive, send: Send) -> None:
            connection = self._open.get(tuple(scope.get("client") or ()))
            if connection is None:  # already closed
                await app(scope, receive, send)
                return

            async def sent(message: Message) -> None:
                connection.wait()  # `send` does not return if the client does not read
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
        """Close an idle connection, and return whether one was open."""
        waiting = [one for one in among if not one.works]
        if waiting:
            self._lost(min(waiting, key=lambda one: (one.unsent > 0, one.since)))
        return bool(waiting)

    def _lost(self, lost: _Connection) -> None:
        if self._open.get(lost.client) is lost:
            del self._open[lost.client]
        lost.close()


LEAST_TOKEN = 16
"""Minimum length of a token [characters]."""
_HEADERS = 64 * 1024
"""Maximum size of request headers [bytes]. The address can contain a name of thousands of characters."""
_ACCEPTED = 64
"""Backlog of the socket. It is below the connection limit, so every connection is read before it is closed."""


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
    """Make the report of a Trace, and serve it until the process is interrupted.

    Parameters
    ----------
    trace : Trace
        The Trace with its tenant (`Trace.by`).
    host : str
        Address or name of this machine to listen on.
    port : int
        Port to listen on, or 0 for any free port.
    token : str, optional
        Token that requests must contain. If it is not given and other machines can connect, it is generated.
    replay_jobs : int
        Maximum number of jobs to replay, or 0 for no replays.
    memory_limit : str, optional
        Maximum memory of a request before it spills to disk, such as '2GB'.
    started : callable
        Called with the page's address as soon as it is served.
    progress : Progress, optional
        Shows the report's progress.

    Raises
    ------
    UsageError
        The port is in use, the host is not an address of this machine, or the token is too weak.
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
    """Return the server configuration of an application: HTTP/1.1 only, with limits for every connection.

    Parameters
    ----------
    app : ASGI application
        Application that answers requests.
    patience : Patience, optional
        Connection limits.
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
    """A server that leaves signals to tracekit. tracekit exits at once and removes temporary files."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def can_show() -> bool:
    """Return whether a graphical browser can be opened here. This requires a screen."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _token(host: str, token: str | None) -> str | None:
    if token is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        what = f"is too weak or not valid in an address: use at least {LEAST_TOKEN} letters, digits and signs"
        raise UsageError(what, where="--token", hint="leave it out, because tracekit makes a token if needed")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Opening it early detects a port in use before the report is made."""
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
        raise UsageError(what, where="--port", hint="choose another port, or 0 for any free port") from error


def _address(host: str, port: int, token: str | None) -> str:
    """Return the address of the page, with the machine's name if the server listens on all addresses."""
    name = socket.gethostname() if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 -- it is compared, not bound
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
