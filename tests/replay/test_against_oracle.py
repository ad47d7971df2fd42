"""The compiled engine and the plain-Python oracle agree to the millisecond, the node and the row of the log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.effort import examples, tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import canonical
from tests.replay.oracle import Rule, oracle
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival, least_attained, shortest, shortest_left, smallest, smallest_left
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from tests.replay.oracle import Mode
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

Drift = Literal["none", "time", "any"]

KEYS: dict[str, tuple[Any, Drift]] = {
    "fifo": (by_arrival, "none"),
    "sjf": (shortest, "none"),
    "ssf": (smallest, "none"),
    "srtf": (shortest_left, "time"),
    "srsf": (smallest_left, "any"),
    "las": (least_attained, "none"),
}


def mechanism_of(rule: Rule, drift: Drift | None = None) -> Ordered:
    """The engine's mechanism for an oracle's rule."""
    key, usual = KEYS[rule.order]
    preemptive = rule.mode == "preemptive"
    one, few, many = rule.overhead_ms
    return Ordered(
        key,
        scan=rule.scan,
        fit=rule.fit,
        preemptive=preemptive,
        drift=drift or usual,
        by_arrival=rule.order == "fifo" and not preemptive,
        thresholds=rule.thresholds if rule.order == "las" else (),
        overhead_ms=np.array([0, one, *[few] * 7, many]),
        relax_after_ms=rule.relax_ms[0] if rule.relax_ms else 0,
        relax_scope=1,
    )


@st.composite
def ordered_rules(draw: st.DrawFn) -> Rule:
    modes: list[Mode] = ["list", "preemptive", "preemptive"]
    mode = draw(st.sampled_from(modes))
    orders = {"list": ["fifo", "sjf", "ssf"], "preemptive": ["srtf", "srsf", "las", "las", "fifo"]}
    return Rule(
        order=draw(st.sampled_from(orders[mode])),
        mode=mode,
        scan=draw(st.sampled_from(["skip", "stop"])),
        placement=draw(st.sampled_from(["consolidate", "best-fit", "worst-fit", "first-fit"])),
        fit=draw(st.sampled_from(["place", "place", "count"])),
        relax_ms=draw(st.sampled_from([(), (), (5_000,)])),
        overhead_ms=draw(st.sampled_from([(1, 500, 2_000), (7_000, 30_000, 60_000), (0, 0, 0)])),
        thresholds=draw(st.sampled_from([(), (12_000,), (5_000, 40_000), (1,)])),
    )


def run_both(jobs: Jobs, cluster: Cluster, rule: Rule, drift: Drift | None = None) -> tuple[Outcome, Any]:
    engine = simulate(jobs, cluster, assign(jobs, cluster), mechanism_of(rule, drift), rule=rule.placement, log=True)
    return engine, oracle(jobs, cluster, rule)


def agree(engine: Outcome, truth: Any) -> None:
    assert engine.log is not None
    assert canonical(engine.log) == canonical(truth.log)
    for name in ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations"):
        assert getattr(engine, name).tolist() == list(getattr(truth, name)), name


def check(jobs: Jobs, cluster: Cluster, rule: Rule) -> Outcome:
    engine, truth = run_both(jobs, cluster, rule)
    agree(engine, truth)
    assert engine.log is not None
    assert audit(jobs, cluster, engine.log, engine) == []
    return engine


@settings(max_examples=100)
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_engine_and_oracle_agree(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


@pytest.mark.thorough
@settings(max_examples=examples(1000))
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_engine_and_oracle_agree_in_more_cases(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


SMALL = st.sampled_from([1, 1, 2, 2, 3, 4, 5, 6, 8])


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Jobs, Cluster, Rule]:
    """Many small jobs at almost the same time on few nodes of one kind, with eviction."""
    jobs = draw(job_lists(least=12, most=30, horizon_s=12, sizes=SMALL, typed=False))
    nodes = draw(st.lists(st.sampled_from([4, 8, 3, 5]), min_size=2, max_size=3))
    rule = replace(
        draw(ordered_rules()),
        mode="preemptive",
        order=draw(st.sampled_from(["srtf", "srsf", "las", "las"])),
        scan=draw(st.sampled_from(["skip", "skip", "stop"])),
        fit=draw(st.sampled_from(["place", "place", "place", "count"])),
        relax_ms=(),
        thresholds=draw(st.sampled_from([(12_000,), (5_000, 40_000), (2_000, 6_000, 20_000), (1,)])),
    )
    return jobs, make_cluster(nodes), rule


@pytest.mark.thorough
@settings(max_examples=examples(1000))
@given(crowds())
def test_engine_and_oracle_agree_on_crowds(case: tuple[Jobs, Cluster, Rule]) -> None:
    check(*case)


def test_who_comes_first_by_anothers_overhead_is_tried() -> None:
    # The last job takes the second's GPUs, which then stands before the third and holds it up. Its overhead puts it
    # behind: the third starts at the next look, at 0.11 s, although the GPUs that come free then are too few for it.
    jobs = make_jobs([(0, 2, 1), (0, 6, 2), (0, 3, 2.5), (0.1, 2, 0.01)])
    rule = Rule(order="srtf", mode="preemptive", scan="stop", overhead_ms=(7_000, 30_000, 60_000))
    engine = check(jobs, make_cluster([4, 4]), rule)
    assert engine.first_start_ms.tolist() == [0, 0, 110, 100]


@pytest.mark.thorough
def test_crowds_evict_and_move() -> None:
    preemptions = migrations = cases = 0

    @settings(max_examples=60, database=None)
    @given(crowds())
    def count(case: tuple[Jobs, Cluster, Rule]) -> None:
        nonlocal preemptions, migrations, cases
        engine = check(*case)
        cases += 1
        preemptions += int(engine.preemptions.sum())
        migrations += int(engine.migrations.sum())

    count()
    assert preemptions > 5 * cases
    assert migrations > cases / 4


@tried(23, 66, job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_what_a_policy_says_about_its_keys_changes_only_the_speed(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    engine, truth = run_both(jobs, cluster, replace(rule, mode="preemptive"), drift="any")
    agree(engine, truth)


@pytest.mark.slow
@settings(max_examples=10_000, derandomize=False, database=None, phases=(Phase.generate, Phase.shrink))
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_engine_and_oracle_agree_on_ten_thousand_more(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


@pytest.mark.slow
@settings(max_examples=10_000, derandomize=False, database=None, phases=(Phase.generate, Phase.shrink))
@given(crowds())
def test_engine_and_oracle_agree_on_ten_thousand_more_crowds(case: tuple[Jobs, Cluster, Rule]) -> None:
    check(*case)


LONG = [
    *(("srtf", 400), ("las", 400)),
    *(pytest.param(o, 800, marks=pytest.mark.thorough) for o in ("srtf", "srsf", "las")),
    *(pytest.param(o, 1500, marks=pytest.mark.slow) for o in ("srtf", "srsf", "las")),
]


@pytest.mark.parametrize(("order", "count"), LONG)
def test_a_long_run_agrees_too(order: str, count: int) -> None:
    random = np.random.default_rng(7)
    rows = [
        (float(t), int(g), float(d))
        for t, g, d in zip(
            np.sort(random.integers(0, 4 * count, count)),
            random.choice([1, 2, 4, 8, 12, 16], count, p=[0.6, 0.12, 0.12, 0.1, 0.03, 0.03]),
            random.integers(1, 400, count),
            strict=True,
        )
    ]
    jobs, cluster = make_jobs(rows), make_cluster([8] * 20)
    rule = Rule(
        order=order, mode="preemptive", scan="skip", thresholds=(100_000, 600_000), overhead_ms=(700, 1500, 3000)
    )
    agree(*run_both(jobs, cluster, rule))
