"""Muri: group times by hand and by trying all, matchings against brute force, and the settings that are known."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.literature.optimal import heaviest_pairs
from tracekit.policies.literature.packing import Groups, Muri, gains, group_speed, group_time
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

STAGES = st.tuples(*[st.integers(0, 9)] * 4).filter(any)


@pytest.fixture
def peers(real_data: Callable[[str], Path]) -> Path:
    return real_data("peers")


def same(one: Outcome, other: Outcome) -> bool:
    return all(
        getattr(one, name).tolist() == getattr(other, name).tolist()
        for name in ("first_start_ms", "end_ms", "preemptions", "migrations", "unschedulable")
    )


def test_times_of_groups() -> None:
    # Two stages: the second job begins with its second stage, max(2, 2) + max(1, 1).
    assert group_time(((2, 1), (1, 2))) == 3
    # Both need the GPU alone: one after the other.
    assert group_time(((0, 3), (0, 3))) == 6
    assert group_time(((5, 0, 1, 4),)) == 10


@settings(max_examples=25, deadline=None)
@given(group=st.lists(STAGES, min_size=1, max_size=4))
def test_the_time_of_a_group_is_that_of_its_best_order(group: list[tuple[int, ...]]) -> None:
    tried = [
        sum(max(job[(at - shift) % 4] for job, shift in zip(group, shifts, strict=True)) for at in range(4))
        for shifts in product(range(4), repeat=len(group))
        if len(set(shifts)) == len(shifts)
    ]
    assert group_time(tuple(group)) == min(tried)


@settings(max_examples=25, deadline=None)
@given(weights=st.lists(st.integers(0, 9), min_size=15, max_size=15))
def test_matchings_are_the_heaviest(weights: list[int]) -> None:
    edges = [(a, b) for a in range(6) for b in range(a + 1, 6)]
    weight = dict(zip(edges, weights, strict=True))

    def best(left: tuple[int, ...]) -> int:
        if len(left) < 2:
            return 0
        first, rest = left[0], left[1:]
        joined = [weight[first, other] + best(tuple(x for x in rest if x != other)) for other in rest]
        return max(best(rest), *joined)

    found = heaviest_pairs([(weight[edge], *edge) for edge in edges])
    assert sum(w for w, _, _ in found) == best(tuple(range(6)))
    ends = [end for _, a, b in found for end in (a, b)]
    assert len(ends) == len(set(ends))


def test_a_group_that_gains_nothing_is_dissolved() -> None:
    # u = 1 and u = 0.1 on one GPU: stages (0, 0, 1, 0) and (.45, .45, .1, 0). Beside the GPU stage of the one the other
    # does one of its own of .45; the rest, .45 + .1, is alone: 1.55, times 1.31 that is 2.0305, more than 2.
    group = ((0, 0, 1_000_000, 0), (450_000, 450_000, 100_000, 0))
    assert group_time(group) == 1_550_000
    assert not gains(group)
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], utilization=[1.0, 0.1])
    assert run_engine(jobs, make_cluster((1,)), "muri,round=0").end_ms.tolist() == [100_000, 200_000]
    kept = run_engine(jobs, make_cluster((1,)), "muri,round=0,unpack=off")
    assert kept.end_ms.tolist() == [203_050, 203_050]


def test_a_pair_goes_on_alone_when_one_ends() -> None:
    # u = 0: stages (.5, .5, 0, 0). One turn apart they take .5 + .5 + .5, times 1.31: speed 0.508906.
    speed = group_speed(((500_000, 500_000, 0, 0),) * 2)
    assert speed == 508_906
    jobs = make_jobs([(0, 1, 100), (0, 1, 300)], utilization=0.0)
    outcome = run_engine(jobs, make_cluster((1,)), "muri,round=0")
    # Job 0 ends after 100 / 0.508906 = 196.500 s; the other did 100.0001 s by then and has 199.9999 s left, alone.
    assert outcome.end_ms.tolist() == [196_500, 396_500]
    assert outcome.preemptions.tolist() == [0, 0]


def test_the_first_in_rank_reserves_and_the_wide_ones_share() -> None:
    # By GPU time left the job of 1 GPU is first and has one of 4; the two of 4 do not fit beside it. Then they share.
    jobs = make_jobs([(0, 1, 100), (0, 4, 100), (0, 4, 100)], utilization=0.0)
    outcome = run_engine(jobs, make_cluster((4,)), "muri,round=0")
    assert outcome.end_ms.tolist() == [100_000, 296_500, 296_500]


@tried(5, 15, jobs=job_lists(typed=False, most=10), gpus=st.sampled_from([4, 8]))
def test_alone_it_is_smallest_remaining_first_by_number(jobs: Jobs, gpus: int) -> None:
    cluster = make_cluster((gpus,))
    for key in ("srsf", "srtf"):
        ours = run_engine(jobs, cluster, f"muri,key={key},group=1,round=0")
        assert same(ours, run_engine(jobs, cluster, f"{key},fit=quota"))


@settings(max_examples=12, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 50)), max_size=8), size=st.sampled_from([1, 2, 4]))
def test_jobs_that_only_compute_never_share(rows: list[tuple[float, float]], size: int) -> None:
    jobs, cluster = make_jobs([(a, size, b) for a, b in rows], utilization=1.0), make_cluster((4, 4))
    assert same(run_engine(jobs, cluster, "muri,round=0"), run_engine(jobs, cluster, "muri,round=0,group=1"))


@settings(max_examples=15, deadline=None)
@given(jobs=job_lists(most=12), cluster=clusters(), share=st.floats(0, 1), key=st.sampled_from(["srsf", "srtf", "las"]))
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, share: float, key: str) -> None:
    used = np.random.default_rng(round(share * 1000)).choice([share, 0.0, 0.3], len(jobs))
    jobs = make_jobs(
        list(zip((jobs.submit_ms / 1000).tolist(), jobs.devices.tolist(), (jobs.work_ms / 1000).tolist(), strict=True)),
        utilization=used.tolist(),
    )
    outcome = run_engine(jobs, cluster, f"muri,key={key},round=5,overhead=lucid,candidates=3")
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, residents=4) == []


def test_memory_keeps_jobs_apart() -> None:
    jobs = make_jobs([(0, 1, 100)] * 4, utilization=0.0)
    four = run_engine(jobs, make_cluster((1,)), "muri,round=0")
    two = run_engine(jobs, make_cluster((1,)), "muri,round=0,memory=on")
    # Four take turns in 2, times 1.35: speed 0.370370. Of 0.45 of the memory each, two fit.
    assert four.end_ms.tolist() == [270_001] * 4
    assert two.end_ms.tolist() == [196_500, 196_500, 393_000, 393_000]


@pytest.mark.parametrize("text", ["muri,group=5", "muri,candidates=1", "muri,key=fifo"])
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), text)


@pytest.mark.parametrize("gpus", [1, 8])
def test_one_job_of_any_size_runs(gpus: int) -> None:
    jobs = make_jobs([(0, 1, 10), (0, 9, 10)])
    assert run_engine(jobs, make_cluster((gpus,)), "muri,round=0").end_ms.tolist() == [10_000, -1]


FAMILIES = {"srsf": (1.13, 2.16), "srtf": (1.50, 2.26)}
"""Mean completion time under the rule over that under Muri-S, least and most of the eight released traces."""


@pytest.mark.thorough
def test_the_gain_is_within_what_is_released(peers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a released trace, with the families of M5 drawn evenly, as the released jobs draw their models."""
    table = pl.read_csv(peers / "muri_trace3_jobs.csv.gz").sort("submit_s", maintain_order=True)
    jobs = make_jobs(list(table.select("submit_s", "num_gpu", "service_s").iter_rows()))
    models, cluster = load_models(), make_cluster([8] * 8)
    families = [models.stages.families[name] for name in sorted(models.stages.families)]
    drawn = np.random.default_rng(0).integers(0, len(families), len(jobs))
    three = np.array([next(iter(families[f].values())) for f in drawn.tolist()])
    whole = np.rint(1_000_000 * three / three.sum(axis=1, keepdims=True)).astype(np.int64)
    stages = np.column_stack([whole[:, 0] // 2, whole[:, 0] - whole[:, 0] // 2, whole[:, 1], whole[:, 2]])
    monkeypatch.setattr(Groups, "stages", lambda _: stages)
    planner = Muri(candidates=12).mechanism(jobs, cluster, models, 0)
    muri = simulate(jobs, cluster, assign(jobs, cluster), planner)
    for rule, (least, most) in FAMILIES.items():
        known = run_engine(jobs, cluster, rule)
        gain = float((known.end_ms - jobs.submit_ms).mean() / (muri.end_ms - jobs.submit_ms).mean())
        assert least <= gain <= most, (rule, gain)
