"""What changed between two periods, and whether that is more than noise.

changes(before, after)                  two Traces
changes_since(trace, "2017-10-31")      one Trace, before that day and since

`compare_periods` and `compare_since` return the notes of the comparison too.
"""

from __future__ import annotations

from tracekit.characterize.changes.compare import Changes, changes, changes_since, compare_periods, compare_since
from tracekit.characterize.changes.periods import MEASURES, PeriodMeasure, read_day

__all__ = [
    "MEASURES",
    "Changes",
    "PeriodMeasure",
    "changes",
    "changes_since",
    "compare_periods",
    "compare_since",
    "read_day",
]
