"""The summary on the first screen: a description of the cluster, and the first changes to make."""

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
"""Maximum number of clusters named individually."""

_ORDER = {"better": 0, "undecided": 1, "no change": 3, "worse": 4}
_UNNAMED = (None, "unknown")
"""Values that mean that a cause is unknown."""
_UNTRIED = 2
"""Rank of findings with an unknown effect: after findings with a gain, before those without."""


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
    """Return the summary. All arguments except the answers are optional."""
    entries = [] if guidelines is None else guidelines["guidelines"]
    holding = sorted((e for e in entries if e["verdict"] == "holds"), key=_place)
    changes = [_change(e) for e in holding if _place(e)[0] <= _UNTRIED][:CHANGES]
    jobs = bool(metrics(answers).get("jobs"))
    return {
        "changed": changed,
        "lacks": list(lacks),
        "about": (None if jobs else about_machines(answers, when)) or _about(answers, capacity, when, tenant),
        "state": state(answers),
        "heading": _heading(entries, len(changes), replay, jobs=jobs),
        "changes": changes,
        "verdict": _verdict(entries, jobs=jobs),
        "doubts": list(caveats),
    }


_NUMBERS = ("One thing", "Two things", "Three things")


def _heading(entries: Sequence[dict[str, Any]], changes: int, replay: ReplayInfo | None, *, jobs: bool) -> str:
    """Return the heading for the changes. Without replays, it never claims that nothing needs to change."""
    if changes:
        return f"{_NUMBERS[changes - 1]} to change first"
    if found := _count(entries, "holds"):
        return f"{counted(found, 'problems')} found, but no gain expected from the advice"
    # If most guidelines are undecided, too few were checked to claim that nothing is wrong.
    if 2 * _count(entries, "cannot tell") > len(entries):
        every = "the data are missing from this log" if jobs else "the trace has no jobs"
        return f"No advice: {every if undecided(entries) else 'most checks need data that are missing from this log'}"
    if replay is None or replay["cluster"] is None:
        return "No problem found in this log (nothing was replayed)"
    if replay["without_effects"]:
        names = [shorten(name, 30) for name in replay["without_effects"]]
        where = f"{len(names)} clusters" if len(names) > _NAMED else " or ".join(names)
        where = "the log" if names == [UNNAMED] else where
        return f"Nothing to change according to this log (no replay shows effects for {where})"
    return "Nothing to change according to this log"


def _about(answers: Mapping[str, Answer], capacity: CapacityInfo | None, when: TimeInfo | None, tenant: Tenant) -> str:
    """Describe the cluster as far as the trace shows it, with the outages of its nodes."""
    known = metrics(answers)

    def of(metric: str, one: str, many: str = "") -> str:
        number = known.get(metric)
        return f"{count(number)} {one if number == 1 else many or f'{one}s'}" if number else ""

    gpus = ""
    if capacity is not None and capacity["gpus"]:
        least = "at least " if capacity["word"] == "observed" else ""
        gpus = f"{least}{counted(capacity['gpus'], 'GPUs')} ({capacity['word']})"
    where = " with ".join(filter(None, (of("nodes", "node"), gpus)))
    place = of("clusters", "cluster") if (known.get("clusters") or 1) > 1 else "A cluster"
    pools = known.get("pools")
    apart = f"{count(pools)} parts that share no nodes" if pools and pools > 1 else ""
    shared = " and ".join(filter(None, (apart, of(tenant.metric, tenant.spelled, tenant.spelled_many))))
    place += "".join(f" {word} {part}" for word, part in (("of", where), ("in", shared)) if part)
    who, did = of("users", "user"), of("jobs", "job")
    if not did:
        # Jobs may have been submitted but be missing from the trace.
        return f"{place}. The trace has no jobs."
    if mixes_kinds(known):
        did = " and ".join(filter(None, (of("gpu_jobs", "GPU job"), of("cpu_jobs", "CPU job"))))
        unknown = known.get("jobs_of_unknown_size")
        did += f" ({count(unknown)} more of unknown size)" if unknown else ""
    span = f"The log spans {span_words(when['span_s'])}." if when is not None and when["span_s"] else ""
    were = "was" if known["jobs"] == 1 else "were"
    did = f"{who} submitted {did}" if who else f"{did} {were} submitted"
    return " ".join(filter(None, (f"{place}.", f"{did}.", span, _outages(answers))))


def about_machines(answers: Mapping[str, Answer], when: TimeInfo | None) -> str | None:
    """Describe the observed nodes and the cost of outages, or return None if there are no node events."""
    known = metrics(answers, MACHINES)
    if not known.get("nodes"):
        return None
    span = f", observed for {span_words(when['span_s'])}" if when is not None and when["span_s"] else ""
    text = f"{counted(known['nodes'], 'nodes')}{span}. The trace has no jobs."
    share = known.get("availability_share")
    if not known["outages"] or share is None:
        return f"{text} No node outage is recorded."
    text += (
        f" The nodes were in service {percent(share)} of the time: {counted(known['outages'], 'outages')} on"
        f" {counted(known['nodes_hit'], 'nodes')} cost {whole_hours(known['down_node_h'])} node-hours."
    )
    return f"{text}{_costly(rows_of(answers, 'failures/out_of_service'))}"


def _outages(answers: Mapping[str, Answer]) -> str:
    """Write the sentence on outages of a cluster with jobs, or return '' if no outage is known."""
    known = metrics(answers, MACHINES)
    share = known.get("availability_share")
    if not known.get("outages") or share is None:
        return ""
    outages, hit = counted(known["outages"], "outages"), counted(known["nodes_hit"], "nodes")
    return f"Its nodes were in service {percent(share)} of the time, with {outages} on {hit}."


def _costly(rows: list[Row]) -> str:
    """Name the cause with the most node-hours, and give the share of node-hours with an unknown cause."""
    shares = cause_shares(rows, "node_hours")
    named = [r for r in shares if r["cause"] not in _UNNAMED]
    worst, unnamed = largest(named, "share"), sum(r["share"] for r in shares if r["cause"] in _UNNAMED)
    if worst is None:
        return " Their causes are unknown." if unnamed else ""
    text = f" The cause with the most hours is {shorten(worst['cause'], 30)} ({percent(worst['share'])})"
    return f"{text}. For {percent(unnamed)} of the hours, the cause is unknown." if unnamed else f"{text}."


def _place(entry: dict[str, Any]) -> tuple[int, float, str]:
    """Return the sort key of guidelines that hold. Guidelines with an effect come first, by hours saved."""
    effect = entry["losses"] or entry["effect"]
    if effect is None:
        return (_UNTRIED, 0.0, entry["id"])
    saved = "saved_h" if entry["losses"] is None else "saved_gpu_h"
    return (_ORDER[effect["verdict"]], -effect["changes"][0][saved], entry["id"])


def _change(entry: dict[str, Any]) -> SuggestedChange:
    effect, why = entry["effect"] or entry["losses"], entry["no_effect"]
    # Mention a twin only if it is missing or too inaccurate.
    no_twin = effect is None and (entry.get("record") or (why or "").startswith("Cannot tell"))
    return {
        "id": entry["id"],
        "title": entry["title"],
        "finding": entry["finding"]["text"],
        "effect": effect["text"] if effect is not None else None,
        "no_effect": why if no_twin else None,
    }


def _count(entries: Sequence[dict[str, Any]], verdict: str) -> int:
    return sum(e["verdict"] == verdict for e in entries)


def undecided(entries: Sequence[dict[str, Any]]) -> bool:
    """Return whether no guideline could be decided, or False if there are no guidelines."""
    return 0 < len(entries) == _count(entries, "cannot tell")


def _verdict(entries: Sequence[dict[str, Any]], *, jobs: bool) -> str:
    if not entries:
        return "No guidelines were evaluated."
    if undecided(entries):
        none = f"None of the {len(entries)} problems could be checked"
        if jobs:
            return f"{none}, because the data are missing from the log."
        return (
            f"{none}: the checks need jobs, and this trace has none. A scheduler log of the same nodes and days would"
            " show the problems, and what the outages cost its jobs."
        )
    unknown = _count(entries, "cannot tell")
    vain = sum(e["verdict"] == "holds" and _place(e)[0] > _UNTRIED for e in entries)
    return (
        f"We checked for {counted(len(entries), 'problems')}: {_count(entries, 'holds')} found,"
        f" {_count(entries, 'does not hold')} not present"
        f"{f', {unknown} could not be checked with this log' if unknown else ''}."
        f"{f' The replays show no gain from the advice of {vain}.' if vain else ''}"
    )
