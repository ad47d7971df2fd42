"""Replays of a panel of policies as answers of a report: what each would have done to the same jobs.

The answers come from `tracekit.replay.results.answers`; this module adds what was replayed, and what was left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.results.answers import compared_answers
from tracekit.replay.results.questions import REPLAYED
from tracekit.replay.results.recorded_times import RECORDED
from tracekit.replay.run_policies import standard_panel
from tracekit.replay.workload.selection import BEYOND_LIMIT
from tracekit.text import counted, cut, percent

if TYPE_CHECKING:
    from tracekit.answer import Answer, Unanswered
    from tracekit.guidelines.replays import LiveReplays
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.part import Part
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.scenario import Scenario
    from tracekit.report.structure import PartInfo, ReplayInfo

__all__ = ["replayed_answers", "unreplayed_answers"]

_MOST_NAMES = 100
"""Most clusters that report.json names."""


def unreplayed_answers(reason: str) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    """Return the questions without answers."""
    info: ReplayInfo = {
        "reason": reason,
        "jobs": 0,
        "limit": None,
        "cluster": None,
        "part": None,
        "notes": [],
        "skipped": {},
    }
    return [question.unanswered(reason) for question in REPLAYED], info


def replayed_answers(replays: LiveReplays) -> tuple[list[Answer | Unanswered], ReplayInfo]:
    """Replay the standard panel and return what a report shows of it."""
    scenario = replays.scenario()
    if isinstance(scenario, str):
        return unreplayed_answers(scenario)
    results: list[ReplayResult] = []
    skipped: dict[str, str] = {}
    for policy in standard_panel():
        result = replays.result(policy)
        if isinstance(result, str):
            skipped[policy] = result
        else:
            results.append(result)
    if not results:
        return unreplayed_answers(next(iter(skipped.values()), "No policy can be replayed."))
    info: ReplayInfo = {
        "reason": None,
        "jobs": len(scenario.jobs),
        "limit": replays.limit,
        "cluster": {
            "nodes": scenario.cluster.nodes,
            "gpus": scenario.cluster.total_gpus,
            "nodes_without_gpus": scenario.cluster.without_gpus,
        },
        "part": _part(scenario.part),
        "notes": _notes(scenario, replays.limit),
        "skipped": {policy: cut(why) for policy, why in skipped.items()},
    }
    recorded = (r.summary["assumptions"]["recorded"]["value"] for r in results if r.policy == RECORDED)
    info["notes"] += [f"the log ({RECORDED}): {value}" for value in recorded]
    notes = [*info["notes"], *(why.removesuffix(".") for why in info["skipped"].values())]
    return compared_answers(results, scenario, notes), info


def _notes(scenario: Scenario, limit: int) -> list[str]:
    cut = len(scenario.jobs) + sum(part.jobs for part in scenario.jobs.left_out if part.reason == BEYOND_LIMIT)
    first = f"only the first {limit:,} jobs by submission; --replay-jobs moves the limit" if cut > limit else ""
    part = _part(scenario.part)
    warned = scenario.feasibility.sentences if scenario.feasibility is not None else ()
    replayed = f"replayed was {part['text']}" if part else ""
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
    text = f"{part.words}; {part.missing} replayed"
    others = [cut(name) for name in part.others[:_MOST_NAMES]]
    return {"cluster": cut(part.cluster), "others": others, "waiting_share": part.waiting_share, "text": text}
