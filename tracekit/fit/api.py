"""Fit a workload model to a Trace; `tracekit.fit.scored` also scores the workloads generated from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from tracekit import resources
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.fit.arrivals import HOURS_UNKNOWN, fit_arrivals
from tracekit.fit.choice import Effort, describe
from tracekit.fit.jobs import CLASSES, LONGEST_S, UNFINISHED, gpu_class, read_jobs
from tracekit.fit.model import VERSION, WorkloadModel, rounded
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.run_times import LEAST_JOBS, fit_run_times, seeded
from tracekit.fit.sample import Sample, resolution_of
from tracekit.fit.shapes import fit_cluster, fit_correlation, fit_sizes, fit_users
from tracekit.gpu_parts import create_shares
from tracekit.progress import Progress
from tracekit.schema import UNSUCCESSFUL
from tracekit.text import counted
from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit.fit.jobs import JobTable
    from tracekit.trace import Trace


# Statuses by size, attempts, run time to failure, and GPU utilization by size.

MOST_ATTEMPTS = 50


def fit_statuses(table: JobTable) -> dict[str, Any]:
    """Return the outcomes of each size class's jobs: statuses, shares of jobs that never ran, and attempts.

    The shares include only jobs that ended; `unfinished` counts running and pending jobs.
    """
    open_ended = pl.col("status").is_in(UNFINISHED).fill_null(value=False)
    ended = table.frame.filter(~open_ended)
    rows = (
        ended.group_by(pl.col("gpu_class").cast(pl.String), pl.col("status").cast(pl.String))
        .agg(
            pl.len().alias("jobs"),
            (pl.col("held_s").is_null()).sum().alias("never"),
            pl.col("attempt_count").filter(pl.col("held_s").is_not_null()).clip(1, MOST_ATTEMPTS).alias("attempts"),
        )
        .sort("gpu_class", "status", nulls_last=True)
    )
    found = []
    for row in rows.iter_rows(named=True):
        counts, times = np.unique([a for a in row["attempts"] if a is not None], return_counts=True)
        found.append(
            {
                "gpu_class": row["gpu_class"],
                "status": row["status"],
                "jobs": row["jobs"],
                "no_run_time_share": row["never"] / row["jobs"],
                "attempts": counts.astype(int).tolist(),
                "attempt_shares": (times / max(times.sum(), 1)).tolist(),
            }
        )
    return {"ended": ended.height, "unfinished": table.frame.height - ended.height, "groups": found}


def fit_failures(trace: Trace, seed: int, effort: Effort) -> dict[str, Any]:
    """Return the run times to failure and how a job's time is split among its attempts.

    A size class with at least 200 failures has its own entry. Drawing jobs does not need run times to failure, so there
    are none if `effort` is for drawing only.

    An attempt failed if its status is failed, timeout, node_fail or out_of_memory, or if its status is unknown and
    another attempt followed. Philly needs the latter, because it records one status per job.
    """
    if not trace.has("attempts"):
        return {"run_time_to_failure": [], "split": None, "reason": "the Trace has no attempts table"}
    sized = trace.scan("jobs").select("job_id", gpu_class(pl.col("gpu_count")).alias("gpu_class"))
    attempts = (
        trace.scan("attempts")
        .select("job_id", "attempt", "run_s", "status")
        .with_columns(last=pl.col("attempt") == pl.col("attempt").max().over("job_id"))
        .with_columns(
            failed=pl.col("status").is_in(UNSUCCESSFUL).fill_null(value=False)
            | ((pl.col("status").is_null() | (pl.col("status") == "unknown")) & ~pl.col("last"))
        )
    )
    if effort.drawn_only:
        return {"run_time_to_failure": [], "split": _split(attempts)}
    failed = (
        attempts.filter(pl.col("failed") & pl.col("run_s").is_between(0, LONGEST_S))
        .join(sized, on="job_id")
        .select("run_s", "gpu_class")
        .collect()
    )
    whole = failed["run_s"].to_numpy()
    step = resolution_of(whole) if whole.size else 1.0
    found = []
    for name in (None, *CLASSES):
        part = whole if name is None else failed.filter(pl.col("gpu_class") == name)["run_s"].to_numpy()
        if name is not None and part.size < LEAST_JOBS:
            if part.size:
                found.append({"gpu_class": name, "n": int(part.size), "pooled_to": "all"})
            continue
        if part.size:
            sample = Sample.make(part, resolution_s=step)
            shape = describe(sample, seeded(seed, f"failure {name}"), effort)
            found.append({"gpu_class": name, "pooled_to": None, **shape})
    return {"run_time_to_failure": found, "split": _split(attempts)}


def _split(attempts: pl.LazyFrame) -> dict[str, Any] | None:
    """Return a symmetric Dirichlet distribution, fitted by its variance, for splitting a run time among attempts."""
    whole = pl.col("run_s").sum().over("job_id")
    several = (
        attempts.with_columns(number=pl.len().over("job_id"), unsure=pl.col("run_s").is_null().any().over("job_id"))
        .filter((pl.col("number") > 1) & ~pl.col("unsure") & (whole > 0) & (pl.col("run_s") >= 0))
        .select("number", share=pl.col("run_s") / whole)
        .collect()
    )
    if several.height < 20:
        return None
    number, share = several["number"].to_numpy().astype(float), several["share"].to_numpy()
    # Var = (k - 1) / (k^2 (k a + 1)) is solved for a with equal weights for all k.
    measured = float((((share - 1 / number) ** 2) * number**2 / (number - 1)).mean())
    mean_number = float(number.mean())
    concentration = max((1 / max(measured, 1e-6) - 1) / mean_number, 0.01)
    return {"concentration": min(concentration, 100.0), "attempts": several.height}


def fit_utilization(trace: Trace, memory_limit: str | None = None) -> dict[str, Any]:
    """Return GPU utilization by size class, from job_usage if the Trace has that table, otherwise from matched samples.

    Raises
    ------
    UsageError
        The sample quantiles need more memory than the limit, or the limit is not a size such as '2GB'.
    """
    import duckdb

    sized = "SELECT job_id, gpu_count FROM jobs"
    if trace.has("job_usage"):
        source, values = (
            "job_usage",
            f"SELECT u.gpu_util_pct AS pct, j.gpu_count FROM job_usage u JOIN ({sized}) j USING (job_id)",
        )
    elif trace.has("gpu_utilization") and trace.has("placements") and trace.has("attempts"):
        text = (resources.folder("queries") / "views" / "attempt_samples.sql").read_text(encoding="utf-8")
        source = "gpu_utilization"
        values = f"SELECT u.utilization_pct AS pct, j.gpu_count FROM ({text}) u JOIN ({sized}) j USING (job_id)"
    else:
        return {"source": None, "groups": [], "reason": "the Trace has neither job_usage nor samples with placements"}
    case = (
        "CASE WHEN gpu_count = 0 THEN '0' WHEN gpu_count < 1 THEN '<1' WHEN gpu_count = 1 THEN '1' "
        "WHEN gpu_count <= 4 THEN '2-4' WHEN gpu_count <= 8 THEN '5-8' WHEN gpu_count > 8 THEN '>8' END"
    )
    with trace.connect(memory_limit) as con:
        create_shares(con)
        try:
            rows = con.execute(
                f"SELECT {case} AS gpu_class, count(*), sum(CAST(pct AS DECIMAL(18, 6))), "
                "quantile_cont(pct, [0.05, 0.25, 0.5, 0.75, 0.95]) "
                f"FROM ({values}) WHERE pct IS NOT NULL AND gpu_count IS NOT NULL GROUP BY 1"
            ).fetchall()
        except duckdb.OutOfMemoryException as error:
            what = f"the quantiles of {trace.manifest.tables[source].rows:,} rows of {source} ran out of memory"
            raise UsageError(what, where=trace.path, hint="raise --memory-limit") from error
    by_class = {row[0]: row for row in rows}
    groups = [
        {
            "gpu_class": c,
            "samples": by_class[c][1],
            "mean_pct": float(by_class[c][2]) / by_class[c][1],
            **dict(zip(("p5_pct", "p25_pct", "p50_pct", "p75_pct", "p95_pct"), by_class[c][3], strict=True)),
        }
        for c in CLASSES
        if c in by_class
    ]
    return {"source": source, "groups": groups}


@explain_damage()
def fit_model(
    trace: Trace,
    *,
    seed: int = 0,
    effort: Effort,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> WorkloadModel:
    """Return the workload model of a Trace, without scores; `tracekit.fit.scored.fit` explains the parameters.

    Raises
    ------
    TraceError
        The Trace has no jobs table.
    UsageError
        The Trace has no jobs.
    """
    progress = progress or Progress()
    progress.stage("reading the jobs")
    table = read_jobs(trace)
    manifest = trace.manifest
    phase = manifest.capabilities.get("hour_of_day")
    document: dict[str, Any] = {
        "format": "tracekit-workload",
        "version": VERSION,
        "tracekit_version": __version__,
        "seed": seed,
        "effort": {
            "bootstrap_replicates": effort.replicates,
            "bootstrap_jobs": effort.bootstrap_jobs,
            "tail_bootstrap_jobs": effort.tail_jobs,
        },
        "source": {
            "format": manifest.format,
            "created": manifest.created,
            "time_base": manifest.time_base,
            "timezone": trace.timezone,
            "hour_of_day_known": bool(phase and phase.available),
            "jobs": table.frame.height,
            "jobs_of_negative_run_time": table.negative,
            "jobs_of_more_than_100_years": table.too_long,
            "jobs_without_run_time": table.unknown,
            "longest_s": table.frame["held_s"].max(),
        },
    }
    progress.stage("fitting arrivals")
    document["arrivals"] = fit_arrivals(table.frame, trace.timezone, seeded(seed, "arrivals"))
    document["sizes"] = fit_sizes(table.frame)
    document["users"] = fit_users(table.frame)
    document["correlation"] = fit_correlation(table.frame)
    document["statuses"] = fit_statuses(table)
    document["cluster"] = fit_cluster(trace)
    # L-BFGS-B solves systems with a handful of variables in OpenBLAS. On a busy machine, OpenBLAS threads make this
    # many times slower (scipy issue 22438). With one thread, the digits also do not depend on the number of CPUs.
    with threadpool_limits(limits=1, user_api="blas"):
        progress.stage("fitting run times")
        fitted = fit_run_times(table, seed, effort)
        document["run_times"], document["run_time_pools"] = fitted
        progress.stage("fitting failures")
        document["failures"] = fit_failures(trace, seed, effort)
        document["node_failures"] = fit_node_failures(trace, seed, effort)
    progress.stage("reading utilization")
    document["utilization"] = fit_utilization(trace, memory_limit)
    document["notes"] = _notes(document)
    return WorkloadModel(rounded(document))


def _notes(document: dict[str, Any]) -> list[str]:
    """Return notes on the parts that could not be fitted and on the limits of the others."""
    found = _source_notes(document["source"])
    if not document["run_times"]:
        found.append("no run times could be fitted, because no job has one")
    for entry in document["run_times"]:
        if entry["pooled_to"] is None and entry["chosen"] is None:
            key = ", ".join(f"{k} {entry[k]}" for k in ("gpu_class", "status", "vc") if entry[k] is not None)
            found.append(f"run times of {key or 'all jobs'} ({entry['measure']}): {entry['reason']}")
    arrivals = document["arrivals"]
    if arrivals["process"] is None:
        found.append(f"arrivals could not be fitted: {arrivals['reason']}")
    if not document["source"]["hour_of_day_known"]:
        found.append(HOURS_UNKNOWN)
    sessions = arrivals.get("sessions")
    if sessions and sessions["by"] == "nobody":
        found.append("sessions span the whole log, because the log records neither users nor groups")
    coupled = arrivals["process"] == "sessions" and sessions["run_times"] is not None
    if document["correlation"]["correlation"] is None and not coupled:
        found.append(
            "a synthetic Trace draws each run time independently of the user's previous job, because their correlation"
            f" is not known ({document['correlation']['reason']})"
        )
    if document["utilization"]["source"] is None:
        found.append(f"the model has no GPU utilization: {document['utilization']['reason']}")
    return found


def _source_notes(source: dict[str, Any]) -> list[str]:
    found = []
    for kind in ("of negative run time", "of more than 100 years"):
        number = source[f"jobs_{kind.replace(' ', '_')}"]
        if number:
            found.append(f"{counted(number, 'jobs')} {kind} {_are(number)} excluded from the run time fits")
    number = source["jobs_without_run_time"]
    if number:
        found.append(
            f"{counted(number, 'jobs')} without a known run time {_are(number)} excluded from the run time fits"
        )
    return found


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
