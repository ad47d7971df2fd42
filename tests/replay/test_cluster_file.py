from __future__ import annotations

import json
import tempfile
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters
from tracekit.errors import UsageError
from tracekit.replay.clusters.file import read_cluster

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster

JOBS = make_jobs([(0, 1, 1)])  # the first submission is 2020-01-01 00:00 UTC

POOL = "[[pool]]\nnodes = 2\ngpus_per_node = 8\n"


def write_cluster(cluster: Cluster) -> str:
    """Return the TOML text from which `read_cluster` makes the same cluster."""
    divided = any(cluster.domains)
    lines = [f"origin = {_quoted(cluster.origin)}", f"partitioned = {_word(divided)}"]
    columns = (cluster.gpus, cluster.model, cluster.rack, cluster.domain, cluster.cpu_milli, cluster.memory_mib)
    alike = list(zip(*(column.tolist() for column in (*columns, cluster.absent, cluster.serves)), strict=True))
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
    gpus, model, rack, domain, cpu, memory, absent, serves = key
    lines = [f"gpus_per_node = {gpus}"]
    named = (("model", cluster.models[model]), ("rack", cluster.racks[rack]), ("vc", cluster.domains[domain]))
    lines += [f"{name} = {_quoted(value)}" for name, value in named if value]
    partitions = cluster.partition_sets[serves]
    lines += [f"partitions = [{', '.join(map(_quoted, partitions))}]"] if partitions else []
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


def read(tmp_path: Path, text: str, *, partitioned: bool | None = None) -> Cluster:
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    return read_cluster(path, JOBS, partitioned=partitioned)


def same(left: Cluster, right: Cluster) -> bool:
    """Return whether two clusters are equal but for the order in which their nodes were listed."""
    return all(
        np.array_equal(one, other) and one.dtype == other.dtype if isinstance(one, np.ndarray) else one == other
        for one, other in ((getattr(left, f.name), getattr(right, f.name)) for f in fields(left) if f.name != "place")
    )


FULL = """
partitioned = true

[[pool]]
name = "old"
nodes = 3
gpus_per_node = 4
model = "P100"
racks = ["r1", "r2"]
vc = "b"
cpus = 31.5
memory_gib = 256

[[pool]]
name = "new"
nodes = 1
gpus_per_node = 8
model = "V100"
rack = "r9"
vc = "a"

[vc.a]
quota = [{from = 2019-12-31, quota = 8}, {from = 2020-01-01T01:00:00+01:00, quota = 4}, {from = 7.5, quota = 6}]

[vc.b]
quota = 12
"""


def test_every_key(tmp_path: Path) -> None:
    expected = make_cluster(
        [8, 4, 4, 4],
        domain=["a", "b", "b", "b"],
        model=["V100", "P100", "P100", "P100"],
        rack=["r9", "r1", "r1", "r2"],
        cpu_milli=[-1, 31_500, 31_500, 31_500],
        memory_mib=[-1, 262_144, 262_144, 262_144],
        node_id=["new-0000", "old-0000", "old-0001", "old-0002"],
        quota={"a": [(-86_400, 8), (0, 4), (7.5, 6)], "b": 12},
        origin="the file c.toml",
    )
    found = read(tmp_path, FULL)
    assert same(found, expected)
    assert found.quota.tolist() == [[8, 12], [4, 12], [6, 12]]
    assert found.quota_ms.tolist() == [-86_400_000, 0, 7500]


def test_the_option_goes_before_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, FULL, partitioned=False)
    assert found.domains == [""]
    assert found.tenants == ["a", "b"]
    assert found.models == ["P100", "V100"]
    assert read(tmp_path, FULL.replace("partitioned = true", ""), partitioned=True).domains == ["a", "b"]
    assert read(tmp_path, FULL.replace("partitioned = true", "")).domains == [""]


def test_the_least_that_a_file_may_say(tmp_path: Path) -> None:
    found = read(tmp_path, POOL)
    assert same(found, make_cluster([8, 8], node_id=["pool0-0000", "pool0-0001"], origin="the file c.toml"))


def test_nodes_that_join_and_leave(tmp_path: Path) -> None:
    text = POOL + 'name = "p"\nabsent = true\n[[change]]\nat = 2020-01-02\nnodes = ["p-0001", "p-0000"]\nup = true\n'
    found = read(tmp_path, text + '[[change]]\nat = 1\nnodes = ["p-0000"]\nup = true\n')
    assert found.absent.tolist() == [1, 1]
    assert found.change_ms.tolist() == [1000, 86_400_000, 86_400_000]
    assert found.change_node.tolist() == [0, 0, 1]
    assert found.change_up.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.toml: has no [[pool]], so no GPUs; write at least one pool with nodes and gpus_per_node"),
        ("a = \n", "c.toml, line 1: is not TOML: Invalid value"),
        ("pol = 1\n", "c.toml, line 1: pol: no such key; did you mean 'pool'?"),
        ("pool = 3\n", "c.toml, line 1: pool: 3 is not a list; write [[pool]]"),
        (
            "[[pool]]\nnodes = 1\n",
            "c.toml, line 1: pool[1]: has no gpus_per_node; its keys are: nodes, gpus_per_node, name,",
        ),
        (POOL + "gpu = 1\n", "c.toml, line 4: pool[1].gpu: no such key; choose one of: absent, cpus,"),
        (POOL + "raks = 1\n", "c.toml, line 4: pool[1].raks: no such key; did you mean 'racks'?"),
        (
            POOL + "[[pool]]\nnodes = 0\ngpus_per_node = 8\n",
            "c.toml, line 5: pool[2].nodes: 0 is out of range; it may be from 1 to 1,000,000",
        ),
        (
            "[[pool]]\nnodes = 1\n\n# none\ngpus_per_node = 0\n",
            "c.toml, line 5: pool[1].gpus_per_node: 0 is out of range; it may be from 1 to 1,000,000",
        ),
        ("[[pool]]\nnodes = true\ngpus_per_node = 0\n", "c.toml, line 2: pool[1].nodes: True is not a whole number"),
        ("[[pool]]\nnodes = 2.5\ngpus_per_node = 0\n", "c.toml, line 2: pool[1].nodes: 2.5 is not a whole number"),
        (
            POOL + "[[pool]]\nnodes = 1_000_000\ngpus_per_node = 8\n",
            "c.toml, line 5: pool[2].nodes: the pools have more than 1,000,000 nodes; write fewer",
        ),
        (POOL + "model = 1\n", "c.toml, line 4: pool[1].model: 1 is not a text; write it in quotes"),
        (POOL + "cpus = nan\n", "c.toml, line 4: pool[1].cpus: nan is out of range; it may be from 0 to 1,000,000,000"),
        (
            POOL + "memory_gib = -1\n",
            "c.toml, line 4: pool[1].memory_gib: -1 is out of range; it may be from 0 to 1,000,000,000",
        ),
        (POOL + "absent = 1\n", "c.toml, line 4: pool[1].absent: 1 is neither true nor false"),
        (POOL + "racks = []\n", "c.toml, line 4: pool[1].racks: 0 racks for 2 nodes"),
        (POOL + 'racks = ["a", "b", "c"]\n', "c.toml, line 4: pool[1].racks: 3 racks for 2 nodes"),
        (POOL + "racks = 3\n", "c.toml, line 4: pool[1].racks: 3 is not a list; write [..., ...]"),
        (POOL + 'rack = "a"\nracks = ["a"]\n', "c.toml, line 5: pool[1].racks: a pool has either rack or racks"),
        (POOL + 'node_ids = ["a"]\n', "c.toml, line 4: pool[1].node_ids: has 1 names for 2 nodes"),
        (POOL + 'node_ids = ["a", "a"]\n', "c.toml, line 1: pool: two nodes are called 'a'"),
        ("partitioned = 1\n" + POOL, "c.toml, line 1: partitioned: 1 is neither true nor false"),
        ("partitioned = true\n" + POOL, "c.toml, line 1: partitioned: no pool has a vc"),
        (POOL + "[vc]\na = 3\n", "c.toml, line 5: vc.a: 3 is not a table; write [vc.a]"),
        (POOL + "[vc.a]\n", "c.toml, line 4: vc.a: has no quota; its keys are: quota"),
        (POOL + "[vc.a]\nquotas = 3\n", "c.toml, line 5: vc.a.quotas: no such key; did you mean 'quota'?"),
        (
            POOL + '[vc."a b"]\nquota = -3\n',
            "c.toml, line 5: vc.a b.quota: -3 is out of range; it may be from 0 to 1,000,000,000",
        ),
        (
            POOL + "[vc.a]\nquota = 'all'\n",
            "c.toml, line 5: vc.a.quota: 'all' is neither a whole number nor a list",
        ),
        (POOL + "[vc.a]\nquota = []\n", "c.toml, line 5: vc.a.quota: the list is empty"),
        (
            POOL + "[vc.a]\nquota = [3]\n",
            "c.toml, line 5: vc.a.quota[1]: 3 is not a table; write {from = ..., quota = ...}",
        ),
        (
            POOL + "[vc.a]\nquota = [{from = 2, quota = 1}, {from = 1, quota = 2}]\n",
            "c.toml, line 5: vc.a.quota: the times must rise; sort the list by from",
        ),
        (
            POOL + "[vc.a]\nquota = [{from = 12:00:00, quota = 1}]\n",
            "c.toml, line 5: vc.a.quota[1].from: 12:00:00 is neither a date nor a number",
        ),
        (
            POOL + "[vc.a]\nquota = [{from = inf, quota = 1}]\n",
            "c.toml, line 5: vc.a.quota[1].from: inf is out of range",
        ),
        (POOL + "[[change]]\nat = 1\n", "c.toml, line 4: change[1]: has no nodes; its keys are: at, nodes, up"),
        (
            POOL + '[[change]]\nat = 1\nnodes = ["pool0-0009"]\nup = true\n',
            "c.toml, line 6: change[1].nodes: no node 'pool0-0009'; did you mean 'pool0-0001'?",
        ),
    ],
)
def test_each_mistake_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    told = str(caught.value).removeprefix(f"{tmp_path}/")
    assert told.startswith(message)
    assert "\n" not in told


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the cluster: No such file"):
        read_cluster(tmp_path / "none.toml", JOBS)
    with pytest.raises(UsageError, match="cannot read the cluster: Is a directory"):
        read_cluster(tmp_path, JOBS)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_cluster(tmp_path / "bytes", JOBS)


@given(clusters())
def test_what_is_written_reads_back(cluster: Cluster) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.toml"
        path.write_text(write_cluster(cluster), encoding="utf-8")
        assert same(read_cluster(path, JOBS), cluster)


def test_odd_names_and_numbers_read_back(tmp_path: Path) -> None:
    names = ['a "b"', "c\\d", "tab\tnew\nline\x7f", "日本", "a.b = [x]", "'"]
    cluster = make_cluster(
        [1] * 6,
        node_id=names,
        model=names,
        rack=names,
        domain=names,
        cpu_milli=range(6),
        memory_mib=range(6),
        quota={name: [(-0.001, 1), (1e9 + 0.001, 2)] for name in names},
        origin=names[2],
    )
    assert same(read(tmp_path, write_cluster(cluster)), cluster)


def test_one_quota_from_a_later_time_keeps_its_time(tmp_path: Path) -> None:
    cluster = make_cluster([8], quota={"a": [(5, 3)]})
    assert same(read(tmp_path, write_cluster(cluster)), cluster)
