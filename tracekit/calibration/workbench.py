"""The jobs of one cluster of a log, what they may have run on, and their replays under settings that are tried."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.calibration.delays import delays_of_jobs, startup_delays
from tracekit.calibration.score import AGREE_S
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.nodes import cluster_under
from tracekit.replay.clusters.of_trace import cluster_of_trace, observed_cluster, states_capacity
from tracekit.replay.registry import named_policy
from tracekit.replay.results.recorded_times import recorded_times
from tracekit.replay.workload.from_trace import jobs_of_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tracekit.calibration.rules import Rules
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.trace import Trace

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

UNNAMED = "all"
"""What a cluster is called where the log names none."""

_SEEN_SHARE = 0.6
"""Settings are chosen by the jobs of the first part of the time, and scored by the rest [1]; our choice."""
FEWEST_JOBS = 50
"""Jobs that each part of a log needs, the one to learn from and the one to score by."""
_EXCERPT, _WAITED = 20_000, 1000
"""Jobs of an excerpt at the least, and how many of them have to have waited longer than `AGREE_S`."""


def in_twin(policy: str, rules: Rules) -> str:
    """Return a policy with the twin's `fit` and `relax`, where it has such parameters and they are not given.

    So a policy in place of the twin's order changes the order alone, not which places do for a gang.
    """
    known = {parameter.name for parameter in named_policy(policy).card.parameters}
    given = {part.partition("=")[0] for part in policy.split(",")[1:]}
    own = {"fit": rules.fit, "relax": rules.relax_s}
    return ",".join((policy, *(f"{key}={value}" for key, value in own.items() if key in known - given)))


def lifted_limits(policy: str, rules: Rules) -> str | None:
    """Return why the effect of a policy's order cannot be told: it would lift limits that hold in the twin.

    None where it lifts none; a policy that has quotas of its own puts these in the place of the twin's.
    """
    own = named_policy(policy).card.quotas and not rules.limits
    if own or not rules.held_back_by:
        return None
    limits = "; ".join(rules.held_back_by)
    return f"by the log {limits}, which this policy would lift: what its order alone gives cannot be told"


def replayed(
    policy: str, jobs: Jobs, cluster: Cluster, models: Models, *, placement: str, seed: int, spreads: bool = False
) -> tuple[Outcome, Cluster]:
    """Return the schedule under a policy, and the cluster as the policy uses it.

    Run times are the recorded ones wherever a gang runs, unless it `spreads` at the cost that `models` states.

    Raises
    ------
    UsageError
        The policy cannot run on these jobs.
    """
    from tracekit.replay.engine.run import simulate
    from tracekit.replay.scenario import spread_table

    chosen = named_policy(policy)
    used = chosen.borrowed(cluster_under(cluster, lends=chosen.lends), jobs, models)
    outcome = simulate(
        jobs,
        used,
        assign(jobs, used),
        chosen.mechanism(jobs, used, models, seed),
        name=chosen.label,
        rule=placement,
        spread=spread_table(models, jobs, used) if spreads else None,
    )
    return outcome, used


class JobTimes(NamedTuple):
    """How long jobs waited and took, each array of shape (n,); NaN unknown, or never.

    Where jobs are stopped, `queue_s` is not all of their waiting: what they wait after a stop is in `jct_s` alone.
    """

    queue_s: NDArray[np.float64]
    """First start minus submission [s]."""
    jct_s: NDArray[np.float64]
    """End minus submission [s]."""
    stopped: int = 0
    """How often a running job lost its GPUs in the replay; 0 of what a log recorded."""


class Settings(NamedTuple):
    """One candidate."""

    rules: Rules
    capacity: str
    """A name of `Workbench.clusters`."""
    delays: bool
    """Whether jobs start up with a delay."""


@dataclass
class Workbench:
    """The jobs of one cluster, what they may have run on, and what was tried on them."""

    jobs: Jobs
    """With recorded starts."""
    clusters: Mapping[str, Callable[[bool], Cluster]]
    """Makes the cluster, in one piece or with nodes for each VC, by the name of where its capacity comes from. The
    first is what the source states, its node events included."""
    among: Bools
    """Jobs to learn from: those of the first part of the log whose start is known (n,)."""
    held_ms: Ints | None = None
    """From submission to eligibility by the log [ms]; None where it tells no holds (n,)."""
    preempts: bool = False
    """Whether the log shows jobs that were stopped for others."""
    models: Models = field(default_factory=lambda: load_models(None))
    seed: int = 0
    delays: dict[str, tuple[float, ...]] | None = None
    """Start-up delays by size of gang [s]; None reads them from the jobs to learn from."""
    made: dict[tuple[str, bool], Cluster] = field(default_factory=dict)
    """Clusters that were asked for already, by capacity and whether each VC has nodes of its own."""

    def cluster(self, settings: Settings) -> Cluster:
        """Return the cluster of a candidate."""
        key = (settings.capacity, settings.rules.partitioned)
        if key not in self.made:
            self.made[key] = self.clusters[settings.capacity](settings.rules.partitioned)
        return self.made[key]

    @property
    def startup(self) -> dict[str, tuple[float, ...]]:
        """Start-up delays by size of gang [s]."""
        if self.delays is None:
            gpus = next(iter(self.clusters.values()))(False).total_gpus
            self.delays = startup_delays(self.jobs, gpus, self.among)
        return self.delays

    def excerpt(self) -> Workbench | None:
        """Return the first jobs to learn from, enough of which waited; None where these are most of them.

        The log begins with them, so that a replay of them alone meets the cluster as the log did.
        """
        learn = np.flatnonzero(self.among)
        waited = np.cumsum(np.nan_to_num(self.recorded_s[learn]) > AGREE_S)
        enough = max(_EXCERPT, int(np.searchsorted(waited, _WAITED)) + 1)
        if enough >= len(learn) / 2:
            return None
        rows = np.arange(learn[enough - 1] + 1)
        held = None if self.held_ms is None else self.held_ms[rows]
        return replace(self, jobs=self.jobs.rows(rows), among=self.among[rows], held_ms=held, delays=self.startup)

    def held_back(self, *, delays: bool) -> tuple[Jobs, Ints]:
        """Return the jobs as they compete for GPUs, and the place of each in `jobs`."""
        held = np.zeros(len(self.jobs), np.int64) if self.held_ms is None else self.held_ms
        if delays:
            held = held + delays_of_jobs(self.jobs, self.startup, self.seed)
        return self.jobs.held_back(held)

    def replay(
        self, settings: Settings, policy: str | None = None, models: Models | None = None
    ) -> tuple[Outcome, Ints]:
        """Return the schedule under a candidate, or under another policy in its place, and whose rows these are.

        Run times are the recorded ones wherever a gang runs, unless `models` states what being spread costs.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        rules = settings.rules
        jobs, order = self.held_back(delays=settings.delays)
        chosen = rules.policy if policy is None else in_twin(policy, rules)
        outcome, _ = replayed(
            chosen,
            jobs,
            self.cluster(settings),
            models or self.models,
            placement=rules.placement,
            seed=self.seed,
            spreads=models is not None,
        )
        return outcome, order

    def times(self, settings: Settings, policy: str | None = None, models: Models | None = None) -> JobTimes:
        """Return how long each of `jobs` waits and takes under a candidate, or under a policy in place of its order.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        outcome, order = self.replay(settings, policy, models)
        return self.times_of(outcome, order)

    def times_of(self, outcome: Outcome, order: Ints) -> JobTimes:
        """Return the times of a schedule; `order` is the place in `jobs` of each of its rows."""

        def since_submission(when_ms: Ints) -> NDArray[np.float64]:
            at = np.empty(len(self.jobs), np.int64)
            at[order] = when_ms
            return np.where(at >= 0, (at - self.jobs.submit_ms) / 1000, np.nan)

        queue_s, jct_s = since_submission(outcome.first_start_ms), since_submission(outcome.end_ms)
        return JobTimes(queue_s, jct_s, int(outcome.preemptions.sum()))

    @property
    def recorded(self) -> JobTimes:
        """What the log recorded."""
        known = recorded_times(self.jobs)
        queue_s, jct_s = (np.where(ms >= 0, ms / 1000, np.nan) for ms in (known.queue_ms, known.jct_ms))
        return JobTimes(queue_s, jct_s)

    @property
    def recorded_s(self) -> NDArray[np.float64]:
        """First start minus submission by the log [s]; NaN unknown (n,)."""
        return self.recorded.queue_s


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
    if not last and len(jobs) >= 2 * FEWEST_JOBS:
        raise UsageError(
            "all jobs were submitted at the same time, so the log cannot be split by time", where=trace.path
        )
    seen = known & (jobs.submit_ms < _SEEN_SHARE * last)
    for what, count in (("first", seen), ("last", known & ~seen)):
        if int(count.sum()) < FEWEST_JOBS:
            raise UsageError(
                f"{int(count.sum()):,} jobs of the {what} part of the log have a known start; calibrating takes "
                f"{FEWEST_JOBS} or more",
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


def _holds(trace: Trace, jobs: Jobs) -> Ints | None:
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
