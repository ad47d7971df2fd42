"""Replays as answers of a report: the log's twins, and a panel of policies in the busiest twin.

The answers come from this module and `tracekit.replay.results.answers`. This module adds what was replayed and what was
excluded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.calibration.effect import HEADLINES, TwinEffect, total_effect
from tracekit.calibration.fidelity import queue_of
from tracekit.calibration.questions import EFFECTS, QUEUE, TWIN_QUESTIONS, TWINS
from tracekit.calibration.reasons import shown
from tracekit.calibration.twin import CAPACITIES
from tracekit.capacity_plan.plan import plan_cluster
from tracekit.capacity_plan.question import PlanQuestion
from tracekit.capacity_plan.result import TWIN
from tracekit.capacity_plan.search import interval_share
from tracekit.errors import DamagedTraceError, EngineMissingError, TracekitError, UsageError
from tracekit.faults import Fault, Faults
from tracekit.replay.api import scenario_of
from tracekit.replay.jobs import RECORDED
from tracekit.replay.panels import standard_panel
from tracekit.replay.registry import named_policy
from tracekit.replay.results.answers import REPLAYED, compared_answers, run_times
from tracekit.replay.workload.from_trace import BEYOND_LIMIT
from tracekit.report.commands import plan_commands, replay_command, twin_commands, with_commands
from tracekit.text import counted, cut, percent

if TYPE_CHECKING:
    from tracekit.answer import Unanswered
    from tracekit.calibration.effect import Headline
    from tracekit.calibration.twins import TwinReplays, Twins
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.part import Part
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario
    from tracekit.report.structure import PartInfo, ReplayInfo
    from tracekit.tenant import Tenant


# The log's twins as answers of a report: how closely they match the log, and what other policies would have done.

_MOMENTS = 120
"""Maximum number of points in time for the queue."""
ALL = "all clusters"
"""Label for effects summed over clusters."""


def twin_answers(twins: Twins) -> list[Answer | Unanswered]:
    """Return the twin of each cluster, its queue next to the log's queue, and the effects of the panel."""
    if twins.reason is not None:
        why = f"The log could not be simulated: {twins.reason}."
        return [question.unanswered(why) for question in (TWINS, QUEUE, EFFECTS)]
    left_out = [{"cluster": cut(name), "why_not": why} for name, why in twins.left_out.items()]
    found = TWINS.answered([*(_twin(one, twins.trace.tenant) for one in twins.clusters), *left_out])
    queues = [
        queue_of(one.found, one.found.twin_s, one.found.unseen, _MOMENTS).select(
            pl.lit(one.found.name).alias("cluster"), "time", "recorded_gpus", twin_gpus="replayed_gpus"
        )
        for one in twins.clusters
    ]
    return [found, Answer(QUEUE, pl.concat(queues)), _effects(twins)]


def _twin(one: TwinReplays, tenant: Tenant) -> dict[str, Any]:
    found, score = one.found, one.found.score
    keys = ("recorded_mean_s", "twin_mean_s", "ratio_low", "ratio_high", "agreeing_share", "unexplained_share")
    return {
        "cluster": found.name,
        "waiting_share": found.waiting_share,
        "rules": found.settings.rules.words(tenant),
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
        "since": found.since,
        "rules_before": None if found.rules_before is None else found.rules_before.words(tenant),
        "missing_reasons": shown(found.missing_reasons),
        "missing_share": sum(one.waiting_share for one in found.missing_reasons) if found.reasons else None,
    }


def _effects(twins: Twins) -> Answer | Unanswered:
    """Return the effect of each panel policy in each cluster and over all clusters."""
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


# The capacity plan as an answer of a report: how long jobs would wait with more or fewer nodes.

_RESAMPLES = 10
"""Number of months that a report resamples; `tracekit plan` uses 40."""
_C = AnswerColumn

PLAN = Question(
    name="plan/nodes",
    kind="replay",
    title="Waits by number of nodes",
    question="How long would jobs wait with more or fewer nodes?",
    rule=(
        "The log is replayed in the cluster's simulation with more and fewer nodes of the existing kinds. For the"
        f" intervals, whole days of the log are resampled into {_RESAMPLES} further months, keeping weekdays."
        f" The interval contains {percent(interval_share(_RESAMPLES))} of them, without the error of the simulation."
        " The 'recorded' row is the log itself. 'tracekit plan' accepts a target, load growth, policies and costs."
    ),
    columns=(
        _C("cluster", "text", "cluster with the most waiting hours among those whose simulation supports effects"),
        _C("policy", "text", "twin (a replay that follows the log's scheduler) or recorded (the log itself)"),
        _C("nodes", "nodes", "nodes with GPUs"),
        _C("gpus", "GPUs", "GPUs of these nodes"),
        _C("mean_wait_s", "s", "mean wait until the first start, or empty if a job would never start"),
        _C("p50_wait_s", "s", "median"),
        _C("p90_wait_s", "s", "90th percentile of the wait"),
        _C("p90_wait_low_s", "s", "lower end of the interval of the 90th percentile"),
        _C("p90_wait_high_s", "s", "upper end of the interval of the 90th percentile"),
        _C("held_share", "share", "share of all GPU time allocated to jobs"),
        _C("offered_share", "share", "requested GPU time divided by all GPU time"),
    ),
)


def plan_answer(twins: Twins) -> Answer | Unanswered:
    """Return the plan for the busiest cluster with a twin that supports effects, or why there is none."""
    if twins.reason is not None:
        return PLAN.unanswered(f"The log could not be simulated: {twins.reason}.")
    reasons = []
    for one in twins.clusters:
        try:
            made = plan_cluster(one.found, PlanQuestion(resamples=_RESAMPLES), twins.progress)
        except UsageError as error:
            made = error.what
        if isinstance(made, str):
            reasons.append(f"{made[:1].upper()}{made[1:]}.")
            continue
        rows: list[dict[str, Any]] = [
            {**row, "cluster": made.cluster} for row in made.capacity if row["policy"] == TWIN
        ]
        rows.append({**made.recorded, "policy": RECORDED, "cluster": made.cluster})
        commands = plan_commands(twins, one, _RESAMPLES)
        return replace(PLAN.answered(rows, made.sentences), commands=tuple(commands))
    return PLAN.unanswered(*reasons)


REPLAY_QUESTIONS = (*TWIN_QUESTIONS, *REPLAYED, PLAN)
"""A report's questions about replays, in reading order."""
_MOST_NAMES = 100
"""Maximum number of clusters named in report.json."""


def unreplayed_answers(reason: str, *, failed: bool = False) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    """Return the questions as unanswered. `failed` means that an error is the reason."""
    info: ReplayInfo = {
        "reason": reason,
        "jobs": 0,
        "limit": None,
        "cluster": None,
        "part": None,
        "without_effects": {},
        "notes": [],
        "skipped": {},
    }
    return [question.unanswered(reason, failed=failed) for question in REPLAY_QUESTIONS], info


def replayed_answers(twins: Twins, faults: Faults | None = None) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    """Replay the standard panel in the twins, and return the answers for a report.

    The policy tables cover the cluster with the most waiting hours whose twin supports effects or, if no twin does, of
    all clusters. Without a twin, they cover the busiest cluster as the source describes it, and no effect is reported.
    If a policy's replay or the plan fails, this is recorded as a fault, and everything else is shown.
    """
    faults = Faults() if faults is None else faults
    chosen = next((one for one in twins.clusters if one.found.why_no_effect is None), next(iter(twins.clusters), None))
    if chosen is None:
        panel = _panel_without_twin(twins, faults)
        if isinstance(panel, str):
            reason = twins.reason
            known = reason is None or reason in panel
            return unreplayed_answers(panel if known else f"{panel} The log could not be simulated: {reason}.")
    else:
        panel = _panel_in_twin(chosen, twins, faults)
    scenario, results, skipped = panel.scenario, panel.results, panel.skipped
    if not results:
        return unreplayed_answers(next(iter(skipped.values()), "No policy can be replayed."))
    info: ReplayInfo = {
        "reason": None,
        "jobs": len(scenario.jobs),
        "limit": twins.limit,
        "cluster": {
            "nodes": scenario.cluster.nodes,
            "gpus": scenario.cluster.total_gpus,
            "nodes_without_gpus": scenario.cluster.without_gpus,
        },
        "part": _part(scenario.part),
        "without_effects": {
            cut(one.found.name): one.found.why_no_effect for one in twins.clusters if one.found.why_no_effect
        }
        | {cut(name): why for name, why in twins.left_out.items()},
        "notes": _notes(scenario, twins.limit if twins.file is None else None),
        "skipped": {policy: cut(why) for policy, why in skipped.items()},
    }
    recorded = (r.summary["assumptions"]["recorded"]["value"] for r in results if r.policy == RECORDED)
    info["notes"] += [f"the log ({RECORDED}): {value}" for value in recorded]
    notes = [*info["notes"], *(why.removesuffix(".") for why in info["skipped"].values())]
    reason = f"the log could not be simulated ({twins.reason}), so no effect is reported" if chosen is None else None
    compared = compared_answers(results, scenario, notes, twin=panel.twin, reason=reason, tenant=twins.trace.tenant)
    again = [replay_command(twins.limit)] if chosen is None else twin_commands(twins, [chosen], replayed=True)
    *found, effects = twin_answers(twins)
    carried = [one for one in twins.clusters if one.found.why_no_effect is None]
    plan = faults.run("the plan of nodes", plan_answer, twins)
    return [
        *with_commands(found, twin_commands(twins, twins.clusters)),
        *with_commands([effects], twin_commands(twins, carried, replayed=True)),
        *with_commands(compared, again),
        PLAN.unanswered(plan.remark, failed=True) if isinstance(plan, Fault) else plan,
    ], info


class _Panel(NamedTuple):
    """The replayed scenario and its results by policy."""

    scenario: Scenario
    results: list[ReplayResult]
    skipped: dict[str, str]
    """Policies that cannot run, with reasons."""
    twin: TwinOfLog | None = None


def _replay_of(policy: str) -> str:
    return f"the replay of {policy}"


def _panel_in_twin(chosen: TwinReplays, twins: Twins, faults: Faults) -> _Panel:
    made = {policy: faults.run(_replay_of(policy), chosen.result, policy) for policy in standard_panel()}
    found = {policy: one.sentence if isinstance(one, Fault) else one for policy, one in made.items()}
    results = [replace(r, policy=policy) for policy, r in found.items() if not isinstance(r, str)]
    skipped = {policy: r for policy, r in found.items() if isinstance(r, str)}
    return _Panel(chosen.scenario, [chosen.own, *results], skipped, twins.of_log(chosen))


def _panel_without_twin(twins: Twins, faults: Faults) -> _Panel | str:
    """Replay the panel on the cluster that the source describes, or return why nothing can be replayed."""
    try:
        scenario = scenario_of(twins.trace, limit=twins.limit)
    except DamagedTraceError:
        raise
    except EngineMissingError as error:
        return f"There are no replays: {error}."
    except TracekitError as error:
        return f"The trace cannot be replayed: {twins.named(error)}."
    results: list[ReplayResult] = []
    skipped: dict[str, str] = {}
    for policy in standard_panel():
        try:
            made = faults.run(_replay_of(policy), scenario.run, policy)
        except UsageError as error:
            skipped[policy] = f"{policy} cannot be replayed here: {error}."
            continue
        if isinstance(made, Fault):
            skipped[policy] = made.sentence
        else:
            results.append(made)
    return _Panel(scenario, results, skipped)


def _notes(scenario: Scenario, limit: int | None) -> list[str]:
    cut = len(scenario.jobs) + sum(part.jobs for part in scenario.jobs.left_out if part.reason == BEYOND_LIMIT)
    beyond = limit is not None and cut > len(scenario.jobs) and cut > limit
    first = f"only the first {len(scenario.jobs):,} submitted jobs (--replay-jobs changes the limit)" if beyond else ""
    part = _part(scenario.part)
    warned = scenario.feasibility.sentences if scenario.feasibility is not None else ()
    replayed = f"the policies are shown for {part['text']}" if part else ""
    return [note for note in (first, replayed, _left_out(scenario.jobs), *warned) if note]


def _left_out(jobs: Jobs) -> str:
    """Describe the jobs that are not replayed by reason, with their GPU-hours, or return '' if there are none."""
    out = sum(part.jobs for part in jobs.left_out)
    if not out:
        return ""
    parts = []
    for part, share in jobs.shares_left_out():
        words = f" (with {percent(share)} of the GPU-hours)" if share else ""
        parts.append(f"{part.reason}: {part.jobs:,}{words}")
    text = "; ".join(parts)
    return (
        f"{out:,} of the log's {counted(out + len(jobs), 'jobs')} are not replayed. Each of them counts once, for the"
        f" first reason that applies. {text[:1].upper()}{text[1:]}"
    )


def _part(part: Part | None) -> PartInfo | None:
    if part is None:
        return None
    text = part.words
    others = [cut(name) for name in part.others[:_MOST_NAMES]]
    return {"cluster": cut(part.cluster), "others": others, "waiting_share": part.waiting_share, "text": text}
