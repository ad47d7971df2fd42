"""A cap on the power of the cluster's GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import FIT, NOISE, scan
from tracekit.replay.assumptions.costs import clock_speed_ppm, power_config
from tracekit.replay.assumptions.of_jobs import estimates_ms
from tracekit.replay.assumptions.speeds import ppm
from tracekit.replay.keys import by_arrival, shortest, smallest
from tracekit.replay.mechanisms import Ordered, PowerCap
from tracekit.replay.results.energy import power_draw_mw

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["PowerCapped", "full_w"]

_CLOCKS = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
_KEYS = {"fifo": by_arrival, "sjf": shortest, "ssf": smallest}
_ENDLESS = 1 << 62


class PowerCapped(Policy):
    """All clocks are lowered together as far as a cap on the power asks."""

    card: ClassVar[Card] = Card(
        name="power-cap",
        title="one clock for all GPUs, as high as a power cap allows",
        rule=(
            "Jobs start as under fifo, sjf or ssf, and are never stopped. After every event the clock of all running "
            "jobs is the highest of 1.0, 0.9, ... 0.4 of the full one at which the GPUs, idle ones included, draw at "
            "most the cap by M7; where not even 0.4 keeps it, 0.4. The cap is `cap_w`, or else `share` of what all "
            "GPUs would draw when fully used. No job is kept waiting to save power. The recorded run times are taken "
            "to be at full clock."
        ),
        parameters=(
            Parameter("cap_w", 0.0, "power that all GPUs together may draw, 0 for `share` [W]"),
            Parameter("share", 0.7, "the cap as a share of the power of all GPUs when fully used", maximum=1),
            Parameter("order", "fifo", "which jobs go first", ("fifo", "sjf", "ssf")),
            scan("stop"),
            FIT,
            NOISE,
        ),
        assumptions=("D1", "M4", "M7", "M11"),
        equal_to=(
            "With cap_w=inf, it is the policy that `order` names.",
            "With s0 = 1 in the models, a lower clock saves nothing: as soon as the cap binds, the clock is 0.4.",
        ),
        sources=(
            "The power of PowerFlow (arXiv 2304.06381) alone, without its choice of GPUs and of clocks job by job.",
            "One clock for all, and its steps: our choice.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> PowerCap:
        """Return the order, and the cap with what each job draws."""
        p = self.parameters
        fifo = p["order"] == "fifo"
        order = Ordered(
            _KEYS[p["order"]],
            scan=p["scan"],
            fit=p["fit"],
            drift="none",
            by_arrival=fifo,
            estimate_ms=None if fifo else estimates_ms(models, jobs.work_ms, seed, p["noise"]),
        )
        cap_w = p["cap_w"] or p["share"] * full_w(cluster, models)
        draw, s0 = power_draw_mw(jobs, cluster, models), models.power.s0
        return PowerCap(
            order,
            cap_mw=_ENDLESS if math.isinf(cap_w) else min(round(cap_w * 1000), _ENDLESS),
            speed_ppm=tuple(clock_speed_ppm(models, _CLOCKS).tolist()),
            drawn_ppm=tuple(ppm(s0 + (1 - s0) * _CLOCKS**3).tolist()),
            idle_mw=draw.idle,
            busy_mw=draw.busy,
            rest_mw=draw.rest,
        )


def full_w(cluster: Cluster, models: Models) -> float:
    """Return what all GPUs draw when fully used [W]."""
    most = np.array([power_config(models, name).max_w for name in cluster.models])
    return float((most[cluster.model] * cluster.gpus).sum())
