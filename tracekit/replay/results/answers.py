"""Replays of several policies as answers: what each policy would have done to the same jobs.

The rows are those of the comparison and the summaries (see `compare_policies` and `summarize`), with the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.answer import Answer
from tracekit.replay.registry import named_policy
from tracekit.replay.results.comparison import compare_policies
from tracekit.replay.results.effects import beside_record, support_between
from tracekit.replay.results.questions import ASSUMED, CLASSES, POLICIES, TENANTS
from tracekit.replay.results.recorded_times import RECORDED, TWIN
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Question, Unanswered
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario


LEAST = 0.001
"""A change below this share of the mean counts as none."""
_MOST = 3
"""Largest number of policies whose job count appears in a note."""
_CHANGE = "A change compares only jobs that both completed"
_PREEMPT_KNOWING = frozenset({"srtf", "srsf"})
"""Policies that sort by the actual remaining time and have no parameter for its error."""


def alike(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Return whether two lists contain the same numbers, within a relative tolerance of `LEAST`."""
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
) -> list[Answer | Unanswered]:
    """Return the policies next to each other, by job size and by virtual cluster, and the assumptions of the replays.

    Parameters
    ----------
    results : sequence of ReplayResult
        One result per policy, for the same jobs; all others are compared with the first.
    scenario : Scenario
        The scenario that was replayed.
    notes : sequence of str
        What was excluded, and what the cluster cannot do.
    twin : TwinOfLog, optional
        The twin, if the first result is the twin's own.
    reason : str, optional
        Without a twin: why no effect is supported.
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
        _grouped(TENANTS, results, "by_vc", {"name": "vc"}, by_quotas, quotas, notes=base),
        ASSUMED.answered(_assumptions(results)),
    ]


def _base(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if some means are over other jobs than those of the first policy."""
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
    """Return whether a policy keeps quotas; None if there are no VCs, and for the log itself."""
    if result.policy == RECORDED or not scenario.jobs.tenants:
        return None
    # Virtual clusters with their own nodes keep quotas under every policy; a policy that lends handles quotas itself.
    own_nodes = any(scenario.cluster.domains)
    return "kept" if own_nodes or named_policy(policy).card.quotas else "ignored"


def _beyond_share(result: ReplayResult) -> float | None:
    """Return the share of allocated GPU time beyond the cluster's GPUs [1]; None for a policy."""
    found = result.outcome.violations
    held = float(result.outcome.held_milli_ms.astype(np.float64).sum()) / 1000
    if found is None or not held:
        return None
    beyond = (found["until"] - found["time"]).dt.total_milliseconds() * (found["wanted"] - found["there_were"])
    return float(beyond.sum()) / held


def _supported_by_quotas(results: Sequence[ReplayResult], quotas: Mapping[str, str | None]) -> dict[str, bool]:
    """Return for each policy whether the log supports its effect against the first that treats quotas the same."""
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
        return question.unanswered("The jobs have no virtual clusters.")
    return question.answered(rows, notes)


def _assumptions(results: Sequence[ReplayResult]) -> list[dict[str, Any]]:
    """Return each assumption once per value, with the policies that used it."""
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
