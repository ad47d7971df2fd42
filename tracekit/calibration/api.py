"""Find a log's twin: the replay settings that best reproduce the log."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.calibration.changes import rule_change
from tracekit.calibration.reasons import covered_families, families_of, shown
from tracekit.calibration.rules import Rules
from tracekit.calibration.score import Score, score, score_of_all
from tracekit.calibration.search import Replays, search
from tracekit.calibration.twin import ClusterTwin, Delays, Scores, Twin, digest_of_jobs
from tracekit.calibration.workbench import (
    FEWEST_JOBS,
    UNNAMED,
    JobTimes,
    Settings,
    Workbench,
    clusters_by_waiting,
    workbench_of,
)
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.facts import replay_facts
from tracekit.replay.jobs import naive_utc
from tracekit.replay.native import kernel
from tracekit.runs.ledger import Ledger
from tracekit.text import alike_durations, counted, percent, shorten
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.calibration.reasons import Reason
    from tracekit.calibration.search import Tried

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_ORIGINS = (0.4, 0.6, 0.8, 1.0)
"""Boundaries of the parts, as shares of the submission period. The first part is used only for learning. Our choice."""
_LEAST_DAYS = 56
"""A log of less than eight weeks is split only once, because the parts of a rolling score would be too short."""
_DAY_MS = 86_400_000
_CANDIDATES: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("stage", "rules", "policy", "capacity"), pl.String),
    "delays": pl.Boolean,
    **dict.fromkeys(("distance", "mean_wait_s"), pl.Float64),
    "why_not": pl.String,
    "chosen": pl.Boolean,
}


@dataclass(frozen=True)
class ClusterCalibration:
    """The calibration result for one cluster."""

    name: str
    waiting_share: float | None
    """The cluster's share of the waiting hours in all clusters [1], or None if no job waited."""
    bench: Workbench
    settings: Settings
    score: Score
    tried: tuple[Tried, ...]
    times: JobTimes
    """The wait and the completion time of each job in the twin."""
    unseen: Bools
    """Mask of the jobs that are scored (n,)."""
    rules_before: Rules | None = None
    """Rules that the log followed before the time `since`, or None if they are unknown or did not change."""

    @property
    def since(self) -> dt.datetime | None:
        """Time from which jobs are used, because the rules changed then (UTC, naive), or None if all jobs are used."""
        return naive_utc(self.bench.jobs.origin) if self.bench.later else None

    @property
    def recorded_s(self) -> Floats:
        """Recorded wait, first start minus submission [s], or NaN if unknown (n,)."""
        return self.bench.recorded_s

    @property
    def twin_s(self) -> Floats:
        """Wait in the twin [s], or NaN if a job never starts (n,)."""
        return self.times.queue_s

    @property
    def waits(self) -> bool:
        """Whether any job waits in the log. If none does, every job order fits the log equally well."""
        return bool((np.nan_to_num(self.recorded_s) > 0).any())

    @property
    def why_no_effect(self) -> str | None:
        """Why no effects can be estimated with this twin, as a sentence without a full stop, or None if they can."""
        if not self.waits:
            return "no job waits in the log; the effect cannot be estimated"
        if self.score.carries:
            return None
        return (
            f"a replay does not reproduce this log ({self.score.missed}; grade {self.score.grade}); "
            "the effect cannot be estimated"
        )

    @property
    def reasons(self) -> list[Reason]:
        """The reasons that the log gives for waits, starting with the largest share of the waiting hours."""
        return [] if self.bench.reasons is None else self.bench.reasons.summed(self.recorded_s)

    @property
    def missing_reasons(self) -> list[Reason]:
        """Those of `reasons` whose rules the twin does not include."""
        holds, away = self.bench.held_ms is not None, self.settings.capacity in {"events", "outages"}
        covered = covered_families(self.settings.rules, holds=holds, away=away)
        return [one for one in self.reasons if not covered & families_of(one.word)]

    @property
    def twin(self) -> ClusterTwin:
        """The cluster's table in twin.toml."""
        whole = {k: v for k, v in self.score.whole.items() if k in {f.name for f in fields(Scores)}}
        return ClusterTwin(
            **{f.name: getattr(self.settings.rules, f.name) for f in fields(Rules)},
            capacity=self.settings.capacity,  # type: ignore[arg-type]  # the keys of `workbench_of`
            jobs=len(self.bench.jobs) + self.bench.unused,
            since=None if self.since is None else self.since.isoformat(),
            delays=Delays(self.bench.held_ms is not None, self.bench.startup if self.settings.delays else {}),
            grade=self.score.grade,
            scores=Scores(**whole, queue_correlation=self.score.queue_correlation),
        )

    @property
    def sentences(self) -> list[str]:
        """The result as sentences for display."""
        whole = self.score.whole
        share = "" if self.waiting_share is None else f", with {percent(self.waiting_share)} of the hours waited"
        name = "the log" if self.name == UNNAMED else f"{shorten(self.name, 40)}{share}"
        twin, log = alike_durations((whole["twin_mean_s"], whole["recorded_mean_s"]))
        lines = [
            f"{name}: behaves like {self.settings.rules.words()}"
            if self.waits
            else f"{name}: no job waits, so the log does not show how the scheduler orders jobs",
            (
                f"grade {self.score.grade}: over the {counted(whole['jobs'], 'jobs')} held out from the calibration, "
                f"the mean wait is {twin} in the twin and {log} in the log; {percent(whole['agreeing_share'])} of the "
                "waits agree (within 5 min or 25 %)"
            ),
        ]
        if self.since is not None:
            lines.insert(0, f"{name}: {self._changed}")
        if self.waits and not self.score.carries:
            lines.append(
                "effects cannot be estimated, because something other than these rules decided which jobs wait"
            )
            if (missing := shown(self.missing_reasons)) is not None:
                lines.append(f"reasons in the log that the twin does not include: {missing}")
        return lines

    @property
    def _changed(self) -> str:
        before = "" if self.rules_before is None else f"; rules until then: {self.rules_before.words()}"
        return (
            f"the rules changed at about {self.since:%Y-%m-%d %H:%M} UTC, and only jobs submitted since then are used"
            f"{before}"
        )

    def candidates(self) -> pl.DataFrame:
        """Return the candidates, closest first: stage, rules, capacity, delays, distance, mean_wait_s, why_not."""
        rows = [
            {
                "stage": t.stage,
                "rules": t.settings.rules.words(),
                "policy": t.settings.rules.policy,
                "capacity": t.settings.capacity,
                "delays": t.settings.delays,
                "distance": None if np.isinf(t.distance) else t.distance,
                "mean_wait_s": None if np.isnan(t.mean_s) else t.mean_s,
                "why_not": t.why_not,
                "chosen": t.settings == self.settings,
            }
            for t in self.tried
        ]
        return pl.DataFrame(rows, schema=_CANDIDATES).sort("distance", nulls_last=True, maintain_order=True)


@dataclass(frozen=True)
class Calibration:
    """The twin of a log."""

    twin: Twin
    clusters: tuple[ClusterCalibration, ...]
    """The clusters, with the cluster that has the most waiting hours first."""
    left_out: dict[str, str]
    """Clusters without a twin, each with the reason as a sentence without a full stop."""


@explain_damage()
def calibrate(
    trace: Trace | str | Path,
    *,
    clusters: Sequence[str] | None = None,
    limit: int | None = 100_000,
    budget: int | None = None,
    seed: int = 0,
    shared: Ledger | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Find the settings with which a replay of a Trace best reproduces its log.

    Parameters
    ----------
    trace : Trace or path
        Jobs with submission, start, end and number of GPUs.
    clusters : sequence of str, optional
        Clusters to calibrate, by default all of them. The cluster with the most waiting hours comes first.
    limit : int, optional
        Use only this many of the first jobs of each cluster, or all jobs if None.
    budget : int, optional
        Maximum total number of jobs, split evenly among clusters. If a small cluster has fewer jobs than its part, the
        others get the rest.
    seed : int
        Random seed for the delays.
    shared : Ledger, optional
        Folder in which shards share the work, or from which their results are gathered (see docs/howto/shards.md). The
        candidates of a stage are divided among the shards, and each shard then tries the candidates that the others
        have not tried. All shards return the same result.
    progress : Progress, optional
        Reports every candidate.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers results, and some candidates have not been tried.
    TracekitError
        The Trace cannot be used, or none of its clusters can be calibrated.
    """
    kernel()  # fail before the Trace is read in vain
    opened, progress = Trace.of(trace).ingested.divided, progress or Progress()
    shares = clusters_by_waiting(opened)
    asked = list(shares) if clusters is None else list(clusters)
    limits = dict.fromkeys(asked, limit) if budget is None else _split(opened, asked, budget)
    for name in asked:
        if name not in shares:
            raise UsageError(f"no cluster '{name[:60]}'", where=opened.path, hint=f"choose from: {', '.join(shares)}")
    results: dict[str, ClusterCalibration | str] = {}
    ledger = (shared or Ledger()).about(**replay_facts("calibrate", opened, "calibration"), seed=seed)
    # Shards start with different clusters.
    begin = (ledger.shard.number - 1) % len(asked) if ledger.shard is not None and asked else 0
    for name in (*asked[begin:], *asked[:begin]):
        own = ledger.about(cluster=name, limit=limits[name])
        try:
            bench = workbench_of(opened, None if name == UNNAMED else name, limit=limits[name], seed=seed)
            results[name] = calibrate_jobs(bench, name, shares[name], progress, own)
        except UsageError as error:
            results[name] = error.what
    ordered = {name: results[name] for name in asked}
    found = [one for one in ordered.values() if not isinstance(one, str)]
    left_out = {name: one for name, one in ordered.items() if isinstance(one, str)}
    if not found:
        reasons = [why if name == UNNAMED else f"{shorten(name, 40)}: {why}" for name, why in left_out.items()]
        raise UsageError("; ".join(reasons), where=opened.path)
    twin = Twin(digest_of_jobs(opened), {one.name: one.twin for one in found}, opened.path.name)
    return Calibration(twin, tuple(found), left_out)


def _split(trace: Trace, clusters: Sequence[str], budget: int) -> dict[str, int | None]:
    """Return the number of jobs to use from each cluster: the most even split that their job counts allow."""
    counts = dict(trace.scan("jobs").filter(pl.col("gpu_count") > 0).group_by("cluster").len().collect().iter_rows())
    sizes = {name: counts.get(None if name == UNNAMED else name, 0) for name in clusters}
    limits: dict[str, int | None] = {}
    for k, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        share = max(budget // (len(sizes) - k), 1)
        limits[name] = share
        budget -= min(share, sizes[name])
    return limits


@explain_damage()
def recall(
    trace: Trace | str | Path, twin: Twin, *, clusters: Sequence[str] | None = None, seed: int = 0
) -> Calibration:
    """Return the calibration for an existing twin: replay and grade its settings again, without a search.

    Parameters
    ----------
    trace : Trace or path
        The Trace to which the twin belongs (see `read_twin`).
    twin : Twin
        The twin as read from its file, which may have been edited.
    clusters : sequence of str, optional
        Clusters of the twin, by default all of them.
    seed : int
        Random seed for the delays.

    Raises
    ------
    TracekitError
        The Trace cannot be used, or the twin cannot be replayed on it.
    """
    kernel()
    opened = Trace.of(trace).ingested.divided
    shares = clusters_by_waiting(opened)
    found = []
    for name in twin.cluster if clusters is None else clusters:
        if name not in twin.cluster or name not in shares:
            where = "the twin" if name not in twin.cluster else "the Trace"
            raise UsageError(f"{where} has no cluster '{name[:60]}'", where=opened.path)
        one = twin.cluster[name]
        bench = workbench_of(opened, None if name == UNNAMED else name, limit=one.jobs, seed=seed)
        if one.since is not None:
            bench = _since(bench, one.since, name)
        bench.delays = dict(one.delays.startup)
        if not one.delays.holds:
            bench.held_ms = None
        if one.capacity not in bench.clusters:
            what = f"{shorten(name, 40)}: the twin uses the capacity '{one.capacity}', which the Trace does not provide"
            hint = f"write capacity = {' or '.join(repr(known) for known in bench.clusters)} in the twin"
            raise UsageError(what, where=opened.path, hint=hint)
        settings = Settings(one.rules, one.capacity, bool(one.delays.startup))
        found.append(graded(bench, settings, name, shares[name]))
    return Calibration(twin, tuple(found), {})


def _since(bench: Workbench, since: str, name: str) -> Workbench:
    """Return the jobs of a twin submitted from a time on.

    Raises
    ------
    UsageError
        Too few of the twin's jobs were submitted from this time on.
    """
    origin, submit_ms = naive_utc(bench.jobs.origin), bench.jobs.submit_ms
    begin_ms = (naive_utc(dt.datetime.fromisoformat(since)) - origin) // dt.timedelta(milliseconds=1)
    first, last = (origin + dt.timedelta(milliseconds=int(ms)) for ms in submit_ms[[0, -1]])
    if not 0 < begin_ms <= int(submit_ms[-1]):
        what = f"{shorten(name, 40)}: since = '{since}' is not after the first and before the last submission"
        raise UsageError(what, hint=f"submissions run from {first} to {last}")
    return bench.since(begin_ms)


def calibrate_jobs(
    bench: Workbench,
    name: str = UNNAMED,
    waiting_share: float | None = 1.0,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
) -> ClusterCalibration:
    """Return the twin of one cluster. The first jobs are used to choose its settings, and the others to score it.

    If the twin is not close to the log and the rules of the log changed, only the jobs submitted since are used.

    If a ledger is given, each candidate is a run of that ledger.

    Raises
    ------
    UsageError
        Nothing can be replayed.
    """
    parts = _rolling_parts(bench)
    replays = Replays([part.seen for part in parts])
    found = search(bench, progress, ledger, replays)
    made = graded(bench, found.best, name, waiting_share, found.tried)
    if made.waits and made.score.grade != "close":
        change = rule_change(bench, found.tried, progress, ledger)
        if change is not None:
            bench = bench.since(change.at_ms)
            parts = _rolling_parts(bench)
            replays = Replays([part.seen for part in parts])
            found = search(bench, progress, ledger, replays)
            made = replace(graded(bench, found.best, name, waiting_share, found.tried), rules_before=change.before)
    rolling = _rolling_scores(bench, parts, replays, progress, ledger)
    if rolling is None:
        return made
    return replace(made, score=replace(made.score, table=pl.concat([made.score.table, rolling])))


class _RollingPart(NamedTuple):
    """A part of a long log, and the jobs before it."""

    days: str
    """The days of the part, counted from the first submission."""
    seen: Bools
    """Mask of the jobs from which the settings are chosen (n,)."""
    part: Bools
    """Mask of the jobs to score (n,)."""


def _rolling_parts(bench: Workbench) -> list[_RollingPart]:
    """Return the parts of a log that are scored one by one, or no parts if the log is too short."""
    submit, recorded = bench.jobs.submit_ms, bench.recorded_s
    last = int(submit.max())
    if last < _LEAST_DAYS * _DAY_MS:
        return []
    known = ~np.isnan(recorded)
    found = []
    for begin, end in pairwise(_ORIGINS):
        seen = known & (submit < begin * last)
        part = known & ~seen & ((submit < end * last) | (end == _ORIGINS[-1]))
        if min(int(seen.sum()), int(part.sum())) < FEWEST_JOBS:
            return []
        found.append(_RollingPart(f"days {begin * last / _DAY_MS:.0f} to {end * last / _DAY_MS:.0f}", seen, part))
    return found


def _rolling_scores(
    bench: Workbench,
    parts: Sequence[_RollingPart],
    replays: Replays,
    progress: Progress | None,
    ledger: Ledger | None,
) -> pl.DataFrame | None:
    """Score each part of a long log, calibrated on the jobs before it; return None if there are no parts.

    A single split shows only how well a twin fits the last part of the log. Here the log is also split at other times,
    each time with settings chosen only from earlier jobs. The scores show whether the twin would have fitted as well
    then. The columns are those of `Score.table`. The scope is 'rolling', and the name gives the days of the part,
    counted from the first submission.

    Raises
    ------
    UsageError
        Nothing can be replayed.
    """
    rows = []
    for days, seen, part in parts:
        then = replace(bench, among=seen, delays=None)
        waits = then.times(search(then, progress, ledger, replays).best).queue_s
        scored = part & ~np.isnan(waits)
        if not scored.any():
            return None
        whole = score_of_all(bench.jobs, bench.recorded_s, waits, scored)
        rows.append(whole.with_columns(scope=pl.lit("rolling"), name=pl.lit(days)))
    return pl.concat(rows) if rows else None


def graded(
    bench: Workbench,
    settings: Settings,
    name: str = UNNAMED,
    waiting_share: float | None = 1.0,
    tried: tuple[Tried, ...] = (),
) -> ClusterCalibration:
    """Make the given settings the twin of a cluster, and score it on the jobs that were not used for learning.

    Raises
    ------
    UsageError
        The settings cannot be replayed, or no job to score starts.
    """
    recorded, times = bench.recorded_s, bench.times(settings)
    twin = times.queue_s
    unseen = ~bench.among & ~np.isnan(recorded) & ~np.isnan(twin)
    if not unseen.any():
        raise UsageError("none of the jobs in the last part of the log starts in a replay")
    found = score(bench.jobs, recorded, twin, unseen)
    return ClusterCalibration(name, waiting_share, bench, settings, found, tried, times, unseen)
