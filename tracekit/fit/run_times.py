"""Fit run times by group: all jobs, size class, virtual cluster, and status.

Durations are fitted by two measures. `demand` is the run time of jobs that nothing stops, so jobs that were cancelled,
timed out, were preempted, lost their node or are still running are right-censored. `until_end` is the time for which
jobs kept their resources, regardless of how they ended, so only jobs still running are right-censored. A group with
fewer than 200 jobs is pooled instead of fitted. It takes the shape of the first that exists of the following, shifted
to its own median if at least 20 of its durations have a known end.

- size class, also by status: the jobs with the same status in its class and the neighboring classes (`neighbours`)
- class by status: its class; the jobs with any status in its class and the neighboring classes; its status
- any: all jobs
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from tracekit.fit.choice import describe, observed_quantiles
from tracekit.fit.jobs import CLASSES, STOPPED, UNFINISHED
from tracekit.fit.sample import Sample, resolution_of
from tracekit.fit.splice import longest_drawn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tracekit.fit.choice import Effort
    from tracekit.fit.jobs import JobTable


# A size class with few jobs is pooled with its neighboring classes.

_WITH_GPUS = CLASSES[1:]
"""Classes with neighbors. CPU jobs differ in kind, so their class has none."""


def neighbours(jobs: Mapping[str, int], name: str, least: int) -> list[str] | None:
    """Return the size classes to pool, small to large.

    The pool starts with the class itself and grows by the next smaller or larger class with jobs, whichever has fewer
    (the smaller class if equal), until there are enough. This keeps the class's own share as large as possible.

    Parameters
    ----------
    jobs : mapping
        Number of jobs in each size class.
    name : str
        The class with few jobs.
    least : int
        Sufficient number of jobs.

    Returns
    -------
    list or None
        None if all classes with GPUs together have too few jobs, or if the class is for jobs without GPUs.
    """
    there = [c for c in _WITH_GPUS if jobs.get(c)]
    if name not in there:
        return None
    first = last = there.index(name)
    while sum(jobs[c] for c in there[first : last + 1]) < least:
        smaller = jobs[there[first - 1]] if first > 0 else None
        larger = jobs[there[last + 1]] if last + 1 < len(there) else None
        if smaller is not None and (larger is None or smaller <= larger):
            first -= 1
        elif larger is not None:
            last += 1
        else:
            return None
    return there[first : last + 1]


LEAST_JOBS = 200
"""Minimum number of jobs for a separate fit of a group."""

LEAST_KNOWN = 20
"""Minimum number of known ends for a pooled group's own median and for a size class's quantiles."""
_KEYS = ("gpu_class", "status", "cluster", "vc")
_ALL: dict[str, str | None] = dict.fromkeys(_KEYS)


@dataclass(frozen=True)
class _Group:
    measure: str
    key: dict[str, str | None]
    jobs: pl.DataFrame
    classes: tuple[str, ...] = ()
    """Size classes of a pool, if it has several."""

    @property
    def head(self) -> dict[str, Any]:
        """The keys of the group in workload.json."""
        if self.classes:
            return {"measure": self.measure, "gpu_classes": list(self.classes), "status": self.key["status"]}
        return {"measure": self.measure, **self.key}

    @property
    def name(self) -> str:
        """The keys that distinguish the group from the others."""
        return str(tuple(self.head.values()))

    @property
    def whole(self) -> bool:
        """Whether these are all jobs."""
        return all(v is None for v in self.key.values())

    @property
    def seen(self) -> pl.Expr:
        """Expression that is true if a duration's end is known."""
        if self.measure == "until_end":
            return pl.col("known")
        return pl.col("known") & ~pl.col("status").is_in(STOPPED).fill_null(value=False)


def fit_run_times(table: JobTable, seed: int, effort: Effort) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the fit of each group of jobs, and of each pool that supplies the shape for small size classes."""
    known = table.frame.filter(pl.col("held_s").is_not_null()).select(
        "held_s", "known", "cluster", "vc", "status", "gpu_class"
    )
    if known.is_empty():
        return [], []
    resolution = resolution_of(known.filter("known")["held_s"].to_numpy())
    longest_s = float(known["held_s"].to_numpy().max())
    stopped = bool((known["status"].is_in(STOPPED).fill_null(value=False) & known["known"]).any())
    groups = _groups(known, stopped=stopped)
    if effort.drawn_only:
        groups = [group for group in groups if group.measure == "until_end" and group.key["vc"] is None]
    shared = _pools(groups)
    big = {group.name: group for group in groups if group.jobs.height >= LEAST_JOBS or group.whole}
    pools = {pool.name: pool for pool in shared.values()}
    supplies = {group.name: _supply(group, big.keys() | pools.keys(), shared) for group in groups}
    if effort.drawn_only and _drawn_by_pair(table, groups):
        pairs = {group.name for group in groups if None not in (group.key["gpu_class"], group.key["status"])}
        used = {supplies[name].group.name for name in pairs}
        groups = [group for group in groups if group.name in pairs | used]
        big, pools = ({name: one for name, one in which.items() if name in used} for which in (big, pools))
    # Fit groups one after the other. Their arrays are short, so threads would mostly wait for each other.
    fits = {one.name: _fit(one, resolution, longest_s, seed, effort) for one in (*big.values(), *pools.values())}
    found = [fits.get(group.name) or _pooled(group, supplies[group.name], fits, resolution) for group in groups]
    return found, [fits[name] for name in pools]


def _drawn_by_pair(table: JobTable, groups: list[_Group]) -> bool:
    """Return whether every job that ended has a group of its size class and status, so that no other group is drawn.

    If all jobs of a size class are still running, jobs of this class are drawn with any status.
    """
    running = pl.col("status").is_in(UNFINISHED).fill_null(value=False)
    pairs = set(table.frame.filter(~running).select(pl.col("gpu_class", "status").cast(pl.String)).unique().rows())
    classes = set(table.frame["gpu_class"].cast(pl.String).unique())
    have = {(group.key["gpu_class"], group.key["status"]) for group in groups}
    return classes == {size for size, _ in pairs} and all(None not in pair and pair in have for pair in pairs)


def _pools(groups: list[_Group]) -> dict[str, _Group]:
    """Return the pool of neighboring size classes that supplies the shape of each small group, by group name."""
    sets: dict[tuple[str, str | None], dict[str, _Group]] = {}
    for group in groups:
        size = group.key["gpu_class"]
        if size is not None:
            sets.setdefault((group.measure, group.key["status"]), {})[size] = group
    found = {}
    for (measure, status), by_class in sets.items():
        counts = {name: group.jobs.height for name, group in by_class.items()}
        for name, group in by_class.items():
            classes = neighbours(counts, name, LEAST_JOBS) if counts[name] < LEAST_JOBS else None
            if classes is not None:
                jobs = pl.concat([by_class[c].jobs for c in classes])
                found[group.name] = _Group(measure, {**_ALL, "status": status}, jobs, tuple(classes))
    return found


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


def _fit(group: _Group, resolution: float, longest_s: float, seed: int, effort: Effort) -> dict[str, Any]:
    observed = group.jobs.filter(group.seen)["held_s"].to_numpy()
    right = group.jobs.filter(~group.seen)["held_s"].to_numpy()
    sample = Sample.make(observed, right, resolution_s=resolution)
    one_tenant = group.key["vc"] is not None
    rng = seeded(seed, group.name)
    shape = describe(
        sample,
        rng,
        effort,
        bound_s=None if one_tenant else longest_drawn(longest_s, sample.n, sample.right_n_total),
        p_tail=group.key["status"] is None,
        p_value=not one_tenant,
    )
    return {**group.head, **({} if group.classes else {"pooled_to": None}), **shape}


class _Supply(NamedTuple):
    """The group that supplies the shape of another group."""

    way: str
    """Value of `pooled_to`."""
    group: _Group


def _supply(group: _Group, fitted: Collection[str], shared: dict[str, _Group]) -> _Supply:
    """Return the group itself if it is fitted, or else the first fitted group from which it may take its shape."""
    key = group.key
    ways: list[tuple[str, _Group | None]] = [("own", group), ("neighbours", shared.get(group.name))]
    if key["gpu_class"] is not None and key["status"] is not None:
        its_class, its_status = (replace(group, key={**_ALL, name: key[name]}) for name in ("gpu_class", "status"))
        ways += [("gpu_class", its_class), ("neighbours", shared.get(its_class.name)), ("status", its_status)]
    ways.append(("all", replace(group, key=_ALL)))
    return next(_Supply(way, of) for way, of in ways if of is not None and of.name in fitted)


def _pooled(group: _Group, supply: _Supply, fits: dict[str, dict[str, Any]], resolution: float) -> dict[str, Any]:
    key, name, whose = group.key, *supply
    parent = fits[whose.name]
    seen = group.jobs.filter(group.seen)["held_s"].to_numpy()
    right = group.jobs.filter(~group.seen)["held_s"].to_numpy()
    own = None
    if seen.size >= LEAST_KNOWN:
        own = observed_quantiles(Sample.make(seen, right, resolution_s=resolution))
    # Both medians include censored jobs. Otherwise a group whose jobs are often stopped would seem to have short run
    # times.
    median, middle = _median(own), _median(parent["quantiles_s"])
    ratio = median / middle if middle > 0 and median > 0 else None
    found: dict[str, Any] = {**group.head, "n": group.jobs.height, "pooled_to": name, "median_ratio": ratio}
    if name == "neighbours":
        found |= {"pooled_classes": list(whose.classes), "pooled_status": whose.key["status"]}
    found |= {"drawn_from": parent["drawn_from"], "right_censored": right.size}
    if key["status"] is None and key["vc"] is None and own is not None:
        found["quantiles_s"] = own
    return found


def _median(quantiles: list[list[float]] | None) -> float:
    """Return the median duration, or 0 if the quantiles do not reach it."""
    return next((value for level, value in quantiles or [] if level == 0.5), 0.0)


def seeded(seed: int, word: str) -> np.random.Generator:
    """Return a separate random number stream for each word."""
    return np.random.default_rng([seed, zlib.crc32(word.encode())])
