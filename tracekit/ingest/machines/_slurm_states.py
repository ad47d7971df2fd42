"""What Slurm's words for the state of a node mean for work.

Words and signs: NODE STATE CODES in slurm.schedmd.com/sinfo.html. A node that fails (FAIL, FAILING) "is unavailable for
use per system administrator request", so it is drained and not merely degraded.
"""

from __future__ import annotations

import re

_STATES = {
    "down": ("down", "error"),
    "maintenance": ("maint", "maintenance", "reboot", "reboot_issued", "reboot_requested"),
    "drained": ("drain", "draining", "drained", "drng", "fail", "failing", "failg"),
}
"""Slurm's words by the state of node_events, the worst first."""

_NO_MACHINE = ("future", "futr")
_FIT = (
    *("idle", "mix", "mixed", "alloc", "allocated", "comp", "completing", "resv", "reserved", "plnd", "planned"),
    *("unk", "unknown", "boot", "block", "blocked", "inval", "invalid_reg", "err", "npc", "perfctrs"),
    *("power_down", "powering_down", "powered_down", "power_up", "powering_up", "pow_dn", "pow_up"),
)
_SIGNS = re.compile(r"[*~#!%$@^+-]+$")


def fitness(words: str | list[str]) -> str | None:
    """Return the state of node_events for a node in these states, None for one that is fit.

    Of compound states such as DOWN+DRAIN the worst counts. The sign * alone, a node that does not answer just now,
    does not take it out of service.

    Parameters
    ----------
    words : str or list of str
        As printed, `IDLE+DRAIN`, `down*`, `drng@`; or the flags one by one.
    """
    plain = _plain(words)
    return next((state for state, known in _STATES.items() if plain.intersection(known)), None)


def is_no_machine(words: str | list[str]) -> bool:
    """Return whether a name stands for no machine yet, as those of the state FUTURE."""
    return not _plain(words).isdisjoint(_NO_MACHINE)


def is_node_state(words: str) -> bool:
    """Return whether a cell holds a state of nodes; jobs have others."""
    known = {*_FIT, *_NO_MACHINE, *(word for group in _STATES.values() for word in group)}
    return not _plain(words).isdisjoint(known)


def _plain(words: str | list[str]) -> set[str]:
    parts = words.split("+") if isinstance(words, str) else words
    return {_SIGNS.sub("", part.strip()).lower() for part in parts}
