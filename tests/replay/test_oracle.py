"""The oracle: audited on random cases, against schedules worked by hand, and against itself where rules coincide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit, quotas_of
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.oracle import OracleOutcome, Rule, oracle
from tests.replay.strategies import cases, clusters, job_lists, rules, spread_speed

if TYPE_CHECKING:
    from tests.replay.oracle import Mode, Scan
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def audited(jobs: Jobs, cluster: Cluster, rule: Rule) -> OracleOutcome:
    """Run the oracle and assert that the auditor finds nothing."""
    outcome = oracle(jobs, cluster, rule)
    skipping = rule.scan == "skip" and rule.mode in {"list", "preemptive"}
    found = audit(
        jobs,
        cluster,
        outcome.log,
        outcome,
        quotas=quotas_of(cluster) if rule.hard_quota else None,
        gang="rounded" if rule.placement == "buddy" else "exact",
        overhead_ms=rule.overhead_ms,
        speed=rule.speed,
        placement=rule.placement,
        fit=rule.fit,
        relax_ms=rule.relax_ms,
        scan="skip" if skipping else "stop",
        conserve=skipping,
        preemptive=rule.mode == "preemptive",
    )
    assert found == []
    return outcome


def same_schedule(one: OracleOutcome, other: OracleOutcome) -> None:
    """Assert that two outcomes have the same starts and ends."""
    assert (one.first_start_ms, one.end_ms) == (other.first_start_ms, other.end_ms)


@tried(47, 133, cases())
def test_random_replays_break_no_law(case: tuple[Jobs, Cluster, Rule]) -> None:
    outcome = audited(*case)
    assert len(outcome.end_ms) == len(case[0])


@tried(35, 100, job_lists(), clusters(changing=False), rules())
def test_on_a_cluster_that_stays_every_job_ends_or_is_rejected(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    outcome = audited(jobs, cluster, replace(rule, hard_quota=False))
    assert all((end >= 0) != rejected for end, rejected in zip(outcome.end_ms, outcome.unschedulable, strict=True))


# ---- schedules worked by hand ----


def test_best_fit_fills_the_fullest_node_and_worst_fit_the_emptiest() -> None:
    jobs = make_jobs([(0, 5, 100), (1, 2, 100), (2, 3, 100)])
    cluster = make_cluster((8, 8, 4))
    nodes = {
        name: oracle(jobs, cluster, Rule(placement=name)).places for name in ("consolidate", "worst-fit", "first-fit")
    }
    assert nodes["consolidate"] == [[(0, -1, 5)], [(0, -1, 2)], [(2, -1, 3)]]
    assert nodes["worst-fit"] == [[(0, -1, 5)], [(1, -1, 2)], [(1, -1, 3)]]
    assert nodes["first-fit"] == [[(0, -1, 5)], [(0, -1, 2)], [(1, -1, 3)]]


def test_a_gang_larger_than_a_node_takes_whole_nodes_and_the_emptiest_for_the_rest() -> None:
    jobs = make_jobs([(0, 3, 100), (1, 1, 100), (2, 11, 10)])
    cluster = make_cluster((8, 8, 8, 4))
    # node 3 holds 3 + 1; nodes 0 to 2 are free, and 0 is whole, so the rest of 3 goes to node 1
    assert oracle(jobs, cluster, Rule()).places == [[(3, -1, 3)], [(3, -1, 1)], [(0, -1, 8), (1, -1, 3)]]


def test_a_gang_never_spans_two_racks_unless_it_is_relaxed() -> None:
    jobs = make_jobs([(0, 2, 100), (0, 2, 100), (0, 4, 10)])
    cluster = make_cluster((4, 4), rack=["r0", "r1"])
    strict = oracle(jobs, cluster, Rule(placement="worst-fit", scan="skip"))
    assert strict.first_start_ms == [0, 0, 100_000]
    relaxed = audited(jobs, cluster, Rule(placement="worst-fit", scan="skip", relax_ms=(5_000, 7_000)))
    assert relaxed.first_start_ms == [0, 0, 7_000]
    assert relaxed.places[2] == [(0, -1, 2), (1, -1, 2)]


def test_buddy_blocks_are_aligned_and_rounded_up() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 3, 100), (0, 2, 100), (0, 8, 10), (0, 1, 100)])
    cluster = make_cluster((8, 8))
    outcome = audited(jobs, cluster, Rule(placement="buddy"))
    # 1 at 0; 3 becomes the block 4..7; 2 becomes 2..3; 8 takes node 1; the last 1 is the block left at 1
    assert outcome.places == [[(0, 0, 1)], [(0, 4, 4)], [(0, 2, 2)], [(1, 0, 8)], [(0, 1, 1)]]


def test_a_preempted_job_pays_its_overhead_before_it_works_again() -> None:
    jobs = make_jobs([(0, 4, 20), (5, 4, 3)])
    outcome = audited(jobs, make_cluster((4,)), Rule(order="srtf", mode="preemptive", overhead_ms=(1, 30_000, 2)))
    # evicted at 5 with 15 s left, back at 8, 30 s of overhead, 15 s of work
    assert outcome.end_ms == [53_000, 8_000]
    assert (outcome.preemptions, outcome.overhead_ms, outcome.run_ms) == ([1, 0], [30_000, 0], [50_000, 3_000])


def test_an_evicted_job_that_finds_room_elsewhere_moves_at_once_and_pays_once() -> None:
    # worst fit puts jobs 0 and 1 on nodes 0 and 1; at 4 s job 2 needs a whole node: job 1 has most left, leaves node 1
    # and finds 2 GPUs next to job 0: 1 s of overhead, then its last 16 s
    jobs, cluster = make_jobs([(0, 2, 9), (0, 2, 20), (4, 4, 1)]), make_cluster((4, 4))
    rule = Rule("srtf", "preemptive", "skip", "worst-fit", overhead_ms=(9, 1_000, 9))
    outcome = audited(jobs, cluster, rule)
    assert outcome.places == [[(0, -1, 2)], [(0, -1, 2)], [(1, -1, 4)]]
    assert outcome.end_ms == [9_000, 21_000, 5_000]
    assert (outcome.preemptions, outcome.migrations) == ([0, 0, 0], [0, 1, 0])
    assert (4_000, 4, 1, -1, -1, 1_000) in outcome.log


def test_who_holds_nothing_on_the_place_taken_is_not_evicted() -> None:
    # at 2 s job 2 wants the V100 node; the greatest key runs on the A100 node and goes on, the next greatest gives way
    jobs = make_jobs([(0, 4, 10), (0, 4, 50), (2, 4, 1)], model=["V100", "A100", "V100"])
    outcome = audited(
        jobs,
        make_cluster((4, 4), model=["V100", "A100"]),
        Rule(order="srtf", mode="preemptive", scan="skip", overhead_ms=(0, 5_000, 0)),
    )
    assert (outcome.preemptions, outcome.migrations) == ([1, 0, 0], [0, 0, 0])
    assert outcome.end_ms == [16_000, 50_000, 3_000]
    assert [(t, j) for t, kind, j, *_ in outcome.log if kind == 4] == [(2_000, 0)]


def test_a_drained_node_lets_its_job_end_and_takes_no_other() -> None:
    jobs = make_jobs([(0, 2, 10), (1, 2, 5), (2, 4, 5)])
    cluster = make_cluster((4,), changes=[(0.5, 0, False), (12, 0, True)])
    assert audited(jobs, cluster, Rule()).first_start_ms == [0, 12_000, 17_000]


def test_rates_settle_to_the_millisecond() -> None:
    # alone 0..1 s, then two on the node at 929,997 ppm: 9,000 ms of work are left and need 9,677.45 -> 9,678 ms
    jobs = make_jobs([(0, 1, 10), (1, 1, 20)])
    outcome = audited(jobs, make_cluster((4,)), Rule(speed=spread_speed))
    assert outcome.end_ms[0] == 1_000 + 9_678
    done = 9_678 * 929_997  # ppm*ms of the second job by then
    assert outcome.end_ms[1] == 10_678 + -(-(20_000_000_000 - done) // 1_000_000)


def test_jobs_without_work_end_in_a_further_instant_of_the_same_time() -> None:
    outcome = audited(make_jobs([(0, 4, 0), (0, 4, 0), (0, 4, 1)]), make_cluster((4,)), Rule())
    assert (outcome.first_start_ms, outcome.end_ms) == ([0, 0, 0], [0, 0, 1_000])


def test_fair_share_starts_the_tenant_that_uses_least_for_its_weight() -> None:
    rows = [(0, 1, 100)] * 6 + [(0, 2, 100), (0, 1, 100)]
    jobs = make_jobs(rows, vc=["a"] * 6 + ["b", "b"])
    cluster = make_cluster((6,))
    # shares a:b = 2:1. a, then b (2 GPUs: 2/1), a, a, a (4/2 = 2/1), a is first on the tie: full
    outcome = audited(jobs, cluster, Rule(mode="fair", weights={"a": 2, "b": 1}))
    assert [j for j, start in enumerate(outcome.first_start_ms) if start == 0] == [0, 1, 2, 3, 6]


def test_easy_lets_a_long_narrow_job_pass_on_nodes_the_head_does_not_need() -> None:
    # head: 8 GPUs, due on node 0 at 10 s; node 1 has 4 spare GPUs for ever
    jobs = make_jobs([(0, 5, 10), (0, 4, 1000), (1, 8, 10), (2, 3, 500), (2, 3, 8), (2, 4, 500)])
    outcome = audited(jobs, make_cluster((8, 8)), Rule(mode="easy"))
    assert outcome.first_start_ms[2] == 10_000
    # job 3 best-fits node 0 and would delay the head: it waits; job 4 ends at 10 s and goes; job 5 takes node 1's spare
    assert outcome.first_start_ms[3:] == [20_000, 2_000, 2_000]


# ---- rules that must coincide (zero overhead, count fit unless noted) ----


@tried(21, 60, job_lists(typed=False), st.sampled_from(["list", "easy", "conservative", "preemptive"]))
def test_with_gpus_for_all_every_job_starts_at_its_submission(jobs: Jobs, mode: Mode) -> None:
    outcome = oracle(jobs, make_cluster((400,)), Rule(mode=mode, scan="skip"))
    assert outcome.first_start_ms == [int(t) for t in jobs.submit_ms]


@tried(21, 60, st.integers(1, 4), st.data(), st.sampled_from(["easy", "conservative"]))
def test_backfilling_of_equal_gangs_is_fifo(gang: int, data: st.DataObject, mode: Mode) -> None:
    jobs = data.draw(job_lists(sizes=st.just(gang), typed=False))
    cluster = make_cluster((8,))
    fifo = oracle(jobs, cluster, Rule(fit="count"))
    same_schedule(oracle(jobs, cluster, Rule(mode=mode, fit="count")), fifo)
    same_schedule(oracle(jobs, cluster, Rule(fit="count", scan="skip")), fifo)


@tried(35, 100, st.data())
def test_easy_with_two_queued_jobs_is_conservative(data: st.DataObject) -> None:
    running = data.draw(st.lists(st.tuples(st.just(0.0), st.integers(1, 3), st.integers(1, 9)), max_size=3))
    used = sum(gpus for _, gpus, _ in running)
    queued = [(1.0, data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20))) for _ in range(2)]
    jobs, cluster = make_jobs(running + queued), make_cluster((9,))
    assert used <= 9
    same_schedule(
        oracle(jobs, cluster, Rule(mode="easy", fit="count")),
        oracle(jobs, cluster, Rule(mode="conservative", fit="count")),
    )


@tried(21, 60, st.data(), st.sampled_from(["stop", "skip"]))
def test_weighted_by_gpus_or_not_equal_gangs_have_one_order(data: st.DataObject, scan: Scan) -> None:
    jobs = data.draw(job_lists(sizes=st.just(2), typed=False))
    cluster = make_cluster((4, 4))
    same_schedule(oracle(jobs, cluster, Rule("ssf", scan=scan)), oracle(jobs, cluster, Rule("sjf", scan=scan)))
    same_schedule(
        oracle(jobs, cluster, Rule("srsf", "preemptive", scan)), oracle(jobs, cluster, Rule("srtf", "preemptive", scan))
    )


@tried(21, 60, st.data())
def test_srtf_of_jobs_submitted_together_is_sjf(data: st.DataObject) -> None:
    jobs = data.draw(job_lists(sizes=st.just(3), horizon_s=0, typed=False))
    cluster = make_cluster((9,))
    same_schedule(
        oracle(jobs, cluster, Rule("srtf", "preemptive", "skip", fit="count")),
        oracle(jobs, cluster, Rule("sjf", "list", "skip", fit="count")),
    )


@settings(max_examples=60)
@given(st.data(), st.sampled_from(["sjf", "ssf"]))
def test_equal_jobs_are_served_in_order_of_submission(data: st.DataObject, order: str) -> None:
    submits = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=20))
    jobs, cluster = make_jobs([(at, 2, 7) for at in submits]), make_cluster((4,))
    same_schedule(oracle(jobs, cluster, Rule(order)), oracle(jobs, cluster, Rule()))


@tried(21, 60, st.integers(1, 3), st.data())
def test_las_of_one_level_and_equal_gangs_is_fifo(gang: int, data: st.DataObject) -> None:
    jobs = data.draw(job_lists(sizes=st.just(gang), typed=False))
    cluster = make_cluster((6,))
    las = oracle(jobs, cluster, Rule("las", "preemptive", "skip", fit="count"))
    assert las.preemptions == [0] * len(jobs)
    same_schedule(las, oracle(jobs, cluster, Rule(fit="count")))


@tried(21, 60, job_lists(typed=False))
def test_fair_share_of_one_tenant_is_fifo(jobs: Jobs) -> None:
    jobs = replace(jobs, tenant=jobs.tenant * 0)
    cluster = make_cluster((8, 4))
    same_schedule(oracle(jobs, cluster, Rule(mode="fair", weights={"a": 1})), oracle(jobs, cluster, Rule()))


@tried(21, 60, job_lists(sizes=st.just(1), typed=False))
def test_single_gpus_go_alike_under_every_placement(jobs: Jobs) -> None:
    cluster = make_cluster((4, 2, 1))
    one = oracle(jobs, cluster, Rule("srtf", "preemptive", "skip"))
    for placement in ("best-fit", "worst-fit", "first-fit", "any", "buddy"):
        other = oracle(jobs, cluster, Rule("srtf", "preemptive", "skip", placement))
        same_schedule(other, one)


@tried(21, 60, job_lists(sizes=st.just(1), typed=False), st.sampled_from(["sjf", "ssf"]))
def test_single_gpus_are_all_busy_while_a_queue_exists(jobs: Jobs, order: str) -> None:
    cluster = make_cluster((3,))
    curves = []
    for rule in (Rule("fifo", scan="skip"), Rule(order, scan="skip")):
        outcome = oracle(jobs, cluster, rule)
        curves.append(sum(outcome.held_milli_ms))
        assert audit(jobs, cluster, outcome.log, outcome, placement="consolidate", scan="skip", conserve=True) == []
    assert curves[0] == curves[1] == sum(int(work) for work in jobs.work_ms) * 1000


@tried(21, 60, job_lists(typed=False), st.integers(0, 100))
def test_overhead_changes_no_useful_work(jobs: Jobs, cost_s: int) -> None:
    cluster = make_cluster((20,))
    rule = Rule("srtf", "preemptive", "skip", overhead_ms=(cost_s * 1000,) * 3)
    outcome = audited(jobs, cluster, rule)
    useful = [run - lost for run, lost in zip(outcome.run_ms, outcome.overhead_ms, strict=True)]
    assert useful == [int(work) for work in jobs.work_ms]


@tried(21, 60, jobs=job_lists(typed=False))
@pytest.mark.parametrize("mode", ["easy", "conservative"])
def test_backfilling_by_exact_estimates_never_delays_the_head_of_the_queue(jobs: Jobs, mode: Mode) -> None:
    cluster = make_cluster((20,))
    modes: tuple[Mode, Mode] = (mode, "list")
    backfilled, fifo = (oracle(jobs, cluster, Rule(mode=m, fit="count")) for m in modes)
    blocked = [j for j, start in enumerate(fifo.first_start_ms) if start > int(jobs.submit_ms[j])]
    if blocked:  # all before the first blocked job start as in FIFO, so its time is FIFO's
        assert backfilled.first_start_ms[blocked[0]] <= fifo.first_start_ms[blocked[0]]


@tried(21, 60, jobs=job_lists(typed=False))
def test_a_conservative_reservation_never_slips_when_estimates_are_exact(jobs: Jobs) -> None:
    outcome = oracle(jobs, make_cluster((20,)), Rule(mode="conservative", fit="count"))
    for job, reserved in enumerate(outcome.reservations):
        assert reserved == sorted(reserved, reverse=True)
        # a job without run time may find the GPUs of others that end in the same ms: it starts in a further instant
        assert reserved[-1] == outcome.first_start_ms[job]
