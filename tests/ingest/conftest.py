"""Fixtures of the ingest tests, for raw files from text and the rows that they give."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.trace import Trace


@pytest.fixture
def write_source(tmp_path: Path) -> Callable[[Mapping[str, str | bytes]], Path]:
    """Return a function that writes raw files, given by path, to a new folder."""
    numbers = itertools.count()

    def write(files: Mapping[str, str | bytes]) -> Path:
        folder = tmp_path / f"source-{next(numbers)}"
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return folder

    return write


@pytest.fixture
def ingest(tmp_path: Path, write_source: Callable[[Mapping[str, str | bytes]], Path]) -> Callable[..., Trace]:
    """Return a function that ingests raw files given as text, and checks that the Trace is valid."""
    numbers = itertools.count()

    def run(files: Mapping[str, str | bytes], **arguments: Any) -> Trace:
        trace = ingest_logs(write_source(files), tmp_path / f"trace-{next(numbers)}", **arguments)
        assert trace.validate() == []
        return trace

    return run


@pytest.fixture
def mapped(tmp_path: Path, ingest: Callable[..., Trace]) -> Callable[[str, Mapping[str, str | bytes]], Trace]:
    """Return a function that ingests files with a mapping given as text."""

    def run(mapping: str, files: Mapping[str, str | bytes]) -> Trace:
        path = tmp_path / "map.toml"
        path.write_text(mapping)
        # A tiny input with a record for each fault consists mostly of faults.
        return ingest(files, format_name="csv", options={"map": str(path)}, max_reject_share=0.9)

    return run


@pytest.fixture
def rows() -> Callable[[Trace, str], list[dict[str, Any]]]:
    """Return a function that returns a table's rows in order, without NULL cells and with times as strings."""

    def read(trace: Trace, table: str) -> list[dict[str, Any]]:
        if not trace.has(table):
            return []
        return [
            {k: str(v) if isinstance(v, dt.datetime) else v for k, v in row.items() if v is not None}
            for row in trace.scan(table).collect().to_dicts()
        ]

    return read


@pytest.fixture
def found_checks() -> Callable[[Trace], dict[str, tuple[int, int | None]]]:
    """Return a function that returns the numbers found and checked by each check that found something."""
    return lambda trace: {k: (c.count, c.of) for k, c in trace.manifest.checks.items() if c.count}
