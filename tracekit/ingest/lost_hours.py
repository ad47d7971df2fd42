"""GPU-hours of records that were set aside, beside those of the records that are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.text import count, percent

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["MUCH", "count_rejected_hours"]

MUCH = 0.01
"""Share of the GPU-hours that a reader must know of where records with more of them are set aside."""

_NAME = "rejected_gpu_hours"

_MEANING = (
    "GPU-hours of runs whose records were set aside, as far as these state GPUs and run time; they are in no result "
    "(see the table rejects)"
)


def count_rejected_hours(con: duckdb.DuckDBPyConnection, tables: set[str], sink: Sink) -> None:
    """Count the GPU-hours that rejects cost, and say so where they are more than `MUCH` of all.

    Only readers that know the GPU time of records which they set aside tell; elsewhere nothing is counted.
    """
    earlier = sink.checks.pop(_NAME, None)
    lost = sink.rejected_gpu_s / 3600 + (earlier.count if earlier else 0)
    if not lost:
        return
    used = 0.0
    if "attempts" in tables:
        query = "SELECT coalesce(sum(run_s * gpu_count), 0) / 3600 FROM attempts"
        used = float(con.execute(query).fetchall()[0][0])
    sink.check(_NAME, round(lost), round(lost + used), _MEANING)
    if lost > MUCH * (lost + used):
        sink.note(
            f"records that could not be read hold at least {percent(lost / (lost + used))} of the GPU-hours, "
            f"{count(lost)} of {count(lost + used)}: they are missing from all results (see the table rejects)"
        )
