"""A comparison of policies as it may be told: beside the log's own schedule, without effects that nobody can carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.replay.results.comparison import completed_by_both
from tracekit.replay.results.recorded_times import RECORDED, RecordedTimes, Support, recorded_times, support_of
from tracekit.replay.results.summary import recorded_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.results.comparison import ReplayResult

__all__ = ["beside_record", "effect_sentences", "support_between"]

_SUPPORT: dict[str, type[pl.DataType]] = {
    "recorded_jobs": pl.Int64,
    **dict.fromkeys(("recorded_queue_s", "recorded_jct_s", "baseline_queue_s", "policy_queue_s"), pl.Float64),
    "effect_told": pl.Boolean,
    "effect_reason": pl.String,
}


def support_between(first: ReplayResult, other: ReplayResult, measured: NDArray[np.bool_] | None = None) -> Support:
    """Return whether the effect of a policy against a baseline can be told, over the jobs that both completed.

    Parameters
    ----------
    first, other : ReplayResult
        The baseline and the policy; where they are one, it is held against the log alone.
    measured : array of bool, shape (n,), optional
        Look at these jobs only.
    """
    common = completed_by_both(first, other, measured)
    whole, submit = recorded_times(first.jobs), first.jobs.submit_ms[common]
    baseline, changed = (r.outcome.first_start_ms[common] - submit for r in (first, other))
    record = RecordedTimes(whole.queue_ms[common], whole.jct_ms[common])
    return support_of(other.policy, record, baseline, None if other is first else changed)


def beside_record(
    compared: pl.DataFrame, results: Sequence[ReplayResult], measured: NDArray[np.bool_] | None = None
) -> pl.DataFrame:
    """Return a comparison as it may be told: beside what the log recorded, without effects that cannot be told.

    The differences and shares of jobs of a row whose effect cannot be told (see `support_of`) are NULL. A row
    'recorded' follows with what the log tells of the times of these jobs; there is none where it tells nothing, and no
    second one where the policy of that name is compared. Each row of a policy gets

    recorded_jobs, recorded_queue_s, recorded_jct_s
        How many jobs that both this and the first policy completed have a recorded wait, and their mean wait and
        completion time by the log [s].
    baseline_queue_s, policy_queue_s
        The mean wait of the same jobs under the first policy and under this one [s].
    effect_told, effect_reason
        Whether the effect of the policy can be told, and why not; of the first policy, whether its waits are those of
        the log.

    Parameters
    ----------
    compared : pl.DataFrame
        What `compare_policies` returns of the results.
    results : sequence of ReplayResult
        The policies, in this order.
    measured : array of bool, shape (n,), optional
        As it was compared over.
    """
    found = [support_between(results[0], other, measured) for other in results]
    rows = [
        (s.recorded_jobs, s.recorded_queue_s, s.recorded_jct_s, s.baseline_queue_s, s.policy_queue_s, s.told, s.reason)
        for s in found
    ]
    support = pl.DataFrame(rows, schema=_SUPPORT, orient="row")
    told = pl.concat([compared, support], how="horizontal").with_columns(
        pl.when("effect_told").then(pl.col(name)).alias(name) for name in compared.columns if _tells_effect(name)
    )
    times = None if RECORDED in compared["policy"] else recorded_figures(results[0].jobs, measured)
    if times is None:
        return told
    row = {name: times.get(name) for name in told.columns} | {"policy": RECORDED}
    return pl.concat([told, pl.DataFrame([row], schema=told.schema)])


def _tells_effect(column: str) -> bool:
    return "_diff_" in column or column in {"better_share", "equal_share", "worse_share"}


def effect_sentences(compared: pl.DataFrame) -> list[str]:
    """Return why effects are not told, each reason once, as sentences without a full stop.

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
