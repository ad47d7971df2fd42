"""Replays of a panel of policies as answers of a report: what each would have done to the same jobs.

The rows are those of `tracekit.replay`'s comparison and summaries (see `compare_policies` and `summarize`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.characterize.query import Query, QueryColumn
from tracekit.replay.panel import standard_panel
from tracekit.replay.results.comparison import compare_policies
from tracekit.replay.study import left_out_sentences
from tracekit.report.data import Result
from tracekit.text import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_C = QueryColumn


def _query(name: str, title: str, question: str, rule: str, columns: tuple[QueryColumn, ...], paper: str = "") -> Query:
    return Query(name, title, question, paper, ("jobs",), (), (), columns, "", Path(), rule=rule)


POLICIES = _query(
    "replay/policies",
    "Policies compared by replay",
    "What would other scheduling policies have done to the same jobs?",
    _RULE,
    (
        _C("policy", "text", "policy and parameters, as 'tracekit replay -p' takes them"),
        _C("run_times", "text", "given: it is given the true run times in advance; not given: it is not"),
        _C("completed", "jobs", "jobs that ran to their end"),
        _C("avg_jct_s", "s", "mean completion time"),
        _C("median_jct_s", "s", "median completion time"),
        _C("p99_jct_s", "s", "99th percentile of completion times"),
        _C("jct_diff_share", "share", "change of the mean completion time against the first policy; below 0 is faster"),
        _C("jct_diff_share_low", "share", "lower end of its 95 % interval"),
        _C("jct_diff_share_high", "share", "upper end"),
        _C("avg_queue_s", "s", "mean wait until the first start"),
        _C("median_queue_s", "s", "median of these waits"),
        _C("p99_queue_s", "s", "99th percentile of these waits"),
        _C("better_share", "share", "jobs that complete earlier than under the first policy"),
        _C("worse_share", "share", "jobs that complete later"),
        _C("gpu_utilization_share", "share", "GPU time held, of all GPU time until the last end"),
        _C("fragmentation_share", "share", "free GPU time on partly used nodes, of all free GPU time"),
        _C("jain_fairness_vc", "0..1", "Jain's index of what virtual clusters got for what they asked; 1 is equal"),
        _C("preemptions", "preemptions", "times that a running job was stopped"),
    ),
    "Helios Table 3 and Fig 9 (SC'21)",
)
CLASSES = _query(
    "replay/by_gpu_class",
    "Policies by size of job",
    "Which sizes of jobs would gain under another policy, and which would pay?",
    _RULE,
    (
        _C("policy", "text", "policy and parameters"),
        _C("gpu_class", "class", "size class of the job"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("avg_jct_s", "s", "mean completion time"),
        _C("avg_queue_s", "s", "mean wait until the first start"),
        _C("p95_queue_s", "s", "95th percentile of these waits"),
    ),
)
TENANTS = _query(
    "replay/by_vc",
    "Policies by virtual cluster",
    "Would some virtual clusters pay for the gain of others?",
    _RULE,
    (
        _C("vc", "text", "virtual cluster; empty for jobs without one"),
        _C("policy", "text", "policy and parameters"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("avg_jct_s", "s", "mean completion time"),
        _C("avg_queue_s", "s", "mean wait until the first start"),
    ),
)
ASSUMED = _query(
    "replay/assumptions",
    "Assumptions of the replays",
    "What do the replays assume that the log does not tell?",
    "Each assumption that a replayed policy used, with the value and where that comes from; '--models FILE' of"
    " 'tracekit replay' changes them.",
    (
        _C("id", "text", "name of the assumption"),
        _C("what", "text", "what is assumed"),
        _C("value", "text", "the value used"),
        _C("source", "text", "where it comes from"),
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
    notes = [*info["notes"], *(f"left out: {why}" for why in info["skipped"].values())]
    compared = compare_policies(results, seed=scenario.seed).with_columns(
        run_times=pl.Series([_knows(r) for r in results])
    )
    return [
        Result(POLICIES, compared.select(c.name for c in POLICIES.columns), notes=notes),
        _grouped(CLASSES, results, "by_gpu_class", {}),
        _grouped(TENANTS, results, "by_vc", {"name": "vc"}),
        Result(ASSUMED, _frame(ASSUMED, _assumptions(results))),
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
        {"policy": result.policy, **{names.get(name, name): value for name, value in group.items()}}
        for result in results
        for group in result.summary[key]
    ]
    if key == "by_vc" and all(row["vc"] is None for row in rows):
        return Result(query, None, reasons=["The jobs have no virtual clusters."])
    return Result(query, _frame(query, rows))


def _assumptions(results: Iterable[Compared]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for result in results:
        for key, told in result.summary["assumptions"].items():
            row = {"id": key, "what": told["title"], "value": str(told["value"]), "source": str(told["source"])}
            rows.setdefault((key, row["value"]), row)
    return list(rows.values())


def _frame(query: Query, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = [c.name for c in query.columns]
    return pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
