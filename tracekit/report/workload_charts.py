"""Charts of a fitted workload: observed against fitted run times, and the rate of arrivals through the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import altair as alt
import numpy as np

from tracekit.fit.run_times import LEAST_JOBS
from tracekit.report.axes import time_ends
from tracekit.report.charts import axis_values, data, palette, percent_axis, time_axis, time_scale
from tracekit.report.fit_curves import FittedDistribution, fitted_distribution, observed_points, why_undrawn
from tracekit.report.phrases import gpu_jobs, status_word
from tracekit.report.pictures import svg
from tracekit.report.rate_charts import MATCH_COLOURS, arrivals_chart
from tracekit.report.theme import colour
from tracekit.text import counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.fit.model import WorkloadModel

__all__ = [
    "against",
    "curves",
    "run_time_chart",
    "undrawn",
    "workload_pictures",
]

_WIDTH, _HEIGHT = 290, 220
_POINTS = 120
_LEAST_SHARE = 1e-3
"""Where the axis of survival ends."""
_DEFAULT_RANGE_S = (1.0, 60.0)
"""Range of an axis of run times on which no job stands [s]."""


def workload_pictures(model: WorkloadModel) -> dict[str, str]:
    """Return pictures as SVG texts by name: arrivals, and one for each group of run times that `undrawn` leaves.

    Names are file names without their ending: run_time_all, run_time_class_2-4, run_time_class_1_failed, ...
    """
    found = {}
    if model.document["arrivals"]["process"] is not None:
        found["arrivals"] = svg(arrivals_chart(model))
    for entry in model.run_times:
        if entry["vc"] is None and why_undrawn(model, entry) is None:
            found[_name(entry)] = svg(run_time_chart(model, entry))
    return found


def undrawn(model: WorkloadModel) -> list[str]:
    """Return a sentence for each group without a picture, with the reason."""
    found = []
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        found.append(f"no picture of the arrivals: {arrivals['reason']}")
    small = tenants = 0
    for entry in model.run_times:
        why = why_undrawn(model, entry)
        if entry["vc"] is not None:
            tenants += 1
        elif why is not None and entry["pooled_to"] is not None and entry["status"] is not None:
            small += 1
        elif why is not None:
            found.append(f"no picture of the {_measure(entry)} of {_who(entry)}: {counted(entry['n'], 'jobs')}, {why}")
    if small:
        found.append(
            f"no picture of {counted(small, 'groups')} by status: less than {LEAST_JOBS} jobs, with the shape of a"
            " larger group"
        )
    if tenants:
        found.append(f"no picture of {counted(tenants, 'VCs')}: their fits are in the model only")
    return found


def _name(entry: dict[str, Any]) -> str:
    size = {"<1": "below-1", ">8": "above-8"}.get(entry["gpu_class"], entry["gpu_class"])
    words = ["demand"] if entry["measure"] == "demand" else ["run_time"]
    words += [f"class_{size}"] if size is not None else []
    words += [str(entry["status"])] if entry["status"] is not None else []
    return "_".join([*words, "all"] if len(words) == 1 else words)


def curves(rows: list[Row], measure: str, colours: dict[str, str]) -> alt.LayerChart:
    """Return observed points on fitted lines.

    Parameters
    ----------
    rows : list of dict
        what, share, observed_s, fitted_s, see `tracekit.report.fit_answers`.
    measure : {"below", "beyond"}
        Jobs that run no longer, or, on log axes, jobs that run longer.
    colours : dict
        Colour by 'what'.
    """
    beyond = measure == "beyond"
    shares = [(r["what"], 1 - r["share"] if beyond else r["share"], r["observed_s"], r["fitted_s"]) for r in rows]
    # Log axes have no place for jobs of 0 s.
    seen = [row for row in shares if row[2] > 0 or not beyond]
    values = [seconds for _, _, seconds, _ in seen]
    points = [
        {"what": what, "share": share, "s": seconds, "words": duration(seconds), "by_fit": duration(fitted)}
        for what, share, seconds, fitted in seen
    ]
    lines = [{"what": what, "share": share, "s": fitted} for what, share, _, fitted in shares if fitted > 0]
    encoded = {
        "x": alt.X("s:Q", scale=_time(values), axis=_even_axis("run time", values)),
        "y": _share_axis("share", beyond=beyond),
        "color": alt.Color("what:N", scale=palette(colours)),
    }
    line = alt.Chart(data(lines)).mark_line(clip=True, strokeWidth=1.5, interpolate="monotone").encode(**encoded)
    point = alt.Chart(data(points)).mark_point(filled=True, size=26, opacity=0.9).encode(**encoded, tooltip=_tooltip())
    return cast("alt.LayerChart", alt.layer(line, point).properties(height=_HEIGHT))


def _share_axis(field: str, *, beyond: bool) -> alt.Y:
    """Return the vertical axis of a distribution, or of survival on a logarithmic one."""
    if not beyond:
        return alt.Y(f"{field}:Q", axis=percent_axis("jobs that run no longer"), scale=alt.Scale(domain=[0, 1]))
    axis = percent_axis("jobs that run longer")
    axis.values = [0.001, 0.01, 0.1, 1]
    return alt.Y(f"{field}:Q", axis=axis, scale=alt.Scale(type="log", domain=[_LEAST_SHARE, 1]))


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("what:N", title="jobs of"),
        alt.Tooltip("share:Q", format=".1%", title="share"),
        alt.Tooltip("words:N", title="observed"),
        alt.Tooltip("by_fit:N", title="fitted"),
    ]


def against(rows: list[Row], colours: dict[str, str]) -> alt.LayerChart:
    """Return observed against fitted quantiles, and the line on which they are equal; rows as for `curves`."""
    observed = axis_values(rows, ("observed_s",)) or list(_DEFAULT_RANGE_S)
    range_s = _axis_range(observed, axis_values(rows, ("fitted_s",)) or observed)
    ends = [{"fitted_s": v, "observed_s": v} for v in (min(range_s), max(range_s))]
    shown = [
        {
            **{k: r[k] for k in ("what", "share", "observed_s", "fitted_s")},
            "words": duration(r["observed_s"]),
            "by_fit": duration(r["fitted_s"]),
        }
        for r in rows
    ]
    encoded = {
        "x": alt.X("fitted_s:Q", scale=_time(range_s), axis=_even_axis("fitted run time", range_s)),
        "y": alt.Y("observed_s:Q", scale=_time(range_s), axis=_even_axis("observed run time", range_s)),
    }
    same = alt.Chart(data(ends)).mark_line(color=colour("muted"), strokeDash=[4, 3], clip=True).encode(**encoded)
    points = alt.Chart(data(shown)).mark_point(filled=True, size=30, opacity=0.9, clip=True)
    hue = alt.Color("what:N", scale=palette(colours), legend=None)
    points = points.encode(**encoded, color=hue, tooltip=_tooltip())
    return cast("alt.LayerChart", alt.layer(same, points).properties(height=_HEIGHT))


def _axis_range(observed: list[float], fitted: list[float]) -> list[float]:
    """Return the run times [s] that both axes of observed against fitted ones must show.

    A fitted tail may lie far beyond every job: a tenth of the shortest to ten times the longest is shown.
    """
    return [*observed, max(min(fitted), min(observed) / 10), min(max(fitted), 10 * max(observed))]


_EVEN_TICKS_S = (0, 1, 60, 3600, 86400, 30 * 86400, 365 * 86400)
"""Ticks that are about equally far from each other on a logarithmic axis."""
_FEW_TICKS = 6


def _even_axis(title: str, values: list[float]) -> alt.Axis:
    """Return an axis for durations [s] whose ticks stay evenly spaced where the range is wide."""
    axis = time_axis(title, values)
    if len(axis.values) > _FEW_TICKS:
        axis.values = [t for t in axis.values if t in {*_EVEN_TICKS_S, axis.values[0], axis.values[-1]}]
    return axis


def _time(values: list[float]) -> alt.Scale:
    """Return a scale for durations [s], logarithmic where none is 0."""
    return _log_time(values) if min(values, default=0) > 0 else time_scale(values)


def _log_time(values: list[float]) -> alt.Scale:
    """Return a logarithmic scale for durations above 0 [s]."""
    known = [v for v in values if v > 0] or [1.0]
    low, top = time_ends(known)
    # Room for whole points at both ends.
    room = max(1.1, (top / low) ** 0.03)
    return alt.Scale(type="log", domain=[low / room, top * room], nice=False)


def run_time_chart(model: WorkloadModel, entry: dict[str, Any]) -> alt.HConcatChart:
    """Return three pictures of one group: distribution, survival on log axes, and observed against fitted quantiles.

    Observed is the Kaplan-Meier estimate at the shares in workload.json that correspond to at least one job.

    Raises
    ------
    ValueError
        The group has no fit, see `undrawn`.
    """
    distribution = fitted_distribution(model, entry)
    if distribution is None:
        raise ValueError(f"no fit for {_who(entry)}")
    points = [(share, value) for share, value in observed_points(entry) if value > 0]
    words = {"observed": "observed", "fitted": f"fitted ({distribution.family.name})"}
    seen = [
        {"what": words["observed"], "seconds": value, "below": share, "beyond": 1 - share} for share, value in points
    ]
    colours = {words[what]: value for what, value in MATCH_COLOURS.items()}
    values = [value for _, value in points] or list(_DEFAULT_RANGE_S)
    curve = _curve(distribution, values, words["fitted"])
    panels = [_curves(curve, seen, measure, colours) for measure in ("below", "beyond")]
    title = alt.TitleParams(f"{_measure(entry)} of {_who(entry)}", subtitle=_under(entry), anchor="start")
    fitted = distribution.quantiles(np.array([share for share, _ in points], float))
    rows = [
        {"what": "all", "share": share, "observed_s": value, "fitted_s": float(by_fit)}
        for (share, value), by_fit in zip(points, fitted, strict=True)
    ]
    beside = against(rows, {"all": colour("series-2")}).properties(width=_WIDTH)
    return alt.hconcat(*panels, beside, spacing=30, title=title)


def _curve(distribution: FittedDistribution, values: list[float], what: str) -> list[dict[str, Any]]:
    """Return the fitted line over the range of observed run times [s] and a little beyond."""
    low, high = min(values), max(*values, 60.0)
    x = np.geomspace(low, high * 1.5, _POINTS)
    # The line meets the end of the axis of survival where it does, not at the point before.
    last = distribution.quantiles(np.array([1 - _LEAST_SHARE]))
    x = np.sort(np.concatenate([x, last[(low < last) & (last < x[-1])]]))
    return [
        {"what": what, "seconds": float(s), "below": float(c), "beyond": float(1 - c)}
        for s, c in zip(x, distribution.cdf(x), strict=True)
    ]


def _measure(entry: dict[str, Any]) -> str:
    return "run time if nothing stopped them (demand)" if entry["measure"] == "demand" else "run time"


def _who(entry: dict[str, Any]) -> str:
    size = gpu_jobs(entry["gpu_class"]) if entry["gpu_class"] is not None else ""
    if entry["status"] is None:
        return size or "all jobs"
    return f"{size or 'jobs'} with status {shorten(status_word(entry['status']), 40)}"


_POOLS = {
    "all": "all jobs",
    "gpu_class": "their size class",
    "status": "their status",
    "neighbours": "their size class and those beside it",
}
"""Whose fit a group of few jobs has, in words."""


def _under(entry: dict[str, Any]) -> list[str]:
    """Return the subtitle of a group: its number of jobs, and remarks on them."""
    words = [counted(entry["n"], "jobs")]
    if entry["pooled_to"] is not None:
        of = _POOLS[entry["pooled_to"]]
        moved = ", moved to their own median" if entry["median_ratio"] else ""
        words.append(f"less than {LEAST_JOBS}, so the fit is that of {of}{moved}")
    elif entry["right_censored"]:
        why = "were stopped, or still ran" if entry["measure"] == "demand" else "still ran"
        words.append(f"{entry['right_censored']:,} of them right-censored: they {why}")
    zero = max((share for share, value in entry["quantiles_s"] or [] if value == 0 and share > 0), default=None)
    if zero is not None:
        words.append(f"at least {percent(zero)} ran for 0 s, left of the axis")
    return ["; ".join(words)]


def _curves(curve: list[dict[str, Any]], seen: list[dict[str, Any]], measure: str, colours: dict[str, str]) -> Any:
    if measure == "beyond":
        curve = [r for r in curve if r["beyond"] >= _LEAST_SHARE * (1 - 1e-6)]
        seen = [r for r in seen if r["beyond"] >= _LEAST_SHARE * (1 - 1e-6)]
    values = [r["seconds"] for r in (*curve, *seen)]
    encoded = {
        "x": alt.X("seconds:Q", scale=_log_time(values), axis=time_axis("run time", values)),
        "y": _share_axis(measure, beyond=measure == "beyond"),
        "color": alt.Color("what:N", scale=palette(colours), legend=alt.Legend(title=None, orient="top")),
    }
    line = alt.Chart(data(curve)).mark_line(clip=True).encode(**encoded)
    points = alt.Chart(data(seen)).mark_point(filled=True, size=28, opacity=1).encode(**encoded)
    return alt.layer(line, points).properties(width=_WIDTH, height=_HEIGHT)
