"""GPUs and other devices in the TRES and GRES lists of Slurm, and in the commands that ask for them.

A type that names a MIG profile (`gpu:1g.10gb`, `gpu:a100_3g.20gb`) is a part of a GPU. A kind that is neither a GPU nor
a known other thing may be an accelerator: it is named in `devices`, and the GPUs are unknown.

Each function raises ValueError, with the reason, when a text cannot be read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tracekit.gpu_parts import Part, cards, part_of_gpu
from tracekit.ingest.devices import factor_of, is_gres_device
from tracekit.ingest.formats._slurm_cells import count, entries, memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Gres", "Request", "Tres", "gres", "request", "tres"]


def _number_of(kind: str) -> str:
    """Return the number that Slurm gives a plug-in, by the letters of its name, eight bits each."""
    return str(sum(ord(letter) << 8 * (place % 4) for place, letter in enumerate(kind)) % (1 << 32))


_SHARES = ("mps", "shard")
_KINDS = {_number_of(kind): kind for kind in ("gpu", *_SHARES, "nic", "craynetwork", "bandwidth", "tmpdisk")}
"""Kinds by their numbers."""
_AMOUNT = re.compile(r"\d{1,15}(?:\.\d{1,9})?[KMGTPE]?[Bb]?", re.ASCII)
_PER_NODE = re.compile(r"(?:^|\s)--(gres|gpus-per-node)(?:=|\s+)(\S{1,400})", re.ASCII)
_IN_ALL = re.compile(r"(?:^|\s)(?:--gpus(?:=|\s+)|-G\s*)(\S{1,400})", re.ASCII)


class Tres(NamedTuple):
    """The content of a TRES list, for a whole job; None: the list has no such entry."""

    cpus: float | None
    """Logical CPUs."""
    memory_gib: float | None
    """Memory [GiB]."""
    nodes: float | None
    """Number of nodes."""
    gpus: float | None
    """GPUs, a MIG slice as its part of a GPU [GPUs]; None if a device is unknown."""
    cards: float | None
    """The fewest whole GPUs that can hold `gpus`."""
    typed_differ: bool | None
    """Whether the typed entries do not add up to `gres/gpu`; None without typed entries."""
    model: str | None
    """Types of the GPUs, '|' between them."""
    shards: float
    """Number of shards (`gres/shard`)."""
    mps: float
    """Number of MPS units (`gres/mps`); slurm.conf says how many make a GPU."""
    devices: str | None
    """Names of devices that are not understood, '|' between them."""


class Gres(NamedTuple):
    """The GPUs of a GRES list, per node or per job, as its column counts."""

    gpus: float | None
    """GPUs, a MIG slice as its part of a GPU [GPUs]; None if a device is unknown."""
    cards: float | None
    """The fewest whole GPUs that can hold `gpus`."""
    model: str | None
    """Types of the GPUs, '|' between them."""
    by_number: bool
    """Whether GPUs are named by the number of their plug-in."""
    devices: str | None
    """Names of devices that are not understood, '|' between them."""


class Request(NamedTuple):
    """The GPUs that a command line requests."""

    per_node: float | None
    """GPUs of each node (`--gres`, `--gpus-per-node`); None without such an option."""
    in_all: float | None
    """GPUs of the whole job (`--gpus`, `-G`); None without such an option."""
    devices: str | None
    """Names of devices that are not understood, '|' between them."""


_Piece = tuple[str, str, float]
"""Kind, type and amount of a device."""


class _Held(NamedTuple):
    """What the devices of a list are together."""

    gpus: float | None
    cards: float | None
    model: str | None
    devices: str | None


def tres(text: str, factors: Mapping[str, float] | None = None) -> Tres:
    """Return the content of a TRES list like `cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1`.

    Typed and untyped entries of a kind are the same devices: GPUs count once.

    Parameters
    ----------
    text : str
        The list: NAME=AMOUNT, with commas between them.
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by name, as the option gpu_resource states them.

    Raises
    ------
    ValueError
        An entry or an amount cannot be read; the message says why.

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
    shares = {kind: sum(count(v) for n, v in listed.items() if _is_kind(n, f"gres/{kind}")) for kind in _SHARES}
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


def _is_kind(name: str, kind: str) -> bool:
    return name == kind or name.startswith(kind + ":")


def _matters(kind: str, factors: Mapping[str, float] | None) -> bool:
    return is_gres_device(kind) or kind.lower() in (factors or {})


def _pieces(found: Mapping[str, Mapping[str, float]]) -> Iterator[_Piece]:
    """Yield kind, type and amount of each device; typed and untyped entries of a kind are the same devices.

    What the types leave open has the type ''. Where types say more than the untyped entry, that one counts.
    """
    for kind, amounts in found.items():
        typed = {kept: amount for kept, amount in amounts.items() if kept}
        total = sum(typed.values())
        stated = amounts.get("", total)
        shrunk = stated / total if total > stated else 1.0
        yield from ((kind, kept, amount * shrunk) for kept, amount in typed.items())
        yield kind, "", max(stated - total, 0.0)


def _together(pieces: Iterable[_Piece], factors: Mapping[str, float]) -> _Held:
    """Return what devices are together."""
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
        return _Held(None, None, model, "|".join(sorted(unknown)))
    return _Held(_rounded(gpus), float(cards(parts)), model, None)


def _rounded(gpus: float) -> float:
    """Return a sum of sevenths without what floating point adds to a whole number."""
    return float(round(gpus)) if abs(gpus - round(gpus)) < 1e-9 else gpus


def _part(kind: str, kept: str, factors: Mapping[str, float]) -> Part | None:
    factor = factor_of(factors, f"{kind}:{kept}", kind) if kept else factor_of(factors, kind)
    if factor is not None:
        return Part(factor, factor)
    return part_of_gpu(kept) if kind == "gpu" else None


def gres(text: str, factors: Mapping[str, float] | None = None) -> Gres:
    """Return the GPUs in a GRES list like `gpu:2`, `gpu:a100:4(S:0-1)` or `7696487:2`.

    Parameters
    ----------
    text : str
        The list: KIND:TYPE:NUMBER, with commas between them; type and number may be missing (one device).
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by name, as the option gpu_resource states them.

    Raises
    ------
    ValueError
        A number cannot be read; the message says why.

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
        numbered = len(words) > 1 and _AMOUNT.fullmatch(words[-1]) is not None
        if kind in _SHARES and factor_of(factors or {}, kind) is None:
            shares |= {kind} if not numbered or count(words[-1]) else set()
        elif _matters(kind, factors):
            pieces.append((kind, ":".join(words[1 : -1 if numbered else None]), count(words[-1]) if numbered else 1.0))
    held = _together(pieces, factors or {})
    if shares and held.gpus == 0:  # parts of GPUs, of a size that the list does not state
        return Gres(None, None, held.model, by_number, "|".join(sorted(shares)))
    return Gres(held.gpus, held.cards, held.model, by_number, held.devices)


_NO_KIND = frozenset({"", "PER_NODE", "PER_JOB", "gres", "no_consume", "none", "null"})


def request(text: str, factors: Mapping[str, float] | None = None) -> Request:
    """Return the GPUs that a command like `sbatch --gres=gpu:a100:4 -N 2 job.sh` requests.

    An option that cannot be read counts as missing, so no text raises an error.

    Parameters
    ----------
    text : str
        The command.
    factors : mapping of str to float, optional
        GPUs per device [GPUs], by name, as the option gpu_resource states them.

    Examples
    --------
    >>> request("sbatch --gres=gpu:a100:4 -N 2 job.sh")
    Request(per_node=4.0, in_all=None, devices=None)
    """
    own = text.partition("--wrap")[0]  # the commands that the job runs ask for parts of what it has
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
    """Return what a request names, None where it names no device."""
    try:
        listed = [word for word in words if _names_device(word, factors)]
        return gres(",".join(listed), factors) if listed else None
    except ValueError:
        return None


def _names_device(word: str, factors: Mapping[str, float] | None) -> bool:
    kind = word.replace("/", ":").removeprefix("gres:").partition(":")[0]
    return bool(kind) and kind not in _NO_KIND and kind not in _SHARES and _matters(kind, factors)
