"""Generate PAI-format tables at released size from a seed.

python benchmarks/pai_tables.py -o DIR [--tasks 1261050] [--instances 7522002] [--sensors 3033232] [--tags 1055032]
                                       [--metrics 2009423]

A count of 0 omits that table. Names are as long as in the release, with 24 digits for jobs and machines, and 60 for
aliases, instances and workers.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 500_000
_STATUS = ["Terminated", "Failed", "Running"]
_MACHINES = 1897
_JOB, _ALIAS, _INSTANCE, _WORKER, _MACHINE, _GROUP = range(1, 7)
"""Kinds of names."""
_DIGITS = {_JOB: 24, _ALIAS: 60, _INSTANCE: 60, _WORKER: 60, _MACHINE: 24, _GROUP: 32}


@dataclass(frozen=True)
class _Workers:
    """All instances in the order of the instance table, in arrays of shape (instances,)."""

    job: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    """End time [s], or -1 while the instance runs."""
    machine: NDArray[np.int64]


def write_pai_tables(
    folder: Path, tasks: int, instances: int, *, sensors: int = 0, tags: int = 0, metrics: int = 0, seed: int = 2020
) -> None:
    """Write the job, task and instance tables, and the other tables whose count is above 0, without header lines.

    Parameters
    ----------
    folder : Path
        Folder for the pai_*.csv files.
    tasks, instances : int
        Numbers of rows in the task and instance tables. The number of jobs follows from the tasks.
    sensors, tags, metrics : int
        Numbers of rows in the sensor, group tag and machine metric tables, at most one per instance or job.
    seed : int
        Random seed for all choices.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    jobs = int(tasks / 1.195)
    begin = np.sort(rng.integers(500_000, 6_400_000, jobs))
    run = np.clip(rng.lognormal(7, 2, jobs), 1, 3_000_000).astype(np.int64)
    user = np.char.add("user", rng.zipf(1.4, jobs).clip(1, 1300).astype(str))
    status = rng.choice(_STATUS, jobs, p=[0.65, 0.29, 0.06])
    end = np.where(status == "Running", -1, begin + run)
    with (folder / "pai_job_table.csv").open("wb") as out:
        for part in _parts(jobs):
            _frame(
                job=_names(part, _JOB),
                alias=_names(part, _ALIAS),
                user=user[part],
                status=status[part],
                start=begin[part],
                end=end[part],
            ).write_csv(out, include_header=False)
    job_of_task = np.concatenate([np.arange(jobs), np.sort(rng.integers(0, jobs, tasks - jobs))])
    first = np.arange(tasks) < jobs
    with (folder / "pai_task_table.csv").open("wb") as out:
        for part in _parts(tasks):
            owner = job_of_task[part]
            _frame(
                job=_names(owner, _JOB),
                task=np.where(first[part], "worker", np.char.add("ps", part.astype(str))),
                number=rng.choice([1, 2, 4, 8, 16], len(part)),
                status=status[owner],
                start=begin[owner],
                end=end[owner],
                cpu=np.full(len(part), 600.0),
                memory=np.full(len(part), 29.297),
                gpu=rng.choice([25.0, 50.0, 100.0, 200.0], len(part)),
                model=rng.choice(["T4", "P100", "V100", "MISC"], len(part)),
            ).write_csv(out, include_header=False)
    owners = np.concatenate([np.arange(jobs), np.sort(rng.integers(0, jobs, instances - jobs))])
    start = begin[owners] + rng.integers(0, 600, instances)
    workers = _Workers(owners, start, end[owners], rng.integers(0, _MACHINES, instances))
    _write_instances(folder / "pai_instance_table.csv", workers)
    if sensors:
        _write_sensors(rng, folder / "pai_sensor_table.csv", workers, min(sensors, instances))
    if tags:
        _write_tags(rng, folder / "pai_group_tag_table.csv", user, min(tags, jobs))
    if metrics:
        _write_metrics(rng, folder / "pai_machine_metric.csv", workers, min(metrics, instances))


def _write_instances(path: Path, workers: _Workers) -> None:
    with path.open("wb") as out:
        for part in _parts(len(workers.job)):
            owner = workers.job[part]
            _frame(
                job=_names(owner, _JOB),
                task=np.full(len(part), "worker"),
                instance=_names(part, _INSTANCE),
                worker=_names(part, _WORKER),
                alias=_names(owner, _ALIAS),
                status=np.where(workers.end[part] < 0, "Running", "Terminated"),
                start=workers.start[part],
                end=workers.end[part],
                machine=_names(workers.machine[part], _MACHINE),
            ).write_csv(out, include_header=False)


def _write_sensors(rng: np.random.Generator, path: Path, workers: _Workers, rows: int) -> None:
    """Write the usage of some workers in random order. One in five has no GPU values."""
    measured = rng.permutation(len(workers.job))[:rows]
    with path.open("wb") as out:
        for part in _parts(rows):
            worker = measured[part]
            gpus = pl.Series(rng.random(len(part)) < 0.8)
            cpu, memory, gpu, gpu_memory = (rng.gamma(0.8, scale, len(part)) for scale in (300, 12, 30, 2.5))
            frame = pl.DataFrame(
                {
                    "job": _names(workers.job[worker], _JOB),
                    "task": np.full(len(part), "worker"),
                    "worker": _names(worker, _WORKER),
                    "alias": _names(workers.job[worker], _ALIAS),
                    "machine": _names(workers.machine[worker], _MACHINE),
                    "gpu_name": np.full(len(part), "/dev/nvidia0"),
                    "cpu": cpu,
                    "gpu": gpu,
                    "memory": memory,
                    "memory_most": memory * 1.5,
                    "gpu_memory": gpu_memory,
                    "gpu_memory_most": gpu_memory * 1.5,
                    **{f"io{n}": rng.gamma(0.5, 1e6, len(part)) for n in range(4)},
                }
            )
            frame.with_columns(
                pl.when(gpus).then(pl.col(c)).alias(c) for c in ("gpu_name", "gpu", "gpu_memory", "gpu_memory_most")
            ).write_csv(out, include_header=False)


def _write_tags(rng: np.random.Generator, path: Path, user: NDArray[Any], rows: int) -> None:
    """Write the tags of some jobs in random order. One in eleven names a model."""
    tagged = rng.permutation(len(user))[:rows]
    with path.open("wb") as out:
        for part in _parts(rows):
            job = tagged[part]
            pl.DataFrame(
                {
                    "alias": _names(job, _ALIAS),
                    "user": user[job],
                    "spec": _sometimes(rng, rng.choice(["T4", "P100", "V100"], len(part)), 0.15),
                    "group": _names(rng.integers(0, len(user) // 5 + 1, len(part)), _GROUP),
                    "workload": _sometimes(rng, rng.choice(["ctr", "graphlearn", "bert", "nmt"], len(part)), 0.09),
                }
            ).write_csv(out, include_header=False)


def _write_metrics(rng: np.random.Generator, path: Path, workers: _Workers, rows: int) -> None:
    """Write the usage of machines over the lifetimes of some workers, in random order."""
    measured = rng.permutation(len(workers.job))[:rows]
    with path.open("wb") as out:
        for part in _parts(rows):
            worker = measured[part]
            iowait, kernel, user = (rng.gamma(0.8, scale, len(part)).clip(0, 33) for scale in (0.1, 4, 20))
            _frame(
                worker=_names(worker, _WORKER),
                machine=_names(workers.machine[worker], _MACHINE),
                start=workers.start[worker],
                end=workers.end[worker],
                iowait=iowait,
                kernel=kernel,
                user=user,
                gpu=rng.gamma(0.8, 100, len(part)).clip(0, 800),
                load=rng.gamma(1.0, 15, len(part)),
                network=rng.gamma(0.8, 1e8, len(part)),
                workers=rng.gamma(2.0, 3, len(part)),
                cpu=iowait + kernel + user,
            ).write_csv(out, include_header=False)


def _sometimes(rng: np.random.Generator, words: NDArray[Any], share: float) -> pl.Series:
    """Return the words with a random part set to NULL, keeping a share of about `share`."""
    return pl.select(pl.when(pl.Series(rng.random(len(words)) < share)).then(pl.Series(words))).to_series()


def _parts(total: int) -> list[NDArray[np.int64]]:
    return [np.arange(first, min(first + _BATCH, total)) for first in range(0, total, _BATCH)]


def _names(number: NDArray[Any], kind: int) -> pl.Series:
    """Return a name made of digits for each number. Equal numbers and kinds give equal names."""
    numbers = pl.Series(number.astype(np.uint64))
    parts = [numbers.hash(seed=kind + 10 * n).cast(pl.String).str.zfill(20) for n in range(_DIGITS[kind] // 20)]
    rest = _DIGITS[kind] % 20
    return pl.select(pl.concat_str([*parts, pl.lit(str(kind) * rest)] if rest else parts)).to_series()


def _frame(**columns: Any) -> pl.DataFrame:
    frame = pl.DataFrame(columns)
    return frame.with_columns(pl.when(pl.col("end") >= 0).then("end").alias("end")) if "end" in columns else frame


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_261_050)
    parser.add_argument("--instances", type=int, default=7_522_002)
    parser.add_argument("--sensors", type=int, default=3_033_232)
    parser.add_argument("--tags", type=int, default=1_055_032)
    parser.add_argument("--metrics", type=int, default=2_009_423)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    write_pai_tables(
        given.output,
        given.tasks,
        given.instances,
        sensors=given.sensors,
        tags=given.tags,
        metrics=given.metrics,
    )
