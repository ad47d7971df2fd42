"""The GPUs allocated to attempts over time, and the GPUs that tenants and clusters may use.

Allocated GPUs are a step function of time, built from the attempts' intervals. Times are whole microseconds, so
durations add up exactly. Intervals are half-open: an attempt that ends at t has no GPUs at t. Few traces publish
quotas, so each quota's source is named.
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
        Times at which the value changes [us], strictly increasing.
    values : array, shape (n + 1,)
        values[0] is the value before the first step, and values[i + 1] is the value from times[i] on.
    """

    times: Ints
    values: Floats

    @classmethod
    def of_intervals(cls, starts: Ints, ends: Ints, weights: Floats) -> Steps:
        """Sum the weights of the intervals [start, end) that contain each moment."""
        times = np.concatenate([starts, ends])
        changes = np.concatenate([weights, -weights])
        moments, index = np.unique(times, return_inverse=True)
        sums = np.bincount(index, weights=changes, minlength=len(moments))
        # Sums of GPU shares such as 0.1 leave rounding errors that would look like a GPU in use forever.
        values = np.round(np.concatenate([[0.0], np.cumsum(sums)]), 6)
        return cls(moments, values)

    @classmethod
    def of_changes(cls, times: Ints, values: Floats, before: float) -> Steps:
        """Return the function that has each value from its time on. The last of several values at one time counts."""
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
        last = np.append(times[1:] != times[:-1], True) if len(times) else np.empty(0, dtype=bool)
        return cls(times[last], np.concatenate([[before], values[last]]))

    def at(self, moments: Ints) -> Floats:
        """Return the value at each moment, including changes at that moment."""
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
        """Return the integral from the first step, or from 0 if there are no steps, to each moment [value * us]."""
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
    """Return the total time before each moment in which a condition is true [us].

    Parameters
    ----------
    times : int64 array, shape (n,)
        Moments at which the condition may change [us], in increasing order.
    holds : bool array, shape (n,)
        Whether the condition is true from each of these moments to the next; before the first moment it is false.
    moments : int64 array
        The moments up to which time counts.
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
    """Return the first and the last time of a trace's jobs and attempts [us], or None if there are none."""
    first, last = con.execute("SELECT since, until FROM trace_window").fetchall()[0]
    return None if first is None else (int(first), int(last))


def tenants(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """Return the cluster and vc of each tenant, in order, and create the tenant table with their `code`.

    A tenant's code is its row number. Jobs without a VC form the tenant NULL.
    """
    con.execute(
        """CREATE OR REPLACE TEMP TABLE tenant AS
        SELECT row_number() OVER (ORDER BY cluster NULLS LAST, vc NULLS LAST) - 1 AS code, cluster, vc
        FROM (SELECT DISTINCT cluster, vc FROM jobs)"""
    )
    found: pl.DataFrame = pl.DataFrame(con.sql("SELECT cluster, vc FROM tenant ORDER BY code"))
    return found


def attempts_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the SQL that selects all attempts with their tenants' codes.

    Its columns are job_id, attempt and code, then job_gpus, gpu_class and class_order (of the job), then gpu_count,
    start_time, end_time, status and wait_s (of the attempt). Call `tenants` first.
    """
    tenant = "JOIN tenant AS t ON j.cluster IS NOT DISTINCT FROM t.cluster AND j.vc IS NOT DISTINCT FROM t.vc"
    if _derived(con):
        # Attempts derived from jobs have the same data, so joining millions of names would only cost time.
        return f"""SELECT j.job_id, 0 AS attempt, t.code, j.gpu_count AS job_gpus, j.gpu_class, j.class_order,
                   j.gpu_count, j.start_time, j.end_time, j.status, j.queue_s AS wait_s
            FROM job_classes AS j {tenant} WHERE j.start_time IS NOT NULL"""
    return f"""SELECT a.job_id, a.attempt, t.code, j.gpu_count AS job_gpus, j.gpu_class, j.class_order,
               a.gpu_count, a.start_time, a.end_time, a.status, a.wait_s
        FROM attempts AS a JOIN job_classes AS j ON a.job_id = j.job_id {tenant}"""


def no_attempt_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the SQL condition for a job `j` without an attempt."""
    if _derived(con):
        return "j.start_time IS NULL"
    return "NOT EXISTS (FROM attempts AS a WHERE a.job_id = j.job_id)"


def open_attempts_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return the view open_attempts as SQL, or a table without rows if every attempt has an end.

    Planning the view takes DuckDB longer than the rest of a query over a few attempts.
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
        The row number of the tenant.
    start, end : int64 array
        Ends of the half-open intervals [us since 1970-01-01 UTC].
    gpus : float64 array
        GPUs allocated or requested, or 0 if unknown.
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
        """Return the GPUs of the intervals that contain each moment, for each of `number` tenants."""
        order = np.argsort(self.code, kind="stable")
        start, end, weights = self.start[order], self.end[order], self.gpus[order]
        cuts = np.searchsorted(self.code[order], np.arange(number + 1))
        return [Steps.of_intervals(start[a:b], end[a:b], weights[a:b]) for a, b in itertools.pairwise(cuts.tolist())]

    def means(self, number: int, edges: Ints, weights: Floats) -> Floats:
        """Return the mean total weight of the intervals in progress for each tenant and bin.

        Parameters
        ----------
        number : int
            Number of tenants.
        edges : int64 array
            Edges of the bins [us], equally spaced, covering all intervals.
        weights : float64 array
            One weight for each interval.

        Returns
        -------
        float64 array, shape (number, len(edges) - 1)
        """
        bins = len(edges) - 1
        step = int(edges[1] - edges[0])

        def begun(moments: Ints) -> Floats:
            """Sum the weighted time since the moments that falls in each bin."""
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
        """Return the intervals in half microseconds, with starts shifted to half a microsecond after ends.

        So the state between an end and a start at the same moment can be read. Intervals without length are empty.
        """
        lasting = self.end > self.start
        return Spans(self.code[lasting], self.start[lasting] * 2 + 1, self.end[lasting] * 2, self.gpus[lasting])


def spans(con: duckdb.DuckDBPyConnection, query: str, params: dict[str, object] | None = None) -> tuple[Spans, int]:
    """Return the intervals of a query, and the number of rows without an end or with an end before the start.

    The query returns code, since, until [us] and gpus.
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
    """Return the interval and GPUs of each attempt, and notes on the excluded attempts.

    `source` is the SQL of `attempts_sql`. A running attempt counts until the time that the view open_attempts gives. An
    attempt that ended at an unknown time, or before it started, is excluded.
    """
    counts = "AND r.gpu_count > 0" if with_gpus else ""
    still = open_attempts_sql(con)
    # Look up only attempts without an end. Joining all names would take longer than the rest.
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
    """Return the most GPUs that the jobs of each cluster used at one time [GPUs], by cluster name.

    Parameters
    ----------
    ran : Spans
        Intervals in which attempts ran; `code` is a row of `groups`.
    groups : polars.DataFrame
        The cluster and vc of each tenant (see `tenants`).
    """
    names = groups["cluster"].unique(maintain_order=True).to_list()
    place = {name: number for number, name in enumerate(names)}
    cluster = np.array([place[name] for name in groups["cluster"]], dtype=np.int64)
    held = ran.with_gpus()
    by_cluster = Spans(cluster[held.code], held.start, held.end, held.gpus).by_tenant(len(names))
    return {name: float(steps.values.max(initial=0)) for name, steps in zip(names, by_cluster, strict=True)}


# Find the GPUs that tenants and clusters may use.


QUOTA = Param(
    "quota",
    "auto",
    "what a VC may use: the capacity table or, as a proxy, the most GPUs that the VC used at one time, or the 95th "
    "percentile of its use over time; auto takes the first of these that the trace has",
    ("auto", "capacity", "peak", "p95"),
)
"""The query parameter that selects the source of quotas."""

CLUSTER_GPUS = Param(
    "gpus",
    0.0,
    "GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace",
)
"""The query parameter that sets the size of the cluster."""

FAR_ABOVE = 0.5
"""The sum of quotas is doubtful if the peak use is below this share of it (our choice)."""


def quotas(
    con: duckdb.DuckDBPyConnection, groups: pl.DataFrame, held: Callable[[], Sequence[Steps]], source: str
) -> tuple[list[Steps], Note]:
    """Return the GPUs that each tenant may use, and a note with the source.

    Parameters
    ----------
    con : DuckDB connection
        A connection with the capacity and nodes tables, which are empty if the trace does not have them.
    groups : polars.DataFrame
        The cluster and vc of each tenant; without tenants, the vc NULL is the whole cluster.
    held : function () -> sequence of Steps
        Returns the GPUs that each tenant used; called only if a proxy needs them.
    source : str
        'auto', 'capacity', 'peak' or 'p95'.

    Returns
    -------
    list of Steps
        NaN if the source does not give the GPUs.
    Note
        The source used.
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
    """Return the GPUs of each tenant's cluster in each interval, and a note with the source.

    The first known source counts: the machines in the node list, the total in the trace (a row of the capacity table
    without a VC) at the start of the interval, the sum of the VCs' quotas (also used before the first total), or the
    most GPUs that the cluster's jobs used at one time.

    Parameters
    ----------
    con : DuckDB connection
        A connection with trace_nodes and the capacity and nodes tables, which are empty if the trace does not have
        them.
    groups : polars.DataFrame
        The cluster and vc of each tenant.
    means : float64 array, shape (tenants, intervals)
        GPUs that each tenant may use on average, from `quotas`, or NaN if unknown.
    starts : int64 array, shape (intervals,)
        Start of each interval [us].
    source : str
        Source of `means`. With 'peak' and 'p95', the sum of these proxies is used if the trace has no total, even if
        nodes are listed.
    held : function () -> mapping
        Returns the most GPUs that the jobs of each cluster used at one time (see `most_held`); called only if needed.
    gpus : float
        The cluster's GPUs if given, otherwise 0.

    Returns
    -------
    float64 array, shape (tenants, intervals)
        NaN if no source gives the GPUs.
    Note
        The sources.

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
        # Nodes without a cluster belong to the only cluster.
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
    """Return the source of the GPUs in the nodes table, for a note."""
    listed, source = con.execute("SELECT listed, source FROM trace_nodes").fetchall()[0]
    return "listed" if listed else "seen", f", from {source}" if source else ""


def beside_use(quotas: float, most: float) -> str:
    """Return a remark if a sum of quotas clearly differs from use, so it is not a capacity, or else ''.

    Parameters
    ----------
    quotas : float
        The largest sum of the quotas over time [GPUs].
    most : float
        The most GPUs that jobs used at one time [GPUs].
    """
    if most > quotas:
        return f"jobs used up to {counted(most, 'GPUs')} at one time, more than the sum of the quotas"
    if 0 < most < FAR_ABOVE * quotas:
        return f"jobs never used more than {counted(most, 'GPUs')} at one time, far fewer than the sum of the quotas"
    return ""


def _summed(means: Floats) -> Floats:
    """Sum the known values over the tenants; the result is NaN if no value is known."""
    return np.where(np.isnan(means).all(axis=0), np.nan, np.nansum(means, axis=0))


def _over(totals: pl.DataFrame, starts: Ints, otherwise: Floats | float) -> Floats:
    """Return the recorded total in effect at each start, and `otherwise` before the first total."""
    if totals.is_empty():
        return np.broadcast_to(otherwise, len(starts))
    last = np.searchsorted(totals["time"].to_numpy(), starts, side="right") - 1
    values = totals["gpu_count"].to_numpy().astype(np.float64)
    return np.where(last >= 0, values[np.maximum(last, 0)], otherwise)


def _stated(con: duckdb.DuckDBPyConnection, groups: pl.DataFrame) -> list[Steps]:
    table = pl.DataFrame(
        con.sql(
            # Quotas apply to the source's own tenant column, not to others.
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
            # The value before the first row is unknown, and the first row is the best guess.
            found.append(Steps.of_changes(times, values, before=float(values[np.argmin(times)])))
            continue
        whole = listed.filter(pl.col("cluster").eq_missing(cluster))["gpus"] if vc is None else None
        gpus = whole[0] if whole is not None and len(whole) and whole[0] is not None else np.nan
        found.append(Steps(np.empty(0, dtype=np.int64), np.array([float(gpus)])))
    return found


def _quantile_over_time(steps: Steps, share: float) -> float:
    """Return the quantile over time: the function is at or below it for this share of the time between its ends."""
    if len(steps.times) < 2:
        return 0.0
    values, lengths = steps.values[1:-1], np.diff(steps.times)
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(lengths[order]), share * lengths.sum())
    return float(values[order][min(int(reached), len(values) - 1)])
