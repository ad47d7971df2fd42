"""Run times foretold from what had ended before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tracekit.policies.service import foretell_ms

# user, GPUs, name, run time: all of u and v, ended when the others come
HISTORY = [("u", 1, 7, 10), ("u", 1, 7, 40), ("u", 1, 8, 20), ("u", 2, 7, 90), ("v", 1, 7, 340)]


@pytest.mark.parametrize(
    ("user", "gpus", "name", "expected_s"),
    [
        # mean of u's jobs of that name and size: 25; geometric mean of u's jobs of that size: (10 * 40 * 20)^(1/3) = 20
        ("u", 1, 7, (25 + 20) / 2),
        # no such name: the mean of that size, 70 / 3, too
        ("u", 1, 9, (70 / 3 + 20) / 2),
        ("u", 1, -1, (70 / 3 + 20) / 2),
        # no such size: u's jobs, mean 160 / 4, geometric mean (10 * 40 * 20 * 90)^(1/4)
        ("u", 4, 7, (40 + 720_000 ** (1 / 4)) / 2),
        # no such user: the mean of all jobs, 500 / 5
        ("w", 1, 7, 100),
    ],
)
def test_the_blend_and_its_fallbacks(user: str, gpus: int, name: int, expected_s: float) -> None:
    users, sizes, names, works = zip(*HISTORY, strict=True)
    jobs = make_jobs(
        [*((0, g, w) for g, w in zip(sizes, works, strict=True)), (1000, gpus, 5)],
        user=[*users, user],
        name=[*names, name],
    )
    assert foretell_ms(jobs, 0.5)[-1] == pytest.approx(expected_s * 1000, abs=1)
    # Until something has ended, every job is foretold one second.
    assert foretell_ms(jobs, 0.5)[:-1].tolist() == [1000] * 5


def test_the_weight_of_the_name() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 40), (0, 1, 20), (100, 1, 5)], name=[7, 7, 8, 7])
    assert foretell_ms(jobs, 1.0)[-1] == 25_000
    assert foretell_ms(jobs, 0.0)[-1] == pytest.approx(20_000, abs=1)


def test_a_job_counts_from_the_ms_after_its_recorded_end() -> None:
    rows = [(0.0, 1, 10.0), (50, 1, 5), (50.001, 1, 5)]
    assert foretell_ms(make_jobs(rows, recorded_end_ms=[50_000, -1, -1]), 1.0).tolist() == [1000, 1000, 10_000]
    # Without a recorded end it is taken to run at once.
    assert foretell_ms(make_jobs(rows), 1.0).tolist() == [1000, 10_000, 10_000]


@tried(23, 66, data=st.data())
def test_what_had_not_ended_tells_nothing(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 15))
    times = st.integers(0, 60)
    rows = data.draw(
        st.lists(st.tuples(times, st.integers(1, 3), st.integers(0, 40)), min_size=count, max_size=count), "jobs"
    )

    def column(values: list[Any], label: str) -> list[Any]:
        return data.draw(st.lists(st.sampled_from(values), min_size=count, max_size=count), label)

    waits = column([0, 0, 5, 20, None], "waits")
    jobs = make_jobs(
        rows,
        user=column(["u", "v"], "users"),
        name=column([-1, 1, 2], "names"),
        users=["u", "v"],
    )
    submits = jobs.submit_ms
    ends = submits + jobs.work_ms + np.array([-1 if wait is None else wait * 1000 for wait in waits])
    recorded = np.array([-1 if wait is None else end for wait, end in zip(waits, ends, strict=True)])
    jobs = replace(jobs, recorded_end_ms=recorded)
    truth = np.where(recorded >= submits, recorded, submits + jobs.work_ms)
    chosen = data.draw(st.integers(0, count - 1), "chosen")
    later = truth >= submits[chosen]
    assert later[chosen]
    # What they will have run, when they end, and whose the others are, is changed; they still end no earlier.
    other = later & (np.arange(count) != chosen)
    work = np.where(later, np.array(column([0, 1, 7_777, 10**9], "works")), jobs.work_ms)
    changed = replace(
        jobs,
        work_ms=work,
        recorded_end_ms=np.where(later, np.maximum(submits, submits[chosen]) + work, recorded),
        user=np.where(other, 1 - jobs.user, jobs.user).astype(np.int32),
        name=np.where(other, 2, jobs.name).astype(np.int32),
    )
    assert foretell_ms(changed, 0.3)[chosen] == foretell_ms(jobs, 0.3)[chosen]


def test_where_nothing_is_known_the_smallest_gang_goes_first() -> None:
    # The first job holds all GPUs to 10; all are foretold one second. Gangs of 1 and 2 start, 3 waits for 2.
    jobs = make_jobs([(0, 4, 10), (1, 3, 5), (1, 1, 100), (1, 2, 1)], recorded_end_ms=[10**6] * 4)
    outcome = run_engine(jobs, make_cluster([4]), "qssf")
    assert outcome.first_start_ms.tolist() == [0, 11_000, 10_000, 10_000]
    # Who knows the run times starts 2 * 1 s first, then 3 * 5 s, which holds up 1 * 100 s.
    outcome = run_engine(jobs, make_cluster([4]), "qssf,oracle=on")
    assert outcome.first_start_ms.tolist() == [0, 11_000, 11_000, 10_000]
