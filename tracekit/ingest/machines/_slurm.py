"""Parse a node's state words and generic resources (GPUs), as Slurm's programs print them.

Words and signs: see NODE STATE CODES in slurm.schedmd.com/sinfo.html. A failing node (FAIL, FAILING) "is unavailable
for use per system administrator request", so it counts as drained, which is worse than degraded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.ingest.devices import device_factors
from tracekit.ingest.formats._slurm_cells import gres, tres
from tracekit.ingest.machines._rows import said, unknown_devices
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracekit.ingest.machines._rows import Cells, Row

_MOST_GPUS = 4_096
_STATES = {
    "down": ("down", "error"),
    "maintenance": ("maint", "maintenance", "reboot", "reboot_issued", "reboot_requested"),
    "drained": ("drain", "draining", "drained", "drng", "fail", "failing", "failg"),
}
"""Slurm's words for each state of node_events, the worst state first."""

_NO_MACHINE = ("future", "futr")
_FIT = (
    *("idle", "mix", "mixed", "alloc", "allocated", "comp", "completing", "resv", "reserved", "plnd", "planned"),
    *("unk", "unknown", "boot", "block", "blocked", "inval", "invalid_reg", "err", "npc", "perfctrs"),
    *("power_down", "powering_down", "powered_down", "power_up", "powering_up", "pow_dn", "pow_up"),
)
_SIGNS = re.compile(r"[*~#!%$@^+-]+$")


def fitness(words: str | list[str]) -> str | None:
    """Return the node_events state for a node with these Slurm states, or None if the node is in service.

    For compound states such as DOWN+DRAIN, the worst counts. The * sign alone means that the node is not responding
    right now, which does not take it out of service.

    Parameters
    ----------
    words : str or list of str
        The states as printed, such as `IDLE+DRAIN`, `down*`, `drng@`, or the flags one by one.
    """
    plain = _plain(words)
    return next((state for state, known in _STATES.items() if plain.intersection(known)), None)


def is_no_machine(words: str | list[str]) -> bool:
    """Return whether a name has no machine yet, as in the FUTURE state."""
    return not _plain(words).isdisjoint(_NO_MACHINE)


def is_node_state(words: str) -> bool:
    """Return whether a cell contains a node state, as opposed to a job state."""
    known = {*_FIT, *_NO_MACHINE, *(word for group in _STATES.values() for word in group)}
    return not _plain(words).isdisjoint(known)


def _plain(words: str | list[str]) -> set[str]:
    parts = words.split("+") if isinstance(words, str) else words
    return {_SIGNS.sub("", part.strip()).lower() for part in parts}


def gpus_of(
    host: str, cells: Cells, listed: str | None, configured: str | None = None
) -> tuple[int | None, str | None]:
    """Return a node's number of GPUs and their model. Each is None if unknown; the model also if there are several.

    MIG slices count as the fewest cards that can hold them. The number is unknown if a device is unknown (it is counted
    by name), or if a list is unreadable or has more GPUs than any real machine.

    Parameters
    ----------
    host : str
        The node, or a list of nodes.
    cells : Cells
        Its sink has the gpu_resource option, if the format has this option, and counts unknown devices. `cells` also
        collects unreadable lists.
    listed : str, optional
        The node's GRES, such as `gpu:a100:4(S:0-1)`. `(null)` means none.
    configured : str, optional
        The node's TRES, such as `cpu=32,gres/gpu=4`, used if `listed` has no GPUs, or GPUs without a type.
    """
    if listed is None and configured is None:
        return None, None
    try:
        return _gpus_of(host, cells, listed, configured)
    except ValueError as error:
        cells.lost.add("gres", str(listed if listed is not None else configured), str(error))
        return None, None


def _gpus_of(host: str, cells: Cells, listed: str | None, configured: str | None) -> tuple[int | None, str | None]:
    factors = device_factors(cells.sink.options.get("gpu_resource", ""))
    found = gres(listed or "", factors)
    gpus, model, devices = found.cards, found.model, found.devices
    if (not gpus or model is None) and devices is None and said(configured):
        stated = tres(str(configured), factors)
        if not gpus or stated.model is not None:
            gpus, model, devices = stated.cards, stated.model, stated.devices
    if devices is not None:
        unknown_devices(cells.sink, host, devices)
        return None, None
    if gpus is None or gpus > _MOST_GPUS:
        raise ValueError(f"has {gpus or 0:.0f} GPUs, more than any real machine")
    return round(gpus), None if model is None or "|" in model else model


def words_in(text: str | None) -> list[str] | None:
    """Return the words of a list with commas, sorted; None without a text. Slurm prints (null) for an empty list.

    Sinfo marks the default partition with a star.
    """
    if text is None:
        return None
    return sorted({word.strip().removesuffix("*") for word in (said(text) or "").split(",")} - {""})


def listed(
    node_lists: Iterable[str],
    gpus: tuple[int | None, str | None],
    cpus: int | None,
    memory_mib: int | None,
    event: Row | None,
    cluster: Any = None,
    partitions: list[str] | None = None,
    features: list[str] | None = None,
) -> Iterator[tuple[str, Row]]:
    """Yield each machine in node lists, and the event that takes it out of service. `gpus` comes from `gpus_of`.

    `partitions` and `features` are None if the record does not contain them.

    Raises
    ------
    ValueError
        A list is not a node list.
    """
    machine = {
        "cluster": cluster,
        "gpu_count": gpus[0],
        "gpu_model": gpus[1],
        "cpu_count": cpus,
        "memory_gib": None if memory_mib is None else memory_mib / 1024,
        "partitions": partitions,
        "features": features,
    }
    for nodes in node_lists:
        for host in expand_nodes(nodes):
            yield "machine", {**machine, "host": host}
            if event is not None:
                yield "event", {**event, "cluster": cluster, "host": host}
