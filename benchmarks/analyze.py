"""Measure `tracekit analyze` with all its parts on the four Helios clusters at released size, and on a sample trace.

    python benchmarks/analyze.py [--jobs 3362981] [--once]

The large logs come from `helios_logs`. The sample trace is read with an empty cache, as on a new machine. Because there
is no theoretical bound for comparison, wall time and memory on 2 cores have limits. The peak memory is the largest
process's. A large Trace is fitted in a second process at the same time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from _process import run
from helios_logs import RELEASED_JOBS, write_helios_logs

LARGE_LIMIT_S, LARGE_LIMIT_MIB, SAMPLE_LIMIT_S = 120.0, 6144.0, 10.0
PAGE_LIMIT = 3_000_000
SAMPLES = Path(__file__).parent.parent / "sample_traces"


def line(case: str, source: Path, folder: Path, times: int, limit: str) -> str:
    """Return a case's table row with the median of its runs."""
    out = folder / "out"
    runs = []
    for number in range(times):
        os.environ["XDG_CACHE_HOME"] = str(folder / f"cache-{case}-{number}")
        runs.append(run("-m", "tracekit", "analyze", str(source), "-o", str(out), "--force"))
    middle = sorted(runs)[len(runs) // 2]
    page = (out / "report.html").stat().st_size
    return (
        f"| {case} | {middle.wall_s:.1f} s | {middle.cpu_s:.1f} s | {max(r.peak_mib for r in runs):,.0f} MiB"
        f" | {page / 1e6:.2f} MB | {limit}, page {PAGE_LIMIT / 1e6:.0f} MB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=RELEASED_JOBS)
    parser.add_argument("--once", action="store_true", help="run each case once instead of three times")
    options = parser.parse_args()
    times = 1 if options.once else 3
    print("| case | wall | processor | peak memory | report.html | at most |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for sample in sorted(p for p in SAMPLES.iterdir() if p.is_dir() and p.name not in {"swf", "slurm-dumps"}):
            print(line(sample.name, sample, folder, times, f"{SAMPLE_LIMIT_S:.0f} s"), flush=True)
        write_helios_logs(folder / "logs", options.jobs)
        limit = f"{LARGE_LIMIT_S:.0f} s, {LARGE_LIMIT_MIB:,.0f} MiB"
        print(line(f"helios: {options.jobs:,} jobs", folder / "logs", folder, times, limit))


if __name__ == "__main__":
    main()
