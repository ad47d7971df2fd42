"""The recorded schedule, and policies by arrival or the log's priorities, with or without backfilling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, RELAX, SCOPE, believed, relaxed, scan
from tracekit.policies.tenants import NO_QUOTA, NO_USE_COUNTS, QUEUES, tenants
from tracekit.replay.keys import by_arrival, most_urgent
from tracekit.replay.mechanisms import Backfill, Ordered, RecordedSchedule, Tenants
from tracekit.text import counted, percent

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism


class Fifo(Policy):
    """First in, first out.

    Jobs start in submission order, each with all its GPUs at once, and run to their end. With scan=stop, a job that
    cannot start blocks all later jobs. With scan=skip, later jobs may overtake it, and many-GPU jobs may starve unless
    `age_cap` is set. A gang that has waited for `relax` seconds accepts GPUs on any nodes. With `queues`, each VC, user
    or partition has its own queue, and a job that cannot start blocks only that queue.

    Equal to
    --------
    - With one VC, queues=vc gives the schedule of queues=one.
    - If all jobs have one size and fit=count, scan=stop and scan=skip give the same schedule.
    - With relax=0, all placements are strict, so spreading never slows a job.

    Sources
    -------
    - The usual baseline.
    - Helios (SC'21), Lucid (ASPLOS'23) and Gavel (OSDI'20) stop at the first job that cannot start.
    - The simulators of Tiresias (NSDI'19) and of Alibaba's 2020 trace skip that job.
    """

    card = Card(
        name="fifo",
        parameters=(
            scan("stop"),
            FIT,
            Parameter("age_cap", 0.0, "wait after which a job that cannot start blocks the others, or 0 for never [s]"),
            RELAX,
            SCOPE,
            QUEUES,
        ),
        assumptions=("D1", "M4"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered | Tenants:
        """Return keys by submission. If there are several queues, they take turns."""
        p = self.parameters
        if p["queues"] != "one":
            return self._queues(jobs)
        return Ordered(
            by_arrival,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            by_arrival=True,
            **relaxed(p),
            age_cap_ms=round(p["age_cap"] * 1000),
        )

    def _queues(self, jobs: Jobs) -> Tenants:
        p = self.parameters
        if p["relax"] or p["age_cap"]:
            what = "relax" if p["relax"] else "age_cap"
            raise UsageError(
                f"the policy fifo: queues={p['queues']} cannot be combined with {what}", hint=f"leave {what} out"
            )
        codes = tenants(jobs, p["queues"])
        count = int(codes.max(initial=0)) + 1
        return Tenants(
            Ordered(by_arrival, scan=p["scan"], fit=p["fit"], drift="none", by_tenant=True, by_arrival=True),
            codes,
            np.full((1, count), NO_QUOTA, np.int64),
            np.zeros(1, np.int64),
            np.full(count, NO_USE_COUNTS, np.int64),
            limit="own",
            reclaim="never",
            reclaim_others="never",
        )


_OVERRUN = "If a job exceeds its estimate, the estimate is doubled as often as needed; the job is not stopped (D8)."


def _order(parameters: dict[str, Any], jobs: Jobs, models: Models, seed: int) -> Ordered:
    return Ordered(
        by_arrival,
        fit=parameters["fit"],
        estimate_ms=believed(jobs, models, parameters["noise"], seed),
        **relaxed(parameters),
    )


class Easy(Policy):
    """EASY backfilling: later jobs start early if they do not delay the first job in the queue.

    Equal to
    --------
    - If all jobs have one size, the policy equals fifo,scan=stop.
    - If all estimates are 0, the policy equals fifo,scan=skip.
    - With fit=count, exact estimates, at most two waiting jobs and no job of run time 0, the policy equals
      conservative.

    Sources
    -------
    - Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).
    - Our choices: we find the start time on a map of the nodes, and double an exceeded estimate.
    """

    card = Card(
        name="easy",
        rule=(
            "Jobs start in submission order, up to the first job that does not fit. The estimates of running jobs "
            "show when and where that job will fit. A later job may start now if it fits and either should end by "
            "then or uses only GPUs that the first job will not need. " + _OVERRUN
        ),
        parameters=(FIT, NOISE, RELAX, SCOPE),
        assumptions=("D1", "M4", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission and the estimates."""
        return Backfill(_order(self.parameters, jobs, models, seed), "easy")


class Conservative(Policy):
    """Conservative backfilling: later jobs start early if they delay no earlier job.

    Equal to
    --------
    - If all jobs have one size and fit=count, the policy equals fifo,scan=stop.
    - If all estimates are 0 and fit=count, the policy equals fifo,scan=skip.
    - With fit=count, depth=1 and no job with an estimate of 0, the policy equals easy.

    Sources
    -------
    - Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001).
    - Our choices: the limit on reservations, and doubling an exceeded estimate.
    """

    card = Card(
        name="conservative",
        rule=(
            "In submission order, each waiting job reserves the first time from which enough GPUs are free in total "
            "for its estimated run time, given the earlier reservations. Reservations are recomputed at every "
            "event. A job starts when its reserved time comes. If it does not fit on the nodes, it keeps its "
            "reservation and tries again at the next event. Only the first `depth` waiting jobs of a domain have "
            "reservations; other jobs start if they do not delay these. " + _OVERRUN
        ),
        parameters=(
            FIT,
            NOISE,
            Parameter("depth", 16, "number of waiting jobs per domain that get reservations, or 0 for all"),
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Backfill:
        """Return keys by submission, the estimates and the number of reservations."""
        p = self.parameters
        return Backfill(_order(p, jobs, models, seed), "conservative", p["depth"])


class Priority(Policy):
    """Highest priority in the log first, and first in, first out among equals.

    The job with the highest priority in the log starts first. Among equals, the earlier job goes first. A job without a
    priority has priority 0. Running jobs are never stopped. Priorities are fixed, because a log has one value per job
    and does not show how it grew while the job waited. With backfill=easy or backfill=conservative, later jobs may
    start early, as under the policies easy and conservative.

    Equal to
    --------
    - If all jobs have one priority, the policy equals fifo with the same scan.
    - If all jobs have one priority and backfill=easy or conservative, the policy equals easy or conservative.

    Sources
    -------
    - The priority queues of Slurm, PBS and YARN, without aging.
    """

    card = Card(
        name="priority",
        parameters=(
            scan("stop"),
            FIT,
            Parameter(
                "backfill",
                "none",
                "whether later jobs may start early, based on estimates",
                ("none", "easy", "conservative"),
            ),
            NOISE,
            RELAX,
            SCOPE,
        ),
        assumptions=("D1", "M4", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Mechanism:
        """Return keys by priority."""
        p = self.parameters
        levels = np.unique(jobs.priority)
        order = Ordered(
            most_urgent,
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            value=np.searchsorted(levels, jobs.priority).astype(np.int64),
            estimate_ms=None if p["backfill"] == "none" else believed(jobs, models, p["noise"], seed),
            **relaxed(p),
        )
        return order if p["backfill"] == "none" else Backfill(order, p["backfill"])


class Recorded(Policy):
    """The recorded schedule: jobs start and end as in the log.

    Each job runs from its first recorded start to its last recorded end. Only its nodes are chosen again, by the
    placement rule. If the job does not fit close together, it gets any nodes of one GPU model. A job runs even if too
    few GPUs are free; it then has no nodes. The schedule is checked against the cluster: violations.parquet lists when
    a node or domain would use more GPUs than it has. Jobs without a recorded start are excluded, and their number is
    reported.

    Equal to
    --------
    - On the log's own cluster, there are no violations if the log is correct.

    Sources
    -------
    - The log.
    """

    card = Card(
        name="recorded",
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> RecordedSchedule:
        """Return the recorded starts and ends."""
        unknown = jobs.recorded_start_ms < 0
        endless = ~unknown & (jobs.recorded_end_ms < jobs.recorded_start_ms)
        early = ~unknown & ~endless & (jobs.recorded_start_ms < jobs.submit_ms)
        out = unknown | endless | early
        if out.all():
            raise UsageError(
                "no job has a recorded start and end",
                where="recorded",
                hint="a changed load makes them meaningless: use --load 1, or another policy",
            )
        gpu_ms = jobs.work_ms.astype(np.float64) * jobs.devices * jobs.milli
        notes = tuple(
            f"left out {what}: {counted(int(which.sum()), 'jobs')}, with "
            f"{percent(gpu_ms[which].sum() / max(gpu_ms.sum(), 1))} of the GPU-hours"
            for which, what in (
                (unknown, "without a recorded start"),
                (endless, "without a recorded end"),
                (early, "recorded as started before their submission"),
            )
            if which.any()
        )
        return RecordedSchedule(
            np.where(out, -1, jobs.recorded_start_ms), np.where(out, -1, jobs.recorded_end_ms), notes=notes
        )
