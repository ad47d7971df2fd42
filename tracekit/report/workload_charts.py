"""Pictures of a fitted workload: observed against fitted run times, and the rate of arrivals through the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tracekit.fit.families import FAMILIES, quantiles
from tracekit.report.charts import axis_values, data, palette, percent_axis, time_axis, time_scale
from tracekit.report.pictures import svg
from tracekit.report.theme import colour
from tracekit.text import duration, shorten

if TYPE_CHECKING:
    import altair as alt

    from tracekit.fit.model import WorkloadModel
    from tracekit.report.structure import Row

__all__ = ["against", "arrivals_chart", "curves", "run_time_chart", "week", "workload_pictures"]

_WIDTH, _HEIGHT = 260, 220
_HOURS = 24
_POINTS = 120


def workload_pictures(model: WorkloadModel) -> dict[str, str]:
    """Return pictures as SVG texts by name: arrivals, and one for each fitted group of run times that is no VC.

    Names are file names without their ending: run_time_all, run_time_class_2-4, run_time_class_1_failed, ...
    """
    found = {}
    if model.document["arrivals"]["process"] is not None:
        found["arrivals"] = svg(arrivals_chart(model))
    for entry in model.run_times:
        if entry["pooled_to"] is None and entry["vc"] is None and entry["chosen"] is not None:
            found[_name(entry)] = svg(run_time_chart(entry))
    return found


def _name(entry: dict[str, Any]) -> str:
    size = {"<1": "below-1", ">8": "above-8"}.get(entry["gpu_class"], entry["gpu_class"])
    words = ["demand"] if entry["measure"] == "demand" else ["run_time"]
    words += [f"class_{size}"] if size is not None else []
    words += [str(entry["status"])] if entry["status"] is not None else []
    return "_".join([*words, "all"] if len(words) == 1 else words)


def arrivals_chart(model: WorkloadModel) -> alt.LayerChart:
    """Return the expected batches in each hour of the week, Monday to Sunday."""
    rate, zone = model.document["arrivals"]["rate"], model.document["arrivals"]["timezone"]
    profile = np.resize(np.asarray(rate["profile"], float), 7 * _HOURS) * rate["per_hour"]
    rows = [{"hour_of_week": hour, "expected": float(value)} for hour, value in enumerate(profile)]
    return week(rows, "expected", title=f"hour of the week ({zone})").properties(width=640)


def week(rows: list[Row], value: str, *, title: str, known: bool = True) -> alt.LayerChart:
    """Return a value through the 168 hours of a week.

    Parameters
    ----------
    rows : list of dict
        hour_of_week, and the value.
    value : str
        Its column.
    title : str
        Of the hours.
    known : bool
        Whether hour 0 is Monday 00:00; days are numbered otherwise.
    """
    import altair as alt

    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun") if known else tuple(f"day {d}" for d in range(1, 8))
    words = "['" + "','".join(days) + "'][datum.value / 24]"
    axis = alt.Axis(title=title, labelExpr=words, values=[_HOURS * day for day in range(7)], labelAlign="left")
    # The last hour is drawn to its end.
    shown = [{k: r[k] for k in ("hour_of_week", value)} for r in rows]
    shown.append({**shown[-1], "hour_of_week": 7 * _HOURS})
    drawn = alt.Chart(data(shown)).encode(
        x=alt.X("hour_of_week:Q", axis=axis, scale=alt.Scale(domain=[0, 7 * _HOURS], nice=False)),
        y=alt.Y(f"{value}:Q", axis=alt.Axis(title="expected batches an hour", tickCount=5), scale=alt.Scale(zero=True)),
    )
    line = drawn.mark_line(interpolate="step-after", color=colour("series-1"))
    area = drawn.mark_area(interpolate="step-after", color=colour("series-1"), opacity=0.15)
    return cast("alt.LayerChart", alt.layer(area, line).properties(height=_HEIGHT))


def curves(rows: list[Row], measure: str, colours: dict[str, str]) -> alt.LayerChart:
    """Return observed points on fitted lines.

    Parameters
    ----------
    rows : list of dict
        what, share, observed_s, fitted_s, see `tracekit.report.fitted`.
    measure : {"below", "beyond"}
        Jobs that run no longer, or, on log axes, jobs that run longer.
    colours : dict
        Colour by 'what'.
    """
    import altair as alt

    beyond = measure == "beyond"
    shares = [(r["what"], 1 - r["share"] if beyond else r["share"], r["observed_s"], r["fitted_s"]) for r in rows]
    values = [seconds for _, _, seconds, _ in shares]
    x = alt.X("s:Q", scale=time_scale(values), axis=time_axis("run time", values))
    percent = percent_axis("jobs that run longer" if beyond else "jobs that run no longer")
    # Jobs of 0 s make the axis of time symlog; that of shares has no 0.
    scale = alt.Scale(type="log", domain=[1e-3, 1]) if beyond else alt.Scale(domain=[0, 1])
    if beyond:
        percent.values = [0.001, 0.01, 0.1, 1]
    tooltip = [
        alt.Tooltip("what:N", title="jobs of"),
        alt.Tooltip("share:Q", format=".1%", title="share"),
        alt.Tooltip("words:N", title="observed"),
        alt.Tooltip("by_fit:N", title="fitted"),
    ]
    points = [
        {"what": what, "share": share, "s": seconds, "words": duration(seconds), "by_fit": duration(fitted)}
        for what, share, seconds, fitted in shares
    ]
    lines = [{"what": what, "share": share, "s": fitted} for what, share, _, fitted in shares]
    encoded = {
        "x": x,
        "y": alt.Y("share:Q", axis=percent, scale=scale),
        "color": alt.Color("what:N", scale=palette(colours)),
    }
    line = alt.Chart(data(lines)).mark_line(clip=True, strokeWidth=1.5, interpolate="monotone").encode(**encoded)
    point = alt.Chart(data(points)).mark_point(filled=True, size=26, opacity=0.9).encode(**encoded, tooltip=tooltip)
    return cast("alt.LayerChart", alt.layer(line, point).properties(height=_HEIGHT))


def against(rows: list[Row], colours: dict[str, str]) -> alt.LayerChart:
    """Return observed against fitted quantiles, and the line on which they are equal; rows as for `curves`."""
    import altair as alt

    values = axis_values(rows, ("observed_s",))
    ends = [{"fitted_s": v, "observed_s": v} for v in (min(values), max(values))]
    shown = [
        {
            **{k: r[k] for k in ("what", "share", "observed_s", "fitted_s")},
            "words": duration(r["observed_s"]),
            "by_fit": duration(r["fitted_s"]),
        }
        for r in rows
    ]
    # A fitted tail may lie far beyond every job: ten times the longest is shown.
    wide = [*values, min(max(r["fitted_s"] for r in rows), 10 * max(values))]
    encoded = {
        "x": alt.X("fitted_s:Q", scale=time_scale(wide), axis=time_axis("fitted run time", wide)),
        "y": alt.Y("observed_s:Q", scale=time_scale(values), axis=time_axis("observed run time", values)),
    }
    same = alt.Chart(data(ends)).mark_line(color=colour("muted"), strokeDash=[4, 3], clip=True).encode(**encoded)
    points = alt.Chart(data(shown)).mark_point(filled=True, size=30, opacity=0.9, clip=True)
    points = points.encode(
        **encoded,
        color=alt.Color("what:N", scale=palette(colours)),
        tooltip=[
            alt.Tooltip("what:N", title="jobs of"),
            alt.Tooltip("share:Q", format=".1%", title="share"),
            alt.Tooltip("words:N", title="observed"),
            alt.Tooltip("by_fit:N", title="fitted"),
        ],
    )
    return cast("alt.LayerChart", alt.layer(same, points).properties(height=_HEIGHT))


def run_time_chart(entry: dict[str, Any]) -> alt.HConcatChart:
    """Return three pictures of one group: distribution, survival on log axes, and observed against fitted quantiles.

    Observed is the Kaplan-Meier estimate at the shares that workload.json tells.
    """
    import altair as alt

    family = FAMILIES[entry["chosen"]]
    fit = next(f for f in entry["families"] if f["family"] == family.name)
    p = family.vector(fit["parameters"])
    told = [(share, value) for share, value in entry["quantiles_s"] if value > 0]
    low = max(min((v for _, v in told), default=1.0), 0.5)
    high = max(max((v for _, v in told), default=60.0), 60.0)
    x = np.geomspace(low, high * 1.5, _POINTS)
    words = {"observed": "observed", "fitted": f"fitted ({family.name})"}
    curve = [
        {"what": words["fitted"], "seconds": float(s), "below": float(c), "beyond": float(max(1 - c, 1e-6))}
        for s, c in zip(x, family.cdf(x, p), strict=True)
    ]
    seen = [
        {"what": words["observed"], "seconds": value, "below": share, "beyond": max(1 - share, 1e-6)}
        for share, value in told
        if share < 1
    ]
    colours = {words["observed"]: colour("series-2"), words["fitted"]: colour("series-1")}
    panels = [_curves(curve, seen, measure, colours) for measure in ("below", "beyond")]
    title = alt.TitleParams(_title(entry), anchor="start")
    return alt.hconcat(*panels, _against(told, family, p), spacing=30, title=title)


def _title(entry: dict[str, Any]) -> str:
    words = [f"{entry['gpu_class']} GPUs" if entry["gpu_class"] is not None else "", entry["status"] or ""]
    name = ", ".join(shorten(w, 40) for w in words if w) or "all jobs"
    return f"{'demand' if entry['measure'] == 'demand' else 'run time'} of {name}, {entry['n']:,} jobs"


def _curves(curve: list[dict[str, Any]], seen: list[dict[str, Any]], measure: str, colours: dict[str, str]) -> Any:
    import altair as alt

    values = [r["seconds"] for r in (*curve, *seen)]
    share = alt.Axis(title="jobs that run no longer" if measure == "below" else "jobs that run longer")
    scale = alt.Scale(domain=[0, 1]) if measure == "below" else alt.Scale(type="log", domain=[1e-3, 1], clamp=True)
    encoded = {
        "x": alt.X("seconds:Q", scale=time_scale(values), axis=time_axis("run time", values)),
        "y": alt.Y(f"{measure}:Q", axis=share, scale=scale),
        "color": alt.Color("what:N", scale=palette(colours), legend=alt.Legend(title=None, orient="top")),
    }
    line = alt.Chart(data(curve)).mark_line().encode(**encoded)
    points = alt.Chart(data(seen)).mark_point(filled=True, size=28, opacity=1).encode(**encoded)
    return alt.layer(line, points).properties(width=_WIDTH, height=_HEIGHT)


def _against(told: list[tuple[float, float]], family: Any, p: Any) -> Any:
    import altair as alt
    from scipy import special

    inner = [(share, value) for share, value in told if 0 < share < 1]
    scores = special.ndtri(np.array([share for share, _ in inner]))
    fitted = quantiles(family, p, scores, longest_s=1e12)
    rows = [{"fitted": float(f), "observed": value} for f, (_, value) in zip(fitted, inner, strict=True)]
    values = [v for r in rows for v in r.values()] or [1.0, 60.0]
    ends = [{"fitted": v, "observed": v} for v in (min(values), max(values))]
    encoded = {
        "x": alt.X("fitted:Q", scale=time_scale(values), axis=time_axis("fitted quantile", values)),
        "y": alt.Y("observed:Q", scale=time_scale(values), axis=time_axis("observed quantile", values)),
    }
    same = alt.Chart(data(ends)).mark_line(color=colour("muted"), strokeDash=[4, 3]).encode(**encoded)
    points = alt.Chart(data(rows)).mark_point(filled=True, size=36, opacity=1, color=colour("series-2"))
    return alt.layer(same, points.encode(**encoded)).properties(width=_WIDTH, height=_HEIGHT)
