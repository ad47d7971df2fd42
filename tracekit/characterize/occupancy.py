"""The GPUs that attempts hold through time, and those that tenants and clusters may use.

What is held is a step function built from the intervals of attempts. Times are whole microseconds, so that durations
add up exactly. Intervals are half-open: an attempt that ends at t holds nothing at t. Few traces publish quotas, so
what may be used is by a named source.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import Param
from tracekit.characterize.notes import Note, noted
from tracekit.errors import QueryError
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints


@dataclass(frozen=True)
class Steps:
    """A function of time that is constant between its steps.

    Attributes
    ----------
    times : int64 array, shape (n,)
        Where it changes [us], strictly rising.
    values : array, shape (n + 1,)
        values[0] before the first step, values[i + 1] from times[i] on.
    """

    times: Ints
    values: Floats

    @classmethod
    def of_intervals(cls, starts: Ints, ends: Ints, weights: Floats) -> Steps:
        """Return the sum of the weights of the intervals [start, end) that hold each moment."""
        times = np.concatenate([starts, ends])
        changes = np.concatenate([weights, -weights])
        moments, index = np.unique(times, return_inverse=True)
        sums = np.bincount(index, weights=changes, minlength=len(moments))
        # Sums of GPU shares such as 0.1 leave rounding errors, which would read as a GPU in use for ever.
        values = np.round(np.concatenate([[0.0], np.cumsum(sums)]), 6)
        return cls(moments, values)

    @classmethod
    def of_changes(cls, times: Ints, values: Floats, before: float) -> Steps:
        """Return the function that takes each value from its time on; of equal times the last counts."""
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        last = np.append(times[1:] != times[:-1], True) if len(times) else np.empty(0, dtype=bool)
        return cls(times[last], np.concatenate([[before], values[last]]))

    def at(self, moments: Ints) -> Floats:
        """Return the value at each moment, changes at that moment included."""
        found: Floats = self.values[np.searchsorted(self.times, moments, side="right")]
        return found

    def before(self, moments: Ints) -> Floats:
        """Return the value just before each moment."""
        found: Floats = self.values[np.searchsorted(self.times, moments, side="left")]
        return found

    def means(self, edges: Ints) -> Floats:
        """Return the mean over each interval between successive edges [us], weighted by time."""
        found: Floats = np.diff(self._integral(edges)) / np.diff(edges)
        return found

    def _integral(self, moments: Ints) -> Floats:
        """Return the integral from the first step, or from 0 where there is none, to each moment [value * us]."""
        if not len(self.times):
            flat: Floats = self.values[0] * moments
            return flat
        areas = np.concatenate([[0.0], np.cumsum(self.values[1:-1] * np.diff(self.times))])
        index = np.searchsorted(self.times, moments, side="right") - 1
        inside = np.maximum(index, 0)
        after = areas[inside] + self.values[inside + 1] * (moments - self.times[inside])
        before = self.values[0] * (moments - self.times[0])
        found: Floats = np.where(index >= 0, after, before)
        return found


def time_true(times: Ints, holds: Bools, moments: Ints) -> Ints:
    """Return for how long a condition held before each moment [us].

    Parameters
    ----------
    times : int64 array, shape (n,)
        Rising moments [us] at which the condition may change.
    holds : bool array, shape (n,)
        Whether it holds from each of them to the next; before the first it does not.
    moments : int64 array
        Up to when to count.
    """
    if not len(times):
        return np.zeros(len(moments), dtype=np.int64)
    lengths = np.where(holds[:-1], np.diff(times), 0)
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    index = np.searchsorted(times, moments, side="right") - 1
    inside = np.maximum(index, 0)
    found = sums[inside] + np.where(holds[inside], moments - times[inside], 0)
    return np.where(index >= 0, found, 0)


def window_us(con: duckdb.DuckDBPyConnection) -> tuple[int, int] | None:
    """Return the first and the last time of the jobs and attempts of a trace [us]; None without any."""
    first, last = con.execute("SELECT since, until FROM trace_window").fetchall()[0]
    return None if first is None else (int(first), int(last))


def tenants(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """Return cluster and vc of each tenant, ordered; the connection gets them as the table tenant with their `code`.

    The code of a tenant is its row. NULL is a tenant like any other: jobs without a VC.
    """
    con.execute(
        """CREATE OR REPLACE TEMP TABLE tenant AS
        SELECT row_number() OVER (ORDER BY cluster NULLS LAST, vc NULLS LAST) - 1 AS code, cluster, vc
        FROM (SELECT DISTINCT cluster, vc FROM jobs)"""
    )
    found: pl.DataFrame = pl.DataFrame(con.sql("SELECT cluster, vc FROM tenant ORDER BY code"))
    return found


def attempts_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the SQL of all attempts with the code of their tenant.

    Its columns: job_id, attempt, code, job_gpus, gpu_class, class_order (of the job), gpu_count, start_time, end_time,
    status, wait_s (of the attempt). Call `tenants` first.
    """
    tenant = "JOIN tenant AS t ON j.cluster IS NOT DISTINCT FROM t.cluster AND j.vc IS NOT DISTINCT FROM t.vc"
    if _derived(con):
        # Attempts that were derived from their jobs say the same; a join of millions of names would only take time.
        return f"""SELECT j.job_id, 0 AS attempt, t.code, j.gpu_count AS job_gpus, j.gpu_class, j.class_order,
                   j.gpu_count, j.start_time, j.end_time, j.status, j.queue_s AS wait_s
            FROM job_classes AS j {tenant} WHERE j.start_time IS NOT NULL"""
    return f"""SELECT a.job_id, a.attempt, t.code, j.gpu_count AS job_gpus, j.gpu_class, j.class_order,
               a.gpu_count, a.start_time, a.end_time, a.status, a.wait_s
        FROM attempts AS a JOIN job_classes AS j ON a.job_id = j.job_id {tenant}"""


def no_attempt_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the SQL condition that a job `j` has no attempt."""
    if _derived(con):
        return "j.start_time IS NULL"
    return "NOT EXISTS (FROM attempts AS a WHERE a.job_id = j.job_id)"


def open_attempts_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the view open_attempts as SQL, or a table without rows if every attempt has an end.

    To plan the view takes DuckDB longer than the rest of a query over few attempts.
    """
    if con.execute("SELECT 1 FROM attempts WHERE end_time IS NULL LIMIT 1").fetchall():
        return "open_attempts"
    return "(SELECT job_id, attempt, 0::BIGINT AS until_us, NULL::VARCHAR AS lost FROM attempts WHERE false)"


def _derived(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the attempts were derived from the start and the end of their jobs."""
    retries = con.execute("SELECT available FROM trace_capabilities WHERE name = 'retries'").fetchall()
    return bool(retries) and not retries[0][0]


@dataclass(frozen=True)
class Spans:
    """Intervals that belong to tenants.

    Attributes
    ----------
    code : int64 array
        The tenant's row.
    start, end : int64 array
        [us since 1970-01-01 UTC], half-open.
    gpus : float64 array
        GPUs held or asked for; 0 where unknown.
    """

    code: Ints
    start: Ints
    end: Ints
    gpus: Floats

    def with_gpus(self) -> Spans:
        """Return only the intervals with GPUs."""
        some = self.gpus > 0
        return Spans(self.code[some], self.start[some], self.end[some], self.gpus[some])

    def by_tenant(self, number: int) -> list[Steps]:
        """Return the GPUs of the intervals that hold each moment, for each of `number` tenants."""
        order = np.argsort(self.code, kind="stable")
        start, end, weights = self.start[order], self.end[order], self.gpus[order]
        cuts = np.searchsorted(self.code[order], np.arange(number + 1))
        return [Steps.of_intervals(start[a:b], end[a:b], weights[a:b]) for a, b in itertools.pairwise(cuts.tolist())]

    def means(self, number: int, edges: Ints, weights: Floats) -> Floats:
        """Return the mean sum of the weights of the intervals that hold a moment, for each tenant and each bin.

        Parameters
        ----------
        number : int
            How many tenants there are.
        edges : int64 array
            Edges of the bins [us], equally far apart, around all intervals.
        weights : float64 array
            One for each interval.

        Returns
        -------
        float64 array, shape (number, len(edges) - 1)
        """
        bins = len(edges) - 1
        step = int(edges[1] - edges[0])

        def begun(moments: Ints) -> Floats:
            """Return the time in each bin that has passed since the moments, weighted and summed."""
            bin_ = np.clip((moments - edges[0]) // step, 0, bins - 1)
            place = self.code * bins + bin_
            first = np.bincount(place, weights * (edges[bin_ + 1] - moments), number * bins).astype(np.float64)
            later = np.bincount(place, weights, number * bins).reshape(number, bins).cumsum(axis=1) * step
            passed: Floats = first.reshape(number, bins)
            passed[:, 1:] += later[:, :-1]
            return passed

        found: Floats = (begun(self.start) - begun(self.end)) / step
        return found

    def half_steps(self) -> Spans:
        """Return the same in half microseconds, what starts at a moment half a one after what ends then.

        So the state between the two can be read. Intervals without length hold nothing.
        """
        lasting = self.end > self.start
        return Spans(self.code[lasting], self.start[lasting] * 2 + 1, self.end[lasting] * 2, self.gpus[lasting])


def spans(con: duckdb.DuckDBPyConnection, query: str, params: dict[str, object] | None = None) -> tuple[Spans, int]:
    """Return the intervals of a query, and how many rows have none: no end, or one before the start.

    The query gives code, since, until [us] and gpus.
    """
    found = pl.DataFrame(con.sql(query, params=params))
    usable = found.filter(pl.col("until") >= pl.col("since"))
    return Spans(
        usable["code"].to_numpy().astype(np.int64),
        usable["since"].to_numpy().astype(np.int64),
        usable["until"].to_numpy().astype(np.int64),
        usable["gpus"].cast(pl.Float64).fill_null(0).to_numpy(),
    ), len(found) - len(usable)


def running(con: duckdb.DuckDBPyConnection, source: str, *, with_gpus: bool) -> tuple[Spans, list[Note]]:
    """Return when each attempt ran and on how many GPUs, and notes on what had to be left out.

    `source` is that of `attempts_sql`. An attempt that still runs counts as the view open_attempts says. One that
    ended at an unknown time, or before it started, is left out.
    """
    counts = "AND r.gpu_count > 0" if with_gpus else ""
    still = open_attempts_sql(con)
    # Only attempts without an end are looked up: a join of all names would take longer than the rest.
    found, lost = spans(
        con,
        f"""SELECT r.code, r.gpu_count AS gpus, epoch_us(r.start_time) AS since,
                   coalesce(epoch_us(r.end_time), o.until_us) AS until
            FROM ({source}) AS r LEFT JOIN {still} AS o
            ON o.job_id = CASE WHEN r.end_time IS NULL THEN r.job_id END AND o.attempt = r.attempt
            WHERE r.start_time IS NOT NULL {counts}""",
    )
    gone = con.execute(
        f"""SELECT count(*) FROM {still} AS o JOIN attempts AS a ON o.job_id = a.job_id AND o.attempt = a.attempt
        WHERE o.lost IS NOT NULL AND a.gpu_count > 0"""
    ).fetchall()[0][0]
    kind = "attempts with GPUs" if with_gpus else "attempts"
    return found, noted("end unknown", lost, kind) + noted("past limit", gone)


def most_held(ran: Spans, groups: pl.DataFrame) -> dict[str | None, float]:
    """Return the most GPUs that the jobs of each cluster held at one time [GPUs], by its name.

    Parameters
    ----------
    ran : Spans
        When attempts ran, `code` a row of `groups`.
    groups : polars.DataFrame
        cluster and vc of each tenant (see `tenants`).
    """
    names = groups["cluster"].unique(maintain_order=True).to_list()
    place = {name: number for number, name in enumerate(names)}
    cluster = np.array([place[name] for name in groups["cluster"]], dtype=np.int64)
    held = ran.with_gpus()
    by_cluster = Spans(cluster[held.code], held.start, held.end, held.gpus).by_tenant(len(names))
    return {name: float(steps.values.max(initial=0)) for name, steps in zip(names, by_cluster, strict=True)}


# What tenants and clusters may use.


QUOTA = Param(
    "quota",
    "auto",
    "what a VC may use: the capacity table; or as a proxy the most GPUs it held at one time, or the 95th percentile "
    "of what it held over time; auto takes the first of these that the trace has",
    ("auto", "capacity", "peak", "p95"),
)
"""The parameter by which queries let the user choose."""

CLUSTER_GPUS = Param(
    "gpus",
    0.0,
    "GPUs that the cluster has, for a trace of one cluster; 0: those of its node list, or else what the trace states",
)
"""The parameter by which queries let the user say how large the cluster is."""

FAR_ABOVE = 0.5
"""Part of the sum of the quotas below which the most GPUs in use at once makes that sum doubtful; our choice."""


def quotas(
    con: duckdb.DuckDBPyConnection, groups: pl.DataFrame, held: Callable[[], Sequence[Steps]], source: str
) -> tuple[list[Steps], Note]:
    """Return the GPUs that each tenant may use, and a note that names the source.

    Parameters
    ----------
    con : DuckDB connection
        Has the tables capacity and nodes, empty where the trace has none.
    groups : polars.DataFrame
        cluster and vc of each tenant; vc NULL is the whole cluster where there are no tenants.
    held : function () -> sequence of Steps
        GPUs that each of them held; called only where a proxy needs them.
    source : str
        'auto', 'capacity', 'peak' or 'p95'.

    Returns
    -------
    list of Steps
        NaN where the source does not state it.
    Note
        What was used.
    """
    stated = _stated(con, groups)
    whole = groups["vc"].null_count() == groups.height
    known = sum(not np.isnan(steps.values).all() for steps in stated)
    if source == "capacity" or (source == "auto" and known):
        if known < len(stated):
            return stated, Note("quotas of some", (len(stated) - known, len(stated)))
        return stated, Note("no tenants" if whole else "quotas")
    if source in ("auto", "peak"):
        proxies = [float(steps.values.max(initial=0)) for steps in held()]
        note = Note("peaks" if known else "peaks alone")
    else:
        proxies = [_quantile_over_time(steps, 0.95) for steps in held()]
        note = Note("p95")
    none = np.empty(0, dtype=np.int64)
    return [Steps(none, np.array([value])) for value in proxies], note


def cluster_gpus(
    con: duckdb.DuckDBPyConnection,
    groups: pl.DataFrame,
    means: Floats,
    starts: Ints,
    source: str,
    held: Callable[[], Mapping[str | None, float]],
    gpus: float = 0,
) -> tuple[Floats, Note]:
    """Return what the cluster of each tenant has in each interval, and a note that names the source.

    By the first of these that is known: the machines of the node list; the total that the trace states (a row of the
    capacity table without a VC) at the start of the interval; the sum of the quotas of its VCs, before the first total
    too; the most GPUs that its jobs held at one time.

    Parameters
    ----------
    con : DuckDB connection
        Has the tables capacity and nodes, empty where the trace has none, and trace_nodes.
    groups : polars.DataFrame
        cluster and vc of each tenant.
    means : float64 array, shape (tenants, intervals)
        What each tenant may use on average, of `quotas`; NaN where that is unknown.
    starts : int64 array, shape (intervals,)
        Where the intervals begin [us].
    source : str
        Of `means`: 'peak' and 'p95' ask for the sum of these proxies where the trace states no total, whatever the
        nodes have.
    held : function () -> mapping
        The most GPUs that the jobs of each cluster held at one time (see `most_held`); called only where it is needed.
    gpus : float
        The cluster's GPUs when they are given; 0 when not.

    Returns
    -------
    float64 array, shape (tenants, intervals)
        NaN where no source states it.
    Note
        Its sources.

    Raises
    ------
    QueryError
        `gpus` is below 0, or given for several clusters.
    """
    clusters = groups["cluster"].unique(maintain_order=True).to_list()
    if gpus < 0 or (gpus and len(clusters) > 1):
        what = "cannot be below 0" if gpus < 0 else f"needs a trace with one cluster, not {len(clusters)}"
        raise QueryError(f"the parameter 'gpus' {what}", hint="leave it out")
    if gpus:
        return np.full(means.shape, gpus), Note("cluster", sources=(("given", counted(gpus, "GPUs")),))
    table = pl.DataFrame(
        con.sql(
            """SELECT cluster, vc, epoch_us(time) AS time, gpu_count FROM capacity
            WHERE gpu_count IS NOT NULL ORDER BY time"""
        )
    )
    of_source = con.sql("SELECT ingested FROM trace_tenant").fetchall()[0][0]
    machines = pl.DataFrame(con.sql("SELECT cluster, sum(gpu_count) AS gpus FROM nodes GROUP BY cluster"))
    asked = source in {"auto", "capacity"}
    owned: dict[str | None, Floats] = {}
    sources: list[tuple[str, str]] = []
    for cluster in clusters:
        own = table.filter(pl.col("cluster").eq_missing(cluster))
        totals = own.filter(pl.col("vc").is_null())
        # Nodes that name no cluster are those of the only one.
        nodes = machines if len(clusters) == 1 else machines.filter(pl.col("cluster").eq_missing(cluster))
        if asked and nodes["gpus"].sum():
            owned[cluster] = np.full(len(starts), float(nodes["gpus"].sum()))
            sources.append(_machines(con))
            continue
        summed = _summed(means[(groups["cluster"].eq_missing(cluster)).to_numpy()])
        shares = own.filter(pl.col("vc").is_not_null())
        by_quotas = asked and shares.height
        if asked and not by_quotas:
            most = held().get(cluster, 0)
            summed = np.full(len(starts), most or np.nan)
        elif by_quotas and not of_source:
            summed = np.sum(
                [_over(one, starts, float(one["gpu_count"][0])) for one in shares.partition_by("vc")], axis=0
            )
        owned[cluster] = _over(totals, starts, summed)
        if len(totals):
            sources.append(("total", ""))
        elif by_quotas:
            remark = beside_use(float(np.nanmax(summed, initial=0)), held().get(cluster, 0))
            sources.append(("quotas" if of_source else "other quotas", f" ({remark})" if remark else ""))
        elif asked:
            sources.append(("most held" if held().get(cluster) else "nothing held", ""))
        else:
            sources.append(("proxies", ""))
    found = np.stack([owned[c] for c in groups["cluster"]]) if owned else np.empty(means.shape)
    return found, Note("cluster", sources=tuple(dict.fromkeys(sources)))


def _machines(con: duckdb.DuckDBPyConnection) -> tuple[str, str]:
    """Return what the GPUs of the table nodes are: a source of a note."""
    listed, source = con.execute("SELECT listed, source FROM trace_nodes").fetchall()[0]
    return "listed" if listed else "seen", f", stated by {source}" if source else ""


def beside_use(quotas: float, most: float) -> str:
    """Return how a sum of quotas that is no capacity differs from use; '' where the two go together.

    Parameters
    ----------
    quotas : float
        The largest sum of the quotas through time [GPUs].
    most : float
        The most GPUs that jobs held at one time [GPUs].
    """
    if most > quotas:
        return f"jobs held up to {counted(most, 'GPUs')} at one time, more than the quotas add up to"
    if 0 < most < FAR_ABOVE * quotas:
        return f"jobs never held more than {counted(most, 'GPUs')} at one time, far fewer than the quotas add up to"
    return ""


def _summed(means: Floats) -> Floats:
    """Return the sum over tenants of what is known; NaN where nothing is."""
    return np.where(np.isnan(means).all(axis=0), np.nan, np.nansum(means, axis=0))


def _over(totals: pl.DataFrame, starts: Ints, otherwise: Floats | float) -> Floats:
    """Return the stated total that holds at each start, and `otherwise` before the first one."""
    if totals.is_empty():
        return np.broadcast_to(otherwise, len(starts))
    last = np.searchsorted(totals["time"].to_numpy(), starts, side="right") - 1
    values = totals["gpu_count"].to_numpy().astype(np.float64)
    return np.where(last >= 0, values[np.maximum(last, 0)], otherwise)


def _stated(con: duckdb.DuckDBPyConnection, groups: pl.DataFrame) -> list[Steps]:
    table = pl.DataFrame(
        con.sql(
            # Quotas are those of the unit that the source divides itself by; they say nothing of another tenant.
            "SELECT cluster, vc, epoch_us(time) AS time, gpu_count FROM capacity, trace_tenant AS t"
            " WHERE gpu_count IS NOT NULL AND (vc IS NULL OR t.ingested)"
        )
    )
    listed = pl.DataFrame(con.sql("SELECT cluster, sum(gpu_count) AS gpus FROM nodes GROUP BY cluster"))
    found = []
    for cluster, vc in groups.select("cluster", "vc").iter_rows():
        own = table.filter(pl.col("cluster").eq_missing(cluster), pl.col("vc").eq_missing(vc))
        if own.height:
            times, values = own["time"].to_numpy(), own["gpu_count"].cast(pl.Float64).to_numpy()
            # What held before the first row is unknown; the first row is the best guess.
            found.append(Steps.of_changes(times, values, before=float(values[np.argmin(times)])))
            continue
        whole = listed.filter(pl.col("cluster").eq_missing(cluster))["gpus"] if vc is None else None
        gpus = whole[0] if whole is not None and len(whole) and whole[0] is not None else np.nan
        found.append(Steps(np.empty(0, dtype=np.int64), np.array([float(gpus)])))
    return found


def _quantile_over_time(steps: Steps, share: float) -> float:
    """Return the value that the function stays at or below for a share of the time between its ends."""
    if len(steps.times) < 2:
        return 0.0
    values, lengths = steps.values[1:-1], np.diff(steps.times)
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(lengths[order]), share * lengths.sum())
    return float(values[order][min(int(reached), len(values) - 1)])
