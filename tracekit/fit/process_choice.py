"""Which tells better how batches fall around their rate: a process of its own, or sessions of tenants.

Both are fitted to the first half of the batches, and drawn `DRAWS` times through the time of the second half. Of each
draw four figures are taken: the squared variation of the gaps in operational time, the dispersion of hourly counts
around the rate, the correlation of these counts with those of the hour before, and how often the next batch is the same
tenant's. The distance is the mean absolute difference from the second half of the log: of logarithms for the first two.
That of the least mean distance is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.fit.batch_draws import operational_times
from tracekit.fit.process import parameters_of
from tracekit.fit.session_draws import session_gaps
from tracekit.fit.session_fit import gaps_entry, sizes_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.fit.arrays import Floats, Whole
    from tracekit.fit.independence import Clock
    from tracekit.fit.sessions import Sessions

__all__ = ["DRAWS", "Figures", "compared", "figures"]

DRAWS = 20
"""Draws of each process."""
_LEAST = 200
"""Batches that a half needs."""


class Figures(NamedTuple):
    """How batches fall around their rate."""

    variation_of_gaps: float
    dispersion_of_hourly_counts: float
    correlation_of_hourly_counts: float
    next_of_same_tenant: float

    def distance(self, other: Figures) -> float:
        """Return the mean absolute difference, of logarithms for variation and dispersion."""
        logs = np.abs(np.log(np.maximum(self[:2], 1e-9)) - np.log(np.maximum(other[:2], 1e-9)))
        return float((logs.sum() + np.abs(np.subtract(self[2:], other[2:])).sum()) / 4)


def figures(times: Floats, tenant: Whole, clock: Clock) -> Figures:
    """Return the figures of rising distinct times within a clock's window, and of who came."""
    gaps = clock.gaps(times)
    variation = float(gaps.var() / max(gaps.mean() ** 2, 1e-12)) if gaps.size > 1 else 0.0
    counts = np.bincount(np.searchsorted(clock.edges_s[1:-1], times, side="right"), minlength=clock.hits.size)
    due = np.maximum(clock.hits * (counts.sum() / clock.hits.sum()), 1e-9)
    # An hour of hardly any rate would outweigh all others.
    fair = due >= 0.01 * due.mean()
    away = np.where(fair, (counts - due) / np.sqrt(due), 0.0)
    square = float(away @ away)
    together = float(away[1:] @ away[:-1]) / max(square, 1e-9)
    same = float((tenant[1:] == tenant[:-1]).mean()) if tenant.size > 1 else 0.0
    return Figures(variation, square / max(int(fair.sum()), 1), together, same)


def compared(
    times: Floats,
    clock: Clock,
    process: str,
    sessions: Sessions,
    starts: tuple[Floats, Clock, str],
) -> dict[str, Any] | None:
    """Return the comparison for workload.json; None where a half has too few batches.

    Parameters
    ----------
    times, clock : array, Clock
        Batches and their rate.
    process : str
        The best process that is no sessions.
    sessions : Sessions
    starts : tuple
        Distinct seconds in which sessions start, their rate, and their process.

    The draws are the same for the same batches: what is chosen does not depend on a seed.
    """
    if times.size < 2 * _LEAST:
        return None
    rng = np.random.default_rng(times.size)
    middle = float(times[times.size // 2])
    held = clock.between(middle, float(clock.edges_s[-1]))
    shares = np.bincount(np.unique(sessions.tenant, return_inverse=True)[1].ravel()) / sessions.tenant.size
    late = sessions.second >= middle
    seen = figures(*_ticks(sessions.second[late], sessions.tenant[late], held), held)
    draws: dict[str, Callable[[], tuple[Floats, Whole]] | None] = {
        process: _of_process(process, times[times < middle], clock, held, shares, rng),
        "sessions": _of_sessions(sessions, starts, middle, shares, rng),
    }
    rows = []
    for name, draw in draws.items():
        if draw is None:
            continue
        drawn = [figures(*one, held) for one in (draw() for _ in range(DRAWS)) if one[0].size > 2]
        if not drawn:
            continue
        rows.append(
            {
                "process": name,
                **Figures(*(float(x) for x in np.median(np.array(drawn), axis=0)))._asdict(),
                "distance": float(np.mean([seen.distance(one) for one in drawn])),
            }
        )
    chosen = min(rows, key=lambda r: r["distance"])["process"] if rows else process
    return {
        "held_out_batches": int((times >= middle).sum()),
        "draws": DRAWS,
        "observed": seen._asdict(),
        "processes": rows,
        "chosen": chosen,
    }


def _of_process(
    process: str, before: Floats, clock: Clock, held: Clock, shares: Floats, rng: np.random.Generator
) -> Callable[[], tuple[Floats, Whole]] | None:
    parameters = parameters_of(process, before, clock)
    if parameters is None:
        return None

    def draw() -> tuple[Floats, Whole]:
        when = _times(process, parameters, held, rng)
        return _ticks(when, _owners(shares, when.size, rng), held)

    return draw


def _of_sessions(
    sessions: Sessions, starts: tuple[Floats, Clock, str], middle: float, shares: Floats, rng: np.random.Generator
) -> Callable[[], tuple[Floats, Whole]] | None:
    at, clock, process = starts
    begins = sessions.second[sessions.first]
    early = begins < middle
    if early.sum() < 2 or (at < middle).sum() < 20:
        return None
    parameters = parameters_of(process, at[at < middle], clock)
    if parameters is None:
        return None
    size = sizes_entry(sessions.sizes[early])
    gaps = gaps_entry(sessions, early[sessions.number])
    # Several sessions may start in one step.
    together = float(begins.size) / at.size
    edges = np.cumsum(size["shares"])
    held = clock.between(middle, float(clock.edges_s[-1]))

    def draw() -> tuple[Floats, Whole]:
        when = _times(process, parameters, held, rng)
        when = np.sort(np.repeat(when, 1 + rng.poisson(max(together - 1, 0.0), when.size)))
        number = np.asarray(size["sizes"])[np.searchsorted(edges[:-1] / edges[-1], rng.random(when.size), side="right")]
        owner = _owners(shares, when.size, rng)
        if not when.size:
            return when, owner
        of = np.repeat(np.arange(when.size), number)
        passed = session_gaps(gaps, of, rng).cumsum()
        first = np.flatnonzero(np.diff(of, prepend=-1))
        return _ticks(when[of] + passed - passed[first][of], owner[of], held)

    return draw


def _times(process: str, parameters: dict[str, float], clock: Clock, rng: np.random.Generator) -> Floats:
    """Return arrivals of a process in the time of a clock [s]."""
    total = np.concatenate([[0.0], clock.hits.cumsum()])
    found = operational_times(process, parameters, rng, int(total[-1] * 1.02) + 50, float(total[-1]))
    return np.interp(found, total, clock.edges_s)


def _owners(shares: Floats, number: int, rng: np.random.Generator) -> Whole:
    edges = shares.cumsum()
    found: Whole = np.searchsorted(edges[:-1] / edges[-1], rng.random(number), side="right")
    return found


def _ticks(seconds: Floats, tenant: Whole, clock: Clock) -> tuple[Floats, Whole]:
    """Return the steps of the clock in which something comes, within its window, and whose the first of each is."""
    inside = np.flatnonzero((seconds >= clock.edges_s[0]) & (seconds < clock.edges_s[-1]))
    inside = inside[np.argsort(seconds[inside], kind="stable")]
    times, first = np.unique(np.floor(seconds[inside] / clock.step_s) * clock.step_s, return_index=True)
    return times, tenant[inside[first]]
