"""What Slurm's programs say of a node: its state in words, and its GPUs as generic resources.

Words and signs: NODE STATE CODES in slurm.schedmd.com/sinfo.html. A node that fails (FAIL, FAILING) "is unavailable for
use per system administrator request", so it is drained and not merely degraded.
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

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.machines._rows import Row
    from tracekit.ingest.sink import Sink

_MOST_GPUS = 4_096
_STATES = {
    "down": ("down", "error"),
    "maintenance": ("maint", "maintenance", "reboot", "reboot_issued", "reboot_requested"),
    "drained": ("drain", "draining", "drained", "drng", "fail", "failing", "failg"),
}
"""Slurm's words by the state of node_events, the worst first."""

_NO_MACHINE = ("future", "futr")
_FIT = (
    *("idle", "mix", "mixed", "alloc", "allocated", "comp", "completing", "resv", "reserved", "plnd", "planned"),
    *("unk", "unknown", "boot", "block", "blocked", "inval", "invalid_reg", "err", "npc", "perfctrs"),
    *("power_down", "powering_down", "powered_down", "power_up", "powering_up", "pow_dn", "pow_up"),
)
_SIGNS = re.compile(r"[*~#!%$@^+-]+$")


def fitness(words: str | list[str]) -> str | None:
    """Return the state of node_events for a node in these states, None for one that is fit.

    Of compound states such as DOWN+DRAIN the worst counts. The sign * alone, a node that does not answer just now,
    does not take it out of service.

    Parameters
    ----------
    words : str or list of str
        As printed, `IDLE+DRAIN`, `down*`, `drng@`; or the flags one by one.
    """
    plain = _plain(words)
    return next((state for state, known in _STATES.items() if plain.intersection(known)), None)


def is_no_machine(words: str | list[str]) -> bool:
    """Return whether a name stands for no machine yet, as those of the state FUTURE."""
    return not _plain(words).isdisjoint(_NO_MACHINE)


def is_node_state(words: str) -> bool:
    """Return whether a cell holds a state of nodes; jobs have others."""
    known = {*_FIT, *_NO_MACHINE, *(word for group in _STATES.values() for word in group)}
    return not _plain(words).isdisjoint(known)


def _plain(words: str | list[str]) -> set[str]:
    parts = words.split("+") if isinstance(words, str) else words
    return {_SIGNS.sub("", part.strip()).lower() for part in parts}


def gpus_of(
    host: str, sink: Sink, lost: LostValues, listed: str | None, configured: str | None = None
) -> tuple[int | None, str | None]:
    """Return the GPUs of a node and their model, None where unknown or of several models.

    GPUs in MIG slices are the fewest cards that can hold the slices. A device that is not understood makes the number
    unknown, and is counted under its name. So does a list that cannot be read, or gives more GPUs than any machine has.

    Parameters
    ----------
    host : str
        The node, or the list of nodes.
    sink : Sink
        Has the option gpu_resource, where the format has it, and counts devices that are not understood.
    listed : str, optional
        Slurm's GRES of the node, `gpu:a100:4(S:0-1)`; `(null)` has none.
    configured : str, optional
        Its TRES, `cpu=32,gres/gpu=4`, used where `listed` has no GPU, or GPUs without a type.
    lost : LostValues
        Receives a list that cannot be read.
    """
    if listed is None and configured is None:
        return None, None
    try:
        return _gpus_of(host, sink, listed, configured)
    except ValueError as error:
        lost.add("gres", str(listed if listed is not None else configured), str(error))
        return None, None


def _gpus_of(host: str, sink: Sink, listed: str | None, configured: str | None) -> tuple[int | None, str | None]:
    factors = device_factors(sink.options.get("gpu_resource", ""))
    found = gres(listed or "", factors)
    gpus, model, devices = found.cards, found.model, found.devices
    if (not gpus or model is None) and devices is None and said(configured):
        stated = tres(str(configured), factors)
        if not gpus or stated.model is not None:
            gpus, model, devices = stated.cards, stated.model, stated.devices
    if devices is not None:
        unknown_devices(sink, host, devices)
        return None, None
    if gpus is None or gpus > _MOST_GPUS:
        raise ValueError(f"has {gpus or 0:.0f} GPUs, more than any real machine")
    return round(gpus), None if model is None or "|" in model else model


def listed(
    node_lists: Iterable[str],
    gpus: tuple[int | None, str | None],
    cpus: int | None,
    memory_mib: int | None,
    event: Row | None,
    cluster: Any = None,
) -> Iterator[tuple[Row, list[Row]]]:
    """Yield each machine of some lists of nodes, with what keeps it from work; `gpus` as `gpus_of` gives them.

    Raises
    ------
    ValueError
        One is not a list of nodes.
    """
    machine = {
        "cluster": cluster,
        "gpu_count": gpus[0],
        "gpu_model": gpus[1],
        "cpu_count": cpus,
        "memory_gib": None if memory_mib is None else memory_mib / 1024,
    }
    for nodes in node_lists:
        for host in expand_nodes(nodes):
            yield {**machine, "host": host}, [] if event is None else [{**event, "cluster": cluster, "host": host}]
