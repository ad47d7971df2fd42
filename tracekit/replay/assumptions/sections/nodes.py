"""Assumptions about nodes that come and go: switched off, or on loan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracekit.decode import Range
from tracekit.replay.assumptions.sections.kinds import ModelSection, Seconds, Share
from tracekit.text import counted


@dataclass(frozen=True)
class SwitchedNodes(ModelSection):
    """M40: nodes that are switched off and on."""

    wake_s: Seconds
    """Time from switching on until jobs may start [s]."""
    wake_sweep_s: tuple[Seconds, Seconds, Seconds]
    off_share: Share
    """Power of a node that is off, relative to its idle power [0..1]."""


@dataclass(frozen=True)
class Loans(ModelSection):
    """M42: idle inference servers that are available for training."""

    servers: Annotated[float, Range(0, 100)]
    """Number of servers per training node of a domain and GPU model."""
    mean: Share
    """Share of servers that is free on average."""
    swing: Share
    """Amplitude of that share."""
    period_h: Annotated[float, Range(0.001, 10_000)]
    peak_h: Annotated[float, Range(0, 24)]
    """Hour of the day at which the free share is highest, UTC [h]."""
    series: tuple[Share, ...]
    """Free share in each hour from the first submission on; empty to use the sine wave."""

    @property
    def told(self) -> str:
        """The free share as text for the printed assumptions."""
        if self.series:
            span = f"{100 * min(self.series):g} to {100 * max(self.series):g} %"
            return f"{span} by {counted(len(self.series), 'hours')} from the first submission on, repeated"
        wave = f"{100 * self.mean:g} % and {100 * self.swing:g} % more or less"
        return (
            f"{wave}, a sine wave of {self.period_h:g} h with its maximum at {self.peak_h:g} h UTC, in steps of an hour"
        )
