"""Random jobs for policies that share GPUs, and the laws that every run must obey."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from tests.replay.auditor import audit
from tests.replay.engines import run_engine
from tests.replay.strategies import job_lists

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["lawful", "same", "sharing_jobs"]

_SAME = ("first_start_ms", "end_ms", "run_ms", "preemptions", "migrations", "nodes_spanned", "unschedulable")


def lawful(jobs: Jobs, cluster: Cluster, policy: str, residents: int) -> Outcome:
    """Run a policy, audit its log (seats, gangs, and work done at the logged speeds), and return the outcome."""
    outcome = run_engine(jobs, cluster, policy)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, residents=residents) == []
    return outcome


def same(one: Outcome, other: Outcome) -> bool:
    """Return whether two runs are the same for every job."""
    return all(getattr(one, name).tolist() == getattr(other, name).tolist() for name in _SAME)


@st.composite
def sharing_jobs(draw: st.DrawFn, *, most: int = 12, preemptible: int | None = None, typed: bool = True) -> Jobs:
    """Sample jobs with utilizations and classes, or with the same class if `preemptible` is set."""
    jobs = draw(job_lists(most=most, typed=typed))
    count = len(jobs)
    used = draw(st.lists(st.sampled_from([0.1, 0.5, 0.8, 1.0, float("nan")]), min_size=count, max_size=count))
    kind = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    flags = np.full(count, preemptible, np.int8) if preemptible is not None else np.array(kind, np.int8)
    return replace(jobs, utilization=np.array(used), preemptible=flags)
