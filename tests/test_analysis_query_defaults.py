"""Parameters that queries get in a report: the size of the cluster, how retries are read, how long intervals are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.analysis.query_defaults import QueryDefaults, parameters_of, query_defaults
from tracekit.characterize import find_query, run_query
from tracekit.report.facts import TelemetryCoverage
from tracekit.report.telemetry import telemetry_coverage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.report.structure import CapacityInfo
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def capacity(used: str | None, gpus: float | None) -> CapacityInfo:
    return {"requested": "listed", "used": used, "gpus": gpus, "alternatives": {}, "note": "", "word": ""}


def job(name: str, cluster: str = "c", day: int = 1, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "cluster": cluster, "submit_time": f"2020-01-{day:02} 00:00", **more}


def test_the_size_of_the_only_cluster_is_given_where_queries_do_not_find_it(make_trace: MakeTrace) -> None:
    one, two = make_trace(jobs=[job("a")]), make_trace(jobs=[job("a"), job("b", "d")])
    assert query_defaults(one, capacity("observed", 8.0)).gpus == 8.0
    assert query_defaults(one, capacity("gpus.csv", 8.0)).gpus == 8.0
    assert query_defaults(one, capacity("listed", 8.0)).gpus is None
    assert query_defaults(one, capacity(None, None)).gpus is None
    assert query_defaults(two, capacity("observed", 8.0)).gpus is None


@pytest.mark.parametrize(
    ("statuses", "one"),
    [
        ((None, "failed"), True),
        (("unknown", "completed"), True),
        (("failed", "completed"), False),
        (("failed",), False),
    ],
)
def test_retries_count_as_failures_where_the_source_says_nothing_of_them(
    make_trace: MakeTrace, statuses: tuple[str | None, ...], one: bool
) -> None:
    attempts = [{"job_id": "a", "attempt": k, "status": status} for k, status in enumerate(statuses)]
    assert query_defaults(make_trace(jobs=[job("a")], attempts=attempts), capacity(None, None)).one_status is one


def test_intervals_are_so_long_that_a_report_holds_the_load_of_all_vcs(make_trace: MakeTrace) -> None:
    few = [job("a", vc="v"), job("b", vc="w", day=31)]
    # 2 VCs: 30 days of hours are 722 rows each, of two hours 362; below 2,000 together.
    assert query_defaults(make_trace(jobs=few), capacity(None, None)).step_s == 3600
    some = [job(str(k), vc=str(k), day=1 + 30 * (k % 2)) for k in range(20)]
    trace = make_trace(jobs=[{**j, "start_time": j["submit_time"], "gpu_count": 1} for j in some], attempts=[])
    # 20 VCs: 92 rows each at most; 62 of twelve hours.
    assert query_defaults(trace, capacity(None, None)).step_s == 43_200
    many = [job(str(k), vc=str(k)) for k in range(1000)]
    assert query_defaults(make_trace(jobs=many), capacity(None, None)).step_s is None


def test_a_query_gets_the_parameters_that_it_has() -> None:
    shape = QueryDefaults(gpus=8.0, word="observed", one_status=True, step_s=7200)
    whole = ["the number of GPUs is the same as in the rest of the report: observed"]
    assert parameters_of(find_query("queuing/cluster_timeline"), shape) == ({"gpus": 8.0}, whole)
    assert parameters_of(find_query("queuing/timeline"), shape) == ({"step_s": 7200}, [])
    # Its rule is another one.
    by_hour = {"gpus": 8.0, "until": "last_submission"}
    assert parameters_of(find_query("utilization/cluster_by_hour"), shape) == (by_hour, whole)
    assert parameters_of(find_query("failures/by_user"), shape) == (
        {"rule": "retried"},
        ["retried runs count as failed, because the source does not record how they ended"],
    )
    assert parameters_of(find_query("failures/by_user"), QueryDefaults()) == ({}, [])
    # Tries of one job on one node are not independent, as the test of this query takes them.
    assert parameters_of(find_query("failures/by_node"), shape) == ({}, [])


def test_what_came_after_the_last_submission_counts_only_beside_numbers_that_count_it() -> None:
    until = {"until": "last_submission"}
    assert parameters_of(find_query("utilization/vc"), QueryDefaults()) == (until, [])
    public = QueryDefaults(published=frozenset({"utilization/cluster_by_hour"}))
    assert parameters_of(find_query("utilization/vc"), public) == (until, [])
    assert parameters_of(find_query("utilization/cluster_by_hour"), public) == ({}, [])


def test_a_sample_of_a_release_is_not_beside_its_numbers(sample_trace: Callable[[str], Trace]) -> None:
    assert query_defaults(sample_trace("helios"), capacity("listed", 264.0)).published == frozenset()


def test_free_gpus_are_those_of_the_machines_of_the_report() -> None:
    free = find_query("locality/fragmentation")
    assert parameters_of(free, QueryDefaults(word="listed")) == ({"capacity": "listed"}, [])
    assert parameters_of(free, QueryDefaults(word="stated")) == ({}, [])
    # Whether a gang would have found room is a question to the real machines, whatever the list says.
    assert parameters_of(find_query("queuing/delay_causes"), QueryDefaults(word="listed")) == ({}, [])


def test_what_telemetry_watches(make_trace: MakeTrace) -> None:
    def sample(node: str, minute: int) -> dict[str, Any]:
        return {"time": f"2020-01-01 00:{minute:02}", "node_id": node, "gpu_index": 0, "utilization_pct": 1.0}

    def attempt(name: str, start: int, end: int | None) -> dict[str, Any]:
        until = None if end is None else f"2020-01-01 00:{end:02}"
        return {
            "job_id": name,
            "attempt": 0,
            "gpu_count": 2,
            "start_time": f"2020-01-01 00:{start:02}",
            "end_time": until,
        }

    trace = make_trace(
        jobs=[job(name) for name in "abcde"],
        # a ends as n is sampled first, b runs then, c between two samples, d on a node without any, e on another GPU.
        attempts=[
            attempt(*facts) for facts in (("a", 0, 10), ("b", 5, 12), ("c", 12, 18), ("d", 10, 20), ("e", 5, 25))
        ],
        placements=[
            {"job_id": name, "attempt": 0, "node_id": node, "gpu_count": 1, "gpu_index": [gpu]}
            for name, node, gpu in (
                ("a", "n", 0),
                ("b", "n", 0),
                ("b", "o", 0),
                ("c", "n", 0),
                ("d", "o", 0),
                ("e", "n", 1),
            )
        ],
        gpu_utilization=[sample("n", 10), sample("n", 20)],
        nodes=[{"node_id": n, "gpu_count": 2} for n in "nop"],
    )
    found = telemetry_coverage(trace)
    assert found == TelemetryCoverage(nodes=3, gpu_nodes=1, attempts={(2.0, 2): 1})
    assert found.of_size(2) == 1
    assert telemetry_coverage(make_trace(jobs=[job("a")])) == TelemetryCoverage()


def test_a_report_can_hold_all_rows_of_the_load_of_its_vcs(make_trace: MakeTrace) -> None:
    jobs = [
        {**job(str(k), vc=str(k % 7), day=1 + k % 28), "start_time": f"2020-01-{1 + k % 28:02} 01:00", "gpu_count": 1}
        for k in range(100)
    ]
    attempts = [{"job_id": j["job_id"], "attempt": 0, "start_time": j["start_time"], "gpu_count": 1} for j in jobs]
    trace = make_trace(jobs=jobs, attempts=attempts)
    step = query_defaults(trace, capacity(None, None)).step_s
    assert step is not None
    assert len(run_query(trace, "queuing/timeline", step_s=step)) < 2000
