"""What a rule of the mapping from reference numbers to queries is."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["GPU_JOBS", "UNSUCCESSFUL", "Rule", "Skip"]

GPU_JOBS = "gpu_class!=0"
UNSUCCESSFUL = "failed|timeout|node_fail"
"""The Slurm statuses that the Helios and Acme studies count as failed."""


@dataclass(frozen=True)
class Rule:
    """Where a query measures the numbers of one artefact and metric.

    `row`, `of` and `params` may hold {key} of the reference number's group; a number without that key is not meant.
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
    """'*' where `row` names the cluster; by default the group's."""
    note: str = ""
    """The known mismatch of populations, in addition to the artefact's."""
    only: str = ""
    """Regular expression that the group must match."""

    def fits(self, artefact: str, metric: str, group: str) -> bool:
        """Return whether the rule speaks of this number."""
        return _fits(self.artefact, self.metric, artefact, metric) and bool(re.search(self.only, group))


@dataclass(frozen=True)
class Skip:
    """Numbers that are left out, and why."""

    artefact: str
    metric: str
    reason: str

    def fits(self, artefact: str, metric: str) -> bool:
        """Return whether the reason speaks of this number."""
        return _fits(self.artefact, self.metric, artefact, metric)


def _fits(wanted_artefact: str, wanted_metric: str, artefact: str, metric: str) -> bool:
    return bool(re.fullmatch(wanted_artefact, artefact) and re.fullmatch(wanted_metric, metric))
