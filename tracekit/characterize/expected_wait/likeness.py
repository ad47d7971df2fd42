"""Which earlier jobs are like one: the same in all that it asked for, or in less where there are too few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tracekit.array_types import Ints

ALWAYS = ("cluster", "gpu_class")
"""In what jobs that are alike never differ."""

STEPS = ("account", "limit_class", "gpu_count", "qos", "gpu_model", "place")
"""In what else they are the same; where too few are, the first of these is given up, then the second, and so on."""

WORDS = {
    "cluster": "cluster",
    "gpu_class": "size class",
    "account": "account",
    "limit_class": "class of time limit",
    "gpu_count": "number of GPUs",
    "qos": "QOS",
    "gpu_model": "GPU model",
    "place": "partition or VC",
}


@dataclass(frozen=True)
class Lately:
    """Which of the jobs that are alike are looked at."""

    least: int = 20
    """Fewest that tell anything."""
    most: int = 100
    """The latest so many."""
    days: float = 56
    """Jobs that began to wait longer ago are left out [d]."""


@dataclass(frozen=True)
class Likeness:
    """For each job the earlier jobs that are like it, without a list for each: a stretch of one of a few orders."""

    orders: tuple[Ints, ...]
    """Row numbers, sorted by what is the same and then by when they began to wait; one order a step."""
    step: Ints
    """How many of STEPS were given up for each job; -1: too few are like it."""
    first: Ints
    """Where its stretch begins in the order of its step."""
    end: Ints
    """Where it ends, exclusive."""

    def rows(self, jobs: Ints, most: int) -> Ints:
        """Return the row numbers of the jobs like each of `jobs`, one row each, filled up with -1."""
        found = np.full((len(jobs), most), -1, dtype=np.int64)
        for step, order in enumerate(self.orders):
            here = np.flatnonzero(self.step[jobs] == step)
            place = self.first[jobs[here], None] + np.arange(most)
            within = place < self.end[jobs[here], None]
            found[here] = np.where(within, order[np.where(within, place, 0)], -1)
        return found


def likeness(jobs: pl.DataFrame, lately: Lately) -> Likeness:
    """Return which earlier jobs are like each; `jobs` is sorted by since.

    Only jobs that began to wait strictly before count: those submitted together know nothing of each other.
    """
    n = jobs.height
    since = jobs["since"].to_numpy()
    step, first, end = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    orders = []
    for given_up in range(len(STEPS) + 1):
        same = [*ALWAYS, *STEPS[given_up:]]
        code = jobs.select(pl.struct(same).rank("dense")).to_series().to_numpy().astype(np.int64)
        order = np.argsort(code, kind="stable")
        orders.append(order)
        sorted_code, moment = code[order], since[order]
        new = np.ones(n, dtype=bool)
        new[1:] = sorted_code[1:] != sorted_code[:-1]
        place = np.arange(n)
        group = np.maximum.accumulate(np.where(new, place, 0))
        new[1:] |= moment[1:] != moment[:-1]
        earlier = np.maximum.accumulate(np.where(new, place, 0))
        oldest = _places_of(sorted_code, moment, moment - int(lately.days * 86_400_000_000))
        begin = np.maximum(np.maximum(group, oldest), earlier - lately.most)
        take = (step[order] < 0) & (earlier - begin >= lately.least)
        rows = order[take]
        step[rows], first[rows], end[rows] = given_up, begin[take], earlier[take]
    return Likeness(tuple(orders), step, first, end)


def _places_of(code: Ints, moment: Ints, bound: Ints) -> Ints:
    """Return for each place the first place of the same code whose moment is not before `bound`."""
    if not len(code):
        return np.zeros(0, dtype=np.int64)
    # One number for code and moment, so that one search finds all; ranks keep it small.
    moments, rank = np.unique(moment, return_inverse=True)
    width = len(moments) + 1
    return np.searchsorted(code * width + rank, code * width + np.searchsorted(moments, bound))
