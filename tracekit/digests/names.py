"""File names for users and accounts, whatever these are called."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["file_names"]

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}", flags=re.ASCII)
_DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d")
"""Names that Windows keeps for devices."""


def file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a file name for each name, without an ending, no two alike on any file system.

    A name of small letters, digits, '-' and '_' is its own file name. Any other has what is left of it, and 16 digits
    of its SHA-256 behind a dot, which no plain name contains.

    Examples
    --------
    >>> file_names(["alice", "Alice", "../x"])["alice"]
    'alice'
    >>> file_names(["Alice"])["Alice"]
    'alice.3bc51062973c458d'
    """
    return {name: _file_name(name) for name in names}


def _file_name(name: str) -> str:
    if _PLAIN.fullmatch(name) and not _DEVICES.fullmatch(name):
        return name
    left = re.sub(r"[^a-z0-9]+", "-", name[:80].lower()).strip("-")[:24] or "x"
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{left}.{digits}"
