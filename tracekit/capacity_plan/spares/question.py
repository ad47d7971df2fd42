"""What is asked about a gang and its spares, and what is out of range."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Self

from tracekit.errors import UsageError
from tracekit.replay.outages.texts import CheckpointsAsked, read_checkpoints

__all__ = ["GangSize", "SpareQuestion"]

_SIZE = re.compile(r"([1-9]\d{0,6})(nodes?)?")
_FEWEST_RESAMPLES, _MOST_RESAMPLES = 5, 1000


@dataclass(frozen=True)
class GangSize:
    """How large a gang is, in GPUs or in nodes."""

    number: int
    in_nodes: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the size of a text such as '256', GPUs, or '32nodes'.

        Raises
        ------
        UsageError
            It is neither.
        """
        found = _SIZE.fullmatch(text.strip())
        if found is None:
            hint = "write a number of GPUs, such as 256, or of nodes, such as 32nodes"
            raise UsageError(f"'{text[:60]}' is not a job size", where="--gang", hint=hint)
        return cls(int(found[1]), found[2] is not None)


@dataclass(frozen=True)
class SpareQuestion:
    """What is asked.

    Raises
    ------
    UsageError
        A number is out of range.
    """

    gang: GangSize
    ettr: float = 0.95
    """The effective training time ratio to be kept [0..1]."""
    checkpoint: CheckpointsAsked = field(default_factory=CheckpointsAsked)
    model: str | None = None
    """Nodes of this GPU model; None takes any."""
    cluster: str | None = None
    resamples: int = 40
    """How often nodes are drawn, for the outages as recorded and for those turned and drawn by lot."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.ettr < 1:  # which no NaN is
            hint = "0.95 asks for 95 % of the time"
            raise UsageError(
                f"the share of useful time must be above 0 and below 1, not {self.ettr:g}", where="--ettr", hint=hint
            )
        if not _FEWEST_RESAMPLES <= self.resamples <= _MOST_RESAMPLES:
            what = (
                f"the number of resamples must be from {_FEWEST_RESAMPLES} to {_MOST_RESAMPLES:,}, not "
                f"{self.resamples:,}"
            )
            raise UsageError(what, where="--resamples", hint="40 are enough for 95 % intervals")

    @classmethod
    def of(cls, gang: str | int, ettr: float = 0.95, checkpoint: str | None = None, **others: object) -> Self:
        """Return the question of what a command line gives.

        Raises
        ------
        UsageError
            A text cannot be read, or a number is out of range.
        """
        return cls(GangSize.of(str(gang)), ettr, read_checkpoints(checkpoint), **others)  # type: ignore[arg-type]
