"""Every type of DuckDB is printed, in every format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.command import run
from tracekit.characterize import run_query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

AS_TEXT = {
    "INTERVAL 3 MONTH": "3 months",
    "'\\xff\\x00'::BLOB": "\\xFF\\x00",
    "'0101'::BIT": "0101",
    "union_value(k := 1)": "1",
    "12345678901234567890123456789012345678901::BIGNUM": "12345678901234567890123456789012345678901",
    "340282366920938463463374607431768211455::UHUGEINT": "340282366920938463463374607431768211455",
    "'01:02:03.123456789'::TIME_NS": "01:02:03.123456789",
    "TIMETZ '01:02:03+01'": "01:02:03+01",
    "[INTERVAL 1 DAY]": "[1 day]",
    "{'a': '01'::BIT}": "{'a': 01}",
    "MAP {'a': INTERVAL 1 DAY}": "{a=1 day}",
    "'infinity'::DATE": "infinity",
    "'-infinity'::TIMESTAMP": "-infinity",
    "'infinity'::TIMESTAMPTZ": "infinity",
    "'infinity'::TIMESTAMP_NS": "infinity",
    "DATE '12000-01-01'": "12000-01-01",
    "DATE '0044-03-15 (BC)'": "0044-03-15 (BC)",
    "TIMESTAMP '12000-01-01'": "12000-01-01 00:00:00",
    "TIMESTAMP_MS '12000-01-01'": "12000-01-01 00:00:00",
    "['infinity'::TIMESTAMP]": "[infinity]",
    "{'a': DATE '12000-01-01'}": "{'a': 12000-01-01}",
}
"""What has no type in Python or in Polars, and how DuckDB writes it."""

AS_IT_IS = {
    "1::UTINYINT": "1",
    "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
    "1.5::DECIMAL(10, 2)": "1.50",
    "'inf'::DOUBLE": "inf",
    "true": "true",
    "DATE '9999-12-31'": "9999-12-31",
    "TIMESTAMP '0001-01-01'": "0001-01-01T00:00:00.000000",
    "TIMESTAMP_NS '2024-01-01'": "2024-01-01T00:00:00.000000000",
    "TIME '01:02:03'": "01:02:03.000000000",
    "'a'::ENUM('a', 'BIT')": "a",
    "[1, 2]": '"[1, 2]"',
    "{'BLOB': 1}": '"{""BLOB"": 1}"',
    "MAP {'a': 1}": '"{""a"": 1}"',
    "[1, 2]::INTEGER[2]": '"[1, 2]"',
}
"""Values that keep their types, and their cells in CSV."""


@pytest.fixture
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(jobs=[{"job_id": "a"}])


def _file(folder: Path, values: dict[str, str]) -> Path:
    path = folder / "mine.sql"
    row = ", ".join(f"{value} AS c{n}" for n, value in enumerate(values))
    path.write_text(f"SELECT {row} UNION ALL SELECT {', '.join(['NULL'] * len(values))}", encoding="utf-8")
    return path


@pytest.mark.parametrize("limit", [(), ("--memory-limit", "1GB")])
def test_what_a_frame_cannot_hold_is_text_in_every_format(trace: Trace, tmp_path: Path, limit: tuple[str, ...]) -> None:
    file, expected = _file(tmp_path, AS_TEXT), list(AS_TEXT.values())
    found = run_query(trace, file)
    assert repr(found)
    assert list(found.row(0)) == expected
    assert set(found.row(1)) == {None}
    assert list(json.loads(run("query", trace.path, file, "-f", "json", *limit).stdout)[0].values()) == expected
    csv = run("query", trace.path, file, "-f", "csv", *limit).stdout
    assert list(pl.read_csv(csv.encode(), infer_schema=False).row(0)) == expected
    assert run("query", trace.path, file, "-f", "parquet", "-o", tmp_path / "out.parquet", *limit).returncode == 0
    assert list(pl.read_parquet(tmp_path / "out.parquet").row(0)) == expected
    assert all(text in run("query", trace.path, file, *limit).stdout for text in expected)


def test_what_a_frame_can_hold_keeps_its_type(trace: Trace, tmp_path: Path) -> None:
    file = _file(tmp_path, AS_IT_IS)
    csv = run("query", trace.path, file, "-f", "csv").stdout
    assert csv.splitlines()[1] == ",".join(AS_IT_IS.values())
    for form in ("json", "table"):
        assert run("query", trace.path, file, "-f", form).returncode == 0
    assert [str(kind) for kind in run_query(trace, file).dtypes[:2]] == ["UInt8", "Decimal(precision=38, scale=0)"]


def test_two_columns_of_one_name_are_an_error(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "mine.sql"
    file.write_text("SELECT 1 AS x, 2 AS y, 3 AS X")
    with pytest.raises(QueryError) as caught:
        run_query(trace, file)
    assert str(caught.value) == f"{file}: two columns are called 'x'; rename one with AS"
