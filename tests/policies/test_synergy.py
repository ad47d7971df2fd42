"""Synergy: shares by hand, and the settings in which CPUs do not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.synergy import make_hosts
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def only(*families: str) -> Models:
    """Models whose jobs are all of these families, of one kind."""
    models = load_models()
    cpu = models.cpu
    kind = cpu.families[families[0]].kind
    split = replace(cpu.split, **{name: float(name == kind) for name in ("image", "language", "speech")})
    kept = {name: curve for name, curve in cpu.families.items() if name in families}
    return replace(models, cpu=replace(cpu, split=split, families=kept))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models) -> Outcome:
    return Scenario.make(jobs, cluster, models=models).run(policy, log=True).outcome


def test_needs_are_where_curves_end() -> None:
    hosts = make_hosts(make_cluster((8, 4), cpu_milli=[64_000, -1], memory_mib=[-1, 100_000]), load_models())
    assert hosts.supply.tolist() == [[64.0, 500.0], [12.0, pytest.approx(104.8576)]]
    want = dict(zip(hosts.names, hosts.want.tolist(), strict=True))
    assert want["resnet50"] == [4.0, 62.5]
    assert want["alexnet"] == [12.0, 125.0]
    assert want["bert"] == [1.0, 62.5]


def test_a_job_alone_on_a_node_has_all_that_it_needs_and_loses_it_to_who_comes() -> None:
    # ResNet-18 is 2.4 times as fast with 9 CPUs; a node of 4 GPUs has 12. The second job needs 9 too: the first, before
    # it, keeps 9, and the second has its fair part of 3.
    models, cluster = only("resnet18"), make_cluster((4,))
    jobs = make_jobs([(0, 1, 240), (0, 1, 240)])
    outcome = run(jobs, cluster, "synergy,round=0", models)
    # The first ends at 100 s; the second then has 140 left, at 2.4.
    assert outcome.end_ms.tolist() == [100_000, 100_000 + 58_334]
    fair = run(jobs, cluster, "synergy,round=0,mode=proportional", models)
    assert fair.end_ms.tolist() == [240_000, 240_000]
    greedy = run(jobs, cluster, "synergy,round=0,mode=greedy", models)
    # The second waits for 9 CPUs.
    assert greedy.end_ms.tolist() == [100_000, 200_000]


def test_fair_parts_are_given_back_when_gpus_fill_up() -> None:
    # With 12 CPUs for 4 GPUs, the job of 1 GPU has 9; when the one of 3 comes it goes back to 3 and to speed 1.
    models, cluster = only("resnet18"), make_cluster((4,))
    outcome = run(make_jobs([(0, 1, 100), (20, 3, 100)]), cluster, "synergy,round=0", models)
    # 48 of 100 by 20 s; 52 more.
    assert outcome.end_ms.tolist() == [72_000, 120_000]


def test_shortest_first_stops_running_jobs_in_rounds() -> None:
    jobs = make_jobs([(0, 4, 100), (10, 4, 20)])
    outcome = lawful(jobs, make_cluster((4,)), "synergy,base=srtf,mode=proportional,round=30", 1)
    # At 30 s the second, 20 s long, comes first; at 60 s the first goes on with 70 s left.
    assert outcome.end_ms.tolist() == [130_000, 50_000]
    las = lawful(jobs, make_cluster((4,)), "synergy,base=las,mode=proportional,round=30", 1)
    # At 30 s the second has had nothing; it ends at 50 s.
    assert las.end_ms.tolist() == [130_000, 50_000]


@tried(7, 20, jobs=job_lists(), cluster=clusters())
def test_in_proportion_it_is_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    fifo = run_engine(jobs, cluster, "fifo,scan=skip")
    assert same(run_engine(jobs, cluster, "synergy,mode=proportional,round=0"), fifo)
    flat = only("bert", "gnmt")
    for mode in ("tune", "greedy"):
        assert same(run(jobs, cluster, f"synergy,mode={mode},round=0", flat), fifo)


@tried(
    5,
    15,
    jobs=job_lists(most=12),
    cluster=clusters(),
    mode=st.sampled_from(["tune", "greedy"]),
    base=st.sampled_from(["fifo", "srtf", "las"]),
)
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, mode: str, base: str) -> None:
    outcome = lawful(jobs, cluster, f"synergy,mode={mode},base={base},round=5,overhead=lucid", 1)
    if base == "fifo":
        assert outcome.preemptions.sum() == 0


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 20), st.just(1), st.integers(1, 50)), max_size=8))
def test_nobody_is_slower_than_in_proportion(rows: list[tuple[float, int, float]]) -> None:
    jobs, cluster, models = make_jobs(rows), make_cluster((4, 4)), only("resnet18", "mobilenet", "alexnet")
    tuned = run(jobs, cluster, "synergy,round=0", models)
    fair = run(jobs, cluster, "synergy,round=0,mode=proportional", models)
    assert (tuned.end_ms <= fair.end_ms).all()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="mode"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "synergy,mode=best")
    assert run_engine(make_jobs([(0, 1, 1), (0, 2, 1)]), make_cluster((1,)), "synergy").end_ms.tolist() == [1000, -1]
