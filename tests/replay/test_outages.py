"""Nodes that fail under jobs: by hand, against the plain-Python oracle, and audited under every kind of mechanism."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import canonical
from tests.replay.oracle import Rule, oracle
from tests.replay.strategies import clusters, job_lists, seconds
from tests.replay.test_against_oracle import SMALL, mechanism_of, ordered_rules
from tests.replay.test_backfill import backfill
from tracekit.errors import UsageError
from tracekit.policies import parse_policy
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.of_trace import NO_END
from tracekit.replay.engine.run import simulate
from tracekit.replay.outages.asked import Checkpoints, read_checkpoints, read_outages
from tracekit.replay.outages.away import pools_of, with_outages
from tracekit.replay.outages.failures import Outages, drawn_at_rate
from tracekit.replay.outages.theory import CheckpointRule, daly_interval, expected_ettr, expected_failures
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

FAIL, FINISH = LOG_KINDS["fail"], LOG_KINDS["finish"]

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism
    from tracekit.replay.outcome import Losses, Outcome


def outages(rows: Sequence[tuple[int, float, float | None, bool]]) -> Outages:
    """Outages of (node, since, until, whether jobs stop) rows, in seconds."""
    return Outages(
        node=np.array([node for node, _, _, _ in rows], np.int32),
        since_ms=np.array([round(since * 1000) for _, since, _, _ in rows], np.int64),
        until_ms=np.array([NO_END if until is None else round(until * 1000) for _, _, until, _ in rows], np.int64),
        kills=np.array([kills for _, _, _, kills in rows], np.bool_),
        node_ms=1e9,
        origin="written by hand",
    )


def every(jobs: int, period_s: float, *, restart_s: float = 0, progress: float = 1) -> Checkpoints:
    period = np.full(jobs, round(period_s * 1000), np.int64)
    return Checkpoints(period, np.full(jobs, round(progress * 1e6), np.int32), round(restart_s * 1000))


def run(jobs: Jobs, cluster: Cluster, policy: str, saving: Checkpoints, **options: Any) -> Outcome:
    mechanism = parse_policy(policy).mechanism(jobs, cluster, load_models(), 0)
    outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism, checkpoints=saving, log=True, **options)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, checkpoints=saving, gang="elastic") == []
    return outcome


def losses(outcome: Outcome) -> Losses:
    assert outcome.losses is not None
    return outcome.losses


KINDS = ["fifo", "fifo,scan=skip", "sjf", "srtf", "las", "easy", "conservative", "drf", "optimus"]


@pytest.mark.parametrize("policy", KINDS[:-1])
def test_a_job_goes_on_from_its_last_checkpoint(policy: str) -> None:
    # It saves every 10 s. Its node fails at 42 s, 2 s after a checkpoint, and is back at 60 s: a restart of 5 s, and
    # the 60 s that are left.
    cluster = with_outages(make_cluster([8]), outages([(0, 42, 60, True)]))
    outcome = run(make_jobs([(0, 8, 100)]), cluster, policy, every(1, 10, restart_s=5))
    assert outcome.end_ms.tolist() == [125_000]
    assert outcome.run_ms.tolist() == [107_000]
    assert outcome.overhead_ms.tolist() == [5_000]
    assert losses(outcome).restarts.tolist() == [1]
    assert losses(outcome).lost_milli_ms.tolist() == [2_000 * 8 * 1000]
    assert outcome.preemptions.tolist() == [0]


@pytest.mark.parametrize("policy", KINDS[:-1])
def test_without_checkpoints_all_is_lost(policy: str) -> None:
    cluster = with_outages(make_cluster([8]), outages([(0, 42, 60, True)]))
    outcome = run(make_jobs([(0, 8, 100)]), cluster, policy, every(1, 1e9))
    assert outcome.end_ms.tolist() == [160_000]
    assert losses(outcome).lost_milli_ms.tolist() == [42_000 * 8 * 1000]


@pytest.mark.parametrize("policy", KINDS[:-1])
def test_a_gang_stops_whole_and_goes_on_where_there_is_room(policy: str) -> None:
    # The gang holds nodes 0 and 1; node 0 fails, and nodes 1 and 2 are free in the same instant.
    cluster = with_outages(make_cluster([8, 8, 8]), outages([(0, 30, 90, True)]))
    outcome = run(make_jobs([(0, 16, 100)]), cluster, policy, every(1, 10, restart_s=5))
    assert outcome.end_ms.tolist() == [105_000]
    assert losses(outcome).lost_milli_ms.tolist() == [0]


def test_what_is_drained_runs_on_and_what_is_then_down_stops() -> None:
    # Node 0 is drained at 10 s and down from 20 s: nothing starts there after 10 s, and what runs stops at 20 s.
    cluster = with_outages(make_cluster([4]), outages([(0, 10, 25, False), (0, 20, 50, True)]))
    rows = [(0, 2, 30), (12, 2, 5)]
    outcome = run(make_jobs(rows), cluster, "fifo", every(2, 1e9))
    assert outcome.first_start_ms.tolist() == [0, 50_000]
    assert outcome.end_ms.tolist() == [80_000, 55_000]
    outcome = run(make_jobs(rows), with_outages(make_cluster([4]), outages([(0, 10, 25, False)])), "fifo", every(2, 1))
    assert outcome.end_ms.tolist() == [30_000, 30_000]


def test_saving_takes_time() -> None:
    # 9 s of work and 1 s of saving, ten times: 100 s of wall time for 90 s of work. At 55 s, 45 s of work are saved.
    saving = every(1, 10, progress=0.9)
    cluster = with_outages(make_cluster([8]), outages([(0, 55, 60, True)]))
    outcome = run(make_jobs([(0, 8, 90)]), cluster, "fifo", saving)
    assert outcome.end_ms.tolist() == [110_000]
    assert losses(outcome).lost_milli_ms.tolist() == [5_000 * 8 * 1000]


def test_a_restart_that_is_hit_begins_anew() -> None:
    cluster = with_outages(make_cluster([8]), outages([(0, 10, 20, True), (0, 26, 30, True)]))
    outcome = run(make_jobs([(0, 8, 20)]), cluster, "fifo", every(1, 10, restart_s=8))
    assert outcome.end_ms.tolist() == [48_000]
    assert outcome.overhead_ms.tolist() == [6_000 + 8_000]
    assert losses(outcome).restarts.tolist() == [2]


def test_all_nodes_down_for_ever_leave_a_job_waiting() -> None:
    cluster = with_outages(make_cluster([8, 8]), outages([(0, 10, None, True), (1, 12, None, True)]))
    outcome = run(make_jobs([(0, 8, 20), (50, 1, 1)]), cluster, "fifo", every(2, 1))
    assert outcome.end_ms.tolist() == [-1, -1]
    assert outcome.unschedulable.tolist() == [True, True]


def test_a_spare_takes_the_place_of_a_node_at_once() -> None:
    # The gang needs two nodes of three; the third is held back, until a node fails. Back, the node is the spare.
    plain = make_cluster([8, 8, 8])
    held = with_outages(plain, outages([(0, 30, 50, True), (2, 60, 70, True)]), spares=1)
    assert held.absent.tolist() == [0, 0, 1]
    rows = zip((held.change_ms // 1000).tolist(), held.change_node.tolist(), held.change_up.tolist(), strict=True)
    assert list(rows) == [(30, 0, 0), (30, 0, 0), (30, 2, 1), (60, 2, 0), (60, 2, 0), (60, 0, 1)]
    outcome = run(make_jobs([(0, 16, 100), (0, 8, 10)]), held, "fifo,scan=skip", every(2, 10, restart_s=5))
    assert outcome.end_ms.tolist() == [115_000, 125_000]


def test_a_spare_that_is_lent_gives_way() -> None:
    # Node 2 is the spare. Job 1 may be stopped and runs on it; job 2 may not, and waits although there is room. At 30 s
    # node 0 fails: the gang goes on upon nodes 1 and 2. Job 1 loses nothing, since it saved at 30 s. Node 0 is back at
    # 50 s and stands by: job 1 goes on there, after a restart of 5 s, for the 10 s that are left.
    jobs = make_jobs([(0, 16, 100), (0, 4, 40), (1, 4, 10)], preemptible=[0, 1, 0])
    held = with_outages(make_cluster([8, 8, 8]), outages([(0, 30, 50, True)]), spares=1, lend=True)
    assert held.lent is not None
    assert held.machines == 3
    assert held.total_gpus == 24
    outcome = run(jobs, held, "fifo,scan=skip", every(3, 10, restart_s=5))
    assert outcome.end_ms.tolist() == [105_000, 65_000, 115_000]
    assert losses(outcome).restarts.tolist() == [1, 1, 0]


def test_a_drained_node_that_stands_by_is_not_lent_while_a_job_may_run_on_it() -> None:
    # Node 0 is drained at 10 s with a job of 60 s on it, and back at 20 s, when node 1 has its place.
    jobs = make_jobs([(0, 8, 60), (12, 8, 10), (15, 8, 10)], preemptible=1)
    held = with_outages(make_cluster([8, 8]), outages([(0, 10, 20, False)]), spares=1, lend=True)
    outcome = run(jobs, held, "fifo", every(3, 10))
    assert outcome.first_start_ms.tolist() == [0, 12_000, 22_000]


def test_a_spare_of_the_same_rack_comes_first() -> None:
    cluster = make_cluster([8] * 6, rack=["a", "a", "a", "b", "b", "b"])
    held = with_outages(cluster, outages([(4, 30, None, True), (0, 40, None, True)]), spares=2)
    assert held.absent.tolist() == [0, 0, 1, 0, 0, 1]
    joins = held.change_node[held.change_up == 1].tolist()
    assert joins == [5, 2]


def test_more_spares_than_nodes_are_an_error() -> None:
    with pytest.raises(Exception, match="2 spares leave none of the 2 nodes for jobs"):
        with_outages(make_cluster([8, 8]), outages([]), spares=2)


def test_the_figures_of_outages_by_hand() -> None:
    # 9 s of work and 1 s of saving. Job 0 (8 GPUs, 90 s of work) fails at 55 s, is back at 60 s, sits out 4 s and works
    # 50 s more for 45 s of work: it ends at 114 s, 109 s of which it held its GPUs, 5 s of them lost and 4 s a restart.
    # Job 1 (2 GPUs, 9 s of work) runs 10 s from 114 s on, submitted at 100 s.
    happened = outages([(0, 55, 60, True)])
    jobs = make_jobs([(0, 8, 90), (100, 2, 9)])
    scenario = Scenario.make(jobs, with_outages(make_cluster([8]), happened))
    scenario = replace(scenario, outages=happened, saving=read_checkpoints("interval=9,cost=1,restart=4"))
    found = scenario.run("fifo").summary
    assert found["restarts"] == 1
    assert found["lost_gpu_hours"] == pytest.approx(5 * 8 / 3600)
    assert found["goodput_share"] == pytest.approx((90 * 8 + 9 * 2) / (109 * 8 + 10 * 2))
    assert found["ettr"] == pytest.approx((90 * 8 + 9 * 2) / (114 * 8 + 24 * 2))
    by_class = {row["gpu_class"]: row for row in found["by_gpu_class"]}
    assert by_class["5-8"]["ettr"] == pytest.approx(90 / 114)
    assert by_class["2-4"]["ettr"] == pytest.approx(9 / 24)
    assert by_class["2-4"]["restarts"] == 0
    assert found["assumptions"]["checkpoints"]["value"].startswith("every 9 s of work at a cost of 1 s; restart in 4 s")


def test_gpus_beyond_those_asked_for_add_nothing_to_the_training_time_ratio() -> None:
    # A job of 5 GPUs in a block of 8, by buddy: no wait, nothing lost; its node fails at 30 s, when all is saved.
    jobs, happened = make_jobs([(0, 5, 60)]), outages([(0, 30, 50, True)])
    scenario = Scenario.make(jobs, with_outages(make_cluster([8]), happened), placement="buddy")
    scenario = replace(scenario, outages=happened, saving=read_checkpoints("interval=10,restart=0"))
    found = scenario.run("fifo").summary
    assert found["goodput_share"] == pytest.approx(1)
    assert found["ettr"] == pytest.approx(60 / 80)


@st.composite
def failing(draw: st.DrawFn, /, **options: Any) -> tuple[Jobs, Cluster, Checkpoints]:
    """Jobs on a cluster whose nodes fail, often at the same time, and how the jobs save."""
    jobs = draw(job_lists(**options))
    cluster = draw(clusters())
    row = st.tuples(st.integers(0, cluster.nodes - 1), seconds(60), st.one_of(st.none(), seconds(40)), st.booleans())
    rows = draw(st.lists(row, min_size=1, max_size=8))
    happened = outages([(node, since, length and since + length, kills) for node, since, length, kills in rows])
    most = min(2, cluster.nodes - len(pools_of(cluster)))
    spares, lend = draw(st.integers(0, most)), draw(st.booleans())
    n = len(jobs)
    jobs = replace(jobs, preemptible=np.array(draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)), np.int8))
    period = draw(st.lists(st.sampled_from([1, 700, 5_000, 20_000, 1 << 62]), min_size=n, max_size=n))
    progress = draw(st.sampled_from([1_000_000, 1_000_000, 900_000, 333_333]))
    saved = np.array([progress if p < 1 << 62 else 1_000_000 for p in period], np.int32)
    saving = Checkpoints(np.array(period, np.int64), saved, draw(st.sampled_from([0, 1, 3_000])))
    return jobs, with_outages(cluster, happened, spares, lend=lend), saving


def saves(rule: Rule, saving: Checkpoints) -> Rule:
    return replace(
        rule,
        period_ms=tuple(saving.period_ms.tolist()),
        progress_ppm=tuple(saving.progress_ppm.tolist()),
        restart_ms=saving.restart_ms,
    )


def agree(jobs: Jobs, cluster: Cluster, rule: Rule, mechanism: Mechanism, saving: Checkpoints) -> None:
    engine = simulate(
        jobs, cluster, assign(jobs, cluster), mechanism, rule=rule.placement, checkpoints=saving, log=True
    )
    truth = oracle(jobs, cluster, saves(rule, saving))
    assert engine.log is not None
    assert canonical(engine.log) == canonical(truth.log)
    for name in ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations"):
        assert getattr(engine, name).tolist() == list(getattr(truth, name)), name
    assert losses(engine).restarts.tolist() == truth.restarts
    assert losses(engine).lost_milli_ms.tolist() == truth.lost_milli_ms
    assert audit(jobs, cluster, engine.log, engine, checkpoints=saving) == []


@tried(47, 133, failing(), ordered_rules())
def test_engine_and_oracle_agree_on_outages(case: tuple[Jobs, Cluster, Checkpoints], rule: Rule) -> None:
    jobs, cluster, saving = case
    rule = replace(rule, fit="place")
    agree(jobs, cluster, rule, mechanism_of(rule), saving)


@tried(35, 100, failing(least=8, most=24, horizon_s=15, sizes=SMALL, typed=False), ordered_rules())
def test_engine_and_oracle_agree_on_outages_in_crowds(case: tuple[Jobs, Cluster, Checkpoints], rule: Rule) -> None:
    jobs, cluster, saving = case
    rule = replace(rule, fit="place", mode="preemptive", order="srtf" if rule.mode == "list" else rule.order)
    agree(jobs, cluster, rule, mechanism_of(rule), saving)


@tried(35, 100, failing(most=14), st.sampled_from(["easy", "conservative"]), st.booleans(), st.data())
def test_engine_and_oracle_agree_on_outages_under_backfilling(
    case: tuple[Jobs, Cluster, Checkpoints], kind: Any, wrong: bool, data: st.DataObject
) -> None:
    jobs, cluster, saving = case
    estimates = None
    if wrong:
        n = len(jobs)
        estimates = data.draw(st.lists(st.integers(0, 60).map(float), min_size=n, max_size=n))
    rule = Rule(mode=kind, estimates=None if estimates is None else tuple(round(e * 1000) for e in estimates))
    agree(jobs, cluster, rule, backfill(kind, estimates), saving)


@tried(7, 20, case=failing(), policy=st.sampled_from(KINDS))
def test_laws_hold_whatever_the_mechanism(case: tuple[Jobs, Cluster, Checkpoints], policy: str) -> None:
    jobs, cluster, saving = case
    if cluster.lent is not None and policy == "optimus":
        return  # it plans with the GPUs of every row
    outcome = run(jobs, cluster, policy, saving)
    # Work done is useful or lost: what an ended job ran is its overhead, what it lost, and its work with the saving.
    done = outcome.end_ms >= 0
    if policy != "optimus":
        lost_ms = losses(outcome).lost_milli_ms // (1000 * jobs.devices)
        worked = (outcome.run_ms - outcome.overhead_ms - lost_ms) * losses(outcome).progress_ppm / 1e6
        assert (np.abs(worked - jobs.work_ms)[done] <= 2 + losses(outcome).restarts[done]).all()


def broken_log() -> tuple[Jobs, Cluster, Checkpoints, list[tuple[int, ...]]]:
    """A job on two nodes, one of which fails at 12 s; it saves every 5 s and restarts in 3 s."""
    jobs, saving = make_jobs([(0, 16, 20)]), every(1, 5, restart_s=3)
    cluster = with_outages(make_cluster([8, 8]), outages([(1, 12, 30, True)]))
    outcome = run(jobs, cluster, "fifo", saving)
    assert outcome.log is not None
    return jobs, cluster, saving, [tuple(int(value) for value in row) for row in outcome.log]


FAULTS: dict[str, tuple[Any, str]] = {
    "a job runs on where a node failed": (lambda row: None if row[1] == FAIL else row, "runs on it still"),
    "a restart is cheaper": (lambda row: (*row[:5], 2_000) if row[1] == FAIL else row, "where 3000 are due"),
    "a node that works stops a job": (lambda row: (*row[:3], 0, *row[4:]) if row[1] == FAIL else row, "does not fail"),
    "a job loses nothing": (lambda row: (row[0] - 2_000, *row[1:]) if row[1] == FINISH else row, "its work is done at"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_auditor_sees_what_is_wrong_with_an_outage(fault: str) -> None:
    jobs, cluster, saving, log = broken_log()
    assert audit(jobs, cluster, log, checkpoints=saving) == []
    change, sentence = FAULTS[fault]
    found = audit(jobs, cluster, [new for row in log if (new := change(row)) is not None], checkpoints=saving)
    assert any(sentence in one for one in found), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "every 3600 s of work at a cost of 0 s; restart in 300 s"),
        ("interval=60,cost=2,restart=0", "every 60 s of work at a cost of 2 s; restart in 0 s"),
        ("interval=daly,cost=30", "at Daly's interval for a cost of 30 s; restart in 300 s"),
        ("interval=none", "no checkpoints: an outage costs all work; restart in 300 s"),
    ],
)
def test_how_jobs_save_is_said(text: str | None, words: str) -> None:
    assert read_checkpoints(text).words == words


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("interval=0", "interval must be a number above 0, not '0'"),
        ("interval=-5", "interval must be a number above 0"),
        ("cost=x", "cost must be a number 0 or more, not 'x'"),
        ("restart=inf", "restart must be a number 0 or more"),
        ("interval=60,cost=61", "a checkpoint of 61 s after every 60 s of work would take most of the time"),
        ("interval=daly", "free checkpoints have no best interval"),
        ("every=5", "'every=5' is not valid here"),
        ("cost=1,cost=2", "'cost=2' is not valid here"),
        ("", "'' is not valid here"),
    ],
)
def test_checkpoints_that_cannot_be_are_errors_of_one_line(text: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_checkpoints(text)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rate=-1", "rate must be a number 0 or more, not '-1'"),
        ("rate=1,repair=0", "repair must be a number above 0"),
        ("repair=4", "is not a source of outages"),
        ("modle", "'modle' is not valid here"),
    ],
)
def test_outages_that_cannot_be_are_errors_of_one_line(text: str, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_outages(text)
    assert error in str(caught.value)


@pytest.mark.parametrize(("away_h", "spares"), [(0.5, 0), (8.0, 8)])
def test_ettr_is_that_of_renewal_theory(away_h: float, spares: int) -> None:
    # A gang of four nodes, each of which fails every 40 hours of its work on average; with spares enough it never
    # waits for a repair, and without it waits for the mean time away (other nodes fail in that time now and then).
    mtbf_s, work_s = 36_000.0, 40_000_000.0
    jobs, plain = make_jobs([(0, 32, work_s)]), make_cluster([8] * (4 + spares))
    rng = np.random.default_rng(5)
    happened = drawn_at_rate(24 / 40, away_h, plain, round(3 * work_s * 1000), rng)
    scenario = Scenario.make(jobs, with_outages(plain, happened, spares))
    found: dict[float, float] = {}
    best = daly_interval(120, mtbf_s)
    for interval in (best / 3, best, best * 3):
        text = f"interval={interval},cost=120,restart=300"
        result = replace(scenario, outages=happened, saving=read_checkpoints(text)).run("fifo")
        rule = CheckpointRule(interval, 120, 300, 0 if spares else away_h * 3600)
        found[interval] = result.summary["ettr"]
        failures = result.summary["restarts"]
        assert failures == pytest.approx(expected_failures(work_s, rule, 1 / mtbf_s), rel=0.08)
        assert found[interval] == pytest.approx(expected_ettr(rule, 1 / mtbf_s, work_s), rel=0.01)
    assert max(found, key=lambda interval: found[interval]) == best


@pytest.mark.parametrize("policy", ["elastic-fifo", "afs-l", "elastic-tiresias"])
def test_an_elastic_job_goes_on_with_what_is_left(policy: str) -> None:
    # Node 1 fails at 1,000 s with all work saved. In the same instant the job is on node 0 alone: it restarts in 5 s,
    # and does 0.599174 of the work until node 1 is back at 5,000 s. A change of size costs 10 s.
    cluster = with_outages(make_cluster([8, 8]), outages([(1, 1000, 5000, True)]))
    outcome = run(make_jobs([(0, 16, 4000)]), cluster, policy, every(1, 10, restart_s=5))
    left_s = 4000 - 1000 - (5000 - 1005) * 0.599174
    assert outcome.end_ms[0] == pytest.approx((5000 + 10 + left_s) * 1000, abs=1)
    assert outcome.run_ms.tolist() == outcome.end_ms.tolist()
    assert losses(outcome).restarts.tolist() == [1]
