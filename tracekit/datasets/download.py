"""Download one URL into a partial file, resuming where an earlier run stopped."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tracekit.exchange import DOWNLOADS, ExchangeError, LostError, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.exchange import Answer, Bounds


_CHUNK = 1 << 18
_HEAD = 1 << 10
"""Number of bytes needed to distinguish a file from a web page or a pointer."""
_FRESH_STARTS = 1
"""Maximum number of restarts from zero after a server resumed with different bytes."""
_LFS = b"version https://git-lfs.github.com/spec/v1"
_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)


class RefusedError(Exception):
    """A URL without the file. The message is the reason, without the URL."""


@dataclass(frozen=True)
class LfsPointer:
    """Checksum and size of the file that a Git-LFS pointer refers to."""

    sha256: str
    size: int


class PointerError(RefusedError):
    """A Git-LFS pointer that the server sent instead of the file."""

    def __init__(self, pointer: LfsPointer) -> None:
        self.pointer = pointer
        super().__init__(f"it is a Git-LFS pointer to a file of {pointer.size:,} bytes, not the file")


class _ConnectionLostError(Exception):
    """A connection that failed after `gained` more bytes. The next request may resume the download."""

    def __init__(self, reason: object, gained: int) -> None:
        self.gained = gained
        super().__init__(str(reason))


class _ChangedError(Exception):
    """A download that cannot resume, because the file changed or the server sent the wrong range."""


@dataclass(frozen=True)
class Partial:
    """A partly downloaded file, with the server's information about the whole file next to it."""

    path: Path

    @property
    def _facts(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        """Return the number of bytes downloaded so far."""
        return self.path.stat().st_size if self.path.exists() else 0

    def start(self, total: int | None, validator: str | None) -> None:
        """Start over with a file of `total` bytes whose content `validator` identifies. None means unknown."""
        self.path.unlink(missing_ok=True)
        self._facts.write_text(json.dumps({"total": total, "validator": validator}), encoding="utf-8")

    def expected(self) -> tuple[int | None, str | None]:
        """Return the whole file's size and validator, or (None, None) if nothing can be resumed."""
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
    """Download a URL into `partial`, resuming if the server still has the same file.

    The server must confirm the entity tag or the date (If-Range) or, for a file with a known checksum, the total size.
    If it confirms neither, the download restarts from zero, but only once. The limits (`tracekit.exchange.DOWNLOADS`)
    allow five requests, and none after one that returned nothing.

    Parameters
    ----------
    size, most : int, optional
        Exact and maximum number of bytes of the file.
    checked : bool
        Whether the caller knows a checksum and will check it.
    timeout : float
        Longest silence of the server [s]. A server that sends less than 1 KiB per second for this long is too slow.
    advance : callable
        Receives the number of bytes downloaded. A negative number corrects the count.

    Returns
    -------
    bool
        Whether the file contains bytes from an earlier request.

    Raises
    ------
    RefusedError
        The server does not provide the file.
    OSError
        The file cannot be written.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise RefusedError("not an http or https address")
    known = size if size is not None else most
    most_bytes = DOWNLOADS.most_bytes if known is None else known + _CHUNK  # `_append` reports the first excess byte
    bounds = replace(DOWNLOADS, first_s=timeout, silence_s=timeout, most_bytes=most_bytes)
    resumed, fresh_starts = False, 0
    for tries_left in reversed(range(bounds.attempts)):
        try:
            return _request(url, partial, size, most, checked, bounds, advance) or resumed
        except _ChangedError:
            advance(-partial.size())
            partial.delete()
            fresh_starts, resumed = fresh_starts + 1, False
            if fresh_starts > _FRESH_STARTS:
                break
        except _ConnectionLostError as error:
            if not error.gained or not tries_left:
                raise RefusedError(str(error)) from error
            resumed = True
    raise RefusedError("the server sent the wrong part of the file")


def _request(
    url: str,
    partial: Partial,
    size: int | None,
    most: int | None,
    checked: bool,
    bounds: Bounds,
    advance: Callable[[int], None],
) -> bool:
    """Request the missing bytes once, and return whether the server resumed."""
    held, (total, validator) = partial.size(), partial.expected()
    if held and total == held and size in (None, held):
        return True
    headers = {}
    if validator or (checked and total is not None):
        headers = {"Range": f"bytes={held}-"} | ({"If-Range": validator} if validator else {})
    with _open(url, headers, bounds) as response:
        resumed = response.status == 206
        if resumed:
            total, head = _remaining(response, held if "Range" in headers else 0, total, validator), b""
        else:
            advance(-held)
            total, head = _begin(response, partial, size, most)
        start = partial.size()
        expected = size if total is None else total
        limit = most if expected is None else expected
        _append(response, head, partial, bounds.most_bytes if limit is None else limit, advance)
    if expected is not None and partial.size() < expected:
        reason = f"the connection ended after {partial.size():,} of {expected:,} bytes"
        raise _ConnectionLostError(reason, partial.size() - start)
    return resumed


@contextmanager
def _connection(gained: int = 0) -> Iterator[None]:
    """Raise the same type of error for all network failures, but not for disk failures."""
    try:
        yield
    except LostError as error:
        raise _ConnectionLostError(error, gained) from error
    except ExchangeError as error:
        raise RefusedError(str(error)) from error


def _open(url: str, headers: dict[str, str], bounds: Bounds) -> Answer:
    with _connection():
        answer = ask(url, headers, bounds)
    if answer.status not in (200, 206):
        with answer:
            if answer.status == 416:
                raise _ChangedError
            raise RefusedError(f"HTTP {answer.status} {answer.reason}")
    return answer


def _remaining(response: Answer, held: int, total: int | None, validator: str | None) -> int:
    """Return the size of the whole file when the server sends the bytes from position `held`.

    A server may ignore If-Range, so check that the part belongs to the file that `validator` identifies.
    """
    found = re.fullmatch(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", response.headers.get("Content-Range", ""))
    if not held or not found or int(found[1]) != held or total not in (None, int(found[2])):
        raise _ChangedError
    if validator is not None and _validator(response) not in (None, validator):
        raise _ChangedError
    return int(found[2])


def _validator(response: Answer) -> str | None:
    """Return the content's identifier for If-Range, a strong entity tag or a date (RFC 9110, 13.1.5)."""
    tag: str | None = response.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified")


def _begin(response: Answer, partial: Partial, size: int | None, most: int | None) -> tuple[int | None, bytes]:
    """Return the file's size and first bytes after checking that they are not a web page or a pointer."""
    total, head = response.length, b""
    with _connection():
        while len(head) < _HEAD and (more := response.read(_HEAD - len(head))):
            head += more
    pointer = _lfs_pointer(head)
    if pointer is not None:
        raise PointerError(pointer)
    if _is_html(head, response.headers.get("Content-Type", "")):
        raise RefusedError("the server sent a web page instead of the file")
    if total is not None and size is not None and total != size:
        raise RefusedError(f"it has {total:,} bytes there, not {size:,}")
    if total is not None and most is not None and total > most:
        raise RefusedError(f"it has {total:,} bytes there, more than the {most:,} bytes that are missing")
    partial.start(total, _validator(response))
    return total, head


def _append(response: Answer, chunk: bytes, partial: Partial, limit: int, advance: Callable[[int], None]) -> None:
    """Append `chunk` and the rest of the response, up to `limit` bytes in total."""
    start = partial.size()
    with partial.path.open("ab") as file:
        while chunk or (chunk := _read(response, file.tell() - start)):
            file.write(chunk)
            file.flush()  # a killed run keeps every byte it received
            advance(len(chunk))
            chunk = b""
            if file.tell() > limit:
                break
    if partial.size() > limit:
        if start:
            raise _ChangedError
        advance(-partial.size())
        partial.delete()
        raise RefusedError(f"the server sent more than {limit:,} bytes")


def _read(response: Answer, gained: int) -> bytes:
    with _connection(gained):
        return response.read(_CHUNK)


# Recognize web pages and Git-LFS pointers that servers send instead of a file.


def _lfs_pointer(head: bytes) -> LfsPointer | None:
    """Return the Git-LFS pointer in the first bytes of the content, or None for any other content."""
    if not head.startswith(_LFS):
        return None
    oid = re.search(rb"^oid sha256:([0-9a-f]{64})$", head, re.MULTILINE)
    size = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
    return LfsPointer(oid[1].decode(), int(size[1])) if oid and size else LfsPointer("", 0)


def _is_html(head: bytes, content_type: str) -> bool:
    """Return whether the content is a web page, such as an error or login page. No raw log is."""
    return content_type.partition(";")[0].strip().lower() == "text/html" or _HTML.match(head) is not None
