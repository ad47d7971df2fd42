"""What a Flux job got (R, RFC 20) or asked for (jobspec, RFC 14): nodes, cores and GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit.ingest.devices import factor_of
from tracekit.ingest.node_lists import MAX_NODES, expand_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Resources", "asked_for", "given"]

_NUMBERS = re.compile(r"\[?(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\]?", re.ASCII)
_MOST = 4_096
"""Cores or devices of a node."""
_DEEPEST = 20
_NOT_DEVICES = frozenset({"core", "socket", "numa", "pu", "memory", "node", "slot", "rack", "cluster"})


@dataclass
class Resources:
    """Nodes, cores and GPUs of a job; None and empty where they are not known."""

    nodes: list[str] = field(default_factory=list)
    node_count: int | None = None
    cores: float | None = None
    gpus: float | None = None
    each: list[float | None] = field(default_factory=list)
    """GPUs of each named node."""
    indices: list[list[int] | None] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    """Devices that may be accelerators."""

    def row(self, *, counted: bool) -> dict[str, Any]:
        """Return the columns of a row of records; without GPUs unless they are `counted`."""
        found: dict[str, Any] = {"node_count": self.node_count, "cpu_count": self.cores}
        if counted:
            found["gpu_count"] = self.gpus
        if self.nodes:
            found["place_node"] = self.nodes
            found["place_gpu_count"] = self.each if counted else [None] * len(self.nodes)
            found["place_gpu_index"] = self.indices if counted else [None] * len(self.nodes)
        return found


def given(held: Mapping[str, Any], factors: Mapping[str, float], is_device: Callable[[str], bool]) -> Resources:
    """Return what R says that a job got.

    Parameters
    ----------
    held : mapping
        The document R.
    factors : mapping
        GPUs that a device counts, by its name, as the option gpu_resource says.
    is_device : function (name) -> bool
        Whether a kind of resource that is no GPU may be an accelerator.
    """
    execution = held.get("execution")
    entries = execution.get("R_lite") if isinstance(execution, dict) else None
    if not isinstance(execution, dict) or not isinstance(entries, list) or not entries:
        raise ValueError("has no list R_lite")
    ranks: list[int] = []
    children: list[Mapping[str, list[int]]] = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("children"), dict):
            raise ValueError("has an entry of R_lite without rank and children")  # noqa: TRY004 -- a value of the log
        listed = numbers(entry.get("rank"), MAX_NODES)
        ranks += listed
        children += [{name: numbers(text, _MOST) for name, text in entry["children"].items()}] * len(listed)
        if len(ranks) > MAX_NODES:
            raise ValueError(f"names more than {MAX_NODES} nodes")
    found = Resources(node_count=len(ranks), cores=float(sum(len(one.get("core", ())) for one in children)))
    kinds = {name for one in children for name in one}
    weights = {name: 1.0 if factor is None else factor for name in kinds
               if (factor := factor_of(factors, name)) is not None or name == "gpu"}  # fmt: skip
    found.unknown = {name[:80] for name in kinds - set(weights) - _NOT_DEVICES if is_device(name)}
    counts = [sum(weight * len(one.get(name, ())) for name, weight in weights.items()) for one in children]
    found.gpus = sum(counts)
    whole = weights.get("gpu") == 1.0 and not any(weights[name] for name in weights if name != "gpu")
    _place(
        found,
        execution.get("nodelist"),
        entries,
        ranks,
        counts,
        [one.get("gpu", []) if whole else None for one in children],
    )
    return found


def _place(
    found: Resources,
    nodelist: Any,
    entries: list[dict[str, Any]],
    ranks: list[int],
    counts: list[float],
    indices: list[list[int] | None],
) -> None:
    """Fill in the names of the nodes, and the GPUs of each where their order tells."""
    if isinstance(nodelist, list) and nodelist:
        if not all(isinstance(text, str) for text in nodelist):
            raise ValueError("has a nodelist that is no list of names")
        names = expand_nodes(",".join(nodelist))
    else:
        # An earlier form names the host in each entry.
        hosts = [entry.get("node") for entry in entries]
        names = [host for host in hosts if isinstance(host, str) and host]
    if len(names) != len(ranks):
        if isinstance(nodelist, list) and nodelist:
            raise ValueError("has a nodelist with another number of nodes than ranks")
        return
    in_order = ranks == sorted(ranks) or not isinstance(nodelist, list)
    same = len(set(counts)) == 1
    found.nodes = names
    found.each = [count if in_order or same else None for count in counts]
    found.indices = [listed if in_order and listed else None for listed in indices]


def numbers(text: Any, most: int) -> list[int]:
    """Return the numbers of a set such as `0-3,7` or `[0-3]` (RFC 22).

    Raises
    ------
    ValueError
        It is none, or has more than `most`.
    """
    if text == "":
        return []
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    match = _NUMBERS.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("has a set of numbers that is not like 0-3,7")
    found: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or len(found) + high - low >= most:
            raise ValueError(f"has a set of more than {most} numbers")
        found += range(low, high + 1)
    return found


def asked_for(spec: Mapping[str, Any], factors: Mapping[str, float], is_device: Callable[[str], bool]) -> Resources:
    """Return what a jobspec asks for; GPUs are unknown where a node is asked for as a whole, or a number is a range."""
    found = Resources(gpus=0.0, cores=0.0)
    nodes = _add(found, spec.get("resources"), 1.0, factors, is_device, 0)
    found.node_count = int(nodes) if nodes is not None and 0 < nodes <= MAX_NODES else None
    return found


def _add(
    found: Resources,
    listed: Any,
    times: float | None,
    factors: Mapping[str, float],
    is_device: Callable[[str], bool],
    depth: int,
) -> float | None:
    """Add resources, each `times` over, and return the number of nodes; None where a number is not known."""
    if not isinstance(listed, list) or depth > _DEEPEST:
        raise ValueError("has no list of resources")
    nodes: float | None = 0.0
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get("type"), str):
            raise ValueError("has a resource without type")  # noqa: TRY004 -- a value of the log
        kind, count = one["type"], one.get("count", 1)
        known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 31
        each = times * count if known and times is not None else None
        factor = factor_of(factors, kind)
        factor = 1.0 if factor is None and kind == "gpu" else factor
        if kind == "core":
            found.cores = None if each is None or found.cores is None else found.cores + each
        elif factor is not None:
            found.gpus = None if each is None or found.gpus is None else found.gpus + each * factor
        elif kind not in _NOT_DEVICES and is_device(kind):
            found.unknown.add(kind[:80])
        if kind == "node":
            nodes = None if each is None or nodes is None else nodes + each
            if one.get("exclusive") is True:
                found.gpus = None
        if "with" in one:
            inner = _add(found, one["with"], each, factors, is_device, depth + 1)
            nodes = None if inner is None or nodes is None else nodes + inner
    return nodes
