"""Read a Kubernetes cluster's machines, as printed by `kubectl get nodes -o json`.

API: kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1. GPUs are the devices of known plugins. MIG
slices count as the fewest cards that can hold them. A shared card appears as several devices, so we use the number of
cards in the labels of NVIDIA's GPU feature discovery if there is one. If a device belongs to another plugin, the number
is unknown.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from tracekit.gpu_parts import Part, cards, has_profile, part_of_gpu
from tracekit.ingest.devices import WHOLE_GPUS, device_factors, factor_of, is_extended_device
from tracekit.ingest.json_array import array_items, array_of
from tracekit.ingest.machines._rows import RecordReader, part, unknown_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.machines._rows import Cells, Row
    from tracekit.ingest.records import Record
    from tracekit.ingest.sink import OpenedFile

_NVIDIA = WHOLE_GPUS[0]
_MODELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
)
_RACKS = (
    "topology.kubernetes.io/rack",
    "rack",
    "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/zone",
)
_CORDON = "node.kubernetes.io/unschedulable"
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{u}i": 1 << 10 * n for n, u in enumerate("KMGT", 1)
}
_KIND = re.compile(rb'"kind"\s*:\s*"(\w+)"')


class KubernetesNodes(RecordReader):
    """`kubectl get nodes -o json`."""

    name = "kubernetes-nodes"
    title = "machines and their conditions, printed by kubectl get nodes -o json"

    def looks_right(self, head: bytes) -> bool:
        """Return whether the first item of a list is a node."""
        match = array_of(head, ("items",))
        if match is None:
            return False
        if re.search(rb'"kind"\s*:\s*"NodeList"', head[: match.start()]):
            return True
        kind = _KIND.search(head, match.end())
        return kind is not None and kind[1] == b"Node"

    def records(self, opened: OpenedFile) -> Iterator[list[Record]]:
        """Yield the nodes."""
        return array_items(opened, ("items",))

    def rows(self, value: dict[str, Any], cells: Cells) -> Iterator[tuple[str, Row]]:
        """Yield a machine, and one event per reason why it is not ready or accepts no pods."""
        machine = _machine(value, cells)
        yield "machine", machine
        for event in _events(value, machine["host"], cells):
            yield "event", event


def _machine(node: dict[str, Any], cells: Cells) -> dict[str, Any]:
    host, labels = part(node, "metadata", "name"), part(node, "metadata", "labels")
    labels = labels if isinstance(labels, dict) else {}
    capacity = part(node, "status", "capacity")
    if node.get("kind", "Node") != "Node" or not isinstance(host, str) or not host or not isinstance(capacity, dict):
        raise ValueError("is not a node with a name and a capacity")
    gpus = _gpus(host, capacity, labels, cells)
    mib = _amount(labels, "nvidia.com/gpu.memory", cells)
    memory, cpus = (_amount(capacity, name, cells) for name in ("memory", "cpu"))
    return {
        "host": host,
        "gpu_count": gpus,
        "gpu_model": _label(labels, _MODELS) if gpus else None,
        "gpu_memory_gib": None if mib is None else mib / 1024,
        "cpu_count": None if cpus is None else round(cpus),
        "memory_gib": None if memory is None else memory / (1 << 30),
        "rack": _label(labels, _RACKS),
    }


def _gpus(host: str, capacity: dict[str, Any], labels: dict[str, Any], cells: Cells) -> int | None:
    """Return a node's number of cards, or None if it has an unknown device and no label gives the number."""
    factors = device_factors(cells.sink.options.get("gpu_resource", ""))
    product = str(labels.get("nvidia.com/gpu.product") or "")
    parts: list[tuple[float, Part]] = []
    whole = 0.0
    unknown = set()
    unread = False
    for name, value in capacity.items():
        factor = factor_of(factors, name)
        known = name in WHOLE_GPUS or has_profile(name)
        counts = factor is not None or known or is_extended_device(name)
        amount = _amount(capacity, name, cells) if counts else None
        if counts and value is not None and amount is None:
            unread = True
        if not amount:
            continue
        part = Part(factor, factor) if factor is not None else None
        if part is None and known:
            part = part_of_gpu(product if name == _NVIDIA else name)
        if part is None:
            unknown.add(name)
        elif name == _NVIDIA and part == Part(1.0, 1.0):
            whole += amount
        else:
            parts.append((amount, part))
    # With MIG's single strategy, the label counts slices.
    counted = None if has_profile(product) else _amount(labels, "nvidia.com/gpu.count", cells)
    if unread and counted is None:
        return None
    if unknown and counted is None:
        unknown_devices(cells.sink, host, "|".join(sorted(unknown)))
        return None
    if counted is None:
        return math.ceil(whole - 1e-6) + cards(parts)
    # The label counts cards, whereas shared cards appear as several devices. Only some versions count divided cards.
    return math.ceil(max(counted, min(counted, whole) + cards(parts)) - 1e-6)


def _label(labels: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((str(labels[name]) for name in names if labels.get(name)), None)


def _amount(held: dict[str, Any], name: str, cells: Cells) -> float | None:
    """Parse a quantity such as 8, '263Ki' or '95500m', or return None if it is missing or unreadable."""
    value = held.get(name)
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)(m|[kMGT]|[KMGT]i)?", str(value), re.ASCII)
    if match is None:
        cells.lost.add(name, str(value), "is not a quantity")
        return None
    return float(match[1]) / 1000 if match[2] == "m" else float(match[1]) * _UNITS[match[2] or ""]


def _events(node: dict[str, Any], host: str, cells: Cells) -> Iterator[dict[str, Any]]:
    """Yield the events that currently keep a node out of service."""
    for condition in _listed(node, "status", "conditions"):
        if part(condition, "type") == "Ready" and part(condition, "status") in {"False", "Unknown"}:
            said = [str(word) for name in ("reason", "message") if (word := part(condition, name))]
            since = part(condition, "lastTransitionTime")
            yield _event(
                host, "down", ": ".join(said), cells.optional(since if isinstance(since, str) else None, "since")
            )
    if part(node, "spec", "unschedulable") is True:
        taints = [t for t in _listed(node, "spec", "taints") if part(t, "key") == _CORDON]
        since = next((t["timeAdded"] for t in taints if isinstance(t.get("timeAdded"), str)), None)
        yield _event(host, "drained", None, cells.optional(since, "since"))


def _listed(node: dict[str, Any], *names: str) -> list[Any]:
    found = part(node, *names)
    return found if isinstance(found, list) else []


def _event(host: str, state: str, reason: str | None, start: Any) -> dict[str, Any]:
    return {"host": host, "state": state, "reason": reason, "source": "kubernetes", "start": start}


READERS = (KubernetesNodes(),)
