"""The policies that are tried when none is named."""

from __future__ import annotations

from tracekit.replay.registry import policies

__all__ = ["PANEL", "standard_panel"]

PANEL = (
    "fifo",
    "fifo,scan=skip",
    "sjf",
    "ssf",
    "srtf",
    "srsf",
    "las",
    "gittins",
    "qssf",
    "easy",
    "conservative",
    "fair-share",
    "drf",
    "philly",
    "kueue",
    "hived",
    "recorded",
)
"""The standard panel, as on a command line; the first is what the others are compared with."""


def standard_panel() -> tuple[str, ...]:
    """Return the panel, as far as its policies are there."""
    known = policies()
    return tuple(text for text in PANEL if text.partition(",")[0] in known)
