"""Synthetic Traces: drawn from a fitted workload, or from the days of a log; jobs, attempts, machines.

There are no queue times: no job has a start, an end or a wait until a replay gives it one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.fit.arrival_draws import RATES, at_rate, draw_arrivals
from tracekit.fit.drawn_trace import write_drawn
from tracekit.fit.hybrid import arrivals_of_log, jobs_of_log
from tracekit.fit.job_draws import draw_outcomes, draw_requests, draw_tenants
from tracekit.fit.method_choice import HYBRIDS, METHODS, Way
from tracekit.fit.model import WorkloadModel
from tracekit.fit.offered_load import gpu_seconds_of_a_job, jobs_per_hour, load_option, with_load
from tracekit.fit.rate import HOUR_S
from tracekit.fit.resample import resample
from tracekit.fit.session_draws import DrawnJobs, draw_sessions
from tracekit.fit.session_jobs import jobs_in_sessions
from tracekit.fit.synthetic import Extent, check_any
from tracekit.places import place_of
from tracekit.progress import Progress
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.fit.arrays import Whole
    from tracekit.fit.job_draws import DrawnTenants


__all__ = ["generate"]


def generate(
    source: WorkloadModel | Trace | str | Path,
    out: str | Path,
    *,
    jobs: int | None = None,
    days: float | None = None,
    seed: int = 0,
    scale_load: float = 1.0,
    scale_gpus: float = 1.0,
    method: str | None = None,
    model: WorkloadModel | str | Path | None = None,
    hybrid: str | None = None,
    rate: str | None = None,
    load: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Draw a synthetic Trace from a workload model, or from the log itself.

    Parameters
    ----------
    source : WorkloadModel, Trace, str or Path
        The model or its workload.json, or a Trace.
    out : str or Path
        Folder of the new Trace.
    jobs, days : optional
        How many jobs, or how many days of them; exactly one of the two. The first job of a model has the time of the
        log's first.
    seed : int
        The same source, options and seed give the same tables.
    scale_load : float
        Factor on the rate of arrivals.
    scale_gpus : float
        Factor on the machines and quotas; whole machines, rounded over all kinds.
    method : {'model', 'resample', 'hybrid'}, optional
        'model' draws every job from a model, 'resample' takes whole days of a Trace in another order (see
        `tracekit.fit.resample`), 'hybrid' takes one half from each (see `tracekit.fit.hybrid`). By default a Trace is
        resampled, or made by the method that scored best where `model` has scores.
    model : WorkloadModel, str or Path, optional
        Beside a Trace: its model, with the scores of the methods. Where a method needs one and there is none, it is
        fitted.
    hybrid : {'arrivals', 'jobs'}, optional
        What of a hybrid comes from the log; by default what scored better, or else its arrivals.
    rate : {'mean', 'end', 'fitted'}, optional
        Of a model: arrivals at the mean rate of the log (the default), at the rate with which it ends (its last piece,
        or the end of its trend), or as fitted: through its pieces or along its trend, and then at the end's rate.
    load : float, optional
        In place of `scale_load`: the arrivals are scaled so that the GPU-seconds that jobs ask for in a second, over
        the GPUs of the cluster, are this number (`tracekit.fit.offered_load`; defined as for `export --target-load`).
        The cluster is that of the model or Trace, machines or else quotas, times `scale_gpus`. Of a model the mean
        GPU-seconds of a job are those of its distributions, with `rate='fitted'` over the days of the log; of a Trace
        those of the days that are drawn from. One Trace's load differs from it by chance, the more the heavier the
        tails.
    force : bool
        Replace an earlier Trace.
    progress : Progress, optional
        Receives the steps.

    Raises
    ------
    UsageError
        An option cannot be used, or the model has no arrivals or no run times.
    OutputError
        The place is taken or cannot be written.
    """
    extent = Extent(jobs, days, seed, scale_load, scale_gpus)
    if method not in (None, *METHODS):
        raise UsageError(f"'{method}' is not one of {', '.join(METHODS)}", where="--method")
    if rate not in (None, *RATES):
        raise UsageError(f"'{rate}' is not one of {', '.join(RATES)}", where="--rate")
    progress = progress or Progress()
    if hybrid not in (None, *HYBRIDS):
        raise UsageError(f"'{hybrid}' is not one of {', '.join(HYBRIDS)}", where="--hybrid")
    known = None if model is None else _model(model)
    if isinstance(source, Trace) or (not isinstance(source, WorkloadModel) and place_of(source).is_dir()):
        trace = Trace.of(source).ingested
        way = Way.of(known, method, hybrid, rate, progress)
        return _from_trace(trace, known, Path(out), extent, way, load=load, force=force, progress=progress)
    if known is not None:
        raise UsageError("goes with a Trace; this source is a model itself", where="--model")
    if method in ("resample", "hybrid"):
        raise UsageError("needs a Trace, since a model holds no days of jobs", where="--method")
    known = _model(source)
    best = (known.document.get("scores") or {}).get("best")
    if best not in (None, "model"):
        progress.note(f"on the last part of the log '{best}' scored better than the model; it needs the Trace")
    return _drawn(known, Path(out), extent, rate or "mean", load=load, force=force, progress=progress)


def _model(source: WorkloadModel | str | Path) -> WorkloadModel:
    return source if isinstance(source, WorkloadModel) else WorkloadModel.read(source)


def _from_trace(
    trace: Trace,
    known: WorkloadModel | None,
    out: Path,
    extent: Extent,
    way: Way,
    *,
    load: float | None,
    force: bool,
    progress: Progress,
) -> Trace:
    if way.method == "resample":
        return resample(trace, out, extent, load=load, force=force, progress=progress)
    if known is None:
        # Resampling, which needs no fit, would wait for scipy's optimizers.
        from tracekit.fit.api import fit

        known = fit(trace, replicates=0, drawn_only=True, progress=progress)
    rate = way.rate or "mean"
    if way.method == "model":
        return _drawn(known, out, extent, rate, load=load, force=force, progress=progress)
    _check(known)
    progress.stage("drawing jobs")
    if way.hybrid == "jobs":
        options = extent.options(method="hybrid", hybrid=way.hybrid, rate=rate, **load_option(load))
        return jobs_of_log(trace, known, out, extent, rate, load=load, options=options, force=force)
    rng = np.random.default_rng(extent.seed)
    seconds, tenants = arrivals_of_log(trace, known, extent, rng, load=load)
    drawn = _jobs_at(known, seconds, tenants, rng)
    return write_drawn(
        known,
        out,
        extent,
        drawn,
        rng,
        origin=f"synthetic: submissions of days of a log, all else drawn from a model of {known.origin}",
        options=extent.options(method="hybrid", hybrid=way.hybrid, **load_option(load)),
        force=force,
        progress=progress,
    )


def _check(known: WorkloadModel) -> None:
    """Refuse a model that no job can be drawn from."""
    arrivals = known.document["arrivals"]
    if arrivals["process"] is None:
        raise UsageError(f"the model has no arrivals: {arrivals['reason']}", hint="fit jobs of another time")
    if not known.document["statuses"]["groups"]:
        raise UsageError("the model has no job that ended", hint="fit a Trace with ended jobs")


def _drawn(
    known: WorkloadModel, out: Path, extent: Extent, rate: str, *, load: float | None, force: bool, progress: Progress
) -> Trace:
    """Draw every job from a model."""
    _check(known)
    progress.stage("drawing jobs")
    rng = np.random.default_rng(extent.seed)
    arriving = at_rate(known.document["arrivals"], rate)
    if load is not None:
        asked = gpu_seconds_of_a_job(known) * jobs_per_hour(arriving) / HOUR_S
        extent = with_load(extent, load, asked, known.document["cluster"], what="the model")
    drawn = _draw_jobs(known, arriving, extent, rng)
    check_any(drawn.seconds.size)
    return write_drawn(
        known,
        out,
        extent,
        drawn,
        rng,
        origin=f"synthetic: drawn from a model of {known.origin}",
        options=extent.options(method="model", rate=rate, **load_option(load)),
        force=force,
        progress=progress,
    )


def _draw_jobs(known: WorkloadModel, arriving: dict[str, Any], extent: Extent, rng: np.random.Generator) -> DrawnJobs:
    """Draw all of the jobs but their run times: in sessions, or each batch for itself."""
    if arriving["process"] == "sessions":
        return draw_sessions(known, arriving, rng, jobs=extent.jobs, days=extent.days, load=extent.scale_load)
    seconds, batch = draw_arrivals(arriving, rng, jobs=extent.jobs, days=extent.days, load=extent.scale_load)
    return _jobs_at(known, seconds, draw_tenants(known, batch, rng), rng)


def _jobs_at(known: WorkloadModel, seconds: Whole, tenants: DrawnTenants, rng: np.random.Generator) -> DrawnJobs:
    """Draw requests and outcomes for submissions: in the sessions that they are in, where the model has any."""
    if known.document["arrivals"]["process"] == "sessions":
        request, outcomes, scores = jobs_in_sessions(known, seconds, tenants, rng)
        return DrawnJobs(seconds, tenants, request, outcomes, scores)
    request = draw_requests(known, tenants, rng)
    return DrawnJobs(seconds, tenants, request, draw_outcomes(known, request, rng), None)
