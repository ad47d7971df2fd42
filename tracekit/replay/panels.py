"""Panels: named lists of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.registry import named_policy
from tracekit.replay.registry import policies as known_policies

if TYPE_CHECKING:
    from collections.abc import Sequence


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
"""The standard panel, written as on a command line; all others are compared with the first."""

LITERATURE = "all-of-the-literature"
"""Name of the panel of all policies in this package."""


def standard_panel() -> tuple[str, ...]:
    """Return the standard panel without policies that are not installed."""
    known = known_policies()
    return tuple(text for text in PANEL if text.partition(",")[0] in known)


def all_of_the_literature() -> tuple[str, ...]:
    """Return every policy of this package with its defaults: first the standard panel, then the others by name."""
    standard = standard_panel()
    own = (name for name, kind in known_policies().items() if kind.__module__.startswith("tracekit.policies."))
    return (*standard, *(name for name in own if name not in standard))


def meant_by(policies: Sequence[str] | None) -> tuple[list[str], frozenset[str]]:
    """Return the requested policies, each written as on a command line, and those that may be skipped.

    Parameters
    ----------
    policies : sequence of str, optional
        Policies and panel names. A panel name stands for those of its policies that are not named individually. None
        means the standard panel.

    Returns
    -------
    list of str, frozenset of str
        A policy from a panel is skipped if it cannot run here; a policy named individually is not.
    """
    if policies is None:
        return list(standard_panel()), frozenset(standard_panel())
    named = {named_policy(text).label for text in policies if text != LITERATURE}
    rest = [text for text in all_of_the_literature() if named_policy(text).label not in named]
    found: list[str] = []
    for text in policies:
        found += rest if text == LITERATURE else [text]
    return found, frozenset(rest) if LITERATURE in policies else frozenset()
