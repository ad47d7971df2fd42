"""Parse `sacct` cells: states, durations, counts, memory, devices, measured use and arrays.

Each function takes one cell as a string and raises ValueError with the reason if it cannot be read.

A GPU type that names a MIG profile (`gpu:1g.10gb`, `gpu:a100_3g.20gb`) is part of a GPU. A device that is neither a GPU
nor a known other device may be an accelerator. It is listed in `devices`, and the number of GPUs is unknown.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import polars as pl

from tracekit.gpu_parts import Part, cards, part_of_gpu
from tracekit.ingest.devices import factor_of, is_gres_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


_STATUS = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
    "PREEMPTED": "preempted",
    "RUNNING": "running",
    "COMPLETING": "running",
    "RESIZING": "running",
    "STOPPED": "running",
    "SUSPENDED": "running",
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUED": "pending",
}
"""The common status for each word in sacct's State."""


def state(text: str) -> str:
    """Return the state in a cell like `CANCELLED by 1000`. Complete a truncated word (with a plus) if unambiguous."""
    word = text.split(" ", 1)[0]
    if word.endswith("+"):
        word = word[:-1]
        fits = [known for known in _STATUS if known.startswith(word)]
        if word not in _STATUS and len(fits) == 1:
            word = fits[0]
    return word


def status_of(word: str) -> str:
    """Return a state word's common status, which is 'unknown' if it is not a Slurm state."""
    return _STATUS.get(word, "unknown")


def slurm_status(state: pl.Expr) -> pl.Expr:
    """Return a state word's common status, which is 'unknown' if it is not a Slurm state, or NULL without a word."""
    status = state.replace_strict(_STATUS, default="unknown", return_dtype=pl.String)
    return pl.when(state.is_not_null()).then(status)


def has_ended(status: pl.Expr) -> pl.Expr:
    """Return whether a job with this common status may have an end. If not, an end is a contradiction."""
    return (status.ne_missing("running")) & (status.ne_missing("pending"))


# Durations, counts, memory, measured use and arrays.

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
# Slurm also uses factors of 1024 for counts: 1.5K is 1,536.
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}
_GIB = 1 << 30
_TASKS = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


class MemoryRequest(NamedTuple):
    """An amount of memory."""

    gib: float
    per: str
    """'c' for an amount per CPU, 'n' for an amount per node, or '' for the whole job's amount."""


class Usage(NamedTuple):
    """The measured use in a TRES list."""

    gpu_util_pct: float | None
    gpu_memory_gib: float | None
    memory_gib: float | None
    unread: float
    """How many of these values are present but not valid measurements."""


class ArrayTasks(NamedTuple):
    """The waiting tasks of an array."""

    size: int | None
    """Number of tasks, or None if the list is truncated."""
    ranges: list[list[int]] | None
    """First, last and step of each range of tasks, or None if the list is truncated."""


def duration_s(text: str) -> float | None:
    """Parse a duration like `1-02:03:04`, `02:03:04` or `03:04.5` [s]. Return None for words that mean no duration."""
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
    """Convert a limit in minutes to seconds [s]. Return None for words that mean no limit."""
    if minutes in _NO_DURATION:
        return None
    if not re.fullmatch(r"\d{1,9}", minutes, re.ASCII):
        raise ValueError("is not a whole number of minutes")
    return int(minutes) * 60.0


def count(text: str) -> float:
    """Parse a count like `4` or `1.5K`."""
    return _scaled(text, "is not a count")


def memory(text: str) -> MemoryRequest:
    """Parse a memory request such as `4000Mc`, `4Gn` or `256G`. A number without a unit is in MiB."""
    per = text[-1:] if text[-1:] in {"c", "n"} else ""
    return MemoryRequest(_scaled(text.removesuffix(per), "is not an amount of memory", "M") / _GIB, per)


def used_gib(text: str) -> float:
    """Convert measured memory such as `1234K` to GiB. A number without a unit is in bytes."""
    return _scaled(text, "is not an amount of memory") / _GIB


def _scaled(text: str, reason: str, unit: str = "") -> float:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(reason)
    return float(match[1]) * _SCALE[match[2] or unit]


def usage(text: str) -> Usage:
    """Parse the measured use in a list like `gres/gpumem=1G,gres/gpuutil=87,mem=2G`. Invalid values are unknown."""
    listed = entries(text)
    use = _measure(listed.get("gres/gpuutil"), count, _MOST_PCT)
    gpu_memory, memory_gib = (_measure(listed.get(name), used_gib, _MOST_GIB) for name in ("gres/gpumem", "mem"))
    stated = sum(name in listed for name in ("gres/gpuutil", "gres/gpumem", "mem"))
    read = sum(value is not None for value in (use, gpu_memory, memory_gib))
    return Usage(use, gpu_memory, memory_gib, float(stated - read))


def resident_gib(text: str) -> float | None:
    """Return a task's measured memory [GiB], or None if the value is not a valid measurement."""
    return _measure(text, used_gib, _MOST_GIB)


def _measure(text: str | None, parse: Callable[[str], float], most: float) -> float | None:
    """Return a measured value below `most`. If slurmd cannot measure, it writes values such as 2^64 - 1 (`16E`)."""
    if text is None:
        return None
    try:
        value = parse(text)
    except ValueError:
        return None
    return value if value < most else None


def entries(text: str) -> dict[str, str]:
    """Return the amounts of a TRES list by name, as strings: 'cpu=4,mem=2G' gives {'cpu': '4', 'mem': '2G'}.

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


def array_tasks(text: str) -> ArrayTasks:
    """Parse an array's tasks, such as `[8-20%4]` or `[1,3,5-9:2]`."""
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


# Devices.


def _number_of(kind: str) -> str:
    """Return the number that Slurm computes from a plug-in's name, with eight bits per letter."""
    return str(sum(ord(letter) << 8 * (place % 4) for place, letter in enumerate(kind)) % (1 << 32))


_SHARES = ("mps", "shard")
_KINDS = {_number_of(kind): kind for kind in ("gpu", *_SHARES, "nic", "craynetwork", "bandwidth", "tmpdisk")}
"""Device kinds by plug-in number."""
_PER_NODE = re.compile(r"(?:^|\s)--(gres|gpus-per-node)(?:=|\s+)(\S{1,400})", re.ASCII)
_IN_ALL = re.compile(r"(?:^|\s)(?:--gpus(?:=|\s+)|-G\s*)(\S{1,400})", re.ASCII)


class Tres(NamedTuple):
    """The content of a TRES list for a whole job. A value is None if the list lacks its entry."""

    cpus: float | None
    """Logical CPUs."""
    memory_gib: float | None
    """Memory [GiB]."""
    nodes: float | None
    """Number of nodes."""
    gpus: float | None
    """GPUs, with a MIG slice as a fraction of a GPU [GPUs], or None if a device is unknown."""
    cards: float | None
    """The fewest whole GPUs that can hold `gpus`."""
    typed_differ: bool | None
    """Whether the typed entries do not add up to `gres/gpu`, or None if there are no typed entries."""
    model: str | None
    """Types of the GPUs, separated by '|'."""
    shards: float
    """Number of shards (`gres/shard`)."""
    mps: float
    """Number of MPS units (`gres/mps`). slurm.conf defines how many units make up a GPU."""
    devices: str | None
    """Names of unknown devices, separated by '|'."""


class Gres(NamedTuple):
    """The total of the devices in a GRES list, per node or per job depending on the column."""

    gpus: float | None
    """GPUs, with a MIG slice as a fraction of a GPU [GPUs], or None if a device is unknown."""
    cards: float | None
    """The fewest whole GPUs that can hold `gpus`."""
    model: str | None
    """Types of the GPUs, separated by '|'."""
    devices: str | None
    """Names of unknown devices, separated by '|'."""
    by_number: bool = False
    """Whether the list names GPUs by the number of their plug-in."""


class Request(NamedTuple):
    """The GPUs that a command line requests."""

    per_node: float | None
    """GPUs per node (`--gres`, `--gpus-per-node`), or None if neither option is given."""
    in_all: float | None
    """GPUs of the whole job (`--gpus`, `-G`), or None if neither option is given."""
    devices: str | None
    """Names of unknown devices, separated by '|'."""


_Piece = tuple[str, str, float]
"""Kind, type and amount of one device."""


def tres(text: str, factors: Mapping[str, float] | None = None) -> Tres:
    """Parse a TRES list like `cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1`.

    Typed and untyped entries of a kind are the same devices, so GPUs are counted once.

    Parameters
    ----------
    text : str
        The list of NAME=AMOUNT entries, separated by commas.
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by device name, from the gpu_resource option.

    Raises
    ------
    ValueError
        An entry or an amount cannot be read. The message gives the reason.

    Examples
    --------
    >>> found = tres("cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1")
    >>> found.cpus, found.memory_gib, found.gpus, found.model
    (32.0, 256.0, 4.0, 'a100')
    """
    listed = entries(text)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for name, value in listed.items():
        if name.startswith("gres/"):
            kind, _, kept = name.removeprefix("gres/").partition(":")
            if kind not in _SHARES and _matters(kind, factors):
                found[kind][kept] = count(value)
    held = _together(_pieces(found), factors or {})
    typed = [amount for kept, amount in found["gpu"].items() if kept]
    shares = {
        kind: sum(count(value) for name, value in listed.items() if name.partition(":")[0] == f"gres/{kind}")
        for kind in _SHARES
    }
    return Tres(
        cpus=count(listed["cpu"]) if "cpu" in listed else None,
        memory_gib=memory(listed["mem"]).gib if "mem" in listed else None,
        nodes=count(listed["node"]) if "node" in listed else None,
        gpus=held.gpus,
        cards=held.cards,
        typed_differ=sum(typed) != found["gpu"].get("", sum(typed)) if typed else None,
        model=held.model,
        shards=shares["shard"],
        mps=shares["mps"],
        devices=held.devices,
    )


def _matters(kind: str, factors: Mapping[str, float] | None) -> bool:
    return is_gres_device(kind) or kind.lower() in (factors or {})


def _pieces(found: Mapping[str, Mapping[str, float]]) -> Iterator[_Piece]:
    """Yield each device's kind, type and amount. Typed and untyped entries of a kind are the same devices.

    An untyped amount beyond the typed amounts has the type ''. If the typed amounts exceed the untyped one, they are
    scaled down to it.
    """
    for kind, amounts in found.items():
        typed = {kept: amount for kept, amount in amounts.items() if kept}
        total = sum(typed.values())
        stated = amounts.get("", total)
        shrunk = stated / total if total > stated else 1.0
        yield from ((kind, kept, amount * shrunk) for kept, amount in typed.items())
        yield kind, "", max(stated - total, 0.0)


def _together(pieces: Iterable[_Piece], factors: Mapping[str, float]) -> Gres:
    """Add up the devices."""
    gpus, models, unknown = 0.0, set(), set()
    parts: list[tuple[float, Part]] = []
    for kind, kept, amount in pieces:
        part = _part(kind, kept, factors)
        if part is None:
            unknown |= {f"gpu:{kept}" if kind == "gpu" else kind} if amount else set()
            continue
        gpus += amount * part.compute
        parts.append((amount, part))
        if amount and part.compute and (kept or kind != "gpu"):
            models.add(kept or kind)
    model = "|".join(sorted(models)) or None
    if unknown:
        return Gres(None, None, model, "|".join(sorted(unknown)))
    # Floating-point sums of sevenths can be slightly too large.
    whole = float(round(gpus))
    return Gres(whole if abs(gpus - whole) < 1e-9 else gpus, float(cards(parts)), model, None)


def _part(kind: str, kept: str, factors: Mapping[str, float]) -> Part | None:
    factor = factor_of(factors, f"{kind}:{kept}", kind) if kept else factor_of(factors, kind)
    if factor is not None:
        return Part(factor, factor)
    return part_of_gpu(kept) if kind == "gpu" else None


def gres(text: str, factors: Mapping[str, float] | None = None) -> Gres:
    """Count the GPUs in a GRES list like `gpu:2`, `gpu:a100:4(S:0-1)` or `7696487:2`.

    Parameters
    ----------
    text : str
        The list of KIND:TYPE:NUMBER entries, separated by commas. TYPE and NUMBER may be missing. Without NUMBER, the
        entry is one device.
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by device name, from the gpu_resource option.

    Raises
    ------
    ValueError
        A number cannot be read. The message gives the reason.

    Examples
    --------
    >>> found = gres("gpu:a100:4(S:0-1),gpu:h100:2")
    >>> found.gpus, found.model
    (6.0, 'a100|h100')
    """
    pieces: list[_Piece] = []
    by_number = False
    shares = set()
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        words = [word for word in part.strip().replace("/", ":").split(":") if word not in _NO_KIND]
        if not words:
            continue
        kind = _KINDS.get(words[0], words[0])
        by_number |= kind == "gpu" != words[0]
        numbered = len(words) > 1 and _NUMBER.fullmatch(words[-1]) is not None
        if kind in _SHARES and factor_of(factors or {}, kind) is None:
            shares |= {kind} if not numbered or count(words[-1]) else set()
        elif _matters(kind, factors):
            pieces.append((kind, ":".join(words[1 : -1 if numbered else None]), count(words[-1]) if numbered else 1.0))
    held = _together(pieces, factors or {})
    if shares and held.gpus == 0:  # the list does not give the size of these GPU parts
        held = Gres(None, None, held.model, "|".join(sorted(shares)))
    return held._replace(by_number=by_number)


_NO_KIND = frozenset({"", "PER_NODE", "PER_JOB", "gres", "no_consume", "none", "null"})


def request(text: str, factors: Mapping[str, float] | None = None) -> Request:
    """Return the GPUs requested by a command like `sbatch --gres=gpu:a100:4 -N 2 job.sh`.

    An unreadable option is ignored, so no command raises an error.

    Parameters
    ----------
    text : str
        The command.
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by device name, from the gpu_resource option.

    Examples
    --------
    >>> request("sbatch --gres=gpu:a100:4 -N 2 job.sh")
    Request(per_node=4.0, in_all=None, devices=None)
    """
    own = text.partition("--wrap")[0]  # commands inside the job request only part of the job's resources
    per_node, in_all = _PER_NODE.search(own), _IN_ALL.search(own)
    found = whole = None
    if per_node is not None:
        words = per_node[2].split(",")
        found = _asked(words if per_node[1] == "gres" else (f"gpu:{word}" for word in words), factors)
    if in_all is not None:
        whole = _asked((f"gpu:{word}" for word in in_all[1].split(",")), factors)
    devices = next((asked.devices for asked in (found, whole) if asked is not None and asked.devices), None)
    return Request(found.gpus if found else None, whole.gpus if whole else None, devices)


def _asked(words: Iterable[str], factors: Mapping[str, float] | None) -> Gres | None:
    """Return the devices named in a request, or None if it names no device."""
    try:
        listed = [word for word in words if _names_device(word, factors)]
        return gres(",".join(listed), factors) if listed else None
    except ValueError:
        return None


def _names_device(word: str, factors: Mapping[str, float] | None) -> bool:
    kind = word.replace("/", ":").removeprefix("gres:").partition(":")[0]
    return bool(kind) and kind not in _NO_KIND and kind not in _SHARES and _matters(kind, factors)


# Read the job summary that Princeton's Jobstats writes into AdminComment.
#
# The comment is `JS1:` followed by gzipped JSON in Base64, with CPU time [s] and memory [bytes] per node, and
# utilization [percent] and memory [bytes] per GPU. `JS1:Short` and `JS1:None` contain no data
# (github.com/PrincetonUniversity/jobstats, setup/summaries.md of its documentation). Other comments are ignored.
# Whoever can edit comments can write anything in them, so we decompress at most a few MiB and count unreadable
# summaries.

_MARK = "JS1:"
_EMPTY = frozenset({"Short", "None"})
_LONGEST_TEXT = 1 << 20
_LONGEST_JSON = 8 << 20
_GZIP = 16 + zlib.MAX_WBITS


class JobSummary(NamedTuple):
    """Measured use of a job, summed over its nodes. A value is None if it is missing for any node."""

    gpu_util_pct: float | None = None
    """Utilization in percent, summed over GPUs, so 200 means two busy GPUs."""
    gpu_memory_gib: float | None = None
    memory_gib: float | None = None
    cpu_s: float | None = None
    """CPU time, summed over cores."""
    unreadable: bool = False


def job_summary(text: str) -> JobSummary | None:
    """Return the job summary in a comment, or None if Jobstats did not write the comment."""
    if not text.startswith(_MARK):
        return None
    body = text.removeprefix(_MARK).strip()
    if body in _EMPTY:
        return None
    try:
        return _of_nodes(_nodes(body))
    except (TypeError, ValueError, binascii.Error, zlib.error, orjson.JSONDecodeError):
        return JobSummary(unreadable=True)


def _nodes(body: str) -> list[dict[str, Any]]:
    if len(body) > _LONGEST_TEXT:
        raise ValueError("too long")
    unpacked = zlib.decompressobj(_GZIP)
    found = unpacked.decompress(base64.b64decode(body, validate=True), _LONGEST_JSON)
    if not unpacked.eof:
        raise ValueError("is truncated, or too large when decompressed")
    told = orjson.loads(found)
    nodes = told.get("nodes") if isinstance(told, dict) else None
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) for node in nodes.values()):
        raise ValueError("names no nodes")
    return list(nodes.values())


def _of_nodes(nodes: list[dict[str, Any]]) -> JobSummary:
    # If the job has GPUs, none of them are on nodes without GPU entries.
    with_gpus = [node for node in nodes if "gpu_utilization" in node or "gpu_used_memory" in node]
    memory = _sum(node.get("used_memory") for node in nodes)
    gpu_memory = _sum(value for node in with_gpus for value in _by_gpu(node, "gpu_used_memory"))
    return JobSummary(
        gpu_util_pct=_sum(value for node in with_gpus for value in _by_gpu(node, "gpu_utilization")),
        gpu_memory_gib=None if gpu_memory is None else gpu_memory / _GIB,
        memory_gib=None if memory is None else memory / _GIB,
        cpu_s=_sum(node.get("total_time") for node in nodes),
    )


def _by_gpu(node: dict[str, Any], name: str) -> list[Any]:
    told = node.get(name)
    if told is None:
        return [None]
    if not isinstance(told, dict):
        raise TypeError("is not by GPU")
    return list(told.values())


def _sum(values: Iterable[Any]) -> float | None:
    """Add up numbers, or return None if the list is empty or a number is unknown.

    Raises
    ------
    ValueError
        A value is not a number, or is below 0.
    """
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    if any(isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v) or v < 0 for v in known):
        raise ValueError("is not a measure")
    return float(sum(known))
