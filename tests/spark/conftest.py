"""One Spark session for all tests here, and a report on it at the end."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.engines import engine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.characterize.engines import Engine

LONG = bool(os.environ.get("TRACEKIT_LONG"))
"""Whether all queries run on all traces, with TRACEKIT_LONG=1, instead of only those for which the gate has time."""

SMALL = {
    "spark.driver.memory": "1g",
    # A Java process that lives for minutes gains nothing from optimized compilation.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    # Compiling takes longer than these few rows, but the long tests use compiled code.
    "spark.sql.codegen.wholeStage": "true" if LONG else "false",
}

ASKED: dict[str, set[str]] = defaultdict(set)
"""The traces on which both engines ran each query."""


def why_not() -> str | None:
    """Return why Spark cannot run here, or None if it can."""
    for package in ("pyspark", "sqlglot"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") if home is None else (Path(home) / "bin" / "java").is_file()):
        return "there is no Java"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    missing = why_not()
    if missing:
        terminalreporter.write_line(f"spark: NOT RUN, because {missing}")
    elif ASKED:
        pairs = sum(len(traces) for traces in ASKED.values())
        traces = len({trace for names in ASKED.values() for trace in names})
        terminalreporter.write_line(
            f"spark: {len(ASKED)} queries ran on {traces} traces, {pairs} pairs, and gave DuckDB's answer"
        )


@pytest.fixture(scope="session")
def spark() -> Iterator[Engine]:
    missing = why_not()
    if missing:
        pytest.skip(f"spark: NOT RUN, because {missing}")
    from tracekit.characterize.engines.spark import SparkEngine

    with SparkEngine("local[2]", SMALL) as engine:
        yield engine


@pytest.fixture(scope="session")
def duckdb_engine() -> Engine:
    return engine_of("duckdb")


@pytest.fixture(scope="session")
def asked() -> Callable[[str, str], None]:
    """Return a function that records that a query ran on a trace."""
    return lambda query, trace: ASKED[query].add(trace)
