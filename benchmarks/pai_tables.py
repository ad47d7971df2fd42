"""Make PAI-format tables at the released size, seeded.

python benchmarks/pai_tables.py -o DIR [--tasks 1261050] [--instances 7522002]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 500_000
_STATUS = ["Terminated", "Failed", "Running"]


def write_pai_tables(folder: Path, tasks: int, instances: int, seed: int = 2020) -> None:
    """Write pai_job_table.csv, pai_task_table.csv and pai_instance_table.csv, without header lines."""
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
                job=_hex(part, 1),
                alias=_hex(part, 2),
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
                job=_hex(owner, 1),
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
    _write_instances(rng, folder / "pai_instance_table.csv", instances, jobs, begin, end)


def _write_instances(
    rng: np.random.Generator, path: Path, instances: int, jobs: int, begin: NDArray[Any], end: NDArray[Any]
) -> None:
    owners = np.concatenate([np.arange(jobs), np.sort(rng.integers(0, jobs, instances - jobs))])
    with path.open("wb") as out:
        for part in _parts(instances):
            owner = owners[part]
            _frame(
                job=_hex(owner, 1),
                task=np.full(len(part), "worker"),
                instance=_hex(part, 3),
                worker=_hex(part, 4),
                alias=_hex(owner, 2),
                status=np.where(end[owner] < 0, "Running", "Terminated"),
                start=begin[owner] + rng.integers(0, 600, len(part)),
                end=end[owner],
                machine=_hex(rng.integers(0, 1897, len(part)), 5),
            ).write_csv(out, include_header=False)


def _parts(total: int) -> list[NDArray[np.int64]]:
    return [np.arange(first, min(first + _BATCH, total)) for first in range(0, total, _BATCH)]


def _hex(number: NDArray[Any], salt: int) -> pl.Series:
    """Return 24 hexadecimal digits for each number, the same for the same number and salt."""
    mixed = pl.Series(number.astype(np.uint64)).hash(seed=salt)
    return pl.select(pl.format("{}{}", mixed.cast(pl.String).str.zfill(20), pl.lit(f"{salt:04d}"))).to_series()


def _frame(**columns: Any) -> pl.DataFrame:
    frame = pl.DataFrame(columns)
    return frame.with_columns(pl.when(pl.col("end") >= 0).then("end").alias("end")) if "end" in columns else frame


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_261_050)
    parser.add_argument("--instances", type=int, default=7_522_002)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    write_pai_tables(given.output, given.tasks, given.instances)
