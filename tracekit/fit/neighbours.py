"""Which size classes a class of few jobs is pooled with: those beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.fit.jobs import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["neighbours"]

_WITH_GPUS = CLASSES[1:]
"""Jobs without GPUs are of another kind, and neighbours of none."""


def neighbours(jobs: Mapping[str, int], name: str, least: int) -> list[str] | None:
    """Return the size classes from the first to the last that are pooled, small to large.

    Beginning with the class itself, the next smaller or the next larger class with jobs is added, whichever has fewer
    jobs (the smaller one of equal ones), so that the class keeps as large a part as it can, until there are enough.

    Parameters
    ----------
    jobs : mapping
        Number of jobs of each size class.
    name : str
        The class of few jobs.
    least : int
        Jobs that are enough.

    Returns
    -------
    list or None
        None where all classes with GPUs have too few, or the class is that of jobs without GPUs.
    """
    there = [c for c in _WITH_GPUS if jobs.get(c)]
    if name not in there:
        return None
    first = last = there.index(name)
    while sum(jobs[c] for c in there[first : last + 1]) < least:
        smaller = jobs[there[first - 1]] if first > 0 else None
        larger = jobs[there[last + 1]] if last + 1 < len(there) else None
        if smaller is not None and (larger is None or smaller <= larger):
            first -= 1
        elif larger is not None:
            last += 1
        else:
            return None
    return there[first : last + 1]
