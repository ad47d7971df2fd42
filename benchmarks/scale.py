"""Measure the resources of commands, queries and policies at three sizes, and store the figures.

    python benchmarks/scale.py [CASE ...] [--keep DIR] [--most N] [--again]

jobs       ingest, every query, and commands that stream, on a log shaped like Helios with 10^5, 10^6 and 3 * 10^6 jobs
policies   the engine under one policy after another, with as many jobs, or fewer for policies that plan in Python
telemetry  ingest, and queries that join samples with jobs, on 10^6, 10^7 and 10^8 GPU samples shaped like Philly
windows    a replay split into time windows, compared with the whole replay (see replay_windows.py)
heavy      fit, generate, calibrate and analyze on 10^5, 3 * 10^5 and 10^6 jobs

The script measures peak memory as reported by the operating system, and processor seconds (user and system, all
threads), which other work on the machine affects less than wall time. The first size of each case is tiny and gives the
startup cost, which is subtracted when growth is computed. Figures are written to scale.json next to this file, one row
per measurement. Existing measurements are repeated only with --again. `scale_model.py` computes exponents and tables
from the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _process import run
from helios_logs import write_helios_logs
from philly_files import TELEMETRY_BEGIN, write_gpu_file, write_job_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIGURES = Path(__file__).with_name("scale.json")

TINY_JOBS, TINY_SAMPLES = 1_000, 10_000
JOBS = (TINY_JOBS, 100_000, 1_000_000, 3_000_000)
FITTED = (TINY_JOBS, 100_000, 300_000, 1_000_000)
"""Numbers of jobs for the commands that fit or replay all their jobs, which take minutes."""
WINDOWED = 60_000
"""Number of jobs in the replays in windows."""
SAMPLES = (TINY_SAMPLES, 1_000_000, 10_000_000, 100_000_000)
_SAMPLES_PER_ROW = 5
_SAMPLES_PER_JOB = 400
_SERVERS = 400

_JOINED = (
    "utilization/gpu_by_size_status",
    "utilization/dedicated",
    "locality/utilization_by_spread",
    "locality/utilization_by_colocation",
)
_ORDERS = ("fifo", "sjf", "srtf", "las", "easy", "conservative", "fair-share", "kueue", "philly", "hived", "qssf")
_PLANNERS = ("gavel", "pollux-lite", "lucid")
_PLANNED = (TINY_JOBS, 10_000, 30_000, 100_000)
"""Numbers of jobs for policies that plan in Python."""

_QUERIES = """
import json, os, sys
import duckdb, numpy, polars
from tracekit.characterize import answer_query, find_query
from tracekit.characterize.timeline import all_timelines
from tracekit.trace import Trace
all_timelines()
trace = sys.argv[1]
limit = sys.argv[2] or None
for name in sys.argv[3:]:
    find_query(name)
    pid = os.fork()
    if not pid:
        try:
            answer_query(Trace.open(trace), name, memory_limit=limit)
        except BaseException as error:
            print(name, error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    print(json.dumps([name, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]), flush=True)
"""
"""Code that runs every query in a forked process with all modules imported, so the startup is not measured again."""

_REPLAYS = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import replay_jobs
from tracekit.replay.scenario import Scenario
Scenario.make(*replay_jobs.make(1000, 0.5)).run("fifo")
scenario = Scenario.make(*replay_jobs.make(int(sys.argv[2]), 0.8))
for policy in sys.argv[3:]:
    pid = os.fork()
    if not pid:
        try:
            scenario.run(policy)
        except BaseException as error:
            print(policy, error, file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(pid, 0)
    print(json.dumps([policy, status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]), flush=True)
"""
"""Code that runs every policy in a forked process with the same jobs, which its peak memory includes."""


class Figures:
    """The measurements, stored in a file that is rewritten after each one."""

    def __init__(self, path: Path, *, again: bool) -> None:
        self.path, self.again = path, again
        known = json.loads(path.read_text()) if path.is_file() else {}
        self.rows: list[dict[str, Any]] = known.get("rows", [])
        self.windows: list[dict[str, Any]] = known.get("windows", [])
        self._old = {self._key(row) for row in self.rows} if again else set()

    @staticmethod
    def _key(row: dict[str, Any]) -> tuple[str, str, int]:
        return row["case"], row["what"], row["size"]

    def wants(self, case: str, what: str, size: int) -> bool:
        """Return whether this item still has to be measured."""
        key = (case, what, size)
        return key in self._old or key not in {self._key(row) for row in self.rows}

    def add(self, case: str, what: str, size: int, cpu_s: float, peak_mib: float, **more: Any) -> None:
        """Store a measurement, replacing an earlier one."""
        row = {"case": case, "what": what, "size": size, "cpu_s": round(cpu_s, 3), "peak_mib": round(peak_mib), **more}
        self._old.discard(self._key(row))
        self.rows = [old for old in self.rows if self._key(old) != self._key(row)] + [row]
        self.write()
        print(f"{case} {what} {size:,}: {cpu_s:.2f} s, {peak_mib:,.0f} MiB {more or ''}", flush=True)

    def write(self) -> None:
        """Write the file, one line per measurement."""
        self.rows.sort(key=self._key)
        rows, windows = (",\n".join("  " + json.dumps(one) for one in part) for part in (self.rows, self.windows))
        machine = json.dumps(machine_words())
        self.path.write_text(f'{{"machine": {machine},\n"rows": [\n{rows}\n],\n"windows": [\n{windows}\n]}}\n')


def machine_words() -> str:
    """Return a description of the machine, without its name."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} virtual cores, {gib:.0f} GiB, Python {platform.python_version()}, shared with other work"


def _size_of(*places: Path) -> int:
    files = [f for place in places for f in (place.rglob("*") if place.is_dir() else [place]) if f.is_file()]
    return sum(f.stat().st_size for f in files)


def _tables(trace: Path) -> dict[str, Any]:
    tables = json.loads((trace / "manifest.json").read_text())["tables"]
    return {name: [table["rows"], table["bytes"]] for name, table in tables.items()}


def _measure(figures: Figures, case: str, what: str, size: int, *arguments: str) -> None:
    """Store the resources that a command uses, including its startup."""
    if figures.wants(case, what, size):
        used = run("-m", "tracekit", *arguments)
        figures.add(case, what, size, used.cpu_s, used.peak_mib)


def _forked(figures: Figures, case: str, size: int, named: dict[str, str], code: str, *arguments: str) -> None:
    """Store the resources that each item run by the code uses. `named` maps the code's names to row names."""
    wanted = [name for name, what in named.items() if figures.wants(case, what, size)]
    if not wanted:
        return
    command = [sys.executable, "-c", code, *arguments, *wanted]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            name, status, cpu_s, peak_mib = json.loads(line)
            if status:
                raise RuntimeError(f"{name} ended with status {status}")
            figures.add(case, named[name], size, cpu_s, peak_mib)
    if process.returncode:
        raise RuntimeError(f"the measuring process ended with status {process.returncode}")


def _ingested(
    figures: Figures, case: str, size: int, folder: Path, make: Callable[[Path], object], format_name: str
) -> Path:
    """Make the Trace of a size from generated files, measuring ingest at the listed sizes, and remove the files."""
    source, trace = folder / "source", folder / "trace"
    fresh, listed = not (trace / "manifest.json").is_file(), size in {*JOBS, *SAMPLES}
    if fresh or (listed and figures.wants(case, "ingest", size)):
        if not source.is_dir():
            source.mkdir(parents=True)
            make(source)
        used = run(
            "-m", "tracekit", "ingest", str(source), "-o", str(trace), "--format", format_name,
            *([] if fresh else ["--force"]),
        )  # fmt: skip
        if listed:
            more = {"raw_bytes": _size_of(source), "trace_bytes": _size_of(trace), "tables": _tables(trace)}
            figures.add(case, "ingest", size, used.cpu_s, used.peak_mib, **more)
        shutil.rmtree(source)
    return trace


def _answerable(trace: Path) -> list[str]:
    command = [sys.executable, "-m", "tracekit", "query", str(trace), "-f", "json"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return [row["name"] for row in rows if row["can run here"] == "yes"]


def _sizes(sizes: tuple[int, ...], most: int | None) -> Iterator[int]:
    yield from (size for size in sizes if most is None or size <= most)


def _helios(figures: Figures, place: Path, size: int) -> Path:
    folder = place / f"jobs-{size}"
    return _ingested(figures, "jobs", size, folder, lambda source: write_helios_logs(source, size), "helios")


def jobs(figures: Figures, place: Path, most: int | None) -> None:
    """Measure the commands that stream or need little memory per job."""
    for size in _sizes(JOBS, most):
        trace = _helios(figures, place, size)
        named = {name: f"query {name}" for name in _answerable(trace)}
        _forked(figures, "jobs", size, named, _QUERIES, str(trace), "")
        out = place / "out"
        commands = {
            "query overview/summary, whole": ("query", str(trace), "overview/summary", "-f", "json"),
            "efficiency": ("efficiency", str(trace), "-f", "csv"),
            "validate": ("validate", str(trace)),
            "export csv": ("export", str(trace), "--to", "csv", "-o", str(out), "--force"),
            "generate resample": ("generate", str(trace), "--jobs", str(size), "-o", str(out), "--force"),
            "replay fifo": ("replay", str(trace), "--cluster", "auto", "-p", "fifo", "-o", str(out), "--force"),
        }
        for what, arguments in commands.items():
            _measure(figures, "jobs", what, size, *arguments)
            _remove(out)


def heavy(figures: Figures, place: Path, most: int | None) -> None:
    """Measure the commands that take minutes."""
    for size in _sizes(FITTED, most):
        trace, out, model = str(_helios(figures, place, size)), place / "out", str(place / f"workload-{size}.json")
        commands = {
            "fit": ("fit", trace, "-o", model, "--force"),
            "generate model": ("generate", model, "--jobs", str(size), "-o", str(out), "--force"),
            "calibrate": ("calibrate", trace, "--limit", str(size), "-o", str(place / "twin.toml")),
            "analyze": ("analyze", trace, "-o", str(out), "--force"),
        }
        for what, arguments in commands.items():
            if (place / "twin.toml").exists():
                (place / "twin.toml").unlink()
            _measure(figures, "heavy", what, size, *arguments)
            _remove(out)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def policies(figures: Figures, place: Path, most: int | None) -> None:
    """Measure only the engine, without reading a Trace or writing files."""
    del place
    for names, sizes in ((_ORDERS, JOBS), (_PLANNERS, _PLANNED)):
        for size in _sizes(sizes, most):
            named = {name: name for name in names}
            _forked(figures, "policies", size, named, _REPLAYS, str(Path(__file__).parent), str(size))


def telemetry(figures: Figures, place: Path, most: int | None) -> None:
    """Measure the ingest of GPU samples, and the queries that join them."""
    for size in _sizes(SAMPLES, most):

        def make(source: Path, size: int = size) -> None:
            rows = size // _SAMPLES_PER_ROW
            # All jobs lie within the telemetry period, so that the join has as much work as possible.
            days = rows / _SERVERS / 1440
            write_job_log(source / "cluster_job_log", size // _SAMPLES_PER_JOB, begin=TELEMETRY_BEGIN, days=days)
            write_gpu_file(source / "cluster_gpu_util", rows, servers=_SERVERS)

        trace = str(_ingested(figures, "telemetry", size, place / f"samples-{size}", make, "philly"))
        _forked(figures, "telemetry", size, {name: f"query {name}" for name in _JOINED}, _QUERIES, trace, "")
        limited = {name: f"query {name}, 1GB" for name in _JOINED}
        _forked(figures, "telemetry", size, limited, _QUERIES, trace, "1GB")
        # Without a limit, all samples' keys stay in memory.
        _measure(figures, "telemetry", "validate, 1GB", size, "validate", trace, "--memory-limit", "1GB")


def windows(figures: Figures, place: Path, most: int | None) -> None:
    """Measure the error of a replay in time windows."""
    from replay_jobs import make
    from replay_windows import measure

    del place, most
    if figures.again or not figures.windows:
        made, cluster = make(WINDOWED, 0.5, nodes=40, vcs=4)
        figures.windows = measure(made, cluster)
        figures.write()


CASES = {"windows": windows, "jobs": jobs, "policies": policies, "telemetry": telemetry, "heavy": heavy}


def main() -> None:
    """Measure the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"cases from {', '.join(CASES)}; all by default")
    parser.add_argument("--keep", type=Path, help="folder for the Traces, which are kept and reused")
    parser.add_argument("--most", type=int, help="skip larger sizes")
    parser.add_argument("--again", action="store_true", help="repeat existing measurements")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="file for the figures")
    given = parser.parse_args()
    unknown = set(given.cases) - CASES.keys()
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    place = given.keep or Path(tempfile.mkdtemp(prefix="tracekit-bench-"))
    figures = Figures(given.figures, again=given.again)
    try:
        for name in given.cases or CASES:
            CASES[name](figures, place, given.most)
    finally:
        if given.keep is None:
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
