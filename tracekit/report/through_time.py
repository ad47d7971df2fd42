"""Charts of GPU and node counts over time, and the strip of such charts on the first screen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import number, shown_time, times
from tracekit.report.charts import Chart, Mark, Tip, line, moment_tip, series, steps
from tracekit.report.line_labels import LineEnd, beside, broken, named_at_ends
from tracekit.report.telling import runs
from tracekit.report.theme import colour
from tracekit.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.answer import Row
    from tracekit.report.axes import Axis
    from tracekit.report.facts import TraceFacts

_UPPER, _LOWER = 0.56, 0.68
"""End of the upper and start of the lower of two scales, as fractions of the height."""
_ALONE = 2 / 3
"""Fraction of the height used if there is only the upper scale."""
_MARGIN = {"minExtent": 52, "maxExtent": 52}
"""Left margin of a chart [px]. Equal margins align the time axes of charts below each other."""
_HELD, _OUT = "queuing/cluster_timeline", "failures/availability_over_time"


def _rounded(rows: Sequence[Row], facts: TraceFacts, columns: dict[str, str], *kept: str) -> list[Row]:
    """Return rows with times as charts use them, renamed columns, and the `kept` columns unchanged."""
    return [
        {
            **{name: r[name] for name in kept if name in r},
            "time": shown_time(r["time"], facts),
            **{new: None if r[c] is None else round(r[c], 1) for c, new in columns.items()},
        }
        for r in rows
    ]


def gpu_lines(
    rows: Sequence[Row], measures: dict[str, str], facts: TraceFacts, *, title: str, note: str = "", height: int = 180
) -> Chart:
    """Draw GPU counts over time.

    Parameters
    ----------
    rows : sequence of Row
        Rows with `time` and the measures.
    measures : dict
        Columns and their labels.
    """
    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in rows)}
    # Each row contains all measures to keep the page small.
    wide = _rounded(rows, facts, present)
    by, last = series("measure", present.values()), rows[-1]
    fold = {"fold": list(by.colours), "as": ["measure", "value"]}
    chart = Chart(
        wide,
        x=times((r["time"] for r in rows), facts),
        y=number("value", "GPUs", ticks=4),
        marks=[replace(line(1.3, interpolate="step-after"), transform=[fold])],
        height=height,
        by=by,
        tips=[moment_tip(facts), Tip("measure", "GPUs"), Tip("value", "", ",.1f")],
        title=title,
        note=note,
    )
    ends = [LineEnd(words, last[c], {"time": wide[-1]["time"]}) for c, words in present.items() if last[c] is not None]
    most = max((row[c] or 0 for row in rows for c in present), default=0)
    return named_at_ends(chart, ends, most) if len(ends) == len(present) else chart


def held_above_waiting(
    rows: Sequence[Row], facts: TraceFacts, *, title: str, owned: str = "", note: str = "", height: int = 200
) -> Chart:
    """Draw the allocated GPUs over time and, below them on a separate scale, the GPUs that waiting jobs request.

    Parameters
    ----------
    rows : sequence of Row
        Rows with `time`, `running_gpus` and `pending_gpus`, and the cluster and tenant for the page's filters.
    owned : str
        Label of `capacity_gpus`, which is shown as a line if the label is given.
    height : int
        Height of both charts together [px]. If no job waits, the upper chart uses two thirds of it.
    """
    owned = owned if any(r.get("capacity_gpus") is not None for r in rows) else ""
    columns = {"running_gpus": "held", "pending_gpus": "waiting", **({"capacity_gpus": "there"} if owned else {})}
    whose = {
        name: column for name, column in (("cluster", "cluster"), ("vc", facts.tenant.column)) if column in rows[0]
    }
    drawn = [
        {**{name: row[column] for name, column in whose.items()}, **one}
        for row, one in zip(rows, _rounded(rows, facts, columns), strict=True)
    ]
    alone = not any(row["waiting"] for row in drawn)
    above, below = ("height" if alone else f"height * {_UPPER}", "0"), ("height", f"height * {_LOWER}")

    def place(column: str, ends: tuple[str, str], title: str) -> Axis:
        # Both are in one plot and therefore share a time axis, on screen and on paper.
        axis = number(column, title, ticks=3, scale={"domainMin": 0, "nice": 3, "range": [{"expr": e} for e in ends]})
        return replace(axis, labels={**axis.labels, "orient": "left", **_MARGIN})

    held = place("held", above, "allocated")
    upper = [steps("series-1")]
    if owned:
        there = held.of("there")
        upper.append(_muted(there))
        # Put the label next to the line's end. A line with falling capacity passes above its end.
        last = [{**row, "name": broken(owned)} for row in drawn if row["there"] is not None][-1:]
        upper.append(beside(last, colour("muted"), there))
    both: list[Mark | list[Mark]] = [upper, steps("series-2", y=place("waiting", below, "waited for"))]
    x = times((r["time"] for r in rows), facts)
    words = {"held": "GPUs allocated", "waiting": "GPUs waited for", "there": f"GPUs {owned}"}
    return Chart(
        drawn,
        x=replace(x, labels={**x.labels, "grid": False}),
        y=held,
        marks=upper if alone else both,
        height=round(height * _ALONE) if alone else height,
        tips=[moment_tip(facts), *(Tip(c, words[c], ",.1f") for c in columns.values())],
        title=title,
        note=note,
    )


def strip(rows_of: Callable[[str], Sequence[Row]], facts: TraceFacts) -> list[Chart]:
    """Return the first screen's strip: GPUs allocated and waited for, and nodes out of service, on one time axis.

    Parameters
    ----------
    rows_of : callable
        Returns the rows of an answer by name, or no rows if there is no such answer.
    facts : TraceFacts
        Facts about the trace.

    Returns
    -------
    list of Chart
        Charts from top to bottom, or none if the load over time is unknown.
    """
    rows = _all_clusters(rows_of(_HELD))
    if not rows:
        return []
    out = [{**row, "time": row["start_time"]} for row in rows_of(_OUT) if row["rank"] == 0]
    owned = [row["owned"] for row in rows if row["owned"] is not None]
    of = f", of {count(round(max(owned)))} {facts.capacity} (line)" if owned else ""
    lines = {"owned": "GPUs owned"} if owned else {}
    lanes: list[tuple[dict[str, str], str, str, int, Sequence[Row]]] = [
        ({"held": "GPUs allocated", **lines}, f"GPUs allocated{of}", "series-1", 84, rows),
        ({"waiting": "GPUs waited for"}, "GPUs that waiting jobs request", "series-2", 44, rows),
        ({"nodes_down": "nodes out of service"}, "Nodes out of service", "status-failed", 30, out),
    ]
    seen = [lane for lane in lanes if any(row[next(iter(lane[0]))] for row in lane[-1])]
    time = times((row["time"] for row in rows), facts)
    bare = replace(time, title=None, labels={**time.labels, "labels": False, "ticks": False})
    # Only the last chart shows the dates.
    return [_lane(*lane, time if lane is seen[-1] else bare, facts) for lane in seen]


def _all_clusters(rows: Sequence[Row]) -> list[Row]:
    """Sum over all clusters by time. The capacity is unknown if it is unknown for any cluster."""
    found: dict[str, Row] = {}
    for row in rows:
        one = found.setdefault(row["time"], {"time": row["time"], "held": 0.0, "waiting": 0.0, "owned": 0.0})
        one["held"] += row["running_gpus"]
        one["waiting"] += row["pending_gpus"]
        both = one["owned"] is not None and row["capacity_gpus"] is not None
        one["owned"] = one["owned"] + row["capacity_gpus"] if both else None
    return [found[time] for time in sorted(found)]


def _lane(
    columns: dict[str, str], title: str, hue: str, height: int, rows: Sequence[Row], time: Axis, facts: TraceFacts
) -> Chart:
    """Draw a number over time, with intervals to scale, and optionally a second number as a line."""
    first, *lines = columns
    y = number(first, None, ticks=2)
    y = replace(y, labels={**y.labels, **_MARGIN})
    return Chart(
        _rounded(rows, facts, {column: column for column in columns}),
        x=time,
        y=y,
        marks=[steps(hue), *(_muted(y.of(column)) for column in lines)],
        height=height,
        tips=[moment_tip(facts), *(Tip(c, words, ",.1f") for c, words in columns.items())],
        title=title,
        wide=True,
    )


def _muted(y: Axis) -> Mark:
    return replace(line(1.2, "muted", interpolate="step-after"), y=y, tips=())


WIDE, HIGH = 120, 28
"""Size of a sparkline's box, in the units of its path."""
_EDGE = 2


def sparkline(numbers: Sequence[float | None]) -> str:
    """Return the SVG path of numbers over time, scaled from 0 to the largest. Unknown numbers leave a gap.

    Return '' if the line is not worth showing (see `tracekit.report.telling.runs`). The page's script does the same.

    Examples
    --------
    >>> sparkline([0, 1, None, 2])
    'M0.0 26.0L40.0 14.0M120.0 2.0h0.01'
    >>> sparkline([None, 2]), sparkline([0, 0])
    ('', '')
    """
    if not runs(numbers):
        return ""
    most = max((value for value in numbers if value is not None), default=0)
    step = WIDE / max(len(numbers) - 1, 1)
    path, drawing = "", False
    for i, value in enumerate(numbers):
        if value is None:
            drawing = False
            continue
        y = HIGH - _EDGE - value / most * (HIGH - 2 * _EDGE)
        alone = not drawing and (i + 1 == len(numbers) or numbers[i + 1] is None)
        path += f"{'L' if drawing else 'M'}{i * step:.1f} {y:.1f}{'h0.01' if alone else ''}"
        drawing = True
    return path
