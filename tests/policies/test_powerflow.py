"""GPUs and clocks by what a further watt saves: by hand, against the same steps in plain Python, and its laws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.test_clock_mpc import energy_of_log
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import parse_policy
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.kernel import raise_flow
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

MODELS = load_models()


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models = MODELS) -> Outcome:
    return Scenario.make(jobs, cluster, models=models).run(policy, log=True).outcome


def test_clocks_worked_by_hand() -> None:
    # A busy GPU draws 56.52, 67.5, 83.88, 106.74, 137.16, 176.22 and 225 W on top at clocks of 0.4 to 1.0, and 350 W
    # are left. A watt saves the job of 80 s 3.64, 1.63, 0.83, 0.47, 0.28 and 0.18 s, step by step, and that of 8 s a
    # tenth of it. So the long one goes to 0.8, the short one to 0.5, the long one to 1.0 and the short one to 0.6 and
    # 0.7, where 331.74 W are drawn; 0.8 would be 362.16 W.
    jobs = make_jobs([(0, 1, 8), (0, 1, 80)], utilization=1.0)
    found = run(jobs, make_cluster((4,)), "powerflow-like,elastic=off,cap_w=650,gap=0")
    assert found.end_ms.tolist() == [11_429, 80_000]
    assert found.energy_kwh == pytest.approx((300 * 80 + 225 * 80 + 106.74 * 11.429) / 3.6e6, rel=1e-9)
    assert found.power is not None
    assert found.power.peak_w == pytest.approx(631.74)
    assert (found.power.over_ms, found.power.slowed_ms) == (0, 11_429)


def test_gpus_worked_by_hand() -> None:
    # A job that asks for 2 GPUs may have 1 to 4. On 4 it is 4 * 1.03 / (2 * 1.09) = 1.889908 times as fast.
    jobs = make_jobs([(0, 2, 60)])
    assert run(jobs, make_cluster((8,)), "powerflow-like,cap_w=inf").end_ms.tolist() == [31_748]
    # Of two jobs on four GPUs each has one, and the longer one a second, since it saves more; 2 more for it are not
    # left, so the other has the last. When that one ends, after 50 s, the longer one resizes for 10 s and does the
    # 50 s of its work on four GPUs.
    jobs = make_jobs([(0, 2, 100), (0, 2, 50)])
    found = run(jobs, make_cluster((4,)), "powerflow-like,cap_w=inf,gap=0,resize=10")
    assert found.end_ms.tolist() == [50_000 + 10_000 + 26_457, 50_000]
    assert found.migrations.tolist() == [1, 0]


flow_rows = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(0, 1), st.integers(0, 1), st.integers(0, 500)),
    min_size=1,
    max_size=6,
)
DRAWN = np.array([[90.0, 50.0, 30.0], [40.0, 40.0, 25.0]])
SPEED = np.array([1.0, 0.7, 0.4])


@tried(35, 100, flow_rows, st.integers(0, 8), st.integers(0, 8), st.integers(-50, 2000))
def test_the_steps_are_those_of_the_rule(
    given_rows: list[tuple[int, int, int, int, int]], first: int, second: int, room: int
) -> None:
    rows = np.zeros(len(given_rows), struct_dtype("FlowRow"))
    free = np.array([first, second], np.int64)
    for row, (gpus, high, pool, kind, left) in zip(rows, given_rows, strict=True):
        row["gpus"], row["high"], row["pool"], row["kind"] = gpus, max(high, gpus), pool, kind
        row["left"], row["clock"] = left + 0.5, 2
    now = [[int(r["gpus"]), 2, True] for r in rows]
    left_gpus, left_mw = free.tolist(), float(room)

    def step(k: int) -> tuple[int, int, int]:
        """Return (scaled worth, GPUs, clock) of the next step, worth 0 for none; the clock goes first when alike."""
        gpus, clock, _ = now[k]
        row, best = rows[k], (0, gpus, clock)

        def time(n: int, c: int) -> float:
            return float(row["left"]) * (1 + 0.03 * (n - 1)) / n / float(SPEED[c])

        more_gpus = min(2 * gpus, int(row["high"]))
        ways = [(gpus, clock - 1)] if clock else []
        if gpus < more_gpus <= gpus + left_gpus[int(row["pool"])]:
            ways.append((more_gpus, clock))
        for n, c in ways:
            drawn = n * float(DRAWN[row["kind"], c]) - gpus * float(DRAWN[row["kind"], clock])
            gain = time(gpus, clock) - time(n, c)
            worth = 4e18 if drawn <= 0 else gain / drawn * 1e9
            if gain > 0 and int(min(worth, 4e18)) > best[0]:
                best = (int(min(worth, 4e18)), n, c)
        return best

    while any(alive and step(k)[0] > 0 for k, (_, _, alive) in enumerate(now)):
        k = min((k for k, row in enumerate(now) if row[2]), key=lambda k: (-step(k)[0], k))
        _, n, c = step(k)
        kind = int(rows[k]["kind"])
        more = n * float(DRAWN[kind, c]) - now[k][0] * float(DRAWN[kind, now[k][1]])
        if more > max(left_mw, 0):
            now[k][2] = False
            continue
        left_mw -= more
        left_gpus[int(rows[k]["pool"])] -= n - now[k][0]
        now[k][:2] = [n, c]
    heap, at = np.zeros(len(rows), struct_dtype("Entry")), np.zeros(len(rows), np.int32)
    assert raise_flow(rows, DRAWN, SPEED, 0.03, free, float(room), heap, at) == pytest.approx(left_mw)
    assert [[int(r["gpus"]), int(r["clock"])] for r in rows] == [row[:2] for row in now]
    assert free.tolist() == left_gpus


def test_the_shortest_job_has_its_full_clock_too() -> None:
    # A watt saves a job of a millisecond on five GPUs next to nothing, which is still more than nothing.
    jobs = make_jobs([(0, 5, 0.001)])
    assert run(jobs, make_cluster((4, 4)), "powerflow-like,elastic=off,cap_w=inf,gap=0").end_ms.tolist() == [1]


@tried(7, 20, job_lists(), clusters())
def test_at_full_clocks_it_is_sjf(jobs: Jobs, cluster: Cluster) -> None:
    free = run(jobs, cluster, "sjf,scan=skip")
    found = run(jobs, cluster, "powerflow-like,elastic=off,cap_w=inf,gap=0")
    assert found.end_ms.tolist() == free.end_ms.tolist()
    assert found.energy_kwh == pytest.approx(free.energy_kwh, rel=1e-9, abs=1e-12)
    # Where a lower clock saves no power, all are full, whatever the cap.
    flat = {name: replace(workload, s0=1.0) for name, workload in MODELS.power.workloads.items()}
    models = replace(MODELS, power=replace(MODELS.power, workloads=flat))
    for share in (0.2, 0.6):
        found = run(jobs, cluster, f"powerflow-like,elastic=off,share={share},gap=0", models)
        assert found.end_ms.tolist() == free.end_ms.tolist()


@settings(max_examples=20)
@given(job_lists(most=3, sizes=st.sampled_from([1, 2, 3]), typed=False))
def test_with_room_for_all_every_job_has_its_maximum(jobs: Jobs) -> None:
    found = run(jobs, make_cluster([8] * 4, domain=""), "powerflow-like,cap_w=inf,gap=0,resize=0,overhead=none")
    assert found.held_milli_ms.tolist() == (2000 * jobs.devices * found.run_ms).tolist()


@tried(
    14,
    40,
    job_lists(typed=False),
    clusters(changing=False),
    st.floats(0.2, 1.0),
    st.booleans(),
    st.sampled_from([0, 9]),
)
def test_the_laws_of_a_replay_and_the_cap_hold(
    jobs: Jobs, cluster: Cluster, share: float, elastic: bool, gap: int
) -> None:
    text = f"powerflow-like,elastic={'on' if elastic else 'off'},share={share},gap={gap},resize=3"
    found = run(jobs, cluster, text)
    assert found.log is not None
    gang = "elastic" if elastic else "exact"
    assert audit(jobs, cluster, found.log, found, gang=gang, preemptive=elastic) == []
    assert found.power is not None
    lowest = 75 * cluster.total_gpus + cluster.total_gpus * 0.52 * (300 * (0.4 + 0.6 * 0.064) - 75)
    if share * 300 * cluster.total_gpus > lowest:
        assert found.power.over_ms == 0
    if not elastic:
        assert found.energy_kwh == pytest.approx(energy_of_log(jobs, cluster, found), rel=1e-6, abs=1e-9)


@settings(max_examples=15)
@given(job_lists(), clusters())
def test_the_laws_hold_on_nodes_that_come_and_go(jobs: Jobs, cluster: Cluster) -> None:
    found = run(jobs, cluster, "powerflow-like,share=0.5,gap=0,resize=1")
    assert found.log is not None
    assert audit(jobs, cluster, found.log, found, gang="elastic") == []


def test_mean_jct_falls_as_the_cap_rises() -> None:
    means = np.zeros((3, 4))
    for seed in range(3):
        random = np.random.default_rng(seed)
        rows = zip(
            np.sort(random.uniform(0, 20_000, 150)).tolist(),
            random.choice([1, 1, 2, 4, 8], 150).tolist(),
            random.exponential(900, 150).tolist(),
            strict=True,
        )
        jobs = make_jobs([(t, int(g), r) for t, g, r in rows], utilization=random.uniform(0.5, 1, 150).tolist())
        for column, share in enumerate((0.45, 0.55, 0.7, 1.0)):
            found = run(jobs, make_cluster([8] * 4), f"powerflow-like,share={share}")
            means[seed, column] = (found.end_ms - jobs.submit_ms).mean()
    assert (np.diff(means.mean(axis=0)) < 0).all(), means.mean(axis=0)


def test_bad_input() -> None:
    none = run(make_jobs([(0, 1, 10)]), make_cluster((1,)), "powerflow-like,share=0")
    assert none.end_ms.tolist() == [25_000]
    assert none.power is not None
    assert none.power.over_ms == 25_000
    with pytest.raises(UsageError, match="out of range"):
        parse_policy("powerflow-like,candidates=0")
    wide = run(make_jobs([(0, 9, 10), (0, 1, 10)]), make_cluster((1,)), "powerflow-like")
    assert wide.unschedulable.tolist() == [True, False]
    rigid = replace(MODELS, elastic=replace(MODELS.elastic, rigid=True))
    jobs = make_jobs([(0, 2, 10), (0, 2, 10)])
    assert run(jobs, make_cluster((4,)), "powerflow-like,cap_w=inf", rigid).end_ms.tolist() == [10_000, 10_000]
