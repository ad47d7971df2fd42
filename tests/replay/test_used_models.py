"""GPU models of nodes that the source does not state, from the jobs that ran there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.guidelines.planted import Log
from tracekit.replay.clusters.of_trace import cluster_of_trace
from tracekit.replay.workload.from_trace import jobs_of_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace


def test_a_node_has_the_model_of_most_of_its_gpu_hours(make_trace: Callable[..., Trace], golden: Golden) -> None:
    """n ran 4 GPU-hours of h100 and 1 of a slice of one; m an either-or alone; k states its own."""
    log = Log()
    log.nodes("nmk", 8)
    for node, hours, model in (("n", 4, "h100"), ("n", 1, "h100_1g"), ("m", 9, "a100|h100"), ("k", 9, "h100")):
        log.job(0, hours * 3600, node=node)
        log.tables["jobs"][-1]["gpu_model"] = model
    for row in log.tables["nodes"]:
        row["gpu_model"] = "v100" if row["node_id"] == "k" else None
    trace = make_trace(**log.tables)
    jobs = jobs_of_trace(trace)
    made = cluster_of_trace(trace, jobs)
    assert {n: made.models[m] for n, m in zip(made.node_id, made.model.tolist(), strict=True)} == {
        "n": "h100",
        "m": "",
        "k": "v100",
    }
    golden(made.origin)
