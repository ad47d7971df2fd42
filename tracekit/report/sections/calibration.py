"""The twins of the log: which scheduler it behaves like, and what other policies would have given."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.calibration.workbench import UNNAMED
from tracekit.report.charts import (
    Panel,
    axis_values,
    category,
    data,
    height,
    palette,
    position,
    reference,
    time_axis,
    time_scale,
)
from tracekit.report.lines import gpu_lines
from tracekit.report.replay_rows import axis_name, policy_name
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import alike_durations, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_NAMED = 3
"""Most clusters that a sentence names."""
_MEANS = {"queue": "mean wait", "jct": "mean completion time"}


def twins_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which scheduler the log behaves like, cluster by cluster, and which effects can be told."""
    parts = [_twin(row, "The log" if len(rows) == 1 else shorten(row["cluster"], 40)) for row in rows[:_NAMED]]
    if len(rows) > _NAMED:
        told = sum(bool(row["effects_told"]) for row in rows)
        parts.append(f"Effects of changes are told of {told} of the {len(rows)} clusters.")
    return " ".join(parts)


def _twin(row: Row, name: str) -> str:
    if row["grade"] is None:
        return f"{name}: cannot tell, since there is no twin: {row['why_not']}."
    if not row["waiting_share"]:
        return f"{name}: cannot tell, since no job waits."
    share = "" if row["waiting_share"] in {None, 1} else f", with {percent(row['waiting_share'])} of the hours waited,"
    log, twin = alike_durations((row["recorded_mean_s"], row["twin_mean_s"]))
    trust = _TRUST.get(row["grade"], "cannot tell") if row["effects_told"] else "no"
    return (
        f"{name}{share} behaves like this: {row['rules']}. Can its replay be trusted? {trust.capitalize()}: in the"
        f" log's last part it waits {twin} on average, the log {log} (grade {row['grade']})."
    )


_TRUST = {"close": "yes", "fair": "likely"}
"""Whether effects of changes can be told from a twin, by its grade; from others none is told."""


def queue_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that nothing is waited for, where a chart would be empty."""
    if any(row["recorded_gpus"] or row["twin_gpus"] for row in rows):
        return None
    return "In the log's last part no GPU was waited for, nor is one in the twin."


def queue_chart(rows: list[Row], facts: TraceFacts) -> list[Panel]:
    """Draw the queue by the log and in the twin, of the cluster with most of the waiting hours."""
    first = rows[0]["cluster"]
    return [
        gpu_lines(
            [row for row in rows if row["cluster"] == first],
            {"recorded_gpus": "waited for, by the log", "twin_gpus": "the same in the twin"},
            facts,
            title="" if first == UNNAMED else shorten(first, 40),
            note="The last part of the log, which the twin has not seen.",
        )
    ]


def effects_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the policy that would shorten the recorded times most, of those that know run times and of the others."""
    whole = _whole(rows)
    found: list[str] = []
    for given, which in (("not given", "policies that need no run times"), ("given", "those given true run times")):
        better = [r for r in whole if r["run_times"] == given and r["verdict"] == "shorter"]
        if better:
            best = min(better, key=lambda r: r["expected_jct_s"])
            where = "" if found else _where(whole)
            found.append(f"Of {which}, {policy_name(best)} would help most{where}: {_words(best)}.")
    if not found:
        return f"No other policy is expected to shorten the recorded times{_where(whole)}."
    longer = [policy_name(r) for r in whole if r["verdict"] == "longer"]
    if longer:
        found.append(f"Jobs would take longer under {' and '.join(longer[:_NAMED])}.")
    return " ".join(found)


def _whole(rows: list[Row]) -> list[Row]:
    """Return the rows over all clusters, or of the one cluster that there is."""
    last = {row["policy"]: row for row in rows}  # the sum over clusters stands after these
    most = max(row["jobs"] for row in last.values())
    return [row for row in last.values() if row["jobs"] > most / 2]


def _where(rows: list[Row]) -> str:
    name = rows[0]["cluster"]
    return "" if name == UNNAMED else f" in {shorten(name, 40)}"


def _words(row: Row) -> str:
    """Return the means before and after; where jobs are stopped, the wait until the first start is not all of it."""
    parts = []
    for what, words in _MEANS.items():
        if what == "queue" and row["preemptions"] > 0:
            continue
        values = [row[f"{key}_s"] for key in (f"recorded_{what}", f"expected_{what}")]
        ends = [row[f"expected_{what}_{end}_s"] for end in ("low", "high")]
        if None not in values and None not in ends:
            before, after, low, high = alike_durations([*values, *ends])
            parts.append(f"{words} {before} -> {after} ({low} to {high})")
    return " and ".join(parts)


def effects_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the expected means with their intervals beside the recorded ones."""
    whole = [{**row, "policy": axis_name(row)} for row in _whole(rows)]
    panels = []
    for what, words in _MEANS.items():
        columns = [f"expected_{what}_low_s", f"expected_{what}_s", f"expected_{what}_high_s", f"recorded_{what}_s"]
        known = sorted((row for row in whole if row[columns[1]] is not None), key=_first)
        if known:
            panels.append(_intervals(known, columns, words))
    note = "Dot: expected; line: its 95 % interval."
    if any(row["run_times"] == "given" for row in whole):
        note += " Orange triangle: knows the run times."
    return [Panel(chart, title=words, note=note if k == 0 else "") for k, (chart, words) in enumerate(panels)]


def _first(row: Row) -> tuple[float, float]:
    """Return the place of a policy: all charts have one order."""
    waits = [row[f"expected_{what}_s"] for what in ("queue", "jct")]
    first, second = (float("inf") if wait is None else wait for wait in waits)
    return first, second


def _intervals(rows: list[Row], columns: list[str], words: str) -> tuple[alt.LayerChart, str]:
    low, mean, high, recorded = columns
    title = f"{words[:1].upper()}{words[1:]}"
    values = axis_values(rows, columns)
    scale, axis = time_scale(values), time_axis(f"{title} (log scale)", values)
    hue = palette({"not given": colour("series-1"), "given": colour("series-2")})
    base = alt.Chart(data(rows)).encode(
        y=category("policy", [row["policy"] for row in rows], None), color=alt.Color("run_times:N", scale=hue)
    )
    line = base.mark_rule(strokeWidth=2, opacity=0.75).encode(
        x=alt.X(f"{low}:Q", scale=scale, axis=axis), x2=alt.X2(f"{high}:Q")
    )
    shape = alt.Scale(domain=["not given", "given"], range=["circle", "triangle-up"])
    point = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X(f"{mean}:Q", scale=scale, axis=axis), shape=alt.Shape("run_times:N", scale=shape)
    )
    told: list[alt.Chart] = []
    if rows[0][recorded] is not None:
        log, at = alt.Chart(data(rows[:1])), rows[0][recorded]
        by_log = alt.X(f"{recorded}:Q", scale=scale, axis=axis)
        told = reference(log, by_log, f"by the log {duration(at)}", left=position(at, values) > 0.5)
    layers = alt.layer(*told, line, point)
    return cast("alt.LayerChart", layers.properties(height=height(len(rows), 19))), title


PRESENTATIONS = (
    Presentation("replay/twins", finding=twins_finding),
    Presentation("replay/twin_queue", finding=queue_finding, chart=queue_chart),
    Presentation("replay/effects", finding=effects_finding, chart=effects_chart),
)
