"""A damaged footer never ends a process, and what keeps a Trace from being opened is what `validate` finds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.effort import examples
from tracekit.errors import DamagedTraceError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trace(sample_trace: Callable[[str], Trace], tmp_path: Path) -> Trace:
    """Return a Trace that the test may damage."""
    shutil.copytree(sample_trace("swf").path, tmp_path / "trace")
    return Trace.open(tmp_path / "trace")


def footer_of(content: bytes) -> int:
    """Return the position at which the footer of a Parquet file begins."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def why_not_opened(trace: Trace) -> str:
    with pytest.raises(DamagedTraceError) as caught:
        Trace.open(trace.path)
    return caught.value.what


def test_a_name_that_is_no_text_is_found_by_validate(trace: Trace) -> None:
    path = trace.files("jobs")[0]
    content = bytearray(path.read_bytes())
    place = content.rindex(b"account")  # the footer names a column again beside its statistics
    content[place + 4] = 0xFF
    path.write_bytes(content)
    what = why_not_opened(trace)
    assert "unicode" in what
    assert trace.validate()[0] == trace.validate(deep=True)[0] == what


def test_statistics_with_a_time_in_no_year_are_found_by_validate(trace: Trace) -> None:
    path = trace.files("jobs")[0]
    content = path.read_bytes()
    begin = footer_of(content)
    latest = pl.read_parquet(path)["submit_time"].to_physical().max()
    assert isinstance(latest, int)
    stated = latest.to_bytes(8, "little")
    assert content.count(stated, begin)
    path.write_bytes(content[:begin] + content[begin:].replace(stated, (2**62).to_bytes(8, "little")))
    what = why_not_opened(trace)
    assert "has a time outside the years 1 to 9999" in what
    assert trace.validate()[0] == f"jobs: {what} in a footer"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each damage needs a process of its own, made quickly")
@pytest.mark.parametrize("where", ["footer", "anywhere"])
@pytest.mark.parametrize("cases", [8, pytest.param(examples(150), marks=pytest.mark.thorough)])
def test_bytes_changed_by_chance_end_in_an_error_that_validate_explains(where: str, cases: int, trace: Trace) -> None:
    command = [sys.executable, "-m", "tests.tables.changed_bytes", str(trace.path), where, str(cases)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert len(outcomes) == cases
    assert set(outcomes) <= {"answered", "failed, and validate says why"}, done.stdout
    assert outcomes.count("answered") < cases / 2
