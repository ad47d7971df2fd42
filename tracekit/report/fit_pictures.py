"""Charts of a fitted workload: observed against fitted run times, and the arrival rate over the week."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.fit.run_times import LEAST_JOBS
from tracekit.report.axes import Axis, axis_values, durations, share, time_ends
from tracekit.report.charts import Chart, Hues, Mark, Tip, dot, line
from tracekit.report.fit_curves import (
    FittedDistribution,
    fitted_distribution,
    hours_known,
    observed_points,
    weekly_rates,
    why_undrawn,
)
from tracekit.report.phrases import gpu_jobs, status_word
from tracekit.report.pictures import side_by_side, svg
from tracekit.report.theme import colour
from tracekit.report.week import FITTED, OBSERVED, weekly_rates_chart
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.fit.model import WorkloadModel

_WIDTH, _HEIGHT = 290, 220
_POINTS = 120
_LEAST_SHARE = 1e-3
"""Smallest share on a survival axis."""
_DEFAULT_RANGE_S = (1.0, 60.0)
"""Range of a run-time axis if there are no jobs [s]."""


def workload_pictures(model: WorkloadModel) -> dict[str, str]:
    """Return plots as SVG text by name: the arrivals, and each run-time group that `undrawn` does not list.

    Names are file names without extension: run_time_all, run_time_class_2-4, run_time_class_1_failed, ...
    """
    found = {}
    if model.document["arrivals"]["process"] is not None:
        found["arrivals"] = svg(arrivals_picture(model))
    for entry in model.run_times:
        if entry["vc"] is None and why_undrawn(model, entry) is None:
            found[_name(entry)] = svg(run_time_picture(model, entry))
    return found


def undrawn(model: WorkloadModel) -> list[str]:
    """Explain for each group without a plot why it has none."""
    found = []
    arrivals = model.document["arrivals"]
    if arrivals["process"] is None:
        found.append(f"no plot of the arrivals: {arrivals['reason']}")
    small = tenants = 0
    for entry in model.run_times:
        why = why_undrawn(model, entry)
        if entry["vc"] is not None:
            tenants += 1
        elif why is not None and entry["pooled_to"] is not None and entry["status"] is not None:
            small += 1
        elif why is not None:
            found.append(f"no plot of the {_measure(entry)} of {_who(entry)}: {counted(entry['n'], 'jobs')}, {why}")
    if small:
        found.append(
            f"no plot of {counted(small, 'groups')} by status with fewer than {LEAST_JOBS} jobs and the shape of a"
            " larger group"
        )
    if tenants:
        found.append(f"no plot of {counted(tenants, 'VCs')}: their fits are only in the model")
    return found


def _name(entry: dict[str, Any]) -> str:
    size = {"<1": "below-1", ">8": "above-8"}.get(entry["gpu_class"], entry["gpu_class"])
    words = ["demand"] if entry["measure"] == "demand" else ["run_time"]
    words += [f"class_{size}"] if size is not None else []
    words += [str(entry["status"])] if entry["status"] is not None else []
    return "_".join([*words, "all"] if len(words) == 1 else words)


def curves(rows: list[Row], measure: str, by: Hues, *, title: str = "", note: str = "") -> Chart:
    """Return fitted lines with observed points.

    Parameters
    ----------
    rows : list of dict
        Rows with what, share, observed_s and fitted_s (see `tracekit.report.fit_answers`).
    measure : {"below", "beyond"}
        "below" plots the share of jobs that run at most this long, "beyond" the share that runs longer, on log axes.
    by : Hues
        Colours of the values of 'what'.
    """
    beyond = measure == "beyond"
    shares = [(r["what"], 1 - r["share"] if beyond else r["share"], r["observed_s"], r["fitted_s"]) for r in rows]
    # Log axes cannot show jobs of 0 s.
    seen = [row for row in shares if row[2] > 0 or not beyond]
    points = [
        {"what": what, "share": part, "s": seconds, "words": duration(seconds), "by_fit": duration(fitted)}
        for what, part, seconds, fitted in seen
    ]
    return _fitted_and_observed(
        [{"what": what, "share": part, "s": fitted} for what, part, _, fitted in shares if fitted > 0],
        points,
        x=_run_times("s", "run time", [seconds for _, _, seconds, _ in seen]),
        y=_shares("share", beyond=beyond),
        by=by,
        title=title,
        note=note,
    )


def _fitted_and_observed(fitted: list[Row], observed: list[Row], *, tips: bool = True, **more: Any) -> Chart:
    """Return fitted lines and observed points."""
    points = replace(dot(size=26, opacity=0.9), rows=observed, tips=_TIPS if tips else ())
    lines = line(1.5, clip=True, interpolate="monotone")
    return Chart(fitted, marks=[lines, points], height=_HEIGHT, **more)


def _shares(column: str, *, beyond: bool) -> Axis:
    """Return the vertical axis of a distribution, or a logarithmic axis for survival."""
    if not beyond:
        return share(column, "jobs that run at most this long", whole=True)
    axis = share(column, "jobs that run longer")
    scale = {"type": "log", "domain": [_LEAST_SHARE, 1]}
    return replace(axis, scale=scale, labels={**axis.labels, "values": [0.001, 0.01, 0.1, 1]})


_TIPS = (Tip("what", "jobs of"), Tip("share", "share", ".1%"), Tip("words", "observed"), Tip("by_fit", "fitted"))


def against(rows: list[Row], by: Hues | None = None, *, title: str = "", note: str = "") -> Chart:
    """Return a plot of observed against fitted quantiles with the line of equality. The rows are as for `curves`."""
    observed = axis_values(rows, ("observed_s",)) or list(_DEFAULT_RANGE_S)
    range_s = _axis_range(observed, axis_values(rows, ("fitted_s",)) or observed)
    columns = ("what", "share", "observed_s", "fitted_s")
    same = Mark(
        "line",
        {"color": colour("muted"), "strokeDash": [4, 3], "clip": True},
        rows=[{"fitted_s": v, "observed_s": v} for v in (min(range_s), max(range_s))],
    )
    hue: dict[str, Any] = {} if by is not None else {"color": OBSERVED}
    return Chart(
        [
            {**{k: r[k] for k in columns}, "words": duration(r["observed_s"]), "by_fit": duration(r["fitted_s"])}
            for r in rows
        ],
        x=_run_times("fitted_s", "fitted run time", range_s),
        y=_run_times("observed_s", "observed run time", range_s),
        marks=[same, dot(size=30, opacity=0.9, clip=True, **hue)],
        height=_HEIGHT,
        by=by,
        tips=_TIPS,
        title=title,
        note=note,
    )


def _axis_range(observed: list[float], fitted: list[float]) -> list[float]:
    """Return the range of run times [s] for both axes of a plot of observed against fitted quantiles.

    A fitted tail may extend far beyond all jobs, so the range ends at a tenth of the shortest and ten times the longest
    observed run time.
    """
    return [*observed, max(min(fitted), min(observed) / 10), min(max(fitted), 10 * max(observed))]


_EVEN_TICKS_S = (0, 1, 60, 3600, 86400, 30 * 86400, 365 * 86400)
"""Ticks with about even spacing on a logarithmic axis."""
_FEW_TICKS = 6


def _run_times(column: str, title: str, values: list[float]) -> Axis:
    """Return an axis for run times [s]: logarithmic if no value is 0, and with evenly spaced ticks if it is long."""
    axis = durations(column, title, values)
    ticks = axis.labels["values"]
    if len(ticks) > _FEW_TICKS:
        ticks = [t for t in ticks if t in {*_EVEN_TICKS_S, ticks[0], ticks[-1]}]
    axis = replace(axis, labels={**axis.labels, "values": ticks})
    if min(values, default=0) <= 0:
        return axis
    low, top = time_ends(values)
    # Leave space for whole points at both ends.
    room = max(1.1, (top / low) ** 0.03)
    return replace(axis, scale={"type": "log", "domain": [low / room, top * room], "nice": False})


def arrivals_picture(model: WorkloadModel) -> dict[str, Any]:
    """Return a plot of observed and fitted batches per hour over the week."""
    arrivals, known = model.document["arrivals"], hours_known(model)
    step = "second" if arrivals["step_s"] == 1 else duration(arrivals["step_s"])
    by = {"hour_of_day": "hour of the day", "hour_of_week": "hour of the week"}.get(arrivals["rate"]["kind"])
    # The number may be missing from a model that another program wrote.
    batches = f"{count(arrivals['batches'])} batches" if "batches" in arrivals else "batches"
    under = [
        f"{batches} in {count(arrivals['days'])} days; a batch is all jobs of one {step}",
        "one fitted rate for all hours" if by is None else f"the fitted rate depends on the {by}",
    ]
    hours = f"hour of the week ({arrivals['timezone']})" if known else "hour of the week, from the log's first hour"
    chart = weekly_rates_chart(weekly_rates(model), title=hours, known=known)
    return side_by_side([chart], 640, title="arrivals over the week", under=under)


def run_time_picture(model: WorkloadModel, entry: dict[str, Any]) -> dict[str, Any]:
    """Return three plots of a group: the distribution, survival on log axes, and observed against fitted quantiles.

    Observed values are Kaplan-Meier estimates at those shares in workload.json that correspond to at least one job.

    Raises
    ------
    ValueError
        The group has no fit (see `undrawn`).
    """
    distribution = fitted_distribution(model, entry)
    if distribution is None:
        raise ValueError(f"no fit for {_who(entry)}")
    points = [(part, value) for part, value in observed_points(entry) if value > 0]
    by = Hues("what", {"observed": OBSERVED, f"fitted ({distribution.family.name})": FITTED})
    words = list(by.colours)
    seen = [{"what": words[0], "s": value, "below": part, "beyond": 1 - part} for part, value in points]
    curve = _curve(distribution, [value for _, value in points] or list(_DEFAULT_RANGE_S), words[1])
    charts = [_half(curve, seen, measure, by) for measure in ("below", "beyond")]
    fitted = distribution.quantiles(np.array([part for part, _ in points], float))
    rows = [
        {"what": "all", "share": part, "observed_s": value, "fitted_s": float(by_fit)}
        for (part, value), by_fit in zip(points, fitted, strict=True)
    ]
    title = f"{_measure(entry)} of {_who(entry)}"
    return side_by_side([*charts, against(rows)], _WIDTH, title=title, under=[_under(entry)])


def _half(curve: list[Row], seen: list[Row], measure: str, by: Hues) -> Chart:
    """Return the part of a fitted line, and its points, within the share axis."""
    beyond = measure == "beyond"
    if beyond:
        curve, seen = ([r for r in rows if r["beyond"] >= _LEAST_SHARE * (1 - 1e-6)] for rows in (curve, seen))
    x = _run_times("s", "run time", [r["s"] for r in (*curve, *seen)] or [1.0])
    return _fitted_and_observed(curve, seen, x=x, y=_shares(measure, beyond=beyond), by=by, tips=False)


def _curve(distribution: FittedDistribution, values: list[float], what: str) -> list[dict[str, Any]]:
    """Return the fitted line over the range of observed run times [s] and slightly beyond."""
    low, high = min(values), max(*values, 60.0)
    x = np.geomspace(low, high * 1.5, _POINTS)
    # End the line exactly at the end of the survival axis, not at the point before it.
    last = distribution.quantiles(np.array([1 - _LEAST_SHARE]))
    x = np.sort(np.concatenate([x, last[(low < last) & (last < x[-1])]]))
    return [
        {"what": what, "s": float(s), "below": float(c), "beyond": float(1 - c)}
        for s, c in zip(x, distribution.cdf(x), strict=True)
    ]


def _measure(entry: dict[str, Any]) -> str:
    return "run time if not stopped (demand)" if entry["measure"] == "demand" else "run time"


def _who(entry: dict[str, Any]) -> str:
    size = gpu_jobs(entry["gpu_class"]) if entry["gpu_class"] is not None else ""
    if entry["status"] is None:
        return size or "all jobs"
    return f"{size or 'jobs'} with status {shorten(status_word(entry['status']), 40)}"


_POOLS = {
    "all": "all jobs",
    "gpu_class": "their size class",
    "status": "their status",
    "neighbours": "their size class and its neighbours",
}
"""Descriptions of the larger group whose fit a small group uses."""


def _under(entry: dict[str, Any]) -> str:
    """Return the subtitle of a group: its number of jobs, and remarks on them."""
    words = [counted(entry["n"], "jobs")]
    if entry["pooled_to"] is not None:
        of = _POOLS[entry["pooled_to"]]
        moved = ", shifted to their own median" if entry["median_ratio"] else ""
        words.append(f"fewer than {LEAST_JOBS}, so the fit is that of {of}{moved}")
    elif entry["right_censored"]:
        why = "were stopped or were still running" if entry["measure"] == "demand" else "were still running"
        words.append(f"{entry['right_censored']:,} of them right-censored because they {why}")
    zero = max((part for part, value in entry["quantiles_s"] or [] if value == 0 and part > 0), default=None)
    if zero is not None:
        words.append(f"at least {percent(zero)} ran for 0 s and are left of the axis")
    return "; ".join(words)
