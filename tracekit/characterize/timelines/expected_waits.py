"""The wait that each job would have been told when it began to wait, and whether its own fell in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.expected_wait.backtest import backtest
from tracekit.characterize.expected_wait.likeness import Lately, waiting_jobs
from tracekit.characterize.timeline import TimelineRows, TimelineTable
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    level, judged = float(params["level"]), float(params["judged_share"])
    for name, value in (("level", level), ("judged_share", judged)):
        if not 0 < value < 1:
            raise UsageError(f"{name} is {value:g}", where=f"--param {name}", hint="give a share between 0 and 1")
    lately = Lately(max(2, int(params["least"])), max(2, int(params["window"])), float(params["days"]))
    jobs, notes = waiting_jobs(con)
    found = backtest(jobs, lately, level).rows
    frame = found.with_row_index("place").with_columns(
        judged=pl.col("place") >= (1 - judged) * found.height,
        inside=pl.when(pl.col("below").is_not_null()).then(
            (pl.col("wait_s") >= pl.col("low_s")) & (pl.col("wait_s") <= pl.col("high_s").fill_null(float("inf")))
        ),
    )
    return TimelineRows(frame.drop("place"), tuple(notes))


EXPECTED_WAITS = TimelineTable(
    name="expected_waits",
    title="The wait that each job would have been told, and whether its own fell in",
    tables=("jobs",),
    views=("job_classes",),
    params=(
        Param("level", 0.8, "share of the waits that an interval shall hold"),
        Param("window", 100, "how many of the latest jobs like it are looked at"),
        Param("least", 20, "fewest jobs like it that tell anything"),
        Param("days", 56, "jobs that began to wait longer ago are left out, in days"),
        Param("judged_share", 0.5, "share of the jobs, the last ones, that are judged; the others are learned from"),
    ),
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("gpu_class", "class", "its size class; NULL when unknown"),
        AnswerColumn("class_order", "number", "order of the class"),
        AnswerColumn("step", "number", "in how many things the jobs like it may differ; -1: too few are like it"),
        AnswerColumn("like_jobs", "jobs", "jobs like it"),
        AnswerColumn("low_s", "s", "lower end; NULL when too few are like it"),
        AnswerColumn("high_s", "s", "upper end; NULL when none is known"),
        AnswerColumn("wait_s", "s", "how long it waited, at least so long where it did not start"),
        AnswerColumn("started", "true or false", "whether it started"),
        AnswerColumn("below", "ratio 0..1", "which part of the wait lies below; NULL when not told, or not known"),
        AnswerColumn("above", "ratio 0..1", "which part of it lies above"),
        AnswerColumn("judged", "true or false", "whether it is among the last jobs, which are judged"),
        AnswerColumn("inside", "true or false", "whether the wait lies between the ends, both included"),
    ),
    rule="""A wait is the time from when a job could have been started (its submission, where no later time is known) to
its first start. A job that still waits, or left the queue without a start, has waited at least so long (Kaplan and
Meier, 1958). Jobs are alike when cluster, size class, partition (or VC), GPU model, QOS, number of GPUs, class of time
limit (to 1 h, 4 h, 24 h, more) and account are the same; where fewer than `least` are, account is given up, then the
limit, the number, the QOS, the model, the partition. Cluster and size class never are. Of these the latest `window` of
the last `days` count, which began to wait before the job did.
The quantile p of n waits lies at the place p (n + 1). The ends start at the quantiles (1 - level) / 2 and (1 + level) /
2; where more than the first of these start at once, the interval begins at 0 and ends at the quantile `level`. For each
cluster and size class the ends then learn: after a wait beyond an end it moves outwards, else inwards, by 0.05 of the
waits times (missed - allowed), as adaptive conformal inference does (Gibbs and Candes, NeurIPS 2021); from the 300th
outcome on by less, down to 0.01 (decaying steps: Angelopoulos, Barber and Bates, ICML 2024). What became of a job is
learned when it was known and no sooner.
A wait that equals an end counts as missed in part, where many waits are alike: by the share of them that lies beyond
the quantile (as in Czado, Gneiting and Held, Biometrics 2009). `inside` counts it wholly in.""",
    compute=_compute,
)
