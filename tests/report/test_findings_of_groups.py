"""What the report says about locality, idle GPUs, failures, users and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.report.sections.interface import TraceFacts, finding, why_empty

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _rows(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


_RELAXATION = "gpu_class relaxation jobs mean_queue_s waits"


def test_relaxation_names_the_size_that_is_spread_most(golden: Golden) -> None:
    rows = _rows(
        _RELAXATION,
        ("1", 2.0, 99, 1.0, 99),
        ("2-4", 1.0, 90, 60.0, 90),
        ("2-4", 2.0, 10, 120.0, 10),
        ("5-8", 1.5, 40, 1.0, 40),
        (">8", 9.0, 2, None, 0),
    )
    strict = _rows(_RELAXATION, ("1", 1.0, 99, 1.0, 99), ("2-4", 1.0, 9, 1.0, 9), (">8", 0.5, 9, 1.0, 9))
    golden(
        [
            told(finding("locality/relaxation", rows), "100 %", "jobs of 5-8 GPUs", "5-8", "30"),
            told(finding("locality/relaxation", rows[1:3]), "2 min", "10", "1 min"),
            told(finding("locality/relaxation", strict)),
        ]
    )


def test_waits_of_spread_jobs_are_weighted_by_the_waits_that_are_known(golden: Golden) -> None:
    rows = _rows(_RELAXATION, ("2-4", 1.0, 30, 0.0, 30), ("2-4", 2.0, 5, 60.0, 5), ("2-4", 3.0, 5, 600.0, 1))
    # (5 * 60 s + 600 s) / 6, and not (5 * 60 s + 5 * 600 s) / 10.
    golden(told(finding("locality/relaxation", rows), "2.5 min", "6", "0 s"))
    few = [rows[0], {**rows[1], "waits": 3}, rows[2]]
    assert "They waited" not in (finding("locality/relaxation", few) or "")


_SPREAD = "gpu_count node_count samples mean_pct"


def test_utilization_by_spread_speaks_of_the_size_of_the_paper_where_it_can(golden: Golden) -> None:
    rows = _rows(
        _SPREAD,
        (8.0, 1, 9000, 50.0),
        (8.0, 2, 9000, 40.0),
        (16.0, 2, 700, 43.66),
        (16.0, 8, 60, 28.56),
        (16.0, 9, 59, 1.0),
    )
    golden(
        [
            told(finding("locality/utilization_by_spread", rows), "16", "43.7 %", "2", "700", "28.6 %", "8", "60"),
            told(finding("locality/utilization_by_spread", rows[:3]), "8", "50.0 %", "1", "9,000", "40.0 %", "2"),
        ]
    )
    assert finding("locality/utilization_by_spread", rows[2:3]) is None


_COLOCATION = "gpu_count colocated samples mean_pct"


def test_colocation_compares_the_size_that_was_seen_most_in_both_ways(golden: Golden) -> None:
    rows = _rows(
        _COLOCATION, (1.0, False, 70, 60.0), (1.0, True, 9000, 50.0), (4.0, False, 800, 45.0), (4.0, True, 900, 41.0)
    )
    alone = _rows(_COLOCATION, (1.0, False, 70, 60.0))
    golden(
        [
            told(finding("locality/utilization_by_colocation", rows), "4", "45.0 %", "41.0 %"),
            told(finding("locality/utilization_by_colocation", alone)),
        ]
    )
    assert finding("locality/utilization_by_colocation", rows[1:2]) is None
    few = _rows(_COLOCATION, (1.0, False, 59, 60.0), (1.0, True, 99, 50.0))
    assert finding("locality/utilization_by_colocation", few) is None


def test_dedicated_names_the_sizes_that_were_seen_most(golden: Golden) -> None:
    columns = "gpu_count samples mean_pct"
    rows = _rows(columns, (2.0, 5, 1.0), (4.0, 10, 2.0), (8.0, 900, 59.0), (16.0, 800, 41.0))
    golden(
        [
            told(finding("utilization/dedicated", rows), "2.0 %", "4", "59.0 %", "8", "41.0 %", "16"),
            told(finding("utilization/dedicated", rows[:1]), "1.0 %", "2"),
        ]
    )


_IDLE = "job_id user gpu_count run_s mean_pct wasted_gpu_h"


def test_idle_jobs_add_up_and_name_the_worst(golden: Golden) -> None:
    rows = _rows(_IDLE, ("j1", "u", 4.0, 7200.0, 2.5, 7.8), ("j2", None, 1.0, 3600.0, 0.0, 1.0))
    golden(
        [
            told(finding("utilization/idle_jobs", rows), "j1 of u", "2", "8.8", "7.8", "4", "2 h", "2.5 %"),
            told(finding("utilization/idle_jobs", rows[1:]), "1", "0.0 %"),
        ]
    )


def test_reasons_name_the_commonest_and_the_costliest(golden: Golden) -> None:
    columns = "reason trials rtf_demand_share"
    rows = _rows(columns, ("CPU out of memory", 60, 0.2), ("MPI runtime failure", 40, 0.8))
    both = _rows(columns, ("Core dump", 3, 1.0))
    golden(
        [
            told(
                finding("failures/reasons", rows), "CPU out of memory", "MPI runtime failure", "60.0 %", "100", "80.0 %"
            ),
            told(finding("failures/reasons", both), "Core dump", "100 % of 3", "and 100 %"),
            told(finding("failures/reasons", _rows(columns, ("Core dump", 3, None))), "Core dump", "100 % of 3"),
        ]
    )


def test_run_time_to_failure(golden: Golden) -> None:
    columns = "gpu_class failures p50_s gpu_hours_lost"
    rows = _rows(columns, ("1", 100, 240.0, 10.0), (">8", 7, 7200.0, 30.0))
    golden(
        [
            told(finding("failures/run_time_to_failure", rows), "1-GPU", "4 min", "40", "75.0 %", "8"),
            told(finding("failures/run_time_to_failure", _rows(columns, ("0", 3, 60.0, 0.0))), "1 min", "3"),
        ]
    )


def test_by_user_names_who_loses_most(golden: Golden) -> None:
    columns = "user jobs failed_jobs failed_share gpu_hours_lost"
    rows = _rows(columns, ("u", 40, 10, 0.25, 12.0), ("v", 4, 4, 1.0, 3.0))
    golden(
        [
            told(finding("failures/by_user", rows), "user u", "12", "25.0 %"),
            told(finding("failures/by_user", _rows(columns, (None, 4, 0, None, 3.0))), "3"),
            told(finding("failures/by_user", _rows(columns, ("u", 4, 0, 0.0, 3.0))), "3", "4"),
        ]
    )
    assert finding("failures/by_user", _rows(columns, ("u", 4, 4, 1.0, 0.0), ("v", 1, 1, 1.0, None))) is None


_NODES = "node_id failed_trials expected_failed_trials p_value suspect"


def test_by_node_tells_bad_nodes_from_bad_luck(golden: Golden) -> None:
    bad = [(f"n{i}", 30 - i, 5.04, 1e-9, True) for i in range(5)]
    rows = _rows(_NODES, *bad, ("m", 7, 5.0, 0.02, False))
    golden(
        [
            told(finding("failures/by_node", rows), "n0", "n1", "n2", "5", "30", "29", "28", "2"),
            told(finding("failures/by_node", rows[4:]), "n4", "1", "26", "5"),
            told(finding("failures/by_node", rows[5:]), "m", "7", "5"),
        ]
    )
    assert (finding("failures/by_node", rows[5:], TraceFacts(outages=True)) or "").endswith("For outages, see below.")


@pytest.mark.parametrize("row", [("m", 0, 0.0, 1.0, False), ("m", 3, None, None, False)])
def test_by_node_says_nothing_without_failures_or_a_test(row: tuple[Any, ...]) -> None:
    assert finding("failures/by_node", _rows(_NODES, row)) is None


def test_concentration_speaks_of_the_heaviest_tenth(golden: Golden) -> None:
    columns = "user_share gpu_time_share cpu_time_share"
    rows = _rows(columns, *((k / 20, 0.4 + k * 0.03, None if k else 0.9) for k in range(1, 21)))
    few = _rows(columns, (0.5, 0.7, 0.9), (1.0, 1.0, 1.0))
    drawn_as_the_paper = _rows(columns, (0.0, 0.7, None), (1.0, 1.0, None))
    golden(
        [
            told(finding("users/concentration", rows), "2", "20", "10.0 %", "46.0 %"),
            told(finding("users/concentration", few), "50.0 %", "70.0 %", "90.0 %"),
            told(finding("users/concentration", drawn_as_the_paper), "70.0 %"),
            told(finding("users/concentration", _rows(columns, (1.0, 1.0, None)))),
        ]
    )
    assert finding("users/concentration", _rows(columns, (1.0, None, None))) is None


def test_user_queueing(golden: Golden) -> None:
    columns = "user gpu_jobs queue_hours completed_share"
    rows = _rows(columns, ("u", 1300, 2500.4, 0.8), ("v", 1, 0.0, None))
    assert finding("users/queueing", rows[1:]) == "No job with GPUs waited."
    golden(
        [
            told(finding("users/queueing", rows), "User u", "2,500 h", "1,300", "80.0 %"),
            told(finding("users/queueing", _rows(columns, (None, 3, 1.0, None))), "1 h", "3"),
        ]
    )
    assert finding("users/queueing", _rows(columns, ("u", 3, None, None))) is None


_GANGS = "instance_count jobs gpu_hours_share"


def test_gangs(golden: Golden) -> None:
    rows = _rows(_GANGS, (1, 60, 0.2), (2, 30, 0.3), (8, 10, 0.5), (None, 20, None))
    golden(
        [
            told(finding("workload/gangs", rows), "40.0 %", "80.0 %"),
            told(finding("workload/gangs", _rows(_GANGS, (1, 6, None))), "0 %"),
        ]
    )


def test_gangs_of_few_jobs_are_not_a_share_of_all(golden: Golden) -> None:
    golden(
        [
            told(finding("workload/gangs", _rows(_GANGS, (15, 1, None), (None, 274, 1.0))), "1"),
            told(why_empty("workload/gangs", _rows(_GANGS, (None, 274, 1.0)))),
        ]
    )
    assert why_empty("workload/gangs", _rows(_GANGS, (15, 1, None), (None, 274, 1.0))) is None


def test_recurrence(golden: Golden) -> None:
    rows = _rows(
        "group jobs median_run_s", ("g", 15, 720.0), ("h", 5, None), ("k", 4, None), *((c, 1, 9.0) for c in "lmnopqr")
    )
    golden(
        [
            told(finding("workload/recurrence", rows), "g", "31", "64.5 %", "5", "15", "12 min"),
            told(finding("workload/recurrence", rows[1:2]), "1"),
        ]
    )


@pytest.mark.parametrize(("late", "ended"), [(0, "failed"), (2, "failed or timed out"), (7, "timed out")])
def test_by_node_tells_limits_of_time_from_failures(golden: Golden, late: int, ended: str) -> None:
    columns = f"{_NODES} failed_attempts timed_out_attempts"
    said = finding("failures/by_node", _rows(columns, ("m", 3, 1.0, 0.02, False, 7, late))) or ""
    golden(told(said, "3", "1"))


def test_out_of_service_names_what_cost_most(golden: Golden) -> None:
    columns = "cause state nodes events going_on node_hours gpu_hours"
    rows = _rows(
        columns,
        ("gpu memory", "drained", 2, 3, 1, 10.0, 30.0),
        (None, "down", 1, 1, 0, 2.0, 10.0),
        ("thermal", "degraded", 1, 5, 0, 9.0, 90.0),  # such a node takes jobs
    )
    golden(
        [
            told(finding("failures/out_of_service", rows), "gpu memory", "4", "1", "75.0 %"),
            told(finding("failures/out_of_service", rows[1:2]), "1", "10"),
        ]
    )
    assert finding("failures/out_of_service", rows[2:]) is None


def test_scores_name_the_nearest_generator_and_a_naive_one_that_is_nearer(golden: Golden) -> None:
    columns = "workload mean_rank wait_fifo_mean_s"
    log, model, naive = (
        ("the log, held-out part", None, 7200.0),
        ("model", 2.5, 3600.0),
        ("one by one (naive)", 2.0, 0.0),
    )
    nearer = finding("fit/scores", _rows(columns, log, model, naive))
    golden(
        [
            told(
                finding("fit/scores", _rows(columns, log, model, ("resample", 3.0, 1.0))), "model", "2.5", "1 h", "2 h"
            ),
            told(nearer, "model", "one by one (naive)"),
        ]
    )
    assert finding("fit/scores", _rows(columns, log, naive)) is None


def test_node_availability_names_the_least_available(golden: Golden) -> None:
    columns = "node_id down_h events availability_share"
    rows = _rows(columns, ("m", 5.0, 2, 0.5), ("n", 1.0, 1, 0.9), ("o", 0.0, 0, 1.0), ("p", 0.0, 0, 1.0))
    golden(
        [
            told(finding("failures/node_availability", rows), "m", "50.0 %", "85.0 %", "2", "4"),
            told(finding("failures/node_availability", rows[1:]), "n", "90.0 %", "96.7 %", "1", "3"),
        ]
    )
    assert finding("failures/node_availability", rows[2:]) is None


def test_repair_time_compares_causes_that_are_named(golden: Golden) -> None:
    columns = "cause state events p50_h"
    fan, nic, unknown = ("fan", "down", 50, 82.0), ("nic", "down", 40, 0.5), ("unknown", "down", 90, 900.0)
    few, going_on = ("xid", "down", 3, 999.0), ("power", "down", 60, None)
    golden(
        [
            told(
                finding("failures/repair_time", _rows(columns, fan, nic, unknown, few, going_on)),
                "50",
                "3.42 d",
                "40",
                "30 min",
            ),
            told(finding("failures/repair_time", _rows(columns, fan)), "fan", "50", "3.42 d"),
        ]
    )
    assert finding("failures/repair_time", _rows(columns, unknown)) is None
    assert finding("failures/repair_time", _rows(columns, ("nvlink", "down", 1, 0.0))) is None


def test_wait_reasons_are_those_of_gpu_jobs(golden: Golden) -> None:
    columns = "reason_group jobs gpu_jobs wait_share gpu_wait_share"
    rows = _rows(columns, ("none", 50, 10, 0.9, 0.5), ("limit", 5, 4, 0.06, 0.3), ("begin time", 2, 1, 0.04, 0.2))
    golden(told(finding("queuing/wait_reasons", rows), "15", "30.0 %", "20.0 %"))
