"""Recognize web pages and Git-LFS pointers that servers send instead of a file."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LFS = b"version https://git-lfs.github.com/spec/v1"
_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL)


class RefusedError(Exception):
    """A URL does not have the file; the text is the reason, without the URL."""


@dataclass(frozen=True)
class LfsPointer:
    """Checksum and size of the file that a Git-LFS pointer stands for."""

    sha256: str
    size: int


class PointerError(RefusedError):
    """The server sent a Git-LFS pointer."""

    def __init__(self, pointer: LfsPointer) -> None:
        self.pointer = pointer
        super().__init__(f"it is a Git-LFS pointer to a file of {pointer.size:,} bytes, not the file")


def lfs_pointer(head: bytes) -> LfsPointer | None:
    """Return the Git-LFS pointer in the first bytes of a content, or None for any other content."""
    if not head.startswith(_LFS):
        return None
    oid = re.search(rb"^oid sha256:([0-9a-f]{64})$", head, re.MULTILINE)
    size = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
    return LfsPointer(oid[1].decode(), int(size[1])) if oid and size else LfsPointer("", 0)


def is_html(head: bytes, content_type: str) -> bool:
    """Return whether a content is a web page, such as an error or log-in page; no raw log is one."""
    return content_type.partition(";")[0].strip().lower() == "text/html" or _HTML.match(head) is not None
