"""The wait predicted for each job when it began to wait, and whether the actual wait fell within the interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.expected_wait.backtest import backtest
from tracekit.characterize.expected_wait.likeness import Lately, waiting_jobs
from tracekit.characterize.expected_wait.state import ROOM_TABLES, Room, with_states
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
    lately = Lately(max(2, int(params["least"])), max(2, int(params["window"])), days=float(params["days"]))
    jobs, notes = waiting_jobs(con)
    jobs = with_states(jobs, Room.read(con))
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
    title="The wait predicted for each job, and whether the actual wait fell within the interval",
    tables=("jobs",),
    views=("job_classes", "node_gpus", "open_attempts", "trace_capabilities", "trace_nodes", "trace_window"),
    also=ROOM_TABLES,
    params=(
        Param("level", 0.8, "share of the waits that an interval should cover"),
        Param("window", 100, "maximum number of similar jobs to use (those with the most similar queues)"),
        Param("least", 20, "minimum number of similar jobs for a prediction"),
        Param("days", 56, "maximum age of a similar job's wait, in days since it began"),
        Param(
            "judged_share", 0.5, "share of the jobs that are tested (the latest jobs); the others are used for learning"
        ),
    ),
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("gpu_class", "class", "the job's size class; NULL when unknown"),
        AnswerColumn("class_order", "number", "order of the class"),
        AnswerColumn(
            "step", "number", "number of attributes that similar jobs may differ in, or -1 if too few jobs are similar"
        ),
        AnswerColumn("like_jobs", "jobs", "number of similar jobs that are used"),
        AnswerColumn("ahead_jobs", "jobs", "waiting jobs ahead in the cluster: of GPU jobs, or of jobs without GPUs"),
        AnswerColumn("ahead_gpus", "GPUs", "GPUs that these jobs need; without GPUs, their number"),
        AnswerColumn("ahead_s", "s", "their GPUs times their time limits, divided by `places`"),
        AnswerColumn("places", "GPUs", "GPUs of the cluster's nodes or, if unknown, the most in use at once so far"),
        AnswerColumn("fits", "true or false", "whether the job fits on the fewest free nodes; NULL when unknown"),
        AnswerColumn(
            "load_class", "number", "queue length: 0 for none, then ahead_gpus / places up to 0.1, 0.5, 1.5 and more"
        ),
        AnswerColumn("low_s", "s", "lower end of the interval; NULL when too few jobs are similar"),
        AnswerColumn("high_s", "s", "upper end of the interval; NULL when unknown"),
        AnswerColumn("wait_s", "s", "how long the job waited, which is a lower bound if it did not start"),
        AnswerColumn("started", "true or false", "whether the job started"),
        AnswerColumn(
            "below", "ratio 0..1", "part of the wait below the interval; NULL if there is no interval or when unknown"
        ),
        AnswerColumn("above", "ratio 0..1", "part of the wait above the interval"),
        AnswerColumn("judged", "true or false", "whether the job is among the last jobs, which are tested"),
        AnswerColumn("inside", "true or false", "whether the wait is between the ends, both included"),
    ),
    rule="""A wait runs from when a job could have started (its submission, if no later time is known) to its first
    start. If a job still waits or left the queue without starting, the time so far is a lower bound (Kaplan and Meier,
    1958). Jobs are similar if they have the same cluster, size class, partition (or
VC), GPU model, QOS, number of GPUs, time limit class (to 1 h, 4 h, 24 h, more) and account. If fewer than `window` jobs
are similar, the account and the time limit class are dropped. If fewer than `least` jobs are, the number of GPUs is
dropped, then the QOS, the GPU model and the partition, but never the cluster and the size class. Of the latest 400
similar jobs that began to wait earlier, within the last `days` days, half are used: those in the most similar state, at
least `least` and at most `window`. States differ by the logarithm of the work ahead (ahead_s plus 10 minutes), and by 3
if the job fits in only one of them. The wait of a used job is scaled by the ratio of the job's work ahead to its own.
The quantile p of n waits is at place p (n + 1). The ends of the interval start at the quantiles (1 - level) / 2 and (1
+ level) / 2. If the job fits, or more than (1 - level) / 2 of the jobs start at once, the interval begins at 0 and ends
at the quantile `level`. The ends then learn for each cluster, size class, queue length and whether the job fits: an end
moves outwards after a wait beyond it, and otherwise inwards, by 0.05 of the waits times (missed - allowed), as in
adaptive conformal inference (Gibbs and Candes, NeurIPS 2021). From the 300th outcome, the steps shrink to 0.01
(decaying steps: Angelopoulos, Barber and Bates, ICML 2024). A job's outcome is learned when it becomes known. If many
waits equal an end, each counts as partly missed, by the share of them beyond the quantile (as in Czado, Gneiting and
Held, Biometrics 2009). `inside` counts them all as inside.""",
    compute=_compute,
)
