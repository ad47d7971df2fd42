"""`tracekit compare` and `tracekit query --published` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def traces(sample_trace: Callable[[str], Trace]) -> Path:
    """Return a folder with Traces of three samples."""
    (folder,) = {sample_trace(name).path.parent for name in ("philly", "helios", "alibaba-pai")}
    return folder


@pytest.mark.parametrize(
    "queries", [("--query", "overview/status"), pytest.param((), marks=pytest.mark.thorough)], ids=["one", "all"]
)
def test_three_sample_traces_give_one_page(traces: Path, tmp_path: Path, queries: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    result = run("compare", *(traces / n for n in ("philly", "helios", "alibaba-pai")), "-o", out, *queries)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"comparison: {out / 'compare.html'}\n"
    page = (out / "compare.html").read_text(encoding="utf-8")
    assert "Comparison of 3 GPU cluster traces" in page
    data = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [t["name"] for t in data["traces"]] == ["philly", "helios", "alibaba-pai"]
    status = (out / "tables" / "overview" / "status.csv").read_text(encoding="utf-8")
    assert status.startswith(
        "trace,status,jobs,jobs_share,gpu_hours,gpu_hours_share,gpu_jobs,gpu_jobs_share,cpu_jobs_share\n"
    )
    assert '\n"philly, published (Table 6)",completed,66696,0.693,' in status


def test_traces_are_named_and_queries_chosen(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = (f"a b={traces / 'philly'}", traces / "helios", "-o", out, "--query", "overview/status")
    assert run("compare", *arguments).returncode == 0
    data = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [t["name"] for t in data["traces"]] == ["a b", "helios"]
    assert [a["name"] for s in data["sections"] for a in s["answers"]] == ["overview/status"]
    assert data["command"].startswith("tracekit compare 'a b=")
    again = run("compare", *arguments)
    assert again.returncode == 2
    assert "exists" in again.stderr
    assert run("compare", *arguments, "--force").returncode == 0


def test_a_folder_with_an_equals_sign_is_a_folder(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "x=y").symlink_to(traces / "helios")
    result = run("compare", "x=y", traces / "philly", "-o", "out", "--query", "overview/status", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["philly"], "at least two traces, not 1"),
        (["philly", "nothing"], "the trace or source does not exist"),
        (["=philly", "helios"], "'=philly' is not NAME=TRACE"),
        (["a=philly", "a=helios"], "two traces have the name 'a'"),
        (["philly", "helios", "--query", "overview/statsu"], "did you mean"),
    ],
)
def test_a_mistake_is_one_line(traces: Path, tmp_path: Path, arguments: list[str], part: str) -> None:
    result = run("compare", *arguments, "-o", tmp_path / "out", cwd=traces)
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert lines[0].startswith("tracekit: error: ")
    assert part in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_a_query_shows_published_numbers_below_its_table(traces: Path, golden: Golden) -> None:
    result = run("query", traces / "philly", "overview/status", "--published")
    assert result.returncode == 0, result.stderr
    table, _, below = result.stdout.partition("Published and measured")
    assert "completed" in table
    row = next(line.split("  ") for line in below.splitlines() if "share of jobs: status completed" in line)
    cells = [c.strip() for c in row if c.strip()]
    assert cells == ["share of jobs: status completed", "69.3 %", "65.7 %", "\N{MINUS SIGN}3.6 points", "E", "Table 6"]
    golden(result.stderr)


def test_published_numbers_do_not_disturb_data(traces: Path, golden: Golden) -> None:
    plain = run("query", traces / "philly", "overview/status", "-f", "csv")
    both = run("query", traces / "philly", "overview/status", "-f", "csv", "--published")
    assert both.stdout == plain.stdout
    golden(both.stderr, "beside a table")
    none = run("query", traces / "alibaba-pai", "overview/arrivals_by_hour", "-f", "csv", "--published")
    assert none.returncode == 0
    golden(none.stderr, "where there are none")
