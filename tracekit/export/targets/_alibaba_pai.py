"""Jobs as PAI's simulator reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.databases import sql_text
from tracekit.export.interface import ExportLog, Field, JobSelection
from tracekit.export.text import whole_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FIELDS", "job_rows"]

_ESTIMATES = {
    "user_dur": ("owner",),
    "user_gpu_dur": ("owner", "size"),
    "group_dur": ("owner", "team"),
    "group_gpu_dur": ("owner", "team", "size"),
}
"""Columns of predicted run times, and which earlier jobs each is the mean of."""

FIELDS = (
    Field("job_id", "whole number", "0 and up in order of submission"),
    Field("user", "who submitted it", "user, else 'unknown'"),
    Field("submit_time", "s from the first submission on", "submit_time"),
    Field("duration", "s", "sum of the attempts' run times, at least 1"),
    Field("num_inst", "instances that start together", "instance_count, else node_count, else 1"),
    Field("num_gpu", "GPUs of an instance, in hundredths", "gpu_count / num_inst"),
    Field("num_cpu", "CPU cores of an instance, in hundredths", "cpu_count / num_inst (option cpus)"),
    Field("gpu_type", "CPU, MISC, T4, P100, V100", "gpu_model; CPU without GPUs, MISC where unknown or several"),
    Field("group", "jobs that recur", "group, else the user"),
    Field("wait_time", "s that it waited on the real cluster", "start_time - submit_time, 0 where unknown"),
    Field("user_dur, user_gpu_dur", "predicted run time [s]", "mean of the user's earlier jobs (of as many GPUs)"),
    Field("group_dur, group_gpu_dur", "predicted run time [s]", "mean of the group's earlier jobs (of as many GPUs)"),
)


def job_rows(jobs: JobSelection, log: ExportLog, cpus: float, scratch: Path) -> Iterator[pl.DataFrame]:
    """Yield the rows of the jobs; `cpus` are the CPU cores of a job that states none."""
    log.filled("user", "unknown", jobs.unknown("user"))
    log.filled("group", "the user", jobs.unknown("group"))
    unknown = jobs.count_where("size > 0 AND (gpu_model IS NULL OR contains(gpu_model, '|'))")
    log.filled("gpu_type", "MISC", unknown)
    log.filled("num_inst", "the nodes, else 1", jobs.unknown("instance_count"))
    log.note(
        "predicted run times are means of earlier jobs; the first of a user or group gets the mean of all before it"
    )
    rounded = 0
    for block in _predicted(jobs, scratch):
        instances = pl.max_horizontal(pl.coalesce("instance_count", "node_count", pl.lit(1, dtype=pl.Int64)), 1)
        rows = block.with_columns(instances=instances)
        gpu = pl.col("size") / pl.col("instances")
        rounded += int(
            rows.select((gpu.round(2) * pl.col("instances") - pl.col("size")).abs() > 1e-6).to_series().sum()
        )
        model = pl.when(pl.col("gpu_model").str.contains("|", literal=True)).then(None).otherwise("gpu_model")
        yield rows.select(
            job_id=pl.col("n") - 1,
            user=pl.col("user").fill_null("unknown"),
            submit_time=whole_seconds("submit_s"),
            duration=whole_seconds("work_s").clip(lower_bound=1),
            num_inst="instances",
            num_gpu=gpu.round(2),
            num_cpu=(pl.col("cpu_count").fill_null(cpus) / pl.col("instances")).round(2),
            gpu_type=pl.when(pl.col("size") == 0).then(pl.lit("CPU")).otherwise(model.fill_null("MISC")),
            group=pl.coalesce("group", "user", pl.lit("unknown")),
            wait_time=pl.col("wait_s").clip(lower_bound=0).fill_null(0).round(),
            **{name: pl.col(name).round(2) for name in _ESTIMATES},
        )
    log.changed(rounded, "their GPUs do not divide into hundredths of a GPU for each instance; rounded")


def _predicted(jobs: JobSelection, scratch: Path) -> Iterator[pl.DataFrame]:
    """Yield the jobs in blocks, as `JobSelection.blocks` does, with the predicted run times."""
    # Whole microseconds: the sums do not depend on how the work is divided.
    micros = "CAST(round(work_s * 1e6) AS BIGINT)"
    means = ", ".join(f"coalesce({_mean(keys)}, {_mean(())}, 0) AS {name}" for name, keys in _ESTIMATES.items())
    file = scratch / "predicted.parquet"
    source = f"read_parquet({sql_text(jobs.file)}, file_row_number = true)"
    jobs.rows(
        f"COPY (SELECT * EXCLUDE (row, us, owner, team, file_row_number), row + 1 AS n, {means} FROM (SELECT *, "
        f"file_row_number AS row, {micros} AS us, coalesce(\"user\", '') AS owner, "
        f'coalesce("group", "user", \'\') AS team FROM {source}) ORDER BY row) TO {sql_text(file)} (FORMAT parquet)'
    )
    yield from jobs.blocks_of(file)


def _mean(keys: tuple[str, ...]) -> str:
    """Return the mean run time of the earlier jobs that agree in `keys` [s], NULL where there is none."""
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    frame = f"({partition}ORDER BY row ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"sum(us) OVER {frame} / 1e6 / count(*) OVER {frame}"
