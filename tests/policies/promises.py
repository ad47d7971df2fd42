"""Read a replay's report on the deadlines that a policy promises to meet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tracekit.replay.results.comparison import ReplayResult

__all__ = ["Promises", "promises_of", "told"]


class Promises(NamedTuple):
    """Numbers of jobs."""

    promised: int
    in_time: int
    declined: int


def told(result: ReplayResult) -> str:
    """Return the sentence about promises."""
    return str(result.summary["assumptions"]["promises"]["value"])


def promises_of(result: ReplayResult) -> Promises:
    """Return the numbers of the sentence about promises."""
    found = re.search(r"([\d,]+) promised \(([\d,]+) in time\), ([\d,]+) declined", told(result))
    assert found is not None
    return Promises(*(int(number.replace(",", "")) for number in found.groups()))
