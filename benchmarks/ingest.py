"""Compare ingest with DuckDB copying the same files to Parquet without our conversions.

    python benchmarks/ingest.py [CASE ...] [--runs 5] [--scale 1] [--keep DIR]

Both run alternately as separate processes on the same files in the page cache. The ratio is computed pair by pair
because absolute times drift on shared machines. Peak memory is reported by the operating system. The case 'utilization'
reads a file of released size with 45 million samples. 'utilization-quarter' reads a file a quarter as large, because
memory must not grow with file size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from _process import Usage, run
from helios_logs import RELEASED_JOBS, write_helios_logs
from pai_tables import write_pai_tables
from philly_files import write_gpu_file, write_job_log

if TYPE_CHECKING:
    from collections.abc import Callable

_BOUND = """
import duckdb, json, sys
duckdb.sql("SET preserve_insertion_order = false")
for number, source in enumerate(json.loads(sys.argv[1])):
    duckdb.sql(f"COPY (SELECT * FROM {source}) TO '{sys.argv[2]}/{number}.parquet' (FORMAT parquet, COMPRESSION zstd)")
"""


class Case(NamedTuple):
    """One kind of source at released size."""

    make: Callable[[Path, float], object]
    """Function that writes the files into a folder at a given share of the released size."""
    format: str
    most: float
    """Maximum ratio."""
    tables: tuple[tuple[str, str], ...]
    """The bound's input, given by a file pattern and a DuckDB function call with {} for the list of paths."""


def _philly_log(folder: Path, scale: float) -> None:
    write_job_log(folder / "cluster_job_log", int(117_325 * scale))


def _philly_gpus(folder: Path, scale: float) -> None:
    write_gpu_file(folder / "cluster_gpu_util", int(9_000_000 * scale))


def _philly_gpus_quarter(folder: Path, scale: float) -> None:
    _philly_gpus(folder, scale / 4)


def _pai(folder: Path, scale: float) -> None:
    write_pai_tables(folder, int(1_261_050 * scale), int(7_522_002 * scale))


def _helios(folder: Path, scale: float) -> None:
    write_helios_logs(folder, int(RELEASED_JOBS * scale))


_UTILIZATION = (("cluster_gpu_util", "read_csv({}, header = true)"),)
CASES = {
    "helios": Case(_helios, "helios", 2.0, (("*/cluster_log.csv", "read_csv({})"),)),
    "pai": Case(
        _pai,
        "alibaba-pai",
        2.5,
        tuple((f"pai_{name}_table.csv", "read_csv({}, header = false)") for name in ("job", "task", "instance")),
    ),
    "philly-jobs": Case(_philly_log, "philly", 2.5, (("cluster_job_log", "read_json({})"),)),
    "utilization": Case(_philly_gpus, "philly", 2.0, _UTILIZATION),
    "utilization-quarter": Case(_philly_gpus_quarter, "philly", 2.0, _UTILIZATION),
}


def measure(name: str, case: Case, folder: Path, runs: int, scale: float) -> str:
    """Print each pair of runs, and return a row of the results table."""
    source, bound = folder / "source", folder / "bound"
    for place in (source, bound):
        place.mkdir(parents=True, exist_ok=True)
    if not any(source.iterdir()):
        case.make(source, scale)
    found = [(sorted(str(p) for p in source.glob(pattern)), call) for pattern, call in case.tables]
    megabytes = sum(Path(path).stat().st_size for paths, _ in found for path in paths) / 1e6
    sources = json.dumps([call.format(paths) for paths, call in found])
    print(f"{name}: {megabytes:.0f} MB")
    pairs: list[tuple[Usage, Usage]] = []
    for number in range(runs):
        theirs = run("-c", _BOUND, sources, str(bound))
        ours = run(
            "-m", "tracekit", "ingest", str(source), "-o", str(folder / "trace"), "--format", case.format, "--force"
        )
        pairs.append((theirs, ours))
        print(
            f"  {number}: bound {theirs.wall_s:.2f} s, {theirs.peak_mib:.0f} MiB; ingest {ours.wall_s:.2f} s "
            f"({ours.cpu_s:.2f} s CPU), {ours.peak_mib:.0f} MiB; ratio {ours.wall_s / theirs.wall_s:.2f}",
            flush=True,
        )
    ratios = [ours.wall_s / theirs.wall_s for theirs, ours in pairs]
    seconds = statistics.median(ours.wall_s for _, ours in pairs)
    return (
        f"| {name} | {megabytes:.0f} MB | {statistics.median(t.wall_s for t, _ in pairs):.2f} s | {seconds:.2f} s | "
        f"{megabytes / seconds:.0f} MB/s | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) | "
        f"{case.most} | {max(ours.peak_mib for _, ours in pairs):.0f} MiB |"
    )


def main() -> None:
    """Measure the requested cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases from {', '.join(CASES)}; all by default")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="share of the released size")
    parser.add_argument("--keep", type=Path, help="folder for the files, which are kept and reused")
    given = parser.parse_args()
    unknown = set(given.cases) - CASES.keys()
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    place = given.keep or Path(tempfile.mkdtemp(prefix="tracekit-bench-"))
    try:
        rows = [measure(name, CASES[name], place / name, given.runs, given.scale) for name in given.cases or CASES]
    finally:
        if given.keep is None:
            shutil.rmtree(place)
    print("| case | input | bound | ingest | speed | ratio: median (range) | at most | peak memory |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
