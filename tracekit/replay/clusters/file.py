"""Clusters in TOML files, so that a what-if can be written down, and an observed cluster saved and edited.

    partitioned = true        # each VC is an isolated domain; false when not given

    [[pool]]                  # nodes that are alike
    name = "v100"
    nodes = 16
    gpus_per_node = 8
    model = "V100"            # these and the following may be left out
    racks = ["r1", "r2"]      # the nodes are divided evenly, in order; or rack = "r1"
    vc = "research"
    cpus = 96
    memory_gib = 512

    [vc.research]
    quota = [{from = 2020-04-01, quota = 64}, {from = 2020-05-01, quota = 96}]   # or quota = 64

Times are dates, or seconds after the first submission of the jobs. A written file may also have `node_ids` and
`absent` (not there at first) of a pool, `[[change]]` with `at`, `nodes` and `up` (they join or leave), and `origin`.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import nearest
from tracekit.replay.clusters.nodes import Node, Quotas, make_cluster
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.replay.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.toml_text import Place

__all__ = ["read_cluster", "write_cluster"]

_TOP = ("change", "origin", "partitioned", "pool", "vc")
_POOL = (
    "absent",
    "cpus",
    "gpus_per_node",
    "memory_gib",
    "model",
    "name",
    "node_ids",
    "nodes",
    "rack",
    "racks",
    "vc",
)
_MOST = 1_000_000
"""Most nodes, GPUs of a node, and the like: more is a slip of the pen."""

_MOST_SECONDS = 1e11


def read_cluster(path: Path, jobs: Jobs, *, partitioned: bool | None = None) -> Cluster:
    """Return the cluster that a TOML file describes (see the module for its keys).

    Parameters
    ----------
    path : Path
        The file.
    jobs : Jobs
        The jobs whose first submission is time 0.
    partitioned : bool, optional
        Whether each VC is an isolated domain, instead of what the file says.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has a key or value that cannot be used, with the line.
    """
    text = TomlText(path, "cluster")
    data = text.data
    _check_keys(text, (), data, _TOP)
    divided = _flag(text, ("partitioned",), data.get("partitioned", False)) if partitioned is None else partitioned
    pools = _tables(text, "pool", data.get("pool", []))
    if not pools:
        raise text.error((), "has no [[pool]], so no GPUs", "write at least one pool with nodes and gpus_per_node")
    nodes: list[Node] = []
    for number, pool in enumerate(pools):
        nodes += _nodes(text, number, pool, room=_MOST - len(nodes))
    if divided and not any(node.domain for node in nodes):
        raise text.error(("partitioned",), "no pool has a vc, so the cluster cannot be partitioned", "give pools a vc")
    nodes = _changed(text, data, nodes, jobs)
    if not divided:
        nodes = [Node(**{**vars(node), "domain": ""}) for node in nodes]
    origin = _text(text, ("origin",), data["origin"]) if "origin" in data else f"the file {path.name}"
    return make_cluster(nodes, _quotas(text, data.get("vc", {}), jobs), origin)


def _check_keys(text: TomlText, at: Place, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise text.error((*at, key), "no such key", nearest(key, known))


def _tables(text: TomlText, name: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise text.error((name,), "must be a list of tables", f"write it as [[{name}]]")
    return value


def _nodes(text: TomlText, number: int, pool: dict[str, Any], room: int) -> list[Node]:
    at: Place = ("pool", number)
    _check_keys(text, at, pool, _POOL)
    for key in ("nodes", "gpus_per_node"):
        if key not in pool:
            raise text.error(at, f"lacks the key {key}", f"such as {key} = 8")
    count = _whole(text, (*at, "nodes"), pool["nodes"], low=1)
    if count > room:
        raise text.error((*at, "nodes"), f"the pools have more than {_MOST:,} nodes", "write fewer")
    gpus = _whole(text, (*at, "gpus_per_node"), pool["gpus_per_node"], low=1)
    strings = {key: _text(text, (*at, key), pool.get(key, "")) for key in ("model", "rack", "vc")}
    name = _text(text, (*at, "name"), pool.get("name", f"pool{number}"))
    ids = [f"{name}-{i:04d}" for i in range(count)]
    if "node_ids" in pool:
        ids = _texts(text, (*at, "node_ids"), pool["node_ids"])
        if len(ids) != count:
            raise text.error((*at, "node_ids"), f"has {len(ids)} names for {count} nodes", "name each node once")
    if "racks" in pool and "rack" in pool:
        raise text.error((*at, "racks"), "a pool has either rack or racks", "remove one of them")
    racks = _texts(text, (*at, "racks"), pool["racks"]) if "racks" in pool else [strings["rack"]]
    if not 1 <= len(racks) <= count:
        raise text.error((*at, "racks"), f"{len(racks)} racks for {count} nodes", "write 1 to as many racks as nodes")
    cpu = _amount(text, (*at, "cpus"), pool.get("cpus"), 1000)
    memory = _amount(text, (*at, "memory_gib"), pool.get("memory_gib"), 1024)
    absent = _flag(text, (*at, "absent"), pool.get("absent", False))
    return [
        Node(ids[i], gpus, strings["model"], racks[i * len(racks) // count], strings["vc"], cpu, memory, absent)
        for i in range(count)
    ]


def _changed(text: TomlText, data: dict[str, Any], nodes: list[Node], jobs: Jobs) -> list[Node]:
    """Return the nodes with the times at which they join and leave."""
    names: dict[str, int] = {}
    for number, node in enumerate(nodes):
        if names.setdefault(node.name, number) != number:
            raise text.error(("pool",), f"two nodes are called '{node.name}'", "give the pools different names")
    moves: dict[int, list[tuple[int, bool]]] = {}
    for number, change in enumerate(_tables(text, "change", data.get("change", []))):
        at: Place = ("change", number)
        _check_keys(text, at, change, ("at", "nodes", "up"))
        for key in ("at", "nodes", "up"):
            if key not in change:
                raise text.error(at, f"lacks the key {key}", "write at, nodes and up")
        moment = (_time(text, (*at, "at"), change["at"], jobs), _flag(text, (*at, "up"), change["up"]))
        for name in _texts(text, (*at, "nodes"), change["nodes"]):
            if name not in names:
                raise text.error((*at, "nodes"), f"no node '{name[:80]}'", nearest(name, list(names)[:200]))
            moves.setdefault(names[name], []).append(moment)
    return [
        Node(**{**vars(node), "changes": tuple(moves[number])}) if number in moves else node
        for number, node in enumerate(nodes)
    ]


def _quotas(text: TomlText, table: Any, jobs: Jobs) -> Quotas:
    if not isinstance(table, dict) or not all(isinstance(value, dict) for value in table.values()):
        raise text.error(("vc",), "must be tables, one a VC", "write them as [vc.NAME]")
    steps: dict[str, list[tuple[int | None, int]]] = {}
    for vc, keys in table.items():
        _check_keys(text, ("vc", vc), keys, ("quota",))
        if "quota" not in keys:
            raise text.error(("vc", vc), "lacks the key quota", "such as quota = 64")
        steps[vc] = _steps(text, ("vc", vc, "quota"), keys["quota"], jobs)
    times = sorted({at for rows in steps.values() for at, _ in rows if at is not None}) or [0] * bool(steps)
    tenants = sorted(steps)
    gpus = np.zeros((len(times), len(tenants)), dtype=np.int64)
    for column, vc in enumerate(tenants):
        own = np.array([times[0] if at is None else at for at, _ in steps[vc]], dtype=np.int64)
        place = np.maximum(np.searchsorted(own, times, side="right") - 1, 0)
        gpus[:, column] = np.array([quota for _, quota in steps[vc]], dtype=np.int64)[place]
    return Quotas(tenants, np.array(times, dtype=np.int64), gpus)


def _steps(text: TomlText, at: Place, value: Any, jobs: Jobs) -> list[tuple[int | None, int]]:
    """Return (time, quota) rows, ascending; time None holds always."""
    if not isinstance(value, list):
        return [(None, _whole(text, at, value, low=0, most=10**9))]
    rows: list[tuple[int | None, int]] = []
    last = None
    for row in value:
        if not isinstance(row, dict) or set(row) != {"from", "quota"}:
            raise text.error(
                at, "must be a number or a list of {from, quota}", "such as {from = 2020-04-01, quota = 64}"
            )
        time = _time(text, at, row["from"], jobs)
        if last is not None and time <= last:
            raise text.error(at, "the times must rise", "sort the list by from")
        rows.append((time, _whole(text, at, row["quota"], low=0, most=10**9)))
        last = time
    if not rows:
        raise text.error(at, "the list is empty", "such as quota = 64")
    return rows


def _time(text: TomlText, at: Place, value: Any, jobs: Jobs) -> int:
    """Return milliseconds after the first submission."""
    if isinstance(value, dt.date):
        if not isinstance(value, dt.datetime):
            value = dt.datetime.combine(value, dt.time())
        naive = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        origin = jobs.origin.astimezone(dt.UTC).replace(tzinfo=None) if jobs.origin.tzinfo else jobs.origin
        micros: int = (naive - origin) // dt.timedelta(microseconds=1)
        return (micros + 500) // 1000
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _MOST_SECONDS:
        raise text.error(at, f"{_shown(value)} is not a time", "write a date, or seconds after the first submission")
    return round(value * 1000)


def _whole(text: TomlText, at: Place, value: Any, *, low: int, most: int = _MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
        raise text.error(at, f"{_shown(value)} is not a whole number from {low} to {most:,}")
    return value


def _amount(text: TomlText, at: Place, value: Any, scale: int) -> int:
    if value is None:
        return -1
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 <= value <= 1e9:
        raise text.error(at, f"{_shown(value)} is not a number from 0 to 1,000,000,000")
    scaled: int = round(value * scale)
    return scaled


def _flag(text: TomlText, at: Place, value: Any) -> bool:
    if not isinstance(value, bool):
        raise text.error(at, f"{_shown(value)} is neither true nor false")
    return value


def _text(text: TomlText, at: Place, value: Any) -> str:
    if not isinstance(value, str):
        raise text.error(at, f"{_shown(value)} is not text", 'write it in quotes, like "a"')
    return value


def _texts(text: TomlText, at: Place, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise text.error(at, f"{_shown(value)} is not a list of names", 'such as ["a", "b"]')
    return [_text(text, at, item) for item in value]


def _shown(value: Any) -> str:
    shown = str(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."


def write_cluster(cluster: Cluster) -> str:
    """Return the TOML text from which `read_cluster` makes the same cluster."""
    divided = any(cluster.domains)
    lines = [f"origin = {_quoted(cluster.origin)}", f"partitioned = {_word(divided)}"]
    columns = (cluster.gpus, cluster.model, cluster.rack, cluster.domain, cluster.cpu_milli, cluster.memory_mib)
    alike = list(zip(*(column.tolist() for column in (*columns, cluster.absent)), strict=True))
    for number, (key, members) in enumerate(groupby(range(cluster.nodes), key=alike.__getitem__)):
        ids = [cluster.node_id[node] for node in members]
        lines += ["", "[[pool]]", f"name = {_quoted(f'pool{number}')}", f"nodes = {len(ids)}", *_of_pool(cluster, key)]
        lines.append(f"node_ids = [{', '.join(map(_quoted, ids))}]")
    for column, vc in enumerate(cluster.tenants):
        quota = cluster.quota[:, column].tolist()
        times = [_seconds(at) for at in cluster.quota_ms.tolist()]
        rows = ", ".join(f"{{from = {at}, quota = {gpus}}}" for at, gpus in zip(times, quota, strict=True))
        one = len(quota) == 1 and cluster.quota_ms[0] == 0
        lines += ["", f"[vc.{_quoted(vc)}]", f"quota = {quota[0] if one else f'[{rows}]'}"]
    moves = zip(cluster.change_ms.tolist(), cluster.change_up.tolist(), cluster.change_node.tolist(), strict=True)
    for (at, up), same in groupby(moves, key=lambda move: move[:2]):
        names = ", ".join(_quoted(cluster.node_id[node]) for _, _, node in same)
        lines += ["", "[[change]]", f"at = {_seconds(at)}", f"nodes = [{names}]", f"up = {_word(bool(up))}"]
    return "\n".join(lines) + "\n"


def _of_pool(cluster: Cluster, key: tuple[int, ...]) -> list[str]:
    gpus, model, rack, domain, cpu, memory, absent = key
    lines = [f"gpus_per_node = {gpus}"]
    named = (("model", cluster.models[model]), ("rack", cluster.racks[rack]), ("vc", cluster.domains[domain]))
    lines += [f"{name} = {_quoted(value)}" for name, value in named if value]
    lines += [f"cpus = {cpu / 1000}"] if cpu >= 0 else []
    lines += [f"memory_gib = {memory / 1024}"] if memory >= 0 else []
    return lines + (["absent = true"] if absent else [])


def _seconds(ms: int) -> str:
    return str(ms // 1000) if ms % 1000 == 0 else str(ms / 1000)


def _word(value: bool) -> str:
    return "true" if value else "false"


def _quoted(value: str) -> str:
    # JSON's strings are TOML's basic strings, but for the character DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
