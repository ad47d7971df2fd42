"""Replays as answers of a report: the twins of the log, and a panel of policies in the busiest of them.

The answers come from `tracekit.report.twin_answers` and `tracekit.replay.results.answers`; this module adds what was
replayed, and what was left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tracekit.calibration.questions import TWIN_QUESTIONS
from tracekit.errors import DamagedTraceError, EngineMissingError, TracekitError, UsageError
from tracekit.faults import Fault, Faults
from tracekit.replay.api import scenario_of
from tracekit.replay.panels import standard_panel
from tracekit.replay.results.answers import compared_answers
from tracekit.replay.results.questions import REPLAYED
from tracekit.replay.results.recorded_times import RECORDED
from tracekit.replay.workload.selection import BEYOND_LIMIT
from tracekit.report.commands import replay_command, twin_commands, with_commands
from tracekit.report.plan_answers import PLAN, plan_answer
from tracekit.report.twin_answers import twin_answers
from tracekit.text import counted, cut, percent

if TYPE_CHECKING:
    from tracekit.answer import Answer, Unanswered
    from tracekit.calibration.twins import TwinReplays, Twins
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.part import Part
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario
    from tracekit.report.structure import PartInfo, ReplayInfo

__all__ = ["REPLAY_QUESTIONS", "replayed_answers", "unreplayed_answers"]

REPLAY_QUESTIONS = (*TWIN_QUESTIONS, *REPLAYED, PLAN)
"""What a report asks of replays, in reading order."""
_MOST_NAMES = 100
"""Most clusters that report.json names."""


def unreplayed_answers(reason: str, *, failed: bool = False) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    """Return the questions without answers; `failed` says that an error is the reason."""
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
    """Replay the standard panel in the twins and return what a report shows of it.

    The tables of policies are of one cluster: of those whose twin carries effects, or of all where none does, that with
    most of the waiting hours. Without a twin they are of the busiest cluster as the source states it, and no effect is
    reported. A policy whose replay fails, and a plan that fails, are faults; the others are shown.
    """
    faults = Faults() if faults is None else faults
    chosen = next((one for one in twins.clusters if one.found.why_no_effect is None), next(iter(twins.clusters), None))
    if chosen is None:
        panel = _panel_without_twin(twins, faults)
        if isinstance(panel, str):
            reason = twins.reason
            known = reason is None or reason in panel
            return unreplayed_answers(panel if known else f"{panel} There is no twin of the log: {reason}.")
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
    reason = f"there is no twin of the log: {twins.reason}; the effect cannot be told" if chosen is None else None
    compared = compared_answers(results, scenario, notes, twin=panel.twin, reason=reason)
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
    """What was replayed, and under which policies."""

    scenario: Scenario
    results: list[ReplayResult]
    skipped: dict[str, str]
    """Policies that cannot run, with the reason."""
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
    """Return the panel on the cluster that the source states, or why nothing can be replayed."""
    try:
        scenario = scenario_of(twins.trace, limit=twins.limit)
    except DamagedTraceError:
        raise
    except EngineMissingError as error:
        return f"Replays are left out: {error}."
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
    first = f"only the first {len(scenario.jobs):,} jobs by submission; --replay-jobs moves the limit" if beyond else ""
    part = _part(scenario.part)
    warned = scenario.feasibility.sentences if scenario.feasibility is not None else ()
    replayed = f"the policies are shown for {part['text']}" if part else ""
    return [note for note in (first, replayed, _left_out(scenario.jobs), *warned) if note]


def _left_out(jobs: Jobs) -> str:
    """Return which jobs are not in the replay, of how many and with how much of the GPU-hours; '' when all are."""
    out = sum(part.jobs for part in jobs.left_out)
    if not out:
        return ""
    parts = []
    for part, share in jobs.shares_left_out():
        words = f" (with {percent(share)} of the GPU-hours)" if share else ""
        parts.append(f"{part.reason}: {part.jobs:,}{words}")
    text = "; ".join(parts)
    return (
        f"{out:,} of the {counted(out + len(jobs), 'jobs')} of the log are not replayed; each counts once, for the"
        f" first of these reasons that holds. {text[:1].upper()}{text[1:]}"
    )


def _part(part: Part | None) -> PartInfo | None:
    if part is None:
        return None
    text = part.words
    others = [cut(name) for name in part.others[:_MOST_NAMES]]
    return {"cluster": cut(part.cluster), "others": others, "waiting_share": part.waiting_share, "text": text}
