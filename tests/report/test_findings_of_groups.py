"""What the report says about locality, idle GPUs, failures, users and groups."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit.report.sections.interface import TraceFacts, finding, why_empty


def _rows(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


_RELAXATION = "gpu_class relaxation jobs mean_queue_s waits"


def test_relaxation_names_the_size_that_is_spread_most() -> None:
    rows = _rows(
        _RELAXATION,
        ("1", 2.0, 99, 1.0, 99),
        ("2-4", 1.0, 90, 60.0, 90),
        ("2-4", 2.0, 10, 120.0, 10),
        ("5-8", 1.5, 40, 1.0, 40),
        (">8", 9.0, 2, None, 0),
    )
    assert finding("locality/relaxation", rows) == (
        "100 % of the jobs of 5-8 GPUs ran on more nodes than they need, the largest share of any size with at least"
        " 30 jobs."
    )
    assert (finding("locality/relaxation", rows[1:3]) or "").endswith(
        " They waited 2 min on average (n = 10), the others of this size 1 min."
    )
    strict = _rows(_RELAXATION, ("1", 1.0, 99, 1.0, 99), ("2-4", 1.0, 9, 1.0, 9), (">8", 0.5, 9, 1.0, 9))
    assert finding("locality/relaxation", strict) == "Every job ran on the fewest nodes that could hold it."


def test_waits_of_spread_jobs_are_weighted_by_the_waits_that_are_known() -> None:
    rows = _rows(_RELAXATION, ("2-4", 1.0, 30, 0.0, 30), ("2-4", 2.0, 5, 60.0, 5), ("2-4", 3.0, 5, 600.0, 1))
    # (5 * 60 s + 600 s) / 6, and not (5 * 60 s + 5 * 600 s) / 10.
    assert (finding("locality/relaxation", rows) or "").endswith(
        " They waited 2.5 min on average (n = 6), the others of this size 0 s."
    )
    few = [rows[0], {**rows[1], "waits": 3}, rows[2]]
    assert "They waited" not in (finding("locality/relaxation", few) or "")


_SPREAD = "gpu_count node_count samples mean_pct"


def test_utilization_by_spread_speaks_of_the_size_of_the_paper_where_it_can() -> None:
    rows = _rows(
        _SPREAD,
        (8.0, 1, 9000, 50.0),
        (8.0, 2, 9000, 40.0),
        (16.0, 2, 700, 43.66),
        (16.0, 8, 60, 28.56),
        (16.0, 9, 59, 1.0),
    )
    assert finding("locality/utilization_by_spread", rows) == (
        "GPUs of attempts of 16 GPUs were 43.7 % busy on average on 2 nodes (700 samples) and 28.6 % on 8 nodes (60"
        " samples)."
    )
    assert finding("locality/utilization_by_spread", rows[:3]) == (
        "GPUs of attempts of 8 GPUs were 50.0 % busy on average on 1 node (9,000 samples) and 40.0 % on 2 nodes (9,000"
        " samples)."
    )
    assert finding("locality/utilization_by_spread", rows[2:3]) is None


_COLOCATION = "gpu_count colocated samples mean_pct"


def test_colocation_compares_the_size_that_was_seen_most_in_both_ways() -> None:
    rows = _rows(
        _COLOCATION, (1.0, False, 70, 60.0), (1.0, True, 9000, 50.0), (4.0, False, 800, 45.0), (4.0, True, 900, 41.0)
    )
    assert finding("locality/utilization_by_colocation", rows) == (
        "GPUs of attempts of 4 GPUs were 45.0 % busy on average while alone on their nodes, 41.0 % beside another job."
    )
    alone = _rows(_COLOCATION, (1.0, False, 70, 60.0))
    words = "At no time were GPUs of one node held by several jobs."
    assert finding("locality/utilization_by_colocation", alone) == words
    assert finding("locality/utilization_by_colocation", rows[1:2]) is None
    few = _rows(_COLOCATION, (1.0, False, 59, 60.0), (1.0, True, 99, 50.0))
    assert finding("locality/utilization_by_colocation", few) is None


def test_dedicated_names_the_sizes_that_were_seen_most() -> None:
    columns = "gpu_count samples mean_pct"
    rows = _rows(columns, (2.0, 5, 1.0), (4.0, 10, 2.0), (8.0, 900, 59.0), (16.0, 800, 41.0))
    assert finding("utilization/dedicated", rows) == (
        "GPUs of whole nodes were busy 2.0 % in jobs of 4 GPUs, 59.0 % in jobs of 8 GPUs and 41.0 % in jobs of 16 GPUs."
    )
    assert finding("utilization/dedicated", rows[:1]) == ("GPUs of whole nodes were busy 1.0 % in jobs of 2 GPUs.")


_IDLE = "job_id user gpu_count run_s mean_pct wasted_gpu_h"


def test_idle_jobs_add_up_and_name_the_worst() -> None:
    rows = _rows(_IDLE, ("j1", "u", 4.0, 7200.0, 2.5, 7.8), ("j2", None, 1.0, 3600.0, 0.0, 1.0))
    assert finding("utilization/idle_jobs", rows) == (
        "The 2 jobs of the table wasted 8.8 GPU-hours, the first alone 7.8: job j1 of u held 4 GPUs for 2 h at a mean"
        " of 2.5 %."
    )
    assert finding("utilization/idle_jobs", rows[1:]) == (
        "1 job of the table wasted 1 GPU-hours (mean utilization 0.0 %)."
    )


def test_reasons_name_the_commonest_and_the_costliest() -> None:
    columns = "reason trials rtf_demand_share"
    rows = _rows(columns, ("CPU out of memory", 60, 0.2), ("MPI runtime failure", 40, 0.8))
    assert finding("failures/reasons", rows) == (
        "The commonest reason is CPU out of memory: 60.0 % of 100 failed attempts; the most GPU time goes with MPI"
        " runtime failure, 80.0 %."
    )
    alike = "The commonest reason is Core dump: 100 % of 3 failed attempts"
    both = _rows(columns, ("Core dump", 3, 1.0))
    assert finding("failures/reasons", both) == f"{alike}, and 100 % of the GPU time that failed."
    assert finding("failures/reasons", _rows(columns, ("Core dump", 3, None))) == f"{alike}."


def test_run_time_to_failure() -> None:
    columns = "gpu_class failures p50_s gpu_hours_lost"
    rows = _rows(columns, ("1", 100, 240.0, 10.0), (">8", 7, 7200.0, 30.0))
    assert finding("failures/run_time_to_failure", rows) == (
        "Half of the attempts of 1-GPU jobs that failed did so within 4 min. All that failed took 40 GPU-hours, 75.0"
        " % of them in jobs of more than 8 GPUs."
    )
    assert finding("failures/run_time_to_failure", _rows(columns, ("0", 3, 60.0, 0.0))) == (
        "Half of the attempts of CPU jobs that failed did so within 1 min (n = 3)."
    )


def test_by_user_names_who_loses_most() -> None:
    columns = "user jobs failed_jobs failed_share gpu_hours_lost"
    rows = _rows(columns, ("u", 40, 10, 0.25, 12.0), ("v", 4, 4, 1.0, 3.0))
    assert finding("failures/by_user", rows) == (
        "Failed attempts of user u took the most, 12 GPU-hours; in the end 25.0 % of the jobs failed."
    )
    assert finding("failures/by_user", _rows(columns, (None, 4, 0, None, 3.0))) == (
        "Failed attempts of jobs without a user took the most, 3 GPU-hours."
    )
    assert finding("failures/by_user", _rows(columns, ("u", 4, 0, 0.0, 3.0))) == (
        "Failed attempts of user u took the most, 3 GPU-hours; in the end none of the jobs failed (n = 4)."
    )
    assert finding("failures/by_user", _rows(columns, ("u", 4, 4, 1.0, 0.0), ("v", 1, 1, 1.0, None))) is None


_NODES = "node_id failed_trials expected_failed_trials p_value suspect"


def test_by_node_tells_bad_nodes_from_bad_luck() -> None:
    bad = [(f"n{i}", 30 - i, 5.04, 1e-9, True) for i in range(5)]
    rows = _rows(_NODES, *bad, ("m", 7, 5.0, 0.02, False))
    assert finding("failures/by_node", rows) == (
        "On 5 nodes attempts fail more often than bad luck explains, counting one session's failures once: n0 (30"
        " failed, 5 expected), n1 (29 failed, 5 expected), n2 (28 failed, 5 expected) and 2 more."
    )
    assert finding("failures/by_node", rows[4:]) == (
        "On 1 node attempts fail more often than bad luck explains, counting one session's failures once: n4 (26"
        " failed, 5 expected)."
    )
    assert finding("failures/by_node", rows[5:]) == (
        "Failed attempts point to no node more than bad luck explains, counting one session's failures once; nearest"
        " to it comes m (7 failed, 5 expected)."
    )
    assert (finding("failures/by_node", rows[5:], TraceFacts(outages=True)) or "").endswith("Outages may: see below.")


@pytest.mark.parametrize("row", [("m", 0, 0.0, 1.0, False), ("m", 3, None, None, False)])
def test_by_node_says_nothing_without_failures_or_a_test(row: tuple[Any, ...]) -> None:
    assert finding("failures/by_node", _rows(_NODES, row)) is None


def test_concentration_speaks_of_the_heaviest_tenth() -> None:
    columns = "user_share gpu_time_share cpu_time_share"
    rows = _rows(columns, *((k / 20, 0.4 + k * 0.03, None if k else 0.9) for k in range(1, 21)))
    assert finding("users/concentration", rows) == (
        "The heaviest 2 of the 20 users (10.0 %) took 46.0 % of the GPU time."
    )
    few = _rows(columns, (0.5, 0.7, 0.9), (1.0, 1.0, 1.0))
    assert finding("users/concentration", few) == (
        "The heaviest user (50.0 %) took 70.0 % of the GPU time and 90.0 % of the CPU time of CPU jobs."
    )
    drawn_as_the_paper = _rows(columns, (0.0, 0.7, None), (1.0, 1.0, None))
    words = "The heaviest user took 70.0 % of the GPU time."
    assert finding("users/concentration", drawn_as_the_paper) == words
    assert finding("users/concentration", _rows(columns, (1.0, 1.0, None))) == "All jobs are those of a single user."
    assert finding("users/concentration", _rows(columns, (1.0, None, None))) is None


def test_user_queueing() -> None:
    columns = "user gpu_jobs queue_hours completed_share"
    rows = _rows(columns, ("u", 1300, 2500.4, 0.8), ("v", 1, 0.0, None))
    assert finding("users/queueing", rows) == (
        "User u waited longest, 2,500 h over 1,300 GPU jobs, of which 80.0 % completed."
    )
    assert finding("users/queueing", rows[1:]) == "No job with GPUs waited."
    assert finding("users/queueing", _rows(columns, (None, 3, 1.0, None))) == (
        "Jobs without a user waited longest, 1 h over 3 GPU jobs."
    )
    assert finding("users/queueing", _rows(columns, ("u", 3, None, None))) is None


_GANGS = "instance_count jobs gpu_hours_share"


def test_gangs() -> None:
    rows = _rows(_GANGS, (1, 60, 0.2), (2, 30, 0.3), (8, 10, 0.5), (None, 20, None))
    assert finding("workload/gangs", rows) == (
        "40.0 % of the jobs of known gang size start several instances at once; they take 80.0 % of the GPU time."
    )
    assert finding("workload/gangs", _rows(_GANGS, (1, 6, None))) == (
        "0 % of the jobs of known gang size start several instances at once."
    )


def test_gangs_of_few_jobs_are_no_share_of_all() -> None:
    few = "The source states of 1 job alone how many instances they start."
    assert finding("workload/gangs", _rows(_GANGS, (15, 1, None), (None, 274, 1.0))) == few
    words = "The source does not state how many instances jobs start."
    assert why_empty("workload/gangs", _rows(_GANGS, (None, 274, 1.0))) == words
    assert why_empty("workload/gangs", _rows(_GANGS, (15, 1, None), (None, 274, 1.0))) is None


def test_recurrence() -> None:
    rows = _rows(
        "group jobs median_run_s", ("g", 15, 720.0), ("h", 5, None), ("k", 4, None), *((c, 1, 9.0) for c in "lmnopqr")
    )
    assert finding("workload/recurrence", rows) == (
        "Of the 31 jobs in the groups of the table, 64.5 % are in groups of at least 5 jobs; the largest, g, has 15"
        " with a median run time of 12 min."
    )
    assert finding("workload/recurrence", rows[1:2]) == (
        "The source puts its jobs into 1 group only: such a group is a kind of job, and does not show which job is the"
        " same as an earlier one."
    )


@pytest.mark.parametrize(("late", "ended"), [(0, "failed"), (2, "failed or timed out"), (7, "timed out")])
def test_by_node_tells_limits_of_time_from_failures(late: int, ended: str) -> None:
    columns = f"{_NODES} failed_attempts timed_out_attempts"
    said = finding("failures/by_node", _rows(columns, ("m", 3, 1.0, 0.02, False, 7, late))) or ""
    assert said.endswith(f"comes m (3 {ended}, 1 expected).")


def test_out_of_service_names_what_cost_most() -> None:
    columns = "cause state nodes events going_on node_hours gpu_hours"
    rows = _rows(
        columns,
        ("gpu memory", "drained", 2, 3, 1, 10.0, 30.0),
        (None, "down", 1, 1, 0, 2.0, 10.0),
        ("thermal", "degraded", 1, 5, 0, 9.0, 90.0),  # such a node takes jobs
    )
    assert finding("failures/out_of_service", rows) == (
        "Nodes were out of service 4 times, 1 of which the log does not see the end: 75.0 % of these times, and 75.0"
        " % of the GPU-hours, they were drained because of gpu memory."
    )
    assert finding("failures/out_of_service", rows[1:2]) == (
        "Nodes were out of service 1 time, down without a stated reason, with 10 GPU-hours."
    )
    assert finding("failures/out_of_service", rows[2:]) is None


def test_scores_name_the_nearest_generator_and_a_naive_one_that_is_nearer() -> None:
    columns = "workload mean_rank wait_fifo_mean_s"
    log, model, naive = (
        ("the log, held-out part", None, 7200.0),
        ("model", 2.5, 3600.0),
        ("one by one (naive)", 2.0, 0.0),
    )
    said = "Of the generators, 'model' comes nearest to the last part of the log, with a mean rank of 2.5 among"
    waits = " Replayed under FIFO its jobs wait 1 h on average, those of the log 2 h."
    assert finding("fit/scores", _rows(columns, log, model, ("resample", 3.0, 1.0))) == f"{said} 2 workloads.{waits}"
    assert finding("fit/scores", _rows(columns, log, model, naive)) == (
        f"{said} 2 workloads. A naive workload (one by one (naive)) comes nearer: the log says little about what"
        f" follows it.{waits}"
    )
    assert finding("fit/scores", _rows(columns, log, naive)) is None


def test_node_availability_names_the_least_available() -> None:
    columns = "node_id down_h events availability_share"
    rows = _rows(columns, ("m", 5.0, 2, 0.5), ("n", 1.0, 1, 0.9), ("o", 0.0, 0, 1.0), ("p", 0.0, 0, 1.0))
    assert finding("failures/node_availability", rows) == (
        "m was out of service longest, fit for work 50.0 % of the time (all nodes: 85.0 %); 2 of 4 nodes were out at"
        " least once."
    )
    assert finding("failures/node_availability", rows[1:]) == (
        "n was out of service longest, fit for work 90.0 % of the time (all nodes: 96.7 %); 1 of 3 nodes was out"
        " at least once."
    )
    assert finding("failures/node_availability", rows[2:]) is None


def test_repair_time_compares_causes_that_are_named() -> None:
    columns = "cause state events p50_h"
    fan, nic, unknown = ("fan", "down", 50, 82.0), ("nic", "down", 40, 0.5), ("unknown", "down", 90, 900.0)
    few, going_on = ("xid", "down", 3, 999.0), ("power", "down", 60, None)
    assert finding("failures/repair_time", _rows(columns, fan, nic, unknown, few, going_on)) == (
        "Half of the 50 outages by fan were over within 3.42 d, half of the 40 by nic within 30 min."
    )
    assert finding("failures/repair_time", _rows(columns, fan)) == (
        "Half of the 50 outages by fan were over within 3.42 d."
    )
    assert finding("failures/repair_time", _rows(columns, unknown)) is None
    assert finding("failures/repair_time", _rows(columns, ("nvlink", "down", 1, 0.0))) is None


def test_wait_reasons_are_those_of_gpu_jobs() -> None:
    columns = "reason_group jobs gpu_jobs wait_share gpu_wait_share"
    rows = _rows(columns, ("none", 50, 10, 0.9, 0.5), ("limit", 5, 4, 0.06, 0.3), ("begin time", 2, 1, 0.04, 0.2))
    assert finding("queuing/wait_reasons", rows) == (
        "Of the time that 15 GPU jobs waited, limits held them for 30.0 %, and dependencies, begin times or people"
        " for 20.0 %."
    )
