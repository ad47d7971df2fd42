"""Samples that the log itself, or a mapping file beside it, has written without saying whose job held the GPU.

They are joined by the same rules as telemetry of other kinds: where `job_id` has what a mapped column calls the job, it
is taken for a label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.databases import sql_text
from tracekit.ingest.telemetry._metrics import COLUMNS
from tracekit.ingest.telemetry._series import Labels, Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from tracekit.ingest.sink import Sink

_BATCH = 1 << 19
_KEY = ("node_id", "gpu_index", "gpu_instance", "job_id")


def samples_lack_jobs(sink: Sink) -> bool:
    """Return whether the log has samples that no query can join to jobs by the GPU."""
    samples, placements = (sink.folder / f"{table}.parquet" for table in ("gpu_utilization", "placements"))
    if not samples.is_file():
        return False
    with sink.connect() as con:
        if _any(con, f"FROM read_parquet({sql_text(samples)}) WHERE job_id IS NOT NULL"):
            return True
        placed = f"FROM read_parquet({sql_text(placements)})"
        return placements.is_file() and not _any(con, f"{placed} WHERE len(gpu_index) > 0")


def _any(con: duckdb.DuckDBPyConnection, rows: str) -> bool:
    return bool(con.execute(f"SELECT 1 {rows} LIMIT 1").fetchall())


def own_samples(con: duckdb.DuckDBPyConnection, sink: Sink) -> Iterator[Samples]:
    """Yield the samples of gpu_utilization, which is then no more; the join writes it again."""
    import pyarrow.parquet as pq

    path = sink.folder / "gpu_utilization.parquet"
    ordered = sink.writer.scratch / "own_samples.parquet"
    key = ", ".join(_KEY)
    con.execute(
        f"""COPY (SELECT {key}, epoch_us(time) AS time, {", ".join(COLUMNS)} FROM read_parquet({sql_text(path)})
        ORDER BY {key}, time) TO {sql_text(ordered)} (FORMAT parquet)"""
    )
    path.unlink()
    for batch in pq.ParquetFile(ordered).iter_batches(_BATCH):
        frame = pl.DataFrame(pl.from_arrow(batch))
        for (node, gpu, instance, job), part in frame.group_by(_KEY, maintain_order=True):
            labels = Labels(str(node), int(gpu), None, instance, job, None, None)
            for column in COLUMNS:
                known = part.select("time", column).drop_nulls()
                if known.height:
                    times, values = known["time"].to_numpy(), known[column].to_numpy()
                    yield Samples(labels, f"gpu_utilization.{column}", times, values)
