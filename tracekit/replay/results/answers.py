"""Answers from replays of several policies: each policy's effect on the same jobs.

The rows come from the comparison and the summaries (see `compare_policies` and `summarize`) and keep their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import Answer, AnswerColumn, Question
from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.registry import named_policy
from tracekit.replay.results.comparison import compare_policies
from tracekit.replay.results.effects import beside_record, support_between
from tracekit.tenant import VC
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Unanswered
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario
    from tracekit.tenant import Tenant


_RULE = (
    "The same jobs, with their submissions, sizes and run times, are scheduled again on the same cluster, once per "
    "policy. The table compares each policy with the first. Completion time is end minus"
    " submission, and queue time is first start minus submission. The change is the mean over the jobs that both"
    " policies completed, divided by the mean under the first. Its 95 % interval resamples whole submission days. A "
    "policy that gets run times in advance gets the actual ones, so its result is the best that prediction could "
    "achieve. An effect is reported only if the mean wait under the first policy is within a factor of 1.25 of the"
    " same jobs' mean wait in the log, or within a minute of it, and jobs wait no longer under the policy than in the"
    " log."
)
_ORDER = (
    " The first policy comes first, then the policies with a mean that differs from the first policy's by at least"
    " 0.1 % in some row, then the others."
)
_C = AnswerColumn
_TOLD = "whether the log supports the change against the first policy; for the first, whether its waits match the log"
_TOLD_OF_KIND = "whether the log supports the change against the first policy that treats quotas the same way"
_POLICY = _C("policy", "text", "policy and parameters, as 'tracekit replay -p' accepts them")
_QUOTAS = _C(
    "quotas",
    "text",
    "kept: quotas of {tenant.spelled_many} decide which jobs may run; ignored: any job may take any free GPU",
)
_JOBS = _C("jobs", "jobs", "jobs replayed")
_MEANS = (
    _C("avg_jct_s", "s", "mean completion time"),
    _C("avg_queue_s", "s", "mean queue time, from submission to the first start"),
)

POLICIES = Question(
    name="replay/policies",
    kind="replay",
    title="Policies compared by replay",
    question="What would other policies have done to the same jobs?",
    rule=_RULE,
    columns=(
        _POLICY,
        _C("what", "sentence", "description of the policy; 'tracekit policies NAME' shows more"),
        _C("run_times", "text", "given: the policy gets the actual run times in advance; not given: it does not"),
        _MEANS[0],
        _C("jct_diff_share", "share", "change of mean completion time against the first policy, negative if faster"),
        _C("jct_diff_share_low", "share", "lower end of its 95 % interval"),
        _C("jct_diff_share_high", "share", "upper end"),
        _MEANS[1],
        _C("p99_queue_s", "s", "99th percentile of queue times"),
        _C("worse_share", "share", "share of jobs that complete later than under the first policy"),
        _C("better_share", "share", "share of jobs that complete earlier than under the first policy"),
        _QUOTAS,
        _JOBS,
        _C("completed", "jobs", "jobs that ran to their end"),
        _C("median_jct_s", "s", "median completion time"),
        _C("p99_jct_s", "s", "99th percentile of completion times"),
        _C("median_queue_s", "s", "median of queue times"),
        _C("gpu_utilization_share", "share", "allocated share of all GPU time until the last end"),
        _C("fragmentation_share", "share", "share of free GPU time that is on partly used nodes"),
        _C("jain_fairness_vc", "share", "Jain's index of the demand that {tenant.spelled_many} got served; 1 is equal"),
        _C("preemptions", "preemptions", "how often running jobs were stopped"),
        _C(
            "beyond_share",
            "share",
            "for the recorded schedule, share of allocated GPU time beyond the cluster's GPUs",
        ),
        _C("effect_told", "true or false", _TOLD),
        _C("effect_reason", "sentence", "why the log does not support the change"),
        _C("recorded_jobs", "jobs", "jobs that both this and the first policy completed, with a recorded wait"),
        _C("recorded_queue_s", "s", "mean queue time of these jobs in the log"),
        _C("baseline_queue_s", "s", "mean queue time of these jobs under the first policy"),
        _C("policy_queue_s", "s", "mean queue time of these jobs under this policy"),
        _C("recorded_jct_s", "s", "mean completion time in the log, over those of these jobs whose end is recorded"),
    ),
    paper="Helios Table 3 and Fig 9 (SC'21)",
)
CLASSES = Question(
    name="replay/by_gpu_class",
    kind="replay",
    title="Policies by size of job",
    question="Which job sizes would gain under another policy, and which would lose?",
    rule=_RULE + _ORDER,
    columns=(
        _POLICY,
        _C("gpu_class", "class", "size class of the job"),
        _JOBS,
        *_MEANS,
        _C("p95_queue_s", "s", "95th percentile of queue times"),
        _C("effect_told", "true or false", _TOLD),
    ),
)
TENANTS = Question(
    name="replay/by_vc",
    kind="replay",
    title="Policies by {tenant.spelled}",
    question="Would some {tenant.spelled_many} lose so that others gain?",
    rule=_RULE + _ORDER,
    columns=(
        _C("vc", "text", "{tenant.spelled}, or empty for jobs without one"),
        _POLICY,
        _QUOTAS,
        _JOBS,
        *_MEANS,
        _C("effect_told", "true or false", _TOLD_OF_KIND),
    ),
)
ASSUMED = Question(
    name="replay/assumptions",
    kind="replay",
    title="Assumptions of the replays",
    question="What do the replays assume that the log does not record?",
    rule="Each assumption that a replayed policy used, with its value and source; '--models FILE' of 'tracekit replay'"
    " changes them.",
    columns=(
        _C("what", "sentence", "description of the assumption"),
        _C("value", "sentence", "the value used"),
        _C("source", "sentence", "where the value comes from"),
        _C("policies", "sentence", "the policies that use this value"),
        _C("id", "text", "name of the assumption, as 'tracekit policies' lists it"),
    ),
)
REPLAYED = (POLICIES, CLASSES, TENANTS, ASSUMED)
"""The questions, in reading order."""


LEAST = 0.001
"""A change by a smaller share of the mean counts as no change."""
_MOST = 3
"""Largest number of policies whose job counts appear in a note."""
_CHANGE = "A change compares only jobs that both completed"
_PREEMPT_KNOWING = frozenset({"srtf", "srsf"})
"""Policies that sort by the actual remaining time and have no parameter for an error in it."""


def alike(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Return whether two lists contain the same numbers, up to a relative tolerance of `LEAST`."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if (a is None) != (b is None):
            return False
        if a is not None and b is not None and abs(a - b) > LEAST * max(abs(a), abs(b)):
            return False
    return True


def compared_answers(
    results: Sequence[ReplayResult],
    scenario: Scenario,
    notes: Sequence[str] = (),
    *,
    twin: TwinOfLog | None = None,
    reason: str | None = None,
    tenant: Tenant = VC,
) -> list[Answer | Unanswered]:
    """Compare the policies in total, by job size and by virtual cluster, and list the assumptions of the replays.

    Parameters
    ----------
    results : sequence of ReplayResult
        One result per policy, for the same jobs. The others are compared with the first.
    scenario : Scenario
        The scenario that was replayed.
    notes : sequence of str
        Notes on excluded jobs and on the limits of the cluster.
    twin : TwinOfLog, optional
        The twin, if the first result is that of the twin itself.
    reason : str, optional
        If no twin is given, the reason why no effect is supported.
    tenant : Tenant
        The tenant of the jobs.
    """
    texts = {r.policy: twin.policy if twin is not None and r.policy == TWIN else r.policy for r in results}
    quotas = {r.policy: _quotas(r, texts[r.policy], scenario) for r in results}
    compared = beside_record(compare_policies(results, seed=scenario.seed), results, twin=twin, reason=reason)
    supported = dict(compared.select("policy", "effect_told").iter_rows())
    of = {r.policy: r for r in results}
    more = [
        {
            "what": twin.words if twin is not None and name == TWIN else named_policy(name).what,
            "run_times": run_times(texts[name]) if name in of else "not given",
            "quotas": quotas.get(name),
            "beyond_share": _beyond_share(of[name]) if name in of else None,
        }
        for name in compared["policy"]
    ]
    types = {"quotas": pl.String, "beyond_share": pl.Float64}
    compared = compared.hstack(pl.DataFrame(more, schema_overrides=types))
    base = _base(compared.rows(named=True))
    in_twin = twin is not None or reason is not None
    by_quotas = supported if in_twin else _supported_by_quotas(results, quotas)
    return [
        Answer(
            POLICIES,
            compared.select(c.name for c in POLICIES.columns),
            notes=(*(f"{n}. {_CHANGE}" for n in base), *notes),
        ),
        _grouped(CLASSES, results, "by_gpu_class", {}, supported, notes=base),
        _grouped(TENANTS, results, "by_vc", {"name": "vc"}, by_quotas, quotas, notes=base, tenant=tenant),
        ASSUMED.answered(_assumptions(results)),
    ]


def _base(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if some means cover other jobs than the first policy's means."""
    first, *others = rows
    fewer = [f"those of {r['policy']} over {r['completed']:,}" for r in others if r["completed"] != first["completed"]]
    if not fewer:
        return []
    more = [f"those of {len(fewer) - _MOST} more policies over other numbers"] if len(fewer) > _MOST else []
    other = ", ".join([*fewer[:_MOST], *more])
    return [
        f"the means of {first['policy']} are over {counted(first['completed'], 'jobs')}, {other}: not the same jobs"
    ]


def run_times(policy: str) -> str:
    """Return whether a policy gets the actual run times in advance: 'given' or 'not given'."""
    head = policy.partition(",")[0]
    given = named_policy(policy).parameters.get("noise") == "oracle" or head in _PREEMPT_KNOWING
    return "given" if given else "not given"


def _quotas(result: ReplayResult, policy: str, scenario: Scenario) -> str | None:
    """Return whether a policy keeps quotas, or None if there are no VCs or for the log itself."""
    if result.policy == RECORDED or not scenario.jobs.tenants:
        return None
    # Virtual clusters with their own nodes keep quotas under every policy. Policies that lend handle quotas themselves.
    own_nodes = any(scenario.cluster.domains)
    return "kept" if own_nodes or named_policy(policy).card.quotas else "ignored"


def _beyond_share(result: ReplayResult) -> float | None:
    """Return the share of allocated GPU time beyond the cluster's GPUs [1], or None for a policy."""
    found = result.outcome.violations
    held = float(result.outcome.held_milli_ms.astype(np.float64).sum()) / 1000
    if found is None or not held:
        return None
    beyond = (found["until"] - found["time"]).dt.total_milliseconds() * (found["wanted"] - found["there_were"])
    return float(beyond.sum()) / held


def _supported_by_quotas(results: Sequence[ReplayResult], quotas: Mapping[str, str | None]) -> dict[str, bool]:
    """Return whether the log supports each policy's effect against the first policy with the same quota rule."""
    first: dict[str | None, ReplayResult] = {}
    for result in results:
        first.setdefault(quotas[result.policy], result)
    return {r.policy: support_between(first[quotas[r.policy]], r).supported for r in results}


def _grouped(
    question: Question,
    results: Iterable[ReplayResult],
    key: str,
    names: dict[str, str],
    supported: Mapping[str, bool],
    quotas: Mapping[str, str | None] | None = None,
    *,
    notes: list[str],
    tenant: Tenant = VC,
) -> Answer | Unanswered:
    results = list(results)
    first, *others = results
    means = {r.policy: [g[mean] for g in r.summary[key] for mean in ("avg_jct_s", "avg_queue_s")] for r in results}
    rows = [
        {
            "policy": result.policy,
            "quotas": quotas[result.policy] if quotas else None,
            "effect_told": supported[result.policy],
            **{names.get(name, name): value for name, value in group.items()},
        }
        for result in (first, *sorted(others, key=lambda r: alike(means[r.policy], means[first.policy])))
        for group in result.summary[key]
    ]
    if key == "by_vc" and all(row["vc"] is None for row in rows):
        return question.unanswered(f"The jobs have no {tenant.spelled_many}.")
    return question.answered(rows, notes)


def _assumptions(results: Sequence[ReplayResult]) -> list[dict[str, Any]]:
    """Return each assumption once per value, with the policies that used the value."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    users: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for key, entry in result.summary["assumptions"].items():
            value = str(entry["value"])
            rows.setdefault(
                (key, value), {"id": key, "what": entry["title"], "value": value, "source": entry["source"]}
            )
            users.setdefault((key, value), []).append(result.policy)
    every = [result.policy for result in results]
    order = list(dict.fromkeys(name for name, _ in rows))
    ordered = sorted(rows.items(), key=lambda item: order.index(item[0][0]))
    return [{**row, "policies": _policies_text(users[key], every)} for key, row in ordered]


def _policies_text(used_by: list[str], every: list[str]) -> str:
    others = [policy for policy in every if policy not in used_by]
    if not others:
        return "all"
    return f"all but {' and '.join(others)}" if len(others) < len(used_by) and len(others) < 3 else "; ".join(used_by)
