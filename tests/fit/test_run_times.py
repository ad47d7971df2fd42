"""Groups of run times, pooling, what is censored; and sizes, users, outcomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from threadpoolctl import threadpool_info, threadpool_limits

import tracekit
from tests.effort import examples
from tests.fit.workloads import workload
from tracekit.errors import UsageError
from tracekit.fit import api
from tracekit.fit.choice import Effort
from tracekit.fit.job_draws import durations_at
from tracekit.fit.jobs import CLASSES, read_jobs
from tracekit.fit.model import WorkloadModel
from tracekit.fit.run_times import neighbours

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


def entry(model: WorkloadModel, measure: str, **key: str) -> dict[str, Any]:
    found = model.run_time(measure, **key)
    assert found is not None
    return found


def test_the_run_time_is_what_the_attempts_held(log: Trace) -> None:
    frame = read_jobs(log).frame
    attempts = log.scan("attempts").collect()
    assert frame["held_s"].sum() == pytest.approx(attempts["run_s"].sum())
    assert frame["run_s"].sum() > frame["held_s"].sum()


def test_a_group_of_enough_jobs_has_a_fit_of_its_own(fitted: WorkloadModel) -> None:
    big = fitted.run_time(gpu_class="5-8")
    assert big is not None
    assert big["chosen"] == "lognorm"
    fit = next(f for f in big["families"] if f["family"] == "lognorm")
    assert abs(fit["parameters"]["s"] - 1.0) < 3 * fit["standard_errors"]["s"]
    failed = fitted.run_time(gpu_class="1", status="failed")
    assert failed is not None
    assert failed["chosen"] == "lognorm"
    assert failed["bootstrap"]["replicates"] == 9


@pytest.mark.thorough
def test_nothing_was_stopped_so_demand_is_not_a_measure_of_its_own(fitted: WorkloadModel) -> None:
    assert {e["measure"] for e in fitted.run_times} == {"until_end"}
    assert fitted.run_time(vc="a") is not None


@pytest.mark.parametrize(
    ("jobs", "name", "expected"),
    [
        # The next class has enough with it.
        ({"1": 900, "5-8": 150, ">8": 60}, ">8", ["5-8", ">8"]),
        # Of both sides the one with fewer jobs comes first: 120, then 120 + 50, then 120 + 50 + 90.
        ({"1": 900, "2-4": 90, "5-8": 120, ">8": 50}, "5-8", ["2-4", "5-8", ">8"]),
        # Classes without jobs are passed over; those without GPUs are no neighbours.
        ({"0": 5, "<1": 80, "2-4": 150}, "<1", ["<1", "2-4"]),
        ({"0": 900, "1": 80, "2-4": 90}, "1", None),
        ({"0": 100, "1": 800}, "0", None),
    ],
)
def test_a_class_of_few_jobs_is_pooled_with_those_beside_it(
    jobs: dict[str, int], name: str, expected: list[str] | None
) -> None:
    assert neighbours(jobs, name, 200) == expected


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 300), min_size=6, max_size=6), st.sampled_from(CLASSES))
def test_a_pool_is_enough_and_no_longer_than_needed(counts: list[int], name: str) -> None:
    jobs = dict(zip(CLASSES, counts, strict=True))
    found = neighbours(jobs, name, 200)
    if found is None:
        assert name == "0" or not jobs[name] or sum(counts[1:]) < 200
        return
    assert name in found
    assert sum(jobs[c] for c in found) >= 200
    there = [c for c in CLASSES[1:] if jobs[c]]
    first, last = there.index(found[0]), there.index(found[-1])
    assert there[first : last + 1] == found
    # Without the end that was added last there were too few.
    ends = [sum(jobs[c] for c in part) for part in (found[1:], found[:-1]) if name in part]
    assert not ends or min(ends) < 200


def small_groups() -> dict[str, list[dict[str, Any]]]:
    """Return a log with 60 jobs of 16 GPUs, too few for a fit of their own; half of them were cancelled.

    One job of a GPU was cancelled too.
    """
    tables = workload(1000)
    for n, job in enumerate(tables["jobs"][:60]):
        job.update(gpu_count=16.0, status="cancelled" if n % 2 else "completed")
    tables["jobs"][100].update(gpu_count=1.0, status="cancelled")
    return tables


@pytest.fixture(scope="module")
def pooled(make_trace: Callable[..., Trace]) -> WorkloadModel:
    """Return the model of `small_groups`."""
    fitted: WorkloadModel = tracekit.fit(make_trace(**small_groups()), replicates=0, scores=0)
    return fitted


def test_a_fit_for_drawing_has_fewer_groups_and_draws_the_same_run_times(
    make_trace: Callable[..., Trace], pooled: WorkloadModel
) -> None:
    few = api.fit_model(make_trace(**small_groups()), effort=Effort(replicates=0, drawn_only=True))
    assert few.run_time() is None
    assert few.document["failures"] == pooled.document["failures"] | {"run_time_to_failure": []}
    scores = np.linspace(-3, 3, 13)
    pairs = [(group["gpu_class"], group["status"]) for group in pooled.document["statuses"]["groups"]]
    assert len(pairs) == 6
    for pair in pairs:
        assert durations_at(few, *pair, scores).tolist() == durations_at(pooled, *pair, scores).tolist()


def test_a_fit_for_drawing_has_all_groups_if_a_job_has_no_status(make_trace: Callable[..., Trace]) -> None:
    tables = small_groups()
    tables["jobs"][200]["status"] = None
    few = api.fit_model(make_trace(**tables), effort=Effort(replicates=0, drawn_only=True))
    assert few.whole["n"] == 1000
    assert few.run_time(gpu_class="1") is not None


def test_small_groups_take_the_shape_of_their_pool_at_their_own_median(pooled: WorkloadModel) -> None:
    big = sum(job["gpu_count"] == 8 for n, job in enumerate(workload(1000)["jobs"]) if n >= 60 and n != 100)
    found = entry(pooled, "until_end", gpu_class=">8")
    assert (found["n"], found["pooled_to"], found["pooled_classes"]) == (60, "neighbours", ["5-8", ">8"])
    pool, ratio = pooled.shape(found)
    assert (pool["gpu_classes"], pool["status"], pool["n"]) == (["5-8", ">8"], None, big + 60)
    own, others = (dict(e["quantiles_s"])[0.5] for e in (found, pool))
    assert ratio == found["median_ratio"] == pytest.approx(own / others)
    assert entry(pooled, "until_end", gpu_class=">8", status="completed")["pooled_to"] == "neighbours"


@pytest.mark.thorough
def test_a_status_of_few_jobs_takes_the_pool_of_its_class_whatever_the_status(pooled: WorkloadModel) -> None:
    found = entry(pooled, "until_end", gpu_class=">8", status="cancelled")
    assert (found["pooled_to"], found["pooled_classes"], found["pooled_status"]) == ("neighbours", ["5-8", ">8"], None)
    assert (found["n"], found["right_censored"]) == (30, 0)
    pool, _ = pooled.shape(found)
    assert (pool["gpu_classes"], pool["status"]) == (["5-8", ">8"], None)
    assert entry(pooled, "until_end", gpu_class="1", status="cancelled")["pooled_to"] == "gpu_class"


def test_a_file_must_have_the_pools_that_its_groups_name(pooled: WorkloadModel) -> None:
    document = json.loads(pooled.to_json())
    WorkloadModel.checked(document)
    del document["run_time_pools"]
    with pytest.raises(UsageError, match="run_time_pools lacks the size classes"):
        WorkloadModel.checked(document)


def test_stopped_jobs_are_right_censored_in_demand(make_trace: Callable[..., Trace]) -> None:
    tables = workload(900)
    for i, job in enumerate(tables["jobs"]):
        job["gpu_count"] = 1.0
        if i % 5 == 0:
            job["status"] = "cancelled"
    tables["jobs"][1].update(status="running", run_s=None, end_time=None, attempt_count=1)
    tables["attempts"] = [a for a in tables["attempts"] if a["job_id"] != "j1"]
    model = tracekit.fit(make_trace(**tables), replicates=0, scores=0)
    until, demand = entry(model, "until_end"), entry(model, "demand")
    assert (until["n"], until["right_censored"]) == (900, 1)
    assert (demand["n"], demand["right_censored"]) == (900, 181)
    assert entry(model, "until_end", status="cancelled")["right_censored"] == 0
    assert entry(model, "demand", vc="a")["right_censored"] > 100
    assert model.document["statuses"]["unfinished"] == 1


def test_sizes_users_and_machines_are_counted(fitted: WorkloadModel, log: Trace) -> None:
    document = fitted.document
    counts = log.scan("jobs").collect()["gpu_count"]
    assert document["sizes"]["by_gpu_class"]["5-8"] == pytest.approx((counts == 8).sum() / 1500)
    assert [r["gpu_count"] for r in document["sizes"]["requests"]] == [1, 8]
    assert document["users"]["users"] == 4
    assert document["users"]["vcs"] == 2
    assert {t["user"] for t in document["users"]["tenants"]} == {"u1", "u2", "u3", "u4"}
    assert document["users"]["user_concentration"]["gini"] == pytest.approx(0, abs=0.1)
    assert document["cluster"]["capacity"] == [
        {"cluster": None, "vc": "a", "gpu_count": 24.0},
        {"cluster": None, "vc": "b", "gpu_count": 16.0},
    ]
    assert document["cluster"]["nodes"][0]["nodes"] == 5
    assert abs(document["correlation"]["correlation"]) < 0.1


def test_retries_and_run_time_to_failure(fitted: WorkloadModel) -> None:
    groups = {(g["gpu_class"], g["status"]): g for g in fitted.document["statuses"]["groups"]}
    assert groups["1", "failed"]["attempts"] == [2]
    assert groups["5-8", "completed"]["attempts"] == [1]
    failures = fitted.document["failures"]["run_time_to_failure"]
    # Both attempts of a failed job failed: its last by its status, its first because another followed.
    assert failures[0]["n"] == 2 * groups["1", "failed"]["jobs"]
    assert fitted.document["failures"]["split"]["concentration"] > 20


def test_every_fit_carries_what_a_reader_needs(fitted: WorkloadModel) -> None:
    for one in [e for e in fitted.run_times if e["pooled_to"] is None]:
        assert one["unit"] == "s"
        for fit in one["families"]:
            known = {"family", "scipy", "parameters", "standard_errors", "log_likelihood", "aic", "bic", "ks"}
            assert fit.keys() == {"family", "failed"} or known < fit.keys()


@pytest.mark.parametrize(("jobs", "replicates"), [(100, 2), pytest.param(1500, 9, marks=pytest.mark.slow)])
def test_the_same_trace_and_seed_give_the_same_bytes(
    make_trace: Callable[..., Trace], jobs: int, replicates: int
) -> None:
    trace = make_trace(**workload(jobs))
    once, again, other = (
        tracekit.fit(trace, replicates=replicates, seed=seed, scores=0).to_json() for seed in (0, 0, 1)
    )
    assert once == again
    assert once != other


def _blas_threads() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_blas_has_one_thread_while_run_times_are_fitted_and_as_many_as_before_afterwards(
    make_trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    within: set[int] = set()
    monkeypatch.setattr(api, "fit_failures", lambda *_: within.update(_blas_threads()))
    trace = make_trace(**workload(50))
    with threadpool_limits(limits=2, user_api="blas"):
        api.fit_model(trace, effort=Effort(replicates=0))
        assert (within, _blas_threads()) == ({1}, {2})
