"""Turn series and samples into one row per GPU and time, for some machines at a time.

A row's place and time are one number, `key`: the place in the batch times the batch's time span, plus the time since
the start of the batch. A metric's samples are almost always in key order, and a GPU's metrics are almost always scraped
together, so comparing arrays finds the rows. SQL handles only places with two samples of a metric for the same time.

Between reading and joining, samples are in a plain file of numbers, and memory has a list of the runs of samples in it.
Readers yield samples series by series, which is almost the machine-by-machine order of the join. With the list, we find
a machine's samples without sorting all samples.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import polars as pl

from tracekit.ingest.telemetry._series import COLUMNS, DIVIDED, METRICS, MOST, OWN, XID, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink

_BATCH = 1 << 21
"""Number of samples to join at once. One GPU's samples are never split."""

WIDEST = 1 << 62
"""Upper bound for the number that encodes place and time."""

SLOTS = tuple(sorted({(m.column, m.rank) for m in (*METRICS.values(), *OWN.values(), DIVIDED)}))
"""Columns, each with the rank of its metric."""

_ENDED = (
    "samples at times when a later series of the same GPU also has samples (query_range repeats values for 5 "
    "minutes after the end of a series); the later series is used"
)
_CONTRADICTION = (
    "contradictory samples of a metric for the same GPU and time, from series that began at the same time; the "
    "largest is used"
)
_NOT_MEASURED = (
    "utilization samples of divided GPUs (MIG) or their parts that are always 0 %: the driver does not measure it, "
    "so it is unknown"
)
_IMPOSSIBLE = "samples below 0 or above the metric's maximum; ignored"


_BYTES = 8
"""Size of a time and of a value."""


class SampleFile:
    """Stores runs of samples, each from one series, with times and values side by side.

    Parameters
    ----------
    path : Path
        File to which the numbers are written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._series, self._counts = array("q"), array("q")
        self._firsts, self._lasts = array("q"), array("q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, series: int, times: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Append samples of a series, with times in microseconds since 1970."""
        if not len(times):
            return
        if (np.diff(times) < 0).any():
            order = np.argsort(times, kind="stable")
            times, values = times[order], values[order]
        self._file.write(np.ascontiguousarray(times, dtype=np.int64).data)
        self._file.write(np.ascontiguousarray(values, dtype=np.float64).data)
        for column, number in (
            (self._series, series),
            (self._counts, len(times)),
            (self._firsts, times[0]),
            (self._lasts, times[-1]),
        ):
            column.append(int(number))

    def runs(self) -> pl.DataFrame:
        """Return each run's series, offset (number of samples before it), count, and first and last time."""
        columns = {
            "series": self._series, "count": self._counts, "first": self._firsts, "last": self._lasts
        }  # fmt: skip
        frame = pl.DataFrame({name: np.array(column, dtype=np.int64) for name, column in columns.items()})
        return frame.with_columns(offset=pl.col("count").cum_sum() - pl.col("count"))

    def read(self, offsets: Iterable[int], counts: Iterable[int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the times and values of runs, one after another."""
        spans = list(zip(offsets, counts, strict=True))
        total = sum(count for _, count in spans)
        times, values = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.float64)
        at = 0
        for offset, count in spans:
            self._file.seek(2 * _BYTES * offset)
            self._file.readinto(times[at : at + count].data)
            self._file.readinto(values[at : at + count].data)
            at += count
        return times, values


class Keys(NamedTuple):
    """Encodes a place and a time of a batch as one number."""

    places: NDArray[np.int64]
    """The places of the batch, in ascending order."""
    origin: int
    """First time of the batch [us since 1970]."""
    span: int
    """Time span of the batch, starting at `origin` [us]."""

    def of(self, local: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the keys for places, given by their number in the batch, and times within its span."""
        return local * self.span + (times - self.origin)


class Wide(NamedTuple):
    """Rows of a batch, ordered by place and time."""

    keys: Keys
    key: NDArray[np.int64]
    local: NDArray[np.int64]
    """Number of the place in the batch."""
    time: NDArray[np.int64]
    """Time in microseconds since 1970."""
    holder: NDArray[np.int64]
    """Number of the job or pod in the labels, or -1 if unknown."""
    values: dict[str, NDArray[np.float64]]
    """Values by column. NaN means unknown."""
    xids: pl.DataFrame
    """The errors at each change: place, time, xid, and `old` if a GPU's first sample shows the error."""


class _Samples(NamedTuple):
    """Samples of a batch, in the order of their runs."""

    key: NDArray[np.int64]
    value: NDArray[np.float64]
    series: NDArray[np.int64]
    holder: NDArray[np.int64]

    def take(self, which: NDArray[np.bool_] | NDArray[np.int64] | slice) -> _Samples:
        return _Samples(self.key[which], self.value[which], self.series[which], self.holder[which])


def batches(con: duckdb.DuckDBPyConnection, samples: SampleFile, sink: Sink) -> Iterator[Wide]:
    """Yield the rows of all series in the `placed` table, in the order of their places."""
    placed = frame_of(
        con, """SELECT series, place, "column", rank, factor, coalesce(holder, -1)::BIGINT AS holder FROM placed"""
    )
    slots = pl.DataFrame(
        {"column": [c for c, _ in SLOTS], "rank": [r for _, r in SLOTS], "slot": range(len(SLOTS))}
    ).cast({"rank": placed.schema["rank"]})
    runs = (
        samples.runs()
        .join(placed.join(slots, on=["column", "rank"]).cast({"series": pl.Int64, "place": pl.Int64}), on="series")
        .sort("place", "slot", "first", "series", "offset")
    )
    for name, meaning in (
        ("telemetry_after_its_end", _ENDED),
        ("telemetry_contradicts_itself", _CONTRADICTION),
        ("telemetry_impossible_values", _IMPOSSIBLE),
        ("telemetry_not_measured", _NOT_MEASURED),
    ):
        sink.check(name, 0, None, meaning)
    sizes = runs.group_by("place", maintain_order=True).agg(pl.col("count").sum())
    number = (sizes["count"].cum_sum() - 1) // _BATCH
    runs = runs.join(sizes.select("place", batch=number), on="place", maintain_order="left")
    for part in runs.partition_by("batch", maintain_order=True):
        yield from _wide(con, part, samples, sink)


def _wide(con: duckdb.DuckDBPyConnection, runs: pl.DataFrame, samples: SampleFile, sink: Sink) -> Iterator[Wide]:
    origin = int(runs["first"].to_numpy().min())
    span = int(runs["last"].to_numpy().max()) - origin + 1
    runs = runs.sort("slot", maintain_order=True)  # keeps the samples of each metric together
    places, local = np.unique(runs["place"].to_numpy(), return_inverse=True)
    if len(places) > 1 and span * len(places) >= WIDEST:
        middle = int(places[len(places) // 2])
        yield from _wide(con, runs.filter(pl.col("place") < middle), samples, sink)
        yield from _wide(con, runs.filter(pl.col("place") >= middle), samples, sink)
        return
    keys = Keys(places, origin, span)
    counts = runs["count"].to_numpy()
    times, values = samples.read(runs["offset"].to_list(), counts.tolist())
    factors = runs["factor"].to_numpy()
    if (factors != 1.0).any():
        values *= np.repeat(factors, counts)
    series = np.repeat(runs["series"].to_numpy(), counts)
    found = _Samples(
        keys.of(np.repeat(local, counts), times), values, series, np.repeat(runs["holder"].to_numpy(), counts)
    )
    del times, values, series
    by_slot: dict[int, _Samples] = {}
    lost = 0
    slots, at = np.unique(runs["slot"].to_numpy(), return_index=True)
    bounds = np.append((counts.cumsum() - counts)[at], len(found.key))
    for slot, begin, end in zip(slots.tolist(), bounds[:-1], bounds[1:], strict=True):
        part = found.take(slice(begin, end))
        column, rank = SLOTS[slot]
        if rank >= 0:
            possible = (part.value >= 0) & (part.value <= MOST[column])
            if not possible.all():
                lost += int(len(possible) - possible.sum())
                part = part.take(possible)
        if rank == DIVIDED.rank:
            shown = np.isin(part.key // keys.span, np.unique(part.key[part.value > 0] // keys.span))
            sink.check("telemetry_not_measured", int(len(shown) - shown.sum()), None, _NOT_MEASURED)
            part = part.take(shown)
        by_slot[slot] = _in_order(part)
    sink.check("telemetry_impossible_values", lost, None, _IMPOSSIBLE)
    xid = next((slot for slot in by_slot if SLOTS[slot][0] == XID), None)
    xids = _changes(None if xid is None else by_slot.pop(xid), keys)
    told = _decided(con, by_slot, keys, sink)
    yield _rows(told, keys, xids)


def _in_order(part: _Samples) -> _Samples:
    """Return the samples in key order, without repeats."""
    if len(part.key) < 2 or (np.diff(part.key) > 0).all():
        return part
    part = part.take(np.lexsort((part.value, part.series, part.key)))
    same = (np.diff(part.key) == 0) & (np.diff(part.series) == 0) & (np.diff(part.value) == 0)
    return part.take(np.concatenate([[True], ~same]))


def _changes(part: _Samples | None, keys: Keys) -> pl.DataFrame:
    """Return the errors at each change. If there are several errors at one time, the largest number is used."""
    kinds = {"place": pl.Int64, "time": pl.Int64, "xid": pl.Int64, "old": pl.Boolean}
    if part is None or not len(part.key):
        return pl.DataFrame(schema=kinds)
    key, number = part.key, part.value.astype(np.int64)
    if (np.diff(key) == 0).any():
        order = np.lexsort((number, key))
        key, number = key[order], number[order]
        last = np.concatenate([np.diff(key) > 0, [True]])
        key, number = key[last], number[last]
    local = key // keys.span
    first = np.concatenate([[True], np.diff(local) != 0])
    new = (number > 0) & (first | np.concatenate([[True], np.diff(number) != 0]))
    columns = (keys.places[local[new]], key[new] % keys.span + keys.origin, number[new], first[new])
    return pl.DataFrame(dict(zip(kinds, columns, strict=True)), schema=kinds)


# If several samples have the same metric, GPU and time, we use the series whose gapless run began last. A run is
# gapless if no gap is longer than the scrape interval.
_LATEST = """
WITH step AS (
    SELECT coalesce(median(step), 60) AS step FROM (
        SELECT (max(time) - min(time)) / 1e6 / (count(*) - 1) AS step FROM told GROUP BY slot, series
        HAVING count(*) > 1)),
broken AS (
    SELECT told.*, time - lag(time) OVER (PARTITION BY slot, series ORDER BY time) > greatest(2.5 * step, 1) * 1e6
        AS begins
    FROM told, step),
runs AS (
    SELECT * EXCLUDE (begins),
           max(CASE WHEN coalesce(begins, true) THEN time END) OVER (
               PARTITION BY slot, series ORDER BY time RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS run
    FROM broken)
SELECT slot, key, arg_max(value, row(run, value)) AS value, arg_max(holder, row(run, value)) AS holder,
       count(DISTINCT run) - 1 AS ended, count(DISTINCT row(run, value)) - count(DISTINCT run) AS clashes
FROM runs GROUP BY slot, key ORDER BY slot, key"""


def _decided(
    con: duckdb.DuckDBPyConnection, by_slot: dict[int, _Samples], keys: Keys, sink: Sink
) -> dict[int, _Samples]:
    """Return one sample per metric, GPU and time."""
    doubled = [part.key[1:][np.diff(part.key) == 0] // keys.span for part in by_slot.values()]
    places = np.unique(np.concatenate(doubled)) if doubled else np.zeros(0, dtype=np.int64)
    if not len(places):
        return by_slot
    frames = []
    clean: dict[int, _Samples] = {}
    for slot, part in by_slot.items():
        bad = np.isin(part.key // keys.span, places)
        clean[slot] = part.take(~bad)
        frames.append(pl.DataFrame(part.take(bad)._asdict()).with_columns(slot=pl.lit(slot)))
    # A series belongs to one place, so its times can be compared by key.
    told = pl.concat(frames).with_columns(time=pl.col("key") % keys.span)
    con.register("told", told.to_arrow())
    latest = frame_of(con, _LATEST)
    con.unregister("told")
    sink.check("telemetry_after_its_end", int(latest["ended"].sum()), None, _ENDED)
    sink.check("telemetry_contradicts_itself", int(latest["clashes"].sum()), None, _CONTRADICTION)
    for slot, rest in clean.items():
        found = latest.filter(pl.col("slot") == slot)
        key = np.concatenate([rest.key, found["key"].to_numpy()])
        value = np.concatenate([rest.value, found["value"].to_numpy()])
        series = np.concatenate([rest.series, np.full(len(found), -1)])
        holder = np.concatenate([rest.holder, found["holder"].to_numpy()])
        clean[slot] = _Samples(key, value, series, holder).take(np.argsort(key, kind="stable"))
    return clean


def _rows(by_slot: dict[int, _Samples], keys: Keys, xids: pl.DataFrame) -> Wide:
    parts = [part.key for part in by_slot.values()]
    key = parts[0] if parts else np.zeros(0, dtype=np.int64)
    if any(len(other) != len(key) or not np.array_equal(other, key) for other in parts[1:]):
        key = np.unique(np.concatenate(parts))
    holder = np.full(len(key), -1, dtype=np.int64)
    values: dict[str, NDArray[np.float64]] = {}
    for column in COLUMNS:
        # The metric with the lowest rank wins, so it is written last.
        for slot in sorted((slot for slot in by_slot if SLOTS[slot][0] == column), reverse=True):
            part = by_slot[slot]
            at = slice(None) if len(part.key) == len(key) else np.searchsorted(key, part.key)
            values.setdefault(column, np.full(len(key), np.nan))[at] = part.value
            holder[at] = np.maximum(holder[at], part.holder)
    local = key // keys.span
    return Wide(keys, key, local, key - local * keys.span + keys.origin, holder, values, xids)
