"""The price of a kWh over time (M41)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from tracekit.replay.assumptions.models import Models


HOUR_MS = 3_600_000


@dataclass(frozen=True)
class PowerPrices:
    """Hourly prices, repeating."""

    lead_ms: int
    """Time since the start of the hour of `price[0]`, at time 0 of the replay [ms]."""
    price: NDArray[np.float64]
    """Price of each hour [per kWh] (L,); at least one hour."""
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

    A daily curve follows the clock of `origin` in UTC plus `utc_offset_h`. A series starts with the hour of `origin`,
    and repeats when it ends.
    """
    given = models.power_price
    local = naive_utc(origin) + dt.timedelta(hours=given.utc_offset_h)
    midnight = dt.datetime.combine(local.date(), dt.time())
    since_ms = int((local - midnight) / dt.timedelta(milliseconds=1))
    if given.series:
        return PowerPrices(since_ms % HOUR_MS, np.array(given.series, np.float64), given.unit)
    return PowerPrices(since_ms, np.array(given.day, np.float64), given.unit)
