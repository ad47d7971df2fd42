"""Times between failures of nodes, and their laws: on paper, by other code, and on logs whose law is known."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from tests.characterize.asking import Asking
from tests.characterize.infinitehbd_by_hand import outages_by_hand
from tests.characterize.planted_faults import END, events_of, hour, job_over, renewals
from tests.effort import examples
from tracekit.characterize import answer_query, run_query
from tracekit.characterize.node_faults import exponential, gamma_rates, kaplan_meier, two_kinds, weibull
from tracekit.characterize.timelines.node_faults import MARGIN
from tracekit.fit.choice import Effort
from tracekit.fit.node_failures import fit_node_failures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def event(node: str, start: float, end: float | None, state: str = "down", cause: str | None = None) -> dict[str, Any]:
    return {"node_id": node, "start_time": hour(start), "end_time": hour(end), "state": state, "cause": cause}


def named(nodes: int) -> list[dict[str, Any]]:
    return [{"node_id": f"n{k}"} for k in range(nodes)]


EVENTS = [
    event("a", 10, 12, cause="fan"),
    event("a", 11, 13, "drained", "nic"),  # overlaps: one failure from 10 to 13, two causes
    event("a", 30, 31, cause="fan"),
    event("a", 40, 60, "maintenance"),
    event("a", 41, 42, cause="maintenance"),
    event("a", 43, 44, "drained"),  # for no cause that is known
    event("b", 70, 80, "degraded", "fan"),
    event("c", 50, None),
]


def test_times_between_failures_on_paper(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=job_over(100), node_events=EVENTS, nodes=[{"node_id": name} for name in "abc"])
    answer = run_query(trace, "failures/time_between")
    # a works 10 h, 17 h and 69 h until the end, b 100 h, c 50 h. Five at risk at 10 h, four at 17 h, three at 50 h:
    # 4/5, 3/5, 2/5 are left.
    assert answer.select(answer.columns[:8]).rows() == [
        ("all", 3, 2, 3, 246.0, 82.0, 10.0, 50.0),
        # a: 10, 18, 69; b and c 100: 4/5, then 3/5.
        ("fan", 3, 1, 2, 297.0, 148.5, 10.0, None),
        ("nic", 3, 1, 1, 11 + 87 + 200, 298.0, 11.0, None),
        ("unknown", 3, 1, 1, 250.0, 250.0, 50.0, None),
    ]
    assert answer["preferred"].to_list() == [None] * 4


def test_what_no_log_should_hold(make_trace: MakeTrace, golden: Golden) -> None:
    events = [event("a", 0, 1), event("a", 5, 4), event("b", 3, 3), event("elsewhere", 9, 10)]
    trace = make_trace(node_events=events, nodes=[{"node_id": "a"}, {"node_id": "b"}])
    answer = answer_query(trace, "failures/time_between")
    # a is down as the log begins, which tells nothing; its second event ends before it begins.
    assert answer.frame.row(0)[:6] == ("all", 3, 2, 2, 9 + 3 + 7 + 9.0, 14.0)
    golden(answer.notes)
    never = make_trace(node_events=[event("a", 0, 0)])
    assert run_query(never, "failures/time_between").row(0)[:8] == ("all", 1, 0, 0, 0.0, None, None, None)
    assert run_query(never, "failures/lemon_nodes").row(0)[3:] == (0, 0.0, *[None] * 7)
    only = make_trace(node_events=[event("a", 0, 5, "maintenance")], jobs=job_over(10))
    assert run_query(only, "failures/time_between").row(0)[:6] == ("all", 1, 0, 0, 10.0, None)
    assert run_query(only, "failures/lemon_nodes").row(0)[3:6] == (0, 10.0, 0.0)


EVENT = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 20)),
    st.sampled_from(["down", "drained", "maintenance", "degraded"]),
    st.sampled_from(["fan", "nic", "unknown", None, "maintenance"]),
)


def hours_one_by_one(spans: list[tuple[int, int | None]], end: int) -> tuple[int, int, int]:
    """Return failures, hours worked, and failures in the first moment, by a walk through the hours of one node."""
    worked = failed = first = 0
    away = {h for s, e in spans for h in range(s, end + 1 if e is None else e + 1)}  # touching spans join
    starts = {s for s, _ in spans}
    inside = {h for s, e in spans for h in range(s, end if e is None else e)}
    for h in range(end + 1):
        if h < end:
            worked += h not in inside
        joined = any(s < h and (e is None or e >= h) for s, e in spans)
        if h in starts and not joined:
            failed, first = (failed + (h > 0), first + (h == 0))
    assert away or not failed
    return failed, worked, first


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EVENT, min_size=1, max_size=12, unique_by=lambda e: (e[0], e[1], e[3])))
def test_a_walk_through_the_hours_agrees(make_trace: MakeTrace, drawn: list[Any]) -> None:
    times = [(n, s, None if w is None else s + w, state, cause) for n, s, w, state, cause in drawn]
    trace = make_trace(jobs=job_over(70), node_events=[event(*t) for t in times], nodes=[{"node_id": n} for n in "abc"])
    failures = [
        t for t in times
        if t[4] != "maintenance" and (t[3] == "down" or (t[3] == "drained" and t[4] not in (None, "unknown")))
    ]  # fmt: skip
    ask = Asking(trace)
    for row in ask("failures/time_between").to_dicts():
        own = [t for t in failures if row["cause"] in ("all", t[4] or "unknown")]
        walked = [hours_one_by_one([(s, e) for n, s, e, *_ in own if n == name], 70) for name in "abc"]
        assert row["failures"] == sum(failed for failed, *_ in walked)
        assert row["node_hours"] == pytest.approx(sum(worked for _, worked, _ in walked))
        assert row["failed_nodes"] == sum(failed > 0 for failed, *_ in walked)
    found = {row["node_id"]: row["failures"] for row in ask("failures/lemon_nodes").to_dicts()}
    assert found == {name: hours_one_by_one([(s, e) for n, s, e, *_ in failures if n == name], 70)[0] for name in "abc"}


def test_the_fit_takes_the_same_failures(make_trace: MakeTrace) -> None:
    trace = make_trace(jobs=job_over(100), node_events=EVENTS, nodes=[{"node_id": name} for name in "abc"])
    fitted = fit_node_failures(trace, 1, Effort(replicates=0))["groups"]
    ours = run_query(trace, "failures/time_between").to_dicts()
    assert fitted[0]["mean_until_failure_s"] == pytest.approx(ours[0]["mean_h"] * 3600)
    assert fitted[0]["node_days"] == pytest.approx(ours[0]["node_hours"] / 24)


def censored(rng: np.random.Generator, number: int = 300) -> tuple[Any, Any]:
    times, limits = 50 * rng.weibull(0.7, number), rng.uniform(5, 200, number)
    return np.minimum(times, limits), times <= limits


def test_laws_agree_with_scipy() -> None:
    hours, failed = censored(np.random.default_rng(3))
    data: Any = stats.CensoredData(uncensored=hours[failed], right=hours[~failed])
    c, _, scale = stats.weibull_min.fit(data, floc=0)

    def told(law: Any) -> float:
        return float(law.logpdf(hours[failed]).sum() + law.logsf(hours[~failed]).sum())

    found = weibull(hours, failed)
    assert (found.parameters["shape"], found.parameters["scale"]) == pytest.approx((c, scale), rel=1e-3)
    assert found.log_likelihood == pytest.approx(told(stats.weibull_min(c, scale=scale)), abs=1e-4)
    for end in ("shape_low", "shape_high"):
        shape = found.parameters[end]
        best = -optimize.minimize_scalar(
            lambda log, shape=shape: -told(stats.weibull_min(shape, scale=scale * np.exp(log))), bounds=(-1, 1)
        ).fun
        assert 2 * (found.log_likelihood - best) == pytest.approx(stats.chi2(1).ppf(0.95), abs=1e-3)
    constant = exponential(hours, failed)
    assert constant.log_likelihood == pytest.approx(told(stats.expon(scale=1 / constant.parameters["rate"])))
    survival = stats.ecdf(data).sf
    quantiles = kaplan_meier(hours, failed, (0.1, 0.5, 0.99))
    for share, ours in zip((0.1, 0.5, 0.99), quantiles, strict=True):
        over = survival.quantiles[np.asarray(survival.probabilities) <= 1 - share + 1e-12]
        assert ours == (pytest.approx(over[0]) if over.size else None)


def test_gamma_rates_give_negative_binomial_counts() -> None:
    rng = np.random.default_rng(5)
    hours = rng.uniform(50, 150, 200)
    number = rng.poisson(hours * rng.gamma(0.8, 0.02 / 0.8, 200))
    law = gamma_rates(number, hours)

    def negative(shape: float, rate: float) -> float:
        # Given the number, all orders and times are alike: k! / T^k of the density is the number's chance.
        logs = stats.nbinom(shape, shape / (shape + rate * hours)).logpmf(number)
        return float((logs + special.gammaln(number + 1) - number * np.log(hours)).sum())

    shape, rate = law.parameters["shape"], law.parameters["rate"]
    assert law.log_likelihood == pytest.approx(negative(shape, rate))
    for a, m in itertools.product((0.8, 1, 1.25), repeat=2):
        assert negative(shape * a, rate * m) <= law.log_likelihood + 1e-6


def test_two_kinds_are_at_the_top_of_their_likelihood() -> None:
    rng = np.random.default_rng(6)
    hours = np.full(300, 100.0)
    number = rng.poisson(hours * np.where(np.arange(300) < 30, 0.1, 0.01))
    law = two_kinds(number, hours)
    p = law.parameters

    def told(share: float, bad: float, good: float) -> float:
        parts = [w * r**number * np.exp(-r * hours) for w, r in ((share, bad), (1 - share, good))]
        return float(np.log(parts[0] + parts[1]).sum())

    assert law.log_likelihood == pytest.approx(told(p["bad_share"], p["bad_rate"], p["good_rate"]))
    for a, b, c in itertools.product((0.97, 1, 1.03), repeat=3):
        assert told(p["bad_share"] * a, p["bad_rate"] * b, p["good_rate"] * c) <= law.log_likelihood + 1e-5
    assert (p["bad_share"], p["bad_rate"], p["good_rate"]) == pytest.approx((0.1, 0.1, 0.01), rel=0.35)


BAD = 0.1
"""Share of lemons in the planted logs; they fail ten times as often."""

PLANTED: dict[str, Callable[[np.random.Generator, int], float]] = {
    "exponential": lambda rng, _: rng.exponential(2000),
    "weibull": lambda rng, _: 1200 * rng.weibull(0.6),
    "two_kinds": lambda rng, node: rng.exponential(400 if node < 100 * BAD else 4000),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_laws_are_distinguished(make_trace: MakeTrace, kind: str) -> None:
    times = renewals(100, PLANTED[kind], np.random.default_rng(11))
    trace = make_trace(jobs=job_over(), node_events=events_of(times), nodes=named(100))
    row = run_query(trace, "failures/time_between").to_dicts()[0]
    assert row["preferred"] == kind
    low, high = row["weibull_shape_low"], row["weibull_shape_high"]
    if kind == "weibull":
        assert low <= 0.6 <= high
    elif kind == "exponential":
        assert low <= 1 <= high
        assert row["rate_spread"] < 0.3
    else:
        # The shape alone would take the lemons for nodes that fail soon after they are back.
        assert high < 1
        assert row["bad_share"] == pytest.approx(BAD, abs=0.05)
        assert row["bad_mean_h"] == pytest.approx(400, rel=0.25)
        assert row["good_mean_h"] == pytest.approx(4000, rel=0.25)
    lemons = {r["node_id"] for r in run_query(trace, "failures/lemon_nodes").to_dicts() if r["lemon"]}
    bad = {f"n{k}" for k in range(int(100 * BAD))}
    assert lemons == (bad if kind == "two_kinds" else set())


@pytest.mark.parametrize("worlds", [60, pytest.param(300, marks=pytest.mark.thorough)])
def test_an_exponential_world_is_seldom_taken_for_another(worlds: int) -> None:
    rng, wrong = np.random.default_rng(12), 0
    for _ in range(worlds):
        number = rng.poisson(3.0, 60)
        # Given their number, failures of a constant rate are uniform; repairs take no time here.
        gaps = [np.diff([0, *np.sort(rng.uniform(0, END, k)), END]) for k in number]
        hours = np.concatenate(gaps)
        failed = np.concatenate([np.arange(k + 1) < k for k in number])
        worked = np.full(60, END)
        others = (weibull(hours, failed), gamma_rates(number, worked), two_kinds(number, worked))
        wrong += min(law.aic for law in others) <= exponential(hours, failed).aic - MARGIN
    # By the chi-squared limits: 1.4 % for Weibull, 0.7 % for gamma, at most 1.8 % for two kinds, so that 4 % at most.
    low, high = stats.binom(worlds, 0.005).ppf(0.01), stats.binom(worlds, 0.04).ppf(0.99)
    assert low <= wrong <= high


def test_shrunk_rates_are_those_of_the_gamma_distribution(make_trace: MakeTrace) -> None:
    times = renewals(60, PLANTED["two_kinds"], np.random.default_rng(13))
    trace = make_trace(jobs=job_over(), node_events=events_of(times), nodes=named(60))
    rows = run_query(trace, "failures/lemon_nodes", times=3, least=0.5).to_dicts()
    number, hours = (np.array([r[name] for r in rows]) for name in ("failures", "worked_h"))
    law = gamma_rates(number, hours).parameters
    for row in rows:
        own = stats.gamma(law["shape"] + row["failures"], scale=1 / (law["shape"] / law["rate"] + row["worked_h"]))
        bar = 3 * number.sum() / hours.sum()
        assert row["shrunk_per_1000_d"] == pytest.approx(own.mean() * 24_000, rel=1e-5)
        assert (row["shrunk_low"], row["shrunk_high"]) == pytest.approx(own.interval(0.95) * np.array(24_000), rel=1e-5)
        assert row["probability"] == pytest.approx(own.sf(bar), rel=1e-4, abs=1e-12)
        assert row["lemon"] == (row["probability"] >= 0.5)
        assert row["expected_failures"] == pytest.approx(row["worked_h"] * bar / 3)
    assert sum(r["expected_failures"] for r in rows) == pytest.approx(number.sum())


@pytest.mark.parametrize("worlds", [4, pytest.param(12, marks=pytest.mark.thorough)])
def test_as_many_nodes_are_lemons_as_the_probabilities_say(make_trace: MakeTrace, worlds: int) -> None:
    rng = np.random.default_rng(14)
    above = expected = spread = 0.0
    named_right, named_wrong = 0, 0
    for _ in range(worlds):
        rates = rng.gamma(0.5, 1 / 500, 200)
        times = renewals(200, lambda r, node, own=rates: r.exponential(1 / own[node]), rng)  # type: ignore[misc]
        trace = make_trace(jobs=job_over(), node_events=events_of(times), nodes=named(200))
        for row in run_query(trace, "failures/lemon_nodes").to_dicts():
            bad = rates[int(row["node_id"][1:])] > 2 * 0.5 / 500
            above, expected = above + bad, expected + row["probability"]
            spread += row["probability"] * (1 - row["probability"])
            named_right, named_wrong = named_right + (bad and row["lemon"]), named_wrong + (row["lemon"] and not bad)
    # The cluster's own rate is known to some 10 % in each world, which moves who is above it.
    assert above == pytest.approx(expected, abs=3 * spread**0.5 + 0.1 * expected)
    assert named_right > 8 * worlds
    assert named_wrong <= stats.binom(named_right + named_wrong, 0.05).ppf(0.999)


def test_the_release_recomputed_by_hand(real_data: Callable[[str], Path], released_servers: Trace) -> None:
    row = run_query(released_servers, "failures/time_between").to_dicts()[0]
    outages, begin, end = outages_by_hand(real_data("infinitehbd"))
    failures = sum(since > begin for own in outages.values() for since, _ in own)
    away = sum(until - since for own in outages.values() for since, until in own)
    assert (row["nodes"], row["failures"]) == (400, failures)
    assert row["node_hours"] == pytest.approx((400 * (end - begin) - away) * 24, rel=1e-6)
    gaps = [s - u for own in outages.values() for (_, u), (s, _) in itertools.pairwise([(begin, begin), *own]) if s > u]
    left = [end - own[-1][1] for own in outages.values() if own[-1][1] < end]
    cut = left + [end - begin] * (400 - len(outages))
    survival = stats.ecdf(stats.CensoredData(uncensored=gaps, right=cut)).sf
    for name, share in (("p10_h", 0.9), ("p50_h", 0.5)):
        over = survival.quantiles[np.asarray(survival.probabilities) <= share]
        assert row[name] == pytest.approx(over[0] * 24, abs=0.01)
    assert row["preferred"] == "weibull"
