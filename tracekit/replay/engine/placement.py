"""The names of the placement rules (see placement.pxi for the rules themselves)."""

from __future__ import annotations

RULES = {
    "consolidate": "BEST_FIT",
    "best-fit": "BEST_FIT",
    "worst-fit": "WORST_FIT",
    "spread": "WORST_FIT",
    "first-fit": "FIRST_FIT",
    "buddy": "BUDDY",
}
"""Names of the placement rules, with the constant for each in the kernel."""
