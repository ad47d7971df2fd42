"""The charts about locality, idle GPUs, failures, users and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.report.sections.interface import charts

if TYPE_CHECKING:
    from tests.reviewed import Golden

TIMES = {"mean_pct": 40.0, "p50_pct": 41.0, "p90_pct": 80.0, "p95_pct": 90.0}


def _one(query: str, rows: list[dict[str, Any]]) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """Return the only chart of a query, its specification and its data."""
    (chart,) = charts(query, rows)
    spec = chart.to_dict()
    (values,) = spec["datasets"].values()
    return chart, spec, values


def _domain(spec: dict[str, Any]) -> list[str]:
    layer = spec["layer"][0] if "layer" in spec else spec
    domain: list[str] = layer["encoding"]["y"]["scale"]["domain"]
    return domain


def test_spread_draws_sizes_that_were_seen_on_several_numbers_of_nodes(golden: Golden) -> None:
    layouts = [(1.0, 1), (8.0, 1), (8.0, 2), (16.0, 4)]
    rows = [{"gpu_count": g, "node_count": n, "samples": 100, **TIMES} for g, n in layouts]
    chart, spec, _ = _one("locality/utilization_by_spread", rows)
    assert _domain(spec) == ["8 GPUs, 1 node", "8 GPUs, 2 nodes"]
    golden(told(chart.note, "2"))
    _, spec, _ = _one("locality/utilization_by_spread", rows[:2])
    assert _domain(spec) == ["1 GPU, 1 node", "8 GPUs, 1 node"]


def test_spread_draws_a_limited_number_of_lines_in_order_of_size() -> None:
    rows = [{"gpu_count": 64.0, "node_count": n, "samples": n, **TIMES} for n in range(1, 31)]
    _, spec, values = _one("locality/utilization_by_spread", rows)
    assert _domain(spec) == [f"64 GPUs, {n} nodes" for n in range(15, 31)]
    assert len(values) == 16


def test_colocation_draws_both_ways_of_each_size() -> None:
    rows = [{"gpu_count": g, "colocated": c, "samples": 9, **TIMES} for g in (1.0, 8.0) for c in (False, True)]
    chart, spec, values = _one("locality/utilization_by_colocation", rows)
    assert _domain(spec) == ["1 GPU", "8 GPUs"]
    assert [words for words, _ in chart.legend] == ["alone on its nodes", "sharing a node"]
    assert [v["company"] for v in values] == ["alone on its nodes", "sharing a node"] * 2


def test_colocation_keeps_the_sizes_with_the_most_samples(golden: Golden) -> None:
    rows = [{"gpu_count": float(g), "colocated": True, "samples": g, **TIMES} for g in range(1, 12)]
    chart, spec, _ = _one("locality/utilization_by_colocation", rows)
    assert _domain(spec) == [f"{g} GPUs" for g in range(4, 12)]
    golden(told(chart.note, "8", "3"))


def test_relaxation_adds_up_the_jobs_of_a_size() -> None:
    rows = [
        {"gpu_class": c, "relaxation": r, "jobs": n}
        for c, r, n in (("5-8", 1.0, 1), ("5-8", 2.0, 1), (">8", 1.0, 6), (">8", 1.5, 1), (">8", 2.0, 1))
    ]
    chart, spec, values = _one("locality/relaxation", rows)
    assert values == [
        {"key": size, "measure": "on more nodes than needed", "share": share, "few": True}
        for size, share in (("5-8", 0.5), (">8", 0.25))
    ]
    assert _domain(spec) == ["5-8", ">8"]
    # One size is a number, which the sentence says.
    assert charts("locality/relaxation", rows[2:]) == []
    assert chart.note == "Pale bars: fewer than 30 jobs."


def test_dedicated_draws_sizes_in_order(golden: Golden) -> None:
    rows = [{"gpu_count": float(g), "samples": 100 - g, **TIMES} for g in range(1, 12)]
    chart, spec, _ = _one("utilization/dedicated", rows)
    assert _domain(spec) == ["1 GPU", *(f"{g} GPUs" for g in range(2, 9))]
    golden(told(chart.note, "8", "3"))


def test_idle_jobs_are_added_up_by_user(golden: Golden) -> None:
    waste = [("u", 5.0), (None, 4.0), ("v", 3.0), ("v", 3.0)]
    rows = [{"job_id": str(i), "user": u, "wasted_gpu_h": w} for i, (u, w) in enumerate(waste)]
    _, spec, values = _one("utilization/idle_jobs", rows)
    assert _domain(spec) == ["v", "u", "no user"]
    assert [(v["wasted_gpu_h"], v["jobs"]) for v in values] == [(6.0, 2), (5.0, 1), (4.0, 1)]
    many = [{"job_id": str(i), "user": f"u{i:02}", "wasted_gpu_h": 1.0} for i in range(20)]
    chart, spec, _ = _one("utilization/idle_jobs", many)
    assert _domain(spec) == [f"u{i:02}" for i in range(12)]
    golden(told(chart.note, "12", "8"))


def test_reasons_are_drawn_by_number_and_by_cost() -> None:
    row = {"reason": "Core dump", "category": None, "trials": 3, "jobs": 1, "users": None, "gpu_hours": 2.0}
    other = {**row, "reason": "Out of memory"}
    titles = [p.to_dict()["encoding"]["x"]["axis"]["title"] for p in charts("failures/reasons", [row, other])]
    assert titles == ["failed runs", "GPU-hours of failed runs"]
    assert len(charts("failures/reasons", [{**one, "gpu_hours": None} for one in (row, other)])) == 1


def test_run_time_to_failure_stands_on_a_log_scale() -> None:
    rows = [{"gpu_class": "1", "failures": 9, "p50_s": 10.0, "p90_s": 60.0, "p95_s": 7200.0, "gpu_hours_lost": 1.0}]
    _, spec, values = _one("failures/run_time_to_failure", rows)
    assert spec["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"
    assert values[0]["p95_s_words"] == "2 h"


def test_by_user_leaves_out_who_lost_nothing() -> None:
    rows = [
        {"user": u, "jobs": 1, "failed_jobs": 1, "failed_share": 1.0, "gpu_hours_lost": h}
        for u, h in (("t", 4.0), ("u", 3.0), ("v", 0.0), ("w", None))
    ]
    _, spec, _ = _one("failures/by_user", rows)
    assert _domain(spec) == ["t", "u"]
    assert charts("failures/by_user", rows[2:]) == []


def test_by_node_draws_failures_against_what_equal_risk_gives(golden: Golden) -> None:
    facts = [("bad", 30, 5.0, 1e-9, True), ("unlucky", 8, 5.0, 0.02, False), ("good", 0, 5.0, 1.0, False)]
    names = ("node_id", "failed_trials", "expected_failed_trials", "p_value", "suspect")
    chart, spec, values = _one("failures/by_node", [dict(zip(names, f, strict=True)) for f in facts])
    assert _domain(spec) == ["bad", "unlucky"]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["bar", "tick"]
    assert [words for words, _ in chart.legend] == [v["verdict"] for v in values]
    golden(f"{v['node_id']}: {v['verdict']}" for v in values)


@pytest.mark.parametrize("users", [2, 7, 60, 61, 2000])
def test_the_curve_has_few_points_and_both_ends(users: int) -> None:
    rows = [{"user_share": k / users, "gpu_time_share": k / users, "cpu_time_share": None} for k in range(1, users + 1)]
    chart, _, values = _one("users/concentration", rows)
    assert len(values) <= 62
    assert (values[0]["users"], values[-1]["users"]) == (1 / users, 1.0)
    assert [v["users"] for v in values] == sorted(v["users"] for v in values)
    assert [words for words, _ in chart.legend] == ["GPU time"]


def test_a_curve_of_one_user_is_not_drawn() -> None:
    assert charts("users/concentration", [{"user_share": 1.0, "gpu_time_share": 1.0, "cpu_time_share": 1.0}]) == []


def test_queueing_draws_who_waited(golden: Golden) -> None:
    rows = [
        {"user": u, "queue_hours": h, "gpu_jobs": 1, "gpu_hours": None, "completed_share": None}
        for u, h in (("u", 3.0), ("\u202ev", 2.0), ("w", None))
    ]
    chart, spec, _ = _one("users/queueing", rows)
    assert _domain(spec) == ["u", "\\u202ev"]
    golden(told(chart.note, "2"))


def test_gangs_are_drawn_by_size_where_it_is_known() -> None:
    rows = [
        {"instance_count": n, "jobs": j, "jobs_share": j / 10, "gpu_hours_share": None}
        for n, j in ((1, 5), (8, 3), (None, 2))
    ]
    _, spec, values = _one("workload/gangs", rows)
    assert _domain(spec) == ["1", "8"]
    assert {v["measure"] for v in values} == {"share of jobs"}
    assert charts("workload/gangs", rows[2:]) == []


def test_groups_of_long_names_stay_apart() -> None:
    rows = [
        {"group": "g" * 99 + c, "jobs": 2, "users": 1, "median_run_s": None, "run_s_cv": None, "gpu_hours": None}
        for c in "ab"
    ]
    _, spec, _ = _one("workload/recurrence", rows)
    assert _domain(spec) == ["g" * 21 + "…", "g" * 21 + "… (2)"]


def test_use_by_hour_is_drawn_measure_by_measure() -> None:
    rows = [
        {"cluster": c, "hour": h, "allocated_share": 0.5, "gpu_util_pct": pct, "submitted_jobs": 3.0}
        | {"submitted_gpu_jobs": 3.0 if c == "a" else None}
        for c in ("a", "b")
        for h, pct in ((0, 40.0), (1, None))
    ]
    held, busy, jobs = charts("utilization/cluster_by_hour", rows)
    assert [p.title for p in (held, busy, jobs)] == ["Allocated to jobs", "Computing", "Submitted"]
    assert [words for words, _ in held.legend] == ["a", "b"]
    (values,) = busy.to_dict()["datasets"].values()
    assert values == [{"hour": h, "cluster": c, "busy": pct} for c in ("a", "b") for h, pct in ((0, 0.4), (1, None))]
    alone = [{**r, "gpu_util_pct": None} for r in rows if r["cluster"] == "a"]
    assert [(p.title, p.key) for p in charts("utilization/cluster_by_hour", alone)] == [
        ("Allocated to jobs", ()),
        ("Submitted", ()),
    ]


def test_submissions_with_gpus_are_drawn_beside_all_where_they_differ() -> None:
    rows = [
        {"cluster": c, "hour": h, "allocated_share": None, "gpu_util_pct": None, "submitted_jobs": 3.0}
        | {"submitted_gpu_jobs": gpu_jobs}
        for c, gpu_jobs in (("a", 2.0), ("b", None))
        for h in (0, 1)
    ]
    every, with_gpus = charts("utilization/cluster_by_hour", rows)
    assert (every.title, with_gpus.title) == ("Submitted", "Submitted, with GPUs")
    (values,) = with_gpus.to_dict()["datasets"].values()
    assert values == [{"hour": h, "cluster": c, "gpu_jobs": n} for c, n in (("a", 2.0), ("b", None)) for h in (0, 1)]
    (all_jobs,) = every.to_dict()["datasets"].values()
    assert [v["jobs"] for v in all_jobs] == [3.0] * 4
