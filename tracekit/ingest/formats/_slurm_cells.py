"""Parsers for the cells of `sacct`: durations, counts, memory, measured use, states and arrays.

Each function takes the text of one cell and raises ValueError, with the reason, when it cannot be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.formats._slurm_status import SLURM_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ArrayTasks",
    "JobState",
    "MemoryRequest",
    "Usage",
    "array_tasks",
    "count",
    "duration_s",
    "entries",
    "limit_s",
    "memory",
    "resident_gib",
    "state",
    "usage",
    "used_gib",
]

_NO_DURATION = frozenset({"UNLIMITED", "Partition_Limit", "INVALID", "NOT_SET"})
_DURATION = re.compile(
    r"(?:(?P<days>\d{1,7})-(?P<h>\d{1,9})(?::(?P<m>\d{1,9})(?::(?P<s>\d{1,9}(?:\.\d{1,9})?))?)?"
    r"|(?:(?P<hours>\d{1,9}):)?(?P<minutes>\d{1,9}):(?P<seconds>\d{1,9}(?:\.\d{1,9})?))",
    re.ASCII,
)
_MOST_PCT = float((1 << 32) - 2)
_MOST_GIB = float(1 << 30)
"""An exbibyte."""
_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGTPE]?)[Bb]?", re.ASCII)
# Slurm divides by 1024 for counts too: 1.5K is 1,536.
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_GIB = 1 << 30
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


class MemoryRequest(NamedTuple):
    """An amount of memory."""

    gib: float
    per: str
    """'c' for each CPU, 'n' for each node, '' for the job."""


class Usage(NamedTuple):
    """What a TRES list of measured use states."""

    gpu_util_pct: float | None
    gpu_memory_gib: float | None
    memory_gib: float | None
    unread: float
    """Number of these that are stated and no measure."""


class ArrayTasks(NamedTuple):
    """The tasks of an array that wait."""

    size: int | None
    """How many, None when the list was cut."""
    ranges: list[list[int]] | None
    """First, last and step of each of their ranges, None when the list was cut."""


class JobState(NamedTuple):
    """A state word and the common status that it stands for."""

    word: str
    status: str


def duration_s(text: str) -> float | None:
    """Return a duration like `1-02:03:04`, `02:03:04` or `03:04.5` [s]; None for a word that states none."""
    if text in _NO_DURATION:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("is not a duration like 1-02:03:04")
    days, *with_days, hours, minutes, seconds = match.groups()
    h, m, s = with_days if days is not None else (hours, minutes, seconds)
    total = int(days or 0) * 86_400 + int(h or 0) * 3600 + int(m or 0) * 60 + float(s or 0)
    if total > 1e10:
        raise ValueError("is a duration out of range")
    return total


def limit_s(minutes: str) -> float | None:
    """Return a limit that is given in minutes [s]; None for a word that states none."""
    if minutes in _NO_DURATION:
        return None
    if not re.fullmatch(r"\d{1,9}", minutes, re.ASCII):
        raise ValueError("is not a whole number of minutes")
    return int(minutes) * 60.0


def count(text: str) -> float:
    """Return a count like `4` or `1.5K`."""
    return _scaled(text, "is not a count")


def memory(text: str) -> MemoryRequest:
    """Return a request like `4000Mc`, `4Gn` or `256G`; a bare number is in MiB."""
    per = text[-1:] if text[-1:] in {"c", "n"} else ""
    return MemoryRequest(_scaled(text.removesuffix(per), "is not an amount of memory", "M") / _GIB, per)


def used_gib(text: str) -> float:
    """Return measured memory like `1234K` [GiB]; a bare number is in bytes."""
    return _scaled(text, "is not an amount of memory") / _GIB


def _scaled(text: str, reason: str, unit: str = "") -> float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(reason)
    return float(match[1]) * _SCALE[match[2] or unit]


def usage(text: str) -> Usage:
    """Return the use that a list like `gres/gpumem=1G,gres/gpuutil=87,mem=2G` states; what is no measure is unknown."""
    listed = entries(text)
    use = _measure(listed.get("gres/gpuutil"), count, _MOST_PCT)
    gpu_memory, memory_gib = (_measure(listed.get(name), used_gib, _MOST_GIB) for name in ("gres/gpumem", "mem"))
    stated = sum(name in listed for name in ("gres/gpuutil", "gres/gpumem", "mem"))
    read = sum(value is not None for value in (use, gpu_memory, memory_gib))
    return Usage(use, gpu_memory, memory_gib, float(stated - read))


def resident_gib(text: str) -> float | None:
    """Return the memory of a task [GiB]; None where it is no measure."""
    return _measure(text, used_gib, _MOST_GIB)


def _measure(text: str | None, parse: Callable[[str], float], most: float) -> float | None:
    """Return a measure below `most`; slurmd writes 2^64 - 1 (`16E`) and such for what it cannot measure."""
    if text is None:
        return None
    try:
        value = parse(text)
    except ValueError:
        return None
    return value if value < most else None


def entries(text: str) -> dict[str, str]:
    """Return the amounts of a TRES list by name, as text: 'cpu=4,mem=2G' gives {'cpu': '4', 'mem': '2G'}.

    Raises
    ------
    ValueError
        A part of the list is not NAME=AMOUNT.
    """
    found = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or not name or not value:
            raise ValueError("is not a list like cpu=4,gres/gpu=1")
        found[name] = value
    return found


def state(text: str) -> JobState:
    """Return the state in a cell like `CANCELLED by 1000`; one cut with a plus is completed when it is clear."""
    word = text.split(" ", 1)[0]
    if word.endswith("+"):
        word = word[:-1]
        fits = [known for known in SLURM_STATUS if known.startswith(word)]
        if word not in SLURM_STATUS and len(fits) == 1:
            word = fits[0]
    return JobState(word, SLURM_STATUS.get(word, "unknown"))


def array_tasks(text: str) -> ArrayTasks:
    """Return the tasks in `[8-20%4]`, `[1,3,5-9:2]`."""
    found: list[list[int]] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            if "..." in part:
                return ArrayTasks(None, None)
            raise ValueError("is not a list of array tasks")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError("is not a list of array tasks")
        found.append([first, last, step])
    return ArrayTasks(sum((last - first) // step + 1 for first, last, step in found), found)
