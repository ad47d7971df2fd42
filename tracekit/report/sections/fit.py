"""Fitted workload: which families describe run times and how well, and the arrival rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.axes import axis_values
from tracekit.report.bars import bars
from tracekit.report.charts import GPU_CLASSES, Hues, size_hues
from tracekit.report.fit_curves import growth_words
from tracekit.report.fit_pictures import against, curves
from tracekit.report.phrases import WEEKDAYS
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.report.week import weekly_rates_chart
from tracekit.text import count, counted, duration, percent

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.tenant import Tenant

_ALL = "all"
_LEVEL = 0.05
"""If the p-value is at most this, a misfit is not due to chance."""
_FAMILIES = {
    "expon": "an exponential",
    "lognorm": "a lognormal",
    "weibull_min": "a Weibull",
    "gamma": "a gamma",
    "fisk": "a log-logistic",
    "lomax": "a Lomax (Pareto)",
    "burr12": "a Burr XII",
}
_MIXTURES = {"hyperexpon": "exponentials", "lognorm_mix": "lognormals"}


def _family(name: str) -> str:
    """Return the name of a family.

    Examples
    --------
    >>> _family("fisk"), _family("lognorm_mix_3")
    ('a log-logistic distribution', 'a mixture of 3 lognormals')
    """
    base, _, parts = name.rpartition("_")
    if base in _MIXTURES:
        return f"a mixture of {parts} {_MIXTURES[base]}"
    return f"{_FAMILIES.get(name, name)} distribution"


def family_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which family was chosen for all jobs, and how well it fits."""
    whole = next((r for r in rows if (r["gpu_class"], r["status"]) == (_ALL, _ALL)), None)
    if whole is None:
        return None
    if whole["family"] is None:
        return f"The run times of all jobs could not be fitted: {whole.get('remark')}."
    text = (
        f"Of the families tried, {_family(whole['family'])} fits the run times of all {count(whole['jobs'])} jobs"
        f" best. The largest gap between the fitted and observed distribution is {percent(whole['ks'])}."
    )
    if whole["p"] is None:
        return text
    # The test uses only some of the jobs, so it cannot detect small gaps.
    part = whole.get("p_jobs")
    of = "" if part is None or part >= whole["jobs"] else f" of {count(part)} of these jobs"
    more = "more" if whole["p"] <= _LEVEL else "no more"
    return f"{text} A test{of} finds {more} misfit than expected by chance (p = {whole['p']:.2g})."


def family_chart(rows: list[Row], _: TraceFacts) -> Chart | None:
    """Draw the error of the fit for all jobs and for each size class."""
    shown = [r for r in rows if r["status"] == _ALL and r["measure"] == "until end" and r["ks"] is not None]
    if not shown:
        return None
    order = [c for c in (_ALL, *GPU_CLASSES) if c in {r["gpu_class"] for r in shown}]
    return bars(
        shown,
        measures={"ks": "largest gap (KS)"},
        axis_title="largest gap between fitted and observed share (KS)",
        values=order,
        note="Run time until the end, fitted against observed. Shorter bars mean a better fit.",
    )


def match_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the observed and fitted median and 99th percentile over all jobs."""
    by = {r["share"]: r for r in rows if r["gpu_class"] == _ALL}
    if 0.5 not in by:
        return None
    middle = by[0.5]
    cut = " (including jobs with an unknown end)" if middle.get("censored_share") else ""
    text = (
        f"Half of all jobs{cut} run for at most"
        f" {duration(middle['observed_s'])} ({duration(middle['fitted_s'])} in the fit)."
    )
    if 0.99 not in by:
        return text
    last = by[0.99]
    return (
        f"{text} One job in a hundred runs for more than {duration(last['observed_s'])}"
        f" ({duration(last['fitted_s'])} in the fit)."
    )


def match_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw the distribution over all jobs and, for size classes, the distribution, log-log survival and quantiles."""
    whole = [{**r, "what": "all"} for r in rows if r["gpu_class"] == _ALL]
    split = [{**r, "what": r["gpu_class"]} for r in rows if r["gpu_class"] in GPU_CLASSES]
    marks = "Points are observed, lines are fitted."
    beyond = marks
    if any(r["observed_s"] == 0 for r in rows):
        marks += " The value 0 includes run times that were rounded to 0."
        beyond += " Run times that were rounded to 0 are left of the axis."
    alone, sizes = Hues("what", {"all": colour("series-1")}), size_hues(split, "what")
    charts = []
    for own, by, title in ((whole, alone, "All jobs"), (split, sizes, "By size")):
        if own:
            charts.append(curves(own, "below", by, title=title, note=marks))
            charts.append(curves(own, "beyond", by, title=f"{title}: share that runs longer", note=beyond))
    note = (
        "Each point is a quantile of the run time, fitted on the horizontal axis and observed on the vertical axis. On"
        " the dashed line, both are equal."
    )
    if charts:
        charts.append(against(split or whole, sizes if split else alone, title="Observed against fitted", note=note))
    return charts


def rate_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Give the mean rate, the busiest and the quietest hour of the week, and how far observed hours deviate."""
    week_rows, known = _weekly(rows)
    rates = axis_values(week_rows, ("fitted",))
    if not rates:
        return None
    high, low = max(rates), min(rates)
    batches = counted(sum(rates) / len(rates), "batches")
    arrive = "arrive" if batches.endswith("es") else "arrives"
    text = f"{_unequal(rows[0])}By the fitted rate, {batches} (jobs submitted at the same moment) {arrive} per hour"
    if high - low < 1e-9 * high:
        return f"{text}, with the same rate at all hours.{_off(week_rows)}"
    daily = all(rate == rates[i % 24] for i, rate in enumerate(rates))
    busy, quiet = (_when(rates.index(rate), known=known, daily=daily) for rate in (high, low))
    return f"{text}: {count(high)} in the busiest hour{busy}, {count(low)} in the quietest{quiet}.{_off(week_rows)}"


def _unequal(row: Row) -> str:
    """Warn if the rate changes so much over the log that no week is like the mean week."""
    if row.get("half_days") is None:
        return ""
    end = "last" if row["growth"] > 1 else "first"
    days = counted(row["half_days"], "days").removeprefix("1 ")
    return (
        f"Half of all batches arrive in the {end} {days} of the log, because the fitted rate"
        f" {growth_words(row['growth'])} over the log. The week below is the mean of very different weeks, and few of"
        " them look like it. "
    )


def _off(week_rows: list[Row]) -> str:
    gaps = [abs(r["observed"] - r["fitted"]) for r in week_rows if r["observed"] is not None]
    if not gaps:
        return ""
    away = f"off by {counted(sum(gaps) / len(gaps), 'batches')} from the fitted rate"
    if len(gaps) == 1:
        return f" The only observed hour is {away}."
    hours = "The observed hours of the week" if len(gaps) == len(week_rows) else f"The {len(gaps)} observed hours"
    return f" {hours} are {away} on average."


def _weekly(rows: list[Row]) -> tuple[list[Row], bool]:
    """Return the hourly rates from the first day on, and whether days and hours are known."""
    days = [name for name in rows[0] if name not in {"hour", "rate", "growth", "half_days"}]
    by = {(r["rate"], int(r["hour"])): r for r in rows}
    found = [
        {
            "hour_of_week": 24 * place + hour,
            "fitted": by["fitted", hour][day],
            "observed": by.get(("observed", hour), {}).get(day),
        }
        for place, day in enumerate(days)
        for hour in range(24)
    ]
    return found, days[0] == "monday"


def _when(hour: int, *, known: bool, daily: bool) -> str:
    """Return the hour of the week in words, without the day if every day has the same rates."""
    if not known:
        return ""
    words = f"{hour % 24:02}:00 to {(hour + 1) % 24:02}:00"
    return f" ({words})" if daily else f" ({WEEKDAYS[hour // 24]}, {words})"


def rate_chart(rows: list[Row], _: TraceFacts) -> Chart:
    """Draw the observed and fitted number of batches over the week."""
    week_rows, known = _weekly(rows)
    title = "hour of the week" if known else "hour of the week, from the log's first hour"
    seen = any(r["observed"] is not None for r in week_rows)
    note = "Line: fitted rate. Points: observed mean for each hour of the week." if seen else "Line: fitted rate."
    return weekly_rates_chart(week_rows, title=title, known=known, note=note)


def process_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say whether jobs arrive in bursts, and which process the model uses."""
    by = {r.get("name"): r for r in rows}
    parts = ("process", "held out")
    chosen = next((r["name"] for r in rows if r["part"] in parts and r.get("decides")), None)
    tested = [name for name in _VARIED if name in by and by[name]["ratio"] is not None]
    if not tested or chosen is None:
        return None
    texts = {name: f"{_VARIED[name]} {count(by[name]['ratio'])} times as much" for name in tested}
    same = "as with independent arrivals (Poisson)"
    excluding = [name for name in tested if by[name]["decides"]]
    for more, comes in ((True, "in bursts"), (False, "more evenly than by chance")):
        name = next((n for n in excluding if (by[n]["ratio"] > 1) == more), None)
        if name is not None:
            return (
                f"Batches of jobs arrive {comes}: {texts[name]} {same}, {'more' if more else 'less'} than expected by"
                f" chance (p = {by[name]['p']:.2g}). {_drawn(by, chosen, facts.ingested)}"
            )
    return (
        f"Batches of jobs seem to arrive independently of each other: {' and '.join(texts.values())} {same}, no more"
        f" than expected by chance. {_drawn(by, chosen, facts.ingested)}"
    )


_VARIED = {
    "dispersion_of_hourly_counts": "their number per hour varies",
    "squared_variation_of_gaps": "the times between them vary",
}


def _drawn(by: dict[str | None, Row], chosen: str, tenant: Tenant) -> str:
    """Describe the process that the model uses."""
    if chosen == "poisson":
        return "So the model uses independent arrivals."
    if chosen == "sessions":
        return (
            f"The model uses sessions: on average {count(by['size']['value'])} jobs of one user (or {tenant.one}, if"
            f" users are unknown), each at most {count(by['threshold_s']['value'])} s after the previous one."
        )
    if chosen == "mmpp":
        calm, busy = (by[name]["value"] for name in ("quiet_rate", "busy_rate"))
        return (
            "So the rate in the model switches between a calm and a busy state (MMPP), with"
            f" {count(calm)} and {count(busy)} times the fitted rate."
        )
    return "So the model draws the times between batches from a gamma distribution (gamma renewal)."


def scores_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say which generator comes closest to the log, and how its waits compare."""
    ranked = sorted((r for r in rows if r["mean_rank"] is not None), key=lambda r: float(r["mean_rank"]))
    generated = [r for r in ranked if "naive" not in str(r["workload"])]
    if not generated:
        return None
    best = generated[0]
    text = (
        f"Of the generators, '{best['workload']}' comes closest to the last part of the log, with a mean rank of"
        f" {count(best['mean_rank'])} among {len(ranked)} workloads."
    )
    if ranked[0] is not best:
        text += f" A naive workload ({ranked[0]['workload']}) comes even closer, so the log predicts later jobs poorly."
    mine, log = best.get("wait_fifo_mean_s"), rows[0].get("wait_fifo_mean_s")
    if mine is not None and log is not None:
        text += f" Replayed under FIFO, its jobs wait {duration(mine)} on average, and the log's jobs {duration(log)}."
    return text


PRESENTATIONS = (
    Presentation("fit/run_time_family", finding=family_finding, chart=family_chart),
    Presentation("fit/run_time", finding=match_finding, chart=match_chart),
    Presentation("fit/arrival_rate", finding=rate_finding, chart=rate_chart),
    Presentation("fit/arrival_process", finding=process_finding),
    Presentation("fit/scores", finding=scores_finding),
)
