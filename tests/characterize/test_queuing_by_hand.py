"""Causes of waits, order of starts and use through time, on one day that fits on paper.

Two nodes, m and n, with 4 GPUs each. VC v may use 6 GPUs, w 8. Hours from midnight:

    job  vc  GPUs  node  submitted  runs
    a    v   4     m     0          0    to 4
    b    v   4     m     0          4    to 5
    c    w   2     n     1          1    to 3
    d    w   4     m     2          5    to 6
    e    w   1     n     2.5        2.5  to 3
    f    w   1     n     3.5        3.5  to 3.75
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import answer_query, lacks, run_query
from tracekit.characterize.query import find_query
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

MIDNIGHT = dt.datetime(2020, 1, 1)
PLAN = [
    ("a", "v", 4, "m", 0, 0, 4),
    ("b", "v", 4, "m", 0, 4, 5),
    ("c", "w", 2, "n", 1, 1, 3),
    ("d", "w", 4, "m", 2, 5, 6),
    ("e", "w", 1, "n", 2.5, 2.5, 3),
    ("f", "w", 1, "n", 3.5, 3.5, 3.75),
]


def hour(number: float) -> dt.datetime:
    return MIDNIGHT + dt.timedelta(hours=number)


def tables(*, nodes: bool = True, capacity: bool = True) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for job, vc, gpus, node, submitted, start, end in PLAN:
        times = {"start_time": hour(start), "end_time": hour(end), "run_s": (end - start) * 3600}
        found["jobs"].append(
            {"job_id": job, "cluster": "x", "vc": vc, "gpu_count": gpus, "submit_time": hour(submitted), **times}
            | {"status": "completed", "attempt_count": 1}
        )
        wait = {"wait_s": (start - submitted) * 3600, "status": "completed"}
        found["attempts"].append({"job_id": job, "attempt": 0, "gpu_count": gpus, **times, **wait})
        found["placements"].append({"job_id": job, "attempt": 0, "node_id": node, "gpu_count": gpus})
    if nodes:
        found["nodes"] = [{"node_id": node, "cluster": "x", "gpu_count": 4} for node in "mn"]
    else:
        del found["placements"]
    if capacity:
        found["capacity"] = [
            {"time": hour(0), "cluster": "x", "vc": vc, "gpu_count": gpus} for vc, gpus in (("v", 6), ("w", 8))
        ]
    return found


def rows(trace: Trace, name: str, **params: Any) -> list[tuple[Any, ...]]:
    return run_query(trace, name, **params).rows()


def test_the_quota_explains_the_wait_of_b_and_scattered_gpus_a_part_of_that_of_d(make_trace: MakeTrace) -> None:
    # b: v holds 4 of 6 for 4 h. d, 3 h: until 3 the nodes have 0 and at most 2 free, and from 3.5 to 3.75 0 and 3.
    assert rows(make_trace(**tables()), "queuing/delay_causes") == [
        ("2-4", 2, 1, 0, 1, 0.5, 0.0, 25_200.0, 14_400.0, 4_500.0)
    ]


def test_without_nodes_fragmentation_is_unknown(make_trace: MakeTrace, golden: Golden) -> None:
    answer = answer_query(make_trace(**tables(nodes=False)), "queuing/delay_causes")
    assert answer.frame.rows() == [("2-4", 2, 1, None, 1, 0.5, None, 25_200.0, 14_400.0, None)]
    golden(answer.notes)


def test_the_peak_stands_in_for_a_quota_that_is_not_stated(make_trace: MakeTrace, golden: Golden) -> None:
    answer = answer_query(make_trace(**tables(capacity=False)), "queuing/delay_causes")
    # v never held more than 4, w not more than 4 either: d would exceed it while c, e or f run, 2 to 3 and 3.5 to 3.75.
    assert answer.frame.rows() == [("2-4", 2, 1, 0, 1, 0.5, 0.0, 25_200.0, 14_400.0 + 4_500.0, 0.0)]
    golden(answer.notes)


def test_a_quota_asked_for_by_name_is_used(make_trace: MakeTrace, golden: Golden) -> None:
    answer = answer_query(make_trace(**tables()), "queuing/delay_causes", {"quota": "peak"})
    assert answer.frame["fair_share_wait_s"].to_list() == [18_900.0]
    golden(answer.notes)
    assert answer.params["quota"] == "peak"


def test_an_unknown_quota_word_is_an_error(make_trace: MakeTrace) -> None:
    with pytest.raises(QueryError, match="'quota' cannot be 'plan'; choose one of"):
        run_query(make_trace(**tables()), "queuing/delay_causes", quota="plan")


def test_e_overtakes_d_when_d_cannot_start_and_f_when_it_could(make_trace: MakeTrace) -> None:
    assert rows(make_trace(**tables()), "queuing/out_of_order") == [
        ("1", 2, 2, 1.0, 0, 0.5),
        ("2-4", 4, 0, 0.0, 1, None),
    ]


def test_without_nodes_the_quota_alone_decides_what_could_start(make_trace: MakeTrace) -> None:
    # w may use 8 and holds 2 or nothing: d could have started both times.
    assert rows(make_trace(**tables(nodes=False)), "queuing/out_of_order")[0] == ("1", 2, 2, 1.0, 0, 0.0)


@pytest.mark.parametrize("nodes", [True, False])
def test_a_note_says_if_the_nodes_of_jobs_are_unknown(nodes: bool, make_trace: MakeTrace) -> None:
    notes = answer_query(make_trace(**tables(nodes=nodes)), "queuing/out_of_order").notes
    assert any("on which nodes jobs ran" in note for note in notes) is not nodes


def test_a_job_that_still_waits_at_the_end_was_overtaken_by_all_that_came_later(make_trace: MakeTrace) -> None:
    plan = tables()
    waiting = {"job_id": "g", "cluster": "x", "vc": "w", "gpu_count": 1, "submit_time": hour(0), "status": "pending"}
    plan["jobs"].append(waiting)
    # c, d, e and f all overtake g, which could have started on node n each time.
    assert rows(make_trace(**plan), "queuing/out_of_order") == [("1", 2, 2, 1.0, 1, 0.0), ("2-4", 4, 2, 0.5, 1, 0.0)]


def test_a_quota_by_percentile_looks_at_gpu_time_only(make_trace: MakeTrace) -> None:
    plan = tables(capacity=False)
    # A CPU job of a day must not stretch the time over which v held its GPUs.
    times = {"start_time": hour(0), "end_time": hour(24), "run_s": 86_400, "gpu_count": 0}
    plan["jobs"].append(
        {"job_id": "z", "cluster": "x", "vc": "v", "submit_time": hour(0), "status": "completed", **times}
    )
    plan["attempts"].append({"job_id": "z", "attempt": 0, "wait_s": 0, "status": "completed", **times})
    found = run_query(make_trace(**plan), "queuing/timeline", step_s=86_400, quota="p95")
    assert found.select("vc", "capacity_gpus").rows() == [("v", 4.0), ("w", 4.0)]


def test_means_through_time(make_trace: MakeTrace) -> None:
    found = rows(make_trace(**tables()), "queuing/timeline")
    # hour, vc: running jobs, waiting jobs, running GPUs, GPUs waited for, quota
    assert [(t.hour, vc, *values) for t, _, vc, *values in found] == [
        (0, "v", 1.0, 1.0, 4.0, 4.0, 6.0),
        (0, "w", 0.0, 0.0, 0.0, 0.0, 8.0),
        (1, "v", 1.0, 1.0, 4.0, 4.0, 6.0),
        (1, "w", 1.0, 0.0, 2.0, 0.0, 8.0),
        (2, "v", 1.0, 1.0, 4.0, 4.0, 6.0),
        (2, "w", 1.5, 1.0, 2.5, 4.0, 8.0),
        (3, "v", 1.0, 1.0, 4.0, 4.0, 6.0),
        (3, "w", 0.25, 1.0, 0.25, 4.0, 8.0),
        (4, "v", 1.0, 0.0, 4.0, 0.0, 6.0),
        (4, "w", 0.0, 1.0, 0.0, 4.0, 8.0),
        (5, "v", 0.0, 0.0, 0.0, 0.0, 6.0),
        (5, "w", 1.0, 0.0, 4.0, 0.0, 8.0),
    ]


@pytest.mark.parametrize("step", [-1, 0.001])
def test_a_step_that_is_not_a_length_of_time_is_an_error(make_trace: MakeTrace, step: float) -> None:
    with pytest.raises(QueryError, match="the parameter 'step_s' cannot be"):
        run_query(make_trace(**tables()), "queuing/timeline", step_s=step)


def test_the_load_of_the_cluster_is_the_sum_of_its_vcs(make_trace: MakeTrace) -> None:
    found = rows(make_trace(**tables()), "queuing/cluster_timeline", step_s=3600)
    # The quotas of the VCs add up to 14, the machines to 8.
    assert [(time.hour, *rest) for time, _, *rest in found] == [
        (0, 1.0, 1.0, 4.0, 4.0, 8.0),
        (1, 2.0, 1.0, 6.0, 4.0, 8.0),
        (2, 2.5, 2.0, 6.5, 8.0, 8.0),
        (3, 1.25, 2.0, 4.25, 8.0, 8.0),
        (4, 1.0, 1.0, 4.0, 4.0, 8.0),
        (5, 1.0, 0.0, 4.0, 0.0, 8.0),
    ]


def test_gpu_time_held_counts_up_to_the_last_submission(make_trace: MakeTrace) -> None:
    trace = make_trace(**tables())
    # The last job comes at half past three: 4, 6 and 6.5 GPUs of 8 are held in the three hours that end before.
    assert rows(trace, "queuing/gpu_time_held", step_s=3600) == [
        ("held_share", pytest.approx(16.5 / 24), "share"),
        ("held_gpus", pytest.approx(5.5), "GPUs"),
        ("owned_gpus", 8.0, "GPUs"),
        ("held_gpu_hours", pytest.approx(28.75), "GPU-hours"),
        ("running_gpu_hours", 0.0, "GPU-hours"),
    ]


def test_gpu_time_held_takes_the_whole_of_a_trace_that_ends_no_interval_before_its_last_submission(
    make_trace: MakeTrace,
) -> None:
    found = {metric: value for metric, value, _ in rows(make_trace(**tables()), "queuing/gpu_time_held", step_s=86400)}
    # 28.75 GPU-hours in the one day that there is, whose length nothing tells.
    assert (found["held_share"], found["held_gpu_hours"]) == (pytest.approx(28.75 / 24 / 8), None)


def test_gpu_time_held_tells_what_runs_that_go_on_hold(make_trace: MakeTrace) -> None:
    plan = tables()
    # d, of 4 GPUs, still runs: from hour 5 to the last moment that the trace names, which is now the
    # end of b, of 4 GPUs too, at hour 7.
    for table in ("jobs", "attempts"):
        plan[table][3] |= {"end_time": None, "run_s": None, "status": "running"}
        plan[table][1] |= {"end_time": hour(7)}
    found = {metric: value for metric, value, _ in rows(make_trace(**plan), "queuing/gpu_time_held", step_s=3600)}
    assert (found["running_gpu_hours"], found["held_gpu_hours"]) == (8.0, 16 + 12 + 4.75 + 8)


def test_what_nobody_owns_is_not_a_share(make_trace: MakeTrace) -> None:
    plan = tables(nodes=False, capacity=False)
    for table in ("jobs", "attempts"):
        plan[table] = [{**row, "gpu_count": 0} for row in plan[table]]
    found = {metric: value for metric, value, _ in rows(make_trace(**plan), "queuing/gpu_time_held", step_s=3600)}
    assert (found["held_share"], found["held_gpus"]) == (None, 0.0)


def test_a_stated_total_goes_before_the_sum_of_the_vcs(make_trace: MakeTrace) -> None:
    plan = tables(nodes=False)
    plan["capacity"].append({"time": hour(2), "cluster": "x", "gpu_count": 9})
    found = run_query(make_trace(**plan), "queuing/cluster_timeline", step_s=3600)
    assert found["capacity_gpus"].to_list() == [14, 14, 9, 9, 9, 9]


def _owned(trace: Trace, **params: Any) -> list[float | None]:
    found = run_query(trace, "queuing/cluster_timeline", step_s=7200, **params)
    return found["capacity_gpus"].to_list()


def test_what_a_cluster_has_are_its_machines_a_stated_total_its_quotas_or_the_most_in_use(
    make_trace: MakeTrace, golden: Golden
) -> None:
    plan = tables()
    nodes = [{"node_id": n, "cluster": "x", "gpu_count": g} for n, g in (("m", 8), ("n", 3))]
    # The quotas of the VCs, 14, are no machines: these have 11 GPUs, or 20.
    listed = make_trace(**{**plan, "nodes": nodes})
    assert _owned(listed) == [11, 11, 11]
    more = [*nodes, {"node_id": "o", "cluster": "x", "gpu_count": 9}]
    assert _owned(make_trace(**{**plan, "nodes": more})) == [20, 20, 20]
    quotas = make_trace(**tables(nodes=False))
    assert _owned(quotas) == [14, 14, 14]
    doubled = [{**row, "gpu_count": 2 * row["gpu_count"]} for row in plan["capacity"]]
    # From 2:30 to 3 a holds 4 GPUs, c 2 and e 1, together 7.
    far = make_trace(**{**tables(nodes=False), "capacity": doubled})
    del plan["capacity"]
    trace = make_trace(**{**plan, "nodes": nodes})
    assert _owned(trace, quota="peak") == [8, 8, 8]
    assert _owned(trace, gpus=20) == [20, 20, 20]
    asked: list[tuple[Trace, dict[str, Any]]] = [(listed, {}), (quotas, {}), (far, {})]
    asked += [(trace, {"gpus": 20}), (trace, {"quota": "peak"})]
    plan["capacity"] = [{"time": hour(0), "cluster": "x", "gpu_count": 9}]
    stated = make_trace(**{**plan, "nodes": []})
    assert _owned(stated) == _owned(stated, quota="peak") == [9, 9, 9]
    asked.append((stated, {}))
    notes = [note for one, params in asked for note in answer_query(one, "queuing/cluster_timeline", params).notes]
    golden(note for note in notes if note.startswith("GPUs of a cluster"))
    # One number for a trace: where machines are listed, capacity() counts them too.
    assert _owned(make_trace(**{**plan, "nodes": nodes})) == [11, 11, 11]
    del plan["capacity"]
    # Nodes without a cluster are those of the only one.
    assert _owned(make_trace(**{**plan, "nodes": [{**n, "cluster": None} for n in nodes]})) == [11, 11, 11]
    shares = run_query(trace, "utilization/cluster_by_hour")["allocated_share"].to_list()
    assert shares == pytest.approx([4 / 11, 6 / 11, 6.5 / 11, 4.25 / 11, 4 / 11, 4 / 11])


def test_the_size_of_the_cluster_is_given_for_one_cluster_only(make_trace: MakeTrace) -> None:
    with pytest.raises(QueryError, match="'gpus' cannot be below 0; leave it out"):
        _owned(make_trace(**tables()), gpus=-1)
    plan = tables()
    plan["jobs"][0]["cluster"] = "y"
    with pytest.raises(QueryError, match="'gpus' needs a trace with one cluster, not 2"):
        _owned(make_trace(**plan), gpus=8)


def test_a_step_of_0_gives_what_a_page_can_show(make_trace: MakeTrace) -> None:
    found = run_query(make_trace(**tables()), "queuing/cluster_timeline", step_s=0)
    assert len(found) == 360  # six hours in minutes
    plan = tables()
    plan["jobs"][0]["submit_time"] = dt.datetime(2010, 1, 1)
    assert len(run_query(make_trace(**plan), "queuing/cluster_timeline", step_s=0)) == 522  # ten years in weeks


def test_steps_that_nobody_can_read_are_an_error(make_trace: MakeTrace) -> None:
    plan = tables()
    plan["jobs"][0]["submit_time"] = dt.datetime(1970, 1, 1)
    with pytest.raises(QueryError, match=r"steps of 60 s give .* rows; give a larger step_s"):
        run_query(make_trace(**plan), "queuing/timeline", step_s=60)


def test_use_of_each_vc(make_trace: MakeTrace) -> None:
    v, w = rows(make_trace(**tables()), "utilization/vc")
    # v: 4 of 6 in five hours of six. w by hour, of 8: 0, 2, 2.5, 0.25, 0, 4.
    assert v == (
        "x",
        "v",
        6.0,
        pytest.approx(20 / 36),
        pytest.approx(4 / 6),
        pytest.approx(4 / 6),
        pytest.approx(4 / 6),
        7200.0,
    )
    assert w == ("x", "w", 8.0, pytest.approx(8.75 / 48), 0.0078125, 0.140625, 0.296875, 0.0)


def test_use_of_each_vc_up_to_the_last_submission(make_trace: MakeTrace) -> None:
    # The last job comes at 3.5, so that three hours count. v: 4 of 6 in each. w, of 8: 0, 2, 2.5.
    v, w = rows(make_trace(**tables()), "utilization/vc", until="last_submission")
    assert v[2:] == (6.0, *[pytest.approx(4 / 6)] * 4, 7200.0)
    assert w[2:] == (8.0, pytest.approx(4.5 / 24), 0.125, 0.25, 0.28125, 0.0)


def test_use_by_hour_up_to_the_last_submission(make_trace: MakeTrace) -> None:
    # Half hours count until 3.5; of the fourth hour that is one, in which v holds 4. Later hours stay, without a share.
    found = rows(make_trace(**tables()), "utilization/cluster_by_hour", until="last_submission")
    assert [row[2] for row in found] == [4 / 8, 6 / 8, 6.5 / 8, 4 / 8, None, None]
    assert [row[4] for row in found] == [2.0, 1.0, 2.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("last", "counted"), [(0.5, 6), (2, 2), (3, 3), (3.999, 3), (4, 4)])
def test_intervals_count_that_end_by_the_last_submission(make_trace: MakeTrace, last: float, counted: int) -> None:
    plan = tables()
    for job in plan["jobs"]:
        job["submit_time"] = min(job["submit_time"], hour(last))
    plan["jobs"][0]["submit_time"] = hour(last)
    found = rows(make_trace(**plan), "utilization/cluster_by_hour", until="last_submission", step_s=3600)
    # Where no interval ends by then, as within the first hour, all count.
    assert [row[2] is not None for row in found] == [hour < counted for hour in range(6)]


def test_use_of_the_cluster_by_hour(make_trace: MakeTrace) -> None:
    samples = [
        {"time": hour(1.25), "node_id": "m", "gpu_index": 0, "utilization_pct": 40},
        {"time": hour(1.75), "node_id": "n", "gpu_index": 0, "utilization_pct": 60},
    ]
    found = rows(make_trace(**tables(), gpu_utilization=samples), "utilization/cluster_by_hour")
    shares = [4 / 8, 6 / 8, 6.5 / 8, 4.25 / 8, 4 / 8, 4 / 8]  # of the machines: the quotas add up to more
    # All jobs have GPUs, and all were submitted on one day.
    assert [(row[0], row[1], row[2], row[4], row[5]) for row in found] == [
        ("x", hour_, pytest.approx(share), submitted, submitted)
        for hour_, (share, submitted) in enumerate(zip(shares, [2.0, 1.0, 2.0, 1.0, 0.0, 0.0], strict=True))
    ]
    assert [row[3] for row in found] == [None, 50.0, None, None, None, None]


def test_submissions_by_hour_are_divided_by_the_days_of_submissions(make_trace: MakeTrace) -> None:
    # In Shanghai, eight hours ahead: cluster x gets two jobs at 9 on January 1 and one at 10 on January 3, cluster y
    # one at 9 on January 2. Three days, although a job of x runs on until January 9, and y knows one day alone.
    submitted = [("x", 4, hour(1)), ("x", 0, hour(1.5)), ("x", None, hour(50)), ("y", None, hour(25))]
    jobs = [
        {"job_id": str(n), "cluster": cluster, "vc": "v", "gpu_count": gpus, "submit_time": time, "start_time": time}
        for n, (cluster, gpus, time) in enumerate(submitted)
    ]
    ends = [hour(200), hour(2), hour(51), hour(26)]
    attempts = [
        {"job_id": j["job_id"], "attempt": 0, "start_time": j["start_time"], "end_time": end, "wait_s": 0.0}
        | {"gpu_count": j["gpu_count"], "status": "completed"}
        for j, end in zip(jobs, ends, strict=True)
    ]
    trace = make_trace(jobs=jobs, attempts=attempts, manifest_overrides={"timezone": "Asia/Shanghai"})
    found = {row[:2]: row[4:] for row in rows(trace, "utilization/cluster_by_hour")}
    assert {key: values for key, values in found.items() if values[0]} == {
        ("x", 9): (pytest.approx(2 / 3), pytest.approx(1 / 3)),
        ("x", 10): (pytest.approx(1 / 3), 0.0),
        # No job of y has a known size: how many have GPUs is unknown.
        ("y", 9): (pytest.approx(1 / 3), None),
    }
    # The same days as for all clusters together.
    arrivals = {row[0]: row[1:] for row in rows(trace, "overview/arrivals_by_hour")}
    assert arrivals[9] == (3, 1, 1.0)
    assert arrivals[10] == (1, 0, pytest.approx(1 / 3))


def test_an_hour_above_capacity_is_clipped_only_on_request(make_trace: MakeTrace) -> None:
    plan = tables(nodes=False)
    plan["capacity"] = [{"time": hour(0), "cluster": "x", "gpu_count": 5}]
    trace = make_trace(**plan)
    assert rows(trace, "utilization/cluster_by_hour")[1][2] == pytest.approx(6 / 5)
    assert rows(trace, "utilization/cluster_by_hour", rule="clipped")[1][2] == 1.0


def test_free_gpus_and_the_largest_gang(make_trace: MakeTrace) -> None:
    found = rows(make_trace(**tables()), "locality/fragmentation", step_s=3600)
    assert [(time.hour, cluster, vc, *rest) for time, cluster, vc, *rest in found] == [
        (0, "x", None, 4.0, 1, 4.0),
        (1, "x", None, 2.0, 0, 2.0),
        (2, "x", None, 2.0, 0, 2.0),
        (3, "x", None, 4.0, 1, 4.0),
        (4, "x", None, 4.0, 1, 4.0),
        (5, "x", None, 4.0, 1, 4.0),
        (6, "x", None, 8.0, 2, 8.0),
    ]


@pytest.mark.parametrize(("nodes", "hours"), [(False, 6), (True, 4)])
def test_a_running_job_holds_its_gpus_to_the_end_of_the_trace(make_trace: MakeTrace, nodes: bool, hours: float) -> None:
    # Where nodes are known, job b has all 4 GPUs of its node from 4 on.
    plan = tables(nodes=nodes)
    plan["attempts"][0] |= {"end_time": None, "run_s": None, "status": "running"}
    plan["jobs"][0] |= {"end_time": None, "run_s": None, "status": "running"}
    found = rows(make_trace(**plan), "queuing/timeline", step_s=6 * 3600)
    assert [(vc, gpus) for _, _, vc, _, _, gpus, _, _ in found] == [
        ("v", pytest.approx((hours * 4 + 4) / 6)),
        ("w", 8.75 / 6),
    ]


def test_an_attempt_of_unknown_end_is_left_out_and_counted(make_trace: MakeTrace, golden: Golden) -> None:
    plan = tables()
    plan["attempts"][0] |= {"end_time": None, "run_s": None, "status": None}
    answer = answer_query(make_trace(**plan), "queuing/timeline", {"step_s": 6 * 3600})
    assert answer.frame["running_gpus"].to_list() == [pytest.approx(4 / 6), 8.75 / 6]
    golden(answer.notes)


def test_a_trace_without_placements_lacks_fragmentation(make_trace: MakeTrace) -> None:
    found = lacks(find_query("locality/fragmentation"), make_trace(**tables(nodes=False)))
    assert found == ["The trace has no table 'placements'."]


def test_a_users_own_sql_may_use_a_sweep(make_trace: MakeTrace, tmp_path: Any) -> None:
    own = tmp_path / "own.sql"
    own.write_text("SELECT job_id, cause FROM wait_causes WHERE wait_us > 0 ORDER BY job_id")
    trace = make_trace(**tables())
    assert rows(trace, own) == [("b", "fair_share"), ("d", "other")]
    assert answer_query(trace, own, {"quota": "peak"}).params == {"capacity": "observed", "quota": "peak"}
