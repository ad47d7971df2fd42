"""Fixtures that the tests of fits share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from threadpoolctl import threadpool_limits

import tracekit
from tests.fit.workloads import workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.fit.model import WorkloadModel
    from tracekit.trace import Trace

_MAPPING = Path(__file__).parents[2] / "docs" / "mapping" / "philly_jobs.toml"


@pytest.fixture(autouse=True, scope="package")
def _one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread, as `tracekit.fit` does, even if a test calls inner functions directly."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def log(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace of 1,500 jobs with nodes and quotas, which no test may change."""
    nodes = [{"node_id": f"n{i}", "gpu_count": 8, "gpu_model": "V100"} for i in range(5)]
    capacity = [
        {"time": "2020-04-06", "vc": "a", "gpu_count": 16},
        {"time": "2020-04-07", "vc": "a", "gpu_count": 24},
        {"time": "2020-04-06", "vc": "b", "gpu_count": 16},
    ]
    return make_trace(**workload(1500), nodes=nodes, capacity=capacity)


@pytest.fixture(scope="session")
def fitted(log: Trace, once: Callable[[str, Callable[[Path], Any]], Any]) -> WorkloadModel:
    """Return the model of `log`, which no test may change."""
    model: WorkloadModel = once("workload-model", lambda _: tracekit.fit(log, replicates=9, scores=0))
    return model


@pytest.fixture(scope="session")
def philly_list(real_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the Trace of the released Philly job list, which no test may change."""
    folder = tmp_path_factory.mktemp("philly")
    (folder / "source").mkdir()
    shutil.copy(real_data("philly/philly_jobs_2017-09_10.csv.gz"), folder / "source")
    return tracekit.ingest_logs(folder / "source", folder / "trace", format_name="csv", options={"map": str(_MAPPING)})


@pytest.fixture(scope="session")
def philly_model(philly_list: Trace) -> WorkloadModel:
    """Return the model of the released Philly job list, which no test may change."""
    model: WorkloadModel = tracekit.fit(philly_list, replicates=0, scores=0)
    return model
