"""Generate Philly-format files at released size from a seed and the published statistics.

    python benchmarks/philly_files.py -o DIR [--jobs 117325] [--rows 9000000]

The job log has the released layout, an indented JSON array. The GPU file has one row per server and minute, with a time
zone suffix. Servers with 8 GPUs fill all cells, and other servers fill two. One cell in 200 is NA, for an offline GPU.
Nine million rows contain 45 million GPU samples, as many as the released file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl

_BATCH = 500_000
_BEGIN = np.datetime64("2017-08-07T00:00:00")
TELEMETRY_BEGIN = np.datetime64("2017-10-03T00:00:00")


def write_job_log(path: Path, jobs: int, seed: int = 2017, begin: np.datetime64 = _BEGIN, days: float = 137) -> None:
    """Write cluster_job_log with about 1.7 attempts per job, mostly on one GPU, submitted within `days` of `begin`."""
    rng = np.random.default_rng(seed)
    submit = begin + np.sort(rng.integers(0, round(days * 86_400), jobs)).astype("timedelta64[s]")
    attempts = np.where(rng.random(jobs) < 0.04, 0, 1 + rng.geometric(0.6, jobs) - 1)
    gpus = rng.choice([1, 2, 4, 8, 16], jobs, p=[0.84, 0.05, 0.05, 0.04, 0.02])
    with path.open("w", encoding="utf-8") as out:
        out.write("[\n")
        for job in range(jobs):
            out.write(_job_text(rng, job, submit[job], int(attempts[job]), int(gpus[job])))
            out.write(",\n" if job + 1 < jobs else "\n]\n")


def _job_text(rng: np.random.Generator, job: int, submit: np.datetime64, attempts: int, gpus: int) -> str:
    texts = []
    moment = submit
    runs, waits = rng.lognormal(6.5, 2.0, attempts).astype(int), rng.lognormal(4.0, 1.5, attempts).astype(int)
    for run, wait in zip(runs.tolist(), waits.tolist(), strict=True):
        start = moment + np.timedelta64(wait, "s")
        moment = start + np.timedelta64(run, "s")
        texts.append(_attempt_text(start, moment, int(rng.integers(0, 550)), gpus))
    inner = "[\n" + ",\n".join(texts) + "\n        ]" if texts else "[]"
    return (
        f'    {{\n        "status": "{("Pass", "Killed", "Failed")[job % 3]}", \n        "vc": "vc{job % 15:04x}", \n'
        f'        "jobid": "application_1506638472019_{job}", \n        "attempts": {inner}, \n'
        f'        "submitted_time": "{_text(submit)}", \n        "user": "{job % 319:06x}"\n    }}'
    )


def _attempt_text(start: np.datetime64, end: np.datetime64, node: int, gpus: int) -> str:
    details = []
    for part in range(-(-gpus // 8)):
        names = ", \n".join(f'                            "gpu{i}"' for i in range(min(8, gpus)))
        details.append(
            f'                    {{\n                        "ip": "m{node + part}", \n'
            f'                        "gpus": [\n{names}\n                        ]\n                    }}'
        )
    return (
        f'            {{\n                "start_time": "{_text(start)}", \n'
        f'                "end_time": "{_text(end)}", \n'
        '                "detail": [\n' + ", \n".join(details) + "\n                ]\n            }"
    )


def _text(moment: np.datetime64) -> str:
    return str(moment).replace("T", " ")


def write_gpu_file(path: Path, rows: int, servers: int = 400, seed: int = 2017) -> None:
    """Write cluster_gpu_util with `rows` rows, minute by minute over all servers. Every row ends with a comma."""
    rng = np.random.default_rng(seed)
    begin = TELEMETRY_BEGIN.astype("datetime64[us]")
    with path.open("wb") as out:
        for first in range(0, rows, _BATCH):
            number = np.arange(first, min(first + _BATCH, rows))
            minute = begin + (number // servers).astype("timedelta64[m]")
            server = number % servers
            cells = np.round(np.clip(rng.normal(50, 30, (len(number), 8)), 0, 100), 1)
            frame = pl.DataFrame({"minute": minute, "machineId": np.char.add("m", server.astype(str))})
            offline = rng.random(cells.shape) < 0.005
            values = [
                pl.when(pl.Series((server % 2 == 0) | (i < 2)))
                .then(
                    pl.when(pl.Series(offline[:, i]))
                    .then(pl.lit("NA"))
                    .otherwise(pl.Series(cells[:, i]).cast(pl.String))
                )
                .alias(f"gpu{i}_util")
                for i in range(8)
            ]
            frame.select(
                pl.col("minute").dt.strftime("%Y-%m-%d %H:%M:%S PDT").alias("time"),
                "machineId",
                *values,
                pl.lit(None, dtype=pl.String).alias(""),
            ).write_csv(out, include_header=first == 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=117_325)
    parser.add_argument("--rows", type=int, default=9_000_000)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    write_job_log(given.output / "cluster_job_log", given.jobs)
    write_gpu_file(given.output / "cluster_gpu_util", given.rows)
