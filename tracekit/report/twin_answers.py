"""The twins of a log as answers of a report: how near they come to it, and what other policies would have given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.answer import Answer
from tracekit.calibration.effect import HEADLINES, TwinEffect, total_effect
from tracekit.calibration.fidelity import queue_of
from tracekit.calibration.questions import EFFECTS, QUEUE, TWINS
from tracekit.calibration.twin import CAPACITIES
from tracekit.replay.panels import standard_panel
from tracekit.replay.registry import named_policy
from tracekit.replay.results.answers import run_times
from tracekit.replay.results.recorded_times import RECORDED
from tracekit.text import cut

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.calibration.effect import Headline
    from tracekit.calibration.twins import TwinReplays, Twins

__all__ = ["ALL", "twin_answers"]

_MOMENTS = 120
"""Instants at which the queue is shown, at most."""
ALL = "all clusters"
"""What effects are called that are added up over clusters."""


def twin_answers(twins: Twins) -> list[Answer | Unanswered]:
    """Return which scheduler the log behaves like, its queue beside the twin's, and the effects of the panel."""
    if twins.reason is not None:
        why = f"There is no twin of the log: {twins.reason}."
        return [question.unanswered(why) for question in (TWINS, QUEUE, EFFECTS)]
    left_out = [{"cluster": cut(name), "why_not": why} for name, why in twins.left_out.items()]
    found = TWINS.answered([*(_twin(one) for one in twins.clusters), *left_out])
    queues = [
        queue_of(one.found, one.found.twin_s, one.found.unseen, _MOMENTS).select(
            pl.lit(one.found.name).alias("cluster"), "time", "recorded_gpus", twin_gpus="replayed_gpus"
        )
        for one in twins.clusters
    ]
    return [found, Answer(QUEUE, pl.concat(queues)), _effects(twins)]


def _twin(one: TwinReplays) -> dict[str, Any]:
    found, score = one.found, one.found.score
    keys = ("recorded_mean_s", "twin_mean_s", "ratio_low", "ratio_high", "agreeing_share", "unexplained_share")
    return {
        "cluster": found.name,
        "waiting_share": found.waiting_share,
        "rules": found.settings.rules.words,
        "grade": score.grade,
        "effects_told": found.why_no_effect is None,
        "scored_jobs": score.whole["jobs"],
        **{key: score.whole[key] for key in keys},
        "rank_correlation": score.whole["rank_correlation"],
        "queue_correlation": score.queue_correlation,
        "jobs": len(found.bench.jobs),
        "gpus": found.bench.cluster(found.settings).total_gpus,
        "gpus_from": CAPACITIES[found.settings.capacity],
        "why_not": found.why_no_effect,
    }


def _effects(twins: Twins) -> Answer | Unanswered:
    """Return the effect of each policy of the panel in each cluster, and over all."""
    carried = [one for one in twins.clusters if one.found.why_no_effect is None]
    if not carried:
        reasons = [*(f"{one.found.name}: {one.found.why_no_effect}" for one in twins.clusters)]
        return EFFECTS.unanswered(*(f"{reason[:1].upper()}{reason[1:]}." for reason in reasons))
    rows: list[dict[str, Any]] = []
    untold: dict[tuple[str, str], list[str]] = {}
    for policy in standard_panel():
        if policy == RECORDED:
            continue
        told: list[dict[Headline, TwinEffect]] = []
        stopped = 0
        for cluster in carried:
            effects = {what: cluster.effect(policy, what) for what in HEADLINES}
            reasons = [effect for effect in effects.values() if isinstance(effect, str)]
            times = reasons[0] if reasons else cluster.times(policy)
            if isinstance(times, str):
                untold.setdefault((cluster.found.name, times.removesuffix(".")), []).append(policy)
                continue
            told.append({what: effect for what, effect in effects.items() if isinstance(effect, TwinEffect)})
            rows.append(_effect(cluster.found.name, policy, told[-1], times.stopped))
            stopped += times.stopped
        if len(told) > 1:
            totals = {what: total_effect([one[what] for one in told]) for what in HEADLINES}
            rows.append(_effect(ALL, policy, totals, stopped))
    notes = [f"{cluster}, {', '.join(policies)}: {why}" for (cluster, why), policies in untold.items()]
    return EFFECTS.answered(rows, notes)


def _effect(cluster: str, policy: str, effects: dict[Headline, TwinEffect], stopped: int) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": cluster, "policy": policy, "verdict": effects["jct"].verdict}
    row |= {"what": named_policy(policy).what, "run_times": run_times(policy), "jobs": effects["jct"].jobs}
    row["preemptions"] = stopped
    for what, one in effects.items():
        row |= {f"recorded_{what}_s": one.recorded_s, f"expected_{what}_s": one.changed_s}
        row |= {f"expected_{what}_low_s": one.low_s, f"expected_{what}_high_s": one.high_s}
    return row
