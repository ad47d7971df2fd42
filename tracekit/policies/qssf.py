"""Quasi-shortest service first: run times predicted from jobs that had ended before."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, scan
from tracekit.replay.keys import smallest
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Qssf", "foretell_ms"]


class Qssf(Policy):
    """Quasi-shortest service first."""

    card: ClassVar[Card] = Card(
        name="qssf",
        title="shortest jobs first, predicted from earlier jobs of their kind (QSSF)",
        rule=(
            "As ssf, with predicted run times. The prediction uses jobs that had ended, in the log, before the "
            "job was submitted: blend times the mean of jobs with the same user, name and size, plus 1 - blend "
            "times the geometric mean of that user's jobs of the same size. If there are no such jobs, it uses "
            "the user's jobs, then all jobs. Running jobs are never stopped."
        ),
        parameters=(
            scan("stop"),
            FIT,
            Parameter("blend", 0.5, "weight of the mean over jobs of the same name [0..1]", maximum=1),
            Parameter("oracle", default=False, meaning="use the true run times"),
        ),
        assumptions=("D1",),
        equal_to=("With oracle=on: ssf.", "With oracle=on and one-GPU jobs: sjf."),
        sources=(
            "Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21).",
            (
                "In that paper the second part is a learned regressor of weight 0.9, which is not public; we use the "
                "geometric mean instead."
            ),
            "Ends are those of the log: this is what the operator of that cluster knew.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Ordered:
        """Return keys by foretold service."""
        p = self.parameters
        estimate = jobs.work_ms if p["oracle"] else foretell_ms(jobs, p["blend"])
        return Ordered(smallest, scan=p["scan"], fit=p["fit"], drift="none", estimate_ms=estimate)


def foretell_ms(jobs: Jobs, blend: float) -> NDArray[np.int64]:
    """Return run times foretold from jobs that had ended before each submission (n,) [ms].

    A job without a recorded end is assumed to end when it would have without waiting. Before anything has ended,
    every job is foretold the same: one second.

    Parameters
    ----------
    jobs : Jobs
    blend : float
        Weight of the mean of jobs of one user, name and size; the rest is the geometric mean of one user and size.
    """
    from tracekit.replay.kernel import foretell

    known = jobs.recorded_end_ms >= jobs.submit_ms
    ends = np.where(known, jobs.recorded_end_ms, jobs.submit_ms + jobs.work_ms)
    user = jobs.user if len(jobs.users) else jobs.tenant
    sized = _numbered(user.astype(np.int64) * (int(jobs.devices.max(initial=1)) + 1) + jobs.devices)
    named = _numbered(sized * (int(jobs.name.max(initial=-1)) + 2) + jobs.name + 1)
    foretold = np.empty(len(jobs), np.int64)
    foretell(
        jobs.submit_ms,
        jobs.work_ms,
        ends,
        np.argsort(ends, kind="stable"),
        _numbered(user.astype(np.int64)),
        sized,
        named,
        np.log(np.maximum(jobs.work_ms, 1)),
        np.zeros((int(user.max(initial=0)) + 2, 3)),
        np.zeros((int(sized.max(initial=0)) + 1, 3)),
        np.zeros((int(named.max(initial=0)) + 1, 3)),
        blend,
        foretold,
    )
    return foretold


def _numbered(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(codes, return_inverse=True)[1].astype(np.int64)
