"""One capacity as plan.json tells it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.capacity_plan.search import figure, interval, target_waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.capacity_plan.nodes import NodeAxis
    from tracekit.capacity_plan.question import HourlyCosts, PlanQuestion

    Floats = NDArray[np.float64]

__all__ = ["capacity_row"]


def capacity_row(
    policy: str, growth: float, axis: NodeAxis, number: int, values: Floats, gpus: int, question: PlanQuestion
) -> dict[str, Any]:
    """Return the row of a capacity.

    Keys: policy, growth, nodes, gpus, by_model (NULL with one model); mean, p50, p90 and p99_wait_s,
    within_target_share, held_share, each the mean over resamples, with the ends of its interval (_low_s and _high_s,
    _low and _high); meets_target; jobs_per_day; gpus_up (GPUs of nodes that are not away, in the mean); offered_share
    (GPU time asked for / that of the GPUs up; NULL where none is); never_start_share; owning_cost_per_day,
    waiting_cost_per_day (of all jobs) and cost_per_day, their sum. A wait is
    NULL where jobs that decide it never start.

    Parameters
    ----------
    values : array of float, shape (R, figures)
        The `FIGURES` by resample.
    """
    capacity = axis.at(number)
    row: dict[str, Any] = {"policy": policy, "growth": growth, "nodes": sum(capacity), "gpus": gpus}
    row["by_model"] = dict(zip(axis.models, capacity, strict=True)) if len(axis.models) > 1 else None
    for name in ("mean_wait_s", "p50_wait_s", "p90_wait_s", "p99_wait_s"):
        row |= _spread(figure(values, name), name.removesuffix("_s"), "_s")
    for name in ("within_target_share", "held_share"):
        row |= _spread(figure(values, name), name, "")
    target = question.target
    meets = target is not None and bool(target_waits(values, target).mean() <= target.limit_s)
    row["meets_target"] = None if target is None else meets
    row["jobs_per_day"] = _mean(values, "jobs_per_day")
    row["gpus_up"] = up = float(figure(values, "gpus_up").mean())
    row["offered_share"] = float(figure(values, "offered_gpus").mean()) / up if up > 0 else None
    row["never_start_share"] = _mean(values, "never_start_share")
    return row | _costs(sum(capacity), _mean(values, "waiting_hours_per_day"), question.costs)


def _mean(values: Floats, name: str) -> float | None:
    found = figure(values, name)
    return float(found.mean()) if len(found) and np.isfinite(found).all() else None


def _spread(values: Floats, stem: str, unit: str) -> dict[str, float | None]:
    keys = (f"{stem}{unit}", f"{stem}_low{unit}", f"{stem}_high{unit}")
    if not len(values):
        return dict.fromkeys(keys)
    found = (float(values.mean()), *interval(values))
    return {key: value if math.isfinite(value) else None for key, value in zip(keys, found, strict=True)}


def _costs(nodes: int, waiting_hours: float | None, costs: HourlyCosts) -> dict[str, float | None]:
    owning = None if costs.node is None else costs.node * nodes * 24
    waiting = None if costs.wait is None or waiting_hours is None else costs.wait * waiting_hours
    whole = None if owning is None or waiting is None else owning + waiting
    return {"owning_cost_per_day": owning, "waiting_cost_per_day": waiting, "cost_per_day": whole}
