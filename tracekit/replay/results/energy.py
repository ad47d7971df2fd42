"""GPU energy of a replay, by the power model M7."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.replay.assumptions.costs import power_config
from tracekit.replay.assumptions.of_jobs import utilization_ppm
from tracekit.replay.assumptions.speeds import PPM
from tracekit.replay.outcome import fact
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.costs import PowerPrices
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


KWH_MW_MS = 3.6e12
"""One kWh [mW * ms]."""


class PowerDraw(NamedTuple):
    """Power of GPUs at full clock, in whole milliwatts."""

    idle: NDArray[np.int64]
    """Power of all GPUs of each node while it has no jobs [mW] (N,)."""
    busy: NDArray[np.int64]
    """u * max for a GPU of each job [mW] (n,)."""
    rest: NDArray[np.int64]
    """u * idle for a GPU of each job. `busy` minus this value is added to the idle power [mW] (n,)."""


def power_draw_mw(jobs: Jobs, cluster: Cluster, models: Models) -> PowerDraw:
    """Return the GPU power draw according to M7.

    A job that requests a GPU model of the cluster draws that model's power. Any other job draws the mean over all GPUs
    of the cluster, wherever it runs. Utilization comes from `utilization_ppm`.
    """
    per_model = np.array([_watts(models, name) for name in cluster.models] or [_watts(models, "")])
    watts = per_model[cluster.model] if cluster.nodes else per_model[:0]
    mean = np.average(watts, axis=0, weights=cluster.gpus) if cluster.nodes else per_model[0]
    model_of = np.array([cluster.models.index(name) if name in cluster.models else -1 for name in jobs.models] + [-1])
    # Jobs without a model have the index -1, which refers to the last element.
    known = model_of[jobs.model]
    of_job = np.where((known >= 0)[:, None], per_model[known], mean)
    drawn = np.rint(of_job * (1000 * utilization_ppm(models, jobs) / PPM)[:, None]).astype(np.int64)
    idle = np.rint(1000 * watts[:, 0] * cluster.gpus).astype(np.int64)
    return PowerDraw(idle, drawn[:, 1].copy(), drawn[:, 0].copy())


def energy_kwh(jobs: Jobs, cluster: Cluster, outcome: Outcome, models: Models) -> float:
    """Return the GPU energy from time 0 to the last end, all at full clock [kWh].

    According to M7, a GPU uses idle + u * (max - idle) at full clock, which is linear in utilization, as in the system
    configurations of ExaDigiT RAPS. The energy is therefore the idle power of all GPUs over the whole time
    (`idle_energy_kwh`), plus u_j * (max - idle) for the allocated GPU time of each job j, overheads included.
    `power_draw_mw` gives the power for each job. We assume that a job that runs slower than recorded uses its GPUs just
    as much. If jobs share GPUs, no GPU is more than fully used, so the sum of u_j times allocated GPU time counts only
    up to the GPU time in use.
    """
    draws = power_draw_mw(jobs, cluster, models)
    held = outcome.held_milli_ms.astype(np.float64)
    on_top = float((held * (draws.busy - draws.rest)).sum())
    worked = float((held * (utilization_ppm(models, jobs) / PPM)).sum())
    if worked > outcome.busy_milli_ms:
        on_top *= outcome.busy_milli_ms / worked
    return idle_energy_kwh(draws.idle, cluster, outcome) + on_top / 1000 / KWH_MW_MS


def idle_energy_kwh(idle_mw: NDArray[np.int64], cluster: Cluster, outcome: Outcome) -> float:
    """Return the idle energy of all GPUs, from time 0 to the last end [kWh].

    GPUs of a node that left use power while jobs run on them. We do not record which nodes these are, so their GPUs
    draw the cluster's mean power.
    """
    present = _present_ms(cluster, outcome.makespan_ms)
    energy = float((present * idle_mw).sum())
    on_left_nodes = (outcome.busy_milli_ms + outcome.free_milli_ms) / 1000 - float((present * cluster.gpus).sum())
    if on_left_nodes > 0:
        energy += on_left_nodes * float(idle_mw.sum()) / cluster.total_gpus
    return energy / KWH_MW_MS


def idle_cost(
    idle_mw: NDArray[np.int64], cluster: Cluster, end_ms: int, prices: PowerPrices, energy_kwh: float
) -> float:
    """Return the cost of the idle energy of all GPUs, from time 0 to the last end.

    `energy_kwh` adds the idle energy of nodes that left; it costs the mean price.
    """
    # The integral of the price over the time in which each node was available.
    paid = _while_present(cluster, end_ms, lambda time: float(prices.paid(end_ms) - prices.paid(time)))
    present = float((_present_ms(cluster, end_ms) * idle_mw).sum()) / KWH_MW_MS
    mean = float(prices.paid(end_ms) - prices.paid(0)) / max(end_ms, 1)
    return float((paid * idle_mw).sum()) / KWH_MW_MS + (energy_kwh - present) * mean


def utilization_assumption(jobs: Jobs, models: Models) -> dict[str, str]:
    """Return the printed assumption about the utilization behind the energy."""
    unknown = int(np.isnan(jobs.utilization).sum())
    usual = percent(models.interference.utilization)
    value = f"{usual} for {unknown:,} of {len(jobs):,} jobs, for which the trace has no mean utilization"
    return fact("GPU utilization, for energy", value, "interference.utilization of the models (M1)")


def _watts(models: Models, name: str) -> tuple[float, float]:
    config = power_config(models, name)
    return config.idle_w, config.max_w


def _present_ms(cluster: Cluster, end_ms: int) -> NDArray[np.float64]:
    """Return how long each node was available between time 0 and the end (N,) [ms]."""
    return _while_present(cluster, end_ms, lambda time: float(end_ms - time))


def _while_present(cluster: Cluster, end_ms: int, until_end: Callable[[int], float]) -> NDArray[np.float64]:
    """Return the integral of a function over the time in which each node was available, up to the end (N,).

    `until_end` returns the integral from a time [ms] to the end.
    """
    found = np.where(cluster.absent != 0, 0.0, until_end(0))
    for time, node, joins in cluster.effective_changes():
        left = until_end(min(max(time, 0), end_ms))
        found[node] += left if joins else -left
    return found


def power_cap_assumption(outcome: Outcome) -> dict[str, str]:
    """Return the printed assumption about the power cap. `Outcome.power` must exist."""
    found = outcome.power
    if found is None:
        return {}
    span = max(outcome.makespan_ms, 1)
    value = (
        f"the peak was {found.peak_w / 1000:,.1f} kW; the clock was lowered for {percent(found.slowed_ms / span)} of"
        f" the time, and for {percent(found.over_ms / span)} even the lowest clock did not keep the cap"
    )
    return fact("the power cap", value, "the engine")
