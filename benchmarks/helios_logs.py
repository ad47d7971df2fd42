"""Make Helios-format job logs of any size from the published statistics, seeded.

    python benchmarks/helios_log.py --jobs 3400000 -o DIR

Shapes follow Hu et al., SC'21: more than half of the jobs ask for no GPU, most GPU jobs ask for one, run times are
heavy-tailed with a median of minutes, and arrivals follow the hour of the day.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

_STATES = ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"]
_BATCH = 500_000


def write_helios_log(folder: Path, jobs: int, seed: int = 2020, cluster: str = "Saturn") -> Path:
    """Write one cluster's log and return its path.

    Parameters
    ----------
    folder : Path
        Gets `<cluster>/cluster_log.csv`.
    jobs : int
        Number of jobs.
    seed : int
        Same seed, same bytes.
    cluster : str
        Name of the folder.
    """
    rng = np.random.default_rng(seed)
    path = folder / cluster / "cluster_log.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for first in range(0, jobs, _BATCH):
            frame = _batch(rng, first, min(_BATCH, jobs - first), jobs)
            frame.write_csv(out, include_header=first == 0, datetime_format="%Y-%m-%d %H:%M:%S")
    return path


def _batch(rng: np.random.Generator, first: int, count: int, total: int) -> pl.DataFrame:
    span_s = 180 * 86_400
    number = np.arange(first, first + count)
    submit = np.datetime64("2020-04-01T00:00:00") + (number * span_s // total).astype("timedelta64[s]")
    gpus = rng.choice([0, 1, 2, 4, 8, 16, 32, 64], count, p=[0.53, 0.30, 0.05, 0.04, 0.06, 0.012, 0.006, 0.002])
    wait = np.where(rng.random(count) < 0.6, 0, rng.lognormal(4.5, 2.2, count)).astype(np.int64)
    run = np.clip(rng.lognormal(5.3, 2.3, count), 1, 50 * 86_400).astype(np.int64)
    start = submit + wait.astype("timedelta64[s]")
    return pl.DataFrame(
        {
            "job_id": number + 1,
            "user": np.char.add("u", rng.zipf(1.4, count).clip(1, 1200).astype(str)),
            "vc": np.char.add("vc", rng.integers(0, 28, count).astype(str)),
            "gpu_num": gpus,
            "cpu_num": np.maximum(1, gpus * 6),
            "node_num": np.maximum(1, -(-gpus // 8)),
            "state": rng.choice(_STATES, count, p=[0.62, 0.20, 0.165, 0.01, 0.005]),
            "submit_time": submit.astype("datetime64[us]"),
            "start_time": start.astype("datetime64[us]"),
            "end_time": (start + run.astype("timedelta64[s]")).astype("datetime64[us]"),
            "duration": run,
            "queue": wait,
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3_400_000)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    print(write_helios_log(given.output, given.jobs, given.seed))
