"""Check whether a cluster can run the jobs at all: offered load over time, and jobs that never fit.

Offered load is the GPU time that submitted jobs request, divided by the available GPU time. Jobs that can never be
placed are excluded, because the replay rejects them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tracekit.text import counted, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Scope = tuple[str, str, Floats, Floats]


DAY_MS = 86_400_000
"""Length of a bin, and minimum length of the whole window [ms]."""

REFUSED_LOAD = 2.0
"""Above this offered load of the whole cluster, a replay shows only a growing queue."""

REFUSED_SHARE = 0.5
"""If more of the jobs, or of their GPU-hours, can never be placed, a replay covers a different workload."""

_MOST_BINS = 4000
_EXAMPLES = 3
_GPU_HOUR = 3_600_000.0

_LOADS = {
    "scope": pl.String,
    "name": pl.String,
    "from_ms": pl.Int64,
    "to_ms": pl.Int64,
    "offered_gpu_hours": pl.Float64,
    "capacity_gpu_hours": pl.Float64,
    "load": pl.Float64,
}


@dataclass(frozen=True)
class Feasibility:
    """The findings before a replay starts."""

    verdict: Literal["ok", "warning", "refuse"]
    """'refuse' means that a replay would show nothing about this workload, unless forced."""
    sentences: tuple[str, ...]
    """The problems, worst first. Empty if there are none."""
    overall: pl.DataFrame
    """Offered load of the whole window: scope ('cluster', 'pool', 'model', 'vc'), name, from_ms, to_ms,
    offered_gpu_hours, capacity_gpu_hours, load (NULL if there is no capacity)."""
    by_day: pl.DataFrame
    """Offered load of each day with a submission (in longer steps if there are more than 4,000 days)."""
    never: pl.DataFrame
    """Jobs that can never be placed: pool (NULL if the jobs belong to none), gpu_model (NULL for any), gpus, jobs,
    gpu_hours, example (a job_id); most GPU-hours first."""
    never_jobs: int
    """Number of jobs that can never be placed."""
    never_share: float
    """The share of these jobs in the GPU-hours of all jobs, or in the number of jobs if no GPU-hours are known."""


def check_feasibility(
    jobs: Jobs,
    cluster: Cluster,
    assignment: Assignment,
    *,
    fit: Literal["place", "count"] = "place",
    relaxed: bool = False,
    scope: Literal[1, 2] = 2,
) -> Feasibility:
    """Check whether the cluster can run the jobs.

    The window runs from the first submission to the last and lasts at least a day. Load is compared with the capacity
    over time, which is the available nodes for the cluster, its pools (domains) and GPU models, and the quotas for VCs.
    A job that requests no model does not count towards any model.

    - 'refuse': more than half of the jobs, or of the GPU-hours, can never be placed, or the load of the whole cluster
      is above 2.
    - 'warning': some job can never be placed, or the load of the cluster, a pool or a model is above 1 over the whole
      window, so its queue grows as long as jobs arrive.
    - 'ok': neither applies. A VC above its quota is only in the tables, because a policy may lend quotas.

    Parameters
    ----------
    jobs, cluster, assignment
        The jobs, the cluster, and where each job may run.
    fit, relaxed, scope
        Settings of the policy's placement (see `Assignment.can_ever_fit`).
    """
    gpu_ms = jobs.work_ms.astype(np.float64) * jobs.devices * (jobs.milli / 1000)
    kinds_fit = assignment.kinds_that_fit(fit, relaxed=relaxed, scope=scope)
    fits = kinds_fit[assignment.kind]
    never = _never(jobs, cluster, assignment, kinds_fit, gpu_ms)
    never_jobs = int(len(jobs) - np.count_nonzero(fits))
    all_gpu_ms = float(gpu_ms.sum())
    jobs_share = never_jobs / max(len(jobs), 1)
    share = float(gpu_ms[~fits].sum()) / all_gpu_ms if all_gpu_ms > 0 else jobs_share
    edges = _edges(jobs)
    overall, by_day = _tables(list(_scopes(jobs, cluster, assignment, np.where(fits, gpu_ms, 0.0), edges)), edges)
    refused, warned = _judged(overall, never, never_jobs, max(share, jobs_share), share, len(jobs))
    return Feasibility(
        verdict="refuse" if refused else "warning" if warned else "ok",
        sentences=(*refused, *warned),
        overall=overall,
        by_day=by_day,
        never=never,
        never_jobs=never_jobs,
        never_share=share,
    )


def _edges(jobs: Jobs) -> Longs:
    """Return the edges of the bins [ms]. The last bin ends with the window."""
    last = int(jobs.submit_ms.max(initial=DAY_MS))
    step = DAY_MS * -(-last // (DAY_MS * _MOST_BINS))
    return np.append(np.arange(0, last, step, dtype=np.int64), last)


def _scopes(jobs: Jobs, cluster: Cluster, assignment: Assignment, gpu_ms: Floats, edges: Longs) -> Iterator[Scope]:
    """For each scope to check, yield its kind, name, and offered and available GPU time by bin [GPU*ms]."""
    bins = len(edges) - 1
    place = np.minimum(jobs.submit_ms // (edges[1] - edges[0]), bins - 1)

    def offered(codes: NDArray[np.int32], number: int) -> Floats:
        """Return the requested GPU time by code and bin. Codes below 0 are ignored."""
        where = np.where(codes >= 0, codes, number) * np.int64(bins) + place
        sums = np.bincount(where, gpu_ms, (number + 1) * bins).reshape(number + 1, bins)[:number]
        return sums.astype(np.float64)

    everyone = np.zeros(len(jobs), dtype=np.int32)
    all_nodes = np.zeros(cluster.nodes, dtype=np.int32)
    yield "cluster", "", offered(everyone, 1)[0], _there(cluster, all_nodes, 0, edges)
    demand = offered(assignment.domain, len(cluster.domains))
    for domain, name in enumerate(cluster.domains):
        yield "pool", name, demand[domain], _there(cluster, cluster.domain, domain, edges)
    index = {name.casefold(): code for code, name in enumerate(cluster.models) if name}
    of_model = np.array([index.get(name.casefold(), -1) for name in jobs.models] + [-1], dtype=np.int32)
    if index:
        demand = offered(of_model[jobs.model], len(cluster.models))
        for name_, code in index.items():
            # Model names that differ only in case are one model: jobs accept their nodes equally.
            alike = np.array([name_ == other.casefold() for other in cluster.models], dtype=np.int32)[cluster.model]
            yield "model", cluster.models[code], demand[code], _there(cluster, alike, 1, edges)
    column_of = {name: code for code, name in enumerate(cluster.tenants)}
    of_vc = np.array([column_of.get(name, -1) for name in jobs.tenants] + [-1], dtype=np.int32)
    demand = offered(of_vc[jobs.tenant], len(cluster.tenants))
    for column, name in enumerate(cluster.tenants):
        values = cluster.quota[:, column].astype(np.float64)
        yield "vc", name, demand[column], _integrals(cluster.quota_ms, np.append(values[:1], values), edges)


def _there(cluster: Cluster, codes: NDArray[np.int32], code: int, edges: Longs) -> Floats:
    """Return the GPU time of all nodes with a given code in each bin [GPU*ms]."""
    own = [
        (time, int(cluster.gpus[node]) * (1 if joins else -1))
        for time, node, joins in cluster.effective_changes()
        if codes[node] == code
    ]
    first = float(cluster.gpus[(codes == code) & (cluster.absent == 0)].sum())
    values = first + np.cumsum(np.array([0, *(change for _, change in own)], dtype=np.float64))
    return _integrals(np.array([time for time, _ in own], dtype=np.int64), values, edges)


def _integrals(times: Longs, values: Floats, edges: Longs) -> Floats:
    """Integrate a step function over each bin. It is values[0] at first, and values[i + 1] from times[i]."""
    if not len(values):
        return np.zeros(len(edges) - 1)
    begin = np.concatenate([edges[:1], np.clip(times, edges[0], edges[-1])])
    sums = np.concatenate([[0.0], np.cumsum(np.diff(begin) * values[:-1])])
    place = np.searchsorted(begin, edges, side="right") - 1
    found: Floats = np.diff(sums[place] + (edges - begin[place]) * values[place])
    return found


def _tables(scopes: list[Scope], edges: Longs) -> tuple[pl.DataFrame, pl.DataFrame]:
    overall: list[pl.DataFrame] = []
    by_day: list[pl.DataFrame] = []
    for kind, name, offered, there in scopes:
        some = np.flatnonzero(offered > 0)
        by_day.append(_rows(kind, name, edges[some], edges[some + 1], offered[some], there[some]))
        sums = offered.sum(keepdims=True), there.sum(keepdims=True)
        overall.append(_rows(kind, name, edges[:1], edges[-1:], *sums))
    return pl.concat(overall), pl.concat(by_day)


def _rows(kind: str, name: str, low: Longs, high: Longs, offered: Floats, there: Floats) -> pl.DataFrame:
    columns = [
        np.repeat(np.array([kind], dtype=object), len(low)),
        np.repeat(np.array([name], dtype=object), len(low)),
        low,
        high,
        offered / _GPU_HOUR,
        there / _GPU_HOUR,
        np.divide(offered, there, out=np.full(len(low), np.nan), where=there > 0),
    ]
    series = [pl.Series(key, values, dtype) for (key, dtype), values in zip(_LOADS.items(), columns, strict=True)]
    return pl.DataFrame(series).with_columns(pl.col("load").fill_nan(None))


def _never(
    jobs: Jobs, cluster: Cluster, assignment: Assignment, kinds_fit: NDArray[np.bool_], gpu_ms: Floats
) -> pl.DataFrame:
    bad = np.flatnonzero(~kinds_fit)
    counts = np.bincount(assignment.kind, minlength=len(kinds_fit))
    hours = np.bincount(assignment.kind, gpu_ms, len(kinds_fit)) / _GPU_HOUR
    where, which = assignment.kind_domain[bad].tolist(), assignment.kind_model[bad].tolist()
    if len(bad):
        members = np.flatnonzero(~kinds_fit[assignment.kind])[::-1]
        first = np.zeros(len(kinds_fit), dtype=np.int64)
        first[assignment.kind[members]] = members
        example = jobs.job_id.gather(first[bad]).to_list()
    else:
        example = []
    return pl.DataFrame(
        {
            "pool": [cluster.domains[d] if d >= 0 else None for d in where],
            "gpu_model": [jobs.models[m] if m >= 0 else None for m in which],
            "gpus": assignment.kind_devices[bad].astype(np.int64),
            "jobs": counts[bad].astype(np.int64),
            "gpu_hours": hours[bad],
            "example": example,
        },
        schema_overrides={"pool": pl.String, "gpu_model": pl.String, "example": pl.String},
    ).sort("gpu_hours", descending=True, maintain_order=True)


def _judged(
    overall: pl.DataFrame, never: pl.DataFrame, never_jobs: int, worst_share: float, share: float, jobs: int
) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse the replay, and the warnings, as sentences."""
    refused: list[str] = []
    warned: list[str] = []
    if never_jobs:
        examples = ", ".join(_gang(row) for row in never.head(_EXAMPLES).iter_rows(named=True))
        more = f" and {len(never) - _EXAMPLES} more kinds" if len(never) > _EXAMPLES else ""
        (refused if worst_share > REFUSED_SHARE else warned).append(
            f"{never_jobs:,} of {jobs:,} jobs can never be placed, with {percent(share)} of the GPU-hours:"
            f" {examples}{more}"
        )
    heavy = overall.filter(pl.col("scope") != "vc", (pl.col("load") > 1) | _without_nodes())
    pools = overall.filter(pl.col("scope") == "pool").height
    for row in heavy.sort("load", descending=True, nulls_last=False, maintain_order=True).iter_rows(named=True):
        if row["scope"] == "pool" and pools == 1:
            continue  # same as the cluster
        refuse = row["scope"] == "cluster" and (row["load"] is None or row["load"] > REFUSED_LOAD)
        demand = (
            f"jobs request GPU time on {_scope(row)}, which has no GPUs"
            if row["load"] is None
            else f"jobs request {row['load']:.2f} times the GPU time that {_scope(row)} has"
        )
        (refused if refuse else warned).append(
            f"{demand} over the whole window, so its queue grows as long as jobs arrive"
        )
    return refused, warned


def _without_nodes() -> pl.Expr:
    return pl.col("load").is_null() & (pl.col("offered_gpu_hours") > 0)


def _scope(row: dict[str, str]) -> str:
    if row["scope"] == "cluster":
        return "the cluster"
    if row["scope"] == "model":
        return f"the GPU model '{row['name']}'"
    return f"the pool '{row['name']}'" if row["name"] else "the pool without a name"


def _gang(row: dict[str, Any]) -> str:
    what = f"{row['jobs']:,} with {counted(row['gpus'], 'GPUs')}"
    what += f" of model '{row['gpu_model']}'" if row["gpu_model"] is not None else ""
    if row["pool"] is None:
        what += " whose pool has no nodes"
    elif row["pool"]:
        what += f" in '{row['pool']}'"
    return f"{what} (such as {row['example']})"
