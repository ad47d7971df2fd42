"""Lyra: worked by hand, loans given back in time, the cheapest servers, and settings in which it is shortest first."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.policies.resized import as_switched, assert_all_work_done, elastic, run, same, takes
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import Card, Policy
from tracekit.policies.literature.loans import ON_LOAN, Servers, loaned, with_loans
from tracekit.policies.network_tiers import Spot
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.mechanisms import Plan, Planner
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.registry import named_policy
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

ALL = "share=1,interval=0,resize=0,overhead=none"
UP, DOWN = LOG_KINDS["up"], LOG_KINDS["down"]


def lending(**changes: Any) -> Models:
    """The built-in models with linear speed, no cost of spreading, and changes to M42."""
    models = elastic()
    models = replace(models, spread=replace(models.spread, levels={"default": 0.0}, level="default"))
    return replace(models, loans=replace(models.loans, **changes))


def held_after(outcome: Outcome, cluster: Cluster) -> list[tuple[int, int]]:
    """Return (time, node) wherever a server on loan that is not there has a job at the end of an instant."""
    assert outcome.log is not None
    lent, there = loaned(cluster), cluster.absent == 0
    where: dict[int, set[int]] = {}
    bad: list[tuple[int, int]] = []
    before = -1

    def look(time: int) -> None:
        nodes = {n for own in where.values() for n in own}
        bad.extend((time, n) for n in nodes if lent[n] and not there[n])

    for time, kind, job, node, _, _ in outcome.log.tolist():
        if time != before:
            look(before)
            before = time
        if kind in {UP, DOWN}:
            there[node] = kind == UP
        elif kind in {LOG_KINDS["start"], LOG_KINDS["stop"], LOG_KINDS["finish"]}:
            where[job] = set()
        elif kind == LOG_KINDS["take"]:
            where[job].add(node)
    look(before)
    return bad


def test_gangs_by_shortest_first_and_the_rest_to_elastic_jobs() -> None:
    # 6 GPUs; three jobs of 2 workers of one GPU each would take all. Job 0 (2 GPUs, 100 s) and job 1 (2 GPUs, 40 s)
    # leave 2: a worker takes 100 * (1 - 2/3) = 33.3 s off job 0 first, then 100 * (2/3 - 1/2) = 16.7 s; off job 1
    # 13.3 s: both go to job 0, which has twice its GPUs and ends at 50 s.
    # Job 1 ends at 40 s. Job 0 has all that it may have already.
    jobs = make_jobs([(0, 2, 100), (0, 2, 40)])
    outcome = run(jobs, make_cluster((6,)), f"lyra,loan=off,{ALL}", lending())
    assert outcome.end_ms.tolist() == [50_000, 40_000]
    assert sorted(takes(outcome)) == [(0, 0, 4), (0, 1, 2)]


def test_workers_give_way_to_a_gang_and_no_job_falls_below_what_it_asks_for() -> None:
    # Job 0 has 4 GPUs at twice its speed until job 1 comes at 10 s and takes 2 for 10 s; it has 80 s left then, does
    # 10 s of them in 10 s, and the 70 s after that in 35 s.
    jobs = make_jobs([(0, 2, 100), (10, 2, 10)])
    outcome = run(jobs, make_cluster((4,)), f"lyra,loan=off,{ALL}", lending())
    assert outcome.end_ms.tolist() == [55_000, 20_000]
    assert [n for _, j, n in takes(outcome) if j == 0] == [4, 2, 4]
    assert outcome.preemptions.tolist() == [0, 0]


def test_a_loan_is_used_and_given_back() -> None:
    # A training node of 2 GPUs and a server of 2 on loan from 5 s to 20 s. Job 0 has the node; job 1 the loan, from
    # 5 s on; at 20 s it has done 15 of 40 s and waits again. It goes on at 50 s, when job 0 ends, until 75 s.
    cluster = make_cluster((2, 2), rack=["a", ON_LOAN], changes=[(5, 1, True), (20, 1, False)], absent=[1])
    jobs = make_jobs([(0, 2, 50), (0, 2, 60)])
    outcome = run(jobs, cluster, "lyra,elastic=off,overhead=none", lending())
    assert outcome.first_start_ms.tolist() == [0, 5_000]
    # Job 0 is the shorter. Of job 1's 60 s 15 are done on loan.
    assert outcome.end_ms.tolist() == [50_000, 95_000]
    assert outcome.preemptions.tolist() == [0, 1]
    assert held_after(outcome, cluster) == []
    # A preemption costs what the preset says: 30 s.
    assert run(jobs, cluster, "lyra,elastic=off", lending()).end_ms.tolist() == [50_000, 125_000]
    # Without the loan the jobs run one after the other.
    assert run(jobs, cluster, "lyra,loan=off,elastic=off", lending()).end_ms.tolist() == [50_000, 110_000]


def test_jobs_that_only_fit_servers_on_loan_are_not_run() -> None:
    cluster = make_cluster((1, 2, 2, 2), rack=["a", ON_LOAN, ON_LOAN, ON_LOAN], changes=[(10, 3, False)])
    jobs = make_jobs([(0, 1, 100), (0, 2, 60), (0, 2, 70), (0, 2, 80)])
    found = run(jobs, cluster, "lyra,elastic=off", lending())
    assert found.unschedulable.tolist() == [False, True, True, True]


def test_the_cheapest_server_leaves_in_place_of_the_one_that_is_named() -> None:
    # Nodes: training 0 and 1 of 2 GPUs, on loan 2, 3, 4. Jobs 0 and 1 fill the training nodes; job 2 of 4 GPUs has
    # the whole servers 2 and 3, job 3 server 4. At 10 s server 4 is to go: its loss costs 1, that of 2 or 3 costs a
    # half. So 2 goes in its place; job 2 is stopped and job 3 stays.
    cluster = make_cluster((2, 2, 2, 2, 2), rack=["a", "a", *[ON_LOAN] * 3], changes=[(10, 4, False)])
    jobs = make_jobs([(0, 2, 30), (0, 2, 30), (0, 4, 40), (0, 2, 50)])
    outcome = run(jobs, cluster, "lyra,elastic=off,overhead=none,place=order", lending())
    assert outcome.preemptions.tolist() == [0, 0, 1, 0]
    assert outcome.log is not None
    assert [(t, n) for t, k, _, n, _, _ in outcome.log.tolist() if k == DOWN] == [(10_000, 2)]
    # Job 2 has 30 s left, and starts on both training nodes when they are free at 30 s.
    assert outcome.end_ms.tolist() == [30_000, 30_000, 60_000, 50_000]


@settings(max_examples=examples(20), deadline=None)
@given(
    homes=st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=3), min_size=0, max_size=5),
    count=st.integers(1, 4),
)
def test_one_server_costs_least_of_all_and_further_ones_by_the_rule(homes: list[set[int]], count: int) -> None:
    cluster = make_cluster((8,) * 5, rack=ON_LOAN)
    books = Servers(cluster, np.ones(5, np.bool_), np.zeros(9, np.bool_))
    on: dict[int, set[int]] = {}
    for job, nodes in enumerate(homes):
        books.base[job] = Spot(sorted(nodes), [1] * len(nodes))
        for node in nodes:
            on.setdefault(node, set()).add(job)
    found = books._cheapest(list(range(5)), count, on, set())
    assert len(found) == count

    def cost(nodes: set[int], over: set[int]) -> float:
        return sum(1 / len(homes[j]) for n in nodes for j in on.get(n, set()) - over)

    # Step by step no server would have cost less, and the first is the least of all.
    best: list[set[int]] = [set()]
    for _ in range(count):
        further = []
        for chosen in best:
            over = {j for n in chosen for j in on.get(n, set())}
            costs = {n: cost({n}, over) for n in set(range(5)) - chosen}
            least = min(costs.values())
            further += [chosen | {n} for n, c in costs.items() if c == pytest.approx(least)]
        best = further
    assert found in best


@settings(max_examples=examples(15), deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(1, 99)), min_size=1, max_size=3),
    spare=st.integers(0, 7),
    sigma=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_no_choice_of_workers_leaves_less_time(rows: list[tuple[int, int]], spare: int, sigma: float) -> None:
    jobs, gpus = make_jobs([(0, g, run_s) for g, run_s in rows]), sum(g for g, _ in rows) + spare
    models = lending()
    models = replace(models, elastic=replace(models.elastic, sigma=sigma))
    outcome = run(jobs, make_cluster((gpus,)), f"lyra,loan=off,core=99,{ALL}", models)
    now = [n for at, _, n in sorted(takes(outcome), key=lambda t: t[1]) if at == 0]

    def left(job: int, n: int) -> float:
        g, run_s = rows[job]
        return run_s * g / (1 + sigma * (g - 1)) * (1 + sigma * (n - 1)) / n

    # Workers of one GPU, but for jobs of 3, which have three, of one GPU each too.
    ranges = [range(g, 2 * g + 1) for g, _ in rows]
    best = min(sum(left(j, n) for j, n in enumerate(found)) for found in product(*ranges) if sum(found) <= gpus)
    assert sum(left(j, n) for j, n in enumerate(now)) == pytest.approx(best)


@settings(max_examples=examples(25), deadline=None)
@given(jobs=job_lists(), cluster=clusters())
def test_without_loans_and_growth_it_is_shortest_first(jobs: Jobs, cluster: Cluster) -> None:
    same(run(jobs, cluster, "lyra,loan=off,elastic=off,place=order"), run(jobs, cluster, "sjf,scan=skip"))


@settings(max_examples=examples(15), deadline=None)
@given(jobs=job_lists(sizes=st.just(1)), cluster=clusters())
def test_jobs_of_one_gpu_may_get_places_in_any_order(jobs: Jobs, cluster: Cluster) -> None:
    same(run(jobs, cluster, "lyra,loan=off,elastic=off"), run(jobs, cluster, "sjf,scan=skip"))


@settings(max_examples=examples(15), deadline=None)
@given(jobs=job_lists(), cluster=clusters(changing=False))
def test_servers_that_are_always_free_are_more_nodes(jobs: Jobs, cluster: Cluster) -> None:
    models = lending(series=(1.0,))
    more = with_loans(cluster, jobs, models, 0)
    more = replace(more, absent=np.zeros(more.nodes, np.int8), change_up=np.ones_like(more.change_up))
    one = run(jobs, cluster, "lyra,elastic=off,place=order", models)
    two = run(jobs, more, "lyra,loan=on,elastic=off,place=order", models)
    same(one, two)


@settings(max_examples=examples(30), deadline=None)
@given(
    jobs=job_lists(horizon_s=60),
    cluster=clusters(),
    parts=st.lists(st.sampled_from([0.0, 0.3, 0.7, 1.0]), min_size=1, max_size=4),
    options=st.sampled_from(
        ["", ",share=1", ",share=1,interval=0", ",elastic=off,place=order", ",share=1,min_loan=7200"]
    ),
)
def test_the_laws_hold_and_loans_are_back_in_time(
    jobs: Jobs, cluster: Cluster, parts: list[float], options: str
) -> None:
    # An hour of the series is 10 s of the jobs: their times are multiplied.
    jobs = replace(jobs, submit_ms=jobs.submit_ms * 360, work_ms=jobs.work_ms * 360)
    cluster = replace(cluster, change_ms=cluster.change_ms * 360)
    models = replace(load_models(), loans=replace(load_models().loans, series=tuple(parts), servers=0.6))
    outcome = run(jobs, cluster, f"lyra{options}", models)
    assert outcome.log is not None
    minimum = 7_200_000 if "min_loan" in options else 0
    full = with_loans(cluster, jobs, models, minimum)
    there = as_switched(full, outcome)
    assert audit(jobs, there, outcome.log, outcome, gang="elastic") == []
    if "elastic=off" in options and not run(jobs, cluster, "sjf,scan=skip", models).unschedulable.any():
        # Nobody waits who has a place, on a training node or on loan.
        assert audit(jobs, there, outcome.log, outcome, conserve=True) == []
    assert_all_work_done(jobs, outcome)
    assert held_after(outcome, full) == []
    # At every time as many servers of each kind join and leave as M42 says, whichever they are.
    kind = (loaned(full) * 100 + full.domain) * 100 + full.model

    def moves(at: Cluster, until: int) -> list[tuple[int, int, int]]:
        rows = zip(at.change_ms.tolist(), kind[at.change_node].tolist(), at.change_up.tolist(), strict=True)
        return sorted(row for row in rows if row[0] <= until)

    last = int(there.change_ms.max(initial=-1))
    assert moves(there, last) == moves(full, last)
    # No running job has less than it asks for.
    asked = jobs.devices
    assert all(n >= asked[j] for _, j, n in takes(outcome))
    # Who can run at all runs in the end.
    if not len(cluster.change_ms) and not cluster.absent.any():
        free = run(jobs, cluster, "sjf,scan=skip", models)
        assert outcome.unschedulable.tolist() == free.unschedulable.tolist()


def test_nobody_waits_while_there_is_a_place() -> None:
    jobs = make_jobs([(i * 3, 1 + i % 3, 40 + 7 * i) for i in range(20)])
    outcome = run(jobs, make_cluster((4, 4)), "lyra,loan=off,elastic=off", lending())
    assert outcome.log is not None
    assert audit(jobs, make_cluster((4, 4)), outcome.log, outcome, conserve=True, preemptive=False) == []


def test_short_loans_are_not_taken() -> None:
    jobs, cluster = make_jobs([(0, 1, 36_000)]), make_cluster((1, 1))
    models = lending(servers=1.0, series=(0.0, 0.5, 1.0, 0.5, 0.0))
    found = with_loans(cluster, jobs, models, 0)
    assert found.change_ms[:4].tolist() == [3_600_000, 7_200_000, 10_800_000, 14_400_000]
    assert found.change_node[:4].tolist() == [2, 3, 3, 2]
    longer = with_loans(cluster, jobs, models, 7_200_000)
    assert longer.change_ms[:2].tolist() == [3_600_000, 14_400_000]


def test_the_wave_is_highest_at_its_hour() -> None:
    # Made jobs begin at midnight; most servers are free at 4 h UTC, 0.4 + 0.3 of 10, fewest at 16 h, 0.4 - 0.3.
    jobs, cluster = make_jobs([(0, 1, 86_400)]), make_cluster((1,) * 10)
    found = with_loans(cluster, jobs, lending(servers=1.0), 0)
    there, moves = found.absent == 0, list(found.effective_changes())

    def count(hour: float) -> int:
        now = there.copy()
        for at, node, up in moves:
            if at <= hour * 3_600_000:
                now[node] = up
        return int(now.sum()) - 10

    assert [count(h) for h in (0, 4.5, 10.5, 16.5, 28.5)] == [6, 7, 4, 1, 7]


def test_what_is_not_used_is_not_reported() -> None:
    assert "M42" in named_policy("lyra").assumptions
    assert named_policy("lyra,loan=off,elastic=off").assumptions == ("D1", "M9", "M4")


def test_only_nodes_alike_are_exchanged() -> None:
    jobs, cluster = make_jobs([(0, 1, 10)]), make_cluster((1, 2))

    class Wrong(Policy):
        card = Card(name="wrong", title="t", rule="r", sources=("s",))
        pairs: ClassVar[tuple[tuple[int, ...], ...]] = ((0, 1),)

        def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
            return Planner(lambda view: Plan(view.job, np.ones(len(view.job), np.int64), exchange=np.array(self.pairs)))

    with pytest.raises(UsageError, match="exchanged nodes 0 and 1, which must both be available and identical"):
        Scenario.make(jobs, cluster).run(Wrong())
    Wrong.pairs = ((0, 7),)
    with pytest.raises(UsageError, match="exchanged nodes 0 and 7 of 2"):
        Scenario.make(jobs, cluster).run(Wrong())
    Wrong.pairs = ((0, 1, 1),)
    with pytest.raises(UsageError, match="rows of two whole numbers"):
        Scenario.make(jobs, cluster).run(Wrong())
