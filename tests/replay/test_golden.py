"""The golden micro-traces: four GPUs on one node, no overhead, finish times worked by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine, run_oracle
from tracekit.replay.registry import policies

if TYPE_CHECKING:
    from collections.abc import Callable

TRACES = {
    "A": [(0, 3, 10), (1, 4, 10), (2, 1, 5), (3, 1, 20)],
    "B": [(0, 2, 10), (1, 3, 10), (2, 4, 10), (3, 1, 30)],
}

GOLDEN = [
    # policy, trace, ends of jobs 1-4 [s], mean completion time [s], preemptions
    ("fifo,scan=stop", "A", (10, 20, 25, 40), 22.25, 0),
    ("fifo,scan=stop", "B", (10, 20, 30, 60), 28.50, 0),
    ("fifo,scan=skip", "A", (10, 37, 7, 27), 18.75, 0),
    ("fifo,scan=skip", "B", (10, 20, 43, 33), 25.00, 0),
    ("sjf,scan=stop", "A", (10, 20, 7, 40), 17.75, 0),
    ("sjf,scan=stop", "B", (10, 20, 30, 60), 28.50, 0),
    ("ssf,scan=stop", "A", (10, 37, 7, 27), 18.75, 0),
    ("ssf,scan=stop", "B", (10, 20, 50, 40), 28.50, 0),
    ("easy", "A", (10, 20, 7, 40), 17.75, 0),
    ("easy", "B", (10, 20, 43, 33), 25.00, 0),
    ("conservative", "A", (10, 20, 7, 40), 17.75, 0),
    ("conservative", "B", (10, 20, 30, 60), 28.50, 0),
    ("srtf,scan=skip", "A", (10, 20, 7, 37), 17.00, 1),
    ("srtf,scan=skip", "B", (10, 20, 30, 43), 24.25, 1),
    ("srsf,scan=skip", "A", (14, 33, 7, 23), 17.75, 1),
    ("srsf,scan=skip", "B", (10, 20, 43, 33), 25.00, 0),
    ("las,queues=12", "A", (16, 26, 10, 34), 20.00, 4),
    ("las,queues=12", "B", (17, 23, 30, 43), 26.75, 5),
    ("las,queues=none", "A", (10, 20, 7, 37), 17.00, 1),
    ("las,queues=none", "B", (10, 20, 30, 43), 24.25, 1),
]

ENGINES: dict[str, Callable[..., Any]] = {"oracle": run_oracle, "engine": run_engine}
CASES = [
    (engine, *row) for engine in ENGINES for row in GOLDEN if engine == "oracle" or row[0].split(",")[0] in policies()
]


@pytest.mark.parametrize("fit", ["place", "count"])
@pytest.mark.parametrize(("engine", "policy", "trace", "ends_s", "mean_s", "preemptions"), CASES)
def test_golden_micro_traces(
    engine: str, fit: str, policy: str, trace: str, ends_s: tuple[int, ...], mean_s: float, preemptions: int
) -> None:
    rows = TRACES[trace]
    jobs, cluster = make_jobs(rows), make_cluster((4,))
    outcome = ENGINES[engine](jobs, cluster, f"{policy},fit={fit}")
    assert [int(end) for end in outcome.end_ms] == [end * 1000 for end in ends_s]
    assert sum(end - row[0] for end, row in zip(ends_s, rows, strict=True)) / 4 == mean_s
    assert sum(int(count) for count in outcome.preemptions) == preemptions
    assert sum(int(count) for count in outcome.migrations) == 0
    assert audit(jobs, cluster, outcome.log, outcome) == []
