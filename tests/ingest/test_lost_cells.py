"""An optional cell that cannot be read changes no other cell, whatever the format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit import schema
from tracekit.ingest.cells import LostValues, says_nothing, typed_cells

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, object]]]

FILES = sorted((Path(__file__).parents[2] / "schemas" / "sources").glob("*/*.json"))
EVERY = {f"{path.parent.name}/{path.stem}": schema.source(path.parent.name, path.stem) for path in FILES}
KINDS = ("string", "integer", "number", "datetime", "date")
TABLES = {name: table for name, table in EVERY.items() if all(c.kind in KINDS for c in table.columns)}
GARBAGE = st.sampled_from(["?", "-", "1e999", "-1e300", "12:61", "1,5", "[1", "\x07", "NaN%", "0x10"])


def cell(column: schema.Column, number: int) -> str:
    """Return a usable cell."""
    if column.kind in ("integer", "number"):
        return str(int(max(column.minimum or 0, 0)) + number % 2)
    if column.kind in ("datetime", "date"):
        moment = pl.Series([f"2020-03-0{number + 1} 10:20:30"]).str.to_datetime()
        zone = next(iter(column.zones), "")
        form = (column.format or "%Y-%m-%dT%H:%M:%S").replace("%z", "+0000")
        return f"{moment.dt.strftime(form)[0]}{zone}"
    return f"word{number}"


@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("name", TABLES)
@given(data=st.data())
def test_garbage_in_an_optional_cell_changes_no_other_cell(name: str, data: st.DataObject) -> None:
    spec = TABLES[name]
    optional = [c.name for c in spec.columns if not c.decides]
    if not optional:
        return
    whole = pl.DataFrame({c.name: [cell(c, n) for n in range(3)] for c in spec.columns})
    column, row = data.draw(st.sampled_from(optional)), data.draw(st.integers(0, 2))
    text = whole[column].to_list()
    text[row] = data.draw(GARBAGE)
    before, bad, lost = typed_cells(whole, spec)
    assert (bad, lost) == ([], [])
    after, bad, lost = typed_cells(whole.with_columns(pl.Series(column, text)), spec)
    assert bad == []
    assert after.drop(column).equals(before.drop(column))
    others = [n for n in range(3) if n != row]
    assert after[column].gather(others).equals(before[column].gather(others))
    if spec.column(column).kind != "string":
        # What became unknown is counted, and what is a number after all is not.
        assert sum(int(cells.rows.sum()) for cells in lost) == int(after[column][row] is None)


def test_values_of_a_record_are_counted_once_it_is_used() -> None:
    lost = LostValues()
    assert lost.read("a", "7", int) == 7
    assert (lost.read("a", None, int), lost.read("a", "", int), lost.read("a", "inf", int)) == (None, None, None)
    assert "a" not in lost
    assert lost.read("a", "x", int) is None
    assert "a" in lost


@pytest.mark.parametrize("text", ["inf", " Infinity", "UNLIMITED", "4294967295", "18446744073709551615", "[]", "NaN"])
def test_words_and_numbers_for_no_limit_state_nothing(text: str) -> None:
    assert says_nothing(text)
    assert not says_nothing(f"{text}x")


LOST = {
    "user": set(),
    "gpus": {"gpu_count"},
    "cpus": {"cpu_count"},
    "limit": {"time_limit_s"},
    "prio": {"priority"},
    "mem": {"memory_gib"},
    "spot": {"preemptible"},
    "kind": {"workload"},
    "since": {"eligible_time"},
    "hosts": {"node_count"},
}
"""What a cell that cannot be read costs, by its column; a user may be any text."""


def test_a_mapped_cell_costs_itself(mapped: Callable[..., Trace], rows: Rows) -> None:
    mapping = """
[source]
delimiter = ";"
[jobs.columns]
job_id = "id"
submit_time = "at"
run_s = "run"
user = "user"
gpu_count = { column = "gpus", default = 0 }
cpu_count = "cpus"
time_limit_s = { column = "limit", unit = "min" }
priority = "prio"
memory_gib = { column = "mem", unit = "quantity" }
preemptible = "spot"
workload = "kind"
eligible_time = "since"
[jobs.nodes]
column = "hosts"
expand = true
"""
    job = {
        "id": "whole", "at": "2020-01-01", "run": "60", "user": "u", "gpus": "2", "cpus": "4", "limit": "10",
        "prio": "5", "mem": "16Gi", "spot": "yes", "kind": "training", "since": "2020-01-01", "hosts": "n[1-2]",
    }  # fmt: skip
    records = [job, *(job | {"id": column, column: "n[1-?"} for column in LOST)]
    text = "".join(";".join(cells) + "\n" for cells in (job, *(record.values() for record in records)))
    trace = mapped(mapping, {"jobs.csv": text})
    found = {str(row.pop("job_id")): row for row in rows(trace, "jobs")}
    whole = found.pop("whole")
    assert found.pop("user") == whole | {"user": "n[1-?"}
    assert found == {column: {k: v for k, v in whole.items() if k not in lost} for column, lost in LOST.items() if lost}
    checks = {name: check.count for name, check in trace.manifest.checks.items() if check.count}
    assert checks == {f"unreadable_{column}": 1 for column, lost in LOST.items() if lost}
