"""Jobs start in the order in which a virtual machine would finish them (after A-SRPT, as far as its rule is known)."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Policy
from tracekit.policies.parameters import FIT, NOISE, believed, scan
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def virtual_order(arrival_ms: Ints, service: Ints, gpus: int) -> Ints:
    """Return each job's place in the sequence in which one virtual machine finishes the jobs (n,).

    The machine does `gpus` GPU*ms of work per millisecond, always on the job with the least work left (the earlier job
    among equals). Of two arrived jobs, the one with less work left ends first, regardless of later arrivals. So the
    order of arrived jobs is known before they end.

    Parameters
    ----------
    arrival_ms : array (n,)
        Submission times of the jobs, ascending [ms].
    service : array (n,)
        Work of each job [GPU*ms].
    gpus : int
        Size of the machine, above 0.
    """
    place = np.zeros(len(arrival_ms), np.int64)
    left: list[tuple[int, int]] = []
    ended, now = 0, 0
    for job, (arrival, work) in enumerate(zip(arrival_ms.tolist(), service.tolist(), strict=True)):
        # Measure time in work of the machine, so all values are whole numbers.
        able, now = arrival * gpus - now, arrival * gpus
        while left and left[0][0] <= able:
            done, other = heappop(left)
            able -= done
            place[other], ended = ended, ended + 1
        if left:
            heapreplace(left, (left[0][0] - able, left[0][1]))
        heappush(left, (work, job))
    while left:
        place[heappop(left)[1]], ended = ended, ended + 1
    return place


def by_virtual_end(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Return the key: jobs that finish first on the virtual machine go first."""
    return value


class ASrptLike(Policy):
    """Order in which one virtual machine would finish the jobs under shortest remaining time (after A-SRPT).

    A virtual machine, as fast as all GPUs together, runs the jobs one at a time. It always runs the job with the least
    remaining run time times GPUs, and among equals the earlier job. Shorter jobs that arrive later interrupt longer
    jobs. The real jobs start in the order in which they finish on the virtual machine, and running jobs are never
    stopped. A waiting job makes progress on the virtual machine, so unlike under ssf, short jobs cannot overtake a long
    job forever. A job starts as soon as GPUs are free, even before it has finished on the virtual machine. --placement
    determines the nodes of each gang.

    Equal to
    --------
    - If all jobs are submitted at once, the policy equals ssf. If all jobs have one size, it equals sjf.
    - With equal run times and sizes, the policy equals fifo.

    Sources
    -------
    - Luo et al., Prediction-Assisted Online Distributed Deep Learning Workload Scheduling (arXiv 2501.05563), abstract:
      one virtual machine under preemptive shortest remaining time first, whose schedule guides the start of jobs;
      predicted run times; gangs placed close together.
    - Our choices: the speed of the virtual machine, one machine for each part of a divided cluster, all GPU types
      counted as equal; GPU time as a job's size; starts before the virtual end; run times by M11 instead of by random
      forest; and the placement, because a log does not show a model's graph.
    """

    card = Card(
        name="a-srpt-like",
        parameters=(scan("stop"), FIT, NOISE),
        assumptions=("D1", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return the order on the virtual machine."""
        p = self.parameters
        estimate = believed(jobs, models, p["noise"], seed)
        service = (jobs.work_ms if estimate is None else estimate) * jobs.devices.astype(np.int64)
        found = assign(jobs, cluster)
        gpus = np.bincount(found.group_domain, found.group_gpus, found.domains).astype(np.int64)
        # A job that can never start takes no time on the virtual machine.
        able = found.can_ever_fit(p["fit"])
        place = np.zeros(len(jobs), np.int64)
        for domain, size in enumerate(gpus.tolist()):
            own = np.flatnonzero(able & (found.domain == domain))
            place[own] = virtual_order(jobs.arrival_ms[own], service[own], size)
        return Ordered(by_virtual_end, scan=p["scan"], fit=p["fit"], drift="none", estimate_ms=estimate, value=place)
