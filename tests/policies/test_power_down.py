"""Nodes that are switched off: a case worked by hand, the order it is equal to, and the laws of a replay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import parse_policy
from tracekit.replay.assumptions.costs import PowerPrices
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, Switching
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

PER_JOB = ("first_start_ms", "end_ms", "run_ms", "nodes_spanned", "unschedulable", "held_milli_ms")
FREE = PowerPrices(0, np.zeros(1), "EUR")
UP, DOWN = LOG_KINDS["up"], LOG_KINDS["down"]


def run(jobs: Jobs, cluster: Cluster, policy: str) -> Outcome:
    return Scenario.make(jobs, cluster).run(policy, log=True).outcome


def switched(cluster: Cluster, outcome: Outcome) -> Cluster:
    """Return the cluster with the nodes that come and go as the log says, switches included."""
    assert outcome.log is not None
    log = outcome.log[np.isin(outcome.log["kind"], (UP, DOWN))]
    return replace(
        cluster,
        change_ms=log["time_ms"].astype(np.int64),
        change_node=log["node"].astype(np.int32),
        change_up=(log["kind"] == UP).astype(np.int8),
    )


def test_a_case_worked_by_hand(golden: Golden) -> None:
    # Two nodes of 2 GPUs, one of which may sleep after 100 s; a wake-up takes 300 s.
    # 0 s: job 0 has node 0. 100 s: node 1 goes off; with job 0 running no wholly idle node is left, and none is asked
    # for (reserve=0). 200 s: job 1 (2 GPUs) finds nothing: node 1 is woken, and takes it at 500 s, until 510 s.
    # Job 0 ends at 1,000 s. Node 1 is idle from 510 s on and off from 610 s on.
    jobs = make_jobs([(0, 1, 1000), (200, 2, 10)], utilization=1.0)
    found = run(jobs, make_cluster((2, 2)), "power-down,idle=100,reserve=0")
    assert found.first_start_ms.tolist() == [0, 500_000]
    assert found.end_ms.tolist() == [1_000_000, 510_000]
    # 75 W idle: 4 GPUs for 1,000 s, less node 1's two for 100 s (100 to 200 s) and 390 s (610 to 1,000 s); a busy GPU
    # draws 225 W more: 1,000 + 20 GPU-seconds.
    joule = 75 * (4 * 1000 - 2 * (100 + 390)) + 225 * 1020
    assert found.energy_kwh == pytest.approx(joule / 3.6e6, rel=1e-9)
    told = found.facts["switched nodes"]["value"]
    # Off: 980 of 4,000 GPU-seconds.
    golden(told)


def test_the_reserve_stays_on_and_is_made_whole() -> None:
    # Three nodes of one GPU, one in reserve. Job 0 takes node 0; of the idle nodes 1 and 2 the last goes off at 100 s.
    # Job 1 takes the reserve at 200 s, at once; so node 2 is woken for the reserve and takes job 2 at 500 s.
    jobs = make_jobs([(0, 1, 1000), (200, 1, 1000), (300, 1, 10)])
    found = run(jobs, make_cluster((1, 1, 1)), "power-down,idle=100,reserve=1")
    assert found.first_start_ms.tolist() == [0, 200_000, 500_000]
    assert found.log is not None
    rows = [(t, k, n) for t, k, _, n, _, _ in found.log.tolist() if k in {UP, DOWN}]
    # When job 0 ends its node is idle beside node 2, which has been for long: one of them goes, a millisecond later.
    assert rows == [(100_000, DOWN, 2), (500_000, UP, 2), (1_000_001, DOWN, 2)]


def test_free_gpus_in_reserve() -> None:
    # Of two idle nodes of 4 GPUs none may go while 5 free GPUs have to stay on; 4 let one go.
    jobs = make_jobs([(0, 1, 10), (1000, 1, 10)])
    assert (
        "none of"
        not in run(jobs, make_cluster((4, 4)), "power-down,idle=10,reserve=0,reserve_gpus=4").facts["switched nodes"][
            "value"
        ]
    )
    kept = run(jobs, make_cluster((4, 4)), "power-down,idle=10,reserve=0,reserve_gpus=5")
    assert kept.energy_kwh == pytest.approx(Scenario.make(jobs, make_cluster((4, 4))).run("fifo").outcome.energy_kwh)


@tried(9, 25, job_lists(), clusters(), st.sampled_from(["fifo", "sjf", "ssf"]), st.sampled_from(["stop", "skip"]))
def test_with_all_nodes_on_it_is_the_order(jobs: Jobs, cluster: Cluster, order: str, scan: str) -> None:
    free = run(jobs, cluster, f"{order},scan={scan}")
    for way in ("idle=inf", "idle=1,reserve=1000"):
        on = run(jobs, cluster, f"power-down,{way},order={order},scan={scan}")
        for name in PER_JOB:
            assert getattr(free, name).tolist() == getattr(on, name).tolist(), name
        assert free.log is not None
        assert on.log is not None
        assert free.log.tobytes() == on.log.tobytes()
        assert on.energy_kwh == pytest.approx(free.energy_kwh, rel=1e-9, abs=1e-12)


def off_gpu_ms(cluster: Cluster, outcome: Outcome, wake_ms: int) -> float:
    """Return the GPU time of nodes that are off, from the log of a run whose cluster has no changes of its own."""
    assert outcome.log is not None
    total = 0
    since: dict[int, int] = {}
    end = outcome.makespan_ms
    for time, kind, _, node, _, _ in outcome.log.tolist():
        if kind == DOWN:
            since[node] = time
        elif kind == UP:
            total += int(cluster.gpus[node]) * max(min(time - wake_ms, end) - since.pop(node), 0)
    # A wake-up that is not over when the last job ends leaves no row: see the caller.
    return total + sum(int(cluster.gpus[node]) * max(end - time, 0) for node, time in since.items())


@tried(
    21,
    60,
    job_lists(horizon_s=600),
    clusters(),
    st.sampled_from(["fifo", "sjf", "ssf"]),
    st.sampled_from(["stop", "skip"]),
    st.sampled_from([(0, 0, 0), (5, 0, 0), (5, 1, 0), (20, 0, 3), (1, 0, 0)]),
    st.sampled_from([0.001, 7.0, 300.0]),
)
def test_the_laws_of_a_replay_hold(
    jobs: Jobs, cluster: Cluster, order: str, scan: str, rule: tuple[int, int, int], wake_s: float
) -> None:
    idle, reserve, gpus = rule
    models = load_models()
    models = replace(models, switching=replace(models.switching, wake_s=wake_s))
    text = f"power-down,idle={idle},reserve={reserve},reserve_gpus={gpus},order={order},scan={scan}"
    found = Scenario.make(jobs, cluster, models=models).run(text, log=True).outcome
    assert found.log is not None
    own = switched(cluster, found)
    assert audit(jobs, own, found.log, found, preemptive=False) == []
    # Whoever runs with all nodes on runs here, later or not; nobody waits for ever behind a node that sleeps.
    free = run(jobs, cluster, f"{order},scan={scan}")
    assert found.unschedulable.tolist() == free.unschedulable.tolist()
    assert found.energy_kwh is not None
    if not len(cluster.change_ms) and not cluster.absent.any():
        on_top = 225 * 0.52 * float(found.held_milli_ms.sum()) / 1000
        least = 75 * (cluster.total_gpus * found.makespan_ms - off_gpu_ms(cluster, found, round(wake_s * 1000)))
        # Nodes that still wake up when the last job ends are off in the log.
        most = least + 75 * cluster.total_gpus * min(wake_s * 1000, found.makespan_ms)
        assert least * (1 - 1e-9) - 1 <= found.energy_kwh * 3.6e9 - on_top <= most * (1 + 1e-9) + 1


def test_an_hour_of_their_own_and_the_log_of_jobs_in_their_order() -> None:
    # Job 0 is held for 50 s, behind job 1; the engine has them in the other order.
    jobs, cluster = make_jobs([(0, 1, 10), (20, 1, 10)]), make_cluster((1,))
    ordered = Ordered(by_arrival, drift="none", by_arrival=True)
    zero = np.zeros(2, np.int64)
    rule = Switching(ordered, 1 << 62, 1, 0, 0, zero[:1], zero[:1], zero, FREE, held_ms=np.array([50_000, 0]))
    found = simulate(jobs, cluster, assign(jobs, cluster), rule, log=True)
    assert found.first_start_ms.tolist() == [50_000, 20_000]
    assert found.end_ms.tolist() == [60_000, 30_000]
    assert found.log is not None
    starts = [(t, j) for t, k, j, *_ in found.log.tolist() if k == LOG_KINDS["start"]]
    assert starts == [(20_000, 1), (50_000, 0)]


def test_nodes_that_are_off_may_draw_something(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    jobs, cluster = make_jobs([(0, 1, 1000)], utilization=1.0), make_cluster((1, 1))
    energies = []
    for share in (0.0, 0.5, 1.0):
        own.write_text(f"switching.off_share = {share}", encoding="utf-8")
        outcome = Scenario.make(jobs, cluster, models=load_models(own)).run("power-down,idle=100,reserve=0").outcome
        energies.append(outcome.energy_kwh)
    # 300 W for 1,000 s, and the other GPU 75 W for 100 s and then the share of it.
    joule = [300 * 1000 + 75 * 100 + share * 75 * 900 for share in (0.0, 0.5, 1.0)]
    assert energies == pytest.approx([j / 3.6e6 for j in joule], rel=1e-9)


def test_bad_input_is_an_error_of_one_line() -> None:
    jobs, cluster = make_jobs([(0, 1, 10)]), make_cluster((1,))
    none = np.zeros(1, np.int64)
    rule = Switching(Ordered(by_arrival, preemptive=True), 0, 1, 0, 0, none, none, none, FREE)
    with pytest.raises(UsageError, match="the policy toy: nodes can be switched off only if jobs have places") as error:
        simulate(jobs, cluster, assign(jobs, cluster), rule, name="toy")
    assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match="out of range"):
        parse_policy("power-down,idle=-1")
    # A gang that is wider than the cluster is rejected, and keeps no node awake.
    found = run(make_jobs([(0, 9, 10), (1000, 1, 10)]), make_cluster((1, 1)), "power-down,idle=10,reserve=0")
    assert found.unschedulable.tolist() == [True, False]
    assert found.first_start_ms.tolist() == [-1, 1_300_000]
