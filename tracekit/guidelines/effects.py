"""The expected effect of a change: the new waits or outage costs that the log's twins predict.

A change is replayed in the twin of every cluster. Its effect there (the twin with the change compared with the twin
without it) is applied to the recorded values (see `tracekit.calibration.effect`). Effects are summed over the clusters
whose twin supports them. All other clusters get a reason instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import polars as pl

from tracekit.calibration.effect import HEADLINES, TwinEffect, jobs_of, total_effect
from tracekit.calibration.losses import ASSUMED, RecordedLosses, loss_effect
from tracekit.calibration.twins import Assumed
from tracekit.calibration.workbench import UNNAMED
from tracekit.guidelines.evidence import LackingError
from tracekit.guidelines.interface import NodeChange, RuleChange
from tracekit.replay.jobs import GPU_CLASSES, TWIN, gpu_class, gpus_of
from tracekit.replay.results.effects import Support
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.calibration.effect import Headline, TwinJobs
    from tracekit.calibration.losses import LossEffect
    from tracekit.calibration.twins import TwinReplays, Twins
    from tracekit.calibration.workbench import JobTimes, MoreNodes
    from tracekit.guidelines.evidence import Evidence
    from tracekit.guidelines.interface import Assumption, Finding, LossTrial, Trial


DEFAULTS = "defaults"
"""Name of the assumptions in models.toml."""


@dataclass(frozen=True)
class ExpectedChange:
    """The effect of one change under one assumption."""

    change: str
    """A policy as on the command line, or the name of a rule change."""
    assumption: str
    """`DEFAULTS` or the point of the bracket."""
    clusters: tuple[TwinEffect, ...]
    """The effect on the headline mean in each cluster with a known effect."""
    queue: TwinEffect
    """Effect on the mean wait over all of these clusters."""
    jct: TwinEffect
    """Effect on the mean completion time."""
    support: Support
    """The waits of these jobs: recorded, in the twins, and with the change."""

    @property
    def main(self) -> TwinEffect:
        """The effect on the headline mean, over all clusters."""
        return total_effect(self.clusters)


@dataclass(frozen=True)
class Untold:
    """A change whose effect in a cluster is unknown, and the reason."""

    cluster: str
    change: str
    assumption: str
    reason: str
    """A sentence without its initial capital letter and full stop."""


@dataclass(frozen=True)
class UntoldEffect:
    """An effect that no twin supports."""

    untold: tuple[Untold, ...]
    """The effect of the intended change."""
    support: Support

    @property
    def sentence(self) -> str:
        """The reason why the effect is not reported."""
        already = all(one.reason.startswith(_ALREADY) for one in self.untold)
        several = len({one.cluster for one in self.untold}) > 1
        told = []
        for reason, names in _reasons(self.untold).items():
            where = f" for {' and '.join(names)}" if several and names != [UNNAMED] else ""
            word = ("No," if where else "No") if already else "Cannot tell"
            told.append(f"{word}{where}: {_inside(reason)}.")
        return " ".join(told)


@dataclass(frozen=True)
class ClassBest:
    """The best change for jobs of one size: the lowest headline mean, or completion time if a change preempts jobs."""

    gpu_class: str
    policy: str
    """`TWIN` if no change is better than the twin."""
    jobs: int
    diff_s: float
    """The mean of the best change minus the mean in the twin [s], or 0 if the twin is best."""


@dataclass(frozen=True)
class Effect:
    """The expected effect of a guideline."""

    changes: tuple[ExpectedChange, ...]
    """Each change with a known effect, under each assumption. The intended change is first."""
    best_by_class: tuple[ClassBest, ...]
    """The best change for each job size under the first assumption. Empty if only one change was tried."""
    assumptions: tuple[str, ...]
    """The assumptions behind the effect, as one sentence each."""
    untold: tuple[Untold, ...] = ()
    """Changes that were tried but have no known effect."""

    @property
    def main(self) -> TwinEffect:
        """The effect of the first change."""
        return self.changes[0].main

    @property
    def verdict(self) -> Literal["better", "worse", "no change", "undecided"]:
        """The verdict, which is 'undecided' if the interval or the assumptions allow several verdicts."""
        first = self.changes[0]
        if any(u.change == first.change and u.assumption != first.assumption for u in self.untold):
            return "undecided"
        same = [c.main.verdict for c in self.changes if c.change == first.change]
        if "undecided" in same or {"shorter", "longer"} <= set(same):
            return "undecided"
        return "better" if "shorter" in same else "worse" if "longer" in same else "no change"


class _Replayed(NamedTuple):
    """A change replayed in the twin of one cluster."""

    cluster: TwinReplays
    effects: dict[Headline, TwinEffect]
    jobs: TwinJobs
    times: JobTimes

    @property
    def stops(self) -> bool:
        """Whether jobs are preempted. Their wait until the first start is then only part of the total wait."""
        return bool(self.times.stopped or self.jobs.twin.stopped)


def effect_of(trial: Trial, twins: Twins) -> Effect | UntoldEffect | str:
    """Return the effect of a trial, an effect that no twin supports, or a sentence on why there is none.

    Raises
    ------
    TracekitError
        The twin that the user gave cannot be used.
    """
    if twins.reason is not None:
        return f"Cannot tell: {twins.reason}."
    points: Sequence[Assumption | None] = trial.bracket or (None,)
    replayed: dict[tuple[str, str], list[_Replayed]] = {}
    untold: list[Untold] = []
    for point in points:
        for name, change, clusters in _changes(trial, twins.clusters):
            key = (name, DEFAULTS if point is None else point.name)
            for cluster in clusters:
                if trial.passes and isinstance(change, str) and cluster.rules.passes:
                    asked: str | RuleChange | MoreNodes = f"{change},scan=skip"
                else:
                    asked = change
                found = _replayed(cluster, asked, point)
                if isinstance(found, str):
                    untold.append(Untold(cluster.found.name, *key, found))
                else:
                    replayed.setdefault(key, []).append(found)
    if all(isinstance(change, NodeChange) for change in trial.changed):
        left_out = []  # the change is for one cluster
    else:
        left_out = [Untold(name, "", "", f"there is no simulation ({why})") for name, why in twins.left_out.items()]
    if not replayed and not untold:
        return "Cannot tell: there is no simulation of the part of the cluster where most of the waiting is."
    if not replayed:
        first = [one for one in untold if (one.change, one.assumption) == (untold[0].change, untold[0].assumption)]
        return UntoldEffect((*first, *left_out), _support_of_twin(twins.clusters[0], first[0].reason))
    stopping = {name for (name, _), found in replayed.items() if any(one.stops for one in found)}
    told_by: dict[str, Headline] = {name: "jct" if name in stopping else trial.headline for name, _ in replayed}
    changes = tuple(_expected(told_by[key[0]], *key, found) for key, found in replayed.items())
    first_point = {name: found for (name, point_name), found in replayed.items() if point_name == changes[0].assumption}
    best = _best("jct" if stopping else trial.headline, first_point) if len(first_point) > 1 else ()
    where = {effect.cluster for change in changes for effect in change.clusters}
    rests = tuple(sentence for c in twins.clusters if c.found.name in where for sentence in c.found.sentences)
    return Effect(changes, best, rests, (*untold, *left_out))


def _replayed(cluster: TwinReplays, change: str | RuleChange | MoreNodes, point: Assumption | None) -> _Replayed | str:
    """Return a change replayed in the twin of a cluster, or why its effect is unknown."""
    if cluster.found.why_no_effect is not None:
        return cluster.found.why_no_effect
    try:
        asked = change.change(cluster.rules) if isinstance(change, RuleChange) else change
    except LackingError as error:
        return " ".join(error.sentences).removesuffix(".")
    assumed = None if point is None else Assumed(point.name, point.change(cluster.found.bench.models))
    effects: dict[Headline, TwinEffect] = {}
    for what in HEADLINES:
        effect = cluster.effect(asked, what, assumed)
        if isinstance(effect, str):
            return effect.removesuffix(".")
        effects[what] = effect
    jobs, times = cluster.jobs(assumed), cluster.times(asked, assumed)
    assert not isinstance(jobs, str)  # noqa: S101 -- otherwise there was no effect
    assert not isinstance(times, str)  # noqa: S101 -- as above
    return _Replayed(cluster, effects, jobs, times)


def _changes(
    trial: Trial, clusters: Sequence[TwinReplays]
) -> list[tuple[str, str | RuleChange | MoreNodes, Sequence[TwinReplays]]]:
    """Return the changes of a trial, each with its name and its clusters.

    More nodes are for the overloaded cluster only.
    """
    found: dict[str, tuple[str, str | RuleChange | MoreNodes, Sequence[TwinReplays]]] = {}
    for change in trial.changed:
        if isinstance(change, NodeChange):
            for one in clusters:
                waiting = one.found.waiting_share
                if waiting is not None and waiting >= change.least_waiting:
                    more = one.found.bench.more_nodes(one.found.settings, change.share)
                    found.setdefault(more.words(), (more.words(), more, [one]))
        else:
            name = change if isinstance(change, str) else change.name
            found[name] = (name, change, clusters)
    return list(found.values())


def _expected(headline: Headline, change: str, assumption: str, found: Sequence[_Replayed]) -> ExpectedChange:
    """Return the effect of a change, summed over the clusters in which it was replayed, with one mean as headline."""
    queue, jct = (total_effect([one.effects[what] for one in found]) for what in HEADLINES)
    waits = [np.stack([one.jobs.recorded.queue_s, one.jobs.twin.queue_s, one.times.queue_s]) for one in found]
    known = np.concatenate([w[:, ~np.isnan(w).any(axis=0)] for w in waits], axis=1)
    _, twin, changed = known.mean(axis=1).tolist()
    support = Support(known.shape[1], queue.recorded_s, jct.recorded_s, twin, changed, None)
    return ExpectedChange(change, assumption, tuple(one.effects[headline] for one in found), queue, jct, support)


def _support_of_twin(cluster: TwinReplays, reason: str) -> Support:
    """Return a cluster's mean waits in the log and in the twin, for a cluster with unknown effects."""
    jobs = jobs_of(cluster.found)
    both = ~np.isnan(jobs.recorded.queue_s) & ~np.isnan(jobs.twin.queue_s)
    ended = jobs.recorded.jct_s[both & ~np.isnan(jobs.recorded.jct_s)]
    recorded, twin = (float(times.queue_s[both].mean()) for times in (jobs.recorded, jobs.twin))
    return Support(int(both.sum()), recorded, float(ended.mean()) if len(ended) else None, twin, None, reason)


def _best(headline: Headline, replayed: Mapping[str, Sequence[_Replayed]]) -> tuple[ClassBest, ...]:
    """Find the best change for each job size, over the clusters in which all changes were replayed."""
    names = [TWIN, *replayed]
    by_cluster = [{one.cluster.found.name: one for one in found} for found in replayed.values()]
    frames = []
    for name, first in by_cluster[0].items():
        if all(name in found for found in by_cluster):
            times = [first.jobs.twin, *(found[name].times for found in by_cluster)]
            columns = {n: getattr(t, f"{headline}_s") for n, t in zip(names, times, strict=True)}
            place = gpu_class(gpus_of(first.cluster.found.bench.jobs))
            frames.append(pl.DataFrame({"place": place, **columns}, nan_to_null=True).drop_nulls())
    if not frames:
        return ()
    rows = pl.concat(frames).group_by("place").agg(pl.len().alias("jobs"), pl.col(names).mean()).sort("place")
    best = []
    for row in rows.iter_rows(named=True):
        least = min(names, key=lambda name: (row[name], names.index(name)))
        best.append(ClassBest(GPU_CLASSES[row["place"]], least, row["jobs"], row[least] - row[TWIN]))
    return tuple(best)


_TAIL = "; the effect cannot be estimated"
_ALREADY = "the log behaves like this already"


def _reasons(untold: Sequence[Untold]) -> dict[str, list[str]]:
    """Return the reasons with their clusters."""
    reasons: dict[str, list[str]] = {}
    for one in untold:
        names = reasons.setdefault(one.reason.removesuffix(_TAIL), [])
        if one.cluster not in names:
            names.append(one.cluster)
    return reasons


def _inside(sentence: str) -> str:
    """Adapt a sentence for use inside another sentence. A cluster name keeps its capital letter."""
    return sentence[:1].lower() + sentence[1:] if sentence.startswith(("A ", "No ", "The ")) else sentence


# The effect on the cost of outages.

_RECORDED = """
SELECT
    i.job_id,
    count(*) FILTER (WHERE i.node_cause IS NOT NULL AND i.interrupted) AS stopped,
    sum(i.gpu_s) * $saving
    + coalesce(
        sum((i.run_s % $period_s + $restart_s) * (1 - $saving) * i.gpu_count)
            FILTER (WHERE i.node_cause IS NOT NULL AND i.interrupted),
        0
    ) AS gpu_s,
    CASE WHEN bool_and(coalesce(i.wait_s >= 0, FALSE)) THEN sum(i.wait_s * i.gpu_count) END AS waited_gpu_s
FROM attempt_interruptions AS i
WHERE i.run_s IS NOT NULL AND i.gpu_count > 0
GROUP BY i.job_id
"""
"""Same rule as in the twin's replay: checkpoints take a share of the allocated time. An attempt stopped by an outage
also loses the work since the last checkpoint and the restart time, except for the share already counted for
checkpoints.
"""


@dataclass(frozen=True)
class Losses:
    """The expected effect of a guideline on the cost of outages."""

    effects: tuple[LossEffect, ...]
    """The effect of each change in each cluster whose twin supports it, largest saving first."""
    untold: tuple[str, ...] = ()
    """For each other effect, one sentence on why it is unknown."""

    @property
    def words(self) -> str:
        """The best change on one line."""
        best = self.effects[0]
        ettr = ""
        if best.ettr is not None and best.changed_ettr is not None:
            before, after = percent(best.ettr), percent(best.changed_ettr)
            ettr = f"; in the simulation, the effective training time ratio changes from {before} to {after}"
        return f"{best.change}: {best.words}{ettr}"


def recorded_losses(evidence: Evidence) -> RecordedLosses:
    """Return the cost of outages for each job in the log, if jobs write checkpoints as in `ASSUMED`.

    Raises
    ------
    LackingError
        The Trace has no attempts.
    """
    interval, cost = float(ASSUMED.interval_s), ASSUMED.cost_s
    params = {
        "period_s": interval + cost,
        "saving": cost / (interval + cost),
        "restart_s": ASSUMED.restart_s,
    }
    frame = evidence.sql(_RECORDED, params, also=("placements", "node_events"))
    frame = frame.cast({"gpu_s": pl.Float64, "waited_gpu_s": pl.Float64})
    return RecordedLosses(*(dict(frame.select("job_id", name).iter_rows()) for name in RecordedLosses._fields))


def losses_of(trial: LossTrial, finding: Finding, evidence: Evidence, twins: Twins) -> Losses | str:
    """Return the effect of a trial, or a sentence on why there is none.

    Raises
    ------
    TracekitError
        The twin that the user gave cannot be used.
    """
    if twins.reason is not None:
        return f"Cannot tell: {twins.reason}."
    recorded = recorded_losses(evidence)
    effects: list[LossEffect] = []
    untold: dict[str, None] = {}
    for change in trial.changes(finding):
        for one in twins.clusters:
            found = loss_effect(one, evidence.trace.ingested, recorded, change)
            if isinstance(found, str):
                part = "partition" if evidence.trace.by_pool else "cluster"
                where = "the cluster" if one.found.name == UNNAMED else f"{part} {one.found.name}"
                why = found.removesuffix(_TAIL)
                untold[f"Cannot tell the gain in {where}, {change.name}: {why}."] = None
            else:
                effects.append(found)
    if not effects:
        return " ".join(untold) or "There is nothing to try."
    effects.sort(key=lambda effect: -effect.saved_gpu_h)
    return Losses(tuple(effects), tuple(untold))
