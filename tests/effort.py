"""How many random cases are tried: a third of what a test names, all with TRACEKIT_LONG=1 (`just nightly`)."""

from __future__ import annotations

import os

__all__ = ["examples"]


def examples(number: int) -> int:
    """Return how many of so many random cases are tried in this run."""
    return number if os.environ.get("TRACEKIT_LONG") == "1" else max(number // 3, 1)
