"""What is said before work, from needs and machines made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.estimate.machine import Machine, bytes_of, this_machine
from tracekit.estimate.need import ENGINE_ROWS, LONG_S, Need, sentences

if TYPE_CHECKING:
    from tests.reviewed import Golden

ROOT = Path(__file__).parents[2]
GIB = 2**30
NEED = Need(rows=45_000_000, read=310 * 2**20, arrays=GIB // 4, tables=GIB, cpu_s=12.0)
MACHINE = Machine(memory=8 * GIB, free_disk=80 * GIB, spill=Path("/scratch"), cores=2)


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
    jobs = Need(rows=10**8, read=GIB, arrays=40 * GIB, tables=0, cpu_s=1.0, limited=False, sliced=False)
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
    assert sentences(replace(NEED, tables=10**15), silent, "1GB")[0].endswith("for what does not fit")


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
    monkeypatch.setattr("tracekit.estimate.machine._CGROUP_LIMIT", limited)
    whole = this_machine().memory
    limited.write_text("max\n")
    assert this_machine().memory == whole
    limited.write_text("1048576\n")
    assert this_machine().memory == 1_048_576
