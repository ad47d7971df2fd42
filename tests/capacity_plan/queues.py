"""Queues with known waits: Poisson arrivals, any service times, and c servers, first in, first out."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from tests.replay.builders import make_cluster, make_jobs
from tracekit.calibration.api import graded
from tracekit.calibration.rules import Rules
from tracekit.calibration.workbench import Settings, Workbench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.calibration.api import ClusterCalibration
    from tracekit.replay.clusters.cluster import Cluster

__all__ = ["allen_cunneen", "erlang_c_wait", "queue", "twin_of"]


def erlang_c_wait(servers: int, offered: float, mean_s: float) -> float:
    """Return the mean wait of M/M/c by Erlang C [s], with `offered` in erlangs."""
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    rho = offered / servers
    waits = blocked / (1 - rho * (1 - blocked))
    return waits * mean_s / (servers * (1 - rho))


def allen_cunneen(servers: int, offered: float, mean_s: float, variation: float) -> float:
    """Return the approximate mean wait of M/G/c [s] for the squared coefficient of variation of service times."""
    return erlang_c_wait(servers, offered, mean_s) * (1 + variation) / 2


def starts_of(submit: NDArray[np.float64], run: NDArray[np.float64], servers: int) -> NDArray[np.float64]:
    """Return when each job starts if jobs run first in, first out."""
    free = [0.0] * servers
    found = []
    for at, length in zip(submit.tolist(), run.tolist(), strict=True):
        start = max(at, heapq.heappop(free))
        found.append(start)
        heapq.heappush(free, start + length)
    return np.array(found)


def queue(
    seed: int,
    *,
    days: float = 10,
    servers: int = 8,
    offered: float = 6.0,
    mean_s: float = 600.0,
    variation: float = 1.0,
    growth: float = 0.0,
) -> ClusterCalibration:
    """Return the twin of a queue of one-GPU jobs on one-GPU nodes, whose rule is first in, first out.

    Service times are constant (variation 0), exponential (1) or lognormal. Arrivals grow by `growth` per week.
    """
    random = np.random.default_rng(seed)
    rate = offered / mean_s
    most = rate * (1 + growth) ** (days / 7)
    at = np.sort(random.uniform(0, days * 86_400, random.poisson(most * days * 86_400)))
    at = at[random.random(len(at)) < (1 + growth) ** (at / 86_400 / 7) * rate / most]
    submit = at - at[0]
    n = len(submit)
    if variation == 0:
        run = np.full(n, mean_s)
    elif variation == 1:
        run = random.exponential(mean_s, n)
    else:
        sigma = np.sqrt(np.log1p(variation))
        run = random.lognormal(np.log(mean_s) - sigma**2 / 2, sigma, n)
    run = np.maximum(run, 0.001)
    start = starts_of(submit, run, servers)
    rows = list(zip(submit.tolist(), [1] * n, run.tolist(), strict=True))
    return twin_of(rows, start.tolist(), make_cluster([1] * servers))


def twin_of(
    rows: Sequence[tuple[float, int, float]],
    start: Sequence[float],
    cluster: Cluster,
    *,
    vc: Sequence[str] | str = "vc",
    rules: Rules | None = None,
) -> ClusterCalibration:
    """Return rules (by default first in, first out) as the twin of jobs (submit, GPUs, run) with these starts [s]."""
    jobs = make_jobs(
        rows,
        vc=vc,
        user=[f"u{k % 50}" for k in range(len(rows))],
        recorded_start_ms=[round(s * 1000) for s in start],
        recorded_end_ms=[round((s + row[2]) * 1000) for s, row in zip(start, rows, strict=True)],
    )
    bench = Workbench(jobs, {"stated": lambda *_: cluster}, jobs.submit_ms < 0.6 * jobs.submit_ms.max())
    return graded(bench, Settings(rules or Rules(), "stated", delays=False))
