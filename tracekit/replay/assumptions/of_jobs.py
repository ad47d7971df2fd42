"""Unrecorded facts about each job under the assumption models, drawn once per job with the seed.

Different kinds of draws are independent: each has its own random stream under the same seed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.assumptions.speeds import PPM, ppm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs


_ESTIMATES, _CLASSES, _DEADLINES, _FAMILIES = range(4)
_TRAFFIC = 36
_PHASES = 33
_WITH_DEADLINE = 7
"""Random streams."""
_LONGEST_MS = 10**13
"""Upper limit for the estimates of shorter jobs, which keeps GPU times far below the 64-bit limit [ms]."""
_NOISES = ("oracle", "helios")


def _draws(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng((seed % 2**64, stream))


def utilization_ppm(models: Models, jobs: Jobs) -> NDArray[np.int64]:
    """Return the GPU utilization of each job, or M1's default if it is unknown (n,) [ppm]."""
    known = np.where(np.isnan(jobs.utilization), models.interference.utilization, jobs.utilization)
    return np.minimum(ppm(known), PPM)


def sharing_class(models: Models, utilization_ppm: ArrayLike) -> NDArray[np.int64]:
    """Return the sharing class by utilization (M1): 0 tiny, 1 medium, 2 jumbo."""
    return np.searchsorted(ppm(models.interference.class_thresholds), np.asarray(utilization_ppm), side="right")


def memory_ppm(models: Models, jobs: Jobs) -> NDArray[np.int64]:
    """Return the share of GPU memory that each job needs: its GPU share, or M2's share for whole GPUs (n,) [ppm]."""
    return np.where(jobs.milli < 1000, jobs.milli.astype(np.int64) * 1000, ppm(models.memory.fraction))


def classes(models: Models, jobs: Jobs, seed: int) -> NDArray[np.int8]:
    """Return 0 for guaranteed and 1 for opportunistic jobs (M10).

    If the trace records whether a job is preemptible, that counts. Otherwise, the class is random per user and depends
    only on the seed and the user's name, so a user has the same class in every window of a trace. For unknown users, it
    is random per job.

    Returns
    -------
    array of int8, shape (n,)
    """
    share = models.classes.opportunistic_share
    chance = _draws(seed, _CLASSES).random(len(jobs))
    if jobs.users:
        of_user = np.array([_coin(seed, user) for user in jobs.users])
        chance = np.where(jobs.user >= 0, of_user[jobs.user], chance)
    return np.where(jobs.preemptible >= 0, jobs.preemptible, chance < share).astype(np.int8)


def _coin(seed: int, user: str) -> float:
    """Return a number in [0, 1) that depends only on the seed and the user."""
    digest = blake2b(f"{seed}\0{user}".encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48


def estimates_ms(
    models: Models, work_ms: NDArray[np.int64], seed: int, noise: str | float | None = None
) -> NDArray[np.int64]:
    """Return the run times that a policy expects (M11, D8).

    Parameters
    ----------
    work_ms : array
        Actual run times [ms].
    seed : int
        Each job gets one draw, by its place in the array.
    noise : str or float, optional
        'oracle' for no error, 'helios' for the error bands in models.toml, or a number (possibly as a string) for the
        sigma of a lognormal factor with median 1. By default, the value in models.toml.

    Returns
    -------
    array of int64
        Run times [ms], at least 1 if the work is at least 1, and otherwise 0.

    Raises
    ------
    UsageError
        The noise has none of these forms.
    """
    kind = _noise(models.estimates.noise if noise is None else noise)
    if kind in {"oracle", 0}:
        return work_ms.copy()
    draws = _draws(seed, _ESTIMATES)
    count = len(work_ms)
    if isinstance(kind, float):
        factor = np.exp(kind * draws.standard_normal(count))
    else:
        factor = _banded(models.estimates.errors, draws, count)
    longest = np.maximum(work_ms, _LONGEST_MS)
    # Integers above 2^53 are not exact as floats, so apply the limit again after the conversion.
    noisy = np.minimum(np.rint(np.minimum(work_ms * factor, 2.0**62)).astype(np.int64), longest)
    return np.where(work_ms > 0, np.maximum(noisy, 1), 0)


def _noise(noise: str | float) -> str | float:
    if isinstance(noise, str) and noise in _NOISES:
        return noise
    try:
        sigma = float(noise)
    except ValueError:
        raise UsageError(
            f"'{str(noise)[:80]}' is not a noise of estimates", hint=f"{nearest(str(noise)[:80], _NOISES)}; or a number"
        ) from None
    if not 0 <= sigma <= 5:
        raise UsageError(f"a noise of {sigma:g} is out of range", hint="it may be from 0 to 5")
    return sigma


def _banded(bands: tuple[tuple[float, ...], ...], draws: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Draw factors estimate / actual value: 1 +- error if the error is below 1, else (1 + error) or its inverse."""
    shares, low, high = (np.array(column) for column in zip(*bands, strict=True))
    last = len(shares) - 1
    band = np.minimum(np.searchsorted(np.cumsum(shares), draws.random(count), side="right"), last)
    error = low[band] + (high[band] - low[band]) * draws.random(count)
    longer = draws.random(count) < 0.5
    found: NDArray[np.float64] = np.where(longer, 1 + error, np.where(error < 1, 1 - error, 1 / (1 + error)))
    return found


def deadlines_ms(
    models: Models, submit_ms: NDArray[np.int64], work_ms: NDArray[np.int64], seed: int, share: float = 1.0
) -> NDArray[np.int64]:
    """Draw deadlines [ms] (n,): submission plus x times the run time with x uniform (D7), or -1 if a job has none.

    Each job has a deadline with probability `share`. A job with a deadline keeps it for any larger share.
    """
    low, high = models.deadlines.factor
    x = low + (high - low) * _draws(seed, _DEADLINES).random(len(work_ms))
    found = submit_ms + np.rint(work_ms * x).astype(np.int64)
    return np.where(_draws(seed, _WITH_DEADLINE).random(len(work_ms)) < share, found, -1)


def online_services(models: Models, jobs: Jobs, seed: int) -> NDArray[np.bool_]:
    """Return a mask of the jobs that are online services (M33): guaranteed jobs with one GPU (n,)."""
    return (classes(models, jobs, seed) == 0) & (jobs.devices == 1)


def online_phases(jobs: Jobs, seed: int) -> NDArray[np.float64]:
    """Return the phase at which each job would start its period as an online service [0..1] (n,)."""
    return _draws(seed, _PHASES).random(len(jobs))


def online_load(models: Models, now_ms: int, phase: ArrayLike) -> NDArray[np.float64]:
    """Return the GPU load of online services at a time (M33) [0..1].

    Parameters
    ----------
    now_ms : int
        The time [ms].
    phase : array
        Phase of each service [0..1].
    """
    online = models.online
    turn = now_ms / (online.period_h * 3_600_000) + np.asarray(phase, np.float64)
    return np.clip(online.load * (1 + online.swing * np.sin(2 * np.pi * turn)), 0.0, 1.0)


def cpu_families(models: Models, jobs: Jobs, seed: int) -> NDArray[np.int32]:
    """Return a model family for each job (M6), as an index into `list(models.cpu.families)`.

    There is one draw per job name, or per user if the name is unknown, or else per job. M6's split gives the kind. The
    families of a kind have equal probability.

    Returns
    -------
    array of int32, shape (n,)
    """
    names = list(models.cpu.families)
    weight = np.zeros(len(names))
    for kind in ("image", "language", "speech"):
        members = [i for i, name in enumerate(names) if models.cpu.families[name].kind == kind]
        if members:
            weight[members] = getattr(models.cpu.split, kind) / len(members)
    return drawn_per_name(weight.tolist(), jobs, seed)


def drawn_per_name(
    weight: Sequence[float], jobs: Jobs, seed: int, what: Literal["cpu", "traffic"] = "cpu"
) -> NDArray[np.int32]:
    """Draw an index for each job by weight: once per job name, or per user if it is unknown, or else per job.

    Parameters
    ----------
    weight : list of float
        Probabilities, which sum to 1.
    what : str
        Kind of draw. Draws of different kinds are independent.

    Returns
    -------
    array of int32, shape (n,)
    """
    ends = np.cumsum(weight)
    draws = _draws(seed, _FAMILIES if what == "cpu" else _TRAFFIC)
    chance = draws.random(len(jobs))
    for index in (jobs.user, jobs.name):
        if len(jobs) and int(index.max()) >= 0:
            of_index = draws.random(int(index.max()) + 1)
            chance = np.where(index >= 0, of_index[index], chance)
    return np.minimum(np.searchsorted(ends, chance, side="right"), _last(np.asarray(weight))).astype(np.int32)


def _last(weight: NDArray[np.float64]) -> int:
    """Return the last index with a weight: sums of shares may end slightly below 1."""
    return int(np.flatnonzero(weight)[-1])


# The traffic of gangs, and the time that it takes (M36, M37).

_MEGABYTE_GBIT = 0.008


def traffic_families(models: Models, jobs: Jobs, seed: int) -> NDArray[np.int32]:
    """Return a family for each job (M37), as an index into `list(models.traffic.families)`.

    There is one draw per job name, or per user if the name is unknown, or else per job.

    Returns
    -------
    array of int32, shape (n,)
    """
    return drawn_per_name([family.share for family in models.traffic.families.values()], jobs, seed, "traffic")


def traffic_of(models: Models, jobs: Jobs, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the size of the message that each gang sums up per iteration [MB], and its computing time [s] (n,)."""
    families = list(models.traffic.families.values())
    drawn = traffic_families(models, jobs, seed)
    message = np.array([family.message_mb for family in families])
    compute = np.array([family.compute_s for family in families])
    return message[drawn], compute[drawn]


def ring_s(message_mb: ArrayLike, gpus: ArrayLike, gbit: ArrayLike) -> NDArray[np.float64]:
    """Return how long gangs take to sum a message around a ring with the given slowest link (M37) [s].

    Parameters
    ----------
    message_mb : array
        Size of the message [MB].
    gpus : array
        Number of GPUs in the ring. A single GPU sends nothing.
    gbit : array
        Bandwidth of the slowest link [Gbit/s].
    """
    size = np.maximum(np.asarray(gpus, np.float64), 1.0)
    message_gbit = np.asarray(message_mb, np.float64) * _MEGABYTE_GBIT
    return np.asarray(2 * (size - 1) / size * message_gbit / np.asarray(gbit, np.float64))
