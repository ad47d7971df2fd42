"""Random small jobs, clusters and rules for property tests, with many ties, tight clusters and all mechanisms.

Parts that each draw needs are made once, because Hypothesis inspects every new strategy.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.oracle import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.replay.oracle import Mode
    from tests.replay.places import Take
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["cases", "clusters", "job_lists", "rules", "spread_speed"]

VCS = ["a", "b", "c"]
MODELS = ["A100", "V100"]
PARTITIONS = ["long", "short"]

_SIZES = st.sampled_from([1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 8, 8, 11, 20])
_COUNTS = st.sampled_from([2, 3, 1, 4, 6, 5])
_NODES = st.sampled_from([4, 8, 4, 8, 4, 2, 1, 3, 5, 6, 7])


@functools.cache
def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@functools.cache
def _lists(of: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=count, max_size=count)


@functools.cache
def seconds(longest: float) -> st.SearchStrategy[float]:
    """Return times with many ties: mostly whole seconds, sometimes milliseconds, and sometimes 0."""
    whole = st.integers(0, int(longest)).map(float)
    exact = st.integers(0, int(longest * 1000)).map(lambda ms: ms / 1000)
    return st.one_of(whole, whole, exact, st.just(0.0))


@functools.cache
def _rows(horizon_s: float, sizes: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[float, int, float]]:
    return st.tuples(seconds(horizon_s), sizes, seconds(50))


@functools.cache
def _moves(count: int) -> st.SearchStrategy[list[tuple[float, int, bool]]]:
    move = st.tuples(seconds(60), st.integers(0, count - 1), st.booleans())
    return st.lists(move, max_size=5, unique_by=lambda m: m[:2])


_STEPS = st.lists(st.tuples(seconds(40), st.integers(1, 20)), min_size=1, max_size=3, unique_by=lambda s: s[0])


@st.composite
def job_lists(
    draw: st.DrawFn,
    *,
    least: int = 1,
    most: int = 20,
    sizes: st.SearchStrategy[int] | None = None,
    horizon_s: float = 30,
    typed: bool = True,
    parted: bool = False,
) -> Jobs:
    """Draw jobs of 1 to 20 GPUs and 0 to 50 s from three tenants. Some request a GPU model or belong to a partition."""
    count = draw(st.integers(least, most))  # drawn first, because lists tend to be short and queues need many jobs
    rows = draw(_lists(_rows(horizon_s, _SIZES if sizes is None else sizes), count))
    models: list[str | None] = [None, None, None, *MODELS] if typed and draw(st.booleans()) else [None]
    parts: list[str | None] = [None, *PARTITIONS, *PARTITIONS] if parted and draw(st.booleans()) else [None]
    return make_jobs(
        rows,
        vc=draw(_lists(_one_of(*VCS), count)),
        model=draw(_lists(_one_of(*models), count)),
        partition=draw(_lists(_one_of(*parts), count)),
        tenants=VCS,
        models=MODELS,
    )


@st.composite
def clusters(draw: st.DrawFn, *, changing: bool = True, parted: bool = False) -> Cluster:
    """Draw clusters of 1 to 6 nodes of 1 to 8 GPUs, with models, racks, domains and partitions. Nodes may change."""
    count = draw(_COUNTS)
    nodes = draw(_lists(_NODES, count))

    def each(values: list[str]) -> list[str]:
        few = values[: draw(st.integers(1, len(values)))]
        return draw(_lists(_one_of(*few), count))

    isolated = draw(st.integers(0, 2)) == 0
    options: dict[str, Any] = {}
    if parted and draw(st.booleans()):
        options["partitions"] = draw(_lists(_one_of(("long",), ("long", "short"), ("short",), ()), count))
    if changing and draw(st.booleans()):
        options["changes"] = draw(_moves(count))
        options["absent"] = draw(st.lists(st.integers(0, count - 1), max_size=1))
    quota = {vc: [(0.0, 8), *draw(_STEPS)] for vc in VCS}
    quota = {vc: sorted(dict(rows).items()) for vc, rows in quota.items()}
    return make_cluster(
        nodes,
        model=each(MODELS),
        rack=each(["r0", "r1", "r2"]),
        domain=each(VCS) if isolated else "",
        quota=quota,
        **options,
    )


def spread_speed(job: int, places: Mapping[int, list[Take]]) -> int:
    """Return a rate that falls with a job's number of nodes and its neighbours on them [ppm]."""
    own = {node for node, _, _ in places[job]}
    near = sum(1 for other, place in places.items() if other != job and own & {node for node, _, _ in place})
    return max(100_000, 1_000_000 - 130_001 * (len(own) - 1) - 70_003 * near)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """Draw rules of every mode, with relaxed waits, overheads, levels and rates if they apply."""
    modes: list[Mode] = ["list", "list", "preemptive", "preemptive", "preemptive", "easy", "conservative", "fair"]
    mode = draw(st.sampled_from(modes))
    orders = {"list": ["fifo", "sjf", "ssf"], "preemptive": ["srtf", "srsf", "las", "las", "fifo"]}
    placement = draw(st.sampled_from(["consolidate", "best-fit", "worst-fit", "first-fit", "any", "buddy"]))
    estimates = draw(st.one_of(st.none(), st.lists(st.integers(0, 60_000), min_size=20, max_size=20).map(tuple)))
    return Rule(
        order=draw(st.sampled_from(orders.get(mode, ["fifo"]))),
        mode=mode,
        scan=draw(st.sampled_from(["skip", "stop"])),
        placement=placement,
        fit=draw(st.sampled_from(["place", "place", "count"])) if placement != "buddy" else "place",
        relax_ms=draw(st.sampled_from([(), (), (5_000,), (3_000, 10_000)]))
        if placement not in {"any", "buddy"}
        else (),
        overhead_ms=draw(st.sampled_from([(1, 500, 2_000), (7_000, 30_000, 60_000), (0, 0, 0)])),
        thresholds=draw(st.sampled_from([(), (12_000,), (5_000, 40_000), (1,)])),
        estimates=estimates if mode in {"easy", "conservative"} else None,
        hard_quota=mode in {"list", "fair"} and draw(st.integers(0, 3)) == 0,
        speed=draw(st.sampled_from([None, None, spread_speed])),
    )


def cases(**options: Any) -> st.SearchStrategy[tuple[Jobs, Cluster, Rule]]:
    """Return a strategy for jobs, a cluster and a rule."""
    return st.tuples(job_lists(parted=True, **options), clusters(parted=True), rules())
