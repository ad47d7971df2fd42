"""Replay the recorded schedule itself: the mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.replay.engine.setting import prepared_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Run, Setting


@dataclass(frozen=True)
class RecordedSchedule:
    """Has no rule: starts and ends are given, and the engine only chooses the nodes."""

    start_ms: NDArray[np.int64]
    """Start of each job [ms], not before its submission; -1 excludes the job (n,)."""
    end_ms: NDArray[np.int64]
    """End of each job [ms], not before its start; -1 leaves it out (n,)."""
    notes: tuple[str, ...] = ()
    """What readers of the result should know, one sentence each."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run that replays the recorded starts and ends."""
        return prepared_by("recording.events", self, setting)
