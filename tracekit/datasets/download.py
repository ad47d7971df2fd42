"""Download one URL into a partial file, resuming where an earlier run stopped."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tracekit.datasets.replies import PointerError, RefusedError, is_html, lfs_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPMessage
    from pathlib import Path
    from typing import IO

__all__ = ["Partial", "download"]

_CHUNK = 1 << 18
_HEAD = 1 << 10
"""Bytes that distinguish a file from a web page or a pointer."""
_TRIES = 5


class _ConnectionLostError(Exception):
    """The connection failed after `gained` more bytes; another request may resume."""

    def __init__(self, reason: str, gained: int) -> None:
        self.gained = gained
        super().__init__(reason)


class _ChangedError(Exception):
    """The download cannot be resumed: the file changed, or the server sends another range than asked for."""


class _WebRedirects(HTTPRedirectHandler):
    """Follows redirects to web addresses only, and from https to https only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        allowed = ("https",) if urlsplit(req.full_url).scheme == "https" else ("http", "https")
        if urlsplit(newurl).scheme not in allowed:
            fp.close()
            raise RefusedError(f"redirects to an address that is not {' or '.join(allowed)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Partial:
    """A partly downloaded file, and beside it what the server stated about the whole file."""

    path: Path

    @property
    def _facts(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        """Return the bytes downloaded so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def start(self, total: int | None, validator: str | None) -> None:
        """Begin anew with a file of `total` bytes whose content `validator` identifies, None where not stated."""
        self.path.unlink(missing_ok=True)
        self._facts.write_text(json.dumps({"total": total, "validator": validator}), encoding="utf-8")

    def expected(self) -> tuple[int | None, str | None]:
        """Return the size and validator of the whole file, (None, None) when nothing can be resumed."""
        try:
            facts = json.loads(self._facts.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None, None
        if not isinstance(facts, dict) or not self.size():
            return None, None
        total, validator = facts.get("total"), facts.get("validator")
        return total if isinstance(total, int) else None, validator if isinstance(validator, str) else None

    def delete(self) -> None:
        """Remove it."""
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)


def download(
    url: str,
    partial: Partial,
    *,
    size: int | None = None,
    most: int | None = None,
    checked: bool = False,
    timeout: float = 60.0,
    advance: Callable[[int], None] = lambda _: None,
) -> bool:
    """Download a URL into `partial`, resuming when the server still has the same file.

    The server has to confirm the entity tag or the date (If-Range) or, for a file whose checksum is known, the total
    size. Otherwise the download starts from zero.

    Parameters
    ----------
    size, most : int, optional
        Bytes that the file must have, or may have at most.
    checked : bool
        The caller knows a checksum and will compare it.
    timeout : float
        Longest silence of the server [s].
    advance : callable
        Receives the number of bytes downloaded; a negative number corrects the count.

    Returns
    -------
    bool
        Whether it contains bytes of an earlier request.

    Raises
    ------
    RefusedError
        The server does not give the file.
    OSError
        The file cannot be written.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise RefusedError("not an http or https address")
    resumed = False
    for tries_left in reversed(range(_TRIES)):
        try:
            return _request(url, partial, size, most, checked, timeout, advance) or resumed
        except _ChangedError:
            advance(-partial.size())
            partial.delete()
            resumed = False
        except _ConnectionLostError as error:
            if not error.gained or not tries_left:
                raise RefusedError(str(error)) from error
            resumed = True
    raise RefusedError("the server sent another part of the file than asked for")


def _request(
    url: str,
    partial: Partial,
    size: int | None,
    most: int | None,
    checked: bool,
    timeout: float,
    advance: Callable[[int], None],
) -> bool:
    """Request the missing bytes once; return whether the server resumed."""
    held, (total, validator) = partial.size(), partial.expected()
    if held and total == held and size in (None, held):
        return True
    headers = {"User-Agent": "tracekit", "Accept-Encoding": "identity"}
    if validator or (checked and total is not None):
        headers |= {"Range": f"bytes={held}-"} | ({"If-Range": validator} if validator else {})
    with _open(url, headers, timeout) as response:
        resumed = response.status == 206
        if resumed:
            total, head = _remaining(response, held if "Range" in headers else 0, total), b""
        else:
            advance(-held)
            total, head = _begin(response, partial, size, most)
        start = partial.size()
        expected = size if total is None else total
        _append(response, head, partial, most if expected is None else expected, advance)
    if expected is not None and partial.size() < expected:
        reason = f"the connection ended after {partial.size():,} of {expected:,} bytes"
        raise _ConnectionLostError(reason, partial.size() - start)
    return resumed


@contextmanager
def _connection(gained: int = 0) -> Iterator[None]:
    """Raise one error for failures of the network, not of the disk."""
    try:
        yield
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        silent = isinstance(reason, TimeoutError)
        what = "the server did not answer in time" if silent else f"no connection: {text}"
        raise _ConnectionLostError(what, gained) from error


def _open(url: str, headers: dict[str, str], timeout: float) -> HTTPResponse:
    request = Request(url, headers=headers)  # noqa: S310 -- the caller checked the scheme, the redirects theirs
    with _connection():
        try:
            response = build_opener(_WebRedirects).open(request, timeout=timeout)
        except HTTPError as error:
            error.close()
            if error.code == 416:
                raise _ChangedError from error
            raise RefusedError(f"HTTP {error.code} {error.reason}") from error
    if not isinstance(response, HTTPResponse):
        raise RefusedError("is not on the web")
    if response.status not in (200, 206):
        response.close()
        raise RefusedError(f"HTTP {response.status} {response.reason}")
    return response


def _remaining(response: HTTPResponse, held: int, total: int | None) -> int:
    """Return the size of the whole file, of which the server sends the part after `held` bytes."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if not held or not found or int(found[1]) != held or total not in (None, int(found[2])):
        raise _ChangedError
    return int(found[2])


def _begin(response: HTTPResponse, partial: Partial, size: int | None, most: int | None) -> tuple[int | None, bytes]:
    """Return the size of the file and its first bytes, after checking that they are not a web page or a pointer."""
    length = response.headers.get("Content-Length", "")
    total = int(length) if length.isdecimal() else None
    head = b""
    with _connection():
        while len(head) < _HEAD and (more := response.read1(_HEAD - len(head))):
            head += more
    pointer = lfs_pointer(head)
    if pointer is not None:
        raise PointerError(pointer)
    if is_html(head, response.headers.get("Content-Type", "")):
        raise RefusedError("it is a web page, not the file")
    if total is not None and size is not None and total != size:
        raise RefusedError(f"it has {total:,} bytes there, not {size:,}")
    if total is not None and most is not None and total > most:
        raise RefusedError(f"it has {total:,} bytes there, more than the {most:,} that are missing")
    tag = response.headers.get("ETag")
    # If-Range takes a strong entity tag or a date (RFC 9110, 13.1.5).
    partial.start(total, tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified"))
    return total, head


def _append(
    response: HTTPResponse, chunk: bytes, partial: Partial, limit: int | None, advance: Callable[[int], None]
) -> None:
    """Append `chunk` and the rest of the response, at most `limit` bytes in all."""
    start = partial.size()
    with partial.path.open("ab") as file:
        while chunk or (chunk := _read(response, file.tell() - start)):
            file.write(chunk)
            file.flush()  # a killed run leaves every byte that was received
            advance(len(chunk))
            chunk = b""
            if limit is not None and file.tell() > limit:
                break
    if limit is not None and partial.size() > limit:
        if start:
            raise _ChangedError
        advance(-partial.size())
        partial.delete()
        raise RefusedError(f"the server sent more than {limit:,} bytes")


def _read(response: HTTPResponse, gained: int) -> bytes:
    with _connection(gained):
        return response.read1(_CHUNK)
