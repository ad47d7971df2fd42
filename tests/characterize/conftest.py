"""Fixtures that several test files here use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace


@pytest.fixture(scope="session")
def released_servers(real_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the Trace of the released server faults, which no test may change."""
    return ingest_logs(real_data("infinitehbd"), tmp_path_factory.mktemp("released") / "servers")


@pytest.fixture
def write_sql(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes SQL to a file and returns the file's path."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.sql"
        path.write_text(text, encoding="utf-8")
        return path

    return write
