"""Find the changes between two periods and test whether they are more than noise.

changes(before, after)                  two Traces
changes_since(trace, "2017-10-31")      one Trace, before that day and since

`compare_periods` and `compare_since` also return notes on the comparison.
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
