"""Effects that tracekit reports for planted sites, compared with the same sites under the changed rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import tracekit
from tests.worlds.kinds import make_site
from tests.worlds.site import Outage, first_waits, last_limits, simulate, with_nodes
from tests.worlds.slurm_dump import START, write_logs
from tracekit.calibration.api import calibrate
from tracekit.calibration.twins import TwinReplays
from tracekit.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.worlds.site import Site
    from tracekit.calibration.twins import Change

ORDERS = {
    "strict": ("fifo", {"order": "arrival", "backfill": "strict"}),
    "passing": ("fifo,scan=skip", {"order": "arrival", "backfill": "passing"}),
    "easy": ("easy,noise=limit", {"order": "arrival", "backfill": "easy"}),
    "shortest": ("sjf,scan=skip,noise=limit", {"order": "shortest", "backfill": "passing"}),
}
"""Changes of the rules: the policy in tracekit, and the site's rules."""
MORE = (1, 2, 4)
"""Numbers of nodes to add."""


class Reported(NamedTuple):
    """An effect on the mean wait of one part of a site, next to the truth. All times are in seconds."""

    change: str
    recorded_s: float
    changed_s: float
    low_s: float
    high_s: float
    true_s: float

    @property
    def inside(self) -> bool:
        """Whether the interval contains the true mean, to the second."""
        return self.low_s - 1 <= self.true_s <= self.high_s + 1

    @property
    def wrong_sign(self) -> bool:
        """Whether the interval claims a change in one direction, and the truth is a change in the other."""
        claimed = (self.low_s > self.recorded_s) - (self.high_s < self.recorded_s)
        return claimed * (self.true_s - self.recorded_s) < 0


class Judged(NamedTuple):
    """One part of a site: its grade, its share of the site's waiting time, and the effects reported for it."""

    part: str
    grade: str
    share: float
    rules: str
    effects: tuple[Reported, ...]


def judged_site(kind: str, seed: int, folder: Path) -> list[Judged]:
    """Calibrate a site from its logs, and return each part next to the truth."""
    site = make_site(kind, seed)
    runs = simulate(site)
    write_logs(site, runs, folder / "logs", last_limits(site))
    trace = tracekit.ingest_logs(folder / "logs", folder / "trace").ingested.divided
    found = calibrate(trace, limit=200_000)
    truth = _Truth(site)
    whole = sum(wait for job, wait in zip(site.jobs, first_waits(site, runs), strict=True) if job.gpus)
    judged = []
    for one in found.clusters:
        twin = TwinReplays(one, trace, Progress())
        apart = one.name if any(node.partitions == (one.name,) for node in site.nodes) else None
        own = [truth.place[name] for name in one.bench.jobs.job_id.to_list()]
        effects = []
        since = 0 if one.since is None else int((one.since.replace(tzinfo=START.tzinfo) - START).total_seconds())
        changes: dict[str, tuple[Change, Site]] = {
            name: (policy, _under(site, rules, since)) for name, (policy, rules) in ORDERS.items()
        }
        nodes = one.bench.cluster(one.settings).machines
        for asked in MORE:
            more = one.bench.more_nodes(one.settings, asked / nodes)
            changes[f"+{more.nodes}"] = more, _with_nodes_since(site, more.nodes, apart, since)
        for name, (made, other) in changes.items():
            effect = twin.effect(made, "queue")
            if isinstance(effect, str):
                continue
            times = twin.times(made)
            assert not isinstance(times, str)
            counted = ~np.isnan(one.bench.recorded_s) & ~np.isnan(one.times.queue_s) & ~np.isnan(times.queue_s)
            true = truth.waits(name if name in ORDERS else f"{name} {apart}", other)[np.array(own)[counted]].mean()
            effects.append(
                Reported(name, effect.recorded_s, effect.changed_s, effect.low_s, effect.high_s, float(true))
            )
        share = float(np.nansum(one.bench.recorded_s) / whole) if whole else 0.0
        judged.append(Judged(one.name, one.score.grade, share, one.settings.rules.words(), tuple(effects)))
    return judged


class _Truth:
    def __init__(self, site: Site) -> None:
        self.place = {f"site/{job.number}": k for k, job in enumerate(site.jobs)}
        self._known: dict[str, NDArray[np.float64]] = {}

    def waits(self, name: str, site: Site) -> NDArray[np.float64]:
        """Return the wait of each job of a changed site, or infinity if it never starts [s]."""
        if name not in self._known:
            pairs = zip(site.jobs, simulate(site), strict=True)
            self._known[name] = np.array([ran[0].start - job.submit if ran else np.inf for job, ran in pairs])
        return self._known[name]


def _under(site: Site, rules: dict[str, str], since: int) -> Site:
    """Return the site with changed rules from a time on."""
    if not since:
        return replace(site, rules=replace(site.rules, **rules))  # type: ignore[arg-type]  # fields of Rules
    _, then = site.later or (0, site.rules)
    return replace(site, last=(since, replace(then, **rules)))  # type: ignore[arg-type]  # as above


def _with_nodes_since(site: Site, more: int, partition: str | None, since: int) -> Site:
    """Return the site with more nodes from a time on."""
    found = with_nodes(site, more, partition)
    new = range(len(site.nodes), len(found.nodes)) if since else ()
    return replace(found, outages=[*found.outages, *(Outage(0, since, node) for node in new)])
