"""Parsers for the values of PBS accounting records: durations, sizes, requests, and where a job ran.

Each function takes the text of one value and raises ValueError, with the reason, when it cannot be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.ingest.devices import is_accelerator
from tracekit.ingest.node_lists import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "GPU_NAMES",
    "Request",
    "amount_gib",
    "attributes",
    "count",
    "duration_s",
    "epoch_s",
    "gpus_in",
    "node_request",
    "places",
    "select_request",
    "unknown_devices",
]

Place = dict[str, Any]

_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z_][\w.\-]{0,200})=")
_CLOCK = re.compile(r"(?:(\d{1,7}):)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d{1,9})?", re.ASCII)
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([kmgtp]?)([bw]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WORD_BYTES = 8
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_SLOT = re.compile(r"([^/\s]+)(?:/([\d,\-]{1,4000})(?:\*(\d{1,9}))?)?", re.ASCII)
_GPU = re.compile(r"([^/\s]+)-gpu/(\d{1,6})", re.ASCII)
_MOST_SLOTS = 1 << 20
_PAIR = re.compile(r"(?:^|(?<=[:+(\s]))([A-Za-z_]\w{0,80})=(\d{1,9}(?:\.\d{1,9})?)(?=$|[:+)\s])", re.ASCII)

GPU_NAMES = ("ngpus", "gpus", "gpu")
"""What counts GPUs: OpenPBS's word, Torque's, and one that sites define; of several the first one counts."""


class Request(NamedTuple):
    """What a job asked for in all."""

    nodes: float | None
    cpus: float | None
    gpus: float | None
    model: str | None
    """Models named in the chunks, joined by '|'."""
    chunk_gpus: tuple[float, ...]
    """GPUs of each node (chunk), in order."""


def attributes(text: str) -> dict[str, str]:
    """Return the pairs of a message such as `user=ann account="my lab" start=1`; quotes are taken off.

    A value ends where the next word with an equals sign begins, unless it is in quotes.
    """
    marks: list[tuple[str, int, int]] = []
    inside = 0
    for match in _KEY.finditer(text):
        if match.start() < inside:
            continue
        marks.append((match[1], match.start(), match.end()))
        if text[match.end() : match.end() + 1] == '"':
            closing = text.find('"', match.end() + 1)
            inside = closing + 1 if closing > 0 else match.end()
    found = {}
    for place, (name, _, begin) in enumerate(marks):
        end = marks[place + 1][1] if place + 1 < len(marks) else len(text)
        value = text[begin:end].strip()
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[name] = value
    return found


def epoch_s(text: str) -> float:
    """Return a time in seconds since 1970 [s]."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a time in seconds since 1970")
    return float(text)


def duration_s(text: str) -> float:
    """Return a duration like `02:03:04`, `1:02:03:04` or `7384` [s]."""
    if _NUMBER.fullmatch(text):
        total = float(text)
    else:
        match = _CLOCK.fullmatch(text)
        if match is None:
            raise ValueError("is not a duration like 02:03:04")
        first, second, minutes, seconds = (int(part or 0) for part in match.groups())
        # One part in front of minutes is hours; two are days and hours.
        days, hours = (first, second) if match[2] is not None else (0, first)
        total = float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
    if total > 1e10:
        raise ValueError("is a duration out of range")
    return total


def amount_gib(text: str) -> float:
    """Return an amount of memory like `16gb` or `12.5M` [GiB]; a bare number is bytes, `w` counts words of 8 bytes."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("is not an amount of memory")
    words = _WORD_BYTES if match[3].lower() == "w" else 1
    return float(match[1]) * words * 2.0 ** (_SCALE[match[2].lower()] - 30)


def count(text: str) -> float:
    """Return a number of GPUs, processors or nodes."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("is not a number")
    return float(text)


def gpus_in(held: Mapping[str, str], factors: Mapping[str, float]) -> float | None:
    """Return the GPUs that resources count, None where none of them does.

    Parameters
    ----------
    held : mapping
        Amounts by the name of the resource.
    factors : mapping
        GPUs that one counts, by its name in small letters, as the option gpu_resource says.
    """
    amounts = {name.lower(): amount for name, amount in held.items()}
    counted = [name for name in GPU_NAMES if name in amounts and name not in factors][:1]
    weights = {name: factor for name, factor in factors.items() if name in amounts} | dict.fromkeys(counted, 1.0)
    return sum(factor * count(amounts[name]) for name, factor in weights.items()) if weights else None


def unknown_devices(texts: list[str], factors: Mapping[str, float]) -> set[str]:
    """Return the accelerators that chunks of resources name, and that nobody counts."""
    found: set[str] = set()
    for text in texts:
        amounts = {name.lower() for name, amount in _PAIR.findall(text) if float(amount)}
        others = {name for name in amounts - set(factors) - set(GPU_NAMES) if is_accelerator(name)}
        # Beside a count of GPUs, what has their name says something about them.
        counted = bool(amounts & (set(factors) | set(GPU_NAMES)))
        found |= {name for name in others if not (counted and "gpu" in name)}
    return found


def select_request(text: str, factors: Mapping[str, float], model: str) -> Request:
    """Return what `2:ncpus=8:ngpus=2+1:ncpus=4` asks for.

    Parameters
    ----------
    factors : mapping
        As `gpus_in` takes them.
    model : str
        The resource of a chunk that names the GPU's model.
    """
    nodes = cpus = total = 0.0
    models: set[str] = set()
    chunk_gpus: list[float] = []
    for chunk in text.split("+"):
        parts = chunk.split(":")
        many = 1.0
        if _NUMBER.fullmatch(parts[0]):
            many = float(parts.pop(0))
        if many > MAX_NODES or nodes + many > MAX_NODES:
            raise ValueError(f"needs more than {MAX_NODES} nodes")
        held = dict(part.partition("=")[::2] for part in parts)
        nodes += many
        cpus += many * count(held["ncpus"]) if "ncpus" in held else 0.0
        each = gpus_in(held, factors) or 0.0
        total += many * each
        chunk_gpus += [each] * int(many)
        if held.get(model):
            models.add(held[model])
    return Request(nodes, cpus or None, total, "|".join(sorted(models)) or None, tuple(chunk_gpus))


def node_request(text: str, factors: Mapping[str, float]) -> Request:
    """Return what Torque's `2:ppn=8:gpus=2+node7:ppn=4` asks for; a name is one node. `factors` are as in `gpus_in`."""
    nodes = cpus = total = 0.0
    chunk_gpus: list[float] = []
    for chunk in text.split("+"):
        parts = chunk.split(":")
        many = float(parts[0]) if _NUMBER.fullmatch(parts[0]) else 1.0
        if many > MAX_NODES or nodes + many > MAX_NODES:
            raise ValueError(f"needs more than {MAX_NODES} nodes")
        held = dict(part.partition("=")[::2] for part in parts[1:])
        each = gpus_in(held, factors) or 0.0
        nodes += many
        cpus += many * (count(held["ppn"]) if "ppn" in held else 1.0)
        total += many * each
        chunk_gpus += [each] * int(many)
    return Request(nodes, cpus, total, None, tuple(chunk_gpus))


def places(
    hosts: str | None, vnodes: str | None, devices: str | None, factors: Mapping[str, float]
) -> tuple[list[Place], float | None]:
    """Return the nodes of a run, each once, in order, and the number of slots where it is known.

    Parameters
    ----------
    hosts : str, optional
        exec_host: `n1/0*8+n2/0*8` (OpenPBS), `n1/0+n1/1` or `n1/0-7` (Torque).
    vnodes : str, optional
        exec_vnode of OpenPBS: `(n1:ncpus=8:ngpus=2)+(n2[0]:ngpus=1+n2[1]:ngpus=1)`, a part in parentheses a chunk.
    devices : str, optional
        exec_gpus of Torque: `n1-gpu/0+n1-gpu/1`.
    factors : mapping
        As `gpus_in` takes them.
    """
    found: dict[str, Place] = {}
    slots = 0.0
    names: list[str] = []
    for part in hosts.split("+") if hosts else ():
        match = _SLOT.fullmatch(part)
        if match is None:
            raise ValueError("is not a list of hosts like n1/0*8+n2/0*8")
        names.append(match[1])
        _at(found, match[1])
        slots += _slots(match[2], match[3])
    if vnodes:
        _add_vnodes(found, vnodes, names, factors)
    if devices:
        _add_devices(found, devices)
    return list(found.values()), slots or None


def _at(found: dict[str, Place], node: str) -> Place:
    """Return the entry of a node, a new one for a new node."""
    if not node or len(found) >= MAX_NODES:
        raise ValueError("is not a list of nodes" if not node else f"names more than {MAX_NODES} nodes")
    return found.setdefault(node, {"node": node, "gpu_count": None, "gpu_index": None})


def _add_vnodes(found: dict[str, Place], vnodes: str, names: list[str], factors: Mapping[str, float]) -> None:
    chunks = vnodes.split(")+(")
    for number, chunk in enumerate(chunks):
        for part in chunk.strip("()").split("+"):
            name, *held = part.split(":")
            # The chunks stand in the order of the hosts; a vnode may be a part of a host, such as n1[0].
            place = _at(found, names[number] if len(names) == len(chunks) else name.partition("[")[0])
            amounts = dict(item.partition("=")[::2] for item in held)
            here = gpus_in(amounts, factors)
            if here is not None:
                place["gpu_count"] = (place["gpu_count"] or 0.0) + here
    for place in found.values():
        place["gpu_count"] = place["gpu_count"] or 0.0


def _add_devices(found: dict[str, Place], devices: str) -> None:
    for part in devices.split("+"):
        match = _GPU.fullmatch(part)
        if match is None:
            raise ValueError("is not a list of GPUs like n1-gpu/0+n1-gpu/1")
        place = _at(found, match[1])
        place["gpu_index"] = sorted({*(place["gpu_index"] or ()), int(match[2])})
    for place in found.values():
        place["gpu_count"] = float(len(place["gpu_index"] or ()))


def _slots(listed: str | None, factor: str | None) -> float:
    if factor is not None:
        return float(factor)
    count = 0
    for part in (listed or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and last.isdecimal():
            count += max(0, int(last) - int(first) + 1)
        elif part.isdecimal():
            count += 1
        if count > _MOST_SLOTS:
            raise ValueError("names too many slots")
    return float(count)
