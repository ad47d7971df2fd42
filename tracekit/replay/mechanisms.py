"""The mechanisms that a policy can hand to the engine, and the types that a planner needs.

A policy is a rule, and a mechanism carries it out. `Ordered` is compiled and covers every policy that sorts jobs by a
key. A `Planner` is Python code that runs after events or in rounds and may do anything. You can also write a mechanism:
any class with a `prepare` method works (see `Mechanism`).
"""

from __future__ import annotations

from tracekit.replay.backfilling.mechanism import Backfill
from tracekit.replay.cells.mechanism import Cells
from tracekit.replay.engine.build import Ordered
from tracekit.replay.engine.run import Mechanism
from tracekit.replay.fractions.mechanism import Fractional
from tracekit.replay.planning.clocks import ClockPower
from tracekit.replay.planning.mechanism import Plan, Planner
from tracekit.replay.planning.view import View
from tracekit.replay.power.capping import PowerCap
from tracekit.replay.power.switching import Switching
from tracekit.replay.quotas.mechanism import Tenants
from tracekit.replay.recording.mechanism import RecordedSchedule
from tracekit.replay.sharing.mechanism import Sharing
from tracekit.replay.site.mechanism import SiteRules

__all__ = [
    "Backfill",
    "Cells",
    "ClockPower",
    "Fractional",
    "Mechanism",
    "Ordered",
    "Plan",
    "Planner",
    "PowerCap",
    "RecordedSchedule",
    "Sharing",
    "SiteRules",
    "Switching",
    "Tenants",
    "View",
]
