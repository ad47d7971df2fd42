"""Fit a workload model to a Trace; `tracekit.fit.scored` also scores what can be generated from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.fit.arrivals import HOURS_UNKNOWN, fit_arrivals
from tracekit.fit.choice import Effort
from tracekit.fit.jobs import read_jobs
from tracekit.fit.model import VERSION, WorkloadModel, rounded
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.outcomes import fit_failures, fit_statuses, fit_utilization
from tracekit.fit.run_times import fit_run_times, seeded
from tracekit.fit.shapes import fit_cluster, fit_correlation, fit_sizes, fit_users
from tracekit.progress import Progress
from tracekit.text import counted
from tracekit.trace import Trace
from tracekit.version import __version__

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

__all__ = ["fit"]


@explain_damage()
def fit(
    trace: Trace | str | Path,
    *,
    seed: int = 0,
    replicates: int = 99,
    drawn_only: bool = False,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> WorkloadModel:
    """Fit a workload model to a Trace.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace or its folder.
    seed : int
        For goodness and bootstrap; parameters do not depend on it.
    replicates : int
        Samples that each bootstrap draws; 0 leaves the p-values out.
    drawn_only : bool
        Fit only what jobs are drawn from, in less time.
    memory_limit : str, optional
        Most memory DuckDB may use for measurements of use before it spills to disk, such as '2GB'.
    progress : Progress, optional
        Receives the steps.

    Returns
    -------
    WorkloadModel
        The same for the same Trace and seed, to the byte.

    Raises
    ------
    TraceError
        There is no such Trace, or it has no table jobs.
    UsageError
        The Trace has no job, or an option cannot be used.

    Examples
    --------
    >>> import tracekit
    >>> model = tracekit.fit("my-trace")  # doctest: +SKIP
    >>> model.run_time(gpu_class="1")["chosen"]  # doctest: +SKIP
    'lognorm_mix_3'
    """
    if seed < 0:
        raise UsageError(f"must be at least 0, not {seed}", where="--seed")
    if replicates < 0:
        raise UsageError(f"must be at least 0, not {replicates}", where="--bootstrap")
    whole = Trace.of(trace).ingested
    progress = progress or Progress()
    effort = Effort(replicates=replicates, drawn_only=drawn_only)
    progress.stage("reading the jobs")
    table = read_jobs(whole)
    manifest = whole.manifest
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
            "timezone": whole.timezone,
            "hour_of_day_known": bool(phase and phase.available),
            "jobs": table.frame.height,
            "jobs_of_negative_run_time": table.negative,
            "jobs_of_more_than_100_years": table.too_long,
            "jobs_without_run_time": table.unknown,
            "longest_s": table.frame["held_s"].max(),
        },
    }
    progress.stage("fitting arrivals")
    document["arrivals"] = fit_arrivals(table.frame, whole.timezone, seeded(seed, "arrivals"))
    document["sizes"] = fit_sizes(table.frame)
    document["users"] = fit_users(table.frame)
    document["correlation"] = fit_correlation(table.frame)
    document["statuses"] = fit_statuses(table)
    document["cluster"] = fit_cluster(whole)
    # L-BFGS-B has OpenBLAS solve systems of a handful of variables, which its threads make many times slower where
    # other programs run (scipy issue 22438); one thread also keeps the digits from depending on the processors.
    with threadpool_limits(limits=1, user_api="blas"):
        progress.stage("fitting run times")
        fitted = fit_run_times(table, seed, effort)
        document["run_times"], document["run_time_pools"] = fitted
        progress.stage("fitting failures")
        document["failures"] = fit_failures(whole, seed, effort)
        document["node_failures"] = fit_node_failures(whole, seed, effort)
    progress.stage("reading utilization")
    document["utilization"] = fit_utilization(whole, memory_limit)
    document["notes"] = _notes(document)
    return WorkloadModel(rounded(document))


def _notes(document: dict[str, Any]) -> list[str]:
    """Return what could not be fitted, and what a reader should know about the rest."""
    found = _source_notes(document["source"])
    if not document["run_times"]:
        found.append("no run time could be fitted: no job has one")
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
        found.append("sessions are those of the log as a whole: neither users nor VCs are known")
    coupled = arrivals["process"] == "sessions" and sessions["run_times"] is not None
    if document["correlation"]["correlation"] is None and not coupled:
        found.append(
            "a synthetic Trace draws each run time without regard to the same user's job before: how they hang together"
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
            found.append(f"{counted(number, 'jobs')} {kind} {_are(number)} in no fit of run times")
    number = source["jobs_without_run_time"]
    if number:
        found.append(f"{counted(number, 'jobs')} without a known run time {_are(number)} in no fit of run times")
    return found


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
