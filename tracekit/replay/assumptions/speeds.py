"""Speeds under the assumption models, in ppm of the recorded speed.

All functions take numbers or arrays, which broadcast, and return int64 arrays: the engine adds and compares only
integers. Formulas with fractions are computed in double precision and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from tracekit.replay.assumptions.models import Models


PPM = 1_000_000


def ppm(value: ArrayLike) -> NDArray[np.int64]:
    """Round shares or speeds to ppm, with a minimum of 0."""
    return np.maximum(np.rint(np.asarray(value, np.float64) * PPM), 0).astype(np.int64)


def spread_ppm(
    models: Models,
    gang: ArrayLike,
    nodes: ArrayLike,
    minimum_nodes: ArrayLike,
    other_rack: ArrayLike = False,
    family: str | None = None,
) -> NDArray[np.int64]:
    """Return the speed of gangs by the number of nodes that they span (M4).

    Parameters
    ----------
    gang : array
        GPUs of each gang.
    nodes, minimum_nodes : array
        Number of nodes that the gang spans, and the fewest nodes that could hold it.
    other_rack : array of bool
        Whether the gang spans racks, which counts as twice as many nodes.
    family : str, optional
        Model family. If models.toml has a speed for these GPUs and nodes and the gang fits on one node, that speed is
        used.

    Returns
    -------
    array of int64
        1 / (1 + b * log2(nodes / minimum_nodes)) [ppm], which is 1,000,000 on the fewest nodes.
    """
    g, k, k0, far = np.broadcast_arrays(*(np.asarray(a, np.int64) for a in (gang, nodes, minimum_nodes, other_rack)))
    spanned = np.maximum(k, k0) * np.where(far, 2, 1)
    doublings = np.log2(spanned / np.maximum(k0, 1))
    found = np.maximum(ppm(1 / (1 + models.spread.b * doublings)), 1)
    for key, speed in models.spread.families.get(family or "", {}).items():
        size, _, count = key.partition("/")
        listed = (g == int(size)) & (spanned == int(count)) & (k0 == 1)
        found = np.where(listed, ppm(speed), found)
    return found


def locality_ppm(models: Models, nodes: ArrayLike, minimum_nodes: ArrayLike) -> NDArray[np.int64]:
    """Return the speed of gangs by the simple rule (D4), with one factor if on more nodes than needed [ppm]."""
    slow = ppm(models.locality.slowdown if models.locality.sensitive == "all" else 1.0)
    return np.where(np.asarray(nodes, np.int64) > np.asarray(minimum_nodes, np.int64), slow, PPM)


def interference_ppm(
    models: Models, u_victim_ppm: ArrayLike, u_partner_ppm: ArrayLike, *more_partners_ppm: ArrayLike
) -> NDArray[np.int64]:
    """Return the speed of a job next to others on its GPU (M1, or D5 if the rule is 'sum').

    This uses only integers: with c in ppm, c * u_victim * u_partner / 10^12 is rounded half up and subtracted from
    1,000,000. If there are several partners, the speeds next to each partner are multiplied, smallest first, and each
    product is rounded half up.

    Parameters
    ----------
    u_victim_ppm, u_partner_ppm : array
        GPU utilization of the job and of its partner [ppm], or 0 if there is no partner.
    *more_partners_ppm : array
        Utilization of further partners [ppm].

    Returns
    -------
    array of int64
        Speed relative to running alone, from 1 to 1,000,000 [ppm].
    """
    victim = _share(u_victim_ppm)
    pairs = [_pair(models, victim, _share(u)) for u in (u_partner_ppm, *more_partners_ppm)]
    if len(pairs) == 1:
        return pairs[0]
    ordered = np.sort(np.stack(np.broadcast_arrays(*pairs)), axis=0)
    found: NDArray[np.int64] = ordered[0]
    for speed in ordered[1:]:
        found = (found * speed + PPM // 2) // PPM
    return np.asarray(np.maximum(found, 1))


def _share(value: ArrayLike) -> NDArray[np.int64]:
    return np.clip(np.asarray(value, np.int64), 0, PPM)


def _pair(models: Models, victim: NDArray[np.int64], partner: NDArray[np.int64]) -> NDArray[np.int64]:
    if models.interference.rule == "sum":
        together = np.maximum(victim + partner, PPM)
        found: NDArray[np.int64] = (PPM * PPM + together // 2) // together
        return found
    strength = int(ppm(models.interference.c))
    return np.asarray(np.maximum(PPM - (strength * victim * partner + PPM * PPM // 2) // (PPM * PPM), 1))


def class_speed_ppm(models: Models, victim: ArrayLike, partner: ArrayLike) -> NDArray[np.int64]:
    """Return the speed of jobs of one sharing class (0..2) next to a partner of another (M1) [ppm]."""
    table = np.minimum(ppm(models.interference.class_speed), PPM)
    found: NDArray[np.int64] = table[np.asarray(victim, np.int64), np.asarray(partner, np.int64)]
    return found


def accumulation_ppm(models: Models, sub_batches: ArrayLike) -> NDArray[np.int64]:
    """Return the speed with s sub-batches, 1 / (1 + slowdown * log2(s)) (M3) [ppm]."""
    doublings = np.log2(np.maximum(np.asarray(sub_batches, np.int64), 1))
    return ppm(1 / (1 + models.accumulation.slowdown_per_doubling * doublings))


def accumulated_memory_ppm(models: Models, memory_ppm: ArrayLike, sub_batches: ArrayLike) -> NDArray[np.int64]:
    """Return the memory needed with s sub-batches (M3) [ppm]."""
    fixed = models.accumulation.fixed_share
    parts = np.maximum(np.asarray(sub_batches, np.int64), 1)
    return np.rint(np.asarray(memory_ppm, np.int64) * (fixed + (1 - fixed) / parts)).astype(np.int64)


def stages_ppm(
    models: Models, utilization_ppm: ArrayLike, several_nodes: ArrayLike = False, gpus: int = 1, family: str = ""
) -> NDArray[np.int64]:
    """Return the shares of input, GPU and network in an iteration (M5).

    Parameters
    ----------
    utilization_ppm : array
        GPU utilization [ppm].
    several_nodes : array of bool
        Whether the job spans nodes.
    gpus, family
        If the family is in models.toml, the result is its shares at the largest listed size up to `gpus`, or else at
        the smallest listed size.

    Returns
    -------
    array of int64, shape (..., 3)
        Shares that sum to 1,000,000 [ppm].
    """
    u, far = np.broadcast_arrays(_share(utilization_ppm), np.asarray(several_nodes, np.bool_))
    by_size = models.stages.families.get(family)
    if by_size is None:
        network = np.where(far, np.rint((PPM - u) * models.stages.network_share).astype(np.int64), 0)
        return np.stack((PPM - u - network, u, network), axis=-1)
    sizes = {int(size): shares for size, shares in by_size.items()}
    shares = sizes[max((size for size in sizes if size <= gpus), default=min(sizes))]
    _, compute, network = ppm(np.asarray(shares) / sum(shares)).tolist()
    return np.broadcast_to(np.array((PPM - compute - network, compute, network)), (*u.shape, 3))


def cpu_speed_ppm(
    models: Models, family: str, cpus_per_gpu: ArrayLike, memory_gb_per_gpu: float | None = None
) -> NDArray[np.int64]:
    """Return the speed of a model family by CPUs per GPU, which is 1,000,000 at a proportional share (M6).

    Parameters
    ----------
    family : str
        One of the families of models.toml.
    cpus_per_gpu : array
        CPUs per GPU. Speed is linear between the given points, and from 0 to the first point.
    memory_gb_per_gpu : float, optional
        Host memory per GPU [GB], by default the reference. Points that need more memory have the speed of the previous
        point.

    Returns
    -------
    array of int64
        Speed relative to the reference share [ppm], which may exceed 1,000,000.
    """
    curve = models.cpu.families[family]
    points = np.array((0.0, *models.cpu.cpus))
    speeds = np.array((0.0, *curve.speed))
    given = models.cpu.reference_memory_gb if memory_gb_per_gpu is None else memory_gb_per_gpu
    if curve.memory_gb:
        for i, needed in enumerate(curve.memory_gb, 1):
            if needed > max(given, models.cpu.reference_memory_gb):
                speeds[i] = speeds[i - 1]
    return ppm(np.interp(np.asarray(cpus_per_gpu, np.float64), points, speeds))


def elastic_bounds(models: Models, requested: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fewest and most GPUs for jobs (D3): a quarter of the request, rounded up, and twice the request."""
    g = np.asarray(requested, np.int64)
    if models.elastic.rigid:
        return g, g
    return np.maximum(-(-g // models.elastic.shrink), 1), g * models.elastic.grow


def elastic_ppm(models: Models, requested: ArrayLike, n: ArrayLike) -> NDArray[np.int64]:
    """Return the speed of jobs on `n` GPUs, which is 1,000,000 on the requested number (M8, D3).

    The speed is S(n) / S(g) with S(n) = n / (1 + sigma * (n - 1)), and 0 without GPUs. A rigid job runs at full speed
    on at least the requested number of GPUs, and does not run on fewer.
    """
    g = np.asarray(requested, np.int64)
    size = np.asarray(n, np.int64)
    if models.elastic.rigid:
        return np.where(size >= g, PPM, 0)
    sigma = models.elastic.sigma
    return ppm(size * (1 + sigma * (g - 1)) / (np.maximum(g, 1) * (1 + sigma * np.maximum(size - 1, 0))))


def server_speed(models: Models, workers: ArrayLike, servers: ArrayLike) -> NDArray[np.float64]:
    """Return the speed of jobs with parameter servers, in units of one worker that never waits (M28).

    The speed is w / (fixed + pull * w / p + worker * w + server * p). Both numbers must be at least 1.
    """
    w, p = np.asarray(workers, np.float64), np.asarray(servers, np.float64)
    m = models.servers
    return np.asarray(w / (m.fixed + m.pull * w / p + m.worker * w + m.server * p))


def type_speed_ppm(models: Models, job_model: str, gpu_model: str) -> int:
    """Return the speed on `gpu_model` of a job recorded on `job_model`, or 1,000,000 if unknown (D6)."""
    ratio = models.type_speed.ratio
    if job_model == gpu_model:
        return PPM
    speed = ratio.get(job_model, {}).get(gpu_model)
    if speed is None:
        back = ratio.get(gpu_model, {}).get(job_model)
        speed = 1.0 if back is None else 1 / back
    return int(ppm(speed))


def type_speed_table(models: Models, job_models: Sequence[str], gpu_models: Sequence[str]) -> NDArray[np.int64]:
    """Return `type_speed_ppm` of every pair, rows by job model, columns by GPU model (J + 1, G) [ppm].

    The last row is 1,000,000, because jobs of unknown model have the index -1.
    """
    rows = [[type_speed_ppm(models, job, gpu) for gpu in gpu_models] for job in job_models]
    return np.array([*rows, [PPM] * len(gpu_models)], np.int64).reshape(len(job_models) + 1, len(gpu_models))
