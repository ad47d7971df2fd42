"""The summary on the first screen: a description of the cluster, and what to change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.calibration.workbench import UNNAMED
from tracekit.report.answers import metrics, rows_of
from tracekit.report.headline import MACHINES, mixes_kinds, state
from tracekit.report.phrases import largest, whole_hours
from tracekit.report.sections.failures_of_nodes import cause_shares
from tracekit.report.times import span_words
from tracekit.tenant import VC
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Answer, Row
    from tracekit.report.structure import (
        CapacityInfo,
        Doubt,
        Lack,
        ReplayInfo,
        SuggestedChange,
        Summary,
        TimeInfo,
        WhatChanged,
    )
    from tracekit.tenant import Tenant

CHANGES = 3
"""Maximum number of suggested changes on the first screen."""
_NAMED = 3
"""Maximum number of clusters that are named individually."""

_ORDER = {"better": 0, "undecided": 1, "no change": 3, "worse": 4}
_UNNAMED = (None, "unknown")
"""Cause values that do not name a cause."""
_UNTRIED = 2
"""Rank of a finding without a reported effect: after findings with an effect, before findings without a gain."""


def summary(
    answers: Mapping[str, Answer],
    guidelines: dict[str, Any] | None,
    caveats: Sequence[Doubt] = (),
    capacity: CapacityInfo | None = None,
    when: TimeInfo | None = None,
    replay: ReplayInfo | None = None,
    tenant: Tenant = VC,
    changed: WhatChanged | None = None,
    lacks: Sequence[Lack] = (),
) -> Summary:
    """Return the summary; arguments other than the answers are None if the trace or the analysis lacks them."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    holding = sorted((e for e in entries if e["verdict"] == "holds"), key=_place)
    changes = [_change(e) for e in holding if _place(e)[0] <= _UNTRIED][:CHANGES]
    jobs = bool(metrics(answers).get("jobs"))
    return {
        "changed": changed,
        "lacks": list(lacks),
        "about": (None if jobs else about_machines(answers, when))
        or _about(answers, capacity, when, tenant, outages=outages_clause(answers) or ""),
        "state": state(answers),
        "heading": _heading(entries, len(changes), replay, jobs=jobs),
        "changes": changes,
        "verdict": _verdict(entries, jobs=jobs),
        "doubts": list(caveats),
    }


_NUMBERS = ("One thing", "Two things", "Three things")


def _heading(entries: Sequence[dict[str, Any]], changes: int, replay: ReplayInfo | None, *, jobs: bool) -> str:
    """Return the heading of the changes; it says that there is nothing to change only if jobs were replayed."""
    if changes:
        return f"{_NUMBERS[changes - 1]} to change first"
    found = sum(e["verdict"] == "holds" for e in entries)
    if found:
        return f"{counted(found, 'problems')} found, and no gain expected from the advice"
    if mostly_undecided(entries):
        every = "this log lacks the data" if jobs else "the trace has no jobs to judge"
        return f"No advice: {every if undecided(entries) else 'most checks need what this log lacks'}"
    if replay is None or replay["cluster"] is None:
        return "No problem found on this evidence; nothing was replayed"
    if replay["without_effects"]:
        names = [shorten(name, 30) for name in replay["without_effects"]]
        where = f"{len(names)} clusters" if len(names) > _NAMED else " or ".join(names)
        where = "the log" if names == [UNNAMED] else where
        return f"Nothing to change on this evidence; no replay shows effects for {where}"
    return "Nothing to change on this evidence"


def _about(
    answers: Mapping[str, Answer], capacity: CapacityInfo | None, when: TimeInfo | None, tenant: Tenant, *, outages: str
) -> str:
    """Describe the cluster as far as the trace shows it; `outages` is a clause about its nodes, or empty."""
    known = metrics(answers)

    def of(metric: str, one: str) -> str:
        number = known.get(metric)
        return "" if not number else f"{count(number)} {one}" + ("" if number == 1 else "s")

    gpus = ""
    if capacity is not None and capacity["gpus"]:
        least = "at least " if capacity["word"] == "observed" else ""
        gpus = f"{least}{counted(capacity['gpus'], 'GPUs')} ({capacity['word']})"
    where = " with ".join(part for part in (of("nodes", "node"), gpus) if part)
    counted_tenants = [row["value"] for row in rows_of(answers, "overview/summary") if row["metric"] == tenant.metric]
    tenants = counted_tenants[-1] if counted_tenants else None
    unit = tenant.spelled if tenants == 1 else tenant.spelled_many
    shared = f"{count(tenants)} {unit}" if tenants else ""
    several = known.get("clusters") or 1
    start = f"{count(several)} clusters" if several > 1 else "A cluster"
    place = f"{start} of {where}" if where else start
    place += f" in {shared}" if shared else ""
    who = of("users", "user")
    did = of("jobs", "job")
    if not did:
        # The trace does not show that no jobs were submitted.
        return f"{place}; the trace has no jobs."
    if mixes_kinds(known):
        did = " and ".join(filter(None, (of("gpu_jobs", "GPU job"), of("cpu_jobs", "CPU job"))))
        did += (
            f" ({count(known['jobs_of_unknown_size'])} more of unknown size)"
            if known.get("jobs_of_unknown_size")
            else ""
        )
    span = f"; the log spans {span_words(when['span_s'])}" if when is not None and when["span_s"] else ""
    verb = "submitted" if who else "were submitted" if known.get("jobs") != 1 else "was submitted"
    did = f"{who} {verb} {did}" if who else f"{did} {verb}"
    return f"{place}; {did}{span}{outages}."


def about_machines(answers: Mapping[str, Answer], when: TimeInfo | None) -> str | None:
    """Return how many nodes were observed and what outages cost; None if the trace records no node events."""
    known = metrics(answers, MACHINES)
    if not known.get("nodes"):
        return None
    span = f", observed for {span_words(when['span_s'])}" if when is not None and when["span_s"] else ""
    text = f"{counted(known['nodes'], 'nodes')}{span}; the trace has no jobs."
    share = known.get("availability_share")
    if not known["outages"] or share is None:
        return f"{text} No node outage is recorded."
    text += (
        f" The nodes were in service {percent(share)} of the time: {counted(known['outages'], 'outages')} of"
        f" {counted(known['nodes_hit'], 'nodes')} took {whole_hours(known['down_node_h'])} node-hours."
    )
    return f"{text}{_costly(rows_of(answers, 'failures/out_of_service'))}"


def outages_clause(answers: Mapping[str, Answer]) -> str | None:
    """Return a clause on outages that ends the sentence about a cluster with jobs; None if no outage is known.

    Examples
    --------
    '; its nodes were in service 98.7 % of the time, with 72 outages of 22 nodes'
    """
    known = metrics(answers, MACHINES)
    share = known.get("availability_share")
    if not known.get("outages") or share is None:
        return None
    outages, hit = counted(known["outages"], "outages"), counted(known["nodes_hit"], "nodes")
    return f"; its nodes were in service {percent(share)} of the time, with {outages} of {hit}"


def _costly(rows: list[Row]) -> str:
    """Say which cause took the most node-hours, and for which share of them the cause is unknown."""
    shares = cause_shares(rows, "node_hours")
    named = [r for r in shares if r["cause"] not in _UNNAMED]
    worst, unnamed = largest(named, "share"), sum(r["share"] for r in shares if r["cause"] in _UNNAMED)
    if worst is None:
        return " Their causes are unknown." if unnamed else ""
    text = f" The cause with the most hours is {shorten(worst['cause'], 30)}, {percent(worst['share'])}"
    return f"{text}; the cause of {percent(unnamed)} is unknown." if unnamed else f"{text}."


def _place(entry: dict[str, Any]) -> tuple[int, float, str]:
    """Return the sort key of guidelines that hold: those with an effect first, by hours saved."""
    effect, losses = entry["effect"], entry["losses"]
    if losses is not None:
        return (_ORDER[losses["verdict"]], -losses["changes"][0]["saved_gpu_h"], entry["id"])
    if effect is None:
        return (_UNTRIED, 0.0, entry["id"])
    first = effect["changes"][0]
    return (_ORDER[effect["verdict"]], -first["saved_h"], entry["id"])


def _change(entry: dict[str, Any]) -> SuggestedChange:
    effect = entry["effect"] or entry["losses"]
    return {
        "id": entry["id"],
        "title": entry["title"],
        "finding": entry["finding"]["text"],
        "effect": effect["text"] if effect is not None else None,
        "no_effect": entry["no_effect"] if effect is None and _says_why(entry) else None,
    }


def _says_why(entry: dict[str, Any]) -> bool:
    """Return whether a guideline says why no replay shows its effect: its twin is too inaccurate or does not exist."""
    return bool(entry.get("record") or (entry["no_effect"] or "").startswith("Cannot tell"))


def undecided(entries: Sequence[dict[str, Any]]) -> bool:
    """Return whether there are guidelines but none of them could be decided."""
    return bool(entries) and all(e["verdict"] == "cannot tell" for e in entries)


def mostly_undecided(entries: Sequence[dict[str, Any]]) -> bool:
    """Return whether more than half of the guidelines could not be decided, too many to say that nothing is wrong."""
    unknown = [e for e in entries if e["verdict"] == "cannot tell"]
    return 2 * len(unknown) > len(entries)


def _verdict(entries: list[dict[str, Any]], *, jobs: bool) -> str:
    if not entries:
        return "No guidelines were evaluated."
    if undecided(entries):
        none = f"None of the {len(entries)} problems could be checked"
        if jobs:
            return f"{none}, because the log lacks the data."
        return (
            f"{none}: they need jobs, and this trace has none. A scheduler log of the same nodes and days would show"
            " them, and what the outages cost its jobs."
        )
    shown, not_shown, unknown = (
        sum(e["verdict"] == verdict for e in entries) for verdict in ("holds", "does not hold", "cannot tell")
    )
    vain = sum(e["verdict"] == "holds" and _place(e)[0] > _UNTRIED for e in entries)
    rest = f" The replays expect no gain from the advice of {vain}." if vain else ""
    return (
        f"We checked for {counted(len(entries), 'problems')}: {shown} found, {not_shown} not present"
        f"{f', {unknown} could not be checked with this log' if unknown else ''}.{rest}"
    )
