"""The machine that a command runs on: its memory, and the disk where DuckDB puts what does not fit."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "bytes_of", "this_machine"]

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where a container of Linux says how much memory it may use: bytes, or 'max'."""

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True)
class Machine:
    """What a machine has; None where it does not say."""

    memory: int | None
    """Bytes of memory, those of the container where it is limited."""
    free_disk: int | None
    """Free bytes in `spill`."""
    spill: Path
    """The folder for temporary files."""
    cores: int = 1


def this_machine() -> Machine:
    """Return what this machine has."""
    spill = Path(tempfile.gettempdir())
    try:
        free: int | None = shutil.disk_usage(spill).free
    except OSError:
        free = None
    return Machine(_memory(), free, spill, os.cpu_count() or 1)


def _memory() -> int | None:
    try:
        installed: int | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        installed = None
    try:
        allowed = int(_CGROUP_LIMIT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return installed
    return allowed if installed is None else min(allowed, installed)


def bytes_of(text: str) -> int | None:
    """Return a size as DuckDB reads it, such as 2GB (2 * 10^9) or 2GiB (2 * 2^30) [bytes]; None where it is none.

    Examples
    --------
    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of("200 mb"), bytes_of("much")
    (2000000000, 1610612736, 200000000, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:ytes?)?\s*", text.lower())
    if found is None:
        return None
    number, unit, binary = found.groups()
    step = 1024 if binary else 1000
    return round(float(number) * float(step ** _UNITS[unit]))
