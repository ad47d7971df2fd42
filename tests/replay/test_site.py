"""The policy `site` by hand, and job by job against the site simulator of tests/worlds, which shares no code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.worlds.kinds import make_site
from tests.worlds.site import Limit, Rules, first_waits, simulate
from tracekit.errors import UsageError
from tracekit.replay.clusters import cluster as clusters
from tracekit.replay.clusters.of_trace import joined
from tracekit.replay.jobs import Others
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tests.worlds.site import Job, Site
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def starts(jobs: Jobs, cluster: Cluster, policy: str) -> list[float]:
    """Return the first start of each job [s], or -0.001 if it never starts."""
    return [at / 1000 for at in run_engine(jobs, cluster, policy).first_start_ms.tolist()]


def test_a_job_needs_cpus_and_memory_as_well() -> None:
    cluster = make_cluster([8, 8], cpu_milli=8000, memory_mib=1000)
    jobs = make_jobs(
        [(0, 1, 10), (1, 1, 10), (2, 1, 10), (3, 1, 10)],
        cpu_milli=[6000, 6000, 6000, -1],
        memory_mib=[100, 100, 100, 950],
    )
    # The third job finds 2 CPUs on either node until 10, and the fourth 900 MiB until 11.
    assert starts(jobs, cluster, "site") == [0, 1, 10, 11]


def test_a_gang_takes_more_nodes_if_its_cpus_need_them() -> None:
    cluster = make_cluster([8, 8, 8], cpu_milli=8000)
    jobs = make_jobs([(0, 8, 10), (1, 8, 10), (2, 4, 1)], cpu_milli=[16_000, 8000, 32_000])
    # 16 CPUs need two nodes with 4 GPUs and 8 CPUs each; 32 CPUs need four nodes, which do not exist.
    assert starts(jobs, cluster, "site") == [0, 1, -0.001]
    assert run_engine(jobs, cluster, "site").nodes_spanned.tolist()[:2] == [2, 1]


def test_a_job_at_a_limit_holds_up_nobody() -> None:
    jobs = make_jobs([(0, 4, 10), (1, 4, 10), (2, 4, 10), (3, 1, 10)], user=["a", "a", "b", "a"], vc="v")
    assert starts(jobs, make_cluster([16]), "site,behind=strict") == [0, 1, 2, 3]
    assert starts(jobs, make_cluster([16]), "site,behind=strict,limits=user:gpus:5") == [0, 10, 2, 3]
    assert starts(jobs, make_cluster([16]), "site,limits=user:a:jobs:1") == [0, 10, 2, 20]
    assert starts(jobs, make_cluster([16]), "site,limits=user:gpus:3") == [-0.001, -0.001, -0.001, 3]
    assert starts(jobs, make_cluster([16]), "site,limits=vc:gpus:8/user:a:jobs:2") == [0, 1, 10, 11]


def test_a_partition_keeps_its_promise() -> None:
    cluster = make_cluster([4, 4], partitions=[("gpu",), ("gpu", "rush")])
    rows = [(0, 4, 10), (0, 4, 20), (1, 8, 5), (2, 4, 9), (3, 4, 12)]
    jobs = make_jobs(rows, partition=["gpu", "gpu", "gpu", "rush", "gpu"])
    # At 10 the first node is free, but the job of 8 GPUs is promised both nodes at 20.
    assert starts(jobs, cluster, "site,behind=easy") == [0, 0, 20, 25, 25]
    assert starts(jobs, cluster, "site,behind=strict") == [0, 0, 20, 25, 25]
    # If the last job may pass, it takes the first node until 22, and then the other partition has the second until 29.
    assert starts(jobs, cluster, "site,behind=passing") == [0, 0, 29, 20, 10]
    # If the other partition goes first, it takes the second node at 20, and the promise moves to 29.
    assert starts(jobs, cluster, "site,behind=easy,tiers=rush") == [0, 0, 29, 20, 34]


def test_a_job_that_outlives_its_estimate_is_expected_to_end_at_once() -> None:
    jobs = make_jobs([(0, 4, 30), (1, 8, 5), (2, 4, 3)], limit_ms=[10_000, 10_000, 10_000])
    # Until 10 nobody may run past 10; after that, the first job should end at any moment.
    assert starts(jobs, make_cluster([8]), "site,behind=easy,noise=limit") == [0, 30, 35]


@pytest.mark.parametrize(
    "limits",
    ["user:gpus", "user:gpus:x", "node:gpus:4", "user:cpus:4", "user:gpus:-1", "vc:nobody:gpus:4", "a:b:c:d:e"],
)
def test_wrong_limits(limits: str) -> None:
    with pytest.raises(UsageError, match=r"limits=|no vc is called 'nobody'"):
        starts(make_jobs([(0, 1, 1)]), make_cluster([8]), f"site,limits={limits}")


def test_a_node_that_fails_requeues_its_jobs() -> None:
    jobs = make_jobs([(0, 8, 10), (1, 1, 10), (2, 1, 10)], user=["a", "b", "b"])
    cluster = make_cluster([8, 1], changes=[(5, 0, False), (20, 0, True)])
    # Nodes that leave let jobs finish. The limit of one job per user still counts.
    assert starts(jobs, cluster, "site,limits=user:jobs:1") == [0, 1, 11]


def test_jobs_without_gpus_take_cpus_and_are_not_reported() -> None:
    cluster = make_cluster([4, 4], cpu_milli=8000)
    jobs = make_jobs([(1, 4, 10), (2, 4, 10), (3, 1, 5)], cpu_milli=[4000, 4000, 1000])
    others = make_jobs([(0, 0, 30), (0, 0, 8), (3, 0, 1)], cpu_milli=[6000, 6000, 12_000], user=["c", "c", "c"])
    with_others = replace(jobs, others=Others(others, np.zeros(3, np.bool_)))
    assert starts(jobs, cluster, "site") == [1, 2, 11]
    # Each node has 2 CPUs left until 8. The last job without GPUs waits for two nodes with 6 CPUs each.
    outcome = run_engine(with_others, cluster, "site")
    assert (outcome.first_start_ms / 1000).tolist() == [8, 18, 3]
    assert outcome.held_milli_ms.tolist() == [40_000_000, 40_000_000, 5_000_000]
    assert outcome.log is not None
    # Each job is submitted, starts, takes one node, and ends.
    assert np.bincount(outcome.log["job"][outcome.log["job"] >= 0]).tolist() == [4, 4, 4]


def test_jobs_elsewhere_count_towards_limits_and_run_at_their_times() -> None:
    jobs = make_jobs([(1, 2, 10), (2, 2, 10), (3, 2, 10)], user=["a", "a", "b"])
    others = make_jobs([(0, 4, 5), (6, 4, 2)], user=["a", "c"], recorded_start_ms=[1500, 6000])
    others = replace(others, held_ms=np.array([1500, 0]))
    with_others = replace(jobs, others=Others(others, np.ones(2, np.bool_)))
    assert starts(with_others, make_cluster([8]), "site") == [1, 2, 3]
    # User a uses 2 GPUs here from 1 to 11, and 4 elsewhere from 1.5 to 6.5, which no limit prevents.
    assert starts(with_others, make_cluster([8]), "site,limits=user:gpus:4") == [1, 6.5, 3]
    assert starts(with_others, make_cluster([8]), "site,limits=user:a:jobs:1") == [1, 11, 3]


def test_an_array_keeps_to_its_limit() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 5), (0, 1, 5), (1, 1, 5)])
    array = replace(jobs, array=np.array([0, 0, 0, -1], np.int32), array_most=np.array([2, 2, 2, 0]))
    assert starts(array, make_cluster([8]), "site") == [0, 0, 5, 1]


def test_a_job_stops_the_youngest_jobs_that_yield() -> None:
    jobs = make_jobs([(0, 2, 100), (1, 2, 100), (2, 1, 100), (3, 1, 100), (4, 3, 10)])
    qos = np.array([1, 1, 1, 2, 0], np.int32)
    jobs = replace(jobs, qos=qos, qoses=["high", "low", "normal"])
    policy = "site,preempts=qos:high:low"
    # On one node of 6 GPUs, the jobs from 1 and 2 make room for 3 GPUs, and start over at 14 and 14.
    outcome = run_engine(jobs, make_cluster([6]), policy)
    assert outcome.preemptions.tolist() == [0, 1, 1, 0, 0]
    assert (outcome.first_start_ms / 1000).tolist() == [0, 1, 2, 3, 4]
    assert (outcome.end_ms / 1000).tolist() == [100, 114, 114, 103, 14]
    # On nodes of 4 and 2 GPUs, the job needs 3 on the first node, where the job from 1 runs with that from 0.
    outcome = run_engine(jobs, make_cluster([4, 2]), policy)
    assert outcome.preemptions.sum() >= 1
    assert starts(jobs, make_cluster([6]), "site") == [0, 1, 2, 3, 101]
    assert starts(jobs, make_cluster([6]), "site,preempts=qos:normal:low") == [0, 1, 2, 3, 101]


@pytest.mark.parametrize("rule", ["qos:high", "qos:high:low:x", "user:a:b", "qos:high:nobody"])
def test_wrong_preemption(rule: str) -> None:
    jobs = replace(make_jobs([(0, 1, 1)]), qos=np.array([0], np.int32), qoses=["high"])
    with pytest.raises(UsageError, match=r"preempts=|no qos is called"):
        starts(jobs, make_cluster([8]), f"site,preempts={rule}")


def test_a_node_that_goes_down_stops_its_jobs_which_start_over() -> None:
    nodes = [
        replace(node, changes=((5000, False), (8000, True)), stops=(5000,)) for node in make_cluster([2]).as_nodes()
    ]
    cluster = clusters.make_cluster(nodes, clusters.QuotaTable.none(), "by hand")
    jobs = make_jobs([(0, 2, 10), (1, 2, 3)])
    outcome = run_engine(jobs, cluster, "site")
    assert (outcome.first_start_ms / 1000).tolist() == [0, 18]
    assert (outcome.end_ms / 1000).tolist() == [18, 21]
    assert (run_engine(jobs, cluster, "fifo").end_ms / 1000).tolist() == [18, 21]
    with pytest.raises(UsageError, match="does not support outages"):
        run_engine(jobs, cluster, "fgd")


KINDS = (
    "disjoint partitions",
    "overlapping partitions",
    "CPU-bound",
    "CPU jobs",
    "account limits",
    "several rules",
    "arrays",
    "preemption",
    "outages",
)
RULES = (
    Rules(backfill="strict"),
    Rules(backfill="easy"),
    Rules(backfill="passing", order="shortest", tiers={"rush": 1, "h100": 2}),
    Rules(backfill="easy", order="fair", limits=(Limit("gpus", "user", 24), Limit("jobs", "account", 9, only="nlp"))),
)
ORDERS = {"arrival": "arrival", "shortest": "shortest", "fair": "fair-share-user"}


def policy_of(rules: Rules) -> str:
    """Return the policy with the rules of a simulated site."""
    tiers = sorted(rules.tiers, key=lambda name: -rules.tiers[name])
    per = {"account": "vc"}
    limits = [
        ":".join((per.get(limit.per, limit.per), *([limit.only] if limit.only else []), limit.of, str(limit.most)))
        for limit in rules.limits
    ]
    preempts = [f"qos:{high}:{low}" for high, weaker in rules.preempts.items() for low in weaker]
    return (
        f"site,order={ORDERS[rules.order]},behind={rules.backfill},tiers={'/'.join(tiers) or 'none'},"
        f"limits={'/'.join(limits) or 'none'},preempts={'/'.join(preempts) or 'none'},noise=limit"
    )


def jobs_of(chosen: list[Job]) -> Jobs:
    jobs = make_jobs(
        [(job.submit, job.gpus, min(job.run, job.limit)) for job in chosen],
        vc=[job.account for job in chosen],
        user=[job.user for job in chosen],
        partition=[job.partition for job in chosen],
        cpu_milli=[job.cpus * 1000 for job in chosen],
        memory_mib=[job.memory * 1024 for job in chosen],
        limit_ms=[job.limit * 1000 for job in chosen],
    )
    return replace(
        jobs,
        qos=np.array([QOSES.index(job.qos) for job in chosen], np.int32),
        qoses=QOSES,
        array=np.array([-1 if job.array is None else job.array for job in chosen], np.int32),
        array_most=np.array([job.array_most or 0 for job in chosen], np.int64),
    )


QOSES = ["high", "low", "normal"]


def cluster_of(site: Site) -> Cluster:
    away: dict[int, list[tuple[int, int]]] = {}
    for outage in site.outages:
        away.setdefault(outage.node, []).append((outage.begin * 1000, outage.end * 1000))
    nodes = [
        clusters.Node(
            node.name,
            node.gpus,
            cpu_milli=node.cpus * 1000,
            memory_mib=node.memory * 1024,
            changes=tuple(change for begin, end in joined(away.get(k, ())) for change in ((begin, False), (end, True))),
            partitions=tuple(sorted(node.partitions)),
            stops=tuple(sorted(begin for begin, _ in away.get(k, ()))),
        )
        for k, node in enumerate(site.nodes)
    ]
    return clusters.make_cluster(nodes, clusters.QuotaTable.none(), "by hand")


def waits_of(site: Site, policy: str) -> list[float]:
    """Return the waits of a site's GPU jobs in a replay [s]. The jobs are sorted by submission."""
    jobs = jobs_of([job for job in site.jobs if job.gpus])
    if others := [job for job in site.jobs if not job.gpus]:
        jobs = replace(jobs, others=Others(jobs_of(others), np.zeros(len(others), np.bool_)))
    cluster = cluster_of(site)
    found: list[float] = ((run_engine(jobs, cluster, policy).first_start_ms - jobs.submit_ms) / 1000).tolist()
    return found


def check(site: Site, rules: Rules) -> None:
    waits = first_waits(site, simulate(site))
    recorded = [wait for wait, job in zip(waits, site.jobs, strict=True) if job.gpus]
    assert np.mean(recorded) > 60
    assert waits_of(site, policy_of(rules)) == recorded


def shortened(kind: str, seed: int, count: int) -> Site:
    """Return a site with its first jobs."""
    site = make_site(kind, seed)
    return replace(site, jobs=site.jobs[:count])


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{rules.order} {rules.backfill}")
@pytest.mark.parametrize("kind", KINDS)
def test_every_start_is_that_of_the_site_simulator(kind: str, rules: Rules) -> None:
    site = shortened(kind, 3, 250)
    rules = replace(rules, preempts=site.rules.preempts)
    check(replace(site, rules=rules), rules)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_every_start_of_whole_sites(kind: str, seed: int) -> None:
    site = shortened(kind, seed, 2000)
    check(site, site.rules)


def runs_of(site: Site) -> list[tuple[int, int, int, bool]]:
    """Return start [s], end [s] and job of each run in a replay, and whether it was stopped, by start."""
    outcome = run_engine(jobs_of(site.jobs), cluster_of(site), policy_of(site.rules))
    assert outcome.log is not None
    found, begun = [], {}
    for row in outcome.log:
        time, kind, job = (int(row[name]) for name in ("time_ms", "kind", "job"))
        if kind == LOG_KINDS["start"]:
            begun[job] = time // 1000
        elif kind in {LOG_KINDS["stop"], LOG_KINDS["fail"], LOG_KINDS["finish"]}:
            found.append((begun[job], time // 1000, job, kind != LOG_KINDS["finish"]))
    return sorted(found)


@pytest.mark.parametrize("count", [250, pytest.param(2000, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["preemption", "outages"])
def test_every_run_of_jobs_that_are_stopped(kind: str, seed: int, count: int) -> None:
    site = shortened(kind, seed, count)
    expected = sorted(
        (run.start, run.end, k, run.how in {"preempted", "node_fail"})
        for k, runs in enumerate(simulate(site))
        for run in runs
    )
    assert any(stopped for *_, stopped in expected)
    assert runs_of(site) == expected
