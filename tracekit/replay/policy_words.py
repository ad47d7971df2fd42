"""Names of policies for operators: plain words, with the technical name in parentheses."""

from __future__ import annotations

from tracekit.replay.results.recorded_times import RECORDED, TWIN
from tracekit.text import shorten

WORDS = {
    TWIN: "the twin",
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
    "limits": "limits of what may be held (limits)",
    "delay-scheduling": "waiting for near GPUs (delay scheduling)",
    "power-down": "idle nodes switched off (power-down)",
}
"""The policies of the standard panel and those that guidelines try; other policies keep their own names."""
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
"""Shorter names for policies whose full names do not fit next to an axis."""
_NAME = 60
_LABEL = 27


def spoken(policy: str) -> str:
    """Return the plain name of a policy written as on a command line; parameters follow its technical name.

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
