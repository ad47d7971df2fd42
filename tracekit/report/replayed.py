"""Replays of a panel of policies as answers of a report: what each would have done to the same jobs.

The rows are those of `tracekit.replay`'s comparison and summaries (see `compare_policies` and `summarize`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.characterize.query import QueryColumn
from tracekit.replay.panel import standard_panel
from tracekit.replay.registry import find_policy
from tracekit.replay.results.comparison import compare_policies
from tracekit.replay.study import left_out_sentences
from tracekit.report.data import Result
from tracekit.report.made import frame_of, made_query
from tracekit.text import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.characterize.query import Query
    from tracekit.guidelines.replays import LiveReplays
    from tracekit.replay.results.comparison import Compared
    from tracekit.replay.scenario import Scenario
    from tracekit.report.structure import ReplayInfo

__all__ = ["RECORDED", "REPLAYED", "replayed_results", "unreplayed_results"]

RECORDED = "recorded"
"""The policy that starts each job when the log says."""
_PREEMPT_KNOWING = frozenset({"srtf", "srsf"})
"""Policies that order by the true time left and have no parameter for its error."""

_RULE = (
    "The same jobs, with their submissions, sizes and run times, are scheduled anew on the same cluster, once under"
    " each policy; the first policy of the table is what the others are compared with. Completion time is end minus"
    " submission, waiting is first start minus submission. The change is the mean over the jobs that both policies"
    " completed, divided by the mean under the first; its 95 % interval resamples whole submission days. Run times that"
    " a policy is given in advance are the true ones, so that such a policy shows the most that prediction can give."
)
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
    "jain_fairness_vc": "fairness_share",
}
"""What the columns of a comparison are called for people."""
_C = QueryColumn


POLICIES = made_query(
    "replay/policies",
    "Policies compared by replay",
    "What would other scheduling policies have done to the same jobs?",
    _RULE,
    (
        _C("policy", "text", "policy and parameters, as 'tracekit replay -p' takes them"),
        _C("what", "sentence", "what the policy is; 'tracekit policies NAME' tells more"),
        _C("run_times", "text", "given: it is given the true run times in advance; not given: it is not"),
        _C("mean_completion_s", "s", "mean completion time"),
        _C("change_share", "share", "change of the mean completion time against the first policy; below 0 is faster"),
        _C("change_low_share", "share", "lower end of its 95 % interval"),
        _C("change_high_share", "share", "upper end"),
        _C("mean_wait_s", "s", "mean wait until the first start"),
        _C("p99_wait_s", "s", "99th percentile of these waits"),
        _C("later_share", "share", "jobs that complete later"),
        _C("earlier_share", "share", "jobs that complete earlier than under the first policy"),
        _C("completed", "jobs", "jobs that ran to their end"),
        _C("median_completion_s", "s", "median completion time"),
        _C("p99_completion_s", "s", "99th percentile of completion times"),
        _C("median_wait_s", "s", "median of these waits"),
        _C("gpus_busy_share", "share", "GPU time held, of all GPU time until the last end"),
        _C("fragmented_share", "share", "free GPU time on partly used nodes, of all free GPU time"),
        _C("fairness_share", "share", "Jain's index of what virtual clusters got for what they asked; 1 is equal"),
        _C("preemptions", "preemptions", "times that a running job was stopped"),
    ),
    "Helios Table 3 and Fig 9 (SC'21)",
)
CLASSES = made_query(
    "replay/by_gpu_class",
    "Policies by size of job",
    "Which sizes of jobs would gain under another policy, and which would pay?",
    _RULE,
    (
        _C("policy", "text", "policy and parameters"),
        _C("gpu_class", "class", "size class of the job"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("mean_completion_s", "s", "mean completion time"),
        _C("mean_wait_s", "s", "mean wait until the first start"),
        _C("p95_wait_s", "s", "95th percentile of these waits"),
    ),
)
TENANTS = made_query(
    "replay/by_vc",
    "Policies by virtual cluster",
    "Would some virtual clusters pay for the gain of others?",
    _RULE,
    (
        _C("vc", "text", "virtual cluster; empty for jobs without one"),
        _C("policy", "text", "policy and parameters"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("mean_completion_s", "s", "mean completion time"),
        _C("mean_wait_s", "s", "mean wait until the first start"),
    ),
)
ASSUMED = made_query(
    "replay/assumptions",
    "Assumptions of the replays",
    "What do the replays assume that the log does not tell?",
    "Each assumption that a replayed policy used, with the value and where that comes from; '--models FILE' of"
    " 'tracekit replay' changes them.",
    (
        _C("id", "text", "name of the assumption"),
        _C("what", "sentence", "what is assumed"),
        _C("value", "sentence", "the value used"),
        _C("source", "sentence", "where it comes from"),
    ),
)
REPLAYED = (POLICIES, CLASSES, TENANTS, ASSUMED)
"""What a report asks the replays."""


def unreplayed_results(reason: str) -> tuple[list[Result], ReplayInfo]:
    """Return the questions without answers."""
    info: ReplayInfo = {"reason": reason, "jobs": 0, "limit": None, "cluster": None, "notes": [], "skipped": {}}
    return [Result(query, None, reasons=[reason]) for query in REPLAYED], info


def replayed_results(replays: LiveReplays) -> tuple[list[Result], ReplayInfo]:
    """Replay the standard panel and return what a report shows of it.

    Parameters
    ----------
    replays : LiveReplays
        Where the schedules come from; guidelines find them there again.
    """
    scenario = replays.scenario()
    if isinstance(scenario, str):
        return unreplayed_results(scenario)
    results: list[Compared] = []
    skipped: dict[str, str] = {}
    for policy in standard_panel():
        result = replays.result(policy)
        if isinstance(result, str):
            skipped[policy] = result
        else:
            results.append(result)
    if not results:
        return unreplayed_results(next(iter(skipped.values()), "No policy can be replayed."))
    info: ReplayInfo = {
        "reason": None,
        "jobs": len(scenario.jobs),
        "limit": replays.limit,
        "cluster": {"nodes": scenario.cluster.nodes, "gpus": scenario.cluster.total_gpus},
        "notes": _notes(scenario, replays.limit),
        "skipped": {policy: cut(why) for policy, why in skipped.items()},
    }
    info["notes"] += [str(r.summary["assumptions"]["recorded"]["value"]) for r in results if r.policy == RECORDED]
    notes = [*info["notes"], *(f"left out: {why}" for why in info["skipped"].values())]
    compared = (
        compare_policies(results, seed=scenario.seed)
        .rename(_NAMES, strict=False)
        .with_columns(
            what=pl.Series([find_policy(r.policy.partition(",")[0]).card.title for r in results]),
            run_times=pl.Series([_knows(r) for r in results]),
        )
    )
    return [
        Result(POLICIES, compared.select(c.name for c in POLICIES.columns), notes=notes),
        _grouped(CLASSES, results, "by_gpu_class", {}),
        _grouped(TENANTS, results, "by_vc", {"name": "vc"}),
        Result(ASSUMED, frame_of(ASSUMED, _assumptions(results))),
    ], info


def _notes(scenario: Scenario, limit: int) -> list[str]:
    jobs = len(scenario.jobs)
    first = f"the first {jobs:,} jobs by submission; --replay-jobs moves the limit" if jobs >= limit else ""
    warned = scenario.feasibility.sentences if scenario.feasibility is not None else ()
    return [note for note in (first, *left_out_sentences(scenario), *warned) if note]


def _knows(result: Compared) -> str:
    """Return whether a policy is given the true run times."""
    head = result.policy.partition(",")[0]
    given = result.summary["parameters"].get("noise") == "oracle" or head in _PREEMPT_KNOWING
    return "given" if given else "not given"


def _grouped(query: Query, results: Iterable[Compared], key: str, names: dict[str, str]) -> Result:
    rows = [
        {"policy": result.policy, **{names.get(name, _NAMES.get(name, name)): value for name, value in group.items()}}
        for result in results
        for group in result.summary[key]
    ]
    if key == "by_vc" and all(row["vc"] is None for row in rows):
        return Result(query, None, reasons=["The jobs have no virtual clusters."])
    return Result(query, frame_of(query, rows))


def _assumptions(results: Iterable[Compared]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for result in results:
        for key, told in result.summary["assumptions"].items():
            row = {"id": key, "what": told["title"], "value": str(told["value"]), "source": str(told["source"])}
            rows.setdefault((key, row["value"]), row)
    return list(rows.values())
