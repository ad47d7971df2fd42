"""Panels (named lists of policies), and plain names of policies for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.registry import named_policy
from tracekit.replay.registry import policies as known_policies
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence


# Panels: named lists of policies.

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
"""The standard panel, written as on a command line. The others are compared with the first policy."""

LITERATURE = "all-of-the-literature"
"""Name of the panel that contains all policies in this package."""


def standard_panel() -> tuple[str, ...]:
    """Return the standard panel without policies that are not installed."""
    known = known_policies()
    return tuple(text for text in PANEL if text.partition(",")[0] in known)


def all_of_the_literature() -> tuple[str, ...]:
    """Return every policy in this package with its defaults, first the standard panel and then the others by name."""
    standard = standard_panel()
    own = (name for name, kind in known_policies().items() if kind.__module__.startswith("tracekit.policies."))
    return (*standard, *(name for name in own if name not in standard))


def meant_by(policies: Sequence[str] | None) -> tuple[list[str], frozenset[str]]:
    """Return the requested policies, each written as on a command line, and the policies that may be skipped.

    Parameters
    ----------
    policies : sequence of str, optional
        Policies and panel names. A panel adds its policies that are not already named. None means the standard panel.

    Returns
    -------
    list of str, frozenset of str
        A policy from a panel is skipped if it cannot run here; a policy named on its own is not.
    """
    if policies is None:
        return list(standard_panel()), frozenset(standard_panel())
    named = {named_policy(text).label for text in policies if text != LITERATURE}
    rest = [text for text in all_of_the_literature() if named_policy(text).label not in named]
    found: list[str] = []
    for text in policies:
        found += rest if text == LITERATURE else [text]
    return found, frozenset(rest) if LITERATURE in policies else frozenset()


# Names of policies for operators: plain words, with the technical name in parentheses.

WORDS = {
    TWIN: "the simulation",
    RECORDED: "the log's own schedule (recorded)",
    "fifo": "first in, first out (FIFO)",
    "fifo,scan=skip": "first in, first out with passing (FIFO, scan=skip)",
    "sjf": "shortest job first (SJF)",
    "ssf": "least GPU time first (SSF)",
    "srtf": "shortest remaining time first (SRTF)",
    "srsf": "least remaining GPU time first (SRSF)",
    "las": "least served first (LAS)",
    "gittins": "likeliest to end soon first (Gittins)",
    "qssf": "shortest jobs first by history (QSSF)",
    "easy": "backfilling (EASY)",
    "conservative": "careful backfilling (conservative)",
    "fair-share": "fair share of GPUs (fair-share)",
    "drf": "fair share of all resources (DRF)",
    "philly": "quotas taken back by preemption (Philly)",
    "kueue": "quotas lent and borrowed (Kueue)",
    "hived": "separate parts for tenants (HiveD)",
    "priority": "the log's priorities (priority)",
    "limits": "limits on GPUs (limits)",
    "delay-scheduling": "waiting for near GPUs (delay scheduling)",
    "power-down": "idle nodes switched off (power-down)",
}
"""The policies of the standard panel and of guideline trials. Other policies keep their own names."""
_SHORT = {
    RECORDED: RECORDED,
    "fifo,scan=skip": "FIFO with passing (skip)",
    "srtf": "least time left (SRTF)",
    "srsf": "least work left (SRSF)",
    "gittins": "soonest to end (Gittins)",
    "qssf": "short by history (QSSF)",
    "conservative": "backfilling, conservative",
    "fair-share": "fair share of GPUs",
    "drf": "fair share of all (DRF)",
    "philly": "quotas, preempting (Philly)",
    "kueue": "quotas lent (Kueue)",
    "hived": "separate parts (HiveD)",
}
"""Shorter names of policies for axes."""
_NAME = 60
_LABEL = 27


def spoken(policy: str) -> str:
    """Return the plain name of a policy written as on a command line, with parameters after its technical name.

    Examples
    --------
    >>> spoken("qssf"), spoken("easy,estimates=limit"), spoken("gandiva")
    ('shortest jobs first by history (QSSF)', 'backfilling (EASY, estimates=limit)', 'gandiva')
    """
    if policy in WORDS:
        return WORDS[policy]
    name, _, parameters = policy.partition(",")
    if name in WORDS and parameters:
        return f"{WORDS[name].removesuffix(')')}, {shorten(parameters.replace(',', ', '), _NAME)})"
    return shorten(policy, _NAME)


def short(policy: str) -> str:
    """Return the name of a policy for a chart axis."""
    return _SHORT.get(policy) or shorten(spoken(policy) if policy in WORDS else policy, _LABEL)
