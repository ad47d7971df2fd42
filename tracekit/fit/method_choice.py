"""Which way a synthetic Trace is made of a log: what was asked for, or what scored best on the log's last part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.fit.model import WorkloadModel
    from tracekit.progress import Progress

__all__ = ["HYBRIDS", "METHODS", "Way"]

METHODS = ("model", "resample", "hybrid")
"""Ways to make jobs."""
HYBRIDS = ("arrivals", "jobs")
"""What of a hybrid comes from the log."""


@dataclass(frozen=True)
class Way:
    """How a synthetic Trace is made of a Trace."""

    method: str
    hybrid: str
    rate: str | None

    @classmethod
    def of(
        cls, model: WorkloadModel | None, method: str | None, hybrid: str | None, rate: str | None, progress: Progress
    ) -> Way:
        """Return what was asked for, or scored best.

        Raises
        ------
        UsageError
            A rate is asked for, where arrivals are those of the log.
        """
        scores = (model.document.get("scores") if model is not None else None) or {}
        chosen = method or ("hybrid" if hybrid is not None else scores.get("best"))
        if chosen is None:
            chosen = "resample"
            progress.note("days of the log are resampled; a model with scores (--model) says what comes nearest to it")
        part = hybrid or scores.get("hybrid") or HYBRIDS[0]
        if rate is not None and (chosen == "resample" or (chosen == "hybrid" and part == "arrivals")):
            raise UsageError("is of a model: resampled days keep the rates of the log", where="--rate")
        return cls(chosen, part, rate)
