"""A local file server with all faults that servers on the Internet may have."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tracekit.datasets import Dataset, RemoteFile
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTENT = bytes(range(256)) * 2_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Served:
    """One path on the server, with its behaviour."""

    content: bytes = CONTENT
    status: int = 200
    content_type: str = "application/octet-stream"
    tag: str | None = '"one"'
    date: str | None = None
    ranges: bool = True
    with_length: bool = True
    breaks_after: int | None = None
    """Number of bytes in a response after which the connection is cut."""
    breaks: int = 1_000
    """Number of responses that are cut before the server works."""
    pause: float = 0.0
    """Silence before the content [s]."""
    location: str | None = None
    resumed: bytes | None = None
    """Content whose rest the server sends when it resumes, regardless of the condition."""
    shift: int = 0
    """Number of bytes by which the sent part begins later than requested."""
    stalls_after: int | None = None
    """Number of bytes after which the server waits until `gate` is set."""
    gate: threading.Event = field(default_factory=threading.Event)


@dataclass
class Server:
    """The paths that the server serves, and the requests it received as (path, Range, status)."""

    content: bytes = CONTENT
    sha256: str = SHA256
    base: str = ""
    paths: dict[str, Served] = field(default_factory=dict)
    asked: list[tuple[str, str | None, int]] = field(default_factory=list)

    def serve(self, path: str, **how: object) -> str:
        """Serve a path and return its URL."""
        self.paths[f"/{path}"] = Served(**how)  # type: ignore[arg-type]  # the names are those of Served
        return f"{self.base}/{path}"

    @property
    def ranges(self) -> list[str | None]:
        """The Range header of every request."""
        return [asked for _, asked, _ in self.asked]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def do_GET(self) -> None:
        served = self.state.paths.get(self.path)
        if served is None:
            served = Served(content=b"no such file", status=404, content_type="text/plain")
        start = self._start(served)
        status = 206 if start else served.status
        if start >= len(served.content) > 0:
            start, status = 0, 416
        self.state.asked.append((self.path, self.headers.get("Range"), status))
        size = len(served.content)
        self.send_response(status)
        headers = {
            "Content-Type": served.content_type,
            "Connection": "close",
            "Location": served.location,
            "Content-Length": str(size - start) if served.with_length else None,
            "Content-Range": f"bytes {start + served.shift}-{size - 1}/{size}" if status == 206 else None,
            "ETag": served.tag,
            "Last-Modified": served.date,
        }
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        time.sleep(served.pause)
        content = served.resumed if start and served.resumed is not None else served.content
        self._send(served, content[start:])
        self.close_connection = True

    def _send(self, served: Served, body: bytes) -> None:
        if served.breaks_after is not None and served.breaks > 0:
            served.breaks -= 1
            body = body[: served.breaks_after]
        try:
            if served.stalls_after is not None:
                self.wfile.write(body[: served.stalls_after])
                served.gate.wait(60)
                body = body[served.stalls_after :]
            self.wfile.write(body)
        except OSError:
            return  # the client gave up

    def _start(self, served: Served) -> int:
        asked, condition = self.headers.get("Range"), self.headers.get("If-Range")
        if not asked or not served.ranges or served.status != 200:
            return 0
        # A weak tag does not identify bytes, so it never allows a range (RFC 9110, 13.1.5).
        if (
            served.resumed is None
            and condition is not None
            and (condition.startswith("W/") or condition not in (served.tag, served.date))
        ):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
        return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Run a file server for one test."""
    monkeypatch.setenv("no_proxy", "*")
    state = Server()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        http.daemon_threads = True
        http.block_on_close = False
        state.base = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


@pytest.fixture
def make_dataset() -> Callable[..., Dataset]:
    """Return a function that makes a dataset of one file, data.tar.gz, or of given files."""

    def make(*urls: str, files: tuple[RemoteFile, ...] = (), **facts: object) -> Dataset:
        if not files:
            given = {"bytes": len(CONTENT), "sha256": SHA256, "sha256_from": "publisher"} | facts
            files = (RemoteFile("data.tar.gz", urls, **given),)  # type: ignore[arg-type]  # the names are its own
        return Dataset(
            "toy", "A toy", "philly", "CC0", "Nobody, Nothing, 2020", "https://x.org/p", "https://x.org", "", files
        )

    return make


class Heard(Progress):
    """Stores everything that is reported."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[tuple[str, int | None]] = []
        self.done = 0

    def stage(self, what: str, total: int | None = None) -> None:
        self.stages.append((what, total))
        self.done = 0

    def advance(self, amount: int) -> None:
        self.done += amount

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def heard() -> Heard:
    return Heard()
