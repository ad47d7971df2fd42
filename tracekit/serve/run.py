"""The server: where it listens, what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from typing import TYPE_CHECKING

import uvicorn

from tracekit.analysis.reporting import report
from tracekit.errors import UsageError
from tracekit.serve.app import made_app
from tracekit.serve.connections import Connections
from tracekit.serve.gate import Gate, is_loopback
from tracekit.serve.trace import ServedTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from tracekit.progress import Progress
    from tracekit.serve.connections import Patience
    from tracekit.trace import Trace

__all__ = ["LEAST_TOKEN", "can_show", "config_of", "serve"]

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
        what = f"can be guessed, or does not fit into an address: {LEAST_TOKEN} letters, digits and signs at least"
        raise UsageError(what, where="--token", hint="leave it out, and one is made where it is needed")
    return token


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that a port in use is told before the report is made."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family)
    except socket.gaierror as error:
        raise UsageError(f"'{host}' is no address of this machine", where="--host", hint="try 127.0.0.1") from error
    except OverflowError as error:
        raise UsageError(f"{port} is no port", where="--port", hint="give 0 to 65535") from error
    except OSError as error:
        what = f"cannot listen at {host}, port {port}: {os.strerror(error.errno or 0)}"
        raise UsageError(what, where="--port", hint="choose another port; 0 takes any that is free") from error


def _address(host: str, port: int, token: str | None) -> str:
    """Return the address of the page; of a server on all addresses, with the name of the machine."""
    name = socket.gethostname() if host in {"0.0.0.0", "::", ""} else host  # noqa: S104 -- it is compared, not bound
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
