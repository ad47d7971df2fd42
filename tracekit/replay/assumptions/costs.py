"""Costs under the assumption models: time without progress [ms] and power [mW]."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.assumptions.speeds import PPM, ppm
from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.assumptions.sections import PowerConfig, Preset


def overhead_ms(
    models: Models,
    preset: str,
    gpus: ArrayLike,
    event: Literal["preempt", "migrate", "resize"] = "preempt",
    family: str | None = None,
) -> NDArray[np.int64]:
    """Return how long gangs make no progress after an event (M9), including the time to redo lost work.

    Parameters
    ----------
    preset : str
        One of the presets in models.toml or in the user's file.
    gpus : array
        Gang sizes, at least 1 [GPUs].
    event : str
        The event. If a preset has no cost for it, a preemption's cost applies.
    family : str, optional
        Model family of the jobs, for the preset muri.

    Returns
    -------
    array of int64
        Overhead [ms], rounded.

    Raises
    ------
    UsageError
        The preset does not exist.
    """
    presets = models.overhead.presets
    if preset not in presets:
        raise UsageError(f"'{preset[:80]}' is not an overhead preset", hint=nearest(preset[:80], presets))
    found = presets[preset]
    size = np.maximum(np.asarray(gpus, np.int64), 1)
    special = {"migrate": found.migrate_s, "resize": found.resize_s}.get(event)
    seconds: NDArray[np.float64]
    if special is not None:
        seconds = np.full(size.shape, special)
    elif preset == "muri" and family in models.overhead.families:
        seconds = _by_family(models.overhead.families[family], size, _by_size(found, size))
    else:
        seconds = _by_size(found, size)
    if event == "preempt":
        seconds = seconds + models.overhead.lost_work_s
    return np.asarray(np.rint(seconds * 1000), np.int64)


def _by_size(preset: Preset, size: NDArray[np.int64]) -> NDArray[np.float64]:
    if preset.base_s is not None and preset.per_doubling_s is not None:
        return np.asarray(preset.base_s + preset.per_doubling_s * (np.log2(size) + 1))
    steps = np.searchsorted(np.array(preset.up_to, np.int64), size, side="left")
    return np.asarray(np.array(preset.seconds)[steps])


def _by_family(costs: dict[str, float], size: NDArray[np.int64], unknown: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cost of the largest listed size that does not exceed the gang, or `unknown` if none."""
    found = unknown
    for least, seconds in sorted((int(key), value) for key, value in costs.items()):
        found = np.where(size >= least, seconds, found)
    return np.asarray(found)


def power_config(models: Models, gpu_model: str = "") -> PowerConfig:
    """Return the power of a GPU model: the entry for the longest matching prefix in models.toml, or the default."""
    start = _beginning(models.power.gpu_models, gpu_model)
    return models.power.configs[models.power.config if start is None else models.power.gpu_models[start]]


def _beginning(table: Mapping[str, object], gpu_model: str) -> str | None:
    """Return the longest key that is a prefix of a GPU model's name (ignoring case), or None."""
    name = gpu_model.casefold()
    return max((start for start in table if name.startswith(start.casefold())), key=len, default=None)


def gpu_prices(models: Models, gpu_models: Sequence[str]) -> NDArray[np.float64]:
    """Return the hourly price of a GPU of each model (M25), or of an unnamed GPU if no models are given."""
    starts = [_beginning(models.gpu_price.models, name) for name in gpu_models or [""]]
    prices = models.gpu_price
    return np.array([prices.default if start is None else prices.models[start] for start in starts])


def power_mw(
    models: Models, clock_ppm: ArrayLike, utilization_ppm: ArrayLike, gpu_model: str = ""
) -> NDArray[np.int64]:
    """Return the power of one GPU (M7), idle + u * (max * (s0 + (1 - s0) * f^3) - idle), rounded [mW].

    Parameters
    ----------
    clock_ppm, utilization_ppm : array
        Clock share f and utilization u [ppm].
    gpu_model : str
        GPU model, or '' if unknown.
    """
    config = power_config(models, gpu_model)
    f = np.clip(np.asarray(clock_ppm, np.int64), 0, PPM) / PPM
    u = np.clip(np.asarray(utilization_ppm, np.int64), 0, PPM) / PPM
    busy = config.max_w * (models.power.s0 + (1 - models.power.s0) * f * f * f)
    return np.rint(1000 * (config.idle_w + u * (busy - config.idle_w))).astype(np.int64)


def power_w(models: Models, f: ArrayLike, u: ArrayLike, gpu_model: str = "") -> NDArray[np.float64]:
    """Return the power of one GPU to show [W], exact to a milliwatt.

    Parameters
    ----------
    f, u : array
        Clock share and utilization [0..1].
    gpu_model : str
        GPU model, or '' if unknown.
    """
    return np.asarray(power_mw(models, ppm(f), ppm(u), gpu_model) / 1000)


def clock_speed_ppm(models: Models, f: ArrayLike) -> NDArray[np.int64]:
    """Return the speed at a clock share f [0..1], f^a (M7) [ppm]."""
    return ppm(np.clip(np.asarray(f, np.float64), 0, 1) ** models.power.a)


# The price of a kWh over time (M41).

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class PowerPrices:
    """A repeating series of hourly prices."""

    lead_ms: int
    """Time from the start of the hour of `price[0]` to time 0 of the replay [ms]."""
    price: NDArray[np.float64]
    """Price of each hour [per kWh], for at least one hour (L,)."""
    unit: str
    """Currency."""

    def paid(self, time_ms: ArrayLike) -> NDArray[np.float64]:
        """Return the integral of the price from the hour of `price[0]` to a time [price * ms]."""
        bounds = np.concatenate([[0.0], np.cumsum(self.price)]) * HOUR_MS
        rounds, rest = np.divmod(np.asarray(time_ms, np.int64) + self.lead_ms, len(self.price) * HOUR_MS)
        hour, part = np.divmod(rest, HOUR_MS)
        return np.asarray(rounds * bounds[-1] + bounds[hour] + self.price[hour] * part)


def power_prices(models: Models, origin: dt.datetime) -> PowerPrices:
    """Return the prices of a replay whose time 0 is `origin`.

    A daily curve follows the UTC time of day of `origin` plus `utc_offset_h`. A series starts at the hour of `origin`
    and repeats when it ends.
    """
    given = models.power_price
    local = naive_utc(origin) + dt.timedelta(hours=given.utc_offset_h)
    midnight = dt.datetime.combine(local.date(), dt.time())
    since_ms = int((local - midnight) / dt.timedelta(milliseconds=1))
    if given.series:
        return PowerPrices(since_ms % HOUR_MS, np.array(given.series, np.float64), given.unit)
    return PowerPrices(since_ms, np.array(given.day, np.float64), given.unit)
