"""Run times by group: all jobs, size class, virtual cluster, and how they ended.

The same durations have two measures. `demand` is how long jobs run when nothing stops them: jobs that were
cancelled, timed out, were preempted, lost their node or still run are right-censored. `until_end` is how long jobs
held their resources, whatever ended them; only jobs that still run are right-censored. A group of less than 200 jobs
is not fitted but pooled: it takes the shape of the first of these that has a fit (class by status: its class, its
status, all jobs; any other: all jobs), moved to its own median where at least 20 of its durations are known to the
end.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.fit.choice import describe, observed_quantiles
from tracekit.fit.jobs import CLASSES, STOPPED
from tracekit.fit.sample import Sample, resolution_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.fit.choice import Effort
    from tracekit.fit.jobs import JobTable

__all__ = ["LEAST_JOBS", "LEAST_KNOWN", "fit_run_times", "seeded"]

LEAST_JOBS = 200
"""Jobs that a group needs for a fit of its own."""

LEAST_KNOWN = 20
"""Durations known to the end that a pooled group needs for its own median, and a size class for its quantiles."""
_KEYS = ("gpu_class", "status", "cluster", "vc")
_ALL: dict[str, str | None] = dict.fromkeys(_KEYS)


@dataclass(frozen=True)
class _Group:
    measure: str
    key: dict[str, str | None]
    jobs: pl.DataFrame

    @property
    def head(self) -> dict[str, str | None]:
        """The keys of the group in workload.json."""
        return {"measure": self.measure, **self.key}

    @property
    def whole(self) -> bool:
        """Whether these are all jobs."""
        return all(v is None for v in self.key.values())

    @property
    def seen(self) -> pl.Expr:
        """Which durations are known to the end."""
        if self.measure == "until_end":
            return pl.col("known")
        return pl.col("known") & ~pl.col("status").is_in(STOPPED).fill_null(value=False)


def fit_run_times(table: JobTable, seed: int, effort: Effort, *, workers: int = 2) -> list[dict[str, Any]]:
    """Return the fit of every group of jobs; the result does not depend on the number of threads (`workers`)."""
    known = table.frame.filter(pl.col("held_s").is_not_null()).select(
        "held_s", "known", "cluster", "vc", "status", "gpu_class"
    )
    if known.is_empty():
        return []
    resolution = resolution_of(known.filter("known")["held_s"].to_numpy())
    stopped = bool((known["status"].is_in(STOPPED).fill_null(value=False) & known["known"]).any())
    groups = _groups(known, stopped=stopped)
    if effort.drawn_only:
        groups = [group for group in groups if group.measure == "until_end" and group.key["vc"] is None]
    big = [group for group in groups if group.jobs.height >= LEAST_JOBS or group.whole]
    with ThreadPoolExecutor(workers) as pool:
        done = list(pool.map(lambda group: _fit(group, resolution, seed, effort), big))
    fits = {_place(fit): fit for fit in done}
    return [fits.get(_place(group.head)) or _pooled(group, fits, resolution) for group in groups]


def _groups(known: pl.DataFrame, *, stopped: bool) -> list[_Group]:
    empty = _ALL
    found = [_Group("until_end", empty, known)]
    by_class = {str(k[0]): part for k, part in known.group_by("gpu_class") if k[0] is not None}
    classes = [c for c in CLASSES if c in by_class]
    found += [_Group("until_end", {**empty, "gpu_class": c}, by_class[c]) for c in classes]
    for scope, part in [(None, known), *((c, by_class[c]) for c in classes)]:
        by_status = {str(k[0]): p for k, p in part.group_by("status") if k[0] is not None}
        ended = sorted(s for s in by_status if by_status[s]["known"].any())
        found += [_Group("until_end", {**empty, "gpu_class": scope, "status": s}, by_status[s]) for s in ended]
    if stopped:
        found.append(_Group("demand", empty, known))
        found += [_Group("demand", {**empty, "gpu_class": c}, by_class[c]) for c in classes]
    measure = "demand" if stopped else "until_end"
    by_vc = {tuple(None if v is None else str(v) for v in k): p for k, p in known.group_by("cluster", "vc")}
    named = sorted((k for k in by_vc if k[1] is not None), key=lambda k: (k[0] or "", k[1] or ""))
    found += [_Group(measure, {**empty, "cluster": k[0], "vc": k[1]}, by_vc[k]) for k in named]
    return found


def _place(head: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(head[name] for name in ("measure", *_KEYS))


def _fit(group: _Group, resolution: float, seed: int, effort: Effort) -> dict[str, Any]:
    observed = group.jobs.filter(group.seen)["held_s"].to_numpy()
    right = group.jobs.filter(~group.seen)["held_s"].to_numpy()
    sample = Sample.make(observed, right, resolution_s=resolution)
    one_tenant = group.key["vc"] is not None
    rng = seeded(seed, str(_place(group.head)))
    tail = not one_tenant and group.key["status"] is None
    shape = describe(sample, rng, effort, tail=tail, p_value=not one_tenant)
    return {**group.head, "pooled_to": None, **shape}


def _pooled(group: _Group, fits: dict[tuple[Any, ...], dict[str, Any]], resolution: float) -> dict[str, Any]:
    key = group.key
    ways: list[tuple[str, dict[str, str | None]]] = []
    if key["gpu_class"] is not None and key["status"] is not None:
        ways = [("gpu_class", {**_ALL, "gpu_class": key["gpu_class"]}), ("status", {**_ALL, "status": key["status"]})]
    ways.append(("all", _ALL))
    name, parent = next((n, fits[p]) for n, k in ways if (p := _place({"measure": group.measure, **k})) in fits)
    seen = group.jobs.filter(group.seen)["held_s"].to_numpy()
    right = group.jobs.filter(~group.seen)["held_s"].to_numpy()
    own = None
    if seen.size >= LEAST_KNOWN:
        own = observed_quantiles(Sample.make(seen, right, resolution_s=resolution))
    # Both medians include censored jobs, or a group that was often stopped would look short.
    median, middle = _median(own), _median(parent["quantiles_s"])
    ratio = median / middle if middle > 0 and median > 0 else None
    found: dict[str, Any] = {**group.head, "n": group.jobs.height, "pooled_to": name, "median_ratio": ratio}
    if key["status"] is None and key["vc"] is None and own is not None:
        found["quantiles_s"] = own
    return found


def _median(quantiles: list[list[float]] | None) -> float:
    """Return the duration at a half, 0 where the quantiles do not reach it."""
    return next((value for level, value in quantiles or [] if level == 0.5), 0.0)


def seeded(seed: int, word: str) -> np.random.Generator:
    """Return a stream of random numbers of its own for each word."""
    return np.random.default_rng([seed, zlib.crc32(word.encode())])
