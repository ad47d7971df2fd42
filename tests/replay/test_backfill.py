"""EASY and conservative backfilling, by hand, against the plain-Python oracle, and where they equal other policies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import canonical
from tests.replay.oracle import Rule, oracle
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies import parse_policy
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Backfill, Ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism
    from tracekit.replay.outcome import Outcome

A = [(0, 3, 10), (1, 4, 10), (2, 1, 5), (3, 1, 20)]
B = [(0, 2, 10), (1, 3, 10), (2, 4, 10), (3, 1, 30)]

KINDS: list[Literal["easy", "conservative"]] = ["easy", "conservative"]


def by_value(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    return value


def run(jobs: Jobs, cluster: Cluster, mechanism: Mechanism, **options: Any) -> Outcome:
    return simulate(jobs, cluster, assign(jobs, cluster), mechanism, **options)


def starts_s(rows: Sequence[tuple[float, int, float]], nodes: Sequence[int], mechanism: Mechanism) -> list[float]:
    outcome = run(make_jobs(rows), make_cluster(nodes), mechanism)
    return [start / 1000 for start in outcome.first_start_ms.tolist()]


def backfill(
    kind: Literal["easy", "conservative"], estimates_s: Sequence[float] | None = None, **more: Any
) -> Backfill:
    estimates = None if estimates_s is None else np.array([round(e * 1000) for e in estimates_s], np.int64)
    depth = more.pop("depth", 0)
    return Backfill(Ordered(by_arrival, estimate_ms=estimates, **more), kind, depth)


@pytest.mark.parametrize("fit", ["place", "count"])
@pytest.mark.parametrize(
    ("policy", "rows", "ends_s"),
    [
        ("easy", A, [10, 20, 7, 40]),
        ("easy", B, [10, 20, 43, 33]),
        ("conservative", A, [10, 20, 7, 40]),
        ("conservative", B, [10, 20, 30, 60]),
    ],
)
def test_golden_micro_traces(policy: str, fit: str, rows: list[tuple[int, int, int]], ends_s: list[int]) -> None:
    jobs, cluster = make_jobs(rows), make_cluster((4,))
    mechanism = parse_policy(f"{policy},fit={fit}").mechanism(jobs, cluster, load_models(), 0)
    outcome = run(jobs, cluster, mechanism, log=True)
    assert outcome.end_ms.tolist() == [end * 1000 for end in ends_s]
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []


def test_easy_keeps_the_place_of_the_head_and_not_only_its_number_of_gpus() -> None:
    # Two nodes of 4. Job 0 holds node 0 until 10, job 1 half of node 1 until 100; job 2 needs a whole node: 0, at 10.
    # Jobs 3 and 4 would run beyond 10. At 10 there are 4 + 2 free GPUs, so 2 are left beside job 2, those of node 1.
    rows = [(0, 4, 10), (0, 2, 100), (1, 4, 10), (2, 1, 50), (3, 2, 50), (4, 1, 50)]
    assert starts_s(rows, [4, 4], backfill("easy")) == [0, 0, 10, 2, 20, 4]


def test_easy_lets_a_job_take_what_is_left_on_the_nodes_that_the_head_does_not_need() -> None:
    # Job 0 holds 6 of node 0's 8 GPUs until 10, job 1 all of node 1 until 50. Job 2 waits for 4: node 0 at 10, where 4
    # are left. Job 3 takes 2 for long, and 2 are still left, but none is free until 10.
    rows = [(0, 6, 10), (0, 8, 50), (1, 4, 5), (2, 2, 100), (3, 2, 100)]
    assert starts_s(rows, [8, 8], backfill("easy")) == [0, 0, 10, 2, 10]


def test_a_job_that_outlives_its_estimate_is_believed_to_run_twice_as_long() -> None:
    # Job 0 is believed to end at 4, then, from 4 on, at 8, 16, 32. Job 2, of 6 s, fits before 16 from time 8 on.
    rows = [(0, 3, 30), (1, 4, 10), (2, 1, 6), (9, 1, 1)]
    assert starts_s(rows, [4], backfill("easy", [4, 10, 6, 1])) == [0, 30, 9, 15]


def test_conservative_backfilling_delays_no_job_and_easy_only_not_the_first() -> None:
    # Job 1 gets 10, job 2 gets 20. Job 3 would take a GPU of job 2's.
    assert starts_s(B, [4], backfill("conservative")) == [0, 10, 20, 30]
    assert starts_s(B, [4], backfill("easy")) == [0, 10, 33, 3]


def test_a_job_that_is_due_but_has_no_place_keeps_its_gpus_in_number() -> None:
    # Job 4 is due at 5: 4 GPUs are free, 2 on each node. It starts at 20, when a node is free; job 5 may not take 1 of
    # the 4 for long, and starts when job 4 does. EASY knows that job 4 gets node 1, so that node 0 is spare.
    rows = [(0, 2, 30), (0, 2, 20), (0, 2, 5), (0, 2, 5), (1, 4, 10), (6, 1, 100)]
    cluster = make_cluster([4, 4])
    jobs = make_jobs(rows)
    outcome = run(jobs, cluster, backfill("conservative"), rule="worst-fit")
    assert outcome.first_start_ms.tolist() == [0, 0, 0, 0, 20_000, 20_000]
    assert run(jobs, cluster, backfill("easy"), rule="worst-fit").first_start_ms.tolist()[5] == 6_000


def test_depth_limits_the_reservations() -> None:
    # With one reservation, job 2 has none, and job 3 may start before it.
    assert starts_s(B, [4], backfill("conservative", depth=1)) == [0, 10, 33, 3]
    assert starts_s(B, [4], backfill("conservative", depth=2)) == [0, 10, 20, 30]


def test_a_head_that_can_never_start_holds_up_nobody() -> None:
    # The only large node leaves while it runs a job; the job of 8 GPUs has to wait for its return.
    jobs = make_jobs([(0, 8, 10), (2, 8, 10), (3, 2, 100), (4, 4, 100)])
    cluster = make_cluster([8, 4], changes=[(1, 0, False), (50, 0, True)])
    assert run(jobs, cluster, backfill("easy")).first_start_ms.tolist() == [0, 50_000, 3_000, 60_000]
    # By number, the job on the node that left holds 8 GPUs of the 4 that are there, until it ends.
    assert run(jobs, cluster, backfill("conservative")).first_start_ms.tolist() == [0, 50_000, 10_000, 60_000]


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    lengths = st.one_of(st.integers(0, 60_000), st.integers(0, 60).map(lambda s: s * 1000))
    estimates = st.lists(lengths, min_size=20, max_size=20).map(tuple)
    keys = st.lists(st.integers(0, 9), min_size=20, max_size=20).map(tuple)
    return Rule(
        mode=draw(st.sampled_from(KINDS)),
        placement=draw(st.sampled_from(["consolidate", "worst-fit", "first-fit"])),
        fit=draw(st.sampled_from(["place", "place", "count"])),
        relax_ms=draw(st.sampled_from([(), (), (5_000,)])),
        estimates=draw(st.one_of(st.none(), estimates)),
        keys=draw(st.one_of(st.none(), keys)),
    )


def mechanism_of(rule: Rule, count: int) -> Backfill:
    order = Ordered(
        by_arrival if rule.keys is None else by_value,
        fit=rule.fit,
        estimate_ms=None if rule.estimates is None else np.array(rule.estimates[:count], np.int64),
        value=None if rule.keys is None else np.array(rule.keys[:count], np.int64),
        relax_after_ms=rule.relax_ms[0] if rule.relax_ms else 0,
        relax_scope=1,
    )
    return Backfill(order, "easy" if rule.mode == "easy" else "conservative", depth=0)


def check(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    """Assert that the engine backfills as the rule in plain Python does."""
    outcome = run(jobs, cluster, mechanism_of(rule, len(jobs)), rule=rule.placement, log=True)
    truth = oracle(jobs, cluster, rule)
    assert outcome.log is not None
    assert canonical(outcome.log) == canonical(truth.log)
    assert audit(jobs, cluster, outcome.log, outcome) == []


def test_the_moment_of_a_head_that_relaxes_is_looked_for_anew() -> None:
    # Job 1 waits for 5 GPUs on one node, which node 1 has at 6 s; from 5 s on any nodes do. Job 2 starts behind it and
    # ends at 5 s: then 4 + 3 GPUs are free, and job 3, which needs all of node 0 until 6 s, would delay job 1.
    jobs = make_jobs([(0, 5, 6), (0, 5, 1), (0, 1, 5), (1, 4, 5)])
    cluster, rule = make_cluster([4, 8]), Rule(mode="easy", relax_ms=(5_000,))
    assert oracle(jobs, cluster, rule).first_start_ms == [0, 5_000, 0, 6_000]
    assert run(jobs, cluster, mechanism_of(rule, 4)).first_start_ms.tolist() == [0, 5_000, 0, 6_000]


@settings(max_examples=60, deadline=None)
@given(job_lists(parted=True), clusters(parted=True), rules())
def test_engine_and_oracle_agree(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


@pytest.mark.thorough
@settings(max_examples=examples(400), deadline=None)
@given(job_lists(parted=True), clusters(parted=True), rules())
def test_engine_and_oracle_agree_in_more_cases(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


def many(count: int, seed: int = 3) -> Jobs:
    random = np.random.default_rng(seed)
    submit = np.sort(random.integers(0, count * 4, count))
    gpus = random.choice([1, 2, 4, 8, 12, 16], count, p=[0.6, 0.12, 0.12, 0.1, 0.03, 0.03])
    length = random.integers(1, 400, count)
    return make_jobs([(float(t), int(g), float(d)) for t, g, d in zip(submit, gpus, length, strict=True)])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exact", [True, False])
def test_a_long_run_agrees_too(kind: Literal["easy", "conservative"], exact: bool) -> None:
    jobs, cluster = many(500), make_cluster([8] * 14)
    noise = np.random.default_rng(5).uniform(0.3, 3, len(jobs))
    estimates = None if exact else (jobs.work_ms * noise).astype(np.int64)
    told = None if estimates is None else tuple(estimates.tolist())
    outcome = run(jobs, cluster, Backfill(Ordered(by_arrival, estimate_ms=estimates), kind, 0), log=True)
    assert outcome.log is not None
    assert (outcome.first_start_ms > jobs.submit_ms).mean() > 0.3
    assert canonical(outcome.log) == canonical(oracle(jobs, cluster, Rule(mode=kind, estimates=told)).log)


@tried(21, 60, job_lists(sizes=st.just(3)), clusters(changing=False))
def test_with_jobs_of_one_size_both_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    jobs = replace(jobs, model=np.full(len(jobs), -1, np.int32))
    fifo = run(jobs, cluster, Ordered(by_arrival, fit="count"))
    for kind in KINDS:
        assert run(jobs, cluster, backfill(kind, fit="count")).end_ms.tolist() == fifo.end_ms.tolist()


@tried(21, 60, job_lists(), clusters(changing=False))
def test_with_estimates_of_nothing_both_pass_over_what_cannot_start(jobs: Jobs, cluster: Cluster) -> None:
    # Conservative needs a reservation: a job of no length has one at once where enough GPUs are free.
    fifo = run(jobs, cluster, Ordered(by_arrival, scan="skip", fit="count"))
    for kind in KINDS:
        found = run(jobs, cluster, backfill(kind, [0] * len(jobs), fit="count"))
        assert found.end_ms.tolist() == fifo.end_ms.tolist()


def lasting(jobs: Jobs) -> Jobs:
    """The same jobs, none without length: a reservation of no length holds nothing back."""
    return replace(jobs, work_ms=np.maximum(jobs.work_ms, 1))


@tried(21, 60, job_lists(typed=False).map(lasting), clusters(changing=False))
def test_one_reservation_is_easy(jobs: Jobs, cluster: Cluster) -> None:
    easy = run(jobs, cluster, backfill("easy", fit="count"))
    one = run(jobs, cluster, backfill("conservative", fit="count", depth=1))
    assert one.end_ms.tolist() == easy.end_ms.tolist()


@tried(21, 60, job_lists(most=3).map(lasting), clusters(changing=False))
def test_with_at_most_two_jobs_waiting_both_are_the_same(jobs: Jobs, cluster: Cluster) -> None:
    # Of three jobs one runs whenever others wait.
    easy = run(jobs, cluster, backfill("easy", fit="count"))
    assert run(jobs, cluster, backfill("conservative", fit="count")).end_ms.tolist() == easy.end_ms.tolist()


@tried(14, 40, job_lists(most=12).map(lasting), clusters(changing=False))
def test_with_exact_estimates_a_start_once_promised_never_slips(jobs: Jobs, cluster: Cluster) -> None:
    # What is promised at a job's submission is its start when nobody comes after it.
    outcome = run(jobs, cluster, backfill("conservative", fit="count"))
    for last in range(1, len(jobs) + 1):
        columns: dict[str, Any] = {
            name: column[:last] for name, column in vars(jobs).items() if isinstance(column, np.ndarray)
        }
        promised = run(
            replace(jobs, job_id=jobs.job_id[:last], **columns), cluster, backfill("conservative", fit="count")
        )
        assert outcome.first_start_ms[last - 1] <= promised.first_start_ms[last - 1]


def test_time_limits_are_estimates_where_they_are_known() -> None:
    jobs = make_jobs(A, limit_ms=[20_000, -1, 15_000, -1])
    cluster = make_cluster((4,))
    mechanism = parse_policy("easy,noise=limit").mechanism(jobs, cluster, load_models(), 0)
    assert isinstance(mechanism, Backfill)
    assert mechanism.order.estimate_ms is not None
    assert mechanism.order.estimate_ms.tolist() == [20_000, 10_000, 15_000, 20_000]


def test_limits_of_a_trace_without_any_are_an_error() -> None:
    with pytest.raises(UsageError, match="no time limits"):
        parse_policy("easy,noise=limit").mechanism(make_jobs(A), make_cluster((4,)), load_models(), 0)


def test_an_order_that_evicts_cannot_backfill() -> None:
    with pytest.raises(ValueError, match="eviction"):
        Backfill(Ordered(by_arrival, preemptive=True))


# Job 0 is believed to take no time at all, which only a job known to take none can: it still holds its GPUs for 1 ms.
# Job 1 can then start at 1 ms, so that before it there is room for job 2 if that is believed to end by then.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fourth_s", "start_s"), [(0.0, 0.0), (0.001, 0.0), (0.002, 15.0)])
def test_an_estimate_of_nothing_is_a_millisecond(
    kind: Literal["easy", "conservative"], fourth_s: float, start_s: float
) -> None:
    rows = [(0, 3, 10), (0, 4, 5), (0, 1, 8)]
    assert starts_s(rows, [4], backfill(kind, [0, 5, fourth_s])) == [0, 10, start_s]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("estimate_s", "start_s"), [(0.003, 0.005), (0.004, 15.0)])
def test_an_estimate_of_nothing_is_doubled_from_a_millisecond_on(
    kind: Literal["easy", "conservative"], estimate_s: float, start_s: float
) -> None:
    # At 5 ms job 0 is believed to end at 8 ms, after 1, 2 and 4: a job of 3 ms fits before job 1, one of 4 ms does not.
    rows = [(0, 3, 10), (0, 4, 5), (0.005, 1, 8)]
    assert starts_s(rows, [4], backfill(kind, [0, 5, estimate_s])) == [0, 10, start_s]
