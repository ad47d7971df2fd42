"""Generate logs of the four Helios clusters at released size from a seed and the published statistics.

    python benchmarks/helios_logs.py -o DIR [--jobs 3362981]

The numbers of jobs, VCs and GPUs per cluster come from Hu et al., SC'21, Table 1. The distributions follow the same
study. More than half of the jobs request no GPU, most GPU jobs request one, and run times are heavy-tailed with a
median of minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

RELEASED_JOBS = 3_362_981
_STATES = ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"]
_BATCH = 500_000
_DAYS = 180


class Cluster(NamedTuple):
    """One cluster of Table 1."""

    name: str
    jobs_thousand: int
    vcs: int
    gpus: int


CLUSTERS = (
    Cluster("Venus", 247, 27, 1064),
    Cluster("Earth", 873, 25, 1144),
    Cluster("Saturn", 1753, 28, 2096),
    Cluster("Uranus", 490, 25, 2112),
)


def write_helios_logs(folder: Path, jobs: int = RELEASED_JOBS, seed: int = 2020) -> list[Path]:
    """Write each cluster's log and quota table, and return the paths of the logs.

    Parameters
    ----------
    folder : Path
        Folder for `<cluster>/cluster_log.csv` and `<cluster>/cluster_gpu_number.csv`.
    jobs : int
        Total number of jobs over all clusters.
    seed : int
        Seed. The same seed gives the same bytes.
    """
    rng = np.random.default_rng(seed)
    total = sum(cluster.jobs_thousand for cluster in CLUSTERS)
    ends = np.cumsum([cluster.jobs_thousand for cluster in CLUSTERS]) * jobs // total
    logs = []
    for cluster, count in zip(CLUSTERS, np.diff(ends, prepend=0).tolist(), strict=True):
        place = folder / cluster.name
        place.mkdir(parents=True, exist_ok=True)
        logs.append(place / "cluster_log.csv")
        with logs[-1].open("wb") as out:
            for first in range(0, count, _BATCH):
                frame = _batch(rng, cluster, first, min(_BATCH, count - first), count)
                frame.write_csv(out, include_header=first == 0, datetime_format="%Y-%m-%d %H:%M:%S")
        _quotas(cluster).write_csv(place / "cluster_gpu_number.csv")
    return logs


def _quotas(cluster: Cluster) -> pl.DataFrame:
    """Divide the GPUs into nodes of 8, in the same way for every day."""
    nodes = cluster.gpus // 8
    each = [nodes // cluster.vcs + (vc < nodes % cluster.vcs) for vc in range(cluster.vcs)]
    days = np.datetime64("2020-04-01") + np.arange(_DAYS)
    return pl.DataFrame(
        {"date": days, **{f"vc{vc}": np.full(_DAYS, 8 * count) for vc, count in enumerate(each)}}
    ).with_columns(total=pl.lit(8 * sum(each)))


def _batch(rng: np.random.Generator, cluster: Cluster, first: int, count: int, total: int) -> pl.DataFrame:
    span_s = _DAYS * 86_400
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
            "vc": np.char.add("vc", rng.integers(0, cluster.vcs, count).astype(str)),
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
    parser.add_argument("--jobs", type=int, default=RELEASED_JOBS)
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    for path in write_helios_logs(given.output, given.jobs, given.seed):
        print(path)
