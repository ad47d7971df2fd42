"""Exchanges with servers that are slow, broken or hostile end at a bound, in one line."""

from __future__ import annotations

import gzip
import io
import itertools
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPMessage
from typing import TYPE_CHECKING
from urllib.request import Request

import pytest

from tracekit.exchange import (
    DOWNLOADS,
    QUESTIONS,
    Bounds,
    ExchangeError,
    LateError,
    LostError,
    TooLargeError,
    _Redirects,
    ask,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOON = Bounds(first_s=0.3, silence_s=0.1, whole_s=60.0, most_bytes=100_000, redirects=3)
"""Bounds of a test: a server that sends fewer than 102 bytes in 0.1 s is too slow."""
PATIENT = replace(SOON, first_s=60.0, silence_s=60.0)
OK = b"HTTP/1.1 200 OK\r\n"


class Listening:
    """A server of this machine that speaks as a test has it speak."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[bytes] = []
        self.over = threading.Event()


@contextmanager
def server(speak: Callable[[socket.socket, Listening], None]) -> Iterator[Listening]:
    """Run a server that calls `speak` for each connection, once the request is there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        state = Listening(f"http://127.0.0.1:{listening.getsockname()[1]}")

        def serve() -> None:
            while not state.over.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(10)
                    state.requests.append(connection.recv(65_536))
                    try:
                        speak(connection, state)
                    except OSError:
                        continue  # the client went away

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def again_and_again(head: bytes, repeated: bytes, pause: float = 0.0) -> Callable[[socket.socket, Listening], None]:
    """Return how a server speaks that repeats itself until the client goes away."""

    def speak(connection: socket.socket, state: Listening) -> None:
        connection.sendall(head)
        while not state.over.wait(pause) if pause else not state.over.is_set():
            connection.sendall(repeated)

    return speak


def says(said: bytes) -> Callable[[socket.socket, Listening], None]:
    """Return how a server speaks that says this and hangs up."""
    return lambda connection, _: connection.sendall(said)


def content(address: str, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> bytes:
    """Return the whole content of an address."""
    with ask(address, {}, bounds, clock) as answer:
        return b"".join(iter(lambda: answer.read(1 << 16), b""))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize(
    ("head", "repeated"),
    [
        (OK + b"Content-Length: 90000\r\n\r\n", b"x"),
        (OK + b"\r\n", b"x"),
        (OK + b"X-Long: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"[:1]),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["content", "content without length", "header", "status", "size of a chunk", "chunks"],
)
def test_an_answer_that_drips_is_ended(head: bytes, repeated: bytes) -> None:
    """Each byte is in time; together they are too slow."""
    told = r"the server sends less than 1\.0 KiB a second, \d+ B in 0\.1"
    with server(again_and_again(head, repeated, 0.02)) as listening, pytest.raises(LostError, match=told):
        content(listening.address, SOON)


@pytest.mark.parametrize(
    ("head", "repeated", "told"),
    [
        (OK + b"\r\n", b"x" * 4096, r"the response has more than 97\.7 KiB"),
        (OK + b"Content-Length: 100001\r\n\r\n", b"x" * 4096, r"the response has more than 97\.7 KiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n", r"more than 97\.7 KiB"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: " + b"x" * 4096 + b"\r\n", r"more than 97\.7 KiB"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, r"the headers have more than 1\.0 MiB"),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", b"x" * 4096, "redirects more than 3 times"),
    ],
    ids=["content", "stated length", "chunks", "trailers", "continue", "content of a redirect"],
)
def test_an_answer_without_an_end_is_ended(head: bytes, repeated: bytes, told: str) -> None:
    with server(again_and_again(head, repeated)) as listening, pytest.raises(ExchangeError, match=told):
        content(listening.address, PATIENT)


def test_headers_without_an_end_are_ended() -> None:
    with server(again_and_again(OK, b"X: y\r\n" * 100)) as listening, pytest.raises(ExchangeError, match="100 headers"):
        content(listening.address, PATIENT)


def test_as_many_bytes_as_allowed_are_an_answer_and_one_more_is_none() -> None:
    for size, fits in ((100_000, True), (100_001, False)):
        with server(again_and_again(OK + b"Content-Length: %d\r\n\r\n" % size, b"x" * size)) as listening:
            if fits:
                assert content(listening.address, PATIENT) == b"x" * size
            else:
                with pytest.raises(TooLargeError):
                    content(listening.address, PATIENT)


@pytest.mark.parametrize("said", [b"", OK + b"Content-Length: 10\r\n\r\nabc"], ids=["nothing", "no more"])
def test_a_server_that_falls_silent_is_left(said: bytes) -> None:
    def speak(connection: socket.socket, state: Listening) -> None:
        connection.sendall(said)
        state.over.wait(10)

    with server(speak) as listening, pytest.raises(LostError, match="the server did not respond in time"):
        content(listening.address, SOON)


def test_a_whole_answer_has_a_deadline_however_fast_it_is() -> None:
    ticks = itertools.count(0.0, 0.5)  # each look at the clock is half a second later than the one before
    bounds = replace(PATIENT, whole_s=10.0, most_bytes=1 << 40)
    with (
        server(again_and_again(OK + b"\r\n", b"x" * 100)) as listening,
        pytest.raises(LateError, match="the response was not complete after 10 s"),
    ):
        content(listening.address, bounds, lambda: next(ticks))


def test_the_time_between_reads_is_the_callers_own() -> None:
    """A slow disk does not make the server slow."""
    now = [0.0]
    with server(again_and_again(OK + b"\r\n", b"x" * 100)) as listening:
        bounds = replace(PATIENT, whole_s=1e6, silence_s=10.0)
        with ask(listening.address, {}, bounds, lambda: now[0]) as answer:
            for _ in range(50):
                now[0] += 1000.0
                assert answer.read(100)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_no_encoding_is_asked_for_and_none_undone(encoding: str) -> None:
    packed = gzip.compress(b" " * 10_000_000)
    head = OK + f"Content-Encoding: {encoding}\r\nContent-Length: {len(packed)}\r\n\r\n".encode()
    with server(says(head + packed)) as listening:
        assert content(listening.address, PATIENT) == packed
        assert b"accept-encoding: identity" in listening.requests[0].lower()


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "javascript:x"])
def test_a_redirect_leads_to_the_web_or_nowhere(location: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    with server(says(head)) as listening:
        with pytest.raises(ExchangeError, match="redirects to an address that is not http or https"):
            content(listening.address, PATIENT)
        assert len(listening.requests) == 1


def test_a_redirect_from_https_keeps_the_encryption() -> None:
    before = Request("https://x.org/a")
    for to, allowed in (("http://x.org/a", False), ("https://y.org/a", True)):
        redirects = _Redirects(1)
        if allowed:
            found = redirects.redirect_request(before, io.BytesIO(), 302, "", HTTPMessage(), to)
            assert found is not None
            assert found.full_url == to
        else:
            with pytest.raises(ExchangeError, match="redirects to an address that is not https"):
                redirects.redirect_request(before, io.BytesIO(), 302, "", HTTPMessage(), to)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["http://127.0.0.1:1/", "file:///etc/passwd"])
def test_a_redirect_is_an_answer_where_none_is_followed(status: int, location: str) -> None:
    head = f"HTTP/1.1 {status} Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    with server(says(head)) as listening, ask(listening.address, {}, replace(PATIENT, redirects=0)) as answer:
        assert (answer.status, answer.reason) == (status, "Found")


def test_a_status_of_an_error_is_an_answer_with_words() -> None:
    said = b"HTTP/1.1 503 Busy \x1b[31m\r\nRetry-After: 7\r\nContent-Length: 9000\r\n\r\n" + b"why " * 2000
    with server(says(said)) as listening, ask(listening.address, {}, PATIENT) as answer:
        assert (answer.status, answer.reason, answer.retry_after_s) == (503, "Busy [31m", 7.0)
        assert answer.words() == "why " * 1024


@pytest.mark.parametrize("stated", ["-5", "soon", "Fri, 01 Jan 2100 00:00:00 GMT", "1e9"])
def test_a_pause_that_is_not_a_number_of_seconds_is_not_taken(stated: str) -> None:
    said = f"HTTP/1.1 429 Busy\r\nRetry-After: {stated}\r\nContent-Length: 0\r\n\r\n".encode()
    with server(says(said)) as listening, ask(listening.address, {}, PATIENT) as answer:
        assert answer.retry_after_s is None


def test_every_pause_is_bounded() -> None:
    for bounds in (DOWNLOADS, QUESTIONS):
        assert max(bounds.pause_s(n, asked) for n in range(1, 50) for asked in (None, 3.0, 1e9)) == 60.0


def test_a_call_of_a_library_is_bounded() -> None:
    over = threading.Event()
    with pytest.raises(LateError, match=r"timed out: no complete response within 0\.01 s"):
        within(0.01, over.wait)
    over.set()
    assert within(60.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 // 0)
