"""The quota of GPUs of each tenant through time, by a named source, since few traces publish quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import Param
from tracekit.characterize.notes import Note
from tracekit.characterize.occupancy import Steps
from tracekit.errors import QueryError
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import duckdb

    from tracekit.array_types import Floats, Ints

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
            summed = np.sum([_over(one, starts, _first(one, starts)) for one in shares.partition_by("vc")], axis=0)
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


def _first(totals: pl.DataFrame, starts: Ints) -> Floats:
    """Return the first stated number for each start: the best guess of what held before it."""
    return np.full(len(starts), float(totals["gpu_count"][0]))


def _over(totals: pl.DataFrame, starts: Ints, otherwise: Floats) -> Floats:
    """Return the stated total that holds at each start, and `otherwise` before the first one."""
    if totals.is_empty():
        return otherwise
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
