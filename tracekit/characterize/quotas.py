"""How many GPUs each tenant may use through time, by a named source, since few traces publish quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.characterize.occupancy import Steps
from tracekit.characterize.query import QueryParam

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import duckdb
    import polars as pl

__all__ = ["QUOTA", "quotas"]

QUOTA = QueryParam(
    "quota",
    "auto",
    "what a VC may use: the capacity table; or as a proxy the most GPUs it held at one time, or the 95th percentile "
    "of what it held over time; auto takes the first of these that the trace has",
    ("auto", "capacity", "peak", "p95"),
)
"""The parameter by which queries let the user choose."""


def quotas(
    con: duckdb.DuckDBPyConnection, groups: pl.DataFrame, held: Callable[[], Sequence[Steps]], source: str
) -> tuple[list[Steps], str]:
    """Return the GPUs that each tenant may use, and a sentence that names the source.

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
        NaN where the source does not tell.
    str
        What was used.
    """
    stated = _stated(con, groups)
    whole = groups["vc"].null_count() == groups.height
    known = sum(not np.isnan(steps.values).all() for steps in stated)
    if source == "capacity" or (source == "auto" and known):
        lacking = f"; {len(stated) - known} of {len(stated)} VCs are not in it" if known < len(stated) else ""
        if whole and not lacking:
            return stated, "there are no VCs; what is owned are all GPUs of the cluster"
        return stated, f"quota: the capacity that the trace states{lacking}"
    if source in ("auto", "peak"):
        proxies = [float(steps.values.max(initial=0)) for steps in held()]
        note = "quota: a proxy, the most GPUs that each VC held at one time, since the trace states none"
    else:
        proxies = [_quantile_over_time(steps, 0.95) for steps in held()]
        note = "quota: a proxy, the 95th percentile over time of the GPUs that each VC held"
    none = np.empty(0, dtype=np.int64)
    return [Steps(none, np.array([value])) for value in proxies], note.replace(
        ", since the trace states none", "" if known else ", since the trace states none"
    )


def _stated(con: duckdb.DuckDBPyConnection, groups: pl.DataFrame) -> list[Steps]:
    import polars as pl

    table = con.sql(
        "SELECT cluster, vc, epoch_us(time) AS time, gpu_count FROM capacity WHERE gpu_count IS NOT NULL"
    ).pl()
    listed = con.sql("SELECT cluster, sum(gpu_count) AS gpus FROM nodes GROUP BY cluster").pl()
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
