"""Promises to meet deadlines: which jobs have a deadline, which were admitted, and what happened to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Parameter
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["BROKEN", "DECLINED", "FREE", "PROMISED", "SLO", "UNSEEN", "Promises", "declined"]

SLO = Parameter("slo", 1.0, "share of the jobs that have a deadline (D7); the others run as best effort [1]", maximum=1)

UNSEEN, FREE, PROMISED, DECLINED, BROKEN = range(5)
"""A job that was not considered yet; has no deadline; was admitted; was declined; can no longer meet it."""


def declined(*choices: str) -> Parameter:
    """Return the parameter `declined` with a policy's choices in addition to 'best-effort' and 'drop'."""
    said = "a job runs as best effort if its deadline is not promised or can no longer be met"
    if "last" in choices:
        said += ", or after all others"
    return Parameter("declined", "best-effort", f"{said}, or never", ("best-effort", *choices, "drop"))


class Promises:
    """The deadlines of one run, and the decision about each job."""

    def __init__(self, jobs: Jobs, models: Models, seed: int, share: float, *, drop: bool) -> None:
        self.deadline_ms: NDArray[np.int64] = deadlines_ms(models, jobs.submit_ms, jobs.work_ms, seed, share)
        """Deadlines, -1 of jobs without one [ms] (n,)."""
        self.state: NDArray[np.int8] = np.where(self.deadline_ms < 0, FREE, UNSEEN).astype(np.int8)
        """Decision about each (n,)."""
        self._drop = drop

    def waits_for_nothing(self, job: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which jobs never run, as they were declined (k,)."""
        if not self._drop:
            return np.zeros(len(job), np.bool_)
        return np.asarray(self.state[job] >= DECLINED)

    def tell(self, outcome: Outcome) -> Outcome:
        """Return an outcome with the deadlines, and how many were promised, kept and declined."""
        promised, late = self.state == PROMISED, outcome.end_ms > self.deadline_ms
        broken = self.state == BROKEN
        kept = promised & (outcome.end_ms >= 0) & ~late
        due = self.deadline_ms >= 0
        value = (
            f"{counted(int(due.sum()), 'jobs')} with a deadline: {int((promised | broken).sum()):,} promised "
            f"({int(kept.sum()):,} in time), {int((self.state == DECLINED).sum()):,} declined"
        )
        gone = (self.state >= DECLINED) & (outcome.first_start_ms < 0)
        if self._drop:
            value += f"; {int(gone.sum()):,} never ran"
        fact = {"title": "deadlines promised", "value": value, "source": "the engine"}
        return replace(outcome, deadline_ms=self.deadline_ms, facts={**outcome.facts, "promises": fact})
