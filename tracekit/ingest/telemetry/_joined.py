"""Write gpu_utilization with the job of each sample, and complete placements by the GPUs that labels show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.databases import sql_text
from tracekit.ingest.telemetry._clock import BusySamples, note_clock
from tracekit.ingest.telemetry._errors import write_gpu_errors
from tracekit.ingest.telemetry._holders import Holders
from tracekit.ingest.telemetry._metrics import XID
from tracekit.ingest.telemetry._pivot import batches
from tracekit.ingest.telemetry._places import frame_of

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._holders import Matched
    from tracekit.ingest.telemetry._pivot import Wide
    from tracekit.ingest.telemetry._sample_file import SampleFile

__all__ = ["write_samples"]

_EXAMPLES = 5
_BUSY_PCT = 5.0

_MEANINGS = {
    "telemetry_of_unknown_jobs": "GPU samples whose labels name a job that is not in the log; they belong to no job",
    "telemetry_outside_its_job": "GPU samples whose labels name a job that did not run then, as the log has it; they "
    "belong to no job",
    "telemetry_ambiguous": "GPU samples of a machine on which several jobs, or one with some of the GPUs, ran while "
    "neither labels of the machine nor the log say which GPUs were whose; they belong to no job",
    "telemetry_busy_and_free": "GPU samples of more than 5 % utilization while no job of the log held a GPU of the "
    "machine",
}
_DIFFERENT = (
    "placements whose GPUs, as labels of telemetry show them, are not as many as the log states; the log's number is "
    "kept"
)

_PLACEMENTS = """
SELECT p.* REPLACE (
    CASE WHEN p.gpu_index IS NULL AND rows = 1 AND (p.gpu_count IS NULL OR p.gpu_count = len(s.gpu_index))
         THEN s.gpu_index ELSE p.gpu_index END AS gpu_index,
    CASE WHEN rows = 1 THEN coalesce(p.gpu_count, len(s.gpu_index)) ELSE p.gpu_count END AS gpu_count)
FROM (SELECT *, count(*) OVER (PARTITION BY job_id, attempt, node_id) AS rows FROM {old}) p
LEFT JOIN shown s USING (job_id, attempt, node_id) ORDER BY file_row_number"""


class _Counts:
    """What became of the samples."""

    def __init__(self) -> None:
        self.total = self.labelled = self.named = self.owned = 0
        self.found = dict.fromkeys(_MEANINGS, 0)
        self._examples: dict[str, set[str]] = {name: set() for name in _MEANINGS}

    def add(self, rows: Wide, matched: Matched, known: np.ndarray, holders: Holders, names: pl.Series) -> None:
        """Count the rows of a batch; `known` are the holders that the log has, `names` their names."""
        labelled = rows.holder >= 0
        self.total += len(rows.key)
        self.labelled += int(labelled.sum())
        self.named += int((matched.named >= 0).sum())
        self.owned += int((~labelled & (matched.job >= 0)).sum())
        in_log = np.zeros(len(rows.key), dtype=bool)
        in_log[labelled] = known[rows.holder[labelled]]
        busy = rows.values.get("utilization_pct")
        masks = {
            "telemetry_of_unknown_jobs": labelled & ~in_log,
            "telemetry_outside_its_job": in_log & (matched.named < 0),
            "telemetry_ambiguous": matched.doubtful,
            "telemetry_busy_and_free": matched.free & (busy > _BUSY_PCT) if busy is not None else None,
        }
        for name, mask in masks.items():
            if mask is None or not mask.any():
                continue
            self.found[name] += int(mask.sum())
            if name in ("telemetry_of_unknown_jobs", "telemetry_outside_its_job"):
                shown = names.gather(np.unique(rows.holder[mask])).to_list()
            else:
                shown = holders.of_batch(rows.keys)["node_id"].gather(np.unique(rows.local[mask])).to_list()
            self._examples[name] = set(sorted(self._examples[name] | set(shown))[:_EXAMPLES])

    def tell(self, sink: Sink) -> None:
        """Enter the counts in the checks, and tell how samples met jobs."""
        for name, count in self.found.items():
            of = self.labelled if "job" in name else self.total - self.labelled
            sink.check(name, count, of, _MEANINGS[name], sorted(self._examples[name]) if count else None)
        sink.note(
            f"{self.total:,} GPU samples of telemetry: {self.named:,} belong to the job that their labels name, "
            f"{self.owned:,} to the only job of their machine; jobs whose GPUs the log names are matched by GPU and "
            "time"
        )


def write_samples(con: duckdb.DuckDBPyConnection, samples: SampleFile, sink: Sink) -> None:
    """Write gpu_utilization and the errors of GPUs, after `place_series` has said whose the series are.

    Rows that the log has written stay in front.
    """
    holders = Holders(con)
    names = frame_of(con, "SELECT holder, name FROM holder ORDER BY holder")
    by_number = pl.Series("name", [None, *names["name"]], dtype=pl.String)  # holders count from 1
    known = np.zeros(len(by_number), dtype=bool)
    known[holders.held["holder"].to_numpy()] = True
    counts, busy = _Counts(), BusySamples(holders)
    shown: list[pl.DataFrame] = []
    errors: list[pl.DataFrame] = []
    for rows in batches(con, samples, sink):
        errors.append(rows.xids)
        if not len(rows.key):
            continue
        matched = holders.match(rows)
        busy.add(rows)
        counts.add(rows, matched, known, holders, by_number)
        places = holders.of_batch(rows.keys)
        sink.write("gpu_utilization", _frame(rows, matched, places, holders.jobs))
        if (matched.named >= 0).any():
            shown.append(_shown(rows, matched, places, holders.held))
    sink.writer.drain()
    if counts.total:
        note_clock(holders, _spans(con, samples), busy, sink)
        counts.tell(sink)
    if shown:
        _complete_placements(con, pl.concat(shown), sink)
    if errors:
        write_gpu_errors(con, pl.concat(errors), sink)


def _frame(rows: Wide, matched: Matched, places: pl.DataFrame, jobs: pl.Series) -> pl.DataFrame:
    values = {name: pl.Series(column, nan_to_null=True) for name, column in rows.values.items()}
    job = pl.Series(np.where(matched.job >= 0, matched.job, len(jobs)))
    return places.select("node_id", "gpu_index", "gpu_instance")[rows.local].with_columns(
        pl.Series("time", rows.time).cast(pl.Datetime("us")),
        pl.concat([jobs, pl.Series("job_id", [None], dtype=pl.String)]).gather(job),
        **values,
    )


def _shown(rows: Wide, matched: Matched, places: pl.DataFrame, held: pl.DataFrame) -> pl.DataFrame:
    """Return the GPUs on which labels show the attempts of jobs."""
    # Rows of one attempt and place follow each other nearly always: most repeats go before the search for others.
    first = np.diff(matched.named, prepend=-1) != 0
    first |= np.diff(rows.local, prepend=-1) != 0
    first &= matched.named >= 0
    found = pl.DataFrame({"number": matched.named[first], "local": rows.local[first]}).unique()
    whole = places.with_row_index("local").filter(pl.col("gpu_instance").is_null()).cast({"local": pl.Int64})
    return (
        found.join(whole, on="local")
        .join(held.select(pl.col("number").cast(pl.Int64), "job_id", "attempt"), on="number")
        .select("job_id", "attempt", "node_id", "gpu_index")
    )


def _spans(con: duckdb.DuckDBPyConnection, samples: SampleFile) -> pl.DataFrame:
    """Return the first and the last time of the samples of each holder."""
    placed = frame_of(
        con,
        f"""SELECT series::BIGINT AS series, holder::BIGINT AS holder FROM placed
        WHERE holder IS NOT NULL AND "column" <> '{XID}'""",
    )
    both = samples.runs().join(placed, on="series")
    return both.group_by("holder").agg(pl.col("first").min(), pl.col("last").max())


def _complete_placements(con: duckdb.DuckDBPyConnection, gpus: pl.DataFrame, sink: Sink) -> None:
    path = sink.folder / "placements.parquet"
    shown = gpus.unique().group_by("job_id", "attempt", "node_id").agg(pl.col("gpu_index").sort())
    if not len(shown) or not path.is_file():
        return
    con.register("shown", shown.to_arrow())
    old = sink.writer.scratch / "placements_of_log.parquet"
    path.replace(old)
    con.execute("DROP VIEW placements")
    rows = f"read_parquet({sql_text(old)}, file_row_number = true)"
    sink.writer.copy("placements", con, _PLACEMENTS.format(old=rows))
    count, examples = con.execute(
        f"""SELECT count(*), coalesce(list(p.job_id ORDER BY p.file_row_number)[:5], [])
        FROM {rows} p JOIN shown s USING (job_id, attempt, node_id) WHERE p.gpu_count <> len(s.gpu_index)"""
    ).fetchall()[0]
    sink.check("telemetry_shows_other_gpus", count, len(shown), _DIFFERENT, examples)
