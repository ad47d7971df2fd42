"""The expected effect of a change, by replay: the same jobs under a baseline policy and under changed ones.

Differences are taken job by job over the jobs that both completed, and their intervals resample whole submission days,
as `tracekit.replay.results.comparison` does. They are reported only where the record of the log supports them (see
`tracekit.replay.results.recorded_times`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tracekit.replay.results.comparison import day_intervals
from tracekit.replay.results.effects import Support, support_of
from tracekit.replay.results.recorded_times import RecordedTimes
from tracekit.replay.results.sizes import GPU_CLASSES, gpu_class

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.guidelines.interface import Trial
    from tracekit.guidelines.replays import Replays

__all__ = ["DEFAULTS", "ClassBest", "Effect", "PolicyDifference", "UnsupportedEffect", "effect_of"]

DEFAULTS = "defaults"
"""Name of the assumptions of models.toml."""

_LEAST = 0.001
"""A change of less than this share of the mean counts as none."""


@dataclass(frozen=True)
class PolicyDifference:
    """Mean difference of a policy against the baseline; negative is faster."""

    policy: str
    assumption: str
    """`DEFAULTS`, or the point of the bracket."""
    jobs: int
    """Number of jobs that both completed."""
    jct_diff_s: float
    jct_diff_share: float | None
    """Of the baseline's mean completion time; None where that is 0."""
    jct_diff_share_low: float | None
    """Lower end of the 95 % interval over submission days; None with fewer than 5 days."""
    jct_diff_share_high: float | None
    queue_diff_s: float
    queue_diff_share: float | None
    queue_diff_share_low: float | None
    queue_diff_share_high: float | None
    support: Support
    """What the log recorded of these jobs, and whether it supports the effect."""


@dataclass(frozen=True)
class UnsupportedEffect:
    """An effect that the record of the log does not support."""

    baseline: str
    policy: str
    assumption: str
    support: Support

    @property
    def sentence(self) -> str:
        """Why it is not reported."""
        return self.support.sentence or ""


@dataclass(frozen=True)
class ClassBest:
    """The policy with the least mean of the headline for jobs of one size."""

    gpu_class: str
    policy: str
    jobs: int
    diff_s: float
    """Mean of the headline minus the baseline's [s]; 0 where the baseline is the best."""


@dataclass(frozen=True)
class Effect:
    """The expected effect of a guideline."""

    origin: str
    """Which replays it comes from."""
    baseline: str
    headline: Literal["jct", "queue"]
    changes: tuple[PolicyDifference, ...]
    """Of each changed policy under each assumption, where the record supports them; the first is the headline."""
    best_by_class: tuple[ClassBest, ...]
    """Under the default assumptions; empty with one changed policy."""
    assumptions: tuple[str, ...]
    """What the replays assumed, one sentence each."""
    unsupported: tuple[UnsupportedEffect, ...] = ()
    """Policies and assumptions tried whose effect the record does not support."""

    @property
    def verdict(self) -> str:
        """'better', 'worse', 'no change', or 'undecided' where the interval or the bracket does not agree."""
        first = self.changes[0]
        if any(u.policy == first.policy for u in self.unsupported):
            return "undecided"
        same = [c for c in self.changes if c.policy == first.policy]
        signs = {_sign(_share(c, self.headline)) for c in same} - {0}
        low, high = (getattr(first, f"{self.headline}_diff_share_{end}") for end in ("low", "high"))
        if len(signs) > 1 or (low is not None and signs and _sign(low) != _sign(high)):
            return "undecided"
        return {-1: "better", 1: "worse", 0: "no change"}[signs.pop() if signs else 0]


def _share(change: PolicyDifference, headline: str) -> float:
    share: float | None = getattr(change, f"{headline}_diff_share")
    return share or 0.0


def _sign(share: float) -> int:
    return 0 if abs(share) < _LEAST else (1 if share > 0 else -1)


def effect_of(trial: Trial, replays: Replays) -> Effect | UnsupportedEffect | str:
    """Return the effect of a trial, one that the record does not support, or a sentence that says why there is none.

    Raises
    ------
    TracekitError
        A file of the replays cannot be read.
    """
    base = replays.jobs(trial.baseline)
    policies = [policy for policy in replays.variants(trial) if isinstance(replays.jobs(policy), pl.DataFrame)]
    if isinstance(base, str) or not policies:
        missing = base if isinstance(base, str) else replays.jobs(trial.changed[0])
        return f"{missing} '{trial.command()}' makes the replays that are needed."
    record = replays.record()
    tried = [_change(base, replays.jobs(policy), policy, DEFAULTS, record) for policy in policies]
    for point in trial.bracket if replays.can_assume else ():
        before = replays.jobs(trial.baseline, point)
        tried += [_change(before, replays.jobs(policy, point), policy, point.name, record) for policy in policies]
    differences = [change for change in tried if change is not None]
    if not differences:
        return "No job was completed under both policies."
    unsupported = tuple(
        UnsupportedEffect(trial.baseline, c.policy, c.assumption, c.support)
        for c in differences
        if not c.support.supported
    )
    if not differences[0].support.supported:
        return unsupported[0]
    changes = tuple(change for change in differences if change.support.supported)
    ranked = [c.policy for c in changes if c.assumption == DEFAULTS]
    tables = {trial.baseline: base, **{policy: replays.jobs(policy) for policy in ranked}}
    best = _best(tables, trial.headline) if len(ranked) > 1 else ()
    assumptions = replays.assumptions([trial.baseline, *policies])
    return Effect(replays.origin, trial.baseline, trial.headline, changes, best, assumptions, unsupported)


def _paired(base: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    columns = ("job_id", "jct_s", "queue_s")
    paired = base.select(*columns, "submit_time", "gpu_count").join(
        other.select(columns), on="job_id", how="inner", suffix="_new"
    )
    return paired.drop_nulls(["jct_s", "jct_s_new", "queue_s", "queue_s_new"]).sort("job_id")


def _support(paired: pl.DataFrame, record: pl.DataFrame, policy: str) -> Support:
    """Return whether the log supports the effect; `record` has the columns of `Replays.record`."""
    beside = paired.select("job_id", "queue_s", "queue_s_new").join(
        record, on="job_id", how="left", maintain_order="left"
    )

    def milliseconds(column: str) -> Ints:
        values = (beside[column] * 1000).round().fill_null(-1)
        return values.cast(pl.Int64).to_numpy()

    known = RecordedTimes(milliseconds("recorded_queue_s"), milliseconds("recorded_jct_s"))
    return support_of(policy, known, milliseconds("queue_s"), milliseconds("queue_s_new"))


def _change(base: Any, other: Any, policy: str, assumption: str, record: pl.DataFrame) -> PolicyDifference | None:
    if not isinstance(base, pl.DataFrame) or not isinstance(other, pl.DataFrame):
        return None
    paired = _paired(base, other)
    if paired.is_empty():
        return None
    days = paired["submit_time"].dt.epoch("d").cast(pl.Int64).to_numpy()
    fields: dict[str, Any] = {}
    whole = []
    for name in ("jct", "queue"):
        before = paired[f"{name}_s"].to_numpy()
        diff = paired[f"{name}_s_new"].to_numpy() - before
        mean, mean_diff = float(before.mean()), float(diff.mean())
        fields |= {f"{name}_diff_s": mean_diff, f"{name}_diff_share": mean_diff / mean if mean else None}
        # In milliseconds: sums of whole numbers do not depend on the order of the jobs.
        whole.append((np.rint(diff * 1000).astype(np.int64), np.rint(before * 1000).astype(np.int64)))
    ends: list[Any] = day_intervals(days, [], whole, seed=0) or [(None, None)] * 2
    for name, pair in zip(("jct", "queue"), ends, strict=True):
        low, high = pair if fields[f"{name}_diff_share"] is not None else (None, None)
        fields |= {f"{name}_diff_share_low": low, f"{name}_diff_share_high": high}
    support = _support(paired, record, policy)
    return PolicyDifference(policy=policy, assumption=assumption, jobs=len(paired), support=support, **fields)


def _best(tables: dict[str, Any], headline: str) -> tuple[ClassBest, ...]:
    names = list(tables)
    paired = tables[names[0]].select("job_id", "gpu_count", base=f"{headline}_s")
    for k, name in enumerate(names[1:]):
        paired = paired.join(tables[name].select("job_id", pl.col(f"{headline}_s").alias(f"p{k}")), on="job_id")
    paired = paired.drop_nulls()
    milli = (paired["gpu_count"].to_numpy() * 1000).round().astype(np.int64)
    paired = paired.with_columns(place=pl.Series(gpu_class(milli)))
    columns = ["base", *(f"p{k}" for k in range(len(names) - 1))]
    rows = paired.group_by("place").agg(pl.len().alias("jobs"), pl.col(columns).mean()).sort("place")
    differences = []
    for row in rows.iter_rows(named=True):
        least = min(columns, key=lambda c: (row[c], columns.index(c)))
        policy = names[columns.index(least)]
        differences.append(ClassBest(GPU_CLASSES[row["place"]], policy, row["jobs"], row[least] - row["base"]))
    return tuple(differences)
