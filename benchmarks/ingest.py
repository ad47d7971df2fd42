"""Measure ingest against DuckDB copying the same file to Parquet without any conversion of ours.

    python benchmarks/ingest.py [--jobs 3400000] [--runs 3]

Both run as whole processes, in turn, on the same file in the page cache; the ratio is taken pair by pair, since
absolute times drift on shared machines.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

from _process import run
from helios_log import write_helios_log

_BOUND = """
import duckdb, sys
duckdb.sql("SET preserve_insertion_order = false")
duckdb.sql(f"COPY (SELECT * FROM read_csv('{sys.argv[1]}')) TO '{sys.argv[2]}' (FORMAT parquet, COMPRESSION zstd)")
"""


def measure(folder: Path, jobs: int, runs: int) -> None:
    """Print wall time, CPU time and peak memory of both, and the ratios."""
    log = write_helios_log(folder / "source", jobs)
    megabytes = log.stat().st_size / 1e6
    print(f"{log.name}: {jobs:,} jobs, {megabytes:.0f} MB")
    print(f"{'run':>3} {'bound s':>8} {'ingest s':>9} {'ratio':>6} {'bound MiB':>10} {'ingest MiB':>11}")
    ratios = []
    for number in range(runs):
        bound = run("-c", _BOUND, str(log), str(folder / "bound.parquet"))
        ours = run("-m", "tracekit", "ingest", str(log.parent), "-o", str(folder / "trace"), "--force")
        ratios.append(ours.wall_s / bound.wall_s)
        print(
            f"{number:>3} {bound.wall_s:>8.2f} {ours.wall_s:>9.2f} {ratios[-1]:>6.2f} "
            f"{bound.peak_mib:>10.0f} {ours.peak_mib:>11.0f}"
        )
    print(f"median ratio {statistics.median(ratios):.2f} (at most 3), {megabytes / ours.wall_s:.0f} MB/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3_400_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="tracekit-bench-"))
    try:
        measure(place, given.jobs, given.runs)
    finally:
        shutil.rmtree(place)
