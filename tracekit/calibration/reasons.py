"""The reasons that a log gives for its waits, and the rules of a replay to which they belong.

Slurm's accounting keeps the last reason of each job that is a limit or a condition (`wait_reason` of jobs). Jobs that
waited only for priority or resources have none. The words are those of Slurm's job reason codes
(slurm.schedmd.com/job_reason_codes.html). The query `queuing/wait_reasons` groups the same words more coarsely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.text import percent, shorten

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.calibration.rules import Rules
    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

CONTENTION, USER_GPUS, VC_GPUS, USER_JOBS, VC_JOBS, ARRAY_TASKS, AWAY, HELD, UNMODELED = (
    "contention",
    "user_gpus",
    "vc_gpus",
    "user_jobs",
    "vc_jobs",
    "array tasks",
    "nodes away",
    "held",
    "not modeled",
)
"""Families of reasons. `USER_GPUS` and `VC_GPUS` have the names of the fields of `HoldingLimits`."""

_GPUS = "(GRES|TRES|Gres)"
_FAMILIES: tuple[tuple[str, frozenset[str]], ...] = (
    # The order of jobs, and backfilling. Slurm's accounting does not keep these words, but squeue shows them.
    ("Resources|Priority", frozenset({CONTENTION})),
    # TRES and GRES are taken as GPUs, because only GPU jobs are replayed.
    (f"QOSMax{_GPUS}PerUser", frozenset({USER_GPUS})),
    (f"QOSMax{_GPUS}PerAccount|Max{_GPUS}PerAccount", frozenset({VC_GPUS})),
    # An association is an account, or a user in an account.
    (f"AssocGrp{_GPUS}", frozenset({USER_GPUS, VC_GPUS})),
    ("QOSMaxJobsPerUserLimit", frozenset({USER_JOBS})),
    ("QOSMaxJobsPerAccountLimit", frozenset({VC_JOBS})),
    ("Assoc(Grp|Max)JobsLimit", frozenset({USER_JOBS, VC_JOBS})),
    ("NodeDown|ReqNodeNotAvail", frozenset({AWAY})),
    # The eligible time of a job comes after these conditions.
    ("JobArrayTaskLimit", frozenset({ARRAY_TASKS, HELD})),
    ("BeginTime|Dependency|JobHeld(Admin|User)", frozenset({HELD})),
)
"""Patterns of whole words, each with the families that can explain it. Other words are not modeled: limits on nodes,
CPUs or minutes, limits of a QOS as a whole, licenses, reservations and closed partitions.
"""

STAGES = {
    CONTENTION: ("order", "backfilling", "order of a site"),
    USER_GPUS: ("quotas and limits", "limits of a site"),
    VC_GPUS: ("quotas and limits", "limits of a site"),
    USER_JOBS: ("limits of a site",),
    VC_JOBS: ("limits of a site",),
    ARRAY_TASKS: ("limits of a site",),
    AWAY: ("capacity",),
}
"""The search stages that try the rules of a family. Holds are part of the log, not of the rules."""

_NAMED = 3
"""Maximum number of reasons that a sentence names."""
_LEAST = 0.005
"""A sentence names only reasons with at least this share of the waiting hours [1]. Our choice."""


def families_of(word: str) -> frozenset[str]:
    """Return the families that can explain a reason word."""
    return next((found for pattern, found in _FAMILIES if re.fullmatch(pattern, word)), frozenset({UNMODELED}))


class Reason(NamedTuple):
    """A reason in a log."""

    word: str
    jobs: int
    """Number of started jobs with this reason."""
    waiting_share: float
    """Waiting hours of these jobs / waiting hours of all jobs [1]."""


@dataclass(frozen=True)
class WaitReasons:
    """The reason of each job of a replay. The log records a reason for at least one of them."""

    words: pl.Series
    """The word of each job, or NULL if the log gives no reason (String, n)."""

    @classmethod
    def of(cls, trace: Trace, jobs: Jobs) -> WaitReasons | None:
        """Return the reasons of jobs, or None if the log records none."""
        table = trace.scan("jobs").select("job_id", word=pl.col("wait_reason").str.extract("^[A-Za-z]+", 0)).collect()
        if table["word"].null_count() == len(table):
            return None
        own = pl.DataFrame({"job_id": jobs.job_id}).join(
            table.unique("job_id", keep="first"), on="job_id", how="left", maintain_order="left"
        )
        return None if own["word"].null_count() == len(own) else cls(own["word"])

    def rows(self, chosen: NDArray[np.int64]) -> WaitReasons:
        """Return the reasons of the chosen jobs."""
        return WaitReasons(self.words.gather(chosen))

    def naming(self, family: str) -> Bools:
        """Return a mask of the jobs whose reason belongs to a family (n,)."""
        fitting = [word for word in self.words.drop_nulls().unique() if family in families_of(word)]
        return self.words.is_in(fitting).fill_null(value=False).to_numpy()

    def summed(self, recorded_s: Floats) -> list[Reason]:
        """Return the reasons of the jobs with a known wait, starting with the largest share of the waiting hours.

        Parameters
        ----------
        recorded_s : array of float, shape (n,)
            Recorded wait, first start minus submission [s], or NaN if unknown.
        """
        table = pl.DataFrame({"word": self.words, "s": recorded_s}).filter(pl.col("s").is_not_nan())
        whole = float(table["s"].sum())
        if not whole:
            return []
        grouped = table.drop_nulls("word").group_by("word").agg(pl.len().alias("jobs"), pl.col("s").sum())
        rows = grouped.sort("s", "word", descending=[True, False]).iter_rows(named=True)
        return [Reason(row["word"], row["jobs"], row["s"] / whole) for row in rows]


def stage_shares(reasons: list[Reason]) -> dict[str, float]:
    """Return the share of the waiting hours that belongs to each search stage [1].

    Waits without a reason were for priority or resources. If several stages try rules for a reason, it counts for each.
    """
    shares: dict[str, float] = dict.fromkeys(STAGES[CONTENTION], 1 - sum(one.waiting_share for one in reasons))
    for one in reasons:
        for stage in {stage for family in families_of(one.word) for stage in STAGES.get(family, ())}:
            shares[stage] = shares.get(stage, 0.0) + one.waiting_share
    return shares


def covered_families(rules: Rules, *, holds: bool, away: bool) -> set[str]:
    """Return the families of reasons that a replay includes.

    Parameters
    ----------
    rules : Rules
        The rules of the replay.
    holds : bool
        Whether a job competes only from its eligible time in the log.
    away : bool
        Whether nodes are away during their node events.
    """
    of_site = {
        f"{per}_{of}" for per, *_, of, _ in (text.split(":") for text in (rules.site.limits if rules.site else ()))
    }
    found = {
        USER_GPUS: rules.limits.user_gpus > 0 or USER_GPUS in of_site,
        VC_GPUS: rules.limits.vc_gpus > 0 or rules.quotas != "none" or VC_GPUS in of_site,
        USER_JOBS: USER_JOBS in of_site,
        VC_JOBS: VC_JOBS in of_site,
        ARRAY_TASKS: rules.site is not None,
        HELD: holds,
        AWAY: away,
    }
    return {CONTENTION, *(family for family, included in found.items() if included)}


def shown(reasons: list[Reason]) -> str | None:
    """List the largest reasons with their shares of the waiting hours, or return None if all are small."""
    parts = [
        f"{shorten(one.word, 40)} ({percent(one.waiting_share)} of the hours waited)"
        for one in reasons[:_NAMED]
        if one.waiting_share >= _LEAST
    ]
    return ", ".join(parts) or None
