"""What rows of `sacct` say against themselves, and what is assumed where they are not clear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.ingest.derived import disagrees, in_seconds

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

__all__ = ["count_contradictions"]


def count_contradictions(frame: pl.DataFrame, sink: Sink) -> None:
    """Count what the rows of a block, in UTC and with their resources, say against themselves."""
    jobs = frame.filter(pl.col("step").is_null())
    timed = pl.col("started") & pl.col("ended") & pl.col("Start").is_not_null()
    ours = pl.when(timed).then(in_seconds(pl.col("End") - pl.col("StartStated")) - pl.col("Suspended").fill_null(0.0))
    listed = pl.col("NodeList").list.len()
    unfinished = ~pl.col("ended") & pl.col("EndLocal").is_not_null()
    for name, found, of, meaning in (
        (
            "duration_disagrees",
            disagrees(pl.col("stated_s"), ours),
            (pl.col("stated_s") - ours).is_not_null(),
            "rows whose stated Elapsed is not End minus Start minus Suspended; the times are used",
        ),
        (
            "end_of_unfinished_job",
            unfinished,
            pl.lit(value=True),
            "rows that carry an end although their state says that they have not ended; the end is not used",
        ),
        (
            "unknown_status_word",
            pl.col("status") == "unknown",
            pl.lit(value=True),
            "rows whose state is not in the format's description; their status is 'unknown'",
        ),
        (
            "node_count_disagrees",
            pl.col("NNodes") != listed,
            pl.col("NNodes").is_not_null() & listed.is_not_null(),
            "rows whose NNodes is not the number of nodes in their NodeList; both are kept",
        ),
        (
            "typed_gpus_disagree",
            pl.col("typed_differ"),
            pl.col("typed_differ").is_not_null(),
            "rows whose typed GPU entries do not add up to gres/gpu; gres/gpu is used",
        ),
        (
            "shared_gpus_unknown",
            pl.col("unknown_shares"),
            pl.lit(value=True),
            "rows with parts of GPUs of unknown size (gres/shard, gres/mps); option shards_per_gpu states the former",
        ),
        (
            "gres_by_number",
            pl.col("gres_by_number"),
            pl.col("AllocGRES").is_not_null() | pl.col("ReqGRES").is_not_null(),
            "rows whose GRES list names 7696487, the number that Slurm makes of the letters gpu; taken for GPUs",
        ),
        (
            "resized_runs",
            pl.col("resized"),
            pl.lit(value=True),
            "rows that go on a job whose size was changed; they state its first start and are counted from the change",
        ),
    ):
        rows = jobs.select(found=found, of=of)
        sink.check_rows(name, rows["found"], meaning, jobs["JobID"], int(rows["of"].sum()))
