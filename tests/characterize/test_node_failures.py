"""The test that tells a bad node from bad luck keeps its promises."""

from __future__ import annotations

import random
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import hypergeom

from tests.guidelines.planted import Log
from tracekit.characterize import run_query
from tracekit.characterize.timelines.node_failures import (
    HourlyFailures,
    StratifiedFailures,
    adjust,
    excess_among_trials,
    excess_over_time,
    find_suspects,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

# Attempts of two kinds on four nodes, and how many of each kind failed.
ATTEMPTS = np.array([[3, 2], [4, 0], [1, 3], [0, 1]])
FAILED = (3, 2)


def excess_among_attempts(failures: np.ndarray[Any, Any], attempts: np.ndarray[Any, Any]) -> list[float]:
    """Return the p-value of each node, given a row a node and a column a kind."""
    failed, tried = failures.sum(axis=0), attempts.sum(axis=0)
    pairs = zip(failures.sum(axis=1).tolist(), attempts, strict=True)
    return [excess_among_trials(found, own, failed, tried) for found, own in pairs]


def placements_of(failed: int, attempts: np.ndarray[Any, Any]) -> Iterator[list[int]]:
    """Give each way in which that many of the attempts can have failed, as failures by node."""
    owners = [node for node, n in enumerate(attempts) for _ in range(n)]
    for chosen in combinations(owners, failed):
        yield [chosen.count(node) for node in range(len(attempts))]


def all_outcomes() -> list[np.ndarray[Any, Any]]:
    """Return every outcome with these totals; under equal risk they are equally likely."""
    first = list(placements_of(FAILED[0], ATTEMPTS[:, 0]))
    second = list(placements_of(FAILED[1], ATTEMPTS[:, 1]))
    return [np.array([a, b]).T for a in first for b in second]


def test_a_p_value_is_the_share_of_outcomes_with_at_least_so_many_failures() -> None:
    outcomes = all_outcomes()
    totals = np.array([o.sum(axis=1) for o in outcomes])
    for outcome in outcomes[::7]:
        share = (totals >= outcome.sum(axis=1)).mean(axis=0)
        assert excess_among_attempts(outcome, ATTEMPTS) == pytest.approx(share)


@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, 0.3])
def test_under_equal_risk_a_good_node_is_named_no_more_often_than_stated(level: float) -> None:
    p_values = np.array([excess_among_attempts(o, ATTEMPTS) for o in all_outcomes()])
    assert (p_values <= level).mean(axis=0).max() <= level
    named = [(adjust(p) <= level).any() for p in p_values]
    assert np.mean(named) <= level


def test_rates_over_time_follow_the_binomial_of_the_hours() -> None:
    # 5 failures, the first node has a quarter of the hours: P(X >= 3) = 10 * 9 / 1024 + 5 * 3 / 1024 + 1 / 1024.
    found = excess_over_time(np.array([3, 2]), np.array([1.0, 3.0]), np.array([5, 5]), np.array([4.0, 4.0]))
    assert found[0] == pytest.approx(106 / 1024)
    # P(Y >= 2) = 1 - (1 + 5 * 3) / 1024 for Y binomial(5, 3/4).
    assert found[1] == pytest.approx(1 - 16 / 1024)


def test_a_failure_where_no_time_was_spent_cannot_be_chance() -> None:
    both = np.array([1, 1]), np.array([5.0, 5.0])
    assert excess_over_time(np.array([1, 0]), np.array([0.0, 5.0]), *both).tolist() == [0.0, 1.0]


def test_holm_multiplies_and_keeps_the_order() -> None:
    assert adjust(np.array([0.04, 0.01, 0.02, 0.9])).tolist() == pytest.approx([0.08, 0.04, 0.06, 0.9])
    assert adjust(np.array([0.5, 0.5])).tolist() == [1.0, 1.0]
    assert adjust(np.array([])).tolist() == []


def test_many_attempts_give_the_tail_of_the_hypergeometric() -> None:
    rng = np.random.default_rng(5)
    attempts = rng.integers(500, 3000, size=(40, 1))
    failures = rng.binomial(attempts, 0.2)
    failures[0] = attempts[0] // 3
    expected = hypergeom.sf(failures[:, 0] - 1, attempts.sum(), failures.sum(), attempts[:, 0])
    assert excess_among_attempts(failures, attempts) == pytest.approx(expected, rel=1e-9, abs=1e-38)


def rows_of(*facts: tuple[int, int, str | None, int, int]) -> StratifiedFailures:
    """Return failures of (node, stratum, user, trials, failed trials)."""
    schema = {"node": pl.Int64, "stratum": pl.Int64, "user": pl.String, "tried": pl.Int64, "failed": pl.Int64}
    frame = pl.DataFrame(facts, schema=schema, orient="row").sort("node", "stratum", "user")
    return StratifiedFailures(frame["node"].to_numpy(), frame.drop("node"), int(frame["node"].max()) + 1)  # type: ignore[arg-type]  # of integers


def test_suspects_are_left_out_of_what_is_expected_until_there_are_no_more() -> None:
    # Two users of 50 trials each on eight nodes; 10 % fail, on nodes 0 and 1 nearly all, on node 2 three of ten.
    failed = {0: 45, 1: 45, 2: 15}
    facts = [(node, k, "uv"[k], 50, failed.get(node, 5)) for node in range(8) for k in (0, 1)]
    found = find_suspects(rows_of(*facts))
    assert found.suspect.tolist() == [True, True, True, *[False] * 5]
    # The five others fail in 50 of 500 trials: ten of a node's hundred, whatever the three bad ones do.
    assert found.expected == pytest.approx(np.full(8, 10.0))
    # Against all others node 2 is not suspect: its 30 failures are fewer than the 32.5 of the mean node.
    alone = rows_of(*facts).p_values(np.ones(8, dtype=bool))
    assert alone[2] > 0.7
    # It stands against the five good ones alone: 30 of 80 failures among 100 of 600 trials, in two equal strata.
    part = hypergeom(300, 40, 50)
    chance = sum(part.pmf(k) * part.sf(30 - k - 1) for k in range(41))
    assert found.p_values[2] == pytest.approx(chance, rel=1e-9)


def test_nodes_by_the_hour_are_expected_to_fail_like_those_that_are_not_suspect() -> None:
    found = find_suspects(HourlyFailures(np.array([60, 4, 6, 5]), np.array([100.0, 100, 100, 200])))
    assert found.suspect.tolist() == [True, False, False, False]
    assert found.expected == pytest.approx([3.75, 3.75, 3.75, 7.5])
    assert np.isnan(found.without_one_user).all()


def test_where_nobody_else_ran_nothing_is_expected_but_what_happened() -> None:
    # Node 0 alone has stratum 2, all of it failed.
    facts = [(node, k, "uv"[k], 50, 45 if node == 0 else 5) for node in range(4) for k in (0, 1)]
    found = find_suspects(rows_of(*facts, (0, 2, "w", 30, 30)))
    assert found.suspect.tolist() == [True, False, False, False]
    assert found.expected == pytest.approx([10.0 + 30, 10, 10, 10])


def test_what_all_fail_or_is_all_ones_own_tells_nothing() -> None:
    drawn, failed, tried = np.array([2, 5, 3]), np.array([2, 9, 4]), np.array([4, 9, 3 + 5])
    alone = excess_among_trials(3, drawn[[0, 2]], failed[[0, 2]], tried[[0, 2]])
    assert excess_among_trials(3 + 5, drawn, failed, tried) == pytest.approx(alone)
    own = np.array([4])
    assert excess_among_trials(3, own, np.array([3]), own) == 1.0


def test_without_the_user_who_fails_most_nobody_is_left() -> None:
    facts = [(node, 0, user, 50, 40 if (node, user) == (0, "u") else 5) for node in range(6) for user in "uv"]
    found = find_suspects(rows_of(*facts))
    assert found.adjusted[0] < 1e-6
    # Without u all nodes have 5 failures of 50.
    assert found.without_one_user[0] == 1.0
    assert not found.suspect.any()
    unnamed = find_suspects(rows_of(*[(*fact[:2], None, *fact[3:]) for fact in facts if fact[2] == "u"]))
    assert np.isnan(unnamed.without_one_user).all()
    assert unnamed.suspect.tolist() == [True] + [False] * 5


def trial_log(*jobs: tuple[str, float, str, str | None, bool]) -> dict[str, list[dict[str, Any]]]:
    """Return tables of jobs of (node, hour of start, user, name, whether it failed)."""
    log = Log()
    for node, hour, user, name, failed in jobs:
        log.job(hour * 3600, 60, node=node, user=user, name=name, status="failed" if failed else "completed")
    return log.tables


def trials_by_node(trace: Trace) -> dict[str, tuple[int, int]]:
    frame = run_query(trace, "failures/by_node").sort("node_id")
    return {row["node_id"]: (row["trials"], row["failed_trials"]) for row in frame.to_dicts()}


def test_a_session_of_a_user_is_one_trial_a_node(make_trace: MakeTrace) -> None:
    # 40 jobs within minutes on a, and one on b: a trial each. An hour and a second later begins the next session.
    burst = [("a", k / 100, "u", None, True) for k in range(40)] + [("b", 0.4, "u", None, True)]
    later = [("a", 1.4 + 1 / 3600, "u", None, False), ("a", 2.4 + 1 / 3600, "u", None, True)]
    # Others make the user one of many trials.
    more = [("c", 100 + 2 * k, "u", None, False) for k in range(10)]
    trace = make_trace(**trial_log(*burst, *later, *more))
    assert trials_by_node(trace) == {"a": (2, 1), "b": (1, 1), "c": (10, 0)}


def test_a_session_ends_with_the_day(make_trace: MakeTrace) -> None:
    jobs = [("a", 20 + k / 2, "u", None, k >= 8) for k in range(16)]
    more = [("c", 100 + 2 * k, "u", None, False) for k in range(10)]
    assert trials_by_node(make_trace(**trial_log(*jobs, *more)))["a"] == (2, 1)


def test_a_job_tried_again_is_one_trial_a_node(make_trace: MakeTrace) -> None:
    log = Log()
    job = log.job(0, 7200, attempts=("failed", "failed", "failed", "completed"))
    for attempt, node in enumerate("aaab"):
        log.hold(job, node, [0], attempt=attempt)
    for k in range(10):
        log.job(100 * 3600 + k * 7200, 60, node="c")
    assert trials_by_node(make_trace(**log.tables)) == {"a": (1, 1), "b": (1, 0), "c": (10, 0)}


def test_what_has_few_trials_counts_once_a_node(make_trace: MakeTrace) -> None:
    # u submits 'often' ten times and 'seldom' nine times: 'often' is compared with itself, 'seldom' counts once a node.
    often = [("ab"[k % 2], 2 * k, "u", "often", False) for k in range(10)]
    seldom = [("ab"[k % 2], 100 + 2 * k, "u", "seldom", True) for k in range(9)]
    # v has nine trials on a: one, among those who seldom submit.
    few = [("a", 200 + 2 * k, "v", None, True) for k in range(9)]
    trace = make_trace(**trial_log(*often, *seldom, *few))
    assert trials_by_node(trace) == {"a": (5 + 1 + 1, 2), "b": (5 + 1, 1)}


def test_a_user_whose_jobs_all_fail_makes_no_node_suspect(make_trace: MakeTrace) -> None:
    good = [("abcd"[k % 4], 3 * k, "u", None, k % 40 < 4) for k in range(400)]
    bad = [("a", 3 * k, user, None, True) for user in "vwx" for k in range(60)]
    fair = [("bcd"[k % 3], 3 * k + 1, user, None, True) for user in "vwx" for k in range(30)]
    frame = run_query(make_trace(**trial_log(*good, *bad, *fair)), "failures/by_node")
    assert not frame["suspect"].any()
    assert frame["p_value"].min() > 0.3  # type: ignore[operator]  # there are nodes
    # By size class alone it would be.
    sized = run_query(make_trace(**trial_log(*good, *bad, *fair)), "failures/by_node", exposure="sized_attempts")
    assert sized.filter("suspect")["node_id"].to_list() == ["a"]


def test_the_bad_node_stands_out_and_no_other_does(make_trace: MakeTrace) -> None:
    rng = random.Random(11)
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for number in range(3000):
        node, gpus = f"n{number % 40}", rng.choice([1, 8])
        # Large jobs fail more often everywhere; n7 fails every other attempt.
        risk = 0.5 if node == "n7" else 0.05 * gpus ** (1 / 3)
        status = "failed" if rng.random() < risk else "completed"
        name = f"j{number}"
        tables["jobs"].append({"job_id": name, "gpu_count": gpus, "status": status, "user": f"u{rng.randrange(9)}"})
        tables["attempts"].append({"job_id": name, "attempt": 0, "run_s": rng.randint(1, 9999), "status": status})
        tables["placements"].append({"job_id": name, "attempt": 0, "node_id": node})
    frame = run_query(make_trace(**tables), "failures/by_node")
    assert frame["node_id"][0] == "n7"
    assert frame["adjusted_p_value"][0] < 1e-6
    assert frame["adjusted_p_value"][1] > 0.05
    assert frame.filter("suspect")["node_id"].to_list() == ["n7"]
