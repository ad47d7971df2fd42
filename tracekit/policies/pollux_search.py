"""The fitness of Pollux, a power mean of speedups, and the genetic search for the division in which it is largest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.divisions import Bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["evolve", "power_mean", "worths"]

_NOTHING = 1e-3
"""Speedup of a job without GPUs, in place of 0."""


def worths(
    gpus: NDArray[np.int64], rows: NDArray[Any], speed: NDArray[np.float64], power: float
) -> NDArray[np.float64]:
    """Return what each job adds to the mean in each of several divisions: numbers that rise with speedups.

    Parameters
    ----------
    gpus : array (m, k)
        Divisions.
    rows : array (k,)
        FitnessRows.
    speed : array
        Speeds of all kinds of jobs.
    power : float
        Of the mean.
    """
    speedup = speed[rows["first"] + gpus] / rows["fair"]
    speedup = np.where(gpus != rows["held"], speedup * rows["factor"], speedup)
    speedup = np.maximum(np.where(gpus > 0, speedup, _NOTHING), _NOTHING)
    if power == 0:
        return np.asarray(np.log(speedup))
    return np.asarray(np.sign(power) * speedup**power)


def power_mean(total: float, jobs: int, power: float) -> float:
    """Return the power mean of the speedups of some jobs whose worths have a sum."""
    if power == 0:
        return float(np.exp(total / jobs))
    return float((total / jobs / np.sign(power)) ** (1 / power))


def evolve(
    rows: NDArray[Any],
    free: NDArray[np.int64],
    speed: NDArray[np.float64],
    power: float,
    first: NDArray[np.int64],
    *,
    population: int,
    generations: int,
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the best division found, at least as good as `first` (k,).

    Each generation has as many children as there are parents: of two parents, each the better of two drawn, a child
    has each number of GPUs from either; then each number is drawn anew with a chance of one in k. The best of parents
    and children go on.

    Parameters
    ----------
    rows : array (k,)
        FitnessRows; running jobs keep at least their minimum, waiting ones have none or at least that.
    free : array (P,)
        GPUs of each pool beyond the minima of running jobs.
    speed, power
        As for `worths`.
    first : array (k,)
        A division to begin with.
    population, generations : int
        Divisions in a generation, and generations.
    random : Generator
        Of all draws.
    """
    k = len(rows)
    if not k:
        return first
    held = np.clip(rows["held"], np.where(rows["held"] > 0, rows["low"], 0), rows["high"])
    least = np.where(rows["held"] > 0, rows["low"], 0)
    bounds = Bounds(least, rows["low"], rows["high"], rows["pool"], free)
    drawn = np.concatenate([held[None], bounds.drawn(population, random)])
    parents = np.concatenate([first[None], bounds.within(drawn, random)])
    score = worths(parents, rows, speed, power).sum(axis=1)
    for _ in range(generations):
        pairs = random.integers(0, len(parents), (2, 2, population))
        better = np.where(score[pairs[0]] >= score[pairs[1]], pairs[0], pairs[1])
        children = np.where(random.random((population, k)) < 0.5, parents[better[0]], parents[better[1]])
        changed = random.random((population, k)) < 1 / k
        children = bounds.within(np.where(changed, bounds.drawn(population, random), children), random)
        parents = np.concatenate([parents, children])
        score = np.concatenate([score, worths(children, rows, speed, power).sum(axis=1)])
        best = np.argsort(-score, kind="stable")[:population]
        parents, score = parents[best], score[best]
    found: NDArray[np.int64] = parents[int(score.argmax())]
    return found
