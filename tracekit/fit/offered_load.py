"""Compute the load that jobs offer to a cluster, and the factor on arrivals that gives a requested load.

The offered load is the requested GPU-seconds per second divided by the cluster's GPUs. The requested GPU-seconds per
second are the arrivals per second times the mean of a job's GPUs times its run time. Jobs of unknown size or run time
count as 0. From the first submission to the last, this is the load of `export --target-load`. Above a load of 1, the
queue grows without limit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from tracekit.errors import UsageError
from tracekit.fit.job_draws import durations_at
from tracekit.fit.synthetic import capacity_table, node_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from tracekit.array_types import Floats, Ints
    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.synthetic import Recipe


_LEVELS = 20_000
"""Number of equally likely run times to average. The last is divided further."""


def cluster_gpus(cluster: Mapping[str, Any], scale_gpus: float = 1.0) -> float:
    """Return the GPUs of `fit_cluster`'s machines, or of its quotas if these are unknown, or 0 if both are."""
    counts = node_table(cluster, scale_gpus)["gpu_count"]
    if counts.is_empty() or counts.null_count():
        counts = capacity_table(cluster, 0, scale_gpus)["gpu_count"]
    return float(counts.sum() or 0.0)


def with_load(recipe: Recipe, gpu_seconds_per_s: Callable[[], float], cluster: Mapping[str, Any], what: str) -> Recipe:
    """Return the recipe with the factor on arrivals that gives its load, or unchanged if it has no load.

    Parameters
    ----------
    recipe : Recipe
    gpu_seconds_per_s : callable
        Function that returns the requested GPU time per second at a factor of 1 [GPU*s/s].
    cluster : mapping
        Result of `fit_cluster`, before `recipe.scale_gpus` is applied.
    what : str
        Name of the cluster's source, for error messages.

    Raises
    ------
    UsageError
        The load is not above 0, the recipe already has a factor, the cluster is unknown, or the jobs request no GPU
        time.
    """
    load = recipe.load
    if load is None:
        return recipe
    asked = gpu_seconds_per_s()
    if not (math.isfinite(load) and 0 < load <= 1000):
        raise UsageError(f"must be above 0 and at most 1,000, not {load:g}", where="--load")
    if recipe.scale_load != 1:
        raise UsageError("--load and --scale-load both set how many jobs arrive", hint="leave one out")
    gpus = cluster_gpus(cluster, recipe.scale_gpus)
    if not gpus:
        hint = "add machines or quotas to the Trace before the fit, or use --scale-load"
        raise UsageError(f"{what} does not describe a cluster, so the load is undefined", where="--load", hint=hint)
    if not asked > 0:
        raise UsageError(f"the jobs of {what} have no known GPU time", where="--load", hint="use --scale-load")
    return replace(recipe, scale_load=load * gpus / asked)


def jobs_per_hour(arrivals: Mapping[str, Any]) -> float:
    """Return the mean number of jobs per hour, at the constant rate, or over the log if the rate changes."""
    if arrivals["process"] == "sessions":
        sessions = arrivals["sessions"]
        return jobs_per_hour(sessions["starts"]) * float(sessions["size"]["mean"])
    rate = arrivals["rate"]
    mean = rate.get("mean_per_hour")
    changes = bool(rate.get("pieces")) or rate["trend_per_day"] != 0
    return float(mean if changes and mean is not None else rate["per_hour"]) * float(arrivals["batch"]["mean"])


def gpu_seconds_per_s(gpus: pl.Series, run_s: pl.Series, attempts: tuple[Ints, Floats] | None, days: int) -> float:
    """Return the GPU-seconds per second that the jobs of a number of days request [GPU].

    Parameters
    ----------
    gpus, run_s : Series (n,)
        GPUs that each job requests, and its run time [s], or null if unknown.
    attempts : (array (n,), array), optional
        Number of attempts of each job, and the run time of each attempt in job order [s]. If these run times are known,
        their sum is used, because it contains no gaps.
    days : int
    """
    held = run_s.fill_null(0.0).to_numpy()
    if attempts is not None:
        count, each = attempts
        # A sum is NaN if an attempt's run time is unknown.
        whole = np.bincount(np.repeat(np.arange(held.size), count), each[: count.sum()], held.size)
        held = np.where((count > 0) & (whole >= 0), whole, held)
    return float(held @ gpus.fill_null(0.0).to_numpy()) / (days * 86_400)


def gpu_seconds_of_a_job(model: WorkloadModel) -> float:
    """Return the mean of GPUs times run time over the jobs that a model draws [GPU*s].

    Requests and statuses are drawn by size class. A run time depends only on class and status, so the mean is a sum
    over both. The mean run time is that of the drawn quantiles, truncated at the longest run time.
    """
    document = model.document
    if not model.run_times:
        return 0.0
    tenants, requests, groups = (
        document["users"]["tenants"],
        document["sizes"]["requests"],
        document["statuses"]["groups"],
    )
    shares = np.array([t["share"] for t in tenants], float)
    classes = np.array([t["gpu_class_shares"] for t in tenants], float).reshape(len(tenants), -1)
    of_class = shares @ classes / shares.sum()
    order = [*document["users"]["gpu_classes"], None]
    scores = _scores()
    total = 0.0
    for name, share in zip(order, [*of_class, max(1 - of_class.sum(), 0.0)], strict=True):
        members = [r for r in requests if r["gpu_class"] == name]
        weight = sum(r["share"] for r in members)
        if not share or not weight:
            continue
        gpus = sum(r["share"] * (r["gpu_count"] or 0.0) for r in members) / weight
        ends = [g for g in groups if g["gpu_class"] == name] or groups
        jobs = sum(g["jobs"] for g in ends)
        for group in ends if gpus else []:
            mean = float(scores[1] @ durations_at(model, name, group["status"], scores[0]))
            total += share * gpus * group["jobs"] / jobs * (1 - group["no_run_time_share"]) * mean
    return total


def _scores() -> tuple[Floats, Floats]:
    """Return normal scores and their probabilities, finer in the upper tail, which contains most of the time."""
    body = (np.arange(_LEVELS - 1) + 0.5) / _LEVELS
    edges = np.geomspace(1 / _LEVELS, 1e-12, _LEVELS // 20)
    middle = np.sqrt(edges[:-1] * edges[1:])
    above = special.ndtri(middle)
    weights = np.concatenate([np.full(body.size, 1 / _LEVELS), -np.diff(edges)])
    return np.concatenate([special.ndtri(body), -above]), weights
