"""Plans of simulated sites, compared with the same sites with more nodes and with further months."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import tracekit
from tests.capacity_plan.queues import twin_of
from tests.replay.builders import make_cluster
from tests.worlds.kinds import DAY, DAYS, make_long_site, make_site
from tests.worlds.site import first_waits, simulate, with_nodes
from tests.worlds.slurm_dump import write_logs
from tracekit.calibration.rules import Rules
from tracekit.capacity_plan.plan import plan_cluster
from tracekit.capacity_plan.question import PlanQuestion
from tracekit.capacity_plan.result import CapacityPlan
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worlds.site import Site

__all__ = ["MONTHS", "PlannedSite", "further_months", "planned_site"]

MONTHS = 6
"""Number of months of the sites in `further_months`. The first month is the log."""
_MORE = (1, 2, 4)
_ENOUGH = 6
"""A site that misses the target with this many nodes more counts as one that no number of nodes helps."""


class PlannedSite(NamedTuple):
    """A plan for half of the mean wait, compared with the truth."""

    right: bool
    """Whether the answer is within one node of the truth."""
    right_if_fixed: bool
    """The same for the answer with quotas that stay as they are. False if the plan has no such answer."""
    inside: dict[int, bool]
    """Whether the true mean wait with this many nodes more is in the plan's interval."""


class _Truth:
    def __init__(self, site: Site) -> None:
        self.site = site
        parts = {node.partitions for node in site.nodes}
        apart = len(parts) > 1 and all(len(names) == 1 for names in parts)
        waited = {names[0]: self._mean(0, names[0]) for names in parts} if apart else {}
        jobs = {name: sum(job.partition == name for job in site.jobs) for name in waited}
        self.partition = max(waited, key=lambda name: waited[name] * jobs[name]) if apart else None
        self.limit = round(self.mean(0) / 2)

    def mean(self, more: int) -> float:
        """Return the mean wait of GPU jobs with more nodes, or infinity if a job never starts [s]."""
        return self._mean(more, self.partition)

    def _mean(self, more: int, partition: str | None) -> float:
        changed = with_nodes(self.site, more, partition)
        runs = simulate(changed)
        if not all(runs):
            return float("inf")
        pairs = zip(changed.jobs, first_waits(changed, runs), strict=True)
        return float(np.mean([wait for job, wait in pairs if job.gpus and partition in (None, job.partition)]))

    def near(self, more: int | None) -> bool:
        """Return whether a number of additional nodes is within one node of the smallest that keeps the target."""
        if more is None:
            return self.mean(_ENOUGH) > self.limit
        return self.mean(more + 1) <= self.limit < self.mean(more - 2)


def planned_site(kind: str, seed: int, folder: Path, resamples: int = 40) -> PlannedSite | None:
    """Return the plan for a site's logs, compared with the truth, or None if no plan is given."""
    site = make_site(kind, seed)
    truth = _Truth(site)
    write_logs(site, simulate(site), folder / "logs")
    trace = tracekit.ingest_logs(folder / "logs", folder / "trace")
    try:
        plan = tracekit.plan(trace, f"mean<={truth.limit}s", resamples=resamples)
    except UsageError:
        return None
    now, (answer,) = plan.recorded["nodes"], plan.answers
    found, fixed = answer.found, answer.fixed
    inside = {}
    for row in plan.more:
        if row["model"] is None and row["more_nodes"] in _MORE:
            true = truth.mean(row["more_nodes"])
            inside[row["more_nodes"]] = row["mean_wait_low_s"] <= true <= row["mean_wait_high_s"]
    return PlannedSite(
        truth.near(None if found.number is None else found.number - now),
        fixed is not None and truth.near(None if fixed.number is None else fixed.number - now),
        inside,
    )


def further_months(seed: int, load: float, resamples: int = 40) -> list[tuple[bool, bool]]:
    """Return whether the mean and the 90th percentile of each further month's waits are in the plan's intervals.

    The plan knows the site's rule, so its intervals are tested alone.
    """
    site = make_long_site(seed, load, MONTHS)
    waits = np.array(first_waits(site, simulate(site)), np.float64)
    submit = np.array([job.submit for job in site.jobs])
    month = submit // (DAYS * DAY)
    log = np.flatnonzero(month == 0).tolist()
    rows = [(float(submit[k]), site.jobs[k].gpus, float(min(site.jobs[k].run, site.jobs[k].limit))) for k in log]
    starts = (submit + waits)[log].tolist()
    nodes = len(site.nodes)
    twin = twin_of(rows, starts, make_cluster([8] * nodes), rules=Rules(scan="skip"))
    plan = plan_cluster(twin, PlanQuestion(numbers=(nodes,), resamples=resamples))
    assert isinstance(plan, CapacityPlan), plan
    (row,) = plan.capacity
    return [
        (
            row["mean_wait_low_s"] <= own.mean() <= row["mean_wait_high_s"],
            row["p90_wait_low_s"] <= np.quantile(own, 0.9) <= row["p90_wait_high_s"],
        )
        for own in (waits[month == k] for k in range(1, MONTHS))
    ]
