"""Replays of a panel of policies as answers of a report: what each would have done to the same jobs.

The rows are those of `tracekit.replay`'s comparison and summaries (see `compare_policies` and `summarize`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import Answer
from tracekit.replay.panel import standard_panel
from tracekit.replay.registry import named_policy
from tracekit.replay.results.comparison import compare_policies
from tracekit.replay.results.record import RECORDED
from tracekit.replay.results.told import beside_record, support_between
from tracekit.replay.workload.selection import BEYOND_LIMIT
from tracekit.report.replay_questions import ASSUMED, CLASSES, POLICIES, REPLAYED, TENANTS
from tracekit.report.replay_rows import alike
from tracekit.text import counted, cut, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Question, Unanswered
    from tracekit.guidelines.replays import LiveReplays
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.part import Part
    from tracekit.replay.results.comparison import Compared
    from tracekit.replay.scenario import Scenario
    from tracekit.report.structure import PartInfo, ReplayInfo

__all__ = ["replayed_answers", "unreplayed_answers"]

_MOST_NAMES = 100
"""Most clusters that report.json names."""
_MOST = 3
"""Most policies of which a note tells the number of jobs."""
_CHANGE = "A change compares only jobs that both completed"
_PREEMPT_KNOWING = frozenset({"srtf", "srsf"})
"""Policies that order by the true time left and have no parameter for its error."""

_NAMES = {
    "avg_jct_s": "mean_completion_s",
    "median_jct_s": "median_completion_s",
    "p99_jct_s": "p99_completion_s",
    "jct_diff_share": "change_share",
    "jct_diff_share_low": "change_low_share",
    "jct_diff_share_high": "change_high_share",
    "avg_queue_s": "mean_wait_s",
    "median_queue_s": "median_wait_s",
    "p95_queue_s": "p95_wait_s",
    "p99_queue_s": "p99_wait_s",
    "better_share": "earlier_share",
    "worse_share": "later_share",
    "gpu_utilization_share": "gpus_busy_share",
    "fragmentation_share": "fragmented_share",
    "recorded_queue_s": "recorded_wait_s",
    "recorded_jct_s": "recorded_completion_s",
    "baseline_queue_s": "first_wait_s",
    "policy_queue_s": "policy_wait_s",
    "jain_fairness_vc": "fairness_share",
}
"""What the columns of a comparison are called for people."""


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
    """Replay the standard panel and return what a report shows of it.

    Parameters
    ----------
    replays : LiveReplays
        Where the schedules come from; guidelines find them there again.
    """
    scenario = replays.scenario()
    if isinstance(scenario, str):
        return unreplayed_answers(scenario)
    results: list[Compared] = []
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
    info["notes"] += [f"the log ({RECORDED}): {_of_log(r)}" for r in results if r.policy == RECORDED]
    notes = [*info["notes"], *(why.removesuffix(".") for why in info["skipped"].values())]
    quotas = {r.policy: _quotas(r, scenario) for r in results}
    compared = beside_record(compare_policies(results, seed=scenario.seed), results).rename(_NAMES, strict=False)
    told = dict(compared.select("policy", "effect_told").iter_rows())
    of = {r.policy: r for r in results}
    more = [
        {
            "what": named_policy(name).what,
            "run_times": _knows(of[name]) if name in of else "not given",
            "quotas": quotas.get(name),
            "beyond_share": _beyond_share(of[name]) if name in of else None,
        }
        for name in compared["policy"]
    ]
    types = {"quotas": pl.String, "beyond_share": pl.Float64}
    compared = compared.hstack(pl.DataFrame(more, schema_overrides=types))
    base = _base(compared.rows(named=True))
    return [
        Answer(
            POLICIES,
            compared.select(c.name for c in POLICIES.columns),
            notes=(*(f"{n}. {_CHANGE}" for n in base), *notes),
        ),
        _grouped(CLASSES, results, "by_gpu_class", {}, told, notes=base),
        _grouped(TENANTS, results, "by_vc", {"name": "vc"}, _told_of_kind(results, quotas), quotas, notes=base),
        ASSUMED.answered(_assumptions(results)),
    ], info


def _base(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return that some means are of other jobs than those of the first policy, where they are."""
    first, *others = rows
    fewer = [f"those of {r['policy']} over {r['completed']:,}" for r in others if r["completed"] != first["completed"]]
    if not fewer:
        return []
    more = [f"those of {len(fewer) - _MOST} more policies over other numbers"] if len(fewer) > _MOST else []
    told = ", ".join([*fewer[:_MOST], *more])
    return [f"the means of {first['policy']} are over {counted(first['completed'], 'jobs')}, {told}: not the same jobs"]


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


def _knows(result: Compared) -> str:
    """Return whether a policy is given the true run times."""
    head = result.policy.partition(",")[0]
    given = result.summary["parameters"].get("noise") == "oracle" or head in _PREEMPT_KNOWING
    return "given" if given else "not given"


def _quotas(result: Compared, scenario: Scenario) -> str | None:
    """Return whether a policy keeps quotas; None where there are no VCs, and of the log, of which nobody knows."""
    if result.policy == RECORDED or not scenario.jobs.tenants:
        return None
    # Virtual clusters with nodes of their own keep them under every policy.
    own_nodes = any(scenario.cluster.domains)
    return "kept" if own_nodes or named_policy(result.policy).card.quotas else "ignored"


def _beyond_share(result: Compared) -> float | None:
    """Return the part of the GPU time held for which the cluster has no GPUs [1]; None of a policy."""
    found = result.violations
    held = float(result.outcome.held_milli_ms.astype(np.float64).sum()) / 1000
    if found is None or not held:
        return None
    beyond = (found["until"] - found["time"]).dt.total_milliseconds() * (found["wanted"] - found["there_were"])
    return float(beyond.sum()) / held


def _told_of_kind(results: Sequence[Compared], quotas: Mapping[str, str | None]) -> dict[str, bool]:
    """Return of each policy whether its effect against the first that treats quotas like it can be told."""
    first: dict[str | None, Compared] = {}
    for result in results:
        first.setdefault(quotas[result.policy], result)
    return {r.policy: support_between(first[quotas[r.policy]], r).told for r in results}


def _part(part: Part | None) -> PartInfo | None:
    if part is None:
        return None
    text = f"{part.words}; {part.missing} replayed"
    others = [cut(name) for name in part.others[:_MOST_NAMES]]
    return {"cluster": cut(part.cluster), "others": others, "waiting_share": part.waiting_share, "text": text}


def _of_log(result: Compared) -> str:
    return str(result.summary["assumptions"]["recorded"]["value"])


def _grouped(
    question: Question,
    results: Iterable[Compared],
    key: str,
    names: dict[str, str],
    told: Mapping[str, bool],
    quotas: Mapping[str, str | None] | None = None,
    *,
    notes: list[str],
) -> Answer | Unanswered:
    results = list(results)
    first, *others = results
    means = {r.policy: [g[mean] for g in r.summary[key] for mean in ("avg_jct_s", "avg_queue_s")] for r in results}
    rows = [
        {
            "policy": result.policy,
            "quotas": quotas[result.policy] if quotas else None,
            "effect_told": told[result.policy],
            **{names.get(name, _NAMES.get(name, name)): value for name, value in group.items()},
        }
        for result in (first, *sorted(others, key=lambda r: alike(means[r.policy], means[first.policy])))
        for group in result.summary[key]
    ]
    if key == "by_vc" and all(row["vc"] is None for row in rows):
        return question.unanswered("The jobs have no virtual clusters.")
    return question.answered(rows, notes)


def _assumptions(results: list[Compared]) -> list[dict[str, Any]]:
    """Return each assumption once a value, with the policies that used it."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    users: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for key, told in result.summary["assumptions"].items():
            value = str(told["value"])
            rows.setdefault((key, value), {"id": key, "what": told["title"], "value": value, "source": told["source"]})
            users.setdefault((key, value), []).append(result.policy)
    every = [result.policy for result in results]
    order = list(dict.fromkeys(name for name, _ in rows))
    told = sorted(rows.items(), key=lambda item: order.index(item[0][0]))
    return [{**row, "policies": _told_policies(users[key], every)} for key, row in told]


def _told_policies(used_by: list[str], every: list[str]) -> str:
    others = [policy for policy in every if policy not in used_by]
    if not others:
        return "all"
    return f"all but {' and '.join(others)}" if len(others) < len(used_by) and len(others) < 3 else "; ".join(used_by)
