from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import polars as pl
from polars.testing import assert_frame_equal

from tracekit.report.table_files import csv_safe, write_tables

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_that_a_spreadsheet_would_run_gets_a_quote() -> None:
    names = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "x=1", "", None, "'x"]
    shown = csv_safe(pl.DataFrame({"user": names, "number": [-1] * len(names)}))
    assert shown["user"].to_list() == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "x=1", "", None, "'x"]
    assert shown["number"].to_list() == [-1] * len(names)


def test_lists_become_json_text_in_csv() -> None:
    frame = pl.DataFrame({"gpus": [[1, 2], None]}, schema={"gpus": pl.List(pl.Int64)})
    assert csv_safe(frame)["gpus"].to_list() == ["[1,2]", None]


def test_parquet_keeps_the_values_and_csv_the_safe_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["=1", "b"], "time": [dt.datetime(2020, 1, 1), None], "jobs": [1, 2]})
    files = write_tables(tmp_path, "users/all", frame)
    assert files == ["tables/users/all.parquet", "tables/users/all.csv"]
    assert_frame_equal(pl.read_parquet(tmp_path / files[0]), frame)
    assert (tmp_path / files[1]).read_text().splitlines()[:2] == ["user,time,jobs", "'=1,2020-01-01T00:00:00,1"]
