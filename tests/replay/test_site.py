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

if TYPE_CHECKING:
    from tests.worlds.site import Site
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


KINDS = ("disjoint partitions", "overlapping partitions", "CPU-bound", "account limits", "several rules")
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
    return (
        f"site,order={ORDERS[rules.order]},behind={rules.backfill},tiers={'/'.join(tiers) or 'none'},"
        f"limits={'/'.join(limits) or 'none'},noise=limit"
    )


def waits_of(site: Site, policy: str) -> list[float]:
    """Return the waits of a site's jobs in a replay [s]. The jobs are sorted by submission."""
    jobs = make_jobs(
        [(job.submit, job.gpus, min(job.run, job.limit)) for job in site.jobs],
        vc=[job.account for job in site.jobs],
        user=[job.user for job in site.jobs],
        partition=[job.partition for job in site.jobs],
        cpu_milli=[job.cpus * 1000 for job in site.jobs],
        memory_mib=[job.memory * 1024 for job in site.jobs],
        limit_ms=[job.limit * 1000 for job in site.jobs],
    )
    cluster = make_cluster(
        [node.gpus for node in site.nodes],
        cpu_milli=[node.cpus * 1000 for node in site.nodes],
        memory_mib=[node.memory * 1024 for node in site.nodes],
        partitions=[tuple(sorted(node.partitions)) for node in site.nodes],
    )
    found: list[float] = ((run_engine(jobs, cluster, policy).first_start_ms - jobs.submit_ms) / 1000).tolist()
    return found


def check(site: Site, rules: Rules) -> None:
    recorded = first_waits(site, simulate(site))
    assert np.mean(recorded) > 60
    assert waits_of(site, policy_of(rules)) == recorded


def shortened(kind: str, seed: int, count: int) -> Site:
    """Return a site with its first jobs, and without events."""
    site = make_site(kind, seed)
    return replace(site, jobs=site.jobs[:count], later=None, reservations=[], outages=[])


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{rules.order} {rules.backfill}")
@pytest.mark.parametrize("kind", KINDS)
def test_every_start_is_that_of_the_site_simulator(kind: str, rules: Rules) -> None:
    check(replace(shortened(kind, 3, 250), rules=rules), rules)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_every_start_of_whole_sites(kind: str, seed: int) -> None:
    site = shortened(kind, seed, 2000)
    check(site, site.rules)
