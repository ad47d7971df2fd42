"""Measure the ingest of daily telemetry files in one process, as tasks in two others, and as tasks of a local Spark.

    python benchmarks/ingest_tasks.py [--kinds philly,prometheus] [--samples 10_000_000] [--days 8] [--partition day]
        [--spark]

one     only this process
pool    the same tasks in two processes of this machine, without Spark, to measure the cost of a task and of the driver;
        the processor time of all tasks divided by the driver's is the largest number of machines that can help
spark   local[2], including the start of Spark, if --spark is given; requires Java and gpu-tracekit[spark]

The script verifies by checksum that the three Traces are the same. Each run is a separate process that reports its
processor time and peak memory without its children's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.characterize.engines import engine_of
from tracekit.ingest import ingest_logs
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

_WIDTH = 2
_PHILLY_CELLS = 5
"""Average number of GPU samples in a row of Philly's file."""
_BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
_STEP_S = 30
_PER_DAY = 86_400 // _STEP_S
_GPUS = 8


def _write_philly(folder: Path, samples: int, days: int) -> None:
    from philly_files import write_gpu_file, write_job_log

    write_job_log(folder / "cluster_job_log", 2000)
    rows = samples // (days * _PHILLY_CELLS)
    whole = folder.parent / "whole"
    write_gpu_file(whole, days * rows)
    with whole.open("rb") as lines:
        header = next(lines)
        for day in range(days):
            with (folder / f"cluster_gpu_util-2017-10-{day + 3:02}.csv").open("wb") as out:
                out.write(header)
                out.writelines(line for line, _ in zip(lines, range(rows), strict=False))
    whole.unlink()


def _write_prometheus(folder: Path, samples: int, days: int) -> None:
    """Write a log of jobs that each use a machine for a day, and a server's response for each day."""
    nodes = max(1, samples // (days * _PER_DAY * _GPUS))
    rng = np.random.default_rng(7)
    lines = ["JobID|Submit|Start|End|State|Elapsed|AllocTRES|NNodes|NodeList"]
    for day in range(days):
        moment = _BEGIN + timedelta(days=day)
        start, end = (f"{m:%Y-%m-%dT%H:%M:%S}" for m in (moment, moment + timedelta(days=1)))
        tres = f"cpu=1,gres/gpu={_GPUS},node=1"
        lines += [
            f"{1 + day * nodes + node}|{start}|{start}|{end}|COMPLETED||{tres}|1|n{node}" for node in range(nodes)
        ]
        times = (int(moment.timestamp()) + np.arange(_PER_DAY) * _STEP_S).tolist()
        with (folder / f"gpu-{moment:%Y-%m-%d}.json").open("w", encoding="utf-8") as out:
            out.write('{"status":"success","data":{"resultType":"matrix","result":[')
            for number in range(nodes * _GPUS):
                node, gpu = divmod(number, _GPUS)
                labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "Hostname": f"n{node}", "gpu": str(gpu)}
                values = [[t, str(v)] for t, v in zip(times, rng.integers(0, 101, _PER_DAY).tolist(), strict=True)]
                out.write("," * bool(number) + json.dumps({"metric": labels, "values": values}))
            out.write("]}}")
    (folder / "sacct.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


_WRITERS = {"philly": _write_philly, "prometheus": _write_prometheus}
_OPTIONS = {"philly": {}, "prometheus": {"timezone": "UTC"}}


class _Pool:
    """Workers on this machine, started from scratch like workers on other machines."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(_WIDTH, mp_context=get_context("spawn"))

    def start(self) -> None:
        """Do nothing, because a process starts with its first item."""

    def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
        yield from self.pool.map(work, items)


def _one(how: str, kind: str, partition: str, logs: Path, out: Path) -> dict[str, float]:
    """Ingest in this process, and return the process's resource usage."""
    begin = time.perf_counter()
    asked: dict[str, Any] = {"options": _OPTIONS[kind], "partition": partition}
    if how == "one":
        ingest_logs(logs, out, **asked)
    elif how == "pool":
        pool = _Pool()
        ingest_logs(logs, out, **asked, workers=pool)
        pool.pool.shutdown()
    else:
        with engine_of("spark", f"local[{_WIDTH}]") as spark:
            workers = spark.workers()
            if workers is None:
                raise RuntimeError(how)
            workers.start()
            print(f"{kind}, spark: started after {time.perf_counter() - begin:.1f} s", flush=True, file=sys.stderr)
            ingest_logs(logs, out, **asked, workers=workers)
    wall = time.perf_counter() - begin
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": wall,
        "cpu_s": own.ru_utime + own.ru_stime,
        "others_cpu_s": others.ru_utime + others.ru_stime,
        "peak_mib": own.ru_maxrss / 1024,
    }


def measure(kind: str, samples: int, days: int, partition: str, ways: Sequence[str], folder: Path) -> None:
    """Print one line per way of ingesting, and the speedup limit set by the driver's share."""
    logs = folder / "logs"
    logs.mkdir()
    _WRITERS[kind](logs, samples, days)
    size = sum(path.stat().st_size for path in logs.iterdir())
    found: dict[str, dict[str, float]] = {}
    for how in ways:
        # A process's peak starts at its parent's memory, so the process is started by a fresh one.
        words = [sys.executable, __file__, "--one", how, kind, partition, str(logs), str(folder / how)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        found[how] = json.loads(done.stdout)
    traces = {how: Trace.open(folder / how) for how in ways}
    rows = traces[ways[0]].manifest.tables["gpu_utilization"].rows
    if len({str(trace.manifest.tables) for trace in traces.values()}) != 1:
        raise RuntimeError("the Traces differ")
    print(f"{kind}: {days} files, {size / 1e6:,.0f} MB, {rows:,} samples", flush=True)
    for how, used in found.items():
        print(
            f"  {how}: {used['wall_s']:.1f} s; processor: {used['cpu_s']:.1f} s of the driver, "
            f"{used['others_cpu_s']:.1f} s of others; peak of the driver {used['peak_mib']:,.0f} MiB",
            flush=True,
        )
    bound = (found["pool"]["cpu_s"] + found["pool"]["others_cpu_s"]) / found["pool"]["cpu_s"]
    print(f"  the driver does 1/{bound:.1f} of the work of the pool", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default="philly,prometheus")
    parser.add_argument("--samples", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--partition", choices=("none", "day"), default="none")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        how, kind, partition, logs, out = chosen.one
        print(json.dumps(_one(how, kind, partition, Path(logs), Path(out))))
        return
    for kind in chosen.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            ways = ["one", "pool", *(["spark"] if chosen.spark else [])]
            measure(kind, chosen.samples, chosen.days, chosen.partition, ways, Path(folder))


if __name__ == "__main__":
    main()
