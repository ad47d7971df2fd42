"""Parsers for the cells of `sacct`: durations, counts, memory, TRES and GRES lists, states and arrays.

Each function takes the text of one cell and raises ValueError, with the reason, when it cannot be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.formats._slurm_status import SLURM_STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Gres",
    "JobState",
    "MemoryRequest",
    "Request",
    "Tres",
    "Usage",
    "array_size",
    "count",
    "duration_s",
    "gres",
    "limit_s",
    "memory",
    "request",
    "resident_gib",
    "state",
    "tres",
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
# Slurm numbers a plug-in by the letters of its name, eight bits each: g + (p << 8) + (u << 16).
_GPU_NUMBER = str(sum(ord(letter) << 8 * place for place, letter in enumerate("gpu")))
_PER_NODE = re.compile(r"(?:^|\s)--(gres|gpus-per-node)(?:=|\s+)(\S{1,400})", re.ASCII)
_IN_ALL = re.compile(r"(?:^|\s)(?:--gpus(?:=|\s+)|-G\s*)(\S{1,400})", re.ASCII)
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


class Tres(NamedTuple):
    """What a TRES list states for a whole job."""

    cpus: float | None
    memory_gib: float | None
    nodes: float | None
    gpus: float
    """`gres/gpu` if listed, else the sum of its typed entries; both describe the same GPUs."""
    typed_gpus: float | None
    """Sum of the typed entries, None without any."""
    model: str | None
    shards: float
    mps: float


class Gres(NamedTuple):
    """What a GRES list states, for each node or for the job, as its column does."""

    gpus: float
    model: str | None
    by_number: bool
    """Whether GPUs are named by the number of their plug-in."""
    unknown_numbers: bool
    """Whether other resources are named by a number."""


class Request(NamedTuple):
    """GPUs that a command line asks for."""

    per_node: float | None
    in_all: float | None


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


def tres(text: str) -> Tres:
    """Return what a list like `cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1` states."""
    entries = _entries(text)
    typed = {name.removeprefix("gres/gpu:"): count(v) for name, v in entries.items() if name.startswith("gres/gpu:")}
    held = {name for name, number in typed.items() if number} if any(typed.values()) else set()
    typed_gpus = sum(typed.values()) if typed else None
    return Tres(
        cpus=count(entries["cpu"]) if "cpu" in entries else None,
        memory_gib=memory(entries["mem"]).gib if "mem" in entries else None,
        nodes=count(entries["node"]) if "node" in entries else None,
        gpus=count(entries["gres/gpu"]) if "gres/gpu" in entries else typed_gpus or 0.0,
        typed_gpus=typed_gpus,
        model="|".join(sorted(held)) or None,
        shards=sum(count(v) for name, v in entries.items() if _is_kind(name, "gres/shard")),
        mps=sum(count(v) for name, v in entries.items() if _is_kind(name, "gres/mps")),
    )


def usage(text: str) -> Usage:
    """Return the use that a list like `gres/gpumem=1G,gres/gpuutil=87,mem=2G` states; what is no measure is unknown."""
    entries = _entries(text)
    use = _measure(entries.get("gres/gpuutil"), count, _MOST_PCT)
    gpu_memory, memory_gib = (_measure(entries.get(name), used_gib, _MOST_GIB) for name in ("gres/gpumem", "mem"))
    stated = sum(name in entries for name in ("gres/gpuutil", "gres/gpumem", "mem"))
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


def _entries(text: str) -> dict[str, str]:
    entries = {}
    for part in text.split(","):
        name, found, value = part.strip().partition("=")
        if not found or not name or not value:
            raise ValueError("is not a list like cpu=4,gres/gpu=1")
        entries[name] = value
    return entries


def _is_kind(name: str, kind: str) -> bool:
    return name == kind or name.startswith(kind + ":")


def gres(text: str) -> Gres:
    """Return the GPUs in a list like `gpu:2`, `gpu:a100:4(S:0-1)` or `7696487:2`."""
    total, models = 0.0, set()
    by_number = unknown = False
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = [word for word in part.strip().split(":") if word not in {"PER_NODE", "PER_JOB", "gres"}]
        if words[:1] == [_GPU_NUMBER]:
            words[0], by_number = "gpu", True
        elif words and words[0].isdecimal():
            unknown = True
        if words[:1] != ["gpu"]:
            continue
        numbered = words[1:] and _NUMBER.fullmatch(words[-1])
        number = count(words[-1]) if numbered else 1.0
        total += number
        model = ":".join(words[1 : -1 if numbered else None])
        if model and number:
            models.add(model)
    return Gres(total, "|".join(sorted(models)) or None, by_number, unknown)


def request(text: str) -> Request:
    """Return the GPUs that a command like `sbatch --gres=gpu:a100:4 -N 2 job.sh` asks for; never fails."""
    own = text.partition("--wrap")[0]  # the commands that the job runs ask for parts of what it has
    per_node, in_all = _PER_NODE.search(own), _IN_ALL.search(own)
    found = None
    if per_node is not None:
        entries = per_node[2].split(",")
        words = [e for e in entries if _is_gpu(e)] if per_node[1] == "gres" else [f"gpu:{e}" for e in entries]
        found = _amount(words)
    return Request(found, None if in_all is None else _amount([f"gpu:{e}" for e in in_all[1].split(",")]))


def _is_gpu(entry: str) -> bool:
    return entry.replace("/", ":").removeprefix("gres:").partition(":")[0] == "gpu"


def _amount(entries: list[str]) -> float | None:
    try:
        return gres(",".join(entry.replace("/", ":") for entry in entries)).gpus if entries else None
    except ValueError:
        return None


def state(text: str) -> JobState:
    """Return the state in a cell like `CANCELLED by 1000`; one cut with a plus is completed when it is clear."""
    word = text.split(" ", 1)[0]
    if word.endswith("+"):
        word = word[:-1]
        fits = [known for known in SLURM_STATUS if known.startswith(word)]
        if word not in SLURM_STATUS and len(fits) == 1:
            word = fits[0]
    return JobState(word, SLURM_STATUS.get(word, "unknown"))


def array_size(text: str) -> int | None:
    """Return the number of tasks in `[8-20%4]`, `[1,3,5-9:2]`; None when the list was cut."""
    total = 0
    for part in text.strip("[]").partition("%")[0].split(","):
        match = _TASKS.fullmatch(part)
        if match is None:
            if "..." in part:
                return None
            raise ValueError("is not a list of array tasks")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise ValueError("is not a list of array tasks")
        total += (last - first) // step + 1
    return total
