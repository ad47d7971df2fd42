"""How long gangs waited lately for GPUs of a tier."""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import TypeAlias

__all__ = ["Waits"]

Key: TypeAlias = tuple[int, ...]


class Waits:
    """The last waits by key, such as (GPU model, tier).

    Parameters
    ----------
    length : int
        How many are kept for each key.
    """

    def __init__(self, length: int = 20) -> None:
        self._length = length
        self._of: dict[Key, deque[float]] = {}

    def add(self, key: Key, wait_ms: float) -> None:
        """Note a wait [ms]."""
        self._of.setdefault(key, deque(maxlen=self._length)).append(wait_ms)

    def mean(self, key: Key, least: int, otherwise: float) -> float:
        """Return the mean wait, or another number if too few are known [ms]."""
        known = self._of.get(key, ())
        return sum(known) / len(known) if len(known) >= max(least, 1) else otherwise

    def upper(self, key: Key, least: int, otherwise: float) -> float:
        """Return the mean wait plus one standard deviation, or another number if too few are known [ms]."""
        known = self._of.get(key, ())
        if len(known) < max(least, 1):
            return otherwise
        mean = sum(known) / len(known)
        return mean + sqrt(sum((wait - mean) ** 2 for wait in known) / len(known))
