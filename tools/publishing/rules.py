"""The rules that map reference numbers to queries."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["GPU_JOBS", "UNSUCCESSFUL", "Rule", "Skip"]

GPU_JOBS = "gpu_class!=0"
UNSUCCESSFUL = "failed|timeout|node_fail"
"""Slurm statuses that the Helios and Acme studies count as failed."""


@dataclass(frozen=True)
class Rule:
    """The place where a query measures the numbers of one artefact and metric.

    `row`, `of` and `params` may contain {key} for a key in the reference number's group. The rule skips numbers without
    that key.
    """

    artefact: str
    """Regular expression."""
    metric: str
    """Regular expression."""
    query: str
    column: str
    row: str = ""
    aggregate: str = ""
    of: str = ""
    weight: str = ""
    params: str = ""
    options: str = ""
    cluster: str | None = None
    """The cluster, by default the group's, or '*' if `row` names it."""
    note: str = ""
    """Known population mismatch, in addition to the artefact's."""
    only: str = ""
    """Regular expression that the group must match."""

    def fits(self, artefact: str, metric: str, group: str) -> bool:
        """Return whether the rule applies to this number."""
        return _fits(self.artefact, self.metric, artefact, metric) and bool(re.search(self.only, group))


@dataclass(frozen=True)
class Skip:
    """Numbers that are excluded, with the reason."""

    artefact: str
    metric: str
    reason: str

    def fits(self, artefact: str, metric: str) -> bool:
        """Return whether the reason applies to this number."""
        return _fits(self.artefact, self.metric, artefact, metric)


def _fits(wanted_artefact: str, wanted_metric: str, artefact: str, metric: str) -> bool:
    return bool(re.fullmatch(wanted_artefact, artefact) and re.fullmatch(wanted_metric, metric))
