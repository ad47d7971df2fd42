"""GPU sharing with rates: SJF-FFS and SJF-BSBF against hand-worked cases, the pair theorem and a plain simulation."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.sharing_oracle import Rules, end_together, pair, simulate_plainly
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.literature.sharing import SjfBsbf, SjfFfs
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.speeds import interference_ppm
from tracekit.replay.bracket import Bracket, bracket, points
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.kernel import mean_end, pair_speed, shares
from tracekit.replay.keys import shortest, shortest_left, smallest_left
from tracekit.replay.mechanisms import Ordered, Sharing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

PPM = 1_000_000


def run(jobs: Jobs, cluster: Cluster, rules: Rules, **options: Any) -> Outcome:
    """Run the compiled engine under the rules of the plain simulation."""
    mechanism = Sharing(
        smallest_left if rules.by_service else shortest_left,
        np.array(rules.utilization),
        np.array(rules.memory),
        speeds_ppm=tuple(rules.speeds),
        strength_ppm=rules.c,
        residents=rules.residents,
        test=rules.test,
        consolidate=rules.consolidate,
    )
    return simulate(jobs, cluster, assign(jobs, cluster), mechanism, log=True, **options)


def log_of(outcome: Outcome) -> Any:
    assert outcome.log is not None
    return outcome.log


def all_alike(count: int, *, u: int = PPM, m: int = 450_000, **more: Any) -> Rules:
    return Rules([u] * count, [[m] * count], **more)


def ends(rows: Sequence[tuple[float, int, float]], nodes: Sequence[int] = (1,), **more: Any) -> list[int]:
    jobs, cluster = make_jobs(rows), make_cluster(nodes)
    return [int(end) for end in run(jobs, cluster, all_alike(len(rows), **more)).end_ms]


def speed_law(rules: Rules) -> Any:
    """What the auditor recomputes: the product over neighbours, the least over GPUs (one piece only)."""

    def speed(job: int, places: Mapping[int, list[tuple[int, int, int]]]) -> int:
        slowest = PPM
        for node, gpu, _ in places[job]:
            near = [k for k, held in places.items() if k != job and any((n, g) == (node, gpu) for n, g, _ in held)]
            product = PPM
            for i, r in enumerate(sorted(pair(rules.c, rules.utilization[job], rules.utilization[k]) for k in near)):
                product = r if i == 0 else (product * r + PPM // 2) // PPM
            slowest = min(slowest, product)
        return slowest

    return speed


# ---- the pair theorem ----


@pytest.mark.parametrize(
    ("a", "b", "xi", "twice_mean", "better"),
    [(100, 100, 1.4, 280, True), (100, 100, 1.6, 320, False), (10, 100, 1.8, 126, True)],
)
def test_break_even_of_the_card(a: int, b: int, xi: float, twice_mean: int, better: bool) -> None:
    r = round(PPM / xi)
    assert mean_end(a * 1000, b * 1000, r, r) == pytest.approx(twice_mean * 1000, abs=1)
    assert shares(a * 1000, a * 1000, b * 1000, r, r) is better


work = st.integers(1, 2000)
speeds = st.integers(200_000, PPM)


@given(work, work, speeds, speeds)
def test_no_delay_is_better_than_none_or_all(a: int, b: int, ra: int, rb: int) -> None:
    now = end_together(a, b, ra, rb)
    wait = 2 * b + Fraction(a)
    grid = [Fraction(b * i, 200) for i in range(201)]
    delayed = [2 * d + end_together(a, b - d, ra, rb) if d < b else wait for d in grid]
    assert min(delayed) == min(now, wait)
    assert mean_end(a, b, ra, rb) == now // 1
    assert shares(a, a, b, ra, rb) == (now < wait)


@given(work, work, speeds, st.integers(500_000, PPM))
def test_sub_batches_count_as_longer_work_of_the_newcomer(a: int, b: int, r: int, speed: int) -> None:
    longer = -(-a * PPM // speed)
    assert shares(a, longer, b, r, r) == (end_together(longer, b, r, r) < 2 * b + a)
    # A candidate that is no good stays so as it runs down; a shorter job gains wherever a longer one does.
    if shares(a, longer, b, r, r):
        assert shares(a, longer, b + 1, r, r)
        assert shares(a - 1, -(-(a - 1) * PPM // speed), b, r, r)


@given(st.integers(0, PPM), st.integers(0, PPM))
def test_the_engine_has_the_speeds_of_the_models(u: int, v: int) -> None:
    assert pair_speed(500_000, u, v) == pair(500_000, u, v) == int(interference_ppm(load_models(), u, v))


def test_enormous_work_does_not_overflow_the_test() -> None:
    most = 1 << 42
    assert shares(most, most, most, PPM, PPM)
    assert not shares(most, most, 1, 1, 1)
    assert mean_end(most, most, 1, 1) > 0


# ---- hand-worked schedules ----


def test_pure_time_slicing_makes_first_fit_lose_and_is_refused_by_the_test() -> None:
    rows = [(0, 1, 100), (0, 1, 100)]
    assert ends(rows, test=False) == [200_000, 200_000]
    assert ends(rows, test=True) == [100_000, 200_000]


def test_a_short_job_joins_a_long_one_and_leaves_it_alone_again() -> None:
    # c = 0.5, u = 0.8: both at 0.68 from 10 s. The short one ends 10/0.68 s = 14.706 s later (rounded up to the ms);
    # the long one has then 90 - 14.706 * 0.68 = 79.99992 s left.
    rows = [(0, 1, 100), (10, 1, 10)]
    assert ends(rows, u=800_000, test=True) == [24_706 + 80_000, 24_706]


def test_the_rates_and_gpus_are_in_the_log_and_a_shared_gpu_is_busy_once() -> None:
    jobs, cluster = make_jobs([(0, 1, 100), (10, 1, 10)]), make_cluster((1,))
    outcome = run(jobs, cluster, all_alike(2, u=800_000))
    assert outcome.log is not None
    assert [tuple(int(v) for v in row) for row in outcome.log] == [
        (0, 1, 0, -1, -1, 0),
        (0, 2, 0, -1, -1, 1_000_000),
        (0, 3, 0, 0, 0, 1000),
        (10_000, 1, 1, -1, -1, 0),
        (10_000, 2, 1, -1, -1, 680_000),
        (10_000, 3, 1, 0, 0, 1000),
        (10_000, 6, 0, -1, -1, 680_000),
        (24_706, 5, 1, -1, -1, 0),
        (24_706, 6, 0, -1, -1, 1_000_000),
        (104_706, 5, 0, -1, -1, 0),
    ]
    assert outcome.busy_milli_ms == 104_706 * 1000
    assert [int(v) for v in outcome.held_milli_ms] == [104_706_000, 14_706_000]


def test_a_gang_goes_at_the_pace_of_its_slowest_gpu() -> None:
    # Two GPUs, one gang; a single job joins one of them: both run at 0.5 until one ends.
    assert ends([(0, 2, 100), (0, 1, 150), (0, 1, 150)], (2,), test=False) == [200_000, 250_000, 250_000]
    assert ends([(0, 2, 100), (50, 1, 25)], (2,), test=False) == [125_000, 100_000]


def test_a_gang_takes_idle_gpus_first_and_shares_the_rest() -> None:
    jobs, cluster = make_jobs([(0, 1, 100), (0, 2, 200)]), make_cluster((2,))
    outcome = run(jobs, cluster, all_alike(2, u=0))
    assert [(int(row["node"]), int(row["gpu"])) for row in log_of(outcome) if row["kind"] == 3] == [
        (0, 0),
        (0, 1),
        (0, 0),
    ]
    assert [int(end) for end in outcome.end_ms] == [100_000, 200_000]


def test_nodes_with_fewest_jobs_come_first_and_the_tightest_when_consolidated() -> None:
    rows = [(0, 1, 100), (0, 1, 100), (0, 1, 100)]
    jobs, cluster = make_jobs(rows), make_cluster((2, 3))

    def nodes(**more: Any) -> list[int]:
        log = log_of(run(jobs, cluster, all_alike(3, **more)))
        return [int(row["node"]) for row in log if row["kind"] == 3]

    assert nodes() == [0, 1, 0]
    assert nodes(consolidate=True) == [0, 0, 1]


def test_the_partner_with_the_least_mean_comes_first() -> None:
    # Both long jobs pass; the one with less work left gives the smaller mean.
    rows = [(0, 1, 500), (0, 1, 300), (1, 1, 5)]
    outcome = run(make_jobs(rows), make_cluster((2,)), all_alike(3, u=500_000))
    takes = {int(row["job"]): int(row["gpu"]) for row in log_of(outcome) if row["kind"] == 3}
    assert takes[2] == takes[1]


def test_sub_batches_let_a_job_fit_and_slow_it() -> None:
    rules = Rules([0, 0], [[600_000, 600_000], [380_000, 380_000]], speeds=(PPM, 800_000))
    jobs, cluster = make_jobs([(0, 1, 1000), (0, 1, 1000)]), make_cluster((1,))
    outcome = run(jobs, cluster, rules)
    # Alone the first runs in one piece, 600,000 + 380,000 ppm of memory: together they just fit.
    assert [int(end) for end in outcome.end_ms] == [1_000_000, 1_250_000]


def test_free_sharing_doubles_the_throughput() -> None:
    rows = [(0, 1, 100)] * 8
    for test in (True, False):
        assert ends(rows, (4,), u=0, m=0, test=test) == [100_000] * 8


def test_more_than_two_residents_multiply_their_slowdowns() -> None:
    # u = 1, c = 0.5: with two neighbours 0.25.
    assert ends([(0, 1, 10)] * 3, residents=3, m=300_000, test=False) == [40_000] * 3


# ---- equalities ----


@tried(14, 40, job_lists(typed=False), st.sampled_from([1, 2]), st.booleans())
def test_without_seats_it_is_shortest_first_with_skip(jobs: Jobs, residents: int, test: bool) -> None:
    cluster = make_cluster((4, 3, 8))
    shared = run(jobs, cluster, all_alike(len(jobs), m=550_000, residents=residents, test=test))
    plain = Ordered(shortest, scan="skip", fit="count", drift="none")
    alone = simulate(jobs, cluster, assign(jobs, cluster), plain)
    for name in ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "unschedulable", "held_milli_ms"):
        assert np.array_equal(getattr(shared, name), getattr(alone, name)), name
    assert (shared.makespan_ms, shared.busy_milli_ms) == (alone.makespan_ms, alone.busy_milli_ms)


@tried(10, 30, job_lists(), clusters())
def test_without_interference_the_test_never_refuses_who_leaves_work(jobs: Jobs, cluster: Cluster) -> None:
    free = {"u": 0, "m": 0}
    tested = run(jobs, cluster, all_alike(len(jobs), **free))
    first = run(jobs, cluster, all_alike(len(jobs), **free, test=False))
    if int(jobs.work_ms.min()) > 0 and int(jobs.devices.max()) == 1:
        assert np.array_equal(tested.first_start_ms, first.first_start_ms)
    assert audit(jobs, cluster, log_of(tested), tested, residents=2, preemptive=False) == []


# ---- random cases ----


@st.composite
def rules_for(draw: st.DrawFn, count: int) -> Rules:
    levels = st.lists(st.sampled_from([0, 300_000, 520_000, 900_000, PPM]), min_size=count, max_size=count)
    memory = np.array(
        draw(st.lists(st.sampled_from([200_000, 450_000, 450_000, 600_000]), min_size=count, max_size=count))
    )
    parts = draw(st.sampled_from([1, 1, 3]))
    test = draw(st.booleans())
    return Rules(
        draw(levels),
        [[int(m) for m in memory * (10 - 2 * i) // 10] for i in range(parts)],
        speeds=(PPM, 952_381, 909_091)[:parts],
        c=draw(st.sampled_from([0, 367_000, 500_000, 630_000, 990_000])),
        residents=2 if test else draw(st.integers(1, 4)),
        test=test,
        consolidate=draw(st.booleans()),
        by_service=draw(st.booleans()),
    )


@tried(29, 83, st.data())
def test_the_engine_agrees_with_the_plain_simulation_and_breaks_no_law(data: st.DataObject) -> None:
    jobs, cluster = data.draw(job_lists()), data.draw(clusters())
    rules = data.draw(rules_for(len(jobs)))
    outcome = run(jobs, cluster, rules)
    plain = simulate_plainly(jobs, cluster, rules)
    count = range(len(jobs))
    assert [int(v) for v in outcome.first_start_ms] == [plain.start.get(j, -1) for j in count]
    assert [int(v) for v in outcome.end_ms] == [plain.end.get(j, -1) for j in count]
    assert outcome.log is not None
    takes: dict[int, list[tuple[int, int]]] = {}
    for row in outcome.log[outcome.log["kind"] == 3]:
        takes.setdefault(int(row["job"]), []).append((int(row["node"]), int(row["gpu"])))
    assert takes == plain.places
    assert outcome.busy_milli_ms == plain.busy_ms * 1000 or len(cluster.change_ms)
    checks: dict[str, Any] = {"residents": max(rules.residents, 1), "preemptive": False}
    if len(rules.speeds) == 1:
        checks |= {"speed": speed_law(rules), "memory": [m // 1000 for m in rules.memory[0]]}
    assert audit(jobs, cluster, outcome.log, outcome, **checks) == []


@pytest.mark.parametrize("kind", [SjfFfs, SjfBsbf])
def test_the_benefit_falls_as_interference_grows(kind: Any) -> None:
    means = []
    for c in (0, 200_000, 500_000, 800_000):
        total = 0.0
        for seed in range(8):
            draws = np.random.default_rng(seed)
            rows = [
                (float(t), 1, float(d))
                for t, d in zip(draws.uniform(0, 200, 60), draws.exponential(50, 60), strict=True)
            ]
            rules = all_alike(60, u=900_000, c=c, test=kind.test)
            jobs = make_jobs(rows)
            total += float((run(jobs, make_cluster((4,)), rules).end_ms - jobs.submit_ms).mean())
        means.append(total)
    assert means == sorted(means)


# ---- policies and the bracket ----


def test_the_policies_read_the_models() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)], utilization=[0.333, float("nan")], milli=[1000, 250])
    mechanism = SjfBsbf(subbatch="4").mechanism(jobs, make_cluster((1,)), load_models(), 0)
    assert mechanism.utilization_ppm.tolist() == [330_000, 520_000]
    assert mechanism.memory_ppm.tolist() == [[450_000, 250_000], [320_000, 180_000], [250_000, 140_000]]
    assert mechanism.speeds_ppm == (1_000_000, 952_381, 909_091)
    assert (mechanism.strength_ppm, mechanism.residents, mechanism.test) == (500_000, 2, True)
    assert SjfFfs().mechanism(jobs, make_cluster((1,)), load_models(), 0).test is False


def test_the_bracket_varies_what_is_used() -> None:
    models = load_models()
    assert [p.label for p in points(models, ["D1", "M7", "M11"])] == []
    assert [p.label for p in points(models, ["D3"])] == ["as assumed", "sigma=0", "sigma=0.1"]
    network = ["as assumed", "spread=0.05", "spread=1.4", "links=slow", "links=fast", "sharing=duty"]
    assert [p.label for p in points(models, ["M4", "M36", "M38"])] == network
    found = {p.label: p.models for p in points(models, ["M9", "M40"])}
    assert list(found) == ["as assumed", "lost_work_s=600", "wake_s=60", "wake_s=900"]
    assert found["lost_work_s=600"].overhead.lost_work_s == 600
    assert found["wake_s=60"].switching.wake_s == 60
    assert found["as assumed"] is models
    *both, _, u_low, u_high = points(models, ["M1", "M2"])
    assert (u_low.label, u_high.models.interference.utilization) == ("u=0.3", 0.9)
    assert [(p.models.interference.c, p.models.memory.fraction) for p in both][::5] == [(0.367, 0.45), (0.63, 0.55)]


def test_a_headline_that_changes_sign_is_undecided() -> None:
    rows = [(float(10 * i), 1, 100.0) for i in range(20)]
    jobs, cluster = make_jobs(rows, utilization=0.95), make_cluster((4,))
    where = assign(jobs, cluster)

    def gain(models: Models) -> dict[str, float]:
        shared = simulate(jobs, cluster, where, SjfFfs().mechanism(jobs, cluster, models, 0))
        alone = simulate(jobs, cluster, where, SjfFfs(residents=1).mechanism(jobs, cluster, models, 0))
        return {"mean completion time [ms]": float((shared.end_ms - alone.end_ms).mean())}

    found = bracket(points(load_models(), ["M1"]), gain)[0]
    assert found.values["c=0.5 m=0.55"] == 0
    assert found.verdict in {"lower", "higher", "undecided"}
    assert len(found.lines()) == 10  # 6 pairs, 3 points beside them, the verdict
    assert Bracket("x", {"c=0.367": -1.0, "c=0.63": 2.0}).verdict == "undecided"
    assert Bracket("x", {"c=0.367": -1.0, "c=0.63": 0.0}).verdict == "lower"
    assert Bracket("x", {"sigma=0": 0.0}).lines() == ["sigma=0: x +0", "x: equal"]
