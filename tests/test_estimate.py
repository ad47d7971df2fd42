"""Estimates of memory against peaks, of the benchmark and of a few processes here; and the sentences about them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _process import run
from helios_logs import write_helios_logs
from scale_model import FIGURES

from tracekit.characterize import find_query
from tracekit.cli.needs import tables_of
from tracekit.estimate import (
    COSTS,
    ENGINE_ROWS,
    HIGH,
    LONG_S,
    MIB,
    QUERY_COSTS,
    Machine,
    Need,
    bytes_of,
    need_of,
    need_of_files,
    need_of_queries,
    sentences,
    this_machine,
)
from tracekit.ingest import ingest_logs
from tracekit.manifest import Manifest, TableInfo

if TYPE_CHECKING:
    from tests.reviewed import Golden

ROOT = Path(__file__).parents[1]
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
GIB = 2**30
NEED = Need(rows=45_000_000, read=310 * 2**20, arrays=GIB // 4, tables=GIB, cpu_s=12.0)
MACHINE = Machine(memory=8 * GIB, free_disk=80 * GIB, spill=Path("/scratch"))


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
        return need_of(manifest, JOBS[what])
    if what == "validate":
        return need_of(manifest, "validate")
    if what == "efficiency":
        return need_of(manifest, "utilization/efficiency", ("jobs", "attempts"))
    if what == "ingest":
        with (tmp_path / "log").open("wb") as log:
            log.truncate(row["raw_bytes"])  # a hole, which takes no disk
        return need_of_files(tmp_path)
    if what.startswith("query "):
        query = find_query(what.removeprefix("query "))
        return need_of(manifest, query.name, tables_of(query))
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
        found = need_of(manifest_of("jobs", row["size"]), "replay")
        assert LEAST <= found.memory(None) / MIB / row["peak_mib"] <= MOST, row["what"]


def test_all_queries_need_as_much_as_the_dearest() -> None:
    manifest = manifest_of("jobs", 1_000_000)
    every = need_of_queries(manifest)
    for name in QUERY_COSTS:
        one = need_of(manifest, name)
        assert every.arrays >= one.arrays
        assert every.tables >= one.tables
        assert every.cpu_s > one.cpu_s


def test_jobs_beyond_the_limit_and_more_processes_count() -> None:
    manifest = manifest_of("jobs", 3_000_000)
    cost = COSTS["replay"]
    assert need_of(manifest, "replay", limit=1000).arrays == round(HIGH * (cost.start_mib * MIB + 430 * 1000))
    assert need_of(manifest, "replay", limit=10**9) == need_of(manifest, "replay")
    assert need_of(manifest, "replay", workers=3).arrays == 3 * need_of(manifest, "replay").arrays


def test_files_count_their_bytes_and_compressed_ones_ten_times(tmp_path: Path) -> None:
    for name, length in (("a.csv", 700), ("b/c.csv", 300), ("d.csv.gz", 50)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(length))
    assert need_of_files(tmp_path) is not None
    assert [found.read for path in (tmp_path, tmp_path / "a.csv") if (found := need_of_files(path))] == [1500, 700]
    assert need_of_files(tmp_path / "none") is None
    assert need_of_files("slurm:") is None


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("query",), ("export", "ingest")], ids="-".join)
def test_processes_stay_below_their_estimates(tmp_path: Path, names: tuple[str, ...]) -> None:
    logs, trace = tmp_path / "logs", tmp_path / "trace"
    write_helios_logs(logs, 60_000)
    manifest = ingest_logs(logs, trace).manifest
    query = find_query("users/concentration")
    commands = {
        ("query", str(trace), query.name, "-f", "json"): need_of(manifest, query.name, tables_of(query)),
        ("export", str(trace), "--to", "csv", "-o", str(tmp_path / "out.csv")): need_of(manifest, "export"),
        ("ingest", str(logs), "-o", str(tmp_path / "again")): need_of_files(logs),
    }
    for command, need in commands.items():
        if command[0] not in names:
            continue
        assert need is not None
        ratio = need.memory(need.limit_of(None)) / MIB / run("-m", "tracekit", *command).peak_mib
        assert LEAST <= ratio <= MOST, (command[0], ratio)


def test_work_that_fits_says_rows_bytes_and_memory(golden: Golden) -> None:
    golden(sentences(NEED, MACHINE))


def test_below_the_threshold_nothing_is_said_and_on_it_the_note_is() -> None:
    assert sentences(replace(NEED, cpu_s=LONG_S - 0.001), MACHINE) == []
    assert len(sentences(replace(NEED, cpu_s=LONG_S), MACHINE)) == 1


def test_files_of_which_no_rows_are_known_are_bytes() -> None:
    (said,) = sentences(replace(NEED, rows=0), MACHINE)
    assert said.startswith("reads 310.0 MiB; needs")


def test_what_does_not_fit_under_the_limit_goes_to_disk(golden: Golden) -> None:
    (said,) = sentences(NEED, MACHINE, "512MiB")
    golden(said)
    assert f"    note: {said}\n" in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    # All of it fits at exactly the limit, and one byte less does not.
    assert "of disk" not in sentences(NEED, MACHINE, f"{GIB}B")[0]
    assert "of disk" in sentences(NEED, MACHINE, f"{GIB - 1}B")[0]


def test_more_memory_than_the_machine_has_is_a_warning_also_of_short_work(golden: Golden) -> None:
    short = replace(NEED, cpu_s=1.0)
    small = replace(MACHINE, memory=GIB)
    (said,) = sentences(short, small)
    golden(said)
    assert sentences(short, replace(MACHINE, memory=short.arrays + short.tables)) == []
    # Under a limit it fits, and nothing is to be said.
    assert sentences(short, small, "500MiB") == []


def test_arrays_of_jobs_are_not_to_be_put_on_disk(golden: Golden) -> None:
    jobs = Need(rows=10**8, read=GIB, arrays=40 * GIB, tables=0, cpu_s=1.0, sliced=False)
    (said,) = sentences(jobs, MACHINE)
    golden(said)


def test_a_limit_that_the_arrays_exceed_is_reported(golden: Golden) -> None:
    _, said = sentences(replace(NEED, arrays=3 * GIB), MACHINE, "2GiB")
    golden(said)


def test_too_little_disk_is_a_warning_with_what_to_do(golden: Golden) -> None:
    full = replace(MACHINE, free_disk=GIB)
    _, said = sentences(NEED, full, "512MiB")
    golden(said)
    assert len(sentences(NEED, replace(MACHINE, free_disk=GIB + GIB // 2), "512MiB")) == 1


def test_another_engine_is_named_from_its_number_of_rows_on() -> None:
    many = replace(NEED, rows=ENGINE_ROWS, engine=True)
    assert "--engine spark" in sentences(many, MACHINE)[-1]
    assert "--engine spark" not in sentences(replace(many, rows=ENGINE_ROWS - 1), MACHINE)[-1]
    assert "--engine spark" not in sentences(replace(many, engine=False), MACHINE)[-1]


def test_a_machine_that_says_nothing_of_itself_is_warned_of_nothing() -> None:
    silent = Machine(None, None, Path("/scratch"))
    assert sentences(replace(NEED, tables=10**15), silent, "1GB")[0].endswith("for data that does not fit")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GB", 2 * 10**9),
        ("2 GiB", 2 * GIB),
        ("1.5gb", 1_500_000_000),
        ("512KB", 512_000),
        ("100 bytes", 100),
        ("7B", 7),
        ("1TB", 10**12),
        ("", None),
        ("50%", None),
        ("much", None),
        ("-1GB", None),
    ],
)
def test_sizes_are_read_as_duckdb_does(text: str, size: int | None) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["3GB", "3GiB", "1.5 GB", "700MiB"])
def test_duckdb_itself_reads_them_so(text: str) -> None:
    import duckdb

    with duckdb.connect() as con:
        con.execute(f"SET memory_limit = '{text}'")
        (shown,) = con.execute("SELECT value FROM duckdb_settings() WHERE name = 'memory_limit'").fetchall()[0]
    number, unit = shown.split()
    ours, one = bytes_of(text), {"GiB": GIB, "MiB": 2**20}[unit]
    assert ours is not None
    # It shows one digit, and cuts the rest.
    assert 0 <= ours - float(number) * one < 0.1001 * one


def test_this_machine_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = this_machine()
    assert found.memory is None or found.memory > 10**8
    limited = tmp_path / "memory.max"
    monkeypatch.setattr("tracekit.estimate._CGROUP_LIMIT", limited)
    whole = this_machine().memory
    limited.write_text("max\n")
    assert this_machine().memory == whole
    limited.write_text("1048576\n")
    assert this_machine().memory == 1_048_576
