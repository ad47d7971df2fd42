"""Synthetic Traces: drawn from a fitted workload, or from the days of a log; jobs, attempts, machines.

There are no queue times: no job has a start, an end or a wait until a replay gives it one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.arrival_draws import RATES, at_rate, draw_arrivals
from tracekit.fit.hybrid import arrivals_of_log, jobs_of_log
from tracekit.fit.job_draws import draw_outcomes, draw_requests, draw_run_times, draw_tenants
from tracekit.fit.method_choice import HYBRIDS, METHODS, Way
from tracekit.fit.model import WorkloadModel
from tracekit.fit.node_event_draws import write_node_events
from tracekit.fit.offered_load import gpu_seconds_of_a_job, jobs_per_hour, load_option, with_load
from tracekit.fit.rate import HOUR_S
from tracekit.fit.resample import resample
from tracekit.fit.session_draws import DrawnJobs, draw_sessions
from tracekit.fit.session_jobs import jobs_in_sessions
from tracekit.fit.synthetic import Extent, capacity_table, node_table, synthetic_manifest
from tracekit.progress import Progress
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.job_draws import DrawnTenants, Outcomes
    from tracekit.manifest import Manifest


__all__ = ["generate"]

_SLICE = 262_144


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
    if isinstance(source, Trace) or (not isinstance(source, WorkloadModel) and Path(source).is_dir()):
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
    options = extent.options(method="hybrid", hybrid=way.hybrid, **load_option(load))
    return _written(known, out, extent, drawn, rng, options, force=force, progress=progress)


def _check(known: WorkloadModel) -> None:
    """Refuse a model that no job can be drawn from."""
    arrivals = known.document["arrivals"]
    if arrivals["process"] is None:
        raise UsageError(f"the model has no arrivals: {arrivals['reason']}", hint="fit a Trace with more jobs")
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
    if not drawn.seconds.size:
        raise UsageError("no job falls into so short a time", where="--days", hint="ask for more days")
    options = extent.options(method="model", rate=rate, **load_option(load))
    return _written(known, out, extent, drawn, rng, options, force=force, progress=progress)


def _written(
    known: WorkloadModel,
    out: Path,
    extent: Extent,
    drawn: DrawnJobs,
    rng: np.random.Generator,
    options: dict[str, str],
    *,
    force: bool,
    progress: Progress,
) -> Trace:
    """Draw the run times of jobs, and write the Trace."""
    seconds, tenants, request, outcomes = drawn.seconds, drawn.tenants, drawn.request, drawn.outcomes
    if not known.run_times:
        outcomes.ran[:] = False
        outcomes.attempts[:] = 0
    run_s = draw_run_times(known, tenants, request, outcomes, rng, scores=drawn.scores)
    progress.stage("writing the Trace")
    with TraceWriter(out, force=force) as writer:
        listed = _frames(known, tenants.names)
        digits = len(str(seconds.size))
        for low in range(0, seconds.size, _SLICE):
            cut = slice(low, low + _SLICE)
            ids = pl.Series("job_id", np.arange(low + 1, low + 1 + seconds[cut].size)).cast(pl.String).str.zfill(digits)
            part = _jobs(ids, seconds[cut], listed, (tenants.index[cut], request[cut]), outcomes, cut, run_s)
            writer.write("jobs", part)
            writer.write("attempts", _attempts(known, part, outcomes.attempts[cut], rng))
        cluster = known.document["cluster"]
        nodes = node_table(cluster, extent.scale_gpus)
        writer.write("nodes", nodes)
        span_us = int(seconds[0]) * 1_000_000, int(seconds[-1] + 1) * 1_000_000
        write_node_events(writer, known.document.get("node_failures"), nodes["node_id"], span_us, extent.seed)
        writer.write("capacity", capacity_table(cluster, int(seconds[0]) * 1_000_000, extent.scale_gpus))
        writer.drain()
        manifest = _manifest(known, outcomes)
        manifest.tables = writer.tables()
        manifest.options = options
        return writer.commit(manifest)


def _draw_jobs(known: WorkloadModel, arriving: dict[str, Any], extent: Extent, rng: np.random.Generator) -> DrawnJobs:
    """Draw all of the jobs but their run times: in sessions, or each batch for itself."""
    if arriving["process"] == "sessions":
        return draw_sessions(known, arriving, rng, jobs=extent.jobs, days=extent.days, load=extent.scale_load)
    seconds, batch = draw_arrivals(arriving, rng, jobs=extent.jobs, days=extent.days, load=extent.scale_load)
    tenants = draw_tenants(known, batch, rng)
    request = draw_requests(known, tenants, rng)
    return DrawnJobs(seconds, tenants, request, draw_outcomes(known, request, rng), None)


def _jobs_at(known: WorkloadModel, seconds: Whole, tenants: DrawnTenants, rng: np.random.Generator) -> DrawnJobs:
    """Draw requests and outcomes for submissions of a log: in its sessions, where the model has any."""
    if known.document["arrivals"]["process"] == "sessions":
        request, outcomes, scores = jobs_in_sessions(known, seconds, tenants, rng)
        return DrawnJobs(seconds, tenants, request, outcomes, scores)
    request = draw_requests(known, tenants, rng)
    return DrawnJobs(seconds, tenants, request, draw_outcomes(known, request, rng), None)


def _frames(
    model: WorkloadModel, names: list[tuple[str | None, str | None, str | None]]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Return the tenants, the requests and the statuses, which jobs refer to by index."""
    tenants = pl.DataFrame(names, schema={"user": pl.String, "cluster": pl.String, "vc": pl.String}, orient="row")
    asked = {
        "gpu_count": pl.Float64,
        "node_count": pl.Int64,
        "instance_count": pl.Int64,
        "cpu_count": pl.Float64,
        "memory_gib": pl.Float64,
    }
    rows = [tuple(r[k] for k in asked) for r in model.document["sizes"]["requests"]]
    requests = pl.DataFrame(rows, schema=asked, orient="row", strict=False)
    statuses = pl.Series("status", [g["status"] for g in model.document["statuses"]["groups"]], pl.String)
    return tenants, requests, statuses


def _jobs(
    ids: pl.Series,
    seconds: Whole,
    listed: tuple[pl.DataFrame, pl.DataFrame, pl.Series],
    places: tuple[Whole, Whole],
    outcomes: Outcomes,
    cut: slice,
    run_s: Floats,
) -> pl.DataFrame:
    tenants, requests, statuses = listed
    return pl.DataFrame([ids]).with_columns(
        *tenants[places[0]].get_columns(),
        *requests[places[1]].get_columns(),
        statuses[outcomes.group[cut]],
        pl.Series("submit_time", seconds * 1_000_000).cast(pl.Datetime("us")),
        pl.Series("run_s", run_s[cut]).fill_nan(None),
        pl.Series("attempt_count", outcomes.attempts[cut]),
    )


def _attempts(model: WorkloadModel, jobs: pl.DataFrame, counts: Whole, rng: np.random.Generator) -> pl.DataFrame:
    job = np.repeat(np.arange(counts.size), counts)
    first = (counts.cumsum() - counts)[job]
    number = np.arange(job.size) - first
    held = jobs["run_s"].to_numpy()[job]
    run_s = held.copy()
    several = np.flatnonzero(counts[job] > 1)
    if several.size:
        split = model.document["failures"]["split"]
        weight = rng.gamma(split["concentration"] if split else 1.0, size=several.size) + 1e-12
        owner = job[several]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        lengths = np.diff(np.append(starts, several.size))
        total = np.repeat(np.add.reduceat(weight, starts), lengths)
        upto = weight.cumsum()
        upto -= np.repeat(upto[starts] - weight[starts], lengths)
        whole = model.run_time()
        step = whole["resolution_s"] if whole is not None else 1.0
        ends = np.round(held[several] * upto / total / step) * step
        last = starts + lengths - 1
        ends[last] = held[several][last]
        before = np.concatenate([[0.0], ends[:-1]])
        before[starts] = 0.0
        run_s[several] = ends - before
    final = pl.Series(number == counts[job] - 1)
    return jobs.select("job_id", "gpu_count", "node_count", "status")[job].with_columns(
        pl.Series("attempt", number),
        pl.Series("run_s", run_s),
        pl.when(final).then(pl.col("status")).alias("status"),
    )


def _manifest(model: WorkloadModel, outcomes: Outcomes) -> Manifest:
    document = model.document
    requests = document["sizes"]["requests"]
    cluster = document["cluster"]
    has = {
        "arrivals": True,
        "run_time": bool(outcomes.ran.any()),
        "gpu_count": any(r["gpu_count"] is not None for r in requests),
        "node_count": any(r["node_count"] is not None for r in requests),
        "retries": bool((outcomes.attempts > 1).any()),
        "capacity": bool(cluster["capacity"]),
        "nodes": bool(cluster["nodes"]),
        "tenants": document["users"]["vcs"] > 0,
        "users": document["users"]["users"] > 0,
        "statuses": any(g["status"] not in (None, "unknown") for g in document["statuses"]["groups"]),
        "hour_of_day": document["source"]["hour_of_day_known"],
    }
    return synthetic_manifest(
        has,
        relative=document["source"]["time_base"] == "relative",
        timezone=document["arrivals"]["timezone"],
        created=document["source"]["created"],
        origin=f"synthetic: drawn from a model of {model.origin}",
        absent="not drawn",
    )
