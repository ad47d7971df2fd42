"""Synthetic Traces drawn from a fitted workload: jobs, attempts, nodes and capacity.

There are no queue times: no job has a start, an end or a wait until a replay gives it one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.errors import UsageError
from tracekit.fit.arrival_draws import LONGEST_DAYS, MOST_JOBS, draw_arrivals
from tracekit.fit.job_draws import draw_outcomes, draw_requests, draw_run_times, draw_tenants
from tracekit.fit.model import WorkloadModel
from tracekit.manifest import CAPABILITIES, Capability, Manifest
from tracekit.progress import Progress
from tracekit.trace_writer import TraceWriter
from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.job_draws import Outcomes
    from tracekit.trace import Trace


__all__ = ["generate"]

_SLICE = 262_144


def generate(
    model: WorkloadModel | str | Path,
    out: str | Path,
    *,
    jobs: int | None = None,
    days: float | None = None,
    seed: int = 0,
    scale_load: float = 1.0,
    scale_gpus: float = 1.0,
    force: bool = False,
    progress: Progress | None = None,
) -> Trace:
    """Draw a synthetic Trace from a workload model.

    Parameters
    ----------
    model : WorkloadModel, str or Path
        The model or its workload.json.
    out : str or Path
        Folder of the new Trace.
    jobs, days : optional
        How many jobs, or how many days of them; exactly one of the two. The first job has the time of the log's first.
    seed : int
        The same model, options and seed give the same tables.
    scale_load : float
        Factor on the rate of arrivals.
    scale_gpus : float
        Factor on the machines and quotas; whole machines, rounded over all kinds.
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
    known = model if isinstance(model, WorkloadModel) else WorkloadModel.read(model)
    _check(jobs, days, seed, scale_load, scale_gpus)
    arrivals = known.document["arrivals"]
    if arrivals["process"] is None:
        raise UsageError(f"the model has no arrivals: {arrivals['reason']}", hint="fit a Trace with more jobs")
    if not known.document["statuses"]["groups"]:
        raise UsageError("the model has no job that ended", hint="fit a Trace with ended jobs")
    progress = progress or Progress()
    progress.stage("drawing jobs")
    rng = np.random.default_rng(seed)
    seconds, batch = draw_arrivals(arrivals, rng, jobs=jobs, days=days, load=scale_load)
    if not seconds.size:
        raise UsageError("no job falls into so short a time", where="--days", hint="ask for more days")
    tenants = draw_tenants(known, batch, rng)
    request = draw_requests(known, tenants, rng)
    outcomes = draw_outcomes(known, request, rng)
    if not known.run_times:
        outcomes.ran[:] = False
        outcomes.attempts[:] = 0
    run_s = draw_run_times(known, tenants, request, outcomes, rng)
    progress.stage("writing the Trace")
    with TraceWriter(Path(out), force=force) as writer:
        listed = _frames(known, tenants.names)
        digits = len(str(seconds.size))
        for low in range(0, seconds.size, _SLICE):
            cut = slice(low, low + _SLICE)
            ids = pl.Series("job_id", np.arange(low + 1, low + 1 + seconds[cut].size)).cast(pl.String).str.zfill(digits)
            part = _jobs(ids, seconds[cut], listed, (tenants.index[cut], request[cut]), outcomes, cut, run_s)
            writer.write("jobs", part)
            writer.write("attempts", _attempts(known, part, outcomes.attempts[cut], rng))
        writer.write("nodes", _nodes(known, scale_gpus))
        writer.write("capacity", _capacity(known, int(seconds[0]), scale_gpus))
        writer.drain()
        manifest = _manifest(known, outcomes)
        manifest.tables = writer.tables()
        options = {"jobs": jobs, "days": days, "seed": seed, "scale_load": scale_load, "scale_gpus": scale_gpus}
        manifest.options = {
            k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in options.items() if v is not None
        }
        return writer.commit(manifest)


def _check(jobs: int | None, days: float | None, seed: int, scale_load: float, scale_gpus: float) -> None:
    if (jobs is None) == (days is None):
        raise UsageError("needs a number of jobs or of days, one of them", hint="for instance --jobs 10000")
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"must be from 1 to {MOST_JOBS:,}, not {jobs}", where="--jobs")
    if days is not None and not (math.isfinite(days) and 0 < days <= LONGEST_DAYS):
        raise UsageError(f"must be above 0 and at most {LONGEST_DAYS:,.0f}, not {days:g}", where="--days")
    if seed < 0:
        raise UsageError(f"must be at least 0, not {seed}", where="--seed")
    for name, factor in (("scale-load", scale_load), ("scale-gpus", scale_gpus)):
        if not (math.isfinite(factor) and 0 < factor <= 1e6):
            raise UsageError(f"must be above 0 and at most 1,000,000, not {factor:g}", where=f"--{name}")


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


def _whole_parts(counts: list[int], factor: float) -> Whole:
    """Return counts scaled to whole numbers, with running sums that are off by at most a half."""
    total = np.floor(np.cumsum(counts) * factor + 0.5).astype(np.int64)
    return np.diff(total, prepend=0)


def _nodes(model: WorkloadModel, factor: float) -> pl.DataFrame:
    kinds = model.document["cluster"]["nodes"]
    times = _whole_parts([k["nodes"] for k in kinds], factor)
    keys = ("cluster", "vc", "gpu_count", "gpu_model", "gpu_memory_gib", "cpu_count", "memory_gib")
    spec = schema.common("nodes").polars
    frame = pl.DataFrame(
        [tuple(k[n] for n in keys) for k in kinds], schema={n: spec[n] for n in keys}, orient="row", strict=False
    )
    nodes = frame[np.repeat(np.arange(len(kinds)), times)]
    return nodes.with_row_index("number", 1).with_columns(pl.format("n{}", "number").alias("node_id")).drop("number")


def _capacity(model: WorkloadModel, start_s: int, factor: float) -> pl.DataFrame:
    rows = model.document["cluster"]["capacity"]
    return pl.DataFrame(
        {
            "time": pl.Series([start_s * 1_000_000] * len(rows), dtype=pl.Int64).cast(pl.Datetime("us")),
            "cluster": pl.Series([r["cluster"] for r in rows], dtype=pl.String),
            "vc": pl.Series([r["vc"] for r in rows], dtype=pl.String),
            "gpu_count": pl.Series([float(math.floor(r["gpu_count"] * factor + 0.5)) for r in rows], dtype=pl.Float64),
        }
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
    notes = {"queueing": "a synthetic Trace has no queue times before it is replayed"}
    return Manifest(
        format="generate",
        files=[],
        tracekit_version=__version__,
        schema_version=schema.SCHEMA_VERSION,
        time_base="relative" if document["source"]["time_base"] == "relative" else "shifted",
        timezone=document["arrivals"]["timezone"],
        created=document["source"]["created"],  # the same model gives the same bytes
        capabilities={
            name: Capability(available=has.get(name, False), note=notes.get(name, "" if has.get(name) else "not drawn"))
            for name in CAPABILITIES
        },
        notes=[f"synthetic: drawn from a model of {model.origin}"],
    )
