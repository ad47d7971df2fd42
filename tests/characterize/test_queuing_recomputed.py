"""Waits, starts and use through time against a reading of their definitions minute by minute, over random traces."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.characterize.asking import seeds
from tracekit.characterize import run_query
from tracekit.characterize.occupancy import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Tables = dict[str, list[dict[str, Any]]]
START = dt.datetime(2020, 1, 1)
MINUTES = 90
CLASSES = ["0", "<1", "1", "2-4", "5-8", ">8"]


class Run(NamedTuple):
    """One attempt in whole minutes."""

    job: str
    cluster: str
    vc: str | None
    gpus: float | None
    queued: int | None
    start: int
    end: int | None
    nodes: dict[str, float]


def moment(minute: int) -> dt.datetime:
    return START + dt.timedelta(minutes=minute)


def random_runs(rng: random.Random) -> list[Run]:
    runs = []
    for number in range(rng.randint(1, 14)):
        cluster = rng.choice("xy")
        gpus = rng.choice([0, 0.5, 1, 2, 3, 4, 5, 6, 9, None])
        minute = rng.randint(0, 40)
        for _ in range(rng.randint(1, 2)):
            queued = None if rng.random() < 0.1 else minute
            start = minute + rng.choice([0, 0, rng.randint(0, 25)])
            end = None if rng.random() < 0.1 else start + rng.randint(0, 20)
            names = [f"{cluster}{i}" for i in range(3)]
            held = {name: rng.choice([0.5, 1, 2, 4]) for name in rng.sample(names, rng.randint(0, 2))}
            vc = rng.choice(["v", "w", None])
            runs.append(Run(f"j{number}", cluster, vc, gpus, queued, start, end, held))
            if end is None:
                break
            minute = end
    return runs


def tables(runs: list[Run], quota: dict[tuple[str, str], float], sizes: dict[str, int]) -> Tables:
    found: Tables = defaultdict(list)
    numbers: dict[str, int] = defaultdict(int)
    for run in runs:
        attempt = numbers[run.job]
        numbers[run.job] += 1
        if not attempt:
            found["jobs"].append(
                {"job_id": run.job, "cluster": run.cluster, "vc": run.vc, "gpu_count": run.gpus}
                | {"submit_time": None if run.queued is None else moment(run.queued), "status": "completed"}
            )
        end = None if run.end is None else moment(run.end)
        found["attempts"].append(
            {"job_id": run.job, "attempt": attempt, "start_time": moment(run.start), "end_time": end}
            | {"run_s": None if run.end is None else (run.end - run.start) * 60, "gpu_count": run.gpus}
            | {"wait_s": None if run.queued is None else (run.start - run.queued) * 60}
        )
        for node, gpus in run.nodes.items():
            found["placements"].append({"job_id": run.job, "attempt": attempt, "node_id": node, "gpu_count": gpus})
    found["nodes"] = [{"node_id": node, "cluster": node[0], "gpu_count": size} for node, size in sizes.items()]
    found["capacity"] = [
        {"time": START, "cluster": cluster, "vc": vc, "gpu_count": gpus} for (cluster, vc), gpus in quota.items()
    ]
    return found


def first_vc(runs: list[Run]) -> dict[str, str | None]:
    """Return the VC of each job, which is that of its first run in the tables."""
    found: dict[str, str | None] = {}
    for run in runs:
        found.setdefault(run.job, run.vc)
    return found


class Cluster:
    """The state at each minute, by looking at every run."""

    def __init__(self, runs: list[Run], quota: dict[tuple[str, str], float], sizes: dict[str, int]) -> None:
        self.runs = runs
        self.vc = first_vc(runs)
        self.quota = quota
        # Evidence raises a node's size, as the view node_gpus does.
        self.sizes = {
            node: max(size, *(math.ceil(r.nodes[node]) for r in runs if node in r.nodes), 0)
            for node, size in sizes.items()
        }

    def holding(self, minute: float) -> list[Run]:
        return [r for r in self.runs if r.end is not None and r.start <= minute < r.end]

    def used(self, cluster: str, vc: str | None, minute: float) -> float:
        return sum(r.gpus or 0 for r in self.holding(minute) if (r.cluster, self.vc[r.job]) == (cluster, vc))

    def allowed(self, cluster: str, vc: str | None) -> float:
        if vc is None:  # no tenant: the nodes of the cluster
            return sum(listed for node, listed in LISTED.items() if node[0] == cluster)
        return self.quota.get((cluster, vc), math.nan)

    def full(self, run: Run, minute: float) -> bool:
        vc = self.vc[run.job]
        return self.used(run.cluster, vc, minute) + (run.gpus or 0) > self.allowed(run.cluster, vc)

    def fits(self, cluster: str, gang: float, minute: float) -> bool:
        held = self.holding(minute)
        nodes = {n: s for n, s in self.sizes.items() if n[0] == cluster}
        free = [s - sum(r.nodes.get(n, 0) for r in held) for n, s in nodes.items()]
        largest = max(nodes.values())
        if gang <= largest:
            return any(f >= gang for f in free)
        whole, rest = divmod(gang, largest)
        enough = sum(f >= largest for f in free) >= whole
        return enough and (not rest or sum(f >= rest for f in free) >= whole + 1)


LISTED = {"x0": 4, "x1": 4, "x2": 2, "y0": 8, "y1": 4, "y2": 1}


def world(rng: random.Random) -> tuple[list[Run], Cluster, Tables]:
    runs = random_runs(rng)
    quota = {
        (cluster, vc): float(rng.choice([1, 2, 4, 6, 20])) for cluster in "xy" for vc in "vw" if rng.random() < 0.8
    }
    found = tables(runs, quota, LISTED)
    return runs, Cluster(runs, quota, LISTED), found


def size_class(gpus: float) -> str:
    return CLASSES[sum(gpus > edge for edge in (0, 0.99, 1, 4, 8))]


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_causes_of_waits(seed: int, make_trace: MakeTrace) -> None:
    runs, cluster, found = world(random.Random(seed))
    has_quota, has_nodes = bool(cluster.quota), bool(found["placements"])
    if not has_quota:
        return  # a proxy would be used
    expected: dict[str, list[float]] = {}
    for run in runs:
        if run.queued is None or run.gpus is None or run.start == run.queued:
            continue
        waits = expected.setdefault(size_class(run.gpus), [0, 0, 0, 0, 0, 0, 0])
        fair = fragmented = 0
        for minute in range(run.queued, run.start) if run.gpus else ():
            if cluster.full(run, minute):
                fair += 60
            elif has_nodes and not cluster.fits(run.cluster, run.gpus, minute):
                fragmented += 60
        other = (run.start - run.queued) * 60 - fair - fragmented
        main = max((fair, 2), (fragmented, 1), (other, 0))[1]
        waits[0] += 1
        waits[3 - main] += 1
        waits[4] += (run.start - run.queued) * 60
        waits[5] += fair
        waits[6] += fragmented
    frame = run_query(make_trace(**found), "queuing/delay_causes")
    got = {
        gpu_class: [n, fair, fragmented or 0, other, wait_s, fair_s, fragmented_s or 0]
        for gpu_class, n, fair, fragmented, other, _, _, wait_s, fair_s, fragmented_s in frame.rows()
    }
    assert got == expected
    assert all(n == fair + fragmented + other for n, fair, fragmented, other, *_ in got.values())


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_starts_out_of_order(seed: int, make_trace: MakeTrace) -> None:
    runs, cluster, found = world(random.Random(seed))
    known = [r for r in runs if r.queued is not None and r.gpus]
    if not cluster.quota:
        return
    expected: dict[str, list[Any]] = defaultdict(lambda: [0, 0, set(), 0, 0])
    for run in known:
        row = expected[size_class(run.gpus or 0)]
        row[0] += 1
        same = [r for r in known if (r.cluster, cluster.vc[r.job]) == (run.cluster, cluster.vc[run.job])]
        passed = [r for r in same if (r.queued or 0) < (run.queued or 0) and r.start > run.start]
        if any((r.queued or 0) > (run.queued or 0) and r.start < run.start for r in same):
            row[2].add(run.job)
        if not passed:
            continue
        row[1] += 1
        allowed = cluster.allowed(run.cluster, cluster.vc[run.job])
        if math.isnan(allowed):
            continue
        # Between what ends at the start and what starts then.
        before = Cluster([r for r in runs if r.start != run.start], cluster.quota, LISTED)
        before.vc, before.sizes = cluster.vc, cluster.sizes
        placeable = any(
            not before.full(r, run.start)
            and (not found["placements"] or before.fits(r.cluster, r.gpus or 0, run.start))
            for r in passed
        )
        row[3] += not placeable
        row[4] += 1
    frame = run_query(make_trace(**found), "queuing/out_of_order")
    assert {row[0]: row[1:] for row in frame.rows()} == {
        gpu_class: (starts, early, early / starts, len(overtaken), harmless / told if told else None)
        for gpu_class, (starts, early, overtaken, harmless, told) in expected.items()
    }


@pytest.mark.parametrize("seed", seeds(6, 30))
def test_the_timeline_adds_up_to_the_gpu_time_held(seed: int, make_trace: MakeTrace) -> None:
    runs, cluster, found = world(random.Random(seed))
    step = (60, 420, 3600)[seed % 3]
    frame = run_query(make_trace(**found), "queuing/timeline", step_s=step)
    held: dict[tuple[str, str | None], float] = defaultdict(float)
    waited: dict[tuple[str, str | None], float] = defaultdict(float)
    for run in runs:
        key = (run.cluster, cluster.vc[run.job])
        if run.end is not None:
            held[key] += (run.gpus or 0) * (run.end - run.start) * 60
        if run.queued is not None:
            waited[key] += (run.gpus or 0) * (run.start - run.queued) * 60
    for (name, vc), part in frame.group_by("cluster", "vc"):
        assert part["running_gpus"].sum() * step == pytest.approx(held[str(name), vc])
        assert part["pending_gpus"].sum() * step == pytest.approx(waited[str(name), vc])


@pytest.mark.parametrize("seed", seeds(8, 40))
def test_free_gpus_at_each_moment(seed: int, make_trace: MakeTrace) -> None:
    _, cluster, found = world(random.Random(seed))
    if not found["placements"]:
        return
    frame = run_query(make_trace(**found), "locality/fragmentation", step_s=300)
    for time, name, _, free, whole, gang in frame.rows():
        minute = (time - START) / dt.timedelta(minutes=1)
        held = cluster.holding(minute)
        left = {
            n: max(0, s - sum(r.nodes.get(n, 0) for r in held if r.end is not None and r.end > r.start))
            for n, s in cluster.sizes.items()
            if n[0] == name
        }
        idle = [n for n in left if left[n] == cluster.sizes[n]]
        partly = [left[n] for n in left if n not in idle]
        assert (free, whole) == (pytest.approx(sum(left.values())), len(idle))
        assert gang == pytest.approx(sum(left[n] for n in idle) + max(partly, default=0))


@given(
    intervals=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(1, 4)), max_size=8),
    edges=st.lists(st.integers(-5, 40), min_size=2, max_size=6, unique=True),
)
def test_means_of_steps(intervals: list[tuple[int, int, int]], edges: list[int]) -> None:
    import numpy as np

    starts = np.array([s for s, _, _ in intervals], dtype=np.int64)
    ends = starts + np.array([length for _, length, _ in intervals], dtype=np.int64)
    steps = Steps.of_intervals(starts, ends, np.array([w for *_, w in intervals], dtype=np.float64))
    cuts = sorted(edges)
    expected = [
        sum(w for s, length, w in intervals for t in range(a, b) if s <= t < s + length) / (b - a)
        for a, b in itertools.pairwise(cuts)
    ]
    assert steps.means(np.array(cuts, dtype=np.int64)).tolist() == pytest.approx(expected)
