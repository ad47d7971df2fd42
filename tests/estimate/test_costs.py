"""Estimates of memory against peaks: those that the benchmark wrote, and of a few processes here."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from _process import run
from helios_logs import write_helios_logs
from scale_model import FIGURES

from tracekit.characterize import find_query
from tracekit.cli.needs import tables_of
from tracekit.estimate.need import (
    COSTS,
    HIGH,
    MIB,
    QUERY_COSTS,
    of_all_queries,
    of_files,
    of_jobs,
    of_query,
    of_validation,
)
from tracekit.ingest import ingest_logs
from tracekit.manifest import Manifest, TableInfo

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.estimate.need import Need

ROWS: list[dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))["rows"]
LEAST, MOST = 1.0, 4.0
UNSAID = {"locality/relaxation", "queuing/started_by", "queuing/wait_reasons"}
"""Queries of columns that the log of the benchmark does not fill, or of the few wide gangs in it: other logs need more
for them, so that no upper bound is tested."""
JOBS = {
    "export csv": "export",
    "generate resample": "generate",
    "generate model": "generate",
    "replay fifo": "replay",
    **{name: name for name in ("fit", "calibrate", "analyze")},
}
"""Kinds of work on jobs by the names that the benchmark has for it."""


def manifest_of(case: str, size: int) -> Manifest:
    """Return the manifest of a Trace of the benchmark; one of jobs has as many attempts."""
    tables = {"jobs": [size, 1], "attempts": [size, 1]}
    for row in ROWS:
        if (row["case"], row["what"], row["size"]) == (case, "ingest", size):
            tables = row["tables"]
    infos = {name: TableInfo(rows, stored, []) for name, (rows, stored) in tables.items()}
    return Manifest("csv", [], "", "", "absolute", "UTC", "", tables=infos)


def estimate(row: dict[str, Any], tmp_path: Path) -> Need | None:
    what, limited = row["what"].partition(", ")[0], row["case"] == "heavy"
    manifest = manifest_of("jobs" if limited else row["case"], row["size"])
    if what in JOBS:
        return of_jobs(manifest, JOBS[what])
    if what == "validate":
        return of_validation(manifest)
    if what == "efficiency":
        return of_query(manifest, ("jobs", "attempts"), "utilization/efficiency")
    if what == "ingest":
        with (tmp_path / "log").open("wb") as log:
            log.truncate(row["raw_bytes"])  # a hole, which takes no disk
        return of_files(tmp_path)
    if what.startswith("query "):
        query = find_query(what.removeprefix("query "))
        return of_query(manifest, tables_of(query, manifest), query.name)
    return None


MEASURED = [row for row in ROWS if row["case"] != "policies"]


def test_estimates_are_above_what_was_measured_and_not_far_above(tmp_path: Path) -> None:
    ratios = []
    for row in MEASURED:
        found = estimate(row, tmp_path)
        assert found is not None, row["what"]
        limit = 10**9 if row["what"].endswith(", 1GB") or row["what"] == "ingest" else None
        most = math.inf if row["what"].removeprefix("query ") in UNSAID else MOST
        ratios.append((row["what"], row["size"], found.memory(limit) / MIB / row["peak_mib"], most))
    assert len(ratios) > 200
    assert [one for one in ratios if not LEAST <= one[2] <= one[3]] == []


def test_the_engine_alone_is_within_the_estimate_of_a_replay() -> None:
    largest = [r for r in ROWS if r["case"] == "policies" and r["size"] == 3_000_000]
    assert len(largest) > 8
    for row in largest:
        found = of_jobs(manifest_of("jobs", row["size"]), "replay")
        assert LEAST <= found.memory(None) / MIB / row["peak_mib"] <= MOST, row["what"]


def test_all_queries_need_as_much_as_the_dearest() -> None:
    manifest = manifest_of("jobs", 1_000_000)
    every = of_all_queries(manifest)
    for name in QUERY_COSTS:
        one = of_query(manifest, manifest.tables, name)
        assert every.arrays >= one.arrays
        assert every.tables >= one.tables
        assert every.cpu_s > one.cpu_s


def test_jobs_beyond_the_limit_and_more_processes_count() -> None:
    manifest = manifest_of("jobs", 3_000_000)
    cost = COSTS["replay"]
    assert of_jobs(manifest, "replay", limit=1000).arrays == round(HIGH * (cost.start_mib * MIB + 430 * 1000))
    assert of_jobs(manifest, "replay", limit=10**9) == of_jobs(manifest, "replay")
    assert of_jobs(manifest, "replay", workers=3).arrays == 3 * of_jobs(manifest, "replay").arrays


def test_files_count_their_bytes_and_compressed_ones_ten_times(tmp_path: Path) -> None:
    for name, length in (("a.csv", 700), ("b/c.csv", 300), ("d.csv.gz", 50)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(length))
    assert of_files(tmp_path) is not None
    assert [found.read for path in (tmp_path, tmp_path / "a.csv") if (found := of_files(path))] == [1500, 700]
    assert of_files(tmp_path / "none") is None
    assert of_files("slurm:") is None


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("query",), ("export", "ingest")], ids="-".join)
def test_processes_stay_below_their_estimates(tmp_path: Path, names: tuple[str, ...]) -> None:
    logs, trace = tmp_path / "logs", tmp_path / "trace"
    write_helios_logs(logs, 60_000)
    manifest = ingest_logs(logs, trace).manifest
    query = find_query("users/concentration")
    commands = {
        ("query", str(trace), query.name, "-f", "json"): of_query(manifest, tables_of(query, manifest), query.name),
        ("export", str(trace), "--to", "csv", "-o", str(tmp_path / "out.csv")): of_jobs(manifest, "export"),
        ("ingest", str(logs), "-o", str(tmp_path / "again")): of_files(logs),
    }
    for command, need in commands.items():
        if command[0] not in names:
            continue
        assert need is not None
        ratio = need.memory(need.limit_of(None)) / MIB / run("-m", "tracekit", *command).peak_mib
        assert LEAST <= ratio <= MOST, (command[0], ratio)
