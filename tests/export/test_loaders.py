"""Every target, of every sample trace, read as the simulator's loader reads it: the jobs are those of the Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.export.loaders import LOADERS, Loaded
from tracekit.errors import UsageError
from tracekit.export.api import export
from tracekit.export.interface import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

FIRST = ("alibaba-pai", "slurm")
"""Parts of GPUs and instances; attempts and jobs that never ran."""
SAMPLES = (
    "philly",
    "helios",
    "alibaba-openb",
    "alibaba-spot",
    "alibaba-dlrm",
    "acme",
    "kubernetes",
    "pbs",
    "lsf",
)
NAMES = {"tiresias": "jobs.csv", "csv": "jobs.csv"}
OPTIONS = {"helios": {"jobs": "gpu", "least_s": "1"}, "swf": {"jobs": "gpu", "incomplete": "leave-out"}}
WALL = ("swf", "csv")
"""Targets that state the time from first start to last end."""
PARTS = ("csv", "alibaba-sim")
"""Targets that know parts of a GPU."""


def expected(trace: Trace, target: str) -> list[Loaded]:
    """Return the jobs that ran on GPUs, worked out from the tables by another way than exports do."""
    jobs = trace.scan("jobs").collect()
    if trace.has("attempts"):
        work = trace.scan("attempts").group_by("job_id").agg(work=pl.col("run_s").drop_nulls().sum(),
                                                             known=pl.col("run_s").count())  # fmt: skip
        jobs = jobs.join(work.collect(), on="job_id", how="left")
    else:
        jobs = jobs.with_columns(work=None, known=0)
    wall = pl.coalesce("run_s", (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
    by_attempts = pl.when(pl.col("known") > 0).then("work")
    run = wall if target in WALL else pl.coalesce(by_attempts, wall)
    taken = jobs.with_columns(run=run, work=pl.coalesce(by_attempts, wall)).filter(
        pl.col("submit_time").is_not_null(),
        pl.col("gpu_count") > 0,
        ~pl.col("status").is_in(["running", "pending"]).fill_null(value=False),
        pl.col("work").is_not_null(),
        pl.col("work").is_between(0, 100 * 365 * 86_400),
    )
    if target == "csv":
        taken = taken.filter(pl.col("run").is_not_null())
    elif target == "swf":
        taken = taken.with_columns(pl.col("run").fill_null(-1))  # a wait or a run without an end
    elif target == "blox":
        taken = taken.filter(pl.col("gpu_count").ceil().is_in([1.0, 2.0, 4.0, 12.0, 16.0]))
    since = taken["submit_time"].min()
    size = pl.col("gpu_count") if target in PARTS else pl.col("gpu_count").ceil()
    rows = taken.select((pl.col("submit_time") - since).dt.total_microseconds() / 1e6, "run", size).sort(pl.all())
    return [Loaded(*row) for row in rows.iter_rows()]


def test_every_target_has_a_loader() -> None:
    assert set(LOADERS) == set(TARGETS.all())


@pytest.mark.parametrize("target", sorted(LOADERS))
@pytest.mark.parametrize("sample", [*FIRST, *(pytest.param(s, marks=pytest.mark.thorough) for s in SAMPLES)])
def test_a_loader_has_the_jobs_of_the_trace(
    sample: str, target: str, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    trace = sample_trace(sample)
    jobs = expected(trace, target)
    out = tmp_path / NAMES.get(target, "out")
    if not jobs:
        with pytest.raises(UsageError, match="no job"):
            export(trace, target, out, options=OPTIONS.get(target, {}))
        return
    begin = "2020-04-01" if target == "helios" else None
    done = export(trace, target, out, options=OPTIONS.get(target, {}), shift_to=begin)
    loaded = sorted(LOADERS[target](out))
    assert len(loaded) == len(jobs)
    assert target == "csv" or done.jobs == len(jobs)
    # Files have whole seconds, and no job of less than one; PAI's have hundredths of a GPU for each instance. Sorted,
    # rounded times of two jobs may change places.
    for column, slack in (("submit", 1.0), ("run", 1.0), ("size", 0.1 if target == "alibaba-sim" else 1e-9)):
        ours, theirs = (sorted(getattr(job, column) for job in found) for found in (jobs, loaded))
        assert theirs == pytest.approx(ours, abs=slack), column
    assert sum(job.run * job.size for job in loaded) == pytest.approx(sum(j.run * j.size for j in jobs), rel=0.01)
