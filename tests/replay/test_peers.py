"""Schedules of other people's simulators on the same jobs, computed by their own code."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.quota_walk import QuotaWalk
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.registry import named_policy
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


@pytest.fixture(scope="module")
def peers(real_data: Callable[[str], Path]) -> Path:
    return real_data("peers")


@pytest.fixture(scope="module")
def walked(peers: Path) -> Callable[[int, str], QuotaWalk]:
    """Return a function that gives the walk of the peers' rule for a policy on so many nodes, made once."""

    @functools.cache
    def made(nodes: int, policy: str) -> QuotaWalk:
        jobs = logged_jobs(peers)
        if policy == "las":
            return walk(jobs, nodes, lucid_cost).two_queues(18_000, 60)
        return walk(jobs, nodes, helios_cost).srtf()

    return made


@functools.cache
def logged_jobs(peers: Path, *, partitioned: bool = False) -> Jobs:
    """The 5,000 jobs, by submission, ties as in the file."""
    log = pl.read_csv(peers / "cluster_log_5k.csv.gz", try_parse_dates=True)
    submit = log["submit_time"] - log["submit_time"].min()
    rows = zip(submit.dt.total_seconds(), log["gpu_num"], log["duration"], strict=True)
    return make_jobs(list(rows), vc=log["vc"].to_list() if partitioned else "all", job_id=_texts(log["job_id"]))


def listed_nodes(peers: Path, config: str) -> Cluster:
    """Nodes of 8 GPUs; several virtual clusters are isolated."""
    table = pl.read_csv(peers / f"vc_nodes_{config}.csv", schema_overrides={"vc": pl.String})
    domains = [vc for vc, nodes in table.select("vc", "node_num").iter_rows() for _ in range(nodes)]
    return make_cluster([8] * len(domains), domain=domains if len(table) > 1 else "")


def peer_schedule(peers: Path, name: str, jobs: Jobs) -> pl.DataFrame:
    """What the peer computed, in the order of the jobs."""
    told = pl.read_csv(peers / f"{name}.csv.gz", infer_schema_length=None)
    told = told.with_columns(pl.col("job_id").cast(pl.String))
    found = pl.DataFrame({"job_id": jobs.job_id}).join(told, on="job_id", how="left", maintain_order="left")
    assert len(found) == len(jobs)
    assert found["end"].null_count() == 0
    return found


def mean_jct_s(jobs: Jobs, outcome: Outcome) -> float:
    assert not outcome.unschedulable.any()
    return float((outcome.end_ms - jobs.submit_ms).mean()) / 1000


def _texts(numbers: pl.Series) -> list[str]:
    return [str(number) for number in numbers]


@pytest.mark.parametrize(
    ("name", "config", "policy"),
    [
        ("helios__all_5k__fifo", "all_5k", "fifo"),
        ("helios__all_5k__sjf", "all_5k", "sjf"),
        ("helios__vc_5k__fifo", "vc_5k", "fifo"),
        ("alibaba__mid_5k__fifo", "mid_5k", "fifo,scan=skip,fit=count"),
    ],
)
def test_every_job_starts_and_ends_as_in_the_peer(peers: Path, name: str, config: str, policy: str) -> None:
    jobs = logged_jobs(peers, partitioned=config == "vc_5k")
    outcome = Scenario.make(jobs, listed_nodes(peers, config)).run(policy).outcome
    told = peer_schedule(peers, name, jobs)
    assert (outcome.first_start_ms // 1000).tolist() == told["start"].to_list()
    assert (outcome.first_start_ms % 1000).max() == 0
    assert (outcome.end_ms // 1000).tolist() == told["end"].to_list()
    assert (outcome.end_ms % 1000).max() == 0
    assert outcome.preemptions.sum() == 0 == told["preemptions"].sum()


@pytest.mark.parametrize(("fit", "least", "most"), [("count", -0.02, 0.0), ("place", -0.10, -0.05)])
def test_helios_srtf(peers: Path, fit: str, least: float, most: float) -> None:
    """Mean completion time: fit=count is 1.2 % below the peer's, fit=place 8.4 % below.

    The peer plans by the number of GPUs, stops what the plan leaves out, and only then looks for places: planned jobs
    that find none keep their share for that second, so that GPUs stay idle. Counting alone is the nearest reading. What
    is left: there a job ends one second late and a stopped job starts a second later at the earliest.
    """
    jobs = logged_jobs(peers)
    outcome = Scenario.make(jobs, listed_nodes(peers, "all_5k")).run(f"srtf,overhead=helios,fit={fit}").outcome
    told = peer_schedule(peers, "helios__all_5k__srtf", jobs)
    off = mean_jct_s(jobs, outcome) / float(told["jct"].to_numpy().mean()) - 1
    assert least < off < most
    if fit == "count":
        assert outcome.preemptions.sum() == pytest.approx(told["preemptions"].sum(), rel=0.15)


@pytest.mark.parametrize(("fit", "off"), [("place", 0.0005), ("count", 0.001)])
def test_lucid_tiresias(peers: Path, fit: str, off: float) -> None:
    """With its decision interval of 60 s, 99.6 % of the jobs start in the second in which they start in the peer.

    Mean completion time -0.02 % (fit=place) and -0.06 % (fit=count); without the interval -0.1 to -0.2 %, and 1.5 % of
    the jobs start in the same second. What is left: there a job ends one second late. This cluster is lightly loaded.
    """
    jobs = logged_jobs(peers)
    policy = f"las,queues=18000,overhead=lucid,fit={fit}"
    cluster = listed_nodes(peers, "mid_5k")
    told = peer_schedule(peers, "lucid__mid_5k__tiresias", jobs)
    same = {}
    for interval in (0, 60):
        outcome = Scenario.make(jobs, cluster).run(f"{policy},interval={interval}").outcome
        same[interval] = float((outcome.first_start_ms // 1000 == told["start"].to_numpy()).mean())
        assert mean_jct_s(jobs, outcome) == pytest.approx(told["jct"].mean(), rel=off if interval else 0.005)
    assert same[60] > 0.99
    assert same[0] < 0.05


def walk(jobs: Jobs, nodes: int, overhead: Callable[[int], int]) -> QuotaWalk:
    submit, work = ((times // 1000).tolist() for times in (jobs.submit_ms, jobs.work_ms))
    return QuotaWalk(submit, jobs.devices.tolist(), work, nodes, overhead)


def helios_cost(gpus: int) -> int:
    return 7 if gpus == 1 else 30 if gpus <= 8 else 60


def lucid_cost(gpus: int) -> int:
    return 40 if gpus <= 8 else 60


@pytest.mark.thorough
def test_the_rule_of_the_peers_in_plain_python(peers: Path, walked: Callable[[int, str], QuotaWalk]) -> None:
    """Helios' SRTF start by start, end by end; Lucid's Tiresias but for 4 starts and 22 ends of 5,000."""
    jobs = logged_jobs(peers)
    found, told = walked(42, "srtf"), peer_schedule(peers, "helios__all_5k__srtf", jobs)
    assert (found.start, found.end) == (told["start"].to_list(), told["end"].to_list())
    assert found.preemptions == told["preemptions"].to_list()
    found = walked(100, "las")
    told = peer_schedule(peers, "lucid__mid_5k__tiresias", jobs)
    assert sum(a != b for a, b in zip(found.start, told["start"], strict=True)) <= 4
    assert sum(a != b for a, b in zip(found.end, told["end"], strict=True)) <= 22


LOADED = {
    (42, "las,queues=18000,overhead=lucid,interval=60,fit=count"): -0.028,
    (42, "las,queues=18000,overhead=lucid,interval=60,fit=place"): -0.079,
    (60, "las,queues=18000,overhead=lucid,interval=60,fit=count"): -0.021,
    (60, "las,queues=18000,overhead=lucid,interval=60,fit=place"): -0.057,
    (42, "las,queues=18000,overhead=lucid,interval=60,fit=quota"): -0.001,
    (60, "las,queues=18000,overhead=lucid,interval=60,fit=quota"): -0.003,
    (42, "srtf,overhead=helios,fit=quota"): -0.003,
    (60, "srtf,overhead=helios,fit=quota"): 0.0,
    (42, "srtf,overhead=helios,fit=count"): -0.012,
    (42, "srtf,overhead=helios,fit=place"): -0.090,
    (60, "srtf,overhead=helios,fit=count"): -0.005,
    (60, "srtf,overhead=helios,fit=place"): -0.050,
}
"""Our mean completion time against the peers' rule, on nodes so few that jobs wait for days: what the cards state."""


FIRST = (42, "las,queues=18000,overhead=lucid,interval=60,fit=quota"), (60, "srtf,overhead=helios,fit=count")


@pytest.mark.parametrize(
    ("nodes", "policy"),
    [*FIRST, *(pytest.param(*case, marks=pytest.mark.thorough) for case in LOADED if case not in FIRST)],
)
def test_what_differs_where_the_cluster_is_full(
    peers: Path, walked: Callable[[int, str], QuotaWalk], nodes: int, policy: str
) -> None:
    """Theirs leaves GPUs idle for planned jobs that find no place, and so does fit=quota; fit=place does not."""
    jobs = logged_jobs(peers)
    theirs = walked(nodes, policy.split(",", maxsplit=1)[0])
    mean = float(np.mean(np.array(theirs.end) - jobs.submit_ms // 1000))
    ours = mean_jct_s(jobs, Scenario.make(jobs, make_cluster([8] * nodes)).run(policy).outcome)
    assert ours / mean - 1 == pytest.approx(LOADED[nodes, policy], abs=0.002)


MURI: dict[str, tuple[str, float]] = {
    "shortest": ("srtf", 0.002),
    "shortest-gpu": ("srsf", 0.002),
    "dlas-gpu": ("las,within=running,fit=count", 0.10),
}


def test_muri_with_its_charge_at_every_event(peers: Path) -> None:
    """Mean completion times against the peer's, each job with the overhead of its model as in the peer's table.

    shortest +0.04 %, shortest-gpu +0.05 %, dlas-gpu +6.2 %; without any overhead -1.3 %, -0.8 % and +2.3 %. In dlas-gpu
    the jobs of a queue wait in the order in which they fell into it, here by submission; running ones stay in both.
    With within=submit, where earlier jobs of the last queue evict later ones, it would be +41 %.
    """
    table = pl.read_csv(peers / "muri_trace3_jobs.csv.gz").sort("submit_s", maintain_order=True)
    rows = list(table.select("submit_s", "num_gpu", "service_s").iter_rows())
    jobs, cluster = make_jobs(rows, job_id=_texts(table["job_id"])), make_cluster([8] * 8)
    own_ms = table["overhead_s"].to_numpy().astype(np.int64) * 1000
    ours, theirs = {}, {}
    for name, (policy, most) in MURI.items():
        mechanism: Any = named_policy(f"{policy},overhead=muri,charge=event").mechanism(
            jobs, cluster, load_models(None), 0
        )
        outcome = simulate(jobs, cluster, assign(jobs, cluster), replace(mechanism, value=own_ms))
        ours[name] = mean_jct_s(jobs, outcome)
        theirs[name] = float(peer_schedule(peers, f"muri__trace3__{name}", jobs)["jct"].to_numpy().mean())
        assert ours[name] == pytest.approx(theirs[name], rel=most)
    assert sorted(ours, key=ours.__getitem__) == sorted(theirs, key=theirs.__getitem__)
