"""The judgement of one guideline on a Trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tracekit.guidelines.effects import Effect, UntoldEffect
    from tracekit.guidelines.interface import Finding, Guideline
    from tracekit.guidelines.losses import Losses


Verdict = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Judgement:
    """The judgement of one guideline on a Trace."""

    guideline: Guideline
    verdict: Verdict
    why: tuple[str, ...]
    """The missing data, or the threshold that was not crossed; empty if it holds."""
    finding: Finding | None = None
    """None if the Trace lacks what it needs."""
    effect: Effect | None = None
    """The expected effect by replay; only of guidelines that hold."""
    no_effect: str = ""
    """Why the effect is missing; only for guidelines that hold."""
    losses: Losses | None = None
    """The expected effect on the cost of outages, for guidelines about outages; only if they hold."""
    untold: UntoldEffect | None = None
    """The effect that no twin supports, if that is the reason."""
