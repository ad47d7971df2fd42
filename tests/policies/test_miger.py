"""MIGER-like: cuts against brute force and NVIDIA's table, schedules by hand, and without slices."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same, sharing_jobs
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters
from tracekit.errors import UsageError
from tracekit.policies.literature.miger import Layouts, Resident, Slice
from tracekit.replay.assumptions.models import load_models

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FULL = 1_000_000
MODELS = load_models()


def halved(one: int, other: int) -> int:
    return FULL - one * other // (2 * FULL)


def test_there_are_nineteen_ways_to_cut_an_a100() -> None:
    layouts = Layouts(MODELS.slices, halved, most=1, slack=0.0).layouts
    assert len(layouts) == 19
    # The larger slices of each, as NVIDIA lists them.
    assert [tuple(sorted((s.compute for s in layout if s.compute > 2), reverse=True)) for layout in layouts].count(
        (3, 3)
    ) == 1
    assert {sum(s.compute for s in layout) for layout in layouts} == {6, 7}


@settings(max_examples=10, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from([100_000, 300_000, 650_000, FULL]), st.sampled_from([100_000, 450_000])),
        min_size=1,
        max_size=3,
    )
)
def test_the_cut_is_the_best_of_all(jobs: list[tuple[int, int]]) -> None:
    kinds = tuple(Resident(used, memory, online=False) for used, memory in jobs)
    pieces = [Slice(s, p.compute, p.memory) for p in MODELS.slices.profiles.values() for s in p.starts]
    best = None
    for count in range(1, len(jobs) + 1):
        for chosen in combinations(pieces, count):
            cells = [cell for piece in chosen for cell in range(piece.start, piece.start + piece.memory)]
            if len(cells) != len(set(cells)):
                continue
            for place in product(chosen, repeat=len(jobs)):
                if len(set(place)) == len(jobs) and all(
                    8 * kind.memory <= piece.memory * FULL for kind, piece in zip(kinds, place, strict=True)
                ):
                    total = sum(
                        min(FULL, piece.compute * FULL // 7 * FULL // kind.used)
                        for kind, piece in zip(kinds, place, strict=True)
                    )
                    best = total if best is None else max(best, total)
    found = Layouts(MODELS.slices, halved, most=1, slack=0.0).best(kinds, (None,) * len(kinds))
    assert (None if found is None else sum(found.speed)) == best


def test_two_jobs_have_a_slice_each_and_the_gpu_is_not_cut_while_they_last() -> None:
    # u = 0.6: 4/7 and 3/7 of a GPU give 0.952380 and 0.714285. Cutting stops nobody who comes new; the first, whole
    # until then, stands still for 10 s.
    jobs = make_jobs([(0, 1, 100), (20, 1, 30)], utilization=0.6, preemptible=1)
    outcome = lawful(jobs, make_cluster((1,)), "miger-like,mps=1", 3)
    # Job 0 did 20 s. The best cut gives one of them 4/7: the first in order.
    second = 20_000 + -(-30_000 * FULL // 714_285)
    assert outcome.end_ms.tolist()[1] == second == 62_001
    # Job 0 stands still until 30 s but for a millionth of its speed, then has 0.952380 until 62.001 s; the GPU is cut
    # anew, so that it stands still again, for 10 s, and does the rest alone.
    done = 20_000 + (second - 30_000) * 0.952380
    assert outcome.end_ms.tolist()[0] == pytest.approx(second + 10_000 + 100_000 - done, abs=3)


def test_a_slice_is_shared_where_that_adds_up_and_whole_gpus_too() -> None:
    # Whole GPUs: 0.4 and 0.4 are 0.92 each.
    jobs = make_jobs([(0, 1, 92), (0, 1, 92), (0, 1, 92)], utilization=0.4, preemptible=1)
    outcome = lawful(jobs, make_cluster((1,)), "miger-like,slices=whole", 3)
    assert outcome.end_ms.tolist() == [100_000, 100_000, 192_000]
    alone = lawful(jobs, make_cluster((1,)), "miger-like,slices=whole,mps=1", 3)
    assert alone.end_ms.tolist() == [92_000, 184_000, 276_000]


def test_an_online_job_is_never_slowed() -> None:
    # At most 0.39 * 1.2 of a GPU: 4 of 7 parts, of which the online job keeps its slice; the other has 3/7, u = 0.9.
    jobs = make_jobs([(0, 1, 100), (5, 1, 30)], utilization=0.9, preemptible=[0, 1])
    outcome = lawful(jobs, make_cluster((1,)), "miger-like", 3)
    assert outcome.end_ms.tolist() == [100_000, 5_000 + -(-30_000 * FULL // (3 * FULL // 7 * FULL // 900_000))]


@tried(5, 15, jobs=sharing_jobs(preemptible=1), cluster=clusters())
def test_whole_gpus_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    fifo = run_engine(jobs, cluster, "fifo,scan=skip")
    assert same(run_engine(jobs, cluster, "miger-like,slices=whole,mps=1"), fifo)
    assert same(run_engine(jobs, cluster, "miger-like,residents=1"), fifo)


@settings(max_examples=10, deadline=None)
@given(jobs=sharing_jobs(most=9), cluster=clusters(), how=st.sampled_from(["reconfigure=0", "horizon=30", "mps=3"]))
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, how: str) -> None:
    lawful(jobs, cluster, f"miger-like,{how}", 3)


def test_what_cannot_be_is_refused(tmp_path: object) -> None:
    with pytest.raises(UsageError, match="mps"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "miger-like,mps=0")
    assert run_engine(make_jobs([(0, 1, 1), (0, 2, 1)]), make_cluster((1,)), "miger-like").end_ms.tolist() == [1000, -1]
    faults = dict(replace(MODELS.slices, compute=9).faults())
    assert faults == {"profiles": "has no slice that covers the whole GPU"}
