"""Windows of rounds shared out by Nash welfare and the longest remaining time: a program, and a greedy way to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.policies.resizing import ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Solved", "Window", "greedy", "log_progress", "solve"]

_POINTS = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
_VALUES = np.log(np.maximum(_POINTS, 1e-6))
_SLOPES = np.diff(_VALUES) / np.diff(_POINTS)
_TRIED = 5
"""Bounds of the longest remaining time that the greedy way tries."""


def log_progress(progress: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logarithm of progress [0..1], linear between 0, 0.2, ... 1, and log(1e-6) at 0."""
    return np.asarray(np.interp(progress, _POINTS, _VALUES))


@dataclass(frozen=True)
class Window:
    """Jobs that share some rounds; k jobs, P pools."""

    gpus: NDArray[np.int64]
    """GPUs of each job (k,)."""
    pool: NDArray[np.int64]
    """Pool of each (k,)."""
    capacity: NDArray[np.int64]
    """GPUs of each pool (P,)."""
    left: NDArray[np.float64]
    """Run time left [rounds] (k,)."""
    whole: NDArray[np.float64]
    """Run time in all, above 0 [rounds] (k,)."""
    weight: NDArray[np.float64]
    """Weight of each in the welfare (k,)."""
    need: NDArray[np.float64]
    """Run time that each must have in the window, at most what is left [rounds] (k,)."""
    rounds: int
    """Rounds of the window."""
    k: float
    """What a round of the longest remaining time costs."""

    def value(self, planned: NDArray[np.float64]) -> float:
        """Return the objective where jobs have so many rounds each (k,)."""
        done = np.minimum(planned, self.left)
        progress = (self.whole - self.left + done) / self.whole
        welfare = float((self.weight * log_progress(progress)).sum()) / (self.rounds * len(self.left))
        return welfare - self.k * float((self.left - done).max(initial=0.0))


class Solved(NamedTuple):
    """What the program found."""

    rounds: NDArray[np.bool_] | None
    """Which job has which round (k, T); None where nothing was found."""
    impossible: bool
    """Whether the needs cannot be met together."""
    stopped: bool
    """Whether the limit ended the search."""


def greedy(window: Window) -> NDArray[np.int64] | None:
    """Return how many rounds each job has (k,); None where the needs, or one of them, are more than the window holds.

    Needs come first, then rounds by what they add to the welfare for a GPU, as long as the GPUs of the window last,
    and this for several bounds of the longest remaining time, of which the best counts. That gangs have to fit into
    each round side by side is not looked at.
    """
    most = np.minimum(np.ceil(window.left - 1e-9), window.rounds).astype(np.int64)
    need = np.minimum(np.ceil(window.need - 1e-9), most).astype(np.int64)
    room = window.capacity * window.rounds
    long = bool((window.need > window.rounds + 1e-9).any())
    if long or (np.bincount(window.pool, need * window.gpus, len(room)) > room).any():
        return None
    row, step = ragged(most)
    begun = window.whole - window.left
    ends = np.minimum(step + 1.0, window.left[row])
    gain = log_progress((begun[row] + ends) / window.whole[row]) - log_progress((begun[row] + step) / window.whole[row])
    density = window.weight[row] * gain / window.gpus[row]
    order = np.argsort(-density, kind="stable")
    longest = float(window.left.max(initial=0.0))
    best, found = -np.inf, np.zeros(len(most), np.int64)
    for part in np.linspace(0, window.rounds, _TRIED if window.k > 0 else 1):
        bound = np.clip(np.ceil(window.left - (longest - part) - 1e-9), 0, None).astype(np.int64)
        asked = np.minimum(np.maximum(need, bound), most)
        if (np.bincount(window.pool, asked * window.gpus, len(room)) > room).any():
            break
        line = order[np.argsort(step[order] >= asked[row[order]], kind="stable")]
        taken = np.zeros(len(most), np.int64)
        for p in range(len(room)):
            mine = line[window.pool[row[line]] == p] if len(room) > 1 else line
            fits = np.cumsum(window.gpus[row[mine]]) <= room[p]
            taken += np.bincount(row[mine[fits]], minlength=len(most))
        value = window.value(taken.astype(np.float64))
        if value > best + 1e-12:
            best, found = value, taken
    return found


def solve(window: Window, limit_s: float, gap: float) -> Solved:
    """Return the best rounds that the program (HiGHS) finds.

    Parameters
    ----------
    limit_s : float
        Time for the program [s]; the best found by then counts.
    gap : float
        What may be missing of the best, as a share of it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    jobs, rounds, pieces = len(window.left), window.rounds, len(_SLOPES)
    # Columns: rounds by job, time planned, pieces of the logarithm by job, the longest time left.
    planned, piece = jobs * rounds, jobs * (rounds + 1)
    longest = piece + jobs * pieces
    at = np.arange(jobs)
    of_round, of_piece = np.repeat(at, rounds), np.repeat(at, pieces)
    load = (window.pool[of_round] * rounds + np.tile(np.arange(rounds), jobs)) + 3 * jobs
    one = np.ones
    parts = [
        # Time planned is no more than the rounds given.
        (at, planned + at, one(jobs)),
        (of_round, np.arange(planned), -one(planned)),
        # The pieces sum to the progress, in units of all that a job has to do.
        (jobs + of_piece, piece + np.arange(jobs * pieces), window.whole[of_piece]),
        (jobs + at, planned + at, -one(jobs)),
        # The longest time left is no less than any.
        (2 * jobs + at, np.full(jobs, longest), one(jobs)),
        (2 * jobs + at, planned + at, one(jobs)),
        # GPUs of each round.
        (load, np.arange(planned), window.gpus[of_round].astype(np.float64)),
    ]
    row, column, entry = (np.concatenate(list(part)) for part in zip(*parts, strict=True))
    rows = 3 * jobs + len(window.capacity) * rounds
    matrix: Any = csr_array((entry, (row, column)), shape=(rows, longest + 1))
    begun = window.whole - window.left
    endless = np.full(jobs, np.inf)
    room = np.repeat(window.capacity.astype(np.float64), rounds)
    limits = LinearConstraint(
        matrix,
        np.concatenate([-endless, begun, window.left, np.full(len(room), -np.inf)]),
        np.concatenate([np.zeros(jobs), begun, endless, room]),
    )
    lower, upper = np.zeros(longest + 1), one(longest + 1)
    lower[planned:piece], upper[planned:piece] = np.minimum(window.need, window.left), window.left
    upper[piece:longest], upper[longest] = np.tile(np.diff(_POINTS), jobs), np.inf
    cost = np.zeros(longest + 1)
    cost[piece:longest] = -np.repeat(window.weight, pieces) * np.tile(_SLOPES, jobs) / (rounds * jobs)
    cost[longest] = window.k
    scale = float(np.abs(cost).max())
    whole = (np.arange(longest + 1) < planned).astype(np.int64)
    options: Any = {"time_limit": limit_s, "mip_rel_gap": gap}
    found: Any = milp(
        cost / scale if scale > 0 else cost,
        integrality=whole,
        bounds=Bounds(lower, upper),
        constraints=limits,
        options=options,
    )
    if found.x is None:
        return Solved(None, found.status == 2, found.status == 1)
    chosen = np.asarray(found.x)[:planned].reshape(jobs, rounds) > 0.5
    return Solved(chosen, False, found.status == 1)
