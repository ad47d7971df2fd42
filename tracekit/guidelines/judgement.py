"""What one guideline says of a Trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tracekit.guidelines.effects import Effect, UnsupportedEffect
    from tracekit.guidelines.interface import Finding, Guideline

__all__ = ["Judgement", "Verdict"]

Verdict = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Judgement:
    """What a guideline says of a Trace."""

    guideline: Guideline
    verdict: Verdict
    why: tuple[str, ...]
    """What decided it: what is lacking, or which threshold was not crossed; empty when it holds."""
    finding: Finding | None = None
    """None when the Trace cannot tell."""
    effect: Effect | None = None
    """What the replay says; of guidelines that hold only."""
    no_effect: str = ""
    """Why there is no effect; of guidelines that hold only."""
    unsupported: UnsupportedEffect | None = None
    """The effect that what the log recorded does not carry, where that is why."""
