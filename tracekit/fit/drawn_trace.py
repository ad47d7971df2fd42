"""Write jobs that were drawn from a model as a synthetic Trace, with their run times, attempts and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.fit.job_draws import draw_run_times
from tracekit.fit.node_event_draws import write_machines
from tracekit.fit.synthetic import synthetic_manifest
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.job_draws import Outcomes
    from tracekit.fit.model import WorkloadModel
    from tracekit.fit.session_draws import DrawnJobs
    from tracekit.fit.synthetic import Extent
    from tracekit.manifest import Manifest
    from tracekit.progress import Progress
    from tracekit.trace import Trace


_SLICE = 262_144


def write_drawn(
    known: WorkloadModel,
    out: Path,
    extent: Extent,
    drawn: DrawnJobs,
    rng: np.random.Generator,
    *,
    origin: str,
    options: dict[str, str],
    force: bool,
    progress: Progress,
) -> Trace:
    """Draw the run times and attempts of jobs, and write the Trace.

    Parameters
    ----------
    drawn : DrawnJobs
        At least one.
    origin : str
        What they are drawn from, one sentence for the manifest.
    options : dict
        For the manifest.

    Raises
    ------
    OutputError
        The place is taken or cannot be written.
    """
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
        span_us = int(seconds[0]) * 1_000_000, int(seconds[-1] + 1) * 1_000_000
        write_machines(writer, known.document["cluster"], known.document.get("node_failures"), span_us, extent)
        writer.drain()
        manifest = _manifest(known, outcomes, origin)
        manifest.tables = writer.tables()
        manifest.options = options
        return writer.commit(manifest)


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


def _manifest(model: WorkloadModel, outcomes: Outcomes, origin: str) -> Manifest:
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
        origin=origin,
        absent="not drawn",
    )
