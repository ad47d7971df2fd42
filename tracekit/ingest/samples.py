"""Telemetry that states the same sample twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.trace import sql_text

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

__all__ = ["keep_last_samples"]


def keep_last_samples(sink: Sink) -> None:
    """Leave one row for each time, machine and GPU in gpu_utilization, and count the others.

    One sample is one GPU for one sampling interval, so that a sample that stands twice would weigh twice. The
    last in the file stands, as in the notebook published with the Philly traces. Rows that share a hash are looked
    at closely; all others pass as they are, in bounded memory.
    """
    path = sink.folder / "gpu_utilization.parquet"
    if not path.is_file():
        return
    sink.progress.stage("looking for repeated samples")
    with sink.connect() as con:
        rows = f"read_parquet({sql_text(path)}, file_row_number = true)"
        samples = f"(SELECT *, hash(time, node_id, gpu_index) AS key FROM {rows})"
        con.execute(f"CREATE TABLE twice AS SELECT key FROM {samples} GROUP BY key HAVING count(*) > 1")
        con.execute(
            f"""CREATE TABLE repeated AS
            SELECT file_row_number, time, node_id, gpu_index FROM {samples} SEMI JOIN twice USING (key)
            QUALIFY row_number() OVER (PARTITION BY time, node_id, gpu_index ORDER BY file_row_number DESC) > 1"""
        )
        count, examples = con.execute(
            "SELECT count(*), min(node_id || ' gpu' || gpu_index || ' at ' || time, 5) FROM repeated"
        ).fetchall()[0]
        total = con.execute(f"SELECT count(*) FROM read_parquet({sql_text(path)})").fetchall()[0][0]
        sink.check(
            "repeated_gpu_samples",
            count,
            total,
            "GPU samples that another one with the same time, machine and GPU follows; the last in the file stands",
            examples,
        )
        if count:
            rest = sink.writer.scratch / "gpu_utilization.parquet"
            path.replace(rest)
            sink.writer.copy(
                "gpu_utilization",
                con,
                f"SELECT * FROM read_parquet({sql_text(rest)}, file_row_number = true) "
                "ANTI JOIN repeated USING (file_row_number) ORDER BY file_row_number",
            )
