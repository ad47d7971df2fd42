"""Traces that several files of these tests read."""

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
    """Return the Trace of the released faults of servers, which no test may change."""
    return ingest_logs(real_data("infinitehbd"), tmp_path_factory.mktemp("released") / "servers")
