"""Repeated samples in telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.databases import sql_text

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

_REPEATED = "repeated GPU samples of the same time, machine and GPU; the last in the file is used"


class RepeatProof:
    """Shows while files are read that none of their samples repeats, without keeping the samples.

    That is certain as long as the times of each machine in a block are later than those in all blocks before, as in
    files ordered by time, by machine, or by both.

    Attributes
    ----------
    holds : bool
        Whether no sample so far repeats another; False when that is not certain.
    """

    def __init__(self) -> None:
        self.holds = True
        time = pl.Datetime("us")
        self._spans = pl.DataFrame(schema={"node_id": pl.String, "first": time, "last": time})

    def add(self, samples: pl.DataFrame) -> None:
        """Examine the next block of rows: `time` and `node_id`, one row for each sample of a machine."""
        if not self.holds:
            return
        # Different rows that share a hash only end the proof.
        keys = samples.select(pl.col("time").hash(seed=1) ^ pl.col("node_id").hash(seed=2)).to_series()
        if keys.n_unique() < len(keys):
            self.holds = False
            return
        self._follow(samples.group_by("node_id").agg(first=pl.col("time").min(), last=pl.col("time").max()))

    def told(self) -> pl.DataFrame:
        """Return what `follow` has to know of the samples of a file; with `holds` False, nothing more."""
        if self.holds:
            return self._spans.with_columns(holds=True)
        return pl.DataFrame({"holds": [False]})

    def follow(self, told: pl.DataFrame) -> None:
        """Examine the next file, whose own proof has told this."""
        self.holds &= bool(told["holds"].all())
        if self.holds:
            self._follow(told.drop("holds"))

    def _follow(self, spans: pl.DataFrame) -> None:
        before = spans.join(self._spans, on="node_id", how="full", coalesce=True, suffix="_before")
        later = before.select(((pl.col("first") > pl.col("last_before")) | pl.col("first").is_null()).all()).item()
        self.holds = bool(later)
        self._spans = before.select(
            "node_id",
            first=pl.min_horizontal("first", "first_before"),
            last=pl.max_horizontal("last", "last_before"),
        )


def keep_last_samples(sink: Sink) -> None:
    """Keep one row for each time, machine and GPU in gpu_utilization, and count the others.

    One sample is one GPU for one sampling interval, so that a repeated sample would weigh twice. The last in the file
    is kept, as in the notebook published with the Philly traces. Only rows that share a hash are compared, so that
    memory stays bounded.
    """
    path = sink.folder / "gpu_utilization.parquet"
    if not path.is_file():
        return
    if sink.distinct_samples:
        sink.check("repeated_gpu_samples", 0, sink.writer.tables()["gpu_utilization"].rows, _REPEATED)
        return
    sink.progress.stage("looking for repeated samples")
    with sink.connect() as con:
        rows = f"read_parquet({sql_text(path)}, file_row_number = true)"
        samples = f"(SELECT *, hash(time, node_id, gpu_index, gpu_instance) AS key FROM {rows})"
        con.execute(f"CREATE TABLE twice AS SELECT key FROM {samples} GROUP BY key HAVING count(*) > 1")
        con.execute(
            f"""CREATE TABLE repeated AS
            SELECT file_row_number, time, node_id, gpu_index, gpu_instance FROM {samples} SEMI JOIN twice USING (key)
            QUALIFY row_number() OVER (
                PARTITION BY time, node_id, gpu_index, gpu_instance ORDER BY file_row_number DESC) > 1"""
        )
        count, examples = con.execute(
            "SELECT count(*), min(node_id || ' gpu' || gpu_index || ' at ' || time, 5) FROM repeated"
        ).fetchall()[0]
        total = con.execute(f"SELECT count(*) FROM read_parquet({sql_text(path)})").fetchall()[0][0]
        sink.check("repeated_gpu_samples", count, total, _REPEATED, examples)
        if count:
            rest = sink.writer.scratch / "gpu_utilization.parquet"
            path.replace(rest)
            sink.writer.copy(
                "gpu_utilization",
                con,
                f"SELECT * FROM read_parquet({sql_text(rest)}, file_row_number = true) "
                "ANTI JOIN repeated USING (file_row_number) ORDER BY file_row_number",
            )
