"""Trials of a Trace and the logs that belong to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.schema import UNSUCCESSFUL

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable

    from tracekit.characterize.joblogs.logs import LogFile, Owner
    from tracekit.trace import Trace

__all__ = ["FAILED", "KnownJobs", "TrialLogs", "trials_by_name"]

FAILED = (*UNSUCCESSFUL, "preempted")
"""Statuses of a trial that make it a failure."""

_NOT_FAILED = frozenset({"completed", "cancelled", "running", "pending"})


class _Attempt(NamedTuple):
    end: dt.datetime | None
    status: str | None


@dataclass
class TrialLogs:
    """One attempt of a job, with its logs."""

    job_id: str
    attempt: int | None = None
    end: dt.datetime | None = None
    status: str | None = None
    """As the Trace has it; None when it is unknown or there is no Trace."""
    files: list[LogFile] = field(default_factory=list)

    @property
    def failed(self) -> bool | None:
        """Whether the trial failed by the Trace; None when only its log can show it."""
        if self.status in FAILED:
            return True
        return False if self.status in _NOT_FAILED else None


def trials_by_name(files: Iterable[LogFile]) -> tuple[list[TrialLogs], int]:
    """Return the trials named by logs, and how many logs name none."""
    found: dict[Owner, TrialLogs] = {}
    nameless = 0
    for file in files:
        if not file.owners:
            nameless += 1
            continue
        owner = file.owners[0]
        found.setdefault(owner, TrialLogs(owner.job_id, owner.attempt)).files.append(file)
    return list(found.values()), nameless


class KnownJobs:
    """The jobs of a Trace that some logs may belong to."""

    def __init__(self, trace: Trace, files: Iterable[LogFile]) -> None:
        self._trace = trace
        names = pl.Series("job_id", sorted({o.job_id for f in files for o in f.owners}), dtype=pl.String)
        wanted = names.to_frame().lazy()
        jobs = trace.scan("jobs").join(wanted, on="job_id", how="semi").select("job_id", "end_time", "status")
        self._jobs = {str(job): _Attempt(end, status) for job, end, status in jobs.collect().iter_rows()}
        self._attempts: dict[str, dict[int, _Attempt]] = {}
        if trace.has("attempts"):
            attempts = trace.scan("attempts").join(wanted, on="job_id", how="semi")
            rows = attempts.select("job_id", "attempt", "end_time", "status").sort("job_id", "attempt").collect()
            for job, number, end, status in rows.iter_rows():
                self._attempts.setdefault(str(job), {})[number] = _Attempt(end, status)

    def trials(self, files: Iterable[LogFile]) -> tuple[list[TrialLogs], int]:
        """Return the trials that logs belong to, and how many logs belong to no trial of the Trace.

        A log whose name states no attempt belongs to the last one.
        """
        found: dict[tuple[str, int | None], TrialLogs] = {}
        unknown = 0
        for file in files:
            trial = next((t for t in map(self._trial, file.owners) if t is not None), None)
            if trial is None:
                unknown += 1
            else:
                found.setdefault((trial.job_id, trial.attempt), trial).files.append(file)
        return list(found.values()), unknown

    def failed_without_log(self, trials: Iterable[TrialLogs]) -> int:
        """Return how many jobs of the Trace failed and have no log."""
        with_log = {trial.job_id for trial in trials}
        failed = self._trace.scan("jobs").filter(pl.col("status").is_in(list(FAILED))).select(pl.len()).collect().item()
        return int(failed) - sum(self._jobs[job].status in FAILED for job in with_log)

    def _trial(self, owner: Owner) -> TrialLogs | None:
        if owner.job_id not in self._jobs:
            return None
        job = self._jobs[owner.job_id]
        attempts = self._attempts.get(owner.job_id, {})
        if not attempts:
            # A job that never started, or a source without attempts: the log is the job's.
            return None if owner.attempt else TrialLogs(owner.job_id, None, job.end, job.status)
        last = max(attempts)
        number = last if owner.attempt is None else owner.attempt
        if number not in attempts:
            return None
        status = attempts[number].status
        # Without a status of its own the last attempt ended as the job did; for an earlier one its log decides.
        return TrialLogs(
            owner.job_id, number, attempts[number].end, job.status if status is None and number == last else status
        )
