"""Exchange data with servers, with limits on time, rate, bytes, attempts and redirects.

Only `ask` connects to web servers. Client libraries for object stores and Spark are called inside `within`, which
limits their time. A server may be slow, broken or hostile: it may send a byte every two seconds, an endless response,
endless headers, or circular redirects. `ask` counts every byte that arrives, including headers, redirects and chunk
framing, and ends the exchange at a limit.

tracekit asks for content without encoding and decodes none, so a small response cannot unpack to a large one.
"""

from __future__ import annotations

import io
import threading
import time
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    BaseHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from tracekit.text import duration, size

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from http.client import HTTPMessage
    from types import TracebackType
    from typing import IO


T = TypeVar("T")

_MOST_HEAD = 1 << 20
"""Maximum size of a response's headers, including the headers of redirects [bytes]."""
_BUFFER = 1 << 16
_WORDS = 4096
"""Maximum number of bytes read from a server's error message."""


@dataclass(frozen=True)
class Bounds:
    """Limits on how long to wait for a server, how many bytes it may send, and how many requests to make."""

    first_s: float
    """Longest wait for a connection, and for the first byte of a response [s]."""
    silence_s: float
    """Longest silence after the first byte, and the time over which the rate is measured [s]."""
    whole_s: float
    """Longest time for one response, including redirects [s]."""
    most_bytes: int
    """Maximum bytes in the content of one response."""
    redirects: int
    """Maximum redirects for one response."""
    attempts: int = 5
    """Maximum requests for the same content in one run."""
    least_rate: float = 1024.0
    """Lowest rate accepted over `silence_s` [B/s]. A server that sends less is too slow."""
    longest_pause_s: float = 60.0
    """Longest pause between two attempts [s], even if the server requests a longer one."""

    def pause_s(self, failures: int, asked: float | None = None) -> float:
        """Return the pause after a number of failed attempts [s], given the pause `asked` for by the server.

        Examples
        --------
        >>> QUESTIONS.pause_s(1), QUESTIONS.pause_s(3), QUESTIONS.pause_s(1, 7.0), QUESTIONS.pause_s(1, 1e5)
        (1.0, 4.0, 7.0, 60.0)
        """
        return min(2.0 ** (failures - 1) if asked is None else asked, self.longest_pause_s)


DOWNLOADS = Bounds(first_s=60.0, silence_s=60.0, whole_s=86_400.0, most_bytes=64 << 30, redirects=10)
"""Limits for files of public traces; the largest known has 1 GB."""

QUESTIONS = Bounds(first_s=130.0, silence_s=30.0, whole_s=3600.0, most_bytes=2 << 30, redirects=0)
"""Limits for queries to Prometheus, which gives up after two minutes. Its own limit of 50 million samples is about 1.4
GB. Redirects are not followed, because the token is for one host only."""


class ExchangeError(Exception):
    """A failed exchange; the message is the reason, without the address."""


class LostError(ExchangeError):
    """A connection that failed, broke off, went silent or became too slow. Another attempt may succeed."""


class LateError(ExchangeError):
    """A response that was not complete in time."""


class TooLargeError(ExchangeError):
    """A response with more bytes than allowed."""


class Answer:
    """A response whose content has not been read yet. As a context manager, it closes the connection.

    Attributes
    ----------
    status : int
        The HTTP status, which may be an error.
    reason : str
        The status text, as one printable line.
    headers : HTTPMessage
        The headers.
    """

    def __init__(self, response: HTTPResponse, most_bytes: int) -> None:
        self._response, self._left, self._most = response, most_bytes, most_bytes
        self.status: int = response.status
        self.reason = " ".join("".join(c if c.isprintable() else " " for c in response.reason).split())[:100]
        self.headers: HTTPMessage = response.headers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()

    @property
    def length(self) -> int | None:
        """Content length reported by the server [bytes], or None if not reported."""
        stated = self.headers.get("Content-Length", "")
        return int(stated) if stated.isdecimal() and len(stated) < 20 else None

    @property
    def retry_after_s(self) -> float | None:
        """Wait requested by the server [s], or None if not given in seconds."""
        stated = self.headers.get("Retry-After", "")
        return float(stated) if stated.isdecimal() else None

    def read(self, most: int) -> bytes:
        """Return the next bytes as they arrive, at most `most`, or no bytes at the end.

        Raises
        ------
        ExchangeError
            The connection broke off, or a limit is reached.
        """
        try:
            found = self._response.read1(most)
        except (OSError, HTTPException, ValueError) as error:
            raise LostError(f"the connection was lost ({type(error).__name__})") from error
        self._left -= len(found)
        if self._left < 0:
            raise TooLargeError(f"the response has more than {size(self._most)}")
        return found

    def words(self) -> str:
        """Return the start of the content, such as the server's error message."""
        found = b""
        try:
            while len(found) < _WORDS and (more := self.read(_WORDS - len(found))):
                found += more
        except ExchangeError:
            pass  # the status is enough
        return found.decode("utf-8", "replace")


def ask(url: str, headers: Mapping[str, str], bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> Answer:
    """Request the content of an address from a web server.

    Redirects are followed only to web addresses, and from https only to https. A response with an error status is
    returned like any other.

    Parameters
    ----------
    url : str
        An http or https address.
    headers : mapping
        Headers to send in addition to a user agent and the request for content without encoding.
    bounds : Bounds
        Limits for the whole response, including the time in which the caller reads its content.
    clock : callable
        Returns the time [s].

    Raises
    ------
    LostError
        The server cannot be reached, or it falls silent.
    ExchangeError
        A limit is reached, or a redirect leads to a forbidden address.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ExchangeError("not an http or https address")
    meter = _Meter(bounds, clock)
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        _Http(meter),
        _Https(meter),
        _EveryStatus(),
        _Redirects(bounds.redirects),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    sent = {"User-Agent": "tracekit", "Accept-Encoding": "identity", **headers}
    try:
        response: Any = opener.open(Request(url, headers=sent), timeout=bounds.first_s)  # noqa: S310 -- checked above
    except HTTPError as error:
        error.close()  # only the standard library's redirect handler raises it, for an address such as file: or data:
        raise ExchangeError("redirects to an address that is not http or https") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise LostError("the server did not respond in time") from error
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise LostError(f"no connection: {text}") from error
    if not isinstance(response, HTTPResponse):
        raise ExchangeError("has no host name")
    return Answer(response, bounds.most_bytes)


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return the result of `work`, a call to a library whose exchanges we cannot limit in another way.

    A call that does not return in time is abandoned. Its thread continues, and Python does not wait for it at exit.

    Raises
    ------
    LateError
        The result is not ready in time.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # noqa: BLE001 -- raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="tracekit-exchange", daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not done:
        raise LateError(f"timed out: no complete response within {duration(seconds)}")
    return done[0]


class _Meter:
    """Counts the bytes and the time of one exchange, and raises an error at a limit."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._bounds, self._clock = bounds, clock
        self._until = clock() + bounds.whole_s
        self._left = _MOST_HEAD
        self._first = self._in_head = True
        self._window_s, self._window_bytes = 0.0, 0

    def next_answer(self) -> None:
        """Begin the response to the next request, which may be a redirect or a proxy's response."""
        self._first = True

    def content(self) -> None:
        """Begin the content of a response, in which each chunk may have some bytes of framing."""
        self._in_head = False
        self._left = 2 * self._bounds.most_bytes + _MOST_HEAD

    def limit_s(self) -> float:
        """Return the time limit of the next read [s]."""
        left = self._until - self._clock()
        if left <= 0:
            raise LateError(f"the response was not complete after {duration(self._bounds.whole_s)}")
        return min(left, self._bounds.first_s if self._first else self._bounds.silence_s)

    def took(self, count: int, seconds: float) -> None:
        """Count the bytes of a read and its time [s]. The time between reads belongs to the caller."""
        self._left -= count
        if self._left < 0:
            raise TooLargeError(
                f"the headers have more than {size(_MOST_HEAD)}"
                if self._in_head
                else f"the response has more than {size(self._bounds.most_bytes)}"
            )
        if self._first:
            self._first = not count
            return
        self._window_s += seconds
        self._window_bytes += count
        if self._window_s >= self._bounds.silence_s:
            if self._window_bytes < self._bounds.least_rate * self._window_s:
                raise LostError(
                    f"the server sends less than {size(self._bounds.least_rate)} a second, {size(self._window_bytes)} "
                    f"in {duration(self._window_s)}"
                )
            self._window_s, self._window_bytes = 0.0, 0

    def seconds(self) -> float:
        """Return the time [s]."""
        return self._clock()


class _Metered(io.RawIOBase):
    """A connection's bytes, counted as they arrive."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, meter: _Meter) -> None:
        super().__init__()
        self._raw, self._sock, self._meter = raw, sock, meter

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # a buffered reader passes no other kind
        """Fill `buffer` with the bytes that have arrived, waiting for the first no longer than the limits allow."""
        self._sock.settimeout(self._meter.limit_s())
        begun = self._meter.seconds()
        try:
            count: int = self._raw.readinto(buffer) or 0
        except TimeoutError as error:
            self._meter.limit_s()
            raise LostError("the server did not respond in time") from error
        self._meter.took(count, self._meter.seconds() - begun)
        return count

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()
        super().close()


class _Counted:
    """The socket from which a response reads. The bytes of the file that it opens are counted."""

    def __init__(self, sock: socket.socket, meter: _Meter) -> None:
        self._sock, self._meter = sock, meter

    def makefile(self, mode: Literal["rb"]) -> io.BufferedReader:
        """Return a reader of everything that arrives: a response's status, headers, chunk sizes and content."""
        raw = self._sock.makefile(mode, buffering=0)
        return io.BufferedReader(_Metered(raw, self._sock, self._meter), _BUFFER)


class _Connection:
    """Base of both kinds of connections, which counts each response from its first byte."""

    def __init__(self, meter: _Meter, host: str, **named: Any) -> None:
        super().__init__(host, **named)  # type: ignore[call-arg]  # the class of the connection takes it
        self._meter = meter

    def response_class(self, sock: socket.socket, *more: Any, **named: Any) -> HTTPResponse:
        """Return an unread response, possibly from a proxy."""
        self._meter.next_answer()
        return HTTPResponse(_Counted(sock, self._meter), *more, **named)  # type: ignore[arg-type]  # it reads the file

    def getresponse(self) -> HTTPResponse:
        """Read the status and the headers."""
        found: HTTPResponse = super().getresponse()  # type: ignore[misc]  # as above
        self._meter.content()
        return found


class _HttpConnection(_Connection, HTTPConnection):  # type: ignore[misc]  # response_class is only called
    pass


class _HttpsConnection(_Connection, HTTPSConnection):  # type: ignore[misc]  # the same
    pass


class _Http(HTTPHandler):
    def __init__(self, meter: _Meter) -> None:
        super().__init__()
        self._meter = meter

    def http_open(self, req: Request) -> HTTPResponse:
        """Connect without encryption."""
        return self.do_open(partial(_HttpConnection, self._meter), req)


class _Https(HTTPSHandler):
    def __init__(self, meter: _Meter) -> None:
        super().__init__()
        self._meter = meter

    def https_open(self, req: Request) -> HTTPResponse:
        """Connect with encryption."""
        return self.do_open(partial(_HttpsConnection, self._meter), req)


class _EveryStatus(BaseHandler):
    """Returns a response with any status instead of raising an error."""

    def http_error_default(self, req: Request, fp: IO[bytes], *_: object) -> IO[bytes]:  # noqa: ARG002 -- required by the caller
        """Return the response."""
        return fp


class _Redirects(HTTPRedirectHandler):
    """Follows up to a number of redirects to web addresses, and from https only to https."""

    max_repeats = max_redirections = 1000  # `_followed` counts them all

    def __init__(self, most: int) -> None:
        self._most, self._followed = most, 0

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        fp.close()  # the standard library would read its content, which may be endless
        allowed = ("https",) if urlsplit(req.full_url).scheme == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            raise ExchangeError(f"redirects to an address that is not {' or '.join(allowed)}")
        self._followed += 1
        if self._followed > self._most:
            raise ExchangeError(f"redirects more than {self._most} times")
        return super().redirect_request(req, fp, code, msg, headers, newurl)

    def http_error_302(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> IO[bytes] | None:
        """Follow a redirect. If redirects are not followed, return it as the response, wherever it leads."""
        return super().http_error_302(req, fp, code, msg, headers) if self._most else None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
