"""Mean response times of long random runs agree with queueing theory.

Each run is seeded. Jobs after a warm-up are cut into 30 batches in a row, long against the time over which waits depend
on each other, so that the batch means are almost independent; the 99 % confidence interval of their mean, by Student's
t with 29 degrees of freedom, has to hold the value of theory. So that the test means something, the interval must also
be narrow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival, shortest_left
from tracekit.replay.mechanisms import Ordered, Plan, Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism
    from tracekit.replay.planning.view import View

BATCHES = 30
T_QUANTILE = 2.756
"""The 99.5th percentile of Student's t with 29 degrees of freedom."""
MEAN_S = 100.0
"""Mean run time; times are whole milliseconds, so that rounding is a matter of 10^-5 [s]."""

FIFO = Ordered(by_arrival, drift="none", by_arrival=True)
SRTF = Ordered(shortest_left, scan="skip", preemptive=True, drift="time")


def poisson_jobs(run_s: NDArray[np.float64], per_s: float, seed: int) -> Jobs:
    """One-GPU jobs of these run times that come as a Poisson process [jobs/s]."""
    gaps = np.random.default_rng((seed, 1)).exponential(1 / per_s, len(run_s))
    return make_jobs([(t, 1, r) for t, r in zip(np.cumsum(gaps).tolist(), run_s.tolist(), strict=True)])


def exponential(count: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng((seed, 0)).exponential(MEAN_S, count)


def two_sizes(count: int, seed: int) -> NDArray[np.float64]:
    """Four jobs of 40 s for one of 340 s: mean 100 s, squared coefficient of variation 1.44."""
    return np.random.default_rng((seed, 0)).choice([40.0, 340.0], count, p=[0.8, 0.2])


def responses_s(jobs: Jobs, gpus: int, mechanism: Mechanism) -> NDArray[np.float64]:
    cluster = make_cluster((gpus,))
    outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism)
    assert (outcome.end_ms >= 0).all()
    return np.asarray((outcome.end_ms - jobs.submit_ms) / 1000)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and half the width of its 99 % confidence interval, by batch means after a warm-up of a tenth."""
    kept = values[len(values) // 10 :]
    means = kept[: len(kept) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    return float(means.mean()), float(T_QUANTILE * means.std(ddof=1) / math.sqrt(BATCHES))


def agrees(values: NDArray[np.float64], theory: float, narrow: float = 0.05) -> None:
    mean, half = interval(values)
    assert half < narrow * theory
    assert abs(mean - theory) <= half, (mean, half, theory)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that a job of an M/M/c queue has to wait (Erlang 1917), from Erlang's B by its recursion.

    B(0) = 1, B(k) = a B(k-1) / (k + a B(k-1)), C = B / (1 - (a / c) (1 - B)); a is the offered load in servers.
    """
    lost = 1.0
    for k in range(1, servers + 1):
        lost = offered * lost / (k + offered * lost)
    return lost / (1 - offered / servers * (1 - lost))


def response_mmc(servers: int, load: float) -> float:
    """Mean response time of M/M/c: 1/mu + C(c, a) / (c mu - lambda) [s]; Kleinrock, Queueing Systems I (1975), 3.5."""
    return MEAN_S * (1 + erlang_c(servers, servers * load) / (servers * (1 - load)))


def response_mg1(load: float, squared_variation: float) -> float:
    """Mean response time of M/G/1 in order of arrival [s]: S + rho S (1 + c2) / (2 (1 - rho)).

    The formula of Pollaczek (1930) and Khinchine (1932); c2 is the squared coefficient of variation of run times.
    """
    return MEAN_S * (1 + load * (1 + squared_variation) / (2 * (1 - load)))


def response_srpt(load: float) -> float:
    """Mean response time of M/M/1 under shortest remaining time first [s], integrated by the trapezoidal rule.

    Schrage and Miller, "The queue M/G/1 with the shortest remaining processing time discipline" (Operations Research
    14, 1966). For a job of size x, with F the distribution and rho(x) = lambda * integral of t dF(t) up to x:

        E[T(x)] = lambda (integral of t^2 dF(t) up to x + x^2 (1 - F(x))) / (2 (1 - rho(x))^2)
                  + integral of dt / (1 - rho(t)) from 0 to x
    """
    # In units of the mean run time; a job above 40 of them is one in 10^17.
    x = np.linspace(0, 40, 400_001)
    density = np.exp(-x)
    below = load * (1 - (1 + x) * density)
    second = 2 - (x * x + 2 * x + 2) * density
    waits = load * (second + x * x * density) / (2 * (1 - below) ** 2)
    inverse = 1 / (1 - below)
    serves = np.concatenate([[0.0], np.cumsum((inverse[1:] + inverse[:-1]) / 2 * np.diff(x))])
    return MEAN_S * float(np.trapezoid((waits + serves) * density, x))


THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize(
    ("gpus", "load"), [(4, 0.8), *(pytest.param(*case, marks=THOROUGH) for case in ((1, 0.5), (1, 0.8), (16, 0.9)))]
)
def test_first_in_first_out_is_the_queue_of_erlang(gpus: int, load: float) -> None:
    jobs = poisson_jobs(exponential(500_000, 1), gpus * load / MEAN_S, 1)
    theory = response_mmc(gpus, load)
    if gpus == 1:
        assert theory == pytest.approx(MEAN_S / (1 - load))
    agrees(responses_s(jobs, gpus, FIFO), theory)


@pytest.mark.parametrize(("squared_variation", "load"), [pytest.param(0.0, 0.8, marks=THOROUGH), (1.44, 0.5)])
def test_first_in_first_out_is_the_formula_of_pollaczek_and_khinchine(squared_variation: float, load: float) -> None:
    run_s = two_sizes(300_000, 2) if squared_variation else np.full(300_000, MEAN_S)
    agrees(responses_s(poisson_jobs(run_s, load / MEAN_S, 2), 1, FIFO), response_mg1(load, squared_variation))


@pytest.mark.parametrize("load", [0.5, pytest.param(0.8, marks=THOROUGH)])
def test_shortest_remaining_time_first_is_the_formula_of_schrage_and_miller(load: float) -> None:
    jobs = poisson_jobs(exponential(300_000, 3), load / MEAN_S, 3)
    theory = response_srpt(load)
    assert theory < response_mmc(1, load)
    agrees(responses_s(jobs, 1, SRTF), theory)


def share_equally(view: View) -> Plan:
    """Every job holds one of many GPUs, which together are as fast as one."""
    count = len(view.job)
    return Plan(view.job, np.ones(count, np.int64), rate=np.full(count, 1_000_000 // max(count, 1)))


@pytest.mark.parametrize("sizes", ["two", pytest.param("exponential", marks=THOROUGH)])
def test_equal_sharing_is_processor_sharing_whatever_the_sizes(sizes: str) -> None:
    """M/G/1-PS: E[T(x)] = x / (1 - rho) for any distribution of sizes.

    Sakata, Noguchi and Oizumi (1969), Kleinrock, Queueing Systems II (1976), 4.4: the mean depends on the sizes by
    their mean only.
    """
    load = 0.5
    run_s = two_sizes(15_000, 4) if sizes == "two" else exponential(15_000, 4)
    jobs = poisson_jobs(run_s, load / MEAN_S, 4)
    found = responses_s(jobs, 128, Planner(share_equally, fit="count"))
    agrees(found, MEAN_S / (1 - load), narrow=0.1)
    # Short jobs are slowed as much as long ones.
    for part in (run_s < MEAN_S, run_s >= MEAN_S):
        agrees(found[part] / run_s[part], 1 / (1 - load), narrow=0.1)
