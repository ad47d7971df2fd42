"""Whether the log supports the effect of a policy, and a comparison without the effects that it does not support.

A policy is compared with a baseline, a replay of the same jobs. Where the baseline does not wait as the log did, it
describes a cluster that nobody ran; where the policy waits longer than the log did, the log was the better schedule
already. In both cases the difference is no effect that may be reported. Every report of an effect asks here.

The wait is the log's own: first start minus submission. All means are over the same jobs: those that the log, the
baseline and the policy all start, and that both replays end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit.replay.results.comparison import completed_by_both
from tracekit.replay.results.recorded_times import RECORDED, RecordedTimes, recorded_times
from tracekit.replay.results.summary import recorded_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.results.comparison import ReplayResult

__all__ = [
    "NEAR_MS",
    "NO_RECORD",
    "Support",
    "TwinOfLog",
    "beside_record",
    "effect_sentences",
    "support_between",
    "support_of",
]

NEAR_MS = 60_000
"""Mean waits of the baseline and of the log that differ by no more agree [ms]; our choice."""

_MORE, _LESS = 5, 4
"""They agree too within this ratio, 1.25, either way; whole numbers, so that no rounding decides. Our choice."""

NO_RECORD = "the log records no waits that these replays could be held against; the effect cannot be told"
"""The reason where no job has a recorded start, or the replay changed the submissions."""

_CANNOT = "the effect cannot be told"

_SUPPORT: dict[str, type[pl.DataType]] = {
    "recorded_jobs": pl.Int64,
    **dict.fromkeys(("recorded_queue_s", "recorded_jct_s", "baseline_queue_s", "policy_queue_s"), pl.Float64),
    "effect_told": pl.Boolean,
    "effect_reason": pl.String,
}


class TwinOfLog(NamedTuple):
    """The twin in which policies are replayed (see `tracekit.calibration`)."""

    policy: str
    """What the twin itself does, as `tracekit replay -p` takes it."""
    words: str
    """The same for people."""
    text: str
    """Its twin.toml."""
    in_place: Callable[[str], str]
    """Returns a policy as it stands in place of the twin's order."""
    reason: str | None
    """Why no effect can be told from it; None where its grade carries effects."""
    lifts: Callable[[str], str | None]
    """Returns why the effect of a policy cannot be told although the twin carries effects; None where it can."""


@dataclass(frozen=True)
class Support:
    """Whether the log supports the effect of a policy, and the mean waits that decide it."""

    recorded_jobs: int
    """Jobs that the means are over."""
    recorded_queue_s: float | None
    """Their mean wait by the log [s]; None without such a job."""
    recorded_jct_s: float | None
    """Their mean completion time by the log [s], of those whose end it has."""
    baseline_queue_s: float | None
    """Their mean wait under the baseline [s]."""
    policy_queue_s: float | None
    """Their mean wait under the policy [s]."""
    reason: str | None
    """Why the effect is not supported, a sentence without its capital and full stop; None where it is."""

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

    It does where the mean wait under the baseline is within a factor of 1.25 of the recorded one, or within a minute of
    it, and the mean wait under the policy is no longer than the recorded one.

    Parameters
    ----------
    policy : str
        What to call it.
    record : RecordedTimes
        Of the jobs that both replays end, arrays of shape (n,).
    baseline_ms, policy_ms : array of int, shape (n,)
        First start minus submission of these jobs [ms]; without `policy_ms` only the baseline is compared.
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
        reason = f"jobs wait longer under {policy} than they did by the log ({_against(means[2], means[0])}); {_CANNOT}"
    return Support(jobs, means[0], float(ended.mean()) / 1000 if len(ended) else None, means[1], means[2], reason)


def _against(replayed_s: float, recorded_s: float) -> str:
    """Return two mean waits in one unit, so that they can be compared at a glance.

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
        The baseline and the policy; where they are one, it is compared with the log alone.
    measured : array of bool, shape (n,), optional
        Look at these jobs only.
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
    """Return a comparison beside what the log recorded, without the effects that the log does not support.

    The differences and shares of jobs of a row without support (see `support_of`) are NULL. A row
    'recorded' follows with the recorded times of these jobs; there is none where the log has no times, and no second
    one where the policy of that name is compared. Each row of a policy gets

    recorded_jobs, recorded_queue_s, recorded_jct_s
        How many jobs that both this and the first policy completed have a recorded wait, and their mean wait and
        completion time by the log [s].
    baseline_queue_s, policy_queue_s
        The mean wait of the same jobs under the first policy and under this one [s].
    effect_told, effect_reason
        Whether the log supports the effect of the policy, and why not; of the first policy, whether its
        waits are those of the log.

    Parameters
    ----------
    compared : pl.DataFrame
        What `compare_policies` returns of the results.
    results : sequence of ReplayResult
        The policies, in this order.
    measured : array of bool, shape (n,), optional
        As it was compared over.
    twin : TwinOfLog, optional
        Of which the first policy is. Its grade alone decides whether effects are supported, also those by which jobs
        wait longer than they did.
    reason : str, optional
        Why no effect is supported where there is no twin, whatever the waits are.
    """
    found = [support_between(results[0], other, measured) for other in results]
    if twin is not None or reason is not None:
        reasons = [reason if twin is None else twin.reason or twin.lifts(r.policy) for r in results]
        found = [
            replace(one, reason=why if one.recorded_jobs else NO_RECORD)
            for one, why in zip(found, reasons, strict=True)
        ]
    rows = [
        (
            s.recorded_jobs,
            s.recorded_queue_s,
            s.recorded_jct_s,
            s.baseline_queue_s,
            s.policy_queue_s,
            s.supported,
            s.reason,
        )
        for s in found
    ]
    support = pl.DataFrame(rows, schema=_SUPPORT, orient="row")
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
    """Return why effects are not reported, each reason once, as sentences without a full stop.

    Parameters
    ----------
    compared : pl.DataFrame
        What `beside_record` returns.
    """
    first, *others = compared.iter_rows(named=True)
    others = [row for row in others if row["policy"] != RECORDED]
    if others and first["effect_reason"] is not None and not any(row["effect_told"] for row in others):
        return [first["effect_reason"]]  # one reason for all
    return list(dict.fromkeys(row["effect_reason"] for row in others if row["effect_reason"] is not None))
