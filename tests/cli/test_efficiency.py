"""tracekit efficiency as a user meets it."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.command import run
from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def trace(sample_trace: Callable[[str], Trace]) -> Trace:
    return sample_trace("slurm")


def test_the_rows_are_those_of_the_query_in_each_form(trace: Trace, tmp_path: Path) -> None:
    expected = run_query(trace, "utilization/efficiency", by="account").rename({"key": "account"})
    printed = run("efficiency", trace.path, "--by", "account", "-f", "csv")
    assert pl.read_csv(io.StringIO(printed.stdout)).columns == expected.columns
    told = run("efficiency", trace.path, "--by", "account", "-f", "json")
    assert [row["account"] for row in json.loads(told.stdout)] == expected["account"].to_list()
    file = tmp_path / "e.parquet"
    assert run("efficiency", trace.path, "--by", "account", "-f", "parquet", "-o", file).returncode == 0
    assert pl.read_parquet(file).equals(expected)
    refused = run("efficiency", trace.path, "-f", "csv", "-o", file)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    shown = run("efficiency", trace.path, "--by", "account")
    assert "physics" in shown.stdout
    assert "wasted_gpu_h" in shown.stdout


def test_a_formula_is_quoted_in_csv_and_nowhere_else(make_trace: Callable[..., Trace]) -> None:
    job = {"job_id": "a", "user": "=1+1", "gpu_count": 1, "run_s": 3600.0, "status": "completed"}
    attempt = {"job_id": "a", "attempt": 0, "gpu_count": 1, "run_s": 3600.0, "status": "completed"}
    path = make_trace(jobs=[job], attempts=[attempt]).path
    guarded = run("efficiency", path, "--by", "user", "-f", "csv").stdout
    assert pl.read_csv(io.StringIO(guarded))["user"].to_list() == ["'=1+1"]
    raw = run("efficiency", path, "--by", "user", "-f", "json").stdout
    assert [row["user"] for row in json.loads(raw)] == ["=1+1"]


def test_the_jobs_are_listed_instead_with_a_reason(trace: Trace) -> None:
    done = run("efficiency", trace.path, "--jobs", "3", "-f", "json")
    rows = json.loads(done.stdout)
    assert len(rows) == 3
    assert rows[0]["wasted_gpu_h"] >= rows[1]["wasted_gpu_h"]
    assert "GPU-hours" in rows[0]["reason"]


def test_the_bill_adds_up_in_the_file(trace: Trace, tmp_path: Path) -> None:
    prices, file = tmp_path / "prices.toml", tmp_path / "bill.csv"
    prices.write_text('currency = "EUR"\n[[price]]\nper_gpu_hour = "1.11"\n')
    done = run("efficiency", trace.path, "--prices", prices, "--month", "2024-03", "-f", "csv", "-o", file)
    assert done.returncode == 0
    bill = pl.read_csv(file, schema_overrides={"cost": pl.Decimal(38, 2)})
    assert done.stderr == f"note: {bill['cost'].sum():,} EUR for 3,097 GPU-hours in 2024-03\n"
    told = json.loads(run("efficiency", trace.path, "--prices", prices, "-f", "json").stdout)
    assert isinstance(told[0]["cost"], float)
    assert run("efficiency", trace.path, "--prices", prices).stdout.count("EUR") == bill.height


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "acount"), "'acount' is not a dimension of GPU-hours; did you mean 'account'?"),
        (("--by", "qos"), "the Trace does not record the qos of any job"),
        (("--jobs", "3", "--prices", "p.toml"), "cannot be combined with --prices, because they print two tables"),
        (("--month", "2024-03"), "month: works only with prices"),
        (("--prices", "absent.toml"), "cannot read the prices"),
        (("-o", "x.csv"), "the table format only prints to the terminal"),
        (("-f", "parquet"), "Parquet needs a file"),
        (("--salt-file", "salt"), "works only with --anonymize"),
    ],
)
def test_a_mistake_is_one_line(options: tuple[str, ...], message: str, trace: Trace, tmp_path: Path) -> None:
    done = run("efficiency", trace.path, *options, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
