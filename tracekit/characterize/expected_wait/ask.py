"""Predict how long a job submitted now will wait, based on recent similar jobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.characterize.expected_wait.backtest import backtest, group_of, waits_of
from tracekit.characterize.expected_wait.likeness import LIMITS_S, STEPS, WORDS, Lately, log_end_us, waiting_jobs
from tracekit.characterize.expected_wait.state import ROOM_TABLES, Room, States, ask_state
from tracekit.characterize.session import Session
from tracekit.damage import explain_damage
from tracekit.errors import QueryError, UsageError, nearest
from tracekit.text import counted, duration, level_percent, percent, shorten
from tracekit.trace import Trace

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from tracekit.characterize.expected_wait.state import Question
    from tracekit.tables.live_queue import Queue

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of the wait that are reported."""


_NEAR = 0.05
"""Difference between the covered share and the level from which the answer warns (our choice)."""
_STALE_S = 86_400
"""Difference between the queue's time and the end of the log from which a note is written [s] (our choice)."""
_FAR_LONGER = 2.0
"""A prediction is extrapolated if the work ahead, plus 10 minutes, exceeds that of every similar job by this factor
(our choice)."""
_FEWEST_CHECKED = 30
"""Minimum number of waits to report the covered share of a queue length (our choice)."""


@dataclass(frozen=True)
class ExpectedWait:
    """The predicted wait of a job, based on recent similar jobs."""

    gpu_class: str | None
    """Size class, or None if the log has no job sizes."""
    same: tuple[str, ...]
    """Names of the attributes that the similar jobs share."""
    given_up: tuple[str, ...]
    """Names of the attributes that were dropped because too few jobs share them."""
    jobs: int
    """Number of similar jobs used: those with the most similar queue."""
    waiting: int
    """Number of these jobs that have not started. Their wait so far is a lower bound."""
    since: dt.datetime | None
    """Time at which the first similar job began to wait [UTC]."""
    asked: dt.datetime
    """The time for which the prediction is made: the end of the log, or the time of the queue [UTC]."""
    ahead_jobs: int
    """Number of waiting jobs ahead in the cluster: GPU jobs for a GPU job, otherwise the others."""
    ahead_gpus: float | None
    """GPUs that these jobs need, or None for a job without GPUs."""
    ahead_gpu_hours: float | None
    """These GPUs times the time limits of the jobs [GPU*h], or None if the log records no limits."""
    cluster_gpus: float | None
    """GPUs of the cluster, or if its nodes are unknown, the most that its jobs used at once."""
    free_gpus: float | None
    """Free GPUs on the nodes on which the job may run, or None if these are unknown."""
    fits: bool | None
    """Whether these free GPUs are enough for the job, on the fewest nodes that can hold it."""
    extrapolated: bool
    """Whether more than twice as much work is ahead as for any similar job."""
    level: float
    """Share of the waits that the interval should cover."""
    low_s: float | None
    """Lower end of the interval [s], or None if too few jobs are similar."""
    high_s: float | None
    """Upper end of the interval [s], or None as above, or if too many jobs still wait to know it."""
    quantiles_s: dict[float, float | None]
    """Quantiles of the wait by share [s], corrected like the ends of the interval, or None if unknown."""
    at_once_share: float | None
    """Share of the similar jobs that started without a wait."""
    checked: int
    """Number of jobs of this cluster and size class whose interval the backtest could check."""
    covered_share: float | None
    """Share of these jobs whose wait fell within the interval, as in queuing/expected_wait_backtest."""
    alike_checked: int
    """Number of these jobs with a queue of the same length class."""
    alike_covered_share: float | None
    """The covered share of these, or None if there are fewer than 30."""
    notes: tuple[str, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether there are enough similar jobs for a prediction."""
        return self.low_s is not None

    def row(self) -> dict[str, Any]:
        """Return all values as one row, with times as ISO 8601 in UTC."""
        quantiles = {f"p{round(100 * share)}_s": value for share, value in self.quantiles_s.items()}
        return {
            "gpu_class": self.gpu_class,
            "like_jobs": self.jobs,
            "still_waiting": self.waiting,
            "level": self.level,
            "low_s": self.low_s,
            "high_s": self.high_s,
            **quantiles,
            "at_once_share": self.at_once_share,
            "checked_jobs": self.checked,
            "covered_share": self.covered_share,
            "checked_jobs_alike": self.alike_checked,
            "covered_share_alike": self.alike_covered_share,
            "ahead_jobs": self.ahead_jobs,
            "ahead_gpus": self.ahead_gpus,
            "ahead_gpu_hours": self.ahead_gpu_hours,
            "cluster_gpus": self.cluster_gpus,
            "free_gpus": self.free_gpus,
            "fits": self.fits,
            "extrapolated": self.extrapolated,
            "same": ", ".join(self.same),
            "given_up": ", ".join(self.given_up),
            "since": None if self.since is None else f"{self.since.isoformat()}Z",
            "asked": f"{self.asked.isoformat()}Z",
        }

    def sentences(self) -> list[str]:
        """Return the answer in words."""
        said = [self._queue()]
        if not self.enough:
            found = f"{counted(self.jobs, 'jobs')} of the last {Lately.days:g} days have the same {_listed(self.same)}"
            return [*said, f"Too few similar jobs: {found}; at least {Lately.least} are needed."]
        high = "an upper end that is not known yet" if self.high_s is None else duration(self.high_s or 0)
        low, share = duration(self.low_s or 0), level_percent(self.level)
        said.append(f"In such a queue, {share} of similar jobs wait between {low} and {high}.")
        if self.extrapolated:
            said.append("No similar job met such a long queue, so the interval is extrapolated from shorter queues.")
        if self.at_once_share:
            more = ", so the interval holds more" if self.at_once_share > self.level + 1e-9 else ""
            said.append(f"{percent(self.at_once_share)} of these {self.jobs} similar jobs started at once{more}.")
        still = f", {counted(self.waiting, 'of them')} not started so far" if self.waiting else ""
        said.append(f"Based on {counted(self.jobs, 'jobs')} with the same {_listed(self.same)}{still}.")
        if self.given_up:
            said.append(f"Too few jobs have the same {_listed(self.given_up)}.")
        return [*said, *self._coverage()]

    def _queue(self) -> str:
        """Return the state of the queue in words."""
        if self.gpu_class == "0" or self.ahead_gpus is None:
            return f"{counted(self.ahead_jobs, 'jobs')} without GPUs wait ahead of this one."
        ahead = "No job waits ahead of this one"
        if self.ahead_jobs:
            hours = "" if self.ahead_gpu_hours is None else f" (up to {counted(self.ahead_gpu_hours, 'GPU-hours')})"
            wait = "waits" if self.ahead_jobs == 1 else "wait"
            gpus = counted(self.ahead_gpus, "GPUs")
            ahead = f"{counted(self.ahead_jobs, 'jobs')} {wait} ahead of this one for {gpus}{hours}"
        if self.free_gpus is None:
            return f"{ahead}. The free GPUs are unknown, because the log does not record on which nodes jobs ran."
        shape = "enough to start at once" if self.fits else "not enough on the fewest nodes that can hold the job"
        return f"{ahead}; {counted(self.free_gpus, 'GPUs')} are free for it, {shape}."

    def _coverage(self) -> list[str]:
        """Return what the backtest says about the interval, and whether it missed its level, in words."""
        if self.covered_share is None:
            return []
        judged, checked = self.covered_share, counted(self.checked, "waits")
        few = ", too few to check them" if self.checked < _FEWEST_CHECKED else ""
        said = [f"In the backtest, such intervals covered {percent(judged)} of {checked} of this size class{few}."]
        if self.alike_covered_share is not None:
            judged, checked = self.alike_covered_share, counted(self.alike_checked, "waits")
            said.append(f"When the queue was about as long as now, they covered {percent(judged)} of {checked}.")
        if not few and abs(judged - self.level) > _NEAR + 1e-9:
            planned = f"{level_percent(self.level - _NEAR)} to {level_percent(min(self.level + _NEAR, 1.0))}"
            said.append(f"This is outside the planned {planned}, so treat the interval with caution.")
        return said


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


@explain_damage()
def expected_wait(
    trace: Trace | str | Path,
    gpus: float | None = None,
    *,
    gpu_model: str | None = None,
    partition: str | None = None,
    qos: str | None = None,
    account: str | None = None,
    time_limit_s: float | None = None,
    cluster: str | None = None,
    queue: Queue | None = None,
    level: float = 0.8,
    memory_limit: str | None = None,
) -> ExpectedWait:
    """Predict how long a job will wait, as an interval based on recent similar jobs.

    >>> import tracekit
    >>> tracekit.expected_wait("my-trace", 4, partition="gpu").sentences()  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        The history. The prediction is for its end, or for the time of the queue.
    gpus : float, optional
        GPUs of the job; omit it only if the log has no job sizes.
    gpu_model, partition, qos, account : str, optional
        The job's request. If the log has no partitions, `partition` is the VC.
    time_limit_s : float, optional
        The job's time limit [s].
    cluster : str, optional
        The job's cluster; needed if the log has several clusters and the partition does not tell.
    queue : Queue, optional
        The jobs that wait and run now, from `tracekit.ingest.squeue.read_squeue`. By default, those that wait and run
        at the end of the history.
    level : float
        Share of the waits that the interval should cover, above 0 and below 1.
    memory_limit : str, optional
        Memory limit for joins before they spill to disk, such as '2GB'.

    Raises
    ------
    UsageError
        A value does not occur in the log or is out of bounds.
    QueryError
        The log does not record when jobs were submitted and started.
    """
    opened = Trace.of(trace).divided
    if not 0 < level < 1:
        raise UsageError(
            f"{level:g} is not a share of the jobs", where="level", hint="give a number between 0 and 1, such as 0.8"
        )
    if gpus is not None and not (0 <= gpus < math.inf):
        raise UsageError(f"{gpus:g} is not a number of GPUs", where="gpus", hint="give 0 for a job without GPUs")
    if time_limit_s is not None and not (0 < time_limit_s < math.inf):
        raise UsageError(f"{time_limit_s:g} s is not a time limit", where="time_limit", hint="give a time above 0")
    if not opened.has("jobs") or not opened.capabilities["queueing"].available:
        raise QueryError("the trace does not record how long jobs waited", where=opened.path)
    with Session(opened, memory_limit).connect(ROOM_TABLES) as con:
        jobs, lost = waiting_jobs(con)
        end = log_end_us(con)
        room = Room.read(con)
    if end is None or jobs.is_empty():
        raise QueryError("the trace has no job with a known wait", where=opened.path)
    if gpus is None and jobs["gpu_class"].null_count() < jobs.height:
        raise UsageError(
            "is missing, but the log records the GPUs of jobs", where="gpus", hint="give the job's number of GPUs"
        )
    asked = {
        "account": _known(jobs, "account", account, "account"),
        "limit_class": None if time_limit_s is None else sum(time_limit_s > limit for limit in LIMITS_S),
        "gpu_count": gpus,
        "qos": _known(jobs, "qos", qos, "QOS"),
        "gpu_model": _known(jobs, "gpu_model", gpu_model, "GPU model"),
        "place": _known(jobs, "place", partition, "partition or VC"),
    }
    if cluster is None and partition is not None:
        # The nodes of a partition that is a pool of its own are those of one cluster.
        names = [pool.name for pool in opened.pools if pool.divides and partition in pool.partitions]
        cluster = names[0] if len(names) == 1 else None
    always = (_cluster(jobs, cluster), _class_of(gpus))
    pool = next((p for p in opened.pools if p.divides and p.name == always[0]), None)
    request = {
        "cluster": always[0],
        "gpu_class": always[1],
        "partition": asked["place"] if jobs["partition"].null_count() < jobs.height else None,
        "gpu_count": gpus,
    }
    members = frozenset(() if pool is None else pool.partitions)
    if pool is None and jobs["cluster"].n_unique() > 1:
        own = jobs.filter(pl.col("cluster").eq_missing(pl.lit(always[0])))
        members = frozenset(own["partition"].drop_nulls().str.split(",").explode())
    question = ask_state(jobs, room, request, end, queue, members)
    notes = [*(note.sentence() for note in lost), *([] if queue is None else _queue_notes(queue, jobs, end))]
    now = end if queue is None else queue.asked_us
    return _predicted(question, (now, max(end, now)), always, asked, level, tuple(notes))


def _queue_notes(queue: Queue, jobs: pl.DataFrame, end: int) -> list[str]:
    """Return notes on what is unknown about the queue."""
    notes = list(queue.notes)
    known = set(jobs["partition"].drop_nulls().str.split(",").explode())
    new = queue.jobs.filter(~pl.col("partitions").list.eval(pl.element().is_in(list(known))).list.any()).height
    if known and new:
        notes.append(f"{counted(new, 'jobs')} of the queue are in partitions that do not occur in the log")
    apart = abs(queue.asked_us - end) / 1e6
    if apart > _STALE_S:
        order = "after" if queue.asked_us > end else "before"
        notes.append(f"the queue is from {duration(apart)} {order} the end of the log")
    return notes


def _predicted(
    question: Question,
    moments: tuple[int, int],
    always: tuple[str | None, str | None],
    asked: dict[str, Any],
    level: float,
    notes: tuple[str, ...],
) -> ExpectedWait:
    """Return the prediction based on the similar jobs and on the corrections learned.

    `moments` are that of the question and that up to which the log is known [us].
    """
    lately = Lately()
    asked_us, known_us = moments
    jobs, states, this = question.jobs.head(question.row), States.of(question.jobs), question.row
    tested = backtest(jobs, lately, level)
    tested.learner.learn(known_us)
    size = pl.col("cluster").eq_missing(always[0]) & pl.col("gpu_class").eq_missing(always[1])
    numbered = jobs.with_row_index("row")
    recent = numbered.filter(size & (pl.col("since") > asked_us - int(lately.days * 86_400_000_000)))
    given = [name for name in STEPS if asked[name] is not None]
    kept: list[str] = given
    # As in the backtest, attributes that are not given are always dropped.
    for dropped in range(len(STEPS) + 1):
        kept = [name for name in given if name in STEPS[dropped:]]
        like = recent.filter(pl.all_horizontal(pl.lit(value=True), *(pl.col(n) == asked[n] for n in kept)))
        if like.height >= lately.needed(dropped):
            break
    candidates = like.tail(lately.among)["row"].cast(pl.Int64).to_numpy()[None, :]
    here = np.array([this])
    near = states.nearest(here, candidates, lately)
    waits = waits_of(
        near,
        np.array([known_us]),
        jobs["since"].to_numpy(),
        jobs["until"].to_numpy(),
        jobs["started"].to_numpy(),
        states.ratio(here, near),
    )
    group = tested.groups.get(group_of(always, states, this), len(tested.groups))
    enough = like.height >= lately.least
    used = jobs[near[near >= 0].tolist()] if enough else like
    predicted = tested.learner.predict(group, waits, 0, fits=bool(states.fits[this])) if enough else None

    def quantile(share: float) -> float | None:
        """Return this quantile of the wait [s], corrected like the interval."""
        lies_at = share if predicted is None else tested.learner.share_of(group, predicted, share)
        return _finite(waits.quantile(0, lies_at) / 1e6)

    checked = tested.rows.with_columns(jobs["cluster"]).tail(math.ceil(jobs.height / 2))
    checked = checked.filter(size & pl.col("below").is_not_null())
    alike = checked.filter(pl.col("load_class") == int(states.load[this]))
    moment = pl.Series([asked_us, used["since"].min()], dtype=pl.Int64).cast(pl.Datetime("us")).to_list()
    words = [name for name in ("cluster",) if always[0] is not None] + ["gpu_class"] * (always[1] is not None)
    state = question.jobs.row(this, named=True)
    of_gpus = bool(asked["gpu_count"])
    limits = jobs["limit_s"].null_count() < jobs.height
    return ExpectedWait(
        gpu_class=always[1],
        same=tuple(WORDS[n] for n in [*words, *kept]) or ("log",),
        given_up=tuple(WORDS[n] for n in given if n not in kept),
        jobs=used.height,
        waiting=int(waits.waiting[0]) if enough else int((~like["started"]).sum()),
        since=moment[1],
        asked=moment[0],
        ahead_jobs=state["ahead_jobs"],
        ahead_gpus=state["ahead_gpus"] if of_gpus else None,
        ahead_gpu_hours=state["ahead_s"] * state["places"] / 3600 if of_gpus and limits else None,
        cluster_gpus=state["places"] if of_gpus else None,
        free_gpus=question.free_gpus if of_gpus else None,
        fits=state["fits"],
        extrapolated=enough and bool((states.ratio(here, near)[near >= 0] > _FAR_LONGER).all()),
        level=level,
        low_s=None if predicted is None else predicted.low_us / 1e6,
        high_s=None if predicted is None else _finite(predicted.high_us / 1e6),
        quantiles_s={p: None if predicted is None else quantile(p) for p in QUANTILES},
        at_once_share=_at_once(used) if enough else None,
        checked=checked.height,
        covered_share=_covered(checked),
        alike_checked=alike.height,
        alike_covered_share=_covered(alike) if alike.height >= _FEWEST_CHECKED else None,
        notes=notes,
    )


def _covered(checked: pl.DataFrame) -> float | None:
    """Return the share of the waits within their intervals, or None without any."""
    missed = checked.select((pl.col("below") + pl.col("above")).mean()).item()
    return None if missed is None else 1 - float(missed)


def _at_once(like: pl.DataFrame) -> float:
    return float(like.select((pl.col("started") & (pl.col("until") == pl.col("since"))).mean()).item())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _class_of(gpus: float | None) -> str | None:
    """Return the size class of a number of GPUs, as in the view job_classes."""
    if gpus is None:
        return None
    bounds = {"0": gpus == 0, "<1": gpus < 1, "1": gpus == 1, "2-4": gpus <= 4, "5-8": gpus <= 8}
    return next((name for name, fits in bounds.items() if fits), ">8")


def _known(jobs: pl.DataFrame, column: str, value: str | None, what: str) -> str | None:
    """Return a name in the log's spelling.

    Raises
    ------
    UsageError
        No job has this name.
    """
    if value is None:
        return None
    names = jobs[column].drop_nulls().unique().to_list()
    same = [name for name in names if name == value] or [n for n in names if n.casefold() == value.casefold()]
    if len(same) == 1:
        return str(same[0])
    hint = nearest(value, names[:1000], otherwise=None if len(names) < 20 else "see 'tracekit query'")
    raise UsageError(
        f"no job has the {what} '{shorten(value)}'", where={"place": "partition"}.get(column, column), hint=hint
    )


def _cluster(jobs: pl.DataFrame, cluster: str | None) -> str | None:
    """Return the job's cluster; by default the only cluster in the log.

    Raises
    ------
    UsageError
        The log has several clusters and none was given, or no cluster has this name.
    """
    if cluster is not None:
        return _known(jobs, "cluster", cluster, "cluster")
    names = jobs["cluster"].unique().sort().to_list()
    if len(names) > 1:
        known = ", ".join(shorten(str(name)) for name in names[:10])
        raise UsageError("is missing, but the log has several clusters", where="cluster", hint=f"name one of: {known}")
    return names[0] if names else None
