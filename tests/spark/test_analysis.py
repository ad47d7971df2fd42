"""A report made with Spark is the same page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.spark.alike import alike, difference
from tracekit.analysis import analyze
from tracekit.characterize.engines.duckdb import DuckdbEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.characterize.engines import Engine

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_OF_A_RUN = {"command", "created", "ingested"}


@pytest.mark.parametrize("sample", ["slurm-outages", "philly"])
def test_report_and_tables_are_the_same(
    sample: str,
    sample_trace: Callable[..., Any],
    spark: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trace = sample_trace(sample)
    settings: dict[str, Any] = {"fit": False, "replay_jobs": 0}
    analyze(trace, tmp_path / "duckdb", **settings)
    # The Spark of all tests, which an analysis would stop at its end.
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(
        "tracekit.characterize.engines.engine_of", lambda name, master: spark if name == "spark" else DuckdbEngine()
    )
    analyze(trace, tmp_path / "spark", engine="spark", **settings)
    one, other = (
        json.loads((tmp_path / name / "report.json").read_text(encoding="utf-8")) for name in ("duckdb", "spark")
    )
    assert list(_differences(one, other, "")) == []
    tables = sorted((tmp_path / "duckdb" / "tables").rglob("*.parquet"))
    assert len(tables) > 30
    for table in tables:
        beside = tmp_path / "spark" / table.relative_to(tmp_path / "duckdb")
        assert difference(pl.read_parquet(table), pl.read_parquet(beside)) is None, table.name


def _differences(one: Any, other: Any, place: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield f"{place}: {sorted(one.keys() ^ other.keys())}"
        for key in one.keys() & other.keys() - _OF_A_RUN:
            yield from _differences(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, f"{place}/{number}")
    elif not alike(one, other):
        yield f"{place}: {one!r} against {other!r}"
