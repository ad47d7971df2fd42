"""Schedules of other people's simulators on the same jobs, computed by their own code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.replay.builders import make_cluster, make_jobs
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


@pytest.fixture
def peers(real_data: Callable[[str], Path]) -> Path:
    return real_data("peers")


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


@pytest.mark.parametrize("fit", ["place", "count"])
def test_lucid_tiresias(peers: Path, fit: str) -> None:
    """Mean completion time 0.1 to 0.2 % below the peer's, which decides only once a minute."""
    jobs = logged_jobs(peers)
    policy = f"las,queues=18000,overhead=lucid,fit={fit}"
    outcome = Scenario.make(jobs, listed_nodes(peers, "mid_5k")).run(policy).outcome
    told = peer_schedule(peers, "lucid__mid_5k__tiresias", jobs)
    assert mean_jct_s(jobs, outcome) == pytest.approx(told["jct"].mean(), rel=0.005)


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
