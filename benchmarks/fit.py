"""Measure the fit of 1.5 million jobs, the generation of as many jobs, and the resampling of four times as many.

    python benchmarks/fit.py [--jobs 1500000] [--once]

The jobs come from `helios_logs` (shaped like Helios: four clusters, 105 VCs). Each command is a separate process with
one thread per BLAS call. Because there is no theoretical bound for comparison, wall time and memory on 2 cores have
limits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from _process import Usage, run
from helios_logs import write_helios_logs

FIT_LIMIT_S, FIT_LIMIT_MIB, DRAW_LIMIT, RESAMPLE_LIMIT = 60.0, 2048.0, 500_000, 1_000_000


def measure(times: int, *arguments: str) -> Usage:
    """Return a command's median wall time, median processor time and largest peak memory."""
    runs = [run("-m", "tracekit", *arguments, "--force") for _ in range(times)]
    return Usage(
        statistics.median(r.wall_s for r in runs),
        statistics.median(r.cpu_s for r in runs),
        max(r.peak_mib for r in runs),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_500_000)
    parser.add_argument("--once", action="store_true", help="run each case once instead of three times")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    times = 1 if options.once else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_helios_logs(folder / "logs", options.jobs)
        trace, model, drawn = (str(folder / part) for part in ("trace", "workload.json", "drawn"))
        run("-m", "tracekit", "ingest", str(folder / "logs"), "-o", trace)
        fitted = measure(times, "fit", trace, "-o", model)
        made = measure(times, "generate", model, "--jobs", str(options.jobs), "-o", drawn)
        taken = measure(times, "generate", trace, "--jobs", str(4 * options.jobs), "-o", drawn)
    print("| case | wall | processor | peak memory | at most |")
    print("|---|---|---|---|---|")
    print(
        f"| fit of {options.jobs:,} jobs | {fitted.wall_s:.1f} s | {fitted.cpu_s:.1f} s | {fitted.peak_mib:,.0f} MiB"
        f" | {FIT_LIMIT_S:.0f} s, {FIT_LIMIT_MIB:,.0f} MiB |"
    )
    for what, times_as_many, usage, limit in (
        ("drawing", 1, made, DRAW_LIMIT),
        ("resampling", 4, taken, RESAMPLE_LIMIT),
    ):
        jobs = times_as_many * options.jobs
        print(
            f"| {what} {jobs:,} jobs: {jobs / usage.wall_s:,.0f} a second | {usage.wall_s:.2f} s"
            f" | {usage.cpu_s:.2f} s | {usage.peak_mib:,.0f} MiB | {jobs / limit:.1f} s |"
        )


if __name__ == "__main__":
    main()
