"""The capacity plan: waits by number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.calibration.workbench import UNNAMED
from tracekit.replay.jobs import RECORDED
from tracekit.report.axes import Axis, axis_values, durations
from tracekit.report.charts import Chart, Mark, Tip, band, line, reference
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import counted, duration, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


def plan_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how more or fewer nodes would change waits, if the log's wait is inside the interval for further months."""
    by_nodes = {row["nodes"]: row for row in rows if row["policy"] != RECORDED}
    now = rows[-1]["nodes"]
    if now not in by_nodes:
        return None
    today, log = by_nodes[now], next((row for row in rows if row["policy"] == RECORDED), None)
    if log is not None and not _as_in_the_log(today, log):
        return (
            f"Cannot tell what more or fewer nodes would change. In the simulation, jobs wait {_mean(today)}"
            f"{_tail(today)} with today's {counted(now, 'nodes')}, but in the log they waited {_mean(log)}{_tail(log)}."
        )
    whose = "" if rows[-1]["cluster"] == UNNAMED else f" of {shorten(rows[-1]['cluster'], 40)}"
    text = f"In the simulation, jobs{whose} wait {_mean(today)}{_tail(today)}"
    text += f" with {counted(now, 'nodes')}"
    if log is not None:
        text += f", and {_wait(log)}{_tail(log)} in the log"
    more = next((n for n in sorted(by_nodes) if n > now), None)
    fewer = next((n for n in sorted(by_nodes, reverse=True) if n < now), None)
    parts = [f"{_wait(by_nodes[n])} with {counted(n, 'nodes')}" for n in (more, fewer) if n is not None]
    return f"{text}. They would wait {' and '.join(parts)}." if parts else f"{text}."


def _as_in_the_log(today: Row, log: Row) -> bool:
    """Return whether the log's wait is inside the interval for further months with today's nodes."""
    low, high, recorded = today["p90_wait_low_s"], today["p90_wait_high_s"], log["p90_wait_s"]
    return None in (low, high, recorded) or low <= recorded <= high


def _wait(row: Row) -> str:
    """Describe the mean wait of a row."""
    return "without end" if row["mean_wait_s"] is None else duration(row["mean_wait_s"])


def _mean(row: Row) -> str:
    """Describe the mean wait, followed by 'on average'."""
    return _wait(row) if row["mean_wait_s"] is None else f"{_wait(row)} on average"


def _tail(row: Row) -> str:
    """Describe the wait that one job in ten exceeds."""
    known = row["mean_wait_s"] is not None and row["p90_wait_s"] is not None
    return f" (one in ten over {duration(row['p90_wait_s'])})" if known else ""


def plan_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the 90th percentile of the wait by number of nodes, with its interval and the log's value."""
    known = [row for row in rows if row["p90_wait_s"] is not None]
    planned, log = ([r for r in known if (r["policy"] == RECORDED) == is_log] for is_log in (False, True))
    as_now = [row for row in planned if log and row["nodes"] == log[0]["nodes"]]
    if len(planned) < 2 or not all(_as_in_the_log(row, log[0]) for row in as_now):
        return None
    values = axis_values(known, ("p90_wait_s", "p90_wait_low_s", "p90_wait_high_s"))
    x = Axis("nodes", "nodes", scale={"zero": False}, labels={"format": "d", "tickMinStep": 1})
    y = durations("p90_wait_s", "90th percentile of the wait (log scale)", values)
    columns = ("nodes", "gpus", "p90_wait_s", "p90_wait_low_s", "p90_wait_high_s")
    hue: dict[str, Any] = {"color": colour("series-1")}
    interval = band(y.of("p90_wait_low_s"), "p90_wait_high_s", **hue)
    today: list[Mark] = []
    if log:
        now, at = {"nodes": log[0]["nodes"], "p90_wait_s": log[0]["p90_wait_s"]}, [row["nodes"] for row in planned]
        words = f"today {counted(now['nodes'], 'nodes')}, in the log {duration(now['p90_wait_s'])}"
        left = now["nodes"] > (min(at) + max(at)) / 2
        look = {"filled": True, "shape": "diamond", "size": 110, "color": colour("series-3")}
        today = [*reference(x, words, left=left, rows=[now]), Mark("point", look, rows=[now])]
    return Chart(
        [{key: row[key] for key in columns} | {"words": duration(row["p90_wait_s"])} for row in planned],
        x=x,
        y=y,
        marks=[interval, line(point=True, **hue), *today],
        height=220,
        tips=[Tip("nodes"), Tip("gpus", "GPUs"), Tip("words", "90th percentile of the wait")],
        note="Line: wait in the simulation of the log, with the interval for a further month.",
    )


PRESENTATIONS = (Presentation("plan/nodes", finding=plan_finding, chart=plan_chart),)
