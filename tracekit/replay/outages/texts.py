"""Text options of a replay with outages: where outages come from, and how jobs save their work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tracekit.errors import UsageError, nearest

_KINDS = ("recorded", "model", "rate")
_OUTAGES_HINT = "recorded, model, or rate=0.005,repair=4 (outages per node and day; hours)"
_CHECKPOINT_HINT = "such as interval=3600,cost=60,restart=300 in seconds; interval may be daly or none"


@dataclass(frozen=True)
class OutagesAsked:
    """Where the outages of a replay come from."""

    kind: Literal["recorded", "model", "rate"]
    rate: float = 0.0
    """For the kind rate: outages per node and day."""
    repair_h: float | None = None
    """For the kind rate: mean length of an outage [hours]; None uses the lengths in the log."""


@dataclass(frozen=True)
class CheckpointsAsked:
    """How jobs save their work.

    The defaults, an hour and five minutes, are what Kokolis et al. assume for training jobs ("Revisiting Reliability in
    Large-Scale Machine Learning Research Clusters", 2024).
    """

    interval_s: float | Literal["daly", "none"] = 3600.0
    """Work between two checkpoints [s]; 'daly' is optimal for each job's failure rate, 'none' saves nothing."""
    cost_s: float = 0.0
    """Time for which a checkpoint stops the work [s]."""
    restart_s: float = 300.0
    """Time from getting GPUs again until work resumes from the last checkpoint [s]."""

    @property
    def words(self) -> str:
        """The rule in words, such as 'every 3600 s at a cost of 60 s, restart in 300 s'."""
        if self.interval_s == "none":
            every = "no checkpoints: an outage costs all work"
        elif isinstance(self.interval_s, str):
            every = f"at Daly's interval for a cost of {self.cost_s:g} s"
        else:
            every = f"every {self.interval_s:g} s of work at a cost of {self.cost_s:g} s"
        return f"{every}; restart in {self.restart_s:g} s"


def read_outages(text: str) -> OutagesAsked:
    """Parse a source of outages, such as 'recorded' or 'rate=0.005,repair=4'.

    Raises
    ------
    UsageError
        The text is not a source of outages, or a number is out of range.
    """
    if text in ("recorded", "model"):
        return OutagesAsked("recorded" if text == "recorded" else "model")
    values = _values(text, ("rate", "repair"), "--outages", _OUTAGES_HINT)
    if "rate" not in values:
        raise UsageError(f"'{text[:60]}' is not a source of outages", where="--outages", hint=_OUTAGES_HINT)
    rate = _number(values["rate"], "rate", "--outages", _OUTAGES_HINT)
    repair = values.get("repair")
    return OutagesAsked(
        "rate", rate, None if repair is None else _number(repair, "repair", "--outages", _OUTAGES_HINT, above=True)
    )


def read_checkpoints(text: str | None) -> CheckpointsAsked:
    """Parse a checkpoint rule, such as 'interval=3600,cost=60,restart=300'; missing parts get their defaults.

    Raises
    ------
    UsageError
        The text is not a checkpoint rule, a number is out of range, or a checkpoint costs more than the work that it
        saves.
    """
    if text is None:
        return CheckpointsAsked()
    values = _values(text, ("interval", "cost", "restart"), "--checkpoint", _CHECKPOINT_HINT)
    default = CheckpointsAsked()
    cost, restart = default.cost_s, default.restart_s
    if "cost" in values:
        cost = _number(values["cost"], "cost", "--checkpoint", _CHECKPOINT_HINT)
    if "restart" in values:
        restart = _number(values["restart"], "restart", "--checkpoint", _CHECKPOINT_HINT)
    interval = values.get("interval")
    if interval == "daly":
        if cost == 0:
            raise UsageError("free checkpoints have no best interval", where="--checkpoint", hint="add cost=SECONDS")
        return CheckpointsAsked("daly", cost, restart)
    if interval == "none":
        return CheckpointsAsked("none", 0.0, restart)
    every = default.interval_s
    if interval is not None:
        every = _number(interval, "interval", "--checkpoint", _CHECKPOINT_HINT, above=True)
    if not isinstance(every, str) and cost > every:
        raise UsageError(
            f"a checkpoint of {cost:g} s after every {every:g} s of work would take most of the time",
            where="--checkpoint",
            hint="use an interval above the cost, or interval=daly",
        )
    return CheckpointsAsked(every, cost, restart)


def _values(text: str, names: tuple[str, ...], where: str, hint: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name not in names or name in values:
            raise UsageError(
                f"'{part[:60]}' is not valid here",
                where=where,
                hint=nearest(name[:60], names) if equals and name not in names else hint,
            )
        values[name] = value
    return values


def _number(text: str, name: str, where: str, hint: str, *, above: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0 and value <= 1e9) or (above and value == 0):
        least = "above 0" if above else "0 or more"
        raise UsageError(f"{name} must be a number {least}, not '{text[:40]}'", where=where, hint=hint)
    return value
