"""The strip through time on the first screen: GPUs held and waited for, and nodes out of service, one time below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt

from tracekit.report.charts import Panel, data
from tracekit.report.lines import shown_time, time_scale_of
from tracekit.report.theme import colour
from tracekit.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["strip"]

_HELD, _OUT = "queuing/cluster_timeline", "failures/availability_over_time"
_MARGIN = 52
"""Width left of each panel [px], so that their times stand below each other."""


def strip(rows_of: Callable[[str], Sequence[Row]], facts: TraceFacts) -> list[Panel]:
    """Return the panels, the upper first; none where the load through time is not known.

    Parameters
    ----------
    rows_of : callable
        Returns the rows of an answer by its name, none where there is none.
    facts : TraceFacts
        What is known of the trace.
    """
    rows = _all_clusters(rows_of(_HELD))
    if not rows:
        return []
    out = [row for row in rows_of(_OUT) if row["rank"] == 0]
    owned = [row["owned"] for row in rows if row["owned"] is not None]
    of = f", of {count(round(max(owned)))} {facts.capacity} (line)" if owned else ""
    panels = [
        _Shown("held", f"GPUs held{of}", "series-1", 84, rows, "owned" if owned else None),
        _Shown("waiting", "GPUs that waiting jobs ask for", "series-2", 44, rows),
        _Shown(
            "nodes_down", "Nodes out of service", "status-failed", 30, [{**r, "time": r["start_time"]} for r in out]
        ),
    ]
    seen = [one for one in panels if any(row[one.column] for row in one.rows)]
    return [_panel(one, rows, facts, last=one is seen[-1]) for one in seen]


class _Shown(NamedTuple):
    """A number through time."""

    column: str
    title: str
    colour: str
    height: int
    rows: Sequence[Row]
    line: str | None = None
    """Another number, drawn as a line."""


def _all_clusters(rows: Sequence[Row]) -> list[Row]:
    """Return the sums over the clusters, by time; what is owned is unknown where that of a cluster is."""
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(row["time"], {"time": row["time"], "held": 0.0, "waiting": 0.0, "owned": 0.0})
        one["held"] += row["running_gpus"]
        one["waiting"] += row["pending_gpus"]
        both = one["owned"] is not None and row["capacity_gpus"] is not None
        one["owned"] = one["owned"] + row["capacity_gpus"] if both else None
    return [found[time] for time in sorted(found)]


def _drawn(rows: Sequence[Row], columns: Sequence[str], facts: TraceFacts) -> list[dict[str, Any]]:
    return [
        {
            "time": shown_time(row["time"], facts),
            **{c: None if row[c] is None else round(row[c], 1) for c in columns},
        }
        for row in rows
    ]


def _panel(shown: _Shown, rows: Sequence[Row], facts: TraceFacts, *, last: bool) -> Panel:
    """Draw one number, each interval as long as it is, over the time of `rows`; the last panel has the dates."""
    columns = [shown.column, *([shown.line] if shown.line else [])]
    time = time_scale_of(rows, facts, labels=last)
    axis = alt.Axis(title=None, tickCount=2, minExtent=_MARGIN, maxExtent=_MARGIN)
    drawn = data(_drawn(shown.rows, columns, facts))
    layers = [
        alt.Chart(drawn)
        .mark_area(interpolate="step-after", opacity=0.55, color=colour(shown.colour))
        .encode(
            x=time,
            y=alt.Y(f"{shown.column}:Q", axis=axis, scale=alt.Scale(domainMin=0, nice=True)),
            tooltip=[_when(facts), *(alt.Tooltip(f"{c}:Q", title=_WORDS[c], format=",.1f") for c in columns)],
        )
    ]
    if shown.line:
        layers.append(
            alt.Chart(drawn)
            .mark_line(interpolate="step-after", strokeWidth=1.2, color=colour("muted"))
            .encode(x=time, y=alt.Y(f"{shown.line}:Q", axis=axis))
        )
    return Panel(alt.LayerChart(layer=layers, height=shown.height), title=shown.title, wide=True)


_WORDS: Mapping[str, str] = {
    "held": "GPUs held",
    "waiting": "GPUs waited for",
    "owned": "GPUs owned",
    "nodes_down": "nodes out of service",
}


def _when(facts: TraceFacts) -> alt.Tooltip:
    if facts.dated:
        return alt.Tooltip("time:T", title="from", format="%Y-%m-%d %H:%M")
    return alt.Tooltip("time:Q", title="day", format=".2f")
