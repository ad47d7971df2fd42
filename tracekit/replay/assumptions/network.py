"""The traffic of gangs, and the time it takes (M36, M37)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.assumptions.of_jobs import drawn_per_name

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.jobs import Jobs


_MEGABYTE_GBIT = 0.008


def traffic_families(models: Models, jobs: Jobs, seed: int) -> NDArray[np.int32]:
    """Return a family for each job (M37), as an index into `list(models.traffic.families)`.

    Drawn once per job name, or per user if the name is unknown, or per job.

    Returns
    -------
    array of int32, shape (n,)
    """
    return drawn_per_name([family.share for family in models.traffic.families.values()], jobs, seed, "traffic")


def traffic_of(models: Models, jobs: Jobs, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the message that each job's gang sums in an iteration [MB], and its computing time [s] (n,)."""
    families = list(models.traffic.families.values())
    drawn = traffic_families(models, jobs, seed)
    message = np.array([family.message_mb for family in families])
    compute = np.array([family.compute_s for family in families])
    return message[drawn], compute[drawn]


def ring_s(message_mb: ArrayLike, gpus: ArrayLike, gbit: ArrayLike) -> NDArray[np.float64]:
    """Return the time in which gangs sum up a message around a ring whose slowest link is given (M37) [s].

    Parameters
    ----------
    message_mb : array
        Size of the message [MB].
    gpus : array
        GPUs of the ring; one GPU sends nothing.
    gbit : array
        Bandwidth of the slowest link [Gbit/s].
    """
    size = np.maximum(np.asarray(gpus, np.float64), 1.0)
    message_gbit = np.asarray(message_mb, np.float64) * _MEGABYTE_GBIT
    return np.asarray(2 * (size - 1) / size * message_gbit / np.asarray(gbit, np.float64))
