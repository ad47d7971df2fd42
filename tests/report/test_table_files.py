from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import polars as pl
from polars.testing import assert_frame_equal

from tracekit.report.files import write_tables
from tracekit.spreadsheets import csv_safe, guarded

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_that_a_spreadsheet_would_run_gets_a_quote() -> None:
    names = ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "x=1", "", None, "'x"]
    shown = csv_safe(pl.DataFrame({"user": names, "number": [-1] * len(names)}))
    assert shown["user"].to_list() == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "x=1", "", None, "'x"]
    assert shown["number"].to_list() == [-1] * len(names)


def test_full_width_signs_and_blanks_before_a_sign_do_not_hide_it() -> None:
    risky = [
        "\uff1d1+1",
        "\uff0b1",
        "\uff0d1",
        "\uff20x",
        "\nx",
        "\n=1",
        " =1",
        "  +1",
        "\u3000@x",
        "\u00a0-1",
        "\u200b=1",
    ]
    risky += ["\ufeff=1", " \n\t\uff1d1", "\v=1", "\0=1"]
    harmless = [" x", "x\n=1", "x =1", "1-2", "\u30fcx", "a@b", " ", "\u2212"]
    shown = csv_safe(pl.DataFrame({"user": risky + harmless}))
    assert shown["user"].to_list() == [f"'{text}" for text in risky] + harmless
    again, changed = guarded(pl.DataFrame({"user": risky + harmless}))
    assert again.equals(shown)
    assert changed == len(risky)


def test_lists_become_json_text_in_csv() -> None:
    frame = pl.DataFrame({"gpus": [[1, 2], None]}, schema={"gpus": pl.List(pl.Int64)})
    assert csv_safe(frame)["gpus"].to_list() == ["[1,2]", None]


def test_parquet_keeps_the_values_and_csv_the_safe_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"user": ["=1", "b"], "time": [dt.datetime(2020, 1, 1), None], "jobs": [1, 2]})
    files = write_tables(tmp_path, "users/all", frame)
    assert files == ["tables/users/all.parquet", "tables/users/all.csv"]
    assert_frame_equal(pl.read_parquet(tmp_path / files[0]), frame)
    assert (tmp_path / files[1]).read_text().splitlines()[:2] == ["user,time,jobs", "'=1,2020-01-01T00:00:00,1"]
