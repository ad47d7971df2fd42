"""Panels: lists of policies that have a name of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.registry import named_policy
from tracekit.replay.registry import policies as known_policies

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LITERATURE", "PANEL", "all_of_the_literature", "meant_by", "standard_panel"]

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

LITERATURE = "all-of-the-literature"
"""The name of the panel of all policies of this package."""


def standard_panel() -> tuple[str, ...]:
    """Return the panel without policies that are not installed."""
    known = known_policies()
    return tuple(text for text in PANEL if text.partition(",")[0] in known)


def all_of_the_literature() -> tuple[str, ...]:
    """Return every policy of this package with its defaults: those of the standard panel first, then by name."""
    standard = standard_panel()
    own = (name for name, kind in known_policies().items() if kind.__module__.startswith("tracekit.policies."))
    return (*standard, *(name for name in own if name not in standard))


def meant_by(policies: Sequence[str] | None) -> tuple[list[str], frozenset[str]]:
    """Return the policies that are meant, each as on a command line, and which of them may be left out.

    Parameters
    ----------
    policies : sequence of str, optional
        Policies, and names of panels, which stand for those of their policies that are not named beside them; the
        standard panel when None.

    Returns
    -------
    list of str, frozenset of str
        What a panel holds is left out where it cannot run; what is named is not.
    """
    if policies is None:
        return list(standard_panel()), frozenset(standard_panel())
    named = {named_policy(text).label for text in policies if text != LITERATURE}
    rest = [text for text in all_of_the_literature() if named_policy(text).label not in named]
    found: list[str] = []
    for text in policies:
        found += rest if text == LITERATURE else [text]
    return found, frozenset(rest) if LITERATURE in policies else frozenset()
