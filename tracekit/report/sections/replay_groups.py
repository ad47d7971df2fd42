"""Replays: which jobs gain or lose under other policies, and what the replays assume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.report.axes import axis_values, durations, names
from tracekit.report.charts import GPU_CLASSES, Chart, Tip, dot, size_hues
from tracekit.report.phrases import gpu_jobs
from tracekit.report.replay_rows import axis_name, differ, fold, fold_note, in_panel_order, label, policy_name
from tracekit.report.sections.interface import Presentation
from tracekit.text import counted, duration, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.tenant import Tenant


def classes_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the policies with the shortest mean wait for the smallest and the largest GPU jobs."""
    rows = in_panel_order(rows)
    found = []
    for name in GPU_CLASSES[1:]:
        waits = [r for r in rows if r["gpu_class"] == name and r["avg_queue_s"] is not None]
        own = [r for r in waits if r["policy"] != RECORDED]
        if len(own) > 1:
            comparable = [r for r in own[1:] if r.get("effect_told")]
            log = next((r["avg_queue_s"] for r in waits if r["policy"] == RECORDED), None)
            best = min([own[0], *comparable], key=lambda r: r["avg_queue_s"]) if comparable else None
            found.append((name, own[0], best, log))
    if found and found[0][1]["policy"] == TWIN:
        # For a twin, 'replay/effects' reports effects relative to the log. This sentence gives the waits in the
        # twin and in the log.
        if not any(first["avg_queue_s"] or log for _, first, _, log in found):
            return "No job of any size waits in the simulation or in the log."
        return _ends(_by_log(found))
    if found and not any(r["avg_queue_s"] for r in rows if r["policy"] != RECORDED):
        started = all(r["avg_queue_s"] is not None for r in rows if r["policy"] != RECORDED)
        return "No job of any size waits under any policy." if started else "No job that starts waits under any policy."
    if found and not any(best for _, _, best, _ in found):
        return f"{_ends(_by_log(found))} {_NOT_TOLD}"
    if found and not any(first["avg_queue_s"] for _, first, _, _ in found):
        base = policy_name(found[0][1])
        return f"Under {base}, no job of any size waits, so no other policy can shorten a wait.{_paid(rows)}"
    return _ends([_best(name, first, best or first) for name, first, best, _ in found]) or None


_NOT_TOLD = (
    "The effect of other policies cannot be estimated, because the replays do not reproduce the log's waits or make"
    " jobs wait longer."
)


def _ends(parts: list[str]) -> str:
    """Write the first and the last of several parts as sentences."""
    ends = [*parts[:1], *(parts[-1:] if len(parts) > 1 else [])]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in ends)


def _by_log(found: Sequence[tuple[str, Row, Row | None, float | None]]) -> list[str]:
    """Describe the mean wait of each size under the first policy, with its tail, and in the log if known."""
    parts = []
    for gpu_class, first, _, log_s in found:
        tail = first.get("p95_queue_s")
        more = [f"one in twenty over {duration(tail)}"] if tail is not None else []
        more += [f"in the log {duration(log_s)}"] if log_s is not None else []
        beside = f" ({', '.join(more)})" if more else ""
        parts.append(f"{gpu_jobs(gpu_class)} wait {duration(first['avg_queue_s'])} on average{beside}")
    first = found[0][1]
    where = f"{'in' if first['policy'] == TWIN else 'under'} {policy_name(first)}"
    return [f"{where}, {parts[0]}", *parts[1:]]


def _best(gpu_class: str, first: Row, best: Row) -> str:
    """Describe the mean wait of a size under the first policy, and under the best policy if it is shorter."""
    text = f"{gpu_jobs(gpu_class)} wait {duration(first['avg_queue_s'])} on average under {policy_name(first)}"
    if best["avg_queue_s"] >= first["avg_queue_s"]:
        return f"{text}, and no other policy shortens this"
    return f"{text}, and {duration(best['avg_queue_s'])} under the best policy, {policy_name(best)}"


def _paid(rows: list[Row]) -> str:
    """Name the size that would wait longest under another policy, if no size waits under the first policy."""
    known = [r for r in rows if r["avg_queue_s"] is not None and r["policy"] != RECORDED and r.get("effect_told")]
    worst = max(known, key=lambda r: r["avg_queue_s"])
    if not worst["avg_queue_s"]:
        return ""
    jobs = gpu_jobs(worst["gpu_class"])
    return f" The longest mean wait would be {duration(worst['avg_queue_s'])}, for {jobs} under {policy_name(worst)}."


def tenants_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the tenant that would lose most or, in a twin, the tenant that waits longest."""
    known = [r for r in in_panel_order(rows) if r["avg_queue_s"] is not None and r["policy"] != RECORDED]
    if not known:
        return None
    if known[0]["policy"] == TWIN:
        return _in_twin([r for r in known if r["policy"] == TWIN], rows, facts.ingested)
    return _who_pays(known, facts.ingested)


def _who_pays(known: list[Row], unit: Tenant) -> str:
    """Name the tenant that would lose most, separately for policies that ignore and that enforce quotas."""
    not_told = (
        f"Which {unit.one} would gain or lose is unknown, because the replays do not reproduce the log's waits or make"
        " jobs wait longer."
    )
    kinds = {r.get("quotas") for r in known}
    if kinds != {"kept", "ignored"}:
        start = f"Every policy here enforces the quotas of the {unit.many}. " if kinds == {"kept"} else ""
        if _incomparable(known):
            return f"{start}{not_told}"
        worst, first = _worst(known)
        if worst is None:
            return f"{start}No {unit.one} waits longer under another policy than under {policy_name(first)}."
        return (
            f"{start}The biggest loser would be {_vc(worst, unit)} under {policy_name(worst)}:"
            f" {_instead(worst, known)}."
        )
    ignore, keep = ([r for r in known if r.get("quotas") == kind] for kind in ("ignored", "kept"))
    if _incomparable(ignore) and _incomparable(keep):
        return not_told
    names = ", ".join(dict.fromkeys(policy_name(r) for r in keep))
    return (
        f"Of the policies that ignore the quotas of {unit.many}, {_cost(ignore, unit)} Of those that enforce quotas"
        f" ({names}), {_cost(keep, unit)} The two kinds are not compared with each other, because a quota can make a"
        " job wait while GPUs are free."
    )


def _in_twin(twin: list[Row], rows: list[Row], unit: Tenant) -> str:
    """Name the tenant that waits longest in the twin, and give its wait in the log."""
    longest = max(twin, key=lambda r: r["avg_queue_s"])
    log = next((r["avg_queue_s"] for r in rows if r["policy"] == RECORDED and r["vc"] == longest["vc"]), None)
    name = policy_name(longest)
    if not longest["avg_queue_s"] and not log:
        return f"No job waits in {name} or in the log."
    text = f"In {name}, the jobs of {_vc(longest, unit)} wait longest: {duration(longest['avg_queue_s'])} on average"
    if longest["vc"] is None:
        text = text.replace("the jobs of the jobs", "the jobs")
    return f"{text}." if log is None else f"{text}, and {duration(log)} in the log."


def _comparable(rows: list[Row]) -> list[Row]:
    """Return the rows of the first policy and of the policies with a reported effect."""
    return [r for r in rows if r["policy"] == rows[0]["policy"] or r.get("effect_told")]


def _incomparable(rows: list[Row]) -> bool:
    """Return whether there are several policies and no reported effect."""
    return len({r["policy"] for r in rows}) > 1 == len({r["policy"] for r in _comparable(rows)})


def _worst(rows: list[Row]) -> tuple[Row | None, Row]:
    """Return the row whose wait increases most over the first policy, and the first policy's row."""
    first = rows[0]
    base = {r["vc"]: r["avg_queue_s"] for r in rows if r["policy"] == first["policy"]}
    worst = max((r for r in _comparable(rows) if r["vc"] in base), key=lambda r: r["avg_queue_s"] - base[r["vc"]])
    return (worst if worst["avg_queue_s"] > base[worst["vc"]] else None), first


def _cost(rows: list[Row], unit: Tenant) -> str:
    if _incomparable(rows):
        return "no effect can be reported."
    worst, first = _worst(rows)
    if worst is None:
        return f"none makes {unit.a} wait longer than {policy_name(first)} does."
    return f"{policy_name(worst)} would cost {_vc(worst, unit)} most: {_instead(worst, rows)}."


def _vc(row: Row, unit: Tenant) -> str:
    return f"the jobs without {unit.a}" if row["vc"] is None else f"{unit.one} {shorten(str(row['vc']), 30)}"


def _instead(worst: Row, rows: list[Row]) -> str:
    first = next(r for r in rows if r["vc"] == worst["vc"])
    return (
        f"{'they' if worst['vc'] is None else 'its jobs'} would wait {duration(worst['avg_queue_s'])} on average"
        f" instead of {duration(first['avg_queue_s'])} under {policy_name(first)}"
    )


def assumptions_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Count the assumptions."""
    names = len({r["id"] for r in rows})
    more = " Some differ by policy." if names < len(rows) else ""
    return f"The replays make {counted(names, 'assumptions')}, each with its source.{more}"


def classes_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the mean wait by policy and size class."""
    known = [{**r, "policy": axis_name(r)} for r in rows if r["avg_queue_s"] is not None]
    classes = {r["gpu_class"] for r in known}
    if not any(differ([r for r in known if r["gpu_class"] == c], "avg_queue_s") for c in classes):
        return None
    found: dict[str, dict[str, float | None]] = {}
    for r in in_panel_order(known):
        found.setdefault(r["policy"], dict.fromkeys(sorted(classes)))[r["gpu_class"]] = r["avg_queue_s"]
    folded = fold({name: list(waits.values()) for name, waits in found.items()})
    called = {name: label(name, others) for name, others in folded.items()}
    drawn = [
        {**r, "policy": called[r["policy"]], "words": duration(r["avg_queue_s"])}
        for r in known
        if r["policy"] in called
    ]
    by = size_hues(drawn)
    return Chart(
        drawn,
        x=durations("avg_queue_s", "mean wait (log scale)", axis_values(drawn, ("avg_queue_s",))),
        y=names("policy", list(called.values()), step=max(19, 9 * len(by.colours))),
        marks=[dot()],
        by=by,
        # Equal waits would overlap, so the dots are below each other.
        apart=True,
        tips=[Tip("policy"), Tip("gpu_class", "GPUs"), Tip("jobs", "", ","), Tip("words", "mean wait")],
        note=f"Mean wait until the first start. {fold_note(folded)}".strip(),
    )


PRESENTATIONS = (
    Presentation("replay/by_gpu_class", finding=classes_finding, chart=classes_chart),
    Presentation("replay/by_vc", finding=tenants_finding),
    Presentation("replay/assumptions", finding=assumptions_finding),
)
