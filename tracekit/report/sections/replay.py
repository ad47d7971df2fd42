"""Replay: what other policies would have done to the same jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.charts import GPU_CLASSES
from tracekit.report.sections.interface import says
from tracekit.report.sections.replay_charts import LEAST, RECORDED, in_panel_order, policy_name
from tracekit.report.words import gpu_jobs
from tracekit.text import count, counted, duration, percent, shorten, signed_percent

if TYPE_CHECKING:
    from tracekit.answer import Row

_NAMED = 3
"""Most policies named in a sentence."""
_MUCH = 0.05
"""Above this part of the GPU time, GPUs that the cluster does not have are told of in the sentence."""


@says("replay/policies")
def policies_finding(rows: list[Row]) -> str | None:
    """Name the fastest policy that does not know run times, and the fastest that does, as far as the log carries it."""
    known = [r for r in rows if r["mean_completion_s"] is not None and r["policy"] != RECORDED]
    base = rows[0]
    if len(known) < 2 or base["mean_completion_s"] is None:
        return None
    never = base["jobs"] - base["completed"] if base.get("completed") is not None and base.get("jobs") else 0
    if not any(r["mean_wait_s"] for r in known):
        told = [
            f"{_never(never)}. So comparing them tells nothing here.",
            f"From submission to end {_these(base)} take {duration(base['mean_completion_s'])} on average.",
            _recorded(rows, base),
            _untold(rows),
        ]
    else:
        told = _compared(rows, known)
    return " ".join(filter(None, [*told, _beyond(rows)]))


def _never(jobs: int) -> str:
    if not jobs:
        return "No job waits under any policy: in the replays GPUs are never short"
    return f"No job that ends waits under any policy; {counted(jobs, 'jobs')} of those replayed never end"


def _compared(rows: list[Row], known: list[Row]) -> list[str]:
    """Return sentences about policies under which some jobs wait."""
    base = known[0]
    told = [base, *(r for r in known[1:] if r.get("effect_told"))]
    parts = []
    for knows, which in (("not given", "do not know run times"), ("given", "are given the true run times in advance")):
        group = [r for r in told if r["run_times"] == knows]
        best = min(group, key=lambda r: r["mean_completion_s"], default=base)
        if best is not base and (best["change_share"] or 0) < -LEAST:
            parts.append(f"Of the policies that {which}, {_gain(best)}.")
    what = f" ({base['what']})" if base.get("what") else ""
    start = (
        f"Under {policy_name(base)}{what} {_these(base)} take {duration(base['mean_completion_s'])} from submission to"
        " end on average"
    )
    if base["mean_wait_s"]:
        start += f", of which they wait {duration(base['mean_wait_s'])}"
    elif base["mean_wait_s"] is not None:
        start += ", and none of them waits"
    if parts:
        return [f"{start}.", *parts, _log_beside(told[-1]), _untold(rows)]
    if len(told) == 1:
        return [f"{start}.", _recorded(rows, base), _untold(rows)]
    little = "" if base["mean_wait_s"] else "Comparing policies tells little here."
    other = "No other policy" if len(told) == len(known) else "None of the others that can be compared"
    return [f"{start}. {other} shortens that{_longest(told)}.", little, _recorded(rows, base), _untold(rows)]


def _log_beside(row: Row) -> str:
    """Return what the log let the jobs of an effect wait; '' where the row does not say."""
    if row.get("recorded_wait_s") is None:
        return ""
    return f"By the log they waited {duration(row['recorded_wait_s'])} on average."


def _untold(rows: list[Row]) -> str:
    """Say which effects cannot be told, and why; '' where all can."""
    base, *others = [r for r in rows if r["policy"] != RECORDED]
    untold = [r for r in others if not r.get("effect_told")]
    if not untold:
        return ""
    if len(untold) == len(others) and base.get("effect_reason"):
        return _sentence(base["effect_reason"])
    if len(untold) == 1:
        return _sentence(untold[0].get("effect_reason") or "")
    names = [policy_name(r) for r in untold[:_NAMED]]
    more = f" and {len(untold) - _NAMED} more" if len(untold) > _NAMED else ""
    return (
        f"The effect of {', '.join(names)}{more} cannot be told: jobs wait longer under them than they did by the log,"
        " or the replays do not wait as the log did. The table gives the reason for each."
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _these(row: Row) -> str:
    """Return which jobs the times of a policy are of."""
    done, jobs = row.get("completed"), row.get("jobs")
    if done is None:
        return "these jobs"
    if jobs in {None, done}:
        return f"these {counted(done, 'jobs')}"
    told = "whose start and end it tells" if row["policy"] == RECORDED else "that end"
    return f"the {count(done)} of these {counted(jobs, 'jobs')} {told}"


def _longest(known: list[Row]) -> str:
    worst = max(known, key=lambda r: r["mean_completion_s"])
    if (worst.get("change_share") or 0) <= LEAST:
        return ""
    return (
        f"; under {policy_name(worst)} they take longest, {duration(worst['mean_completion_s'])}"
        f" ({', '.join(filter(None, [signed_percent(worst['change_share']), _interval(worst)]))})"
    )


def _interval(row: Row) -> str:
    """Return the interval of a change; '' where it is not known."""
    low, high = row["change_low_share"], row["change_high_share"]
    if low is None or high is None:
        return ""
    return f"95 % interval {signed_percent(low)} to {signed_percent(high)}"


def _recorded(rows: list[Row], base: Row) -> str:
    """Return how long the jobs waited by the log, where that is known."""
    row = next((r for r in rows if r["policy"] == RECORDED and r["mean_wait_s"]), None)
    if row is None:
        return ""
    who = "they" if row.get("completed") == base.get("completed") else _these(row)
    text = f"By the log {who} waited {duration(row['mean_wait_s'])} on average"
    if row["mean_wait_s"] > (base["mean_wait_s"] or 0):
        text += ", for causes that the replays do not know, such as quotas or reserved nodes"
    return f"{text}."


def _beyond(rows: list[Row]) -> str:
    """Say that the log and the cluster of the replays disagree, where they do so by much."""
    share = next((r.get("beyond_share") for r in rows if r["policy"] == RECORDED), None)
    if share is None or share <= _MUCH:
        return ""
    return (
        f"By the log, {percent(share)} of the GPU-hours of these jobs were on GPUs that the cluster of the replays does"
        " not have: the source lists fewer GPUs, on some nodes or in some VCs, than its jobs used there. So compare the"
        f" policies with each other, not with what the log says ({RECORDED})."
    )


def _gain(row: Row) -> str:
    interval = _interval(row)
    ends = f" ({interval})" if interval else ""
    worse = f", while {percent(row['later_share'])} of the jobs end later" if row["later_share"] else ""
    return (
        f"{policy_name(row)} gives the shortest times, {duration(row['mean_completion_s'])} on average,"
        f" {signed_percent(row['change_share'])}{ends}{worse}"
    )


@says("replay/by_gpu_class")
def classes_finding(rows: list[Row]) -> str | None:
    """Name the policy with the shortest mean wait for the smallest and the largest GPU jobs, of those told of."""
    rows = in_panel_order(rows)
    found = []
    for name in GPU_CLASSES[1:]:
        waits = [r for r in rows if r["gpu_class"] == name and r["mean_wait_s"] is not None]
        own = [r for r in waits if r["policy"] != RECORDED]
        if len(own) > 1:
            told = [r for r in own[1:] if r.get("effect_told")]
            log = next((r["mean_wait_s"] for r in waits if r["policy"] == RECORDED), None)
            best = min([own[0], *told], key=lambda r: r["mean_wait_s"]) if told else None
            found.append((name, own[0], best, log))
    if found and not any(r["mean_wait_s"] for r in rows if r["policy"] != RECORDED):
        started = all(r["mean_wait_s"] is not None for r in rows if r["policy"] != RECORDED)
        return "No job of any size waits under any policy." if started else "No job that starts waits under any policy."
    if found and not any(best for _, _, best, _ in found):
        return f"{_ends([_by_log(*entry) for entry in found])} {_NOT_TOLD}"
    if found and not any(first["mean_wait_s"] for _, first, _, _ in found):
        base = policy_name(found[0][1])
        return f"Under {base} no job of any size waits, so no other policy can shorten a wait.{_paid(rows)}"
    return _ends([_best(name, first, best or first) for name, first, best, _ in found]) or None


_NOT_TOLD = (
    "What another policy would change cannot be told, since the replays do not wait as the log did, or wait longer."
)


def _ends(parts: list[str]) -> str:
    """Return the first and the last of several parts as one sentence."""
    text = "; ".join([*parts[:1], *(parts[-1:] if len(parts) > 1 else [])])
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _by_log(gpu_class: str, first: Row, _: Row | None, log_s: float | None) -> str:
    """Return the mean wait of a size under the first policy, and by the log where that is known."""
    text = f"{gpu_jobs(gpu_class)} wait {duration(first['mean_wait_s'])} on average under {policy_name(first)}"
    return text if log_s is None else f"{text}, and waited {duration(log_s)} by the log"


def _best(gpu_class: str, first: Row, best: Row) -> str:
    """Return the mean wait of a size under the first policy, and under the best where that is shorter."""
    text = f"{gpu_jobs(gpu_class)} wait {duration(first['mean_wait_s'])} on average under {policy_name(first)}"
    if best["mean_wait_s"] >= first["mean_wait_s"]:
        return f"{text}, which no other policy shortens"
    return f"{text}, and at best {duration(best['mean_wait_s'])}, under {policy_name(best)}"


def _paid(rows: list[Row]) -> str:
    """Return which size would wait longest under another policy, where none waits under the first."""
    known = [r for r in rows if r["mean_wait_s"] is not None and r["policy"] != RECORDED and r.get("effect_told")]
    worst = max(known, key=lambda r: r["mean_wait_s"])
    if not worst["mean_wait_s"]:
        return ""
    jobs = gpu_jobs(worst["gpu_class"])
    return (
        f" The longest mean wait would be that of {jobs} under {policy_name(worst)}: {duration(worst['mean_wait_s'])}."
    )


@says("replay/by_vc")
def tenants_finding(rows: list[Row]) -> str | None:
    """Name the VC that would pay most, among policies that ignore quotas and among those that keep them."""
    known = [r for r in in_panel_order(rows) if r["mean_wait_s"] is not None and r["policy"] != RECORDED]
    if not known:
        return None
    kinds = {r.get("quotas") for r in known}
    if kinds != {"kept", "ignored"}:
        start = "Under every policy each VC keeps to its quota. " if kinds == {"kept"} else ""
        if _silent(known):
            return f"{start}{_VC_NOT_TOLD}"
        worst, first = _worst(known)
        if worst is None:
            return f"{start}No VC waits longer under another policy than under {policy_name(first)}."
        return f"{start}The most would be paid by {_vc(worst)} under {policy_name(worst)}: {_instead(worst, known)}."
    ignore, keep = ([r for r in known if r.get("quotas") == kind] for kind in ("ignored", "kept"))
    if _silent(ignore) and _silent(keep):
        return _VC_NOT_TOLD
    names = ", ".join(dict.fromkeys(policy_name(r) for r in keep))
    return (
        f"Of the policies that ignore the quotas of VCs, {_cost(ignore)} Of those that keep them ({names}),"
        f" {_cost(keep)} The two kinds are not compared with each other, since a quota can let a job wait while GPUs"
        " are free."
    )


_VC_NOT_TOLD = (
    "Which VC would gain or pay under another policy cannot be told, since the replays do not wait as the log did, or"
    " wait longer."
)


def _told(rows: list[Row]) -> list[Row]:
    """Return the rows of the first policy, and those of others whose effect can be told."""
    return [r for r in rows if r["policy"] == rows[0]["policy"] or r.get("effect_told")]


def _silent(rows: list[Row]) -> bool:
    """Return whether of several policies none has an effect that can be told."""
    return len({r["policy"] for r in rows}) > 1 == len({r["policy"] for r in _told(rows)})


def _worst(rows: list[Row]) -> tuple[Row | None, Row]:
    """Return the row of the VC that waits longer than under the first policy by most, and a row of that policy."""
    first = rows[0]
    base = {r["vc"]: r["mean_wait_s"] for r in rows if r["policy"] == first["policy"]}
    worst = max((r for r in _told(rows) if r["vc"] in base), key=lambda r: r["mean_wait_s"] - base[r["vc"]])
    return (worst if worst["mean_wait_s"] > base[worst["vc"]] else None), first


def _cost(rows: list[Row]) -> str:
    if _silent(rows):
        return "the effect of none can be told."
    worst, first = _worst(rows)
    if worst is None:
        return f"none makes a VC wait longer than {policy_name(first)} does."
    return f"{policy_name(worst)} would cost {_vc(worst)} most: {_instead(worst, rows)}."


def _vc(row: Row) -> str:
    return "the jobs without a VC" if row["vc"] is None else f"VC {shorten(str(row['vc']), 30)}"


def _instead(worst: Row, rows: list[Row]) -> str:
    first = next(r for r in rows if r["vc"] == worst["vc"])
    return (
        f"{'they' if worst['vc'] is None else 'its jobs'} would wait {duration(worst['mean_wait_s'])} on average"
        f" instead of {duration(first['mean_wait_s'])} under {policy_name(first)}"
    )


@says("replay/assumptions")
def assumptions_finding(rows: list[Row]) -> str | None:
    """Say how many there are."""
    names = len({r["id"] for r in rows})
    more = ", some with other values for some policies" if names < len(rows) else ""
    return (
        f"The replays rest on {count(names)} assumptions{more}. The table gives each with its value, where that comes"
        " from, and the policies that use it."
    )
