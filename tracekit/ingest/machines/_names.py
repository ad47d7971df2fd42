"""Which machine of a Trace a name in a machine file means."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_LETTER = re.compile(r"[^\W\d_]")


class Machine(NamedTuple):
    """A name, and the cluster it stands in."""

    name: str
    cluster: str | None


def machine_ids(known: Iterable[Machine], found: Iterable[Machine]) -> tuple[dict[Machine, str], list[str]]:
    """Return the node_id of each machine of machine files, and the names that may mean several machines.

    A name means the machine of the Trace with the same node_id; else the one whose node_id is CLUSTER/NAME; else the
    one with the same name up to the first dot. Clusters that are both known have to agree. A name that means no
    machine of the Trace names a new one, CLUSTER/NAME where the Trace has several clusters or only others.

    Parameters
    ----------
    known : iterable of Machine
        node_id and cluster of the machines of the Trace.
    found : iterable of Machine
        Names in machine files, each with its cluster where the file says so.
    """
    mine, theirs = sorted(set(known), key=str), sorted(set(found), key=str)
    clusters = {machine.cluster for machine in mine if machine.cluster is not None}
    levels = tuple(_index(mine, key) for key in (_whole, _base, _short))
    shorts: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for machine in theirs:
        shorts[_short(machine.name), machine.cluster].add(machine.name)
    ids: dict[Machine, str] = {}
    doubtful: list[str] = []
    for machine in theirs:
        fits: list[Machine] = []
        for index, key in zip(levels, (_whole, _whole, _short), strict=True):
            if key is _short and len(shorts[_short(machine.name), machine.cluster]) > 1:
                continue
            fits = [
                other
                for other in index.get(key(machine.name), [])
                if machine.cluster is None or other.cluster is None or machine.cluster == other.cluster
            ]
            if fits:
                break
        if len(fits) > 1:
            doubtful.append(machine.name)
        elif fits:
            ids[machine] = fits[0].name
        else:
            apart = machine.cluster is not None and (len(clusters) > 1 or bool(clusters - {machine.cluster}))
            ids[machine] = f"{machine.cluster}/{machine.name}" if apart else machine.name
    return ids, doubtful


def _index(machines: list[Machine], key: object) -> dict[str, list[Machine]]:
    index: dict[str, list[Machine]] = defaultdict(list)
    for machine in machines:
        index[key(machine.name)].append(machine)  # type: ignore[operator]  # one of the three functions below
    return index


def _whole(name: str) -> str:
    return name


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _short(name: str) -> str:
    """Return the name up to the first dot; that of an address, which has no letters, is whole."""
    base = _base(name)
    first = base.partition(".")[0]
    return first if _LETTER.search(first) else base
