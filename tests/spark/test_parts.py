"""Partitions and parts of a Trace: Spark reads the rows that DuckDB reads of them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.spark.alike import difference
from tests.spark.conftest import LONG
from tracekit.characterize import answer_query
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.characterize.engines import Engine
    from tracekit.trace import Trace

pytestmark = pytest.mark.spark

NAMES = (
    "overview/status",
    "queuing/queue_delay",
    "utilization/gpu_by_size_status",
    "utilization/host",
    "queuing/timeline",
    "queuing/delay_causes",
)


@pytest.fixture(scope="module")
def layouts(sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    whole = sample_trace("philly")
    folder: Path = tmp_path_factory.mktemp("parts") / "trace"
    return {"file": whole, "partitions": ingest_logs(whole.path, folder, partition="day")}


EVERY = [(layout, part) for layout in ("file", "partitions") for part in ("all", "days", "cluster")]


@pytest.mark.parametrize(("layout", "part"), EVERY if LONG else [("file", "cluster"), ("partitions", "days")])
def test_a_part_of_either_layout_gives_duckdbs_answer(
    layouts: dict[str, Trace], layout: str, part: str, spark: Engine
) -> None:
    trace = layouts[layout]
    begin, end = dt.datetime(2017, 11, 4), dt.datetime(2017, 11, 5, 12)
    asked = {
        "all": trace,
        "days": trace.window(begin, end),
        "cluster": trace.window(cluster=trace.clusters[0]),
    }[part]
    for name in NAMES:
        expected = answer_query(asked, name).frame
        assert expected.height > 0, name
        assert difference(expected, answer_query(asked, name, engine=spark).frame) is None, name
        if part == "days":
            assert not expected.equals(answer_query(trace, name).frame), name


def test_partitions_with_nodes_of_their_own_are_clusters_in_both_engines(
    sample_trace: Callable[[str], Trace], tmp_path: Path, spark: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.tables.pools.ENOUGH_JOBS", 100)
    trace = ingest_logs(sample_trace("slurm").path, tmp_path / "trace", partition="none")
    assert trace.divided.clusters == ("a100+cpu", "h100")
    for name in ("overview/summary", "queuing/cluster_timeline", "queuing/delay_causes"):
        expected = answer_query(trace, name).frame
        assert difference(expected, answer_query(trace, name, engine=spark).frame) is None, name
