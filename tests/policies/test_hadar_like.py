"""GPUs bought at prices: by hand, beside a plain walk, and where it is another policy's order."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.kernel import buy_bundles
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

TWO = make_cluster((2, 2), model=["A", "B"])


def typed(ratio: dict[str, dict[str, float]]) -> Models:
    models = load_models()
    return replace(models, type_speed=replace(models.type_speed, ratio=ratio))


def run(jobs: Jobs, cluster: Cluster, policy: str, ratio: dict[str, dict[str, float]]) -> Outcome:
    outcome = Scenario.make(jobs, cluster, models=typed(ratio)).run(policy, log=True).outcome
    assert outcome.log is not None
    broken = audit(jobs, cluster, outcome.log, outcome)
    # The auditor does not know that a type may be used for which nobody asked.
    assert [b for b in broken if "another GPU model" not in b] == []
    return outcome


def ends(jobs: Jobs, cluster: Cluster, policy: str) -> list[int]:
    found: list[int] = run_engine(jobs, cluster, policy).end_ms.tolist()
    return found


def one_model(cluster: Cluster) -> Cluster:
    order = np.lexsort((cluster.rack, cluster.domain))
    return replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])


def test_a_short_job_has_the_fast_type_and_a_long_one_leaves_it() -> None:
    # B is half as fast. For each second j0 (10 s) is worth 1/10 on A and 1/20 on B, j1 and j2 (40 s) 1/40 and 1/80. An
    # idle type costs the least, 1/80; all of A costs 1/10 and all of B 1/20. j0 keeps 1 - 10/80 on A and 1 - 20/80 on
    # B: A. With half of A in use its price is sqrt(1/80 * 1/10) = 0.035: too dear for j1, whom B leaves 1 - 80/80 = 0.
    # Then half of B costs sqrt(1/80 * 1/20) = 0.025: j2 finds both too dear. Of the GPUs that would be idle that on
    # A is worth more to it.
    jobs = make_jobs([(0, 1, 10), (0, 1, 40), (0, 1, 40)], model="A")
    ratio = {"A": {"B": 0.5}}
    assert run(jobs, TWO, "hadar-like,preempt=off", ratio).end_ms.tolist() == [10_000, 80_000, 40_000]
    # With refused=wait j2 buys in the next round, at 360 s, when it is alone.
    waits = run(jobs, TWO, "hadar-like,preempt=off,refused=wait", ratio)
    assert waits.end_ms.tolist() == [10_000, 80_000, 400_000]
    # At every event, those that run included: at 10 s j2 has 30 s left and j1 35, were it on A. An idle type costs
    # 1/70, half of A sqrt(1/70 * 1/30) = 1/46: j1 keeps 1 - 35/46 = 0.24 there and 1 - 70/70 where it is. It moves,
    # unless it has to gain more by that; then it does so at 40 s, with 20 s left on A and 40 on B.
    assert run(jobs, TWO, "hadar-like,round=0", ratio).end_ms.tolist() == [10_000, 45_000, 40_000]
    assert run(jobs, TWO, "hadar-like,round=0,margin=0.3", ratio).end_ms.tolist() == [10_000, 60_000, 40_000]


def test_prices_know_no_unit() -> None:
    # The same in months: 10 and 40 million seconds.
    jobs = make_jobs([(0, 1, 10e6), (0, 1, 40e6), (0, 1, 40e6)], model="A")
    found = run(jobs, TWO, "hadar-like,round=0", {"A": {"B": 0.5}}).end_ms / 1e9
    assert found.tolist() == pytest.approx([10, 45, 40])


def test_a_shorter_job_stops_a_longer_one() -> None:
    # At 5 s j0 has 95 s left and j1 10: j0 is stopped, and goes on when j1 ends.
    jobs = make_jobs([(0, 1, 100), (5, 1, 10)])
    assert ends(jobs, make_cluster((1,)), "hadar-like,round=0") == [110_000, 15_000]
    assert ends(jobs, make_cluster((1,)), "hadar-like,round=0,preempt=off") == [100_000, 110_000]
    # In rounds of a minute j1 starts at 60 s, when j0 has 40 s left, and j0 goes on at 120 s.
    assert ends(jobs, make_cluster((1,)), "hadar-like,round=60") == [160_000, 70_000]
    # A stop costs what the preset says: Helios' 7 s for one GPU.
    assert ends(jobs, make_cluster((1,)), "hadar-like,round=0,overhead=helios") == [117_000, 15_000]


def test_a_gang_too_wide_for_its_type_goes_to_another() -> None:
    # Nodes of 2 and 2 on A never hold a gang of 3 on the fewest nodes but for both of them; 8 GPUs only B has.
    cluster = make_cluster((2, 2, 8), model=["A", "A", "B"])
    jobs = make_jobs([(0, 8, 10), (0, 4, 20)], model="A|B")
    outcome = run(jobs, cluster, "hadar-like", {"A|B": {"A": 4.0, "B": 0.5}})
    assert outcome.end_ms.tolist() == [20_000, 5_000]


def test_what_finds_no_place_leaves_it_to_others() -> None:
    # When j1 ends at 10 s one GPU is free on each node. Of those that come at 20 s j3 is the smaller, and two GPUs are
    # free for it, but not on one node: j4 has one of them at once, and j3 starts at 100 s on the node without j4.
    jobs = make_jobs([(0, 1, 100), (0, 1, 10), (0, 1, 100), (20, 2, 50), (20, 1, 110)])
    outcome = run_engine(jobs, make_cluster((2, 2)), "hadar-like,round=0,preempt=off")
    assert outcome.first_start_ms.tolist() == [0, 0, 0, 100_000, 20_000]


@st.composite
def offers(draw: st.DrawFn) -> tuple[list[int], list[list[float]], list[int], list[int]]:
    pools = draw(st.integers(1, 3))
    jobs = draw(st.integers(1, 6))
    row = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=pools, max_size=pools)
    gpus = draw(st.lists(st.integers(1, 4), min_size=jobs, max_size=jobs))
    worth = draw(st.lists(row, min_size=jobs, max_size=jobs))
    size = draw(st.lists(st.integers(0, 8), min_size=pools, max_size=pools))
    return gpus, worth, size, [draw(st.integers(0, s)) for s in size]


def walked(
    gpus: list[int], worth: list[list[float]], size: list[int], free: list[int], home: list[int], *, priced: bool
) -> list[int]:
    """Return the pool of each job, -1 none, in the order given.

    Needs are 1 GPU*ms for each GPU, prices 0.5 to 7, and leaving home costs a quarter of the utility.
    """
    left, found = list(free), []
    for g, row, stay in zip(gpus, worth, home, strict=True):
        best = (-math.inf, -1)
        for p, value in enumerate(row):
            if value <= 0 or left[p] < g:
                continue
            price = 0.5 * 14 ** ((size[p] - left[p]) / size[p])
            kept = value if stay in (-1, p) else 0.75 * value
            gain = (kept - price) * g if priced else kept
            if value < price * (1 - 1e-12) and priced:
                continue
            if gain > best[0] + 1e-12 or (gain > best[0] - 1e-12 and p == stay):
                best = (gain, p)
        found.append(best[1])
        if best[1] >= 0:
            left[best[1]] -= g
    return found


@settings(max_examples=examples(150), deadline=None)
@given(offer=offers(), priced=st.booleans(), data=st.data())
def test_bundles_are_bought_as_the_rule_says(
    offer: tuple[list[int], list[list[float]], list[int], list[int]], priced: bool, data: st.DataObject
) -> None:
    gpus, worth, size, free = offer
    pools, jobs = len(size), len(gpus)
    need = np.repeat(np.array(gpus, np.float64)[:, None], pools, axis=1)
    low, span = np.full(pools, 0.5), np.full(pools, np.log(14))
    home = data.draw(st.lists(st.integers(-1, pools - 1), min_size=jobs, max_size=jobs))
    chosen, left = np.full(jobs, -1), np.array(free)
    order, table, sizes = np.arange(jobs), np.array(worth), np.array(size)
    buy_bundles(order, np.array(gpus), table, need, low, span, sizes, left, np.array(home), 0.25, priced, chosen)
    assert chosen.tolist() == walked(gpus, worth, size, free, home, priced=priced)
    took = [sum(g for g, p in zip(gpus, chosen.tolist(), strict=True) if p == pool) for pool in range(len(size))]
    assert left.tolist() == [f - t for f, t in zip(free, took, strict=True)]


@tried(7, 20, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_with_one_type_it_is_smallest_or_first_first(jobs: Jobs, cluster: Cluster) -> None:
    one = one_model(cluster)
    assert ends(jobs, one, "hadar-like,preempt=off,round=0") == ends(jobs, one, "ssf,scan=skip")
    assert ends(jobs, one, "hadar-like,preempt=off,round=0,utility=work") == ends(jobs, one, "fifo,scan=skip")


@tried(7, 20, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_with_one_type_and_single_gpus_it_is_shortest_remaining_first(jobs: Jobs, cluster: Cluster) -> None:
    single, one = replace(jobs, devices=np.ones_like(jobs.devices)), one_model(cluster)
    assert ends(single, one, "hadar-like,round=0") == ends(single, one, "srtf")


@tried(
    10,
    30,
    jobs=job_lists(),
    cluster=clusters(),
    ratio=st.sampled_from([0.2, 0.7, 1.0, 3.0]),
    options=st.sampled_from(
        ["", "round=0", "round=5,utility=throughput", "round=5,utility=work,overhead=helios", "refused=wait,round=5"]
    ),
    candidates=st.sampled_from([1, 3, 500]),
    preempt=st.sampled_from(["on", "off"]),
)
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, ratio: float, options: str, candidates: int, preempt: str) -> None:
    policy = ",".join(filter(None, ["hadar-like", options, f"candidates={candidates}", f"preempt={preempt}"]))
    outcome = run(jobs, cluster, policy, {"A100": {"V100": ratio}})
    stays = not len(cluster.change_ms) and not cluster.absent.any()
    assert not stays or ((outcome.end_ms >= 0) == ~outcome.unschedulable.astype(bool)).all()


def test_bad_parameters() -> None:
    for wrong in ("utility=joy", "refused=beg", "candidates=0", "round=-1"):
        with pytest.raises(UsageError, match=wrong.partition("=")[0]):
            run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"hadar-like,{wrong}")
