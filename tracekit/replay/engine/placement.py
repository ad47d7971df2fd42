"""The names of the placement rules (see placement.pxi for what they do)."""

from __future__ import annotations

__all__ = ["RULES"]

RULES = {
    "consolidate": "BEST_FIT",
    "best-fit": "BEST_FIT",
    "worst-fit": "WORST_FIT",
    "spread": "WORST_FIT",
    "first-fit": "FIRST_FIT",
    "buddy": "BUDDY",
}
"""Names of the rules for one node, and that of blocks, with the constant that stands for each in the kernel."""
