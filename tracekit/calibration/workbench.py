"""The jobs of one cluster of a log, the clusters they may have run on, and their replays under candidate settings."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np
import polars as pl

from tracekit.calibration.delays import delays_of_jobs, startup_delays
from tracekit.calibration.reasons import WaitReasons
from tracekit.calibration.score import AGREE_S
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.cluster import cluster_under, moved_cluster
from tracekit.replay.clusters.of_trace import (
    cluster_of_trace,
    milliseconds_after_origin,
    observed_cluster,
    states_capacity,
)
from tracekit.replay.jobs import recorded_times
from tracekit.replay.registry import named_policy
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.replay.workload.of_site import jobs_of_site
from tracekit.tenant import VC
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from numpy.typing import NDArray

    from tracekit.calibration.rules import Order, Rules
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.tenant import Tenant
    from tracekit.trace import Trace

    Bools = NDArray[np.bool_]
    Ints = NDArray[np.int64]

UNNAMED = "all"
"""Name of the cluster if the log names no clusters."""

_SEEN_SHARE = 0.6
"""The settings are chosen from the jobs in this first share of the time [1] and scored on the others. Our choice."""
FEWEST_JOBS = 50
"""Minimum number of jobs in the part of a log to learn from, and in the part to score."""
SPANS = 400
"""Number of equal parts of the submission period in which candidates are compared. Our choice."""
_EXCERPT, _WAITED = 20_000, 1000
"""Minimum number of jobs in an excerpt, and of jobs in it that waited longer than `AGREE_S`."""


def in_twin(policy: str, rules: Rules) -> str:
    """Give a policy the twin's `fit` and `relax` if it has these parameters and they are not set.

    This way, a policy that replaces the twin's order changes only the order, not where multi-GPU jobs may run. With the
    rules of a site, only the order and what later jobs do behind a waiting job change.
    """
    if rules.site is not None:
        return _in_site(policy, rules) or policy
    known = {parameter.name for parameter in named_policy(policy).card.parameters}
    given = {part.partition("=")[0] for part in policy.split(",")[1:]}
    own = {"fit": rules.fit, "relax": rules.relax_s}
    return ",".join((policy, *(f"{key}={value}" for key, value in own.items() if key in known - given)))


_SITE_ORDERS: dict[str, Order] = {
    "fifo": "arrival",
    "easy": "arrival",
    "sjf": "shortest",
    "ssf": "smallest",
    "priority": "priority",
}
"""Policies whose order the policy `site` has, with its name there. The others cannot keep a site's rules."""


def _in_site(policy: str, rules: Rules) -> str | None:
    """Return the policy `site` with a policy's order and the twin's other rules, or None if it has no such order."""
    chosen = named_policy(policy)
    name, given = chosen.card.name, chosen.parameters
    if name == "site":
        return policy
    noise = given.get("noise", rules.estimates)
    if name not in _SITE_ORDERS or noise not in {"oracle", "limit"} or given.get("backfill") == "conservative":
        return None
    backfill = "easy" if name == "easy" else given.get("backfill", "none")
    scan = given.get("scan", "stop")
    return replace(rules, order=_SITE_ORDERS[name], estimates=noise).changed(backfill=backfill, scan=scan).policy


def lifted_limits(policy: str, rules: Rules, tenant: Tenant = VC) -> str | None:
    """Return a sentence that explains why a policy has no separate effect if it would lift limits of the twin.

    The result is None if the policy lifts no limits. A policy with quotas of its own replaces the twin's quotas.
    """
    if rules.site is not None:
        if _in_site(policy, rules) is not None:
            return None
        return "the simulation needs rules of this site that this policy does not have, such as its CPUs or limits"
    own = named_policy(policy).card.quotas and not rules.limits
    if own or not rules.held_back_by:
        return None
    limits = tenant.fill("; ".join(rules.held_back_by))
    return f"this policy would lift a limit in the log ({limits}), so the effect of its order alone cannot be estimated"


def replayed(
    policy: str, jobs: Jobs, cluster: Cluster, models: Models, *, placement: str, seed: int, spreads: bool = False
) -> tuple[Outcome, Cluster]:
    """Return the schedule under a policy, and the cluster in the form that the policy uses.

    A multi-GPU job keeps its recorded run time wherever it runs, unless `spreads` is set, which applies the spreading
    cost in `models`.

    Raises
    ------
    UsageError
        The policy cannot run on these jobs.
    """
    from tracekit.replay.engine.run import simulate
    from tracekit.replay.scenario import spread_table

    chosen = named_policy(policy)
    usable = cluster_under(cluster, lends=chosen.lends, partitions=chosen.keeps_partitions)
    used = chosen.borrowed(usable, jobs, models)
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
    """Waits and completion times of jobs (n,). A time is NaN if it is unknown or the job never starts or ends.

    If jobs are preempted, `queue_s` is not their total wait, because waits after a preemption count only in `jct_s`.
    """

    queue_s: NDArray[np.float64]
    """First start minus submission [s]."""
    jct_s: NDArray[np.float64]
    """End minus submission [s]."""
    stopped: int = 0
    """Number of times that a running job lost its GPUs in the replay, or 0 for recorded times."""


class Settings(NamedTuple):
    """One candidate."""

    rules: Rules
    capacity: str
    """A key of `Workbench.clusters`."""
    delays: bool
    """Whether jobs have start-up delays."""
    size: float = 1.0
    """Number of nodes as a multiple of the cluster's; above 1 only to try more nodes."""


class MoreNodes(NamedTuple):
    """A change of a twin: more nodes of the kinds that it has, in the same proportion."""

    nodes: int
    """Number of additional nodes."""
    size: float
    """All nodes as a multiple of the cluster's."""

    def words(self) -> str:
        """Describe the change."""
        return counted(self.nodes, "more nodes")


@dataclass
class Workbench:
    """The jobs of one cluster, the clusters they may have run on, and the facts learned from the jobs."""

    jobs: Jobs
    """Jobs with recorded starts."""
    clusters: Mapping[str, Callable[[bool, float], Cluster]]
    """Functions that make the cluster, by source of the capacity; the arguments are whether each VC has nodes of its
    own, and the number of nodes as a multiple of the cluster's. The first source is what the log recorded, including
    its node events.
    """
    among: Bools
    """Jobs to learn from: the jobs in the first part of the log whose start is known (n,)."""
    held_ms: Ints | None = None
    """Recorded time from submission to eligibility [ms], or None if the log records no holds (n,)."""
    preempts: bool = False
    """Whether the log contains jobs that were preempted for other jobs."""
    stoppers: tuple[tuple[str, ...], ...] = ()
    """Rules by which jobs may stop others that the log suggests, each as `SiteSettings.preempts`."""
    reasons: WaitReasons | None = None
    """The reasons that the log gives for waits, or None if it gives none."""
    models: Models = field(default_factory=lambda: load_models(None))
    seed: int = 0
    delays: dict[str, tuple[float, ...]] | None = None
    """Start-up delays by job size [s]; None to measure them on the jobs to learn from."""
    later: bool = False
    """Whether the jobs are only those submitted from a time on (see `since`)."""
    lead: int = 0
    """Number of first jobs that were submitted before the others and only fill the cluster (see `since`)."""
    unused: int = 0
    """Number of jobs of the log that are not used, because they ended before the others were submitted."""
    made: dict[tuple[str, bool, float], Cluster] = field(default_factory=dict)
    """Clusters already made, by capacity, whether each VC has nodes of its own, and size."""
    _held: tuple[Hashable, tuple[Jobs, Ints]] | None = field(default=None, init=False, repr=False, compare=False)
    """The latest result of `held_back`, and what it depends on."""

    @property
    def own(self) -> Bools:
        """Mask of the jobs that do not only fill the cluster (n,)."""
        return np.arange(len(self.jobs)) >= self.lead

    @property
    def spans(self) -> Ints:
        """The part of the submission period in which each job was submitted, 0 to `SPANS` - 1 (n,)."""
        return self.span_of(self.jobs.submit_ms)

    def span_of(self, time_ms: Any) -> Any:
        """Return the part of the submission period that contains a time, or each of several times [ms]."""
        return time_ms * SPANS // (int(self.jobs.submit_ms.max()) + 1)

    def cluster(self, settings: Settings) -> Cluster:
        """Return the cluster of a candidate."""
        return self._cluster(settings.capacity, settings.rules.partitioned, settings.size)

    def _cluster(self, capacity: str, partitioned: bool, size: float) -> Cluster:
        key = (capacity, partitioned, size)
        if key not in self.made:
            self.made[key] = self.clusters[capacity](partitioned, size)
        return self.made[key]

    def more_nodes(self, settings: Settings, share: float) -> MoreNodes:
        """Return the change that adds this share of the nodes, at least one. Each group of nodes grows alike."""
        now = self.cluster(settings).machines
        size = (now + max(1, round(share * now))) / now
        return MoreNodes(self.cluster(settings._replace(size=size)).machines - now, size)

    @property
    def startup(self) -> dict[str, tuple[float, ...]]:
        """Start-up delays by job size [s]."""
        if self.delays is None:
            gpus = self._cluster(next(iter(self.clusters)), False, 1.0).total_gpus
            self.delays = startup_delays(self.jobs, gpus, self.among)
        return self.delays

    def excerpt(self) -> Workbench | None:
        """Return the shortest excerpt with enough waits, or None if it needs over half of the jobs to learn from.

        An excerpt consists of the first jobs of the log, so its replay starts from the same state of the cluster.
        """
        learn = np.flatnonzero(self.among)
        waited = np.cumsum(np.nan_to_num(self.recorded_s[learn]) > AGREE_S)
        enough = max(_EXCERPT, int(np.searchsorted(waited, _WAITED)) + 1)
        if enough >= len(learn) / 2:
            return None
        return self.rows(np.arange(learn[enough - 1] + 1))

    def rows(self, chosen: Ints) -> Workbench:
        """Return the workbench of the chosen jobs, with the delays measured on all jobs to learn from."""
        return replace(
            self,
            jobs=self.jobs.rows(chosen),
            among=self.among[chosen],
            held_ms=None if self.held_ms is None else self.held_ms[chosen],
            reasons=None if self.reasons is None else self.reasons.rows(chosen),
            delays=self.startup,
        )

    def since(self, begin_ms: int) -> Workbench:
        """Return the workbench of the jobs submitted from a time on, in a cluster as full as it was in the log then.

        The first jobs of the result were submitted earlier (see `lead`). Those that ran at `begin_ms` have the rest of
        their run time left, and those that waited still wait. Their recorded times are unknown, so they are neither
        scored nor used for learning. All times count from `begin_ms`.
        """
        jobs = self.jobs
        started = (jobs.recorded_start_ms >= 0) & (jobs.recorded_end_ms > begin_ms)
        earlier = started & (jobs.submit_ms < begin_ms)
        made = self.rows(np.flatnonzero(earlier | (jobs.submit_ms >= begin_ms)))
        own, lead = made.jobs, int(earlier.sum())
        first = np.arange(len(own)) < lead
        ran_ms = np.where(first, np.maximum(begin_ms - own.recorded_start_ms, 0), 0)
        left_ms = np.where(ran_ms > 0, np.minimum(own.work_ms, own.recorded_end_ms - begin_ms), own.work_ms)

        def moved(times: Ints) -> Ints:
            return np.where(first | (times < 0), -1, times - begin_ms)

        later = replace(
            own,
            origin=own.origin + dt.timedelta(milliseconds=begin_ms),
            submit_ms=np.maximum(own.submit_ms - begin_ms, 0),
            work_ms=left_ms,
            limit_ms=np.where(own.limit_ms < 0, -1, np.maximum(own.limit_ms - ran_ms, left_ms)),
            preempted_ms=None if own.preempted_ms is None else np.where(first, 0, own.preempted_ms),
            failed_ms=None if own.failed_ms is None else np.where(first, 0, own.failed_ms),
            recorded_start_ms=moved(own.recorded_start_ms),
            recorded_end_ms=moved(own.recorded_end_ms),
            others=None if own.others is None else own.others.since(begin_ms),
        )
        held = made.held_ms
        if held is not None:
            held = np.where(first, np.maximum(own.submit_ms + held - begin_ms, 0), held)
        return replace(
            made,
            jobs=later,
            clusters={name: _made_since(make, begin_ms) for name, make in self.clusters.items()},
            among=learning_part(later),
            held_ms=held,
            delays=None,
            made={},
            later=True,
            lead=lead,
            unused=len(jobs) - len(own),
        )

    def jobs_under(self, settings: Settings) -> Jobs:
        """Return the jobs with the work that they have under a candidate.

        If the candidate stops jobs, runs that were stopped in the log for the same reason are not part of the work.
        """
        site = settings.rules.site
        preempted, failed = site is not None and bool(site.preempts), settings.capacity == "outages"
        return self.jobs.starting_over(preempted=preempted, failed=failed) if preempted or failed else self.jobs

    def held_back(self, settings: Settings) -> tuple[Jobs, Ints]:
        """Return the jobs with the times from which they compete for GPUs, and the index of each job in `jobs`."""
        jobs = self.jobs_under(settings)
        key = (self.held_ms is None, tuple(self.startup.items()) if settings.delays else None)
        if jobs is self.jobs and self._held is not None and self._held[0] == key:
            return self._held[1]
        held = np.zeros(len(jobs), np.int64) if self.held_ms is None else self.held_ms
        if settings.delays:
            held = held + delays_of_jobs(jobs, self.startup, self.seed)
        found = jobs.held_back(held)
        if jobs is self.jobs:
            self._held = key, found
        return found

    def replay(
        self, settings: Settings, policy: str | None = None, models: Models | None = None
    ) -> tuple[Outcome, Ints]:
        """Return the schedule under a candidate, or a policy that replaces its order, and each row's index in `jobs`.

        A multi-GPU job keeps its recorded run time wherever it runs, unless `models` gives a spreading cost.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        rules = settings.rules
        jobs, order = self.held_back(settings)
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
        """Return the wait and completion time of each of `jobs` under a candidate, or a policy that replaces its order.

        Raises
        ------
        UsageError
            The policy cannot run on these jobs.
        """
        outcome, order = self.replay(settings, policy, models)
        return self.times_of(outcome, order)

    def at_least(self, waits_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return replayed waits, in which a job that never starts waits at least until the last submission [s] (n,)."""
        submit_s = self.jobs.submit_ms / 1000
        return np.where(np.isnan(waits_s), submit_s.max() - submit_s, waits_s)

    def times_of(self, outcome: Outcome, order: Ints) -> JobTimes:
        """Return the times of a schedule. `order` is the index in `jobs` of each row."""

        def since_submission(when_ms: Ints) -> NDArray[np.float64]:
            at = np.empty(len(self.jobs), np.int64)
            at[order] = when_ms
            return np.where(at >= 0, (at - self.jobs.submit_ms) / 1000, np.nan)

        queue_s, jct_s = since_submission(outcome.first_start_ms), since_submission(outcome.end_ms)
        return JobTimes(queue_s, jct_s, int(outcome.preemptions.sum()))

    @property
    def recorded(self) -> JobTimes:
        """The recorded times."""
        known = recorded_times(self.jobs)
        queue_s, jct_s = (np.where(ms >= 0, ms / 1000, np.nan) for ms in (known.queue_ms, known.jct_ms))
        return JobTimes(queue_s, jct_s)

    @property
    def recorded_s(self) -> NDArray[np.float64]:
        """Recorded wait, first start minus submission [s], or NaN if unknown (n,)."""
        return self.recorded.queue_s


_MOST_SITE_JOBS = 200_000
"""Longer logs are not tried with the rules of a site, whose replay looks at every waiting job at every event."""


def may_be_site(jobs: Jobs) -> bool:
    """Return whether the jobs have time limits, as in Slurm, PBS and LSF, and are few enough for a site's rules."""
    return bool((jobs.limit_ms >= 0).any()) and len(jobs) <= _MOST_SITE_JOBS


def learning_part(jobs: Jobs) -> Bools:
    """Return a mask of the jobs to learn from: those with a known start in the first part of the time (n,)."""
    known = jobs.recorded_start_ms >= jobs.submit_ms
    return known & (jobs.submit_ms < _SEEN_SHARE * int(jobs.submit_ms.max()))


def _made_since(make: Callable[[bool, float], Cluster], begin_ms: int) -> Callable[[bool, float], Cluster]:
    """Return a function that makes a cluster whose times count from `begin_ms`."""
    return lambda partitioned, size: moved_cluster(make(partitioned, size), begin_ms)


def clusters_by_waiting(trace: Trace) -> dict[str, float | None]:
    """Return the clusters of a Trace with their shares of all waiting hours, largest first.

    The wait of a GPU job is its queue_s: first start minus submission.
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
    """Return the jobs of a cluster, and the clusters they may have run on.

    Raises
    ------
    UsageError
        No job can be replayed, or the log records too few starts.
    """
    jobs = jobs_of_trace(trace, cluster=cluster, limit=limit)
    if may_be_site(jobs):
        jobs = jobs_of_site(trace, jobs, cluster)
    known = jobs.recorded_start_ms >= jobs.submit_ms
    if not int(jobs.submit_ms.max()) and len(jobs) >= 2 * FEWEST_JOBS:
        raise UsageError(
            "all jobs were submitted at the same time, so the log cannot be split by time", where=trace.path
        )
    seen = learning_part(jobs)
    for what, count in (("first", seen), ("last", known & ~seen)):
        if int(count.sum()) < FEWEST_JOBS:
            raise UsageError(
                f"{int(count.sum()):,} jobs of the {what} part of the log have a known start; calibration needs at "
                f"least {FEWEST_JOBS}",
                where=trace.path,
            )
    makers = {"observed": partial(_observed, trace, jobs, cluster)}
    if states_capacity(trace, jobs, cluster):
        makers = {"stated": partial(_stated, trace, jobs, cluster, events=False), **makers}
        if trace.has("nodes") and trace.has("node_events"):
            makers = {"events": partial(_stated, trace, jobs, cluster, events=True), **makers}
            # Only the jobs of a site know which part of their work was lost (see `Jobs.failed_ms`).
            if may_be_site(jobs) and _has_attempts(trace, cluster, "node_fail", another=True):
                makers["outages"] = partial(_stated, trace, jobs, cluster, events=True, stops=True)
    reasons = WaitReasons.of(trace, jobs)
    preempts = _has_attempts(trace, cluster, "preempted")
    # In SWF, preempted parts are continued, and no rule of a site can continue a job.
    stops = preempts and may_be_site(jobs) and trace.manifest.format != "swf"
    stoppers = _stoppers(trace, jobs) if stops else ()
    return Workbench(jobs, makers, seen, _holds(trace, jobs), preempts, stoppers, reasons, seed=seed)


_AT_ONCE_MS = 5_000
"""A job that starts this soon after another was preempted may have stopped it [ms]. Our choice."""
_RARELY = 0.05
"""A class of jobs yields to others if at least this share of the preempted attempts belongs to it [1]. Our choice."""
_MOST_STOPPERS, _LONG_AGO_MS = 4, -(1 << 60)


def _stoppers(trace: Trace, jobs: Jobs) -> tuple[tuple[str, ...], ...]:
    """Return rules of preemption that the log suggests, between classes of QOS and then between partitions.

    The classes of preempted jobs yield. The class whose jobs started most often when one was preempted may stop them,
    and in further options, the next ones as well.
    """
    stopped = trace.scan("attempts").filter(pl.col("status") == "preempted").select("job_id", "end_time").collect()
    times = np.sort(milliseconds_after_origin(stopped["end_time"].drop_nulls(), jobs))
    place = np.searchsorted(times, jobs.recorded_start_ms, "right") - 1
    since = jobs.recorded_start_ms - np.append(times, _LONG_AGO_MS)[place]
    at_once = (jobs.recorded_start_ms >= 0) & (since <= _AT_ONCE_MS)
    found = []
    for per, codes, names in (("qos", jobs.qos, jobs.qoses), ("partition", jobs.partition, jobs.partitions)):
        if codes is None or len(names) <= 1:
            continue
        own = pl.DataFrame({"job_id": jobs.job_id, "code": codes}).filter(pl.col("code") >= 0)
        victims = np.bincount(stopped.join(own, on="job_id")["code"].to_numpy(), minlength=len(names))
        yields = victims >= max(_RARELY * victims.sum(), 1)
        starts = np.where(yields, 0, np.bincount(codes[at_once & (codes >= 0)], minlength=len(names)))
        ranked = [int(k) for k in np.argsort(-starts, kind="stable") if starts[k]]
        for most in range(1, min(len(ranked), _MOST_STOPPERS) + 1):
            pairs = [(names[a], names[b]) for a in ranked[:most] for b in np.flatnonzero(yields)]
            found.append(tuple(f"{per}:{quote(a, safe='')}:{quote(b, safe='')}" for a, b in pairs))
    return tuple(found)


def _has_attempts(trace: Trace, cluster: str | None, status: str, *, another: bool = False) -> bool:
    """Return whether a job of the cluster has an attempt with a status, and `another` attempt after it if so asked."""
    if not trace.has("attempts"):
        return False
    jobs = trace.scan("jobs").filter(pl.col("cluster").eq_missing(pl.lit(cluster, pl.String))).select("job_id")
    found = trace.scan("attempts").filter(pl.col("status") == status).join(jobs, on="job_id", how="semi")
    if another:
        last = trace.scan("attempts").group_by("job_id").agg(pl.col("attempt").max().alias("last"))
        found = found.join(last, on="job_id").filter(pl.col("attempt") < pl.col("last"))
    return not found.head(1).collect().is_empty()


def _stated(
    trace: Trace,
    jobs: Jobs,
    cluster: str | None,
    partitioned: bool,
    size: float,
    *,
    events: bool,
    stops: bool = False,
) -> Cluster:
    made = cluster_of_trace(
        trace, jobs, cluster=cluster, partitioned=partitioned, events=events, stops=stops, gpus=size
    )
    # The nodes are divided only as a candidate, not by the user, so a policy that lends quotas may share them.
    return replace(made, lendable=partitioned)


def _observed(trace: Trace, jobs: Jobs, cluster: str | None, partitioned: bool, size: float) -> Cluster:
    made = observed_cluster(trace, jobs, cluster=cluster, partitioned=partitioned, gpus=size)
    return replace(made, lendable=partitioned)


def _holds(trace: Trace, jobs: Jobs) -> Ints | None:
    """Return the time from submission to eligibility of each job [ms] (n,), or None if the log records no holds.

    If a job started before its eligible time, that time is an error in the log, so the hold ends at the start.
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
