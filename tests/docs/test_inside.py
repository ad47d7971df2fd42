"""The steps of the how-tos for a policy or a query in tracekit itself, followed in a copy of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("tracekit", "queries", "schemas", "reports", "docs", "tools")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the steps touch."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(checkout: Path, *arguments: str, code: int = 0) -> str:
    """Run Python in the copy, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def block(page: str, file: str) -> str:
    """Return a file that a page shows."""
    text = (ROOT / "docs" / "howto" / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- file: {re.escape(file)} -->\n```\w+\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def gpu_hours_by_week() -> str:
    """Return the query of the page as a shipped one."""
    return block("query.md", "gpu_hours_by_week.sql").replace("-- tables:", "-- paper: none\n-- tables:", 1)


@pytest.mark.thorough
def test_a_new_policy_and_a_new_query_are_found_and_make_their_pages_old(checkout: Path) -> None:
    (checkout / "tracekit" / "policies" / "short_first.py").write_text(block("policy.md", "my_policies.py"))
    (checkout / "queries" / "users" / "by_week.sql").write_text(gpu_hours_by_week())
    old = run(checkout, "tools/reference.py", "--check", code=1).splitlines()
    assert [line.partition(" ")[0] for line in old] == ["docs/reference/policies.md", "docs/reference/queries.md"]


@pytest.mark.thorough
def test_a_policy_is_one_file_and_a_page_written_again(checkout: Path) -> None:
    (checkout / "tracekit" / "policies" / "short_first.py").write_text(block("policy.md", "my_policies.py"))
    assert "short-first" in run(checkout, "-m", "tracekit", "policies")
    assert "reference/policies.md" in run(checkout, "tools/reference.py", "--check", code=1)
    run(checkout, "tools/reference.py")
    assert "short-first" in (checkout / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    run(checkout, "tools/reference.py", "--check")


@pytest.mark.thorough
def test_a_query_is_one_file_and_a_page_written_again(checkout: Path) -> None:
    (checkout / "queries" / "users" / "by_week.sql").write_text(gpu_hours_by_week())
    run(checkout, "-m", "tracekit", "ingest", str(ROOT / "sample_traces" / "philly"), "-o", "philly")
    assert "users/by_week" in run(checkout, "-m", "tracekit", "query", "philly")
    rows = run(checkout, "-m", "tracekit", "query", "philly", "users/by_week", "--param", "least_gpus=8", "-f", "csv")
    assert rows.splitlines()[1].startswith("2017-10-09,1c9ba8,2,")
    assert "reference/queries.md" in run(checkout, "tools/reference.py", "--check", code=1)
    run(checkout, "tools/reference.py")
    run(checkout, "tools/reference.py", "--check")
