"""Measure what partitions cost and save, by rewriting a Trace in both layouts and running queries on both.

python benchmarks/partitions.py [--samples 10000000] [--days 100] [--keep DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from _process import Usage, run
from philly_files import TELEMETRY_BEGIN, write_gpu_file, write_job_log

from tracekit.ingest import ingest_logs
from tracekit.trace import Trace

_SAMPLES_PER_ROW = 5
_QUERIES = ("utilization/gpu_by_size_status", "queuing/run_time")


def main() -> None:
    """Print one line per measurement."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--samples", type=int, default=10_000_000)
    options.add_argument("--days", type=int, default=100)
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = chosen.keep or Path(place)
        logs, source = folder / "logs", folder / "source"
        if not source.exists():
            logs.mkdir(parents=True)
            rows = chosen.samples // _SAMPLES_PER_ROW
            write_job_log(logs / "cluster_job_log", chosen.jobs, begin=TELEMETRY_BEGIN, days=chosen.days)
            write_gpu_file(logs / "cluster_gpu_util", rows, servers=max(rows // (chosen.days * 1440), 1))
            ingest_logs(logs, source, partition="none")
        first = np.datetime_as_string(TELEMETRY_BEGIN + np.timedelta64(10, "D"), unit="D")
        after = np.datetime_as_string(TELEMETRY_BEGIN + np.timedelta64(11, "D"), unit="D")
        for layout in ("none", "day"):
            target = folder / layout
            _tell(f"lay out, {layout}", _tracekit("ingest", source, "-o", target, "--partition", layout, "--force"))
            files = sum(len(Trace.open(target).files(table)) for table in Trace.open(target).tables)
            sys.stdout.write(f"{layout}: {files} files\n")
        for query in _QUERIES:
            for layout in ("none", "day"):
                asked = ("query", folder / layout, query, "-f", "csv")
                _tell(f"{query}, {layout}", min(_tracekit(*asked) for _ in range(3)))
                _tell(
                    f"{query}, {layout}, one day",
                    min(_tracekit(*asked, "--from", first, "--to", after) for _ in range(3)),
                )


def _tracekit(*words: object) -> Usage:
    return run("-m", "tracekit", *map(str, words))


def _tell(what: str, used: Usage) -> None:
    sys.stdout.write(f"{what:50} {used.wall_s:7.2f} s  {used.cpu_s:7.2f} s CPU  {used.peak_mib:7.0f} MiB\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
