"""Synthetic Traces of which one half comes from the log and the other from a model.

'arrivals': when which tenant submits is resampled, as blocks of days (`tracekit.fit.resample`); what is asked for, how
it ends and how long it runs is drawn from the model. 'jobs': jobs come when the model has them come; they are jobs of
the log, whole, in runs of successive ones, so that what a user's jobs have to do with each other stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.fit.arrival_draws import at_rate, draw_arrivals
from tracekit.fit.job_draws import DrawnTenants
from tracekit.fit.log_jobs import NAMES, attempts_of, read_log
from tracekit.fit.offered_load import gpu_seconds_of_a_job, jobs_per_hour, with_load
from tracekit.fit.rate import HOUR_S
from tracekit.fit.resample import TakenJobs, asked_by, taken_days, write_taken
from tracekit.fit.synthetic import check_any
from tracekit.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.log_jobs import LogJobs
    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.synthetic import Extent
    from tracekit.trace import Trace

__all__ = ["arrivals_of_log", "jobs_of_log"]

_DAY_S = 86_400


def arrivals_of_log(
    trace: Trace, model: WorkloadModel, extent: Extent, rng: np.random.Generator, *, load: float | None
) -> tuple[Whole, DrawnTenants]:
    """Return the submission second and the tenant of every job, from blocks of days of the log.

    A tenant asks for the size classes that the model has for it, or else for its VC, or else for all.

    `load` is that of `tracekit.fit.generate.generate`, with the run times and requests of the model.

    Raises
    ------
    UsageError
        The Trace has no jobs that could be taken, or the new one would be too large, or the load cannot be had.
    """
    log = read_log(trace)
    if load is not None:
        asked = gpu_seconds_of_a_job(model) * log.per_day / _DAY_S
        extent = with_load(extent, load, asked, model.document["cluster"], what="the model")
    taken = taken_days(log, extent, trace.timezone, rng)
    seconds = taken.submit.dt.epoch("s").to_numpy().astype(np.int64)
    who = log.jobs.select("user_number", "cluster", "vc")[log.row[taken.place]].with_columns(copy=pl.Series(taken.copy))
    keys = ("user_number", "copy", "cluster", "vc")
    index = who.with_columns(tenant=pl.struct(keys).rank("dense") - 1)
    listed = index.group_by("tenant").agg(pl.col(keys).first(), jobs=pl.len()).sort("tenant")
    names = [(_name(user, copy), cluster, vc) for user, copy, cluster, vc in listed.select(keys).rows()]
    tenant = index["tenant"].to_numpy().astype(np.int64)
    copied = np.zeros(tenant.size, bool)
    copied[1:] = (tenant[1:] == tenant[:-1]) & (seconds[1:] == seconds[:-1])
    shares = listed["jobs"].to_numpy() / tenant.size
    return seconds, DrawnTenants(tenant, copied, names, shares, _classes(model, names))


def _name(user: int, copy: int) -> str | None:
    """Return the number of a user as its name, as resampled Traces have it."""
    if user < 0:
        return None
    return f"{NAMES['user']}{user + 1}" + (f".{copy + 1}" if copy else "")


def _classes(model: WorkloadModel, names: list[tuple[str | None, str | None, str | None]]) -> Floats:
    """Return the shares of size classes of each tenant, the unknown size last (tenants, classes + 1)."""
    listed = model.document["users"]["tenants"]
    known = {(t["user"], t["cluster"], t["vc"]): np.array(t["gpu_class_shares"], float) for t in listed}
    sums: dict[tuple[str | None, str | None] | None, Floats] = {}
    weights: dict[tuple[str | None, str | None] | None, float] = {}
    for tenant in listed:
        own = tenant["share"] * np.array(tenant["gpu_class_shares"], float)
        for key in ((tenant["cluster"], tenant["vc"]), None):
            sums[key] = sums.get(key, 0.0) + own
            weights[key] = weights.get(key, 0.0) + tenant["share"]
    mean = {key: total / weights[key] for key, total in sums.items() if weights[key] > 0}
    found = np.zeros((len(names), len(model.document["users"]["gpu_classes"])))
    for i, (user, cluster, vc) in enumerate(names):
        original = user.partition(".")[0] if user is not None else None
        found[i] = known.get((original, cluster, vc), mean.get((cluster, vc), mean[None]))
    return np.concatenate([found, np.maximum(1 - found.sum(axis=1, keepdims=True), 0)], axis=1)


def jobs_of_log(
    trace: Trace,
    model: WorkloadModel,
    out: Path,
    extent: Extent,
    rate: str,
    *,
    load: float | None,
    options: dict[str, str],
    force: bool,
) -> Trace:
    """Return a new Trace of jobs of the log that come when the model has them come; `load` as for `generate`.

    Raises
    ------
    UsageError
        The Trace has no jobs that could be taken, or the new one would have none or too many.
    OutputError
        The place is taken or cannot be written.
    """
    log = read_log(trace)
    rng = np.random.default_rng(extent.seed)
    arrivals = at_rate(model.document["arrivals"], rate)
    if load is not None:
        of_a_job = asked_by(log, attempts_of(trace, log.jobs)) / (log.per_day / _DAY_S)
        asked = of_a_job * jobs_per_hour(arrivals) / HOUR_S
        extent = with_load(extent, load, asked, model.document["cluster"], what="the model")
    seconds, _ = draw_arrivals(arrivals, rng, jobs=extent.jobs, days=extent.days, load=extent.scale_load)
    check_any(seconds.size)
    length = max(1, round(log.per_day))
    taken = TakenJobs(
        successive(log, seconds.size, length, rng),
        np.zeros(seconds.size, np.int64),
        pl.Series(seconds * 1_000_000).cast(pl.Datetime("us")),
    )
    origin = (
        f"synthetic: arrivals drawn from a model of {model.origin}, with runs of {counted(length, 'jobs')} of a log of"
        f" {counted(log.days, 'days')}"
    )
    return write_taken(trace, log, taken, out, extent, origin=origin, options=options, force=force)


def successive(log: LogJobs, number: int, length: int, rng: np.random.Generator) -> Whole:
    """Return the places of jobs of the log: runs of successive ones, each from a random job on.

    After the last job of the log comes its first, so that every job is as likely as any other (circular blocks).

    Parameters
    ----------
    number : int
        How many jobs.
    length : int
        Jobs of a run.
    """
    first, known = int(log.first[0]), int(log.first[-1] - log.first[0])
    starts = rng.integers(known, size=-(-number // length))
    place: Whole = (np.repeat(starts, length) + np.tile(np.arange(length), starts.size))[:number] % known + first
    return place
