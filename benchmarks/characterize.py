"""Measure the queries on traces of released size.

    python benchmarks/characterize.py [CASE ...] [--runs 3] [--scale 1] [--keep DIR]

helios     every query that a log without telemetry can answer, on 3.36 million jobs, in one process each and all in one
telemetry  the queries that join GPU samples to attempts, against DuckDB scanning and aggregating the samples without a
           join, on 117,325 jobs and 45 million samples
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _process import run
from helios_logs import RELEASED_JOBS, write_helios_logs
from philly_files import TELEMETRY_BEGIN, write_gpu_file, write_job_log

_SAMPLES_PER_ROW = 5
_SAMPLES = 45_000_000
_SERVERS = 400
_JOINED = (
    "utilization/gpu_by_size_status",
    "utilization/dedicated",
    "locality/utilization_by_spread",
    "locality/utilization_by_colocation",
)
_SCAN = """
import duckdb, sys
print(duckdb.sql(f"SELECT node_id, gpu_index, count(*), avg(utilization_pct), min(time), max(time) "
                 f"FROM read_parquet('{sys.argv[1]}/gpu_utilization.parquet') GROUP BY ALL").fetchall()[0])
"""


_TOGETHER = """
import sys
from tracekit.characterize import answer_query, lacks, list_queries
from tracekit.characterize.session import Session
from tracekit.trace import Trace
trace = Trace.open(sys.argv[1])
session = Session(trace)
for query in list_queries():
    if not lacks(query, trace):
        answer_query(trace, query.name, session=session)
"""


def _trace(source: Path, format_name: str, trace: Path) -> Path:
    if not (trace / "manifest.json").is_file():
        run("-m", "tracekit", "ingest", str(source), "-o", str(trace), "--format", format_name)
    return trace


def _answerable(trace: Path) -> list[str]:
    command = [sys.executable, "-m", "tracekit", "query", str(trace), "-f", "json"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return [row["name"] for row in rows if row["can run here"] == "yes"]


def _query(trace: Path, name: str, runs: int) -> tuple[float, float]:
    """Return one query's median wall time [s] and largest peak memory [MiB] in a separate process."""
    used = [run("-m", "tracekit", "query", str(trace), name, "-f", "json") for _ in range(runs)]
    return statistics.median(u.wall_s for u in used), max(u.peak_mib for u in used)


def helios(folder: Path, runs: int, scale: float) -> None:
    """Print each job-level query's time, and the total."""
    source = folder / "source"
    if not source.is_dir():
        write_helios_logs(source, int(RELEASED_JOBS * scale))
    trace = _trace(source, "helios", folder / "trace")
    print("| query | time | peak memory |\n|---|---|---|")
    total, most = 0.0, 0.0
    for name in _answerable(trace):
        seconds, mib = _query(trace, name, runs)
        total, most = total + seconds, max(most, mib)
        print(f"| {name} | {seconds:.2f} s | {mib:.0f} MiB |", flush=True)
    print(f"| all, one process each | {total:.1f} s | {most:.0f} MiB |")
    together = [run("-c", _TOGETHER, str(trace)) for _ in range(runs)]
    seconds = statistics.median(u.wall_s for u in together)
    print(f"| all in one process | {seconds:.1f} s | {max(u.peak_mib for u in together):.0f} MiB |")


def telemetry(folder: Path, runs: int, scale: float) -> None:
    """Print the time of each query that joins the samples, and the ratio to a scan without a join."""
    source = folder / "source"
    if not source.is_dir():
        source.mkdir(parents=True)
        rows = int(_SAMPLES / _SAMPLES_PER_ROW * scale)
        # All jobs lie within the telemetry period, so that the join has as much work as possible.
        days = rows / _SERVERS / 1440
        write_job_log(source / "cluster_job_log", int(117_325 * scale), begin=TELEMETRY_BEGIN, days=days)
        write_gpu_file(source / "cluster_gpu_util", rows, servers=_SERVERS)
    trace = _trace(source, "philly", folder / "trace")
    print("| query | time | scan | ratio | peak memory |\n|---|---|---|---|---|")
    for name in _JOINED:
        scans, times, peaks = [], [], []
        for _ in range(runs):
            scans.append(run("-c", _SCAN, str(trace)).wall_s)
            seconds, mib = _query(trace, name, 1)
            times.append(seconds)
            peaks.append(mib)
        ratio = statistics.median(t / s for t, s in zip(times, scans, strict=True))
        scan = statistics.median(scans)
        print(
            f"| {name} | {statistics.median(times):.2f} s | {scan:.2f} s | {ratio:.1f} | {max(peaks):.0f} MiB |",
            flush=True,
        )


CASES = {"helios": helios, "telemetry": telemetry}


def main() -> None:
    """Measure the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases from {', '.join(CASES)}; all by default")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1, help="share of the released size")
    parser.add_argument("--keep", type=Path, help="folder for the files, which are kept and reused")
    given = parser.parse_args()
    unknown = set(given.cases) - CASES.keys()
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    place = given.keep or Path(tempfile.mkdtemp(prefix="tracekit-bench-"))
    try:
        for name in given.cases or CASES:
            (place / name).mkdir(parents=True, exist_ok=True)
            CASES[name](place / name, given.runs, given.scale)
    finally:
        if given.keep is None:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
