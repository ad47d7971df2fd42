"""Schemas load, tables conform to them, and what breaks them is named."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import polars as pl
import pytest

from tracekit import schema
from tracekit.errors import SchemaError
from tracekit.schema import Column, TableSchema

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "schemas" / "sources").glob("*/*.json"))
TABLE = TableSchema(
    "t",
    "T",
    "A table.",
    (
        Column("id", "string", "Key.", required=True),
        Column("n", "integer", "Count.", minimum=0, maximum=9),
        Column("x", "number", "Size."),
        Column("word", "string", "Word.", enum=("a", "b")),
        Column("held", "array", "Held.", item="integer"),
    ),
    primary_key=("id",),
)


@pytest.mark.parametrize("name", schema.COMMON_TABLES)
def test_every_common_table_has_a_schema_that_polars_and_duckdb_take(name: str) -> None:
    import duckdb

    table = schema.common(name)
    assert table.name == name
    assert list(table.polars) == list(table.names)
    assert set(table.primary_key) <= set(table.names)
    with duckdb.connect() as con:
        columns = ", ".join(f'"{c.name}" {c.sql}' for c in table.columns)
        con.execute(f"CREATE TABLE t ({columns})")
        assert con.sql("SELECT * FROM t").columns == list(table.names)


def test_every_schema_file_of_the_common_tables_is_used() -> None:
    assert {path.stem for path in (ROOT / "schemas" / "common").glob("*.json")} == set(schema.COMMON_TABLES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_schema_of_a_raw_file_loads(path: Path) -> None:
    table = schema.source(path.parent.name, path.stem)
    raw = json.loads(path.read_text(encoding="utf-8"))
    assert (table.name, list(table.names)) == (path.stem, [entry["name"] for entry in raw["fields"]])
    assert set(table.primary_key) <= set(table.names)
    assert len({len(zone) for c in table.columns for zone in c.zones}) <= 1


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(SchemaError, match=r"^no table 'jbos'; did you mean 'jobs'\?$"):
        schema.common("jbos")


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(SchemaError, match=r"^jobs: no column 'gpu_cuont'; did you mean 'gpu_count'\?$"):
        schema.common("jobs").column("gpu_cuont")


def test_a_frame_conforms_by_order_type_and_absent_columns() -> None:
    frame = pl.DataFrame({"x": [1], "id": ["a"]})
    expected = pl.DataFrame({"id": ["a"], "n": [None], "x": [1.0], "word": [None], "held": [None]}, schema=TABLE.polars)
    assert TABLE.conform(frame).equals(expected)
    assert TABLE.conform(frame).schema == expected.schema


def test_a_column_without_place_is_refused_not_dropped() -> None:
    with pytest.raises(SchemaError, match=r"^t: no column 'nn'; did you mean 'n'\?$"):
        TABLE.conform(pl.DataFrame({"id": ["a"], "nn": [1]}))


def test_values_that_do_not_convert_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"^t: values cannot be converted: "):
        TABLE.conform(pl.DataFrame({"id": ["a"], "n": ["many"]}))


def test_times_are_microseconds_without_zone() -> None:
    moment = dt.datetime(2017, 10, 3, 1, 2, 3, 456789)
    frame = schema.common("jobs").conform(pl.DataFrame({"job_id": ["a"], "submit_time": [moment]}))
    assert frame.schema["submit_time"] == pl.Datetime("us")
    assert frame["submit_time"].to_list() == [moment]


def test_the_reference_names_every_column_of_every_table_with_its_unit() -> None:
    text = schema.reference()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {t}" for t in schema.COMMON_TABLES]
    table_rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(table_rows) == sum(len(schema.common(t).columns) for t in schema.COMMON_TABLES)
    assert "| `job_id`* | VARCHAR |  |" in text
    assert "| `gpu_index` | BIGINT[] |" in text


def test_the_page_of_columns_is_the_reference() -> None:
    page = ROOT / "docs" / "columns.md"
    assert page.read_text(encoding="utf-8") == schema.reference()
