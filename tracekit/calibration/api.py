"""Find the twin of a log: the replay settings that come nearest to what it recorded."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.calibration.rolling import rolling_scores
from tracekit.calibration.rules import Rules
from tracekit.calibration.score import Score, score
from tracekit.calibration.search import search
from tracekit.calibration.twin import ClusterTwin, Delays, Scores, Twin, digest_of_jobs, twin_text
from tracekit.calibration.workbench import UNNAMED, JobTimes, Settings, Workbench, in_twin, lifted_limits
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.clusters.feasibility import check_feasibility
from tracekit.replay.clusters.of_trace import cluster_of_trace, observed_cluster, states_capacity
from tracekit.replay.native import kernel
from tracekit.replay.part import part_of
from tracekit.replay.results.effects import TwinOfLog
from tracekit.replay.results.recorded_times import RECORDED, TWIN
from tracekit.replay.scenario import Scenario
from tracekit.replay.sweeps.digests import code_of_replays, trace_facts
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.shards.items import SharedItems
from tracekit.text import alike_durations, counted, percent, shorten
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.calibration.search import Tried
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.shards.work import SharedWork

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = [
    "Calibration",
    "ClusterCalibration",
    "calibrate",
    "calibrate_jobs",
    "clusters_by_waiting",
    "graded",
    "recall",
    "scenario_of_twin",
    "twin_of_log",
    "workbench_of",
]

_SEEN_SHARE = 0.6
"""Settings are chosen by the jobs of the first part of the time, and scored by the rest [1]; our choice."""
_FEWEST = 50
"""Jobs that each part needs."""
_CANDIDATES: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("stage", "rules", "policy", "capacity"), pl.String),
    "delays": pl.Boolean,
    **dict.fromkeys(("distance", "mean_wait_s"), pl.Float64),
    "why_not": pl.String,
    "chosen": pl.Boolean,
}


@dataclass(frozen=True)
class ClusterCalibration:
    """What was found for one cluster."""

    name: str
    waiting_share: float | None
    """Its part of the hours waited in all clusters [1]; None where nobody waited."""
    bench: Workbench
    settings: Settings
    score: Score
    tried: tuple[Tried, ...]
    times: JobTimes
    """How long each job waits and takes in the twin."""
    unseen: Bools
    """Jobs that the score is over (n,)."""

    @property
    def recorded_s(self) -> Floats:
        """First start minus submission by the log [s]; NaN unknown (n,)."""
        return self.bench.recorded_s

    @property
    def twin_s(self) -> Floats:
        """The same in the twin; NaN where a job never starts (n,)."""
        return self.times.queue_s

    @property
    def waits(self) -> bool:
        """Whether any job waits by the log; without, every order of the jobs fits it alike."""
        return bool((np.nan_to_num(self.recorded_s) > 0).any())

    @property
    def why_no_effect(self) -> str | None:
        """Why no effect can be told from this twin, a sentence without its full stop; None where it carries effects."""
        if not self.waits:
            return "no job waits by the log; the effect cannot be told"
        if self.score.carries:
            return None
        return (
            f"a replay does not reproduce this log ({self.score.missed}; grade {self.score.grade}); "
            "the effect cannot be told"
        )

    @property
    def twin(self) -> ClusterTwin:
        """Its table in twin.toml."""
        whole = {k: v for k, v in self.score.whole.items() if k in {f.name for f in fields(Scores)}}
        return ClusterTwin(
            **{f.name: getattr(self.settings.rules, f.name) for f in fields(Rules)},
            capacity=self.settings.capacity,  # type: ignore[arg-type]  # the keys of `workbench_of`
            jobs=len(self.bench.jobs),
            delays=Delays(self.bench.held_ms is not None, self.bench.startup if self.settings.delays else {}),
            grade=self.score.grade,
            scores=Scores(**whole, queue_correlation=self.score.queue_correlation),
        )

    @property
    def sentences(self) -> list[str]:
        """What was found, for people."""
        whole = self.score.whole
        share = "" if self.waiting_share is None else f", with {percent(self.waiting_share)} of the hours waited"
        name = "the log" if self.name == UNNAMED else f"{shorten(self.name, 40)}{share}"
        twin, log = alike_durations((whole["twin_mean_s"], whole["recorded_mean_s"]))
        lines = [
            f"{name}: behaves like {self.settings.rules.words}"
            if self.waits
            else f"{name}: no job waits, so that it does not tell how its scheduler orders them",
            (
                f"grade {self.score.grade}: over {counted(whole['jobs'], 'jobs')} by which the settings were not "
                f"chosen, the twin waits {twin} in the mean, the log {log}; {percent(whole['agreeing_share'])} of them "
                "wait alike (within 5 min or 25 %)"
            ),
        ]
        if self.waits and not self.score.carries:
            lines.append("no effect of a change can be told from it: something else than these rules decided who waits")
        return lines

    def candidates(self) -> pl.DataFrame:
        """Return what was tried, the nearest first: stage, rules, capacity, delays, distance, mean_wait_s, why_not."""
        rows = [
            {
                "stage": t.stage,
                "rules": t.settings.rules.words,
                "policy": t.settings.rules.policy,
                "capacity": t.settings.capacity,
                "delays": t.settings.delays,
                "distance": None if np.isinf(t.distance) else t.distance,
                "mean_wait_s": None if np.isnan(t.mean_s) else t.mean_s,
                "why_not": t.why_not,
                "chosen": t.settings == self.settings,
            }
            for t in self.tried
        ]
        return pl.DataFrame(rows, schema=_CANDIDATES).sort("distance", nulls_last=True, maintain_order=True)


@dataclass(frozen=True)
class Calibration:
    """The twin of a log."""

    twin: Twin
    clusters: tuple[ClusterCalibration, ...]
    """Those with most of the waiting hours first."""
    left_out: dict[str, str]
    """Clusters without a twin, and why, a sentence without its full stop."""


@explain_damage()
def calibrate(
    trace: Trace | str | Path,
    *,
    clusters: Sequence[str] | None = None,
    limit: int | None = 100_000,
    budget: int | None = None,
    seed: int = 0,
    shared: SharedWork | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Find the settings under which a replay of a Trace comes nearest to what its log recorded.

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission, start, end and number of GPUs.
    clusters : sequence of str, optional
        Which clusters; all by default, those with most of the waiting hours first.
    limit : int, optional
        Look at the first so many jobs of each cluster only; None all.
    budget : int, optional
        Look at so many jobs in all, split evenly; what a small cluster leaves goes to the others.
    seed : int
        Of the delays drawn.
    shared : SharedWork, optional
        The folder in which shards try candidates together, or gathers what they found (docs/howto/shards.md): those of
        a stage are divided, and what a shard has done itself it makes of what the others left. Each returns the same.
    progress : Progress, optional
        Told of every candidate.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers, and candidates were not tried.
    TracekitError
        The Trace cannot be used, or no cluster of it can be calibrated.
    """
    kernel()  # before a Trace is read for nothing
    opened, progress = Trace.of(trace).ingested, progress or Progress()
    shares = clusters_by_waiting(opened)
    asked = list(shares) if clusters is None else list(clusters)
    limits = dict.fromkeys(asked, limit) if budget is None else _split(opened, asked, budget)
    for name in asked:
        if name not in shares:
            raise UsageError(f"no cluster '{name[:60]}'", where=opened.path, hint=f"choose of: {', '.join(shares)}")
    results: dict[str, ClusterCalibration | str] = {}
    for name in _turned(asked, shared):
        tries = None if shared is None else _tries(shared, opened, name, limits[name], seed)
        try:
            bench = workbench_of(opened, None if name == UNNAMED else name, limit=limits[name], seed=seed)
            results[name] = calibrate_jobs(bench, name, shares[name], progress, tries)
        except UsageError as error:
            results[name] = error.what
    ordered = {name: results[name] for name in asked}
    found = [one for one in ordered.values() if not isinstance(one, str)]
    left_out = {name: one for name, one in ordered.items() if isinstance(one, str)}
    if not found:
        reasons = [why if name == UNNAMED else f"{shorten(name, 40)}: {why}" for name, why in left_out.items()]
        raise UsageError("; ".join(reasons), where=opened.path)
    twin = Twin(digest_of_jobs(opened), {one.name: one.twin for one in found}, opened.path.name)
    return Calibration(twin, tuple(found), left_out)


def _turned(clusters: Sequence[str], shared: SharedWork | None) -> list[str]:
    """Return clusters in the order in which a shard looks at them: shards begin at different ones."""
    begin = 0 if shared is None or shared.shard is None or not clusters else (shared.shard.number - 1) % len(clusters)
    return [*clusters[begin:], *clusters[:begin]]


def _tries(shared: SharedWork, trace: Trace, cluster: str, limit: int | None, seed: int) -> SharedItems:
    facts = {"what": "calibrate", "trace": trace_facts(str(trace.path)), "code": code_of_replays("calibration")}
    return SharedItems(shared, {**facts, "cluster": cluster, "limit": limit, "seed": seed})


def _split(trace: Trace, clusters: Sequence[str], budget: int) -> dict[str, int | None]:
    """Return how many jobs of each cluster are looked at: as even a split as their numbers of jobs allow."""
    counts = dict(trace.scan("jobs").filter(pl.col("gpu_count") > 0).group_by("cluster").len().collect().iter_rows())
    sizes = {name: counts.get(None if name == UNNAMED else name, 0) for name in clusters}
    limits: dict[str, int | None] = {}
    for k, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        share = max(budget // (len(sizes) - k), 1)
        limits[name] = share
        budget -= min(share, sizes[name])
    return limits


@explain_damage()
def recall(
    trace: Trace | str | Path, twin: Twin, *, clusters: Sequence[str] | None = None, seed: int = 0
) -> Calibration:
    """Return the calibration that a twin states, its settings replayed and graded anew and nothing searched.

    Parameters
    ----------
    trace : Trace or path
        Of which the twin is (see `read_twin`).
    twin : Twin
        As read, and perhaps edited.
    clusters : sequence of str, optional
        Which of its clusters; all by default.
    seed : int
        Of the delays drawn.

    Raises
    ------
    TracekitError
        The Trace cannot be used, or the twin cannot be replayed on it.
    """
    kernel()
    opened = Trace.of(trace).ingested
    shares = clusters_by_waiting(opened)
    found = []
    for name in twin.cluster if clusters is None else clusters:
        if name not in twin.cluster or name not in shares:
            where = "the twin" if name not in twin.cluster else "the Trace"
            raise UsageError(f"{where} has no cluster '{name[:60]}'", where=opened.path)
        one = twin.cluster[name]
        bench = workbench_of(opened, None if name == UNNAMED else name, limit=one.jobs, seed=seed)
        bench.delays = dict(one.delays.startup)
        if not one.delays.holds:
            bench.held_ms = None
        if one.capacity not in bench.clusters:
            what = f"{shorten(name, 40)}: the twin takes the capacity '{one.capacity}', which the Trace does not state"
            hint = f"write capacity = {' or '.join(repr(known) for known in bench.clusters)} in the twin"
            raise UsageError(what, where=opened.path, hint=hint)
        settings = Settings(one.rules, one.capacity, bool(one.delays.startup))
        found.append(graded(bench, settings, name, shares[name]))
    return Calibration(twin, tuple(found), {})


def twin_of_log(found: ClusterCalibration, twin: Twin) -> TwinOfLog:
    """Return the twin of one cluster as comparisons of replays take it; `twin` is that of all clusters."""
    rules = found.settings.rules
    text = twin_text(replace(twin, cluster={found.name: found.twin}))
    return TwinOfLog(
        rules.policy,
        rules.words,
        text,
        partial(in_twin, rules=rules),
        found.why_no_effect,
        lambda policy: None if policy in {TWIN, RECORDED} else lifted_limits(policy, rules),
    )


def scenario_of_twin(found: ClusterCalibration, trace: Trace) -> Scenario:
    """Return what policies can be tried on in a twin: its jobs as they compete, its capacity and its placement."""
    bench, settings = found.bench, found.settings
    jobs, _ = bench.held_back(delays=settings.delays)
    cluster = bench.cluster(settings)
    name = None if found.name == UNNAMED else found.name
    # The recorded run times hold wherever a gang ran: being spread slows none of them once more.
    models = replace(bench.models, spread=replace(bench.models.spread, level="none", levels={"none": 0.0}))
    scenario = Scenario.make(jobs, cluster, models=models, placement=settings.rules.placement, seed=bench.seed)
    return replace(
        scenario,
        feasibility=check_feasibility(jobs, cluster, scenario.assignment),
        trace=trace,
        part=part_of(trace, name),
    )


def clusters_by_waiting(trace: Trace) -> dict[str, float | None]:
    """Return the clusters of a Trace, each with its part of all hours waited, the largest first.

    A wait is queue_s of a job with GPUs, first start minus submission.
    """
    waits = trace.scan("jobs").filter(pl.col("gpu_count") > 0)
    table = waits.group_by("cluster").agg(pl.col("queue_s").sum().alias("s"), pl.len().alias("jobs")).collect()
    named = table.filter(pl.col("cluster").is_not_null())
    if named.height == 0:
        return {UNNAMED: 1.0 if (table["s"].sum() or 0.0) > 0 else None}
    total = float(named["s"].sum() or 0.0)
    rows = named.sort("s", "jobs", "cluster", descending=[True, True, False]).iter_rows(named=True)
    return {str(row["cluster"]): row["s"] / total if total else None for row in rows}


def workbench_of(trace: Trace, cluster: str | None, *, limit: int | None, seed: int) -> Workbench:
    """Return the jobs of a cluster, and what they may have run on.

    Raises
    ------
    UsageError
        No job can be replayed, or the log does not tell enough starts.
    """
    jobs = jobs_of_trace(trace, cluster=cluster, limit=limit)
    known = jobs.recorded_start_ms >= jobs.submit_ms
    last = int(jobs.submit_ms.max())
    if not last and len(jobs) >= 2 * _FEWEST:
        raise UsageError(
            "all jobs were submitted at the same time, so the log cannot be split by time", where=trace.path
        )
    seen = known & (jobs.submit_ms < _SEEN_SHARE * last)
    for what, count in (("first", seen), ("last", known & ~seen)):
        if int(count.sum()) < _FEWEST:
            raise UsageError(
                f"{int(count.sum()):,} jobs of the {what} part of the log have a known start; calibrating takes "
                f"{_FEWEST} or more",
                where=trace.path,
            )
    makers = {"observed": partial(_observed, trace, jobs, cluster)}
    if states_capacity(trace, jobs, cluster):
        makers = {"stated": partial(_stated, trace, jobs, cluster, events=False), **makers}
        if trace.has("nodes") and trace.has("node_events"):
            makers = {"events": partial(_stated, trace, jobs, cluster, events=True), **makers}
    return Workbench(jobs, makers, seen, _holds(trace, jobs), _preempts(trace, cluster), seed=seed)


def _preempts(trace: Trace, cluster: str | None) -> bool:
    """Return whether an attempt of a job of the cluster was stopped for another job."""
    if not trace.has("attempts"):
        return False
    jobs = trace.scan("jobs").filter(pl.col("cluster").eq_missing(pl.lit(cluster, pl.String))).select("job_id")
    stopped = trace.scan("attempts").filter(pl.col("status") == "preempted").select("job_id")
    return not stopped.join(jobs, on="job_id", how="semi").head(1).collect().is_empty()


def _stated(trace: Trace, jobs: Jobs, cluster: str | None, partitioned: bool, *, events: bool) -> Cluster:
    made = cluster_of_trace(trace, jobs, cluster=cluster, partitioned=partitioned, events=events)
    # Nodes divided to see whether the log behaves so are not divided by the user: a policy that lends may share them.
    return replace(made, lendable=partitioned)


def _observed(trace: Trace, jobs: Jobs, cluster: str | None, partitioned: bool) -> Cluster:
    return replace(observed_cluster(trace, jobs, cluster=cluster, partitioned=partitioned), lendable=partitioned)


def _holds(trace: Trace, jobs: Jobs) -> NDArray[np.int64] | None:
    """Return how long the log held each job back before it was eligible [ms]; None where it tells none.

    A job that started before it was eligible was not held back until then; such a time is a fault of the log.
    """
    table = trace.scan("jobs").select("job_id", pl.col("eligible_time") - pl.col("submit_time")).collect()
    if table["eligible_time"].null_count() == len(table):
        return None
    own = pl.DataFrame({"job_id": jobs.job_id}).join(
        table.unique("job_id", keep="first"), on="job_id", how="left", maintain_order="left"
    )
    held = own["eligible_time"].dt.total_milliseconds().fill_null(0).to_numpy().astype(np.int64)
    waited = np.where(jobs.recorded_start_ms >= 0, jobs.recorded_start_ms - jobs.submit_ms, 0)
    held = np.clip(held, 0, np.maximum(waited, 0))
    return held if held.any() else None


def calibrate_jobs(
    bench: Workbench,
    name: str = UNNAMED,
    waiting_share: float | None = 1.0,
    progress: Progress | None = None,
    shared: SharedItems | None = None,
) -> ClusterCalibration:
    """Return the twin of the jobs of one cluster, chosen by the jobs to learn from and scored by the others.

    With `shared` the candidates of each stage are tried by all shards together.

    Raises
    ------
    UsageError
        Nothing can be replayed.
    """
    found = search(bench, progress, shared)
    made = graded(bench, found.best, name, waiting_share, found.tried)
    rolling = rolling_scores(bench, progress, shared)
    if rolling is None:
        return made
    return replace(made, score=replace(made.score, table=pl.concat([made.score.table, rolling])))


def graded(
    bench: Workbench,
    settings: Settings,
    name: str = UNNAMED,
    waiting_share: float | None = 1.0,
    tried: tuple[Tried, ...] = (),
) -> ClusterCalibration:
    """Return settings as the twin of a cluster, scored by the jobs that are not there to learn from.

    Raises
    ------
    UsageError
        The settings cannot be replayed, or no job to score by starts.
    """
    recorded, times = bench.recorded_s, bench.times(settings)
    twin = times.queue_s
    unseen = ~bench.among & ~np.isnan(recorded) & ~np.isnan(twin)
    if not unseen.any():
        raise UsageError("none of the jobs in the last part of the log starts in a replay")
    found = score(bench.jobs, recorded, twin, unseen)
    return ClusterCalibration(name, waiting_share, bench, settings, found, tried, times, unseen)
