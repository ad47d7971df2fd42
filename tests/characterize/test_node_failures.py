"""The test that tells a bad node from bad luck keeps its promises."""

from __future__ import annotations

import random
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tracekit.characterize import run_query
from tracekit.characterize.timelines.node_failures import adjust, excess_among_attempts, excess_over_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

# Attempts of two kinds on four nodes, and how many of each kind failed.
ATTEMPTS = np.array([[3, 2], [4, 0], [1, 3], [0, 1]])
FAILED = (3, 2)


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
    found = excess_over_time(np.array([3, 2]), np.array([1.0, 3.0]))
    assert found[0] == pytest.approx(106 / 1024)
    # P(Y >= 2) = 1 - (1 + 5 * 3) / 1024 for Y binomial(5, 3/4).
    assert found[1] == pytest.approx(1 - 16 / 1024)


def test_a_failure_where_no_time_was_spent_cannot_be_chance() -> None:
    assert excess_over_time(np.array([1, 0]), np.array([0.0, 5.0])).tolist() == [0.0, 1.0]


def test_holm_multiplies_and_keeps_the_order() -> None:
    assert adjust(np.array([0.04, 0.01, 0.02, 0.9])).tolist() == pytest.approx([0.08, 0.04, 0.06, 0.9])
    assert adjust(np.array([0.5, 0.5])).tolist() == [1.0, 1.0]
    assert adjust(np.array([])).tolist() == []


def test_many_attempts_give_the_tail_of_the_hypergeometric() -> None:
    from scipy.stats import hypergeom

    rng = np.random.default_rng(5)
    attempts = rng.integers(500, 3000, size=(40, 1))
    failures = rng.binomial(attempts, 0.2)
    failures[0] = attempts[0] // 3
    expected = hypergeom.sf(failures[:, 0] - 1, attempts.sum(), failures.sum(), attempts[:, 0])
    assert excess_among_attempts(failures, attempts) == pytest.approx(expected, rel=1e-9, abs=1e-38)


def test_the_bad_node_stands_out_and_no_other_does(make_trace: MakeTrace) -> None:
    rng = random.Random(11)
    tables: dict[str, list[dict[str, Any]]] = {"jobs": [], "attempts": [], "placements": []}
    for number in range(3000):
        node, gpus = f"n{number % 40}", rng.choice([1, 8])
        # Large jobs fail more often everywhere; n7 fails every other attempt.
        risk = 0.5 if node == "n7" else 0.05 * gpus ** (1 / 3)
        status = "failed" if rng.random() < risk else "completed"
        name = f"j{number}"
        tables["jobs"].append({"job_id": name, "gpu_count": gpus, "status": status})
        tables["attempts"].append({"job_id": name, "attempt": 0, "run_s": rng.randint(1, 9999), "status": status})
        tables["placements"].append({"job_id": name, "attempt": 0, "node_id": node})
    frame = run_query(make_trace(**tables), "failures/by_node")
    assert frame["node_id"][0] == "n7"
    assert frame["adjusted_p_value"][0] < 1e-6
    assert frame["adjusted_p_value"][1] > 0.05
