"""Bring the content of one URL to disk, going on where an earlier run stopped."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from tracekit.datasets.replies import LfsPointer, RefusedError, is_html, lfs_pointer

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPMessage
    from pathlib import Path
    from typing import IO

__all__ = ["Part", "PointerError", "transfer"]

_CHUNK = 1 << 18
_HEAD = 1 << 10
_TRIES = 5


class PointerError(RefusedError):
    """The server sent a Git-LFS pointer."""

    def __init__(self, pointer: LfsPointer) -> None:
        self.pointer = pointer
        super().__init__(f"a Git-LFS pointer to a file of {pointer.size:,} bytes came, not the file itself")


class _BrokenError(Exception):
    """The connection failed after it brought `gained` more bytes."""

    def __init__(self, reason: str, gained: int = 0) -> None:
        self.gained = gained
        super().__init__(reason)


class _WebRedirects(HTTPRedirectHandler):
    """Follows a server to another address of the web only, and from https to https only; asks nobody else first."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        allowed = ("https",) if urlsplit(req.full_url).scheme == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            fp.close()
            raise RefusedError(f"leads to an address that is not {' or '.join(allowed)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _web() -> OpenerDirector:
    """Return what opens addresses of http and https, and knows no other scheme."""
    found = OpenerDirector()
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        HTTPDefaultErrorHandler(),
        _WebRedirects(),
        HTTPErrorProcessor(),
    ):
        found.add_handler(handler)
    return found


class _ChangedError(Exception):
    """What was asked to go on cannot: the file changed, or the server counts otherwise."""


@dataclass(frozen=True)
class Part:
    """The bytes that came of one URL so far, and beside them what the server said of the whole."""

    path: Path

    @property
    def facts(self) -> Path:
        """The file beside it: total size, entity tag and date of the whole."""
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        """Return the bytes that came so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def remember(self, facts: dict[str, str | int | None]) -> None:
        """Keep what the server says of the whole."""
        self.facts.write_text(json.dumps(facts), encoding="utf-8")

    def recall(self) -> dict[str, str | int | None]:
        """Return what the server said of the whole, {} when nothing can be gone on with."""
        try:
            facts = json.loads(self.facts.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return facts if isinstance(facts, dict) and self.size() else {}

    def drop(self) -> None:
        """Forget what came."""
        self.path.unlink(missing_ok=True)
        self.facts.unlink(missing_ok=True)


def transfer(
    url: str,
    part: Part,
    *,
    size: int | None = None,
    most: int | None = None,
    checked: bool = False,
    timeout: float = 60.0,
    advance: Callable[[int], None] = lambda _: None,
) -> bool:
    """Bring the content of a URL into `part`.

    What an earlier run left there is gone on with when the server still has the same file: it confirms the entity tag
    or the date (If-Range), or, for a file whose checksum is known, the total size. Otherwise it starts from zero.

    Parameters
    ----------
    size : int, optional
        Bytes that the content must have.
    most : int, optional
        Bytes that the content may have at most.
    checked : bool
        The caller knows a checksum and will compare it.
    timeout : float
        Longest silence of the server [s].
    advance : callable
        Receives the number of bytes that came; a negative one takes back what was counted.

    Returns
    -------
    bool
        Whether an earlier run's bytes are in it.

    Raises
    ------
    RefusedError
        The server does not give the file.
    OSError
        The disk does not take it.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise RefusedError("not an http or https address")
    resumed = False
    for tries_left in reversed(range(_TRIES)):
        try:
            resumed = _receive(url, part, size, most, checked, timeout, advance) or resumed
        except _ChangedError:
            advance(-part.size())
            part.drop()
            resumed = False
        except _BrokenError as error:
            if not error.gained or not tries_left:
                raise RefusedError(str(error)) from error
        else:
            return resumed
    raise RefusedError("the server gave another part of the file than asked for")


def _receive(
    url: str,
    part: Part,
    size: int | None,
    most: int | None,
    checked: bool,
    timeout: float,
    advance: Callable[[int], None],
) -> bool:
    facts, held = part.recall(), part.size()
    if facts and facts.get("total") == held and size in (None, held):
        return True
    headers = {"User-Agent": "tracekit", "Accept-Encoding": "identity"}
    resumable = bool(facts) and (bool(facts.get("validator")) or (checked and facts.get("total") is not None))
    if resumable:
        headers["Range"] = f"bytes={held}-"
        if facts.get("validator"):
            headers["If-Range"] = str(facts["validator"])
    with _open(url, headers, timeout) as response:
        start, total = _extent(response, held if resumable else 0, facts)
        if start == 0:
            advance(-held)
        head = _first(response)
        if start == 0:
            _refuse_other(head, response, total, size, most)
            part.drop()
            part.remember({"total": total, "validator": _validator(response)})
        _store(response, head, part, start, total if total is not None else size, most, advance)
    return start > 0


def _open(url: str, headers: dict[str, str], timeout: float) -> HTTPResponse:
    try:
        response = _web().open(Request(url, headers=headers), timeout=timeout)  # noqa: S310 -- the caller checked the scheme
    except HTTPError as error:
        error.close()
        if error.code == 416:
            raise _ChangedError from error
        raise RefusedError(f"HTTP {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise _BrokenError(_why(error)) from error
    if not isinstance(response, HTTPResponse):
        raise RefusedError("leads to an address that is not of the web")
    return response


def _extent(response: HTTPResponse, asked: int, facts: dict[str, str | int | None]) -> tuple[int, int | None]:
    """Return from which byte on the server sends, and the size of the whole."""
    if response.status == 206:
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        if not match or int(match[1]) != asked or facts.get("total") not in (None, int(match[2])):
            raise _ChangedError
        return asked, int(match[2])
    if response.status != 200:
        raise RefusedError(f"HTTP {response.status} {response.reason}")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _refuse_other(head: bytes, response: HTTPResponse, total: int | None, size: int | None, most: int | None) -> None:
    pointer = lfs_pointer(head)
    if pointer is not None:
        raise PointerError(pointer)
    if is_html(head, response.headers.get("Content-Type", "")):
        raise RefusedError("a web page came, not the file")
    if total is not None and size is not None and total != size:
        raise RefusedError(f"it has {total:,} bytes there, not {size:,}")
    if total is not None and most is not None and total > most:
        raise RefusedError(f"it has {total:,} bytes there, more than the {most:,} that are left")


def _store(
    response: HTTPResponse,
    head: bytes,
    part: Part,
    start: int,
    total: int | None,
    most: int | None,
    advance: Callable[[int], None],
) -> None:
    got, limit = start, total if total is not None else most
    # Unbuffered: a killed run leaves every byte that came.
    with part.path.open("ab", buffering=0) as file:
        chunk = head
        while chunk:
            unwritten = memoryview(chunk)
            while unwritten:
                unwritten = unwritten[file.write(unwritten) :]
            got += len(chunk)
            advance(len(chunk))
            if limit is not None and got > limit:
                break
            chunk = _read(response, _CHUNK, got - start)
    if limit is not None and got > limit:
        if start:
            raise _ChangedError
        advance(-got)
        part.drop()
        raise RefusedError(f"more than {limit:,} bytes came")
    if total is not None and got < total:
        raise _BrokenError(f"the connection ended after {got:,} of {total:,} bytes", got - start)


def _first(response: HTTPResponse) -> bytes:
    """Return enough of the content to tell what it is, however slowly it comes."""
    head = b""
    while len(head) < _HEAD and (more := _read(response, _HEAD - len(head), 0)):
        head += more
    return head


def _read(response: HTTPResponse, most: int, gained: int) -> bytes:
    try:
        return response.read1(most)
    except (OSError, HTTPException) as error:
        raise _BrokenError(_why(error), gained) from error


def _validator(response: HTTPResponse) -> str | None:
    """Return what If-Range may hold: a strong entity tag, else the date of the last change."""
    tag = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "the server did not answer in time"
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return f"no connection: {text}"
