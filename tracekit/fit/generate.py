"""Generate synthetic Traces from a fitted workload, from the days of a log, or from a hybrid of both.

Submissions and jobs each come from the model or from the log:

- model: both come from the model
- resample: both come from the log, in blocks of days (`tracekit.fit.log_jobs`)
- hybrid with the log's 'arrivals': each tenant's submission times come from blocks of days, and requests, outcomes and
  run times come from the model
- hybrid with the log's 'jobs': submission times come from the model, and whole jobs from the log, in runs of successive
  jobs that keep the relations between a user's jobs
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.arrival_draws import DrawnJobs, draw_batches, draw_sessions, jobs_in_sessions, session_seconds
from tracekit.fit.job_draws import DrawnTenants, draw_outcomes, draw_requests, draw_run_times, draw_tenants
from tracekit.fit.log_jobs import (
    NAMES,
    TakenJobs,
    asked_by,
    attempts_of,
    blocks_of_log,
    read_log,
    source_of_log,
    taken_days,
)
from tracekit.fit.model import WorkloadModel
from tracekit.fit.offered_load import gpu_seconds_of_a_job, jobs_per_hour, with_load
from tracekit.fit.rate import HOUR_S
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import Recipe, Source, check_any, write_synthetic
from tracekit.places import place_of
from tracekit.progress import Progress
from tracekit.text import counted
from tracekit.trace import Trace

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.fit.job_draws import Outcomes
    from tracekit.fit.log_jobs import LogJobs
    from tracekit.fit.synthetic import Blocks


RATES = ("mean", "end", "fitted")
"""Arrival rates at which jobs can be drawn from a model."""
METHODS = ("model", "resample", "hybrid")
"""Methods that make jobs."""
HYBRIDS = ("arrivals", "jobs")
"""The half of a hybrid that comes from the log."""
_DAY_S = 86_400


# Draw arrival times from a workload's fitted arrivals at the requested rate.


def at_rate(arrivals: dict[str, Any], rate: str) -> dict[str, Any]:
    """Return the arrivals part of workload.json with a constant rate: the log's mean rate or the rate at its end.

    The rate at the end is that of the last piece or that at the end of the trend. 'fitted' leaves the rate unchanged.
    """
    if rate == "fitted":
        return arrivals
    if arrivals.get("sessions"):
        starts = at_rate({"days": arrivals["days"], **arrivals["sessions"]["starts"]}, rate)
        arrivals = {**arrivals, "sessions": {**arrivals["sessions"], "starts": starts}}
    known = arrivals["rate"]
    pieces = known.get("pieces") or []
    growth = min(known["trend_per_day"] * arrivals["days"], 500.0)
    if rate == "end":
        per_hour = pieces[-1]["per_hour"] if pieces else known["per_hour"] * float(np.exp(growth))
    elif known.get("mean_per_hour") is not None:
        per_hour = known["mean_per_hour"]
    else:  # files written by earlier versions contain the mean of the trend
        per_hour = known["per_hour"] * (float(np.expm1(growth)) / growth if abs(growth) > 1e-9 else 1.0)
    flat = {"form": "constant", "per_hour": per_hour, "trend_per_day": 0.0, "pieces": []}
    return {**arrivals, "rate": {**known, **flat}}


def draw_arrivals(
    arrivals: dict[str, Any], rng: np.random.Generator, *, jobs: int | None, days: float | None, load: float
) -> tuple[Ints, Ints]:
    """Draw the submission second and the batch number of each job; with sessions, a batch is the jobs of one second.

    Parameters and errors are those of `draw_batches`. `tracekit.fit.arrival_draws.draw_sessions` draws the properties
    that the jobs of a session share.
    """
    if arrivals["process"] != "sessions":
        return draw_batches(arrivals, rng, jobs=jobs, days=days, load=load)
    seconds = session_seconds(arrivals, rng, jobs=jobs, days=days, load=load)
    return seconds, np.unique(seconds, return_inverse=True)[1]


# Combine a log with a model.


def tenants_of_log(model: WorkloadModel, log: LogJobs, taken: TakenJobs) -> tuple[Ints, DrawnTenants]:
    """Return the submission second and the tenant of each job taken from a log.

    A tenant requests the size classes in the model's entry for the tenant, otherwise those of its VC, otherwise those
    of all jobs.
    """
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
    """Return the name for a user's number, as in resampled Traces."""
    if user < 0:
        return None
    return f"{NAMES['user']}{user + 1}" + (f".{copy + 1}" if copy else "")


def _classes(model: WorkloadModel, names: list[tuple[str | None, str | None, str | None]]) -> Floats:
    """Return each tenant's shares of the size classes, with that of unknown size last (tenants, classes + 1)."""
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


def successive(log: LogJobs, number: int, length: int, rng: np.random.Generator) -> Ints:
    """Return indices of the log's jobs, in runs of successive jobs that each start at a random job.

    The log is circular: its first job follows the last, so all jobs are equally likely.

    Parameters
    ----------
    number : int
        Number of jobs.
    length : int
        Number of jobs per run.
    """
    first, known = int(log.first[0]), int(log.first[-1] - log.first[0])
    starts = rng.integers(known, size=-(-number // length))
    return (np.repeat(starts, length) + np.tile(np.arange(length), starts.size))[:number] % known + first


class Way(NamedTuple):
    """The method that makes a synthetic Trace."""

    method: str
    hybrid: str
    """The half of a hybrid that comes from the log."""
    rate: str

    @property
    def arrivals_of_log(self) -> bool:
        """Whether submissions come from the days of a log."""
        return self.method == "resample" or (self.method == "hybrid" and self.hybrid == "arrivals")

    @property
    def jobs_of_log(self) -> bool:
        """Whether requests, outcomes and run times come from a log."""
        return self.method == "resample" or (self.method == "hybrid" and self.hybrid == "jobs")

    @property
    def options(self) -> dict[str, str]:
        """The options for the manifest."""
        hybrid = {"hybrid": self.hybrid} if self.method == "hybrid" else {}
        return {"method": self.method, **hybrid} | ({} if self.arrivals_of_log else {"rate": self.rate})


def _way(
    model: WorkloadModel | None, method: str | None, hybrid: str | None, rate: str | None, progress: Progress
) -> Way:
    """Return the requested method, or the method that scored best for the Trace.

    Raises
    ------
    UsageError
        A rate was given, but the arrivals come from the log.
    """
    scores = (model.document.get("scores") if model is not None else None) or {}
    chosen = method or ("hybrid" if hybrid is not None else scores.get("best"))
    if chosen is None:
        chosen = "resample"
        progress.note(
            "this run resamples days of the log; a model with scores (--model) shows which method matches the log best"
        )
    way = Way(chosen, hybrid or scores.get("hybrid") or HYBRIDS[0], rate or RATES[0])
    if rate is not None and way.arrivals_of_log:
        raise UsageError("works only with a model, because resampled days keep the rates of the log", where="--rate")
    return way


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
        Number of jobs or of days; give exactly one of them. With a model, the first job has the submission time of the
        log's first job.
    seed : int
        The same source, options and seed give the same tables.
    scale_load : float
        Factor on the arrival rate.
    scale_gpus : float
        Factor on the machines and quotas; the number of machines is rounded over all kinds.
    method : {'model', 'resample', 'hybrid'}, optional
        'model' draws every job from a model, 'resample' reorders whole days of a Trace (see
        `tracekit.fit.log_jobs`), and 'hybrid' takes one half from each (see `tracekit.fit.generate`). By default a
        Trace is resampled; if `model` has scores, the method that scored best is used.
    model : WorkloadModel, str or Path, optional
        If the source is a Trace, its model with the methods' scores. If a method needs a model and none is given, a
        model is fitted.
    hybrid : {'arrivals', 'jobs'}, optional
        The half of a hybrid that comes from the log. The default is the half that scored better, or the arrivals if
        there are no scores.
    rate : {'mean', 'end', 'fitted'}, optional
        Arrival rate if a model is used: the log's mean rate (the default), the rate at the log's end (of the last piece
        or at the end of the trend), or the rate as fitted (through the pieces or along the trend, and then as at the
        end).
    load : float, optional
        Alternative to `scale_load`: the requested GPU-seconds per second, divided by the cluster's GPUs. Arrivals are
        scaled to this load (see `tracekit.fit.offered_load`; the definition is that of `export --target-load`). The
        cluster has the machines of the model or Trace (the quotas if machines are unknown), times `scale_gpus`. With a
        model, a job's mean GPU-seconds come from the model's distributions (with `rate='fitted'`, over the days of the
        log). With a Trace, they come from the days that are drawn from. The load of a single Trace differs from this by
        chance, and by more if the tails are heavier.
    force : bool
        Whether to replace an existing Trace.
    progress : Progress, optional
        Receives progress updates.

    Raises
    ------
    UsageError
        An option is invalid, or the model has no arrivals or no run times.
    OutputError
        The output folder already exists or cannot be written.
    """
    progress = progress or Progress()
    recipe = Recipe(Path(out), jobs, days, seed, scale_load, scale_gpus, load, force, progress)
    for option, value, known_values in (
        ("method", method, METHODS),
        ("rate", rate, RATES),
        ("hybrid", hybrid, HYBRIDS),
    ):
        if value not in (None, *known_values):
            raise UsageError(f"'{value}' is not one of {', '.join(known_values)}", where=f"--{option}")
    known = None if model is None else _model(model)
    if isinstance(source, Trace) or (not isinstance(source, WorkloadModel) and place_of(source).is_dir()):
        return _made(Trace.of(source).ingested, known, recipe, _way(known, method, hybrid, rate, progress))
    if known is not None:
        raise UsageError("works only with a Trace, but the source is a model", where="--model")
    if method in ("resample", "hybrid"):
        raise UsageError("needs a Trace, because a model does not contain days of jobs", where="--method")
    known = _model(source)
    best = (known.document.get("scores") or {}).get("best")
    if best not in (None, "model"):
        progress.note(f"'{best}' scored better than the model on the last part of the log, but it needs the Trace")
    return _with_drawn_jobs(known, None, recipe, Way("model", "", rate or RATES[0]))


def _model(source: WorkloadModel | str | Path) -> WorkloadModel:
    return source if isinstance(source, WorkloadModel) else WorkloadModel.read(source)


def _made(trace: Trace, known: WorkloadModel | None, recipe: Recipe, way: Way) -> Trace:
    """Draw a synthetic Trace from a log, with a model if the method needs one."""
    if way.method == "resample":
        return _with_jobs_of_log(trace, None, recipe, way)
    if known is None:
        # Imported late: resampling needs no fit and should not wait for scipy's optimizers to load.
        from tracekit.fit.api import fit_model
        from tracekit.fit.choice import Effort

        known = fit_model(trace, effort=Effort(replicates=0, drawn_only=True), progress=recipe.progress)
    if way.jobs_of_log:
        return _with_jobs_of_log(trace, known, recipe, way)
    return _with_drawn_jobs(known, trace if way.arrivals_of_log else None, recipe, way)


def _with_jobs_of_log(trace: Trace, known: WorkloadModel | None, recipe: Recipe, way: Way) -> Trace:
    """Write the log's jobs, submitted in blocks of the log's days or, if a model is given, at times drawn from it."""
    if known is not None:
        _check(known)
    recipe.progress.stage("reading the log")
    log, rng = read_log(trace), np.random.default_rng(recipe.seed)
    attempts, cluster = attempts_of(trace, log.jobs), fit_cluster(trace)
    if known is None:
        recipe = with_load(recipe, lambda: asked_by(log, attempts), cluster, "the Trace")
        recipe.progress.stage("drawing days")
        taken = taken_days(log, recipe, trace.timezone, rng)
        origin = f"synthetic: blocks of {counted(log.length, 'days')} of a log of {counted(log.days, 'days')}"
    else:
        arrivals = at_rate(known.document["arrivals"], way.rate)

        def asked() -> float:
            return asked_by(log, attempts) / (log.per_day / _DAY_S) * jobs_per_hour(arrivals) / HOUR_S

        recipe = with_load(recipe, asked, known.document["cluster"], "the model")
        recipe.progress.stage("drawing jobs")
        seconds, _ = draw_arrivals(arrivals, rng, **recipe.extent)
        check_any(seconds.size)
        length = max(1, round(log.per_day))
        taken = TakenJobs(
            successive(log, seconds.size, length, rng),
            np.zeros(seconds.size, np.int64),
            pl.Series(seconds * 1_000_000).cast(pl.Datetime("us")),
        )
        origin = (
            f"synthetic: arrivals drawn from a model of {known.origin}, with runs of {counted(length, 'jobs')} of a log"
            f" of {counted(log.days, 'days')}"
        )
    submit_us, blocks = taken.submit.dt.epoch("us").to_numpy(), blocks_of_log(log, attempts, taken)
    return write_synthetic(recipe, submit_us, blocks, source_of_log(trace, log, cluster, recipe), origin, way.options)


def _with_drawn_jobs(known: WorkloadModel, trace: Trace | None, recipe: Recipe, way: Way) -> Trace:
    """Write jobs drawn from a model, submitted at times drawn from the model or in blocks of a given log's days."""
    _check(known)
    recipe.progress.stage("drawing jobs")
    rng, cluster = np.random.default_rng(recipe.seed), known.document["cluster"]
    if trace is not None:
        log = read_log(trace)
        recipe = with_load(recipe, lambda: gpu_seconds_of_a_job(known) * log.per_day / _DAY_S, cluster, "the model")
        drawn = _jobs_at(known, *tenants_of_log(known, log, taken_days(log, recipe, trace.timezone, rng)), rng)
        origin = f"synthetic: submissions from days of a log, everything else drawn from a model of {known.origin}"
    else:
        arrivals = at_rate(known.document["arrivals"], way.rate)
        recipe = with_load(
            recipe, lambda: gpu_seconds_of_a_job(known) * jobs_per_hour(arrivals) / HOUR_S, cluster, "the model"
        )
        if arrivals["process"] == "sessions":
            drawn = draw_sessions(known, arrivals, rng, **recipe.extent)
        else:
            seconds, batch = draw_batches(arrivals, rng, **recipe.extent)
            drawn = _jobs_at(known, seconds, draw_tenants(known, batch, rng), rng)
        check_any(drawn.seconds.size)
        origin = f"synthetic: drawn from a model of {known.origin}"
    if not known.run_times:
        drawn.outcomes.ran[:] = False
        drawn.outcomes.attempts[:] = 0
    blocks = blocks_of_drawn(known, drawn, rng)
    return write_synthetic(
        recipe, drawn.seconds * 1_000_000, blocks, _source(known, drawn.outcomes), origin, way.options
    )


def _check(known: WorkloadModel) -> None:
    """Reject a model from which no job can be drawn."""
    arrivals = known.document["arrivals"]
    if arrivals["process"] is None:
        raise UsageError(f"the model has no arrivals: {arrivals['reason']}", hint="fit jobs from another period")
    if not known.document["statuses"]["groups"]:
        raise UsageError("the model has no job that ended", hint="fit a Trace with jobs that ended")


def _jobs_at(known: WorkloadModel, seconds: Ints, tenants: DrawnTenants, rng: np.random.Generator) -> DrawnJobs:
    """Draw requests and outcomes for submissions, session by session if the model has sessions."""
    if known.document["arrivals"]["process"] == "sessions":
        return jobs_in_sessions(known, seconds, tenants, rng)
    request = draw_requests(known, tenants, rng)
    return DrawnJobs(seconds, tenants, request, draw_outcomes(known, request, rng), None)


def blocks_of_drawn(known: WorkloadModel, drawn: DrawnJobs, rng: np.random.Generator) -> Blocks:
    """Draw the jobs' run times and return a function that makes the jobs' rows and draws their attempts."""
    outcomes = drawn.outcomes
    run_s = draw_run_times(known, drawn.tenants, drawn.request, outcomes, rng, scores=drawn.scores)
    tenants, requests, statuses = _frames(known, drawn.tenants.names)

    def block(part: slice, ids: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        jobs = pl.DataFrame([ids]).with_columns(
            *tenants[drawn.tenants.index[part]].get_columns(),
            *requests[drawn.request[part]].get_columns(),
            statuses[outcomes.group[part]],
            pl.Series("submit_time", drawn.seconds[part] * 1_000_000).cast(pl.Datetime("us")),
            pl.Series("run_s", run_s[part]).fill_nan(None),
            pl.Series("attempt_count", outcomes.attempts[part]),
        )
        return jobs, _attempts(known, jobs, outcomes.attempts[part], rng)

    return block


def _frames(
    model: WorkloadModel, names: list[tuple[str | None, str | None, str | None]]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series]:
    """Return the tenants, requests and statuses that jobs refer to by index."""
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


def _attempts(model: WorkloadModel, jobs: pl.DataFrame, counts: Ints, rng: np.random.Generator) -> pl.DataFrame:
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


def _source(model: WorkloadModel, outcomes: Outcomes) -> Source:
    document = model.document
    requests, cluster = document["sizes"]["requests"], document["cluster"]
    has = {
        "arrivals": True,
        "run_time": bool(outcomes.ran.any()),
        "gpu_count": any(r["gpu_count"] is not None for r in requests),
        "node_count": any(r["node_count"] is not None for r in requests),
        "retries": bool((outcomes.attempts > 1).any()),
        "tenants": document["users"]["vcs"] > 0,
        "users": document["users"]["users"] > 0,
        "statuses": any(g["status"] not in (None, "unknown") for g in document["statuses"]["groups"]),
        "hour_of_day": document["source"]["hour_of_day_known"],
    }
    return Source(
        has,
        cluster,
        document.get("node_failures"),
        relative=document["source"]["time_base"] == "relative",
        timezone=document["arrivals"]["timezone"],
        created=document["source"]["created"],
        absent="not drawn",
    )
