"""Run every shipped query with DuckDB and Spark on every sample trace, and write the table in docs/reference/spark.md.

    python tools/spark_answers.py
    python tools/spark_answers.py --large FOLDER [--jobs 300000] [--samples 10000000]

It takes 15 minutes on two processors, requires `gpu-tracekit[spark]` and Java, and fails if an answer differs. With
--large, it makes and uses generated Helios and Philly logs (Philly with telemetry) in FOLDER. It then prints the
seconds that each engine took instead of writing the table.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tests.spark.alike import difference  # noqa: E402 -- found through the line above
from tracekit.characterize import answer_query, lacks, list_queries  # noqa: E402 -- found through the path set above
from tracekit.characterize.engines.spark.merging import ways_of  # noqa: E402 -- found through the path set above
from tracekit.characterize.session import Session  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from tracekit.characterize.engines.spark import SparkEngine
    from tracekit.trace import Trace

__all__ = ["BEGIN", "END", "PAGE", "rows_of_page", "table"]

PAGE = ROOT / "docs" / "reference" / "spark.md"
BEGIN = "<!-- answers: written by tools/spark_answers.py -->"
END = "<!-- end of answers -->"
_HEADS = ("query", "how it crosses", "equal", "on")

_ROWS = (list, tuple)

SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the table. `found` has 'exactly' or 'to 1e-9' by query and trace, plus '(no rows)' if empty."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---|---|---|---|"]
    for query in list_queries():
        answers = found.get(query.name, {})
        with_rows = [name for name, how in answers.items() if "no rows" not in how]
        empty = [name for name, how in answers.items() if "no rows" in how]
        near = any("1e-9" in how for how in answers.values())
        on = ", ".join(with_rows) or "the planted Trace of the tests"
        more = f"; without rows: {', '.join(empty)}" if empty else ""
        lines.append(f"| {query.name} | {ways_of(query)} | {'to 1e-9' if near else 'exactly'} | {on}{more} |")
    return "\n".join(lines)


def rows_of_page(text: str) -> list[list[str]]:
    """Return the cells of the table on a page."""
    body = text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def _samples(folder: Path) -> dict[str, Trace]:
    from tracekit.ingest import ingest_logs

    found = {}
    for source in sorted((ROOT / "sample_traces").iterdir()):
        if source.is_dir():
            # The folders in slurm-dumps are different forms of the same dump.
            found[source.name] = ingest_logs(
                source / "site" if source.name == "slurm-dumps" else source, folder / source.name
            )
    return found


def _equal(one: pl.DataFrame, other: pl.DataFrame) -> str:
    how = "exactly" if _same(one.rows(), other.rows()) else "to 1e-9"
    return how if one.height else f"{how} (no rows)"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, _ROWS) and isinstance(other, _ROWS):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _large(folder: Path, jobs: int, samples: int) -> dict[str, Trace]:
    """Return generated Helios and Philly Traces, making those that are missing."""
    from helios_logs import write_helios_logs
    from philly_files import write_gpu_file, write_job_log

    from tracekit.ingest import ingest_logs
    from tracekit.trace import Trace

    found = {}
    for name in ("helios", "philly"):
        logs, place = folder / f"{name}-logs", folder / name
        if not place.exists():
            logs.mkdir(parents=True)
            if name == "helios":
                write_helios_logs(logs, jobs)
            else:
                write_job_log(logs / "cluster_job_log", jobs // 5)
                write_gpu_file(logs / "cluster_gpu_util", samples // 5)
            ingest_logs(logs, place)
        found[name] = Trace.open(place)
    return found


def _ask(engine: SparkEngine, traces: Mapping[str, Trace], *, timed: bool) -> dict[str, dict[str, str]]:
    """Return how closely the answers agree, by query and trace.

    Raises
    ------
    SystemExit
        Some answers differ, after printing them.
    """
    found: dict[str, dict[str, str]] = {}
    wrong = 0
    for name, trace in traces.items():
        mine, theirs = Session(trace), Session(trace, engine=engine)
        for query in list_queries():
            if lacks(query, trace):
                continue
            begun = time.perf_counter()
            one = answer_query(trace, query, session=mine).frame
            between = time.perf_counter()
            other = answer_query(trace, query, session=theirs).frame
            took = between - begun, time.perf_counter() - between
            differs = difference(one, other)
            if differs is not None:
                wrong += 1
                print(f"{query.name} on {name}: {differs}", flush=True)
            elif timed:
                print(f"{name:8} {query.name:36} {took[0]:8.2f} s {took[1]:8.2f} s  {_equal(one, other)}", flush=True)
            found.setdefault(query.name, {})[name] = _equal(one, other)
        print(f"{name}: done", flush=True)
    if wrong:
        raise SystemExit(1)
    return found


def main() -> None:
    """Run the queries, and either write the table or print the seconds."""
    from tracekit.characterize.engines.spark import SparkEngine

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--large", type=Path, metavar="FOLDER")
    options.add_argument("--jobs", type=int, default=300_000)
    options.add_argument("--samples", type=int, default=10_000_000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, SparkEngine("local[2]", SETTINGS) as engine:
        large = chosen.large is not None
        traces = _large(chosen.large, chosen.jobs, chosen.samples) if large else _samples(Path(folder))
        found = _ask(engine, traces, timed=large)
    if not large:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}", encoding="utf-8")
    pairs = sum(len(traces) for traces in found.values())
    print(f"{len(found)} queries, {pairs} pairs: Spark and DuckDB agree")


if __name__ == "__main__":
    main()
