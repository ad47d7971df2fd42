"""Small `Jobs` and `Cluster` values for tests, written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.replay.clusters.cluster import Cluster
from tracekit.replay.jobs import Jobs, LeftOut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["ORIGIN", "make_cluster", "make_jobs"]

ORIGIN = datetime(2020, 1, 1, tzinfo=UTC)
"""Default time of the first submission of jobs made here."""


def make_jobs(
    rows: Sequence[tuple[float, int, float]],
    *,
    vc: str | Sequence[str | None] | None = "vc",
    user: str | Sequence[str | None] | None = "user",
    model: str | Sequence[str | None] | None = None,
    partition: str | Sequence[str | None] | None = None,
    name: int | Sequence[int] = -1,
    milli: int | Sequence[int] = 1000,
    priority: int | Sequence[int] = 0,
    preemptible: int | Sequence[int] = -1,
    cpu_milli: int | Sequence[int] = -1,
    memory_mib: int | Sequence[int] = -1,
    limit_ms: int | Sequence[int] = -1,
    utilization: float | Sequence[float] = float("nan"),
    recorded_start_ms: int | Sequence[int] = -1,
    recorded_end_ms: int | Sequence[int] = -1,
    job_id: Sequence[str] | None = None,
    tenants: Sequence[str] | None = None,
    users: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    left_out: tuple[LeftOut, ...] = (),
    origin: datetime = ORIGIN,
    sort: bool = True,
) -> Jobs:
    """Make jobs from (submit, gpus, run) rows, in seconds (fractions to the millisecond).

    Every keyword takes one value for all jobs or one value per row, in row order. The jobs are called j0, j1, ... by
    row. Rows are sorted by submission (ties keep the row order) unless `sort` is false. Times count from `origin` and
    are not shifted to the first submission.
    """
    n = len(rows)
    submit = np.array([round(row[0] * 1000) for row in rows], dtype=np.int64)
    order = np.argsort(submit, kind="stable") if sort else np.arange(n)

    def column(values: float | Sequence[float], dtype: DTypeLike) -> NDArray[Any]:
        return np.array(_spread(values, n), dtype=dtype)[order]

    def codes(values: str | Sequence[str | None] | None, names: list[str]) -> NDArray[np.int32]:
        index = {text: code for code, text in enumerate(names)}
        return np.array([-1 if value is None else index[value] for value in _spread(values, n)], dtype=np.int32)[order]

    tenant_names = _names(vc, n, tenants)
    user_names = _names(user, n, users)
    model_names = _names(model, n, models)
    partition_names = _names(partition, n, None)
    ids = list(job_id) if job_id is not None else [f"j{row}" for row in range(n)]
    return Jobs(
        origin=origin,
        job_id=pl.Series("job_id", [ids[row] for row in order], dtype=pl.String),
        submit_ms=submit[order],
        work_ms=np.array([round(row[2] * 1000) for row in rows], dtype=np.int64)[order],
        devices=np.array([row[1] for row in rows], dtype=np.int32)[order],
        milli=column(milli, np.int32),
        tenant=codes(vc, tenant_names),
        user=codes(user, user_names),
        model=codes(model, model_names),
        partition=codes(partition, partition_names) if partition_names else None,
        name=column(name, np.int32),
        priority=column(priority, np.int32),
        preemptible=column(preemptible, np.int8),
        cpu_milli=column(cpu_milli, np.int64),
        memory_mib=column(memory_mib, np.int64),
        limit_ms=column(limit_ms, np.int64),
        utilization=column(utilization, np.float64),
        recorded_start_ms=column(recorded_start_ms, np.int64),
        recorded_end_ms=column(recorded_end_ms, np.int64),
        tenants=tenant_names,
        users=user_names,
        partitions=partition_names,
        models=model_names,
        left_out=left_out,
    )


def make_cluster(
    nodes: Sequence[int] = (8,),
    *,
    model: str | Sequence[str] = "",
    rack: str | Sequence[str] = "",
    domain: str | Sequence[str] = "",
    partitions: Sequence[tuple[str, ...]] | None = None,
    cpu_milli: int | Sequence[int] = -1,
    memory_mib: int | Sequence[int] = -1,
    node_id: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    racks: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    quota: Mapping[str, int | Sequence[tuple[float, int]]] | None = None,
    changes: Sequence[tuple[float, int, bool]] = (),
    absent: Sequence[int] = (),
    origin: str = "written by hand",
) -> Cluster:
    """Make a cluster of nodes with the given numbers of GPUs.

    Node keywords take one value for all nodes or one per node. Nodes are sorted by domain, model, number of partitions,
    partitions and rack (ties keep the given order), and are called n0, n1, ... in the sorted order. `quota` gives each
    tenant a number of GPUs or (from, GPUs) rows in seconds. `changes` are (time in seconds, node, joins), and `absent`
    lists the nodes that are missing at first. Both use the index after sorting.
    """
    n = len(nodes)
    model_names = sorted(set(models if models is not None else _spread(model, n)))
    rack_names = sorted(set(racks if racks is not None else _spread(rack, n)))
    domain_names = sorted(set(domains if domains is not None else _spread(domain, n)))
    model_code = np.array([model_names.index(value) for value in _spread(model, n)], dtype=np.int32)
    rack_code = np.array([rack_names.index(value) for value in _spread(rack, n)], dtype=np.int32)
    domain_code = np.array([domain_names.index(value) for value in _spread(domain, n)], dtype=np.int32)
    own_sets = [()] * n if partitions is None else list(partitions)
    sets = sorted(set(own_sets), key=lambda names: (len(names), names))
    set_code = np.array([sets.index(names) for names in own_sets], dtype=np.int32)
    order = np.lexsort((np.arange(n), rack_code, set_code, model_code, domain_code))

    tenants = sorted(quota or {})
    steps = {tenant: [(0.0, rows)] if isinstance(rows, int) else sorted(rows) for tenant, rows in (quota or {}).items()}
    times = sorted({round(at * 1000) for rows in steps.values() for at, _ in rows})
    table = np.zeros((len(times), len(tenants)), dtype=np.int64)
    for column, tenant in enumerate(tenants):
        for row, time in enumerate(times):
            held = [gpus for at, gpus in steps[tenant] if round(at * 1000) <= time]
            table[row, column] = held[-1] if held else steps[tenant][0][1]

    moves = sorted((round(at * 1000), node, up) for at, node, up in changes)
    missing = np.zeros(n, dtype=np.int8)
    missing[list(absent)] = 1
    ids = list(node_id) if node_id is not None else None
    return Cluster(
        node_id=[f"n{i}" for i in range(n)] if ids is None else [ids[i] for i in order],
        gpus=np.array(nodes, dtype=np.int32)[order],
        model=model_code[order],
        rack=rack_code[order],
        domain=domain_code[order],
        serves=set_code[order],
        place=order.astype(np.int32),
        cpu_milli=np.array(_spread(cpu_milli, n), dtype=np.int64)[order],
        memory_mib=np.array(_spread(memory_mib, n), dtype=np.int64)[order],
        models=model_names,
        racks=rack_names,
        domains=domain_names,
        partition_sets=sets,
        tenants=tenants,
        quota_ms=np.array(times, dtype=np.int64),
        quota=table,
        change_ms=np.array([at for at, _, _ in moves], dtype=np.int64),
        change_node=np.array([node for _, node, _ in moves], dtype=np.int32),
        change_up=np.array([up for _, _, up in moves], dtype=np.int8),
        absent=missing,
        origin=origin,
    )


def _spread(values: object, n: int) -> list[Any]:
    """Return one value per row for a keyword that takes one value or one per row."""
    if isinstance(values, (list, tuple, range, np.ndarray)):
        if len(values) != n:
            msg = f"{len(values)} values for {n} rows"
            raise ValueError(msg)
        return list(values)
    return [values] * n


def _names(values: str | Sequence[str | None] | None, n: int, given: Sequence[str] | None) -> list[str]:
    """Return the sorted names in a column."""
    if given is not None:
        return sorted(given)
    return sorted({value for value in _spread(values, n) if value is not None})
