"""Whether the log supports a policy's effect, and comparisons without unsupported effects.

A policy is compared with a baseline: a replay of the same jobs. If waits in the baseline differ from those in the log,
the baseline describes a cluster that never existed. If jobs wait longer under the policy than in the log, the log was
already the better schedule. In both cases, the difference must not be reported as an effect. Every report of an effect
uses this module.

The wait is first start minus submission. All means are over the same jobs, which start in the log, under the baseline
and under the policy, and end in both replays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.replay.jobs import RECORDED, RecordedTimes, recorded_times
from tracekit.replay.results.comparison import completed_by_both
from tracekit.replay.results.summary import recorded_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.results.comparison import ReplayResult


NEAR_MS = 60_000
"""Mean waits under the baseline and in the log agree if they differ by at most this [ms]. Our choice."""

_MORE, _LESS = 5, 4
"""They also agree within this ratio, 1.25, in either direction. It is in integers, so that rounding never decides. Our
choice."""

NO_RECORD = "the log records no waits to compare these replays with; the effect cannot be estimated"
"""The reason if no job has a recorded start, or if the replay changed the submissions."""

_CANNOT = "the effect cannot be estimated"

_SUPPORT: dict[str, type[pl.DataType]] = {
    "recorded_jobs": pl.Int64,
    **dict.fromkeys(("recorded_queue_s", "recorded_jct_s", "baseline_queue_s", "policy_queue_s"), pl.Float64),
    "effect_told": pl.Boolean,
    "effect_reason": pl.String,
}


class TwinOfLog(NamedTuple):
    """The twin in which policies are replayed (see `tracekit.calibration`)."""

    policy: str
    """The twin's own policy, in the form that `tracekit replay -p` accepts."""
    words: str
    """The twin's own policy in words."""
    text: str
    """The contents of twin.toml."""
    in_place: Callable[[str], str]
    """Returns a policy that replaces the twin's order."""
    reason: str | None
    """Why no effects can be estimated with the twin, or None if its grade is good enough."""
    lifts: Callable[[str], str | None]
    """Returns why a policy's effect cannot be estimated even with a good enough grade, or None if it can."""


@dataclass(frozen=True)
class Support:
    """Whether the log supports a policy's effect, and the mean waits that decide this."""

    recorded_jobs: int
    """Number of jobs that the means are over."""
    recorded_queue_s: float | None
    """Mean wait of these jobs in the log [s], or None if there are no jobs."""
    recorded_jct_s: float | None
    """Mean completion time in the log [s], over the jobs among these whose end is recorded."""
    baseline_queue_s: float | None
    """Mean wait of these jobs under the baseline [s]."""
    policy_queue_s: float | None
    """Mean wait of these jobs under the policy [s]."""
    reason: str | None
    """Why the effect is not supported (without a capital letter and full stop), or None."""

    @property
    def supported(self) -> bool:
        """Whether the effect may be reported."""
        return self.reason is None

    @property
    def sentence(self) -> str | None:
        """The reason as a sentence."""
        return None if self.reason is None else f"{self.reason[:1].upper()}{self.reason[1:]}."


def support_of(
    policy: str, record: RecordedTimes, baseline_ms: NDArray[np.int64], policy_ms: NDArray[np.int64] | None
) -> Support:
    """Return whether the log supports the effect of a policy against a baseline.

    The log supports the effect if the baseline's mean wait is within a factor of 1.25 or a minute of the recorded mean
    wait, and the mean wait under the policy is at most the recorded one.

    Parameters
    ----------
    policy : str
        Name of the policy.
    record : RecordedTimes
        Recorded times of the jobs that end in both replays (n,).
    baseline_ms, policy_ms : array of int, shape (n,)
        First start minus submission of these jobs [ms]. If `policy_ms` is not given, only the baseline is compared.
    """
    known = record.queue_ms >= 0
    jobs = int(known.sum())
    if not jobs:
        return Support(0, None, None, None, None, NO_RECORD)
    waits = (record.queue_ms, baseline_ms, baseline_ms if policy_ms is None else policy_ms)
    recorded, baseline, changed = (int(w[known].sum()) for w in waits)
    ended = record.jct_ms[record.jct_ms >= 0]
    means = [total / jobs / 1000 for total in (recorded, baseline, changed)]
    reason = None
    near = _LESS * baseline <= _MORE * recorded and _LESS * recorded <= _MORE * baseline
    if not near and abs(baseline - recorded) > NEAR_MS * jobs:
        reason = f"a replay does not reproduce this log ({_against(means[1], means[0])} waited); {_CANNOT}"
    elif policy_ms is not None and changed > recorded:
        reason = f"jobs wait longer under {policy} than in the log ({_against(means[2], means[0])}); {_CANNOT}"
    return Support(jobs, means[0], float(ended.mean()) / 1000 if len(ended) else None, means[1], means[2], reason)


def _against(replayed_s: float, recorded_s: float) -> str:
    """Format two mean waits in the same unit for easy comparison.

    Examples
    --------
    >>> _against(69_840, 1425), _against(0, 90), _against(12.34, 0)
    ('19.4 h against 0.40 h', '0 min against 1.50 min', '12.3 s against 0 s')
    """
    longest = max(replayed_s, recorded_s)
    size, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (0, "s")) if longest >= s)
    return " against ".join(f"{_number(value / (size or 1))} {unit}" for value in (replayed_s, recorded_s))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def support_between(first: ReplayResult, other: ReplayResult, measured: NDArray[np.bool_] | None = None) -> Support:
    """Return whether the log supports the effect of a policy against a baseline, over jobs that both completed.

    Parameters
    ----------
    first, other : ReplayResult
        The baseline and the policy. If they are the same, it is compared only with the log.
    measured : array of bool, shape (n,), optional
        Consider only these jobs.
    """
    common = completed_by_both(first, other, measured)
    whole, submit = recorded_times(first.jobs), first.jobs.submit_ms[common]
    baseline, changed = (r.outcome.first_start_ms[common] - submit for r in (first, other))
    record = RecordedTimes(whole.queue_ms[common], whole.jct_ms[common])
    return support_of(other.policy, record, baseline, None if other is first else changed)


def beside_record(
    compared: pl.DataFrame,
    results: Sequence[ReplayResult],
    measured: NDArray[np.bool_] | None = None,
    *,
    twin: TwinOfLog | None = None,
    reason: str | None = None,
) -> pl.DataFrame:
    """Add the recorded times to a comparison, and remove the effects that the log does not support.

    In rows without support (see `support_of`), the differences and job shares are NULL. A last row, 'recorded',
    contains the recorded times of these jobs. It is missing if the log has no times, or if a policy of that name is
    already compared. Each policy's row gets these columns:

    recorded_jobs, recorded_queue_s, recorded_jct_s
        Number of jobs that both this policy and the first completed and whose wait is recorded, and their mean wait and
        completion time in the log [s].
    baseline_queue_s, policy_queue_s
        Mean wait of these jobs under the first policy and under this policy [s].
    effect_told, effect_reason
        Whether the log supports the effect of the policy, and the reason if it does not. For the first policy, whether
        its waits match the log.

    Parameters
    ----------
    compared : pl.DataFrame
        The result of `compare_policies`.
    results : sequence of ReplayResult
        The policies, in the same order.
    measured : array of bool, shape (n,), optional
        The jobs that were compared.
    twin : TwinOfLog, optional
        The twin, if the first policy is the twin's own. Its grade alone decides whether effects are supported, even if
        they make jobs wait longer than in the log.
    reason : str, optional
        If no twin is given, the reason why no effect is supported, regardless of the waits.
    """
    found = [support_between(results[0], other, measured) for other in results]
    if twin is not None or reason is not None:
        reasons = [reason if twin is None else twin.reason or twin.lifts(r.policy) for r in results]
        found = [
            replace(one, reason=why if one.recorded_jobs else NO_RECORD)
            for one, why in zip(found, reasons, strict=True)
        ]
    rows = [{**vars(s), "effect_told": s.supported, "effect_reason": s.reason} for s in found]
    support = pl.DataFrame(rows, schema=_SUPPORT)
    table = pl.concat([compared, support], how="horizontal").with_columns(
        pl.when("effect_told").then(pl.col(name)).alias(name) for name in compared.columns if _is_effect(name)
    )
    times = None if RECORDED in compared["policy"] else recorded_figures(results[0].jobs, measured)
    if times is None:
        return table
    row = {name: times.get(name) for name in table.columns} | {"policy": RECORDED}
    return pl.concat([table, pl.DataFrame([row], schema=table.schema)])


def _is_effect(column: str) -> bool:
    return "_diff_" in column or column in {"better_share", "equal_share", "worse_share"}


def effect_sentences(compared: pl.DataFrame) -> list[str]:
    """Return the distinct reasons why effects are not reported, each as a sentence without a full stop.

    Parameters
    ----------
    compared : pl.DataFrame
        The result of `beside_record`.
    """
    first, *others = compared.iter_rows(named=True)
    others = [row for row in others if row["policy"] != RECORDED]
    if others and first["effect_reason"] is not None and not any(row["effect_told"] for row in others):
        return [first["effect_reason"]]  # one reason for all
    return list(dict.fromkeys(row["effect_reason"] for row in others if row["effect_reason"] is not None))
