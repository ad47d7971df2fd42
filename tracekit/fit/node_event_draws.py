"""The table node_events of a synthetic Trace: failures of its machines, by the fitted times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy import special

from tracekit import schema
from tracekit.errors import UsageError
from tracekit.fit.duration_draws import drawn_durations, longest_drawn
from tracekit.fit.run_times import seeded
from tracekit.fit.synthetic import capacity_table, node_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.synthetic import Extent
    from tracekit.trace_writer import TraceWriter


_SOURCE = "synthetic"


def draw_node_events(
    failures: dict[str, Any] | None, nodes: pl.Series, span_us: tuple[int, int], rng: np.random.Generator
) -> pl.DataFrame | None:
    """Return the failures of machines, None where the model has none.

    On every machine each cause fails by itself, as it was fitted: times of two causes may overlap. What fails in the
    span may be away until after it; a machine whose times away are all unknown does not come back.

    Parameters
    ----------
    failures : dict or None
        The part `node_failures` of workload.json; files of earlier versions have none.
    nodes : Series
        node_id of each machine.
    span_us : (int, int)
        Begin and end [us since 1970].
    rng : Generator
    """
    groups = (failures or {}).get("groups") or []
    drawn = [
        part
        for group in groups
        if group["group"] != "all" and group["until_failure"]["chosen"] is not None
        for part in _of_group(group, len(nodes), span_us, rng)
    ]
    if not drawn:
        return None
    begin = span_us[0]
    found = pl.concat(drawn).with_columns(nodes[pl.concat(drawn)["node"].to_numpy()].alias("node_id"))
    times = {name: (begin + (pl.col(name) * 1e6).cast(pl.Int64)).cast(pl.Datetime("us")) for name in ("since", "until")}
    return (
        found.select(
            "node_id",
            times["since"].alias("start_time"),
            times["until"].alias("end_time"),
            "state",
            "cause",
            pl.lit(_SOURCE).alias("source"),
        )
        .unique(["node_id", "start_time", "state", "source"], maintain_order=True)
        .sort("start_time", "node_id", "state")
    )


def write_machines(
    writer: TraceWriter,
    cluster: Mapping[str, Any],
    failures: dict[str, Any] | None,
    span_us: tuple[int, int],
    extent: Extent,
) -> None:
    """Write the machines of a synthetic Trace, their failures and the quotas.

    Parameters
    ----------
    cluster : mapping
        From `fit_cluster`.
    failures, span_us
        As for `draw_node_events`.
    extent : Extent
        Has the factor on the machines, and the seed.

    Raises
    ------
    UsageError
        The Trace would have times before year 1 or after year 9999, which no Trace may have.
    """
    nodes = node_table(cluster, extent.scale_gpus)
    writer.write("nodes", nodes)
    found = draw_node_events(failures, nodes["node_id"], span_us, seeded(extent.seed, "node events"))
    first, last = span_us
    if found is not None:
        writer.write("node_events", found)
        last = max(last, *found.select(pl.col("start_time", "end_time").max().dt.epoch("us").fill_null(last)).row(0))
    if first < schema.FIRST_US or last > schema.LAST_US:
        raise UsageError("would have times outside the years 1 to 9999", hint="ask for fewer jobs or days")
    writer.write("capacity", capacity_table(cluster, span_us[0], extent.scale_gpus))


def _of_group(
    group: dict[str, Any], number: int, span_us: tuple[int, int], rng: np.random.Generator
) -> Iterator[pl.DataFrame]:
    """Yield the first failure of every machine, then the second of those that had one in the span, and so on."""
    length = (span_us[1] - span_us[0]) / 1e6
    node, now = np.arange(number), np.zeros(number)
    causes, counts = list(group["causes"]), np.array(list(group["causes"].values()), float)
    while node.size:
        since = now + drawn_until_failure(group["until_failure"], np.zeros(node.size), rng)
        inside = since < length
        node, since = node[inside], since[inside]
        until = since + drawn_away(group, node.size, rng)
        cause = np.searchsorted(counts.cumsum()[:-1] / counts.sum(), rng.random(node.size), side="right")
        down = rng.random(node.size) < group["down_share"]
        yield _frame(node, since, until, down, pl.Series(causes, dtype=pl.String)[cause])
        back = np.isfinite(until)
        node, now = node[back], until[back]


def drawn_until_failure(entry: dict[str, Any], age_s: Floats, rng: np.random.Generator) -> Floats:
    """Return how long machines go on until they fail, that have worked for some time already [s] (n,).

    Parameters
    ----------
    entry : dict
        `until_failure` of a group, with a chosen family: exponential, which is Weibull of shape 1, Weibull, or a
        mixture of two exponentials.
    age_s : array of float, shape (n,)
        How long each has worked [s].
    rng : Generator
    """
    p = next(f for f in entry["families"] if f["family"] == entry["chosen"])["parameters"]
    if "scale_2" in p:
        # Each part is memoryless, so that the time worked says only which of them a machine is likely to be in.
        odds = np.log(p["weight_2"] / p["weight_1"]) + age_s / p["scale_1"] - age_s / p["scale_2"]
        second = rng.random(age_s.size) < special.expit(odds)
        left: Floats = rng.standard_exponential(age_s.size) * np.where(second, p["scale_2"], p["scale_1"])
        return left
    shape, scale = p.get("c", 1.0), p["scale"]
    # The hazard that is used up at failure is exponential, whatever was used before.
    used = (age_s / scale) ** shape
    found: Floats = scale * (used + rng.standard_exponential(age_s.size)) ** (1 / shape) - age_s
    return np.maximum(found, 0.0)


def drawn_away(group: dict[str, Any], number: int, rng: np.random.Generator) -> Floats:
    """Return how long machines are away after a failure [s] (n,); infinite where no end is known of any."""
    entry = group["away"]
    if entry["drawn_from"] is None:
        return np.full(number, np.inf)
    step = entry["resolution_s"]
    longest = longest_drawn(group["longest_away_s"], entry["n"], entry["right_censored"])
    found: Floats = np.round(drawn_durations(entry, longest, rng.standard_normal(number)) / step) * step
    return found


def _frame(node: Whole, since: Floats, until: Floats, down: Any, cause: pl.Series) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "node": node,
            "since": since,
            "until": pl.Series(np.where(np.isfinite(until), until, np.nan)).fill_nan(None),
            "state": pl.select(pl.when(pl.Series(down)).then(pl.lit("down")).otherwise(pl.lit("drained"))).to_series(),
            "cause": cause,
        }
    )
