"""The rules of a site: partitions, tiers, limits, CPUs and memory together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, believed
from tracekit.replay.jobs import Others, with_others
from tracekit.replay.site.mechanism import Limit, SiteRules, WithOthers, tiers_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

_OWNERS = {"user": ("user", "users"), "vc": ("tenant", "tenants"), "partition": ("partition", "partitions")}
"""Whose sum a limit bounds: the fields of `Jobs` with the owner of each job and their names."""
_COUNTED = ("gpus", "jobs")


class Site(Policy):
    """The rules of a site: partitions with tiers, limits on users, VCs and partitions, CPUs and memory.

    Jobs of earlier `tiers` (partitions, joined by '/') go first, and within a tier the `order` decides. A job starts on
    the nodes of its partition that have enough free GPUs, CPUs and memory: on those with the fewest free GPUs, then
    CPUs, then on the first in the list of nodes. A job on several nodes spreads evenly over the fewest nodes that can
    hold it. CPUs and memory count if they are known for all nodes. A job at a limit is skipped and holds up no other
    job. Behind a job that cannot start, later jobs of its partition wait (strict), may pass it (passing), or may pass
    it if that does not delay the first waiting job of any partition (easy). A job that outlives its estimate is
    expected to end at any moment. `limits` are joined by '/': user:gpus:16 limits the GPUs of each user, vc:jobs:8 the
    jobs of each VC, and vc:NAME:gpus:32 the GPUs of one. An array of jobs with a limit on its tasks keeps to it. With
    `preempts`, a job that does not fit stops jobs of another QOS or partition, the youngest first and as few as make
    room. They start over when they run again.

    Equal to
    --------
    - With one partition, one GPU per job, order=arrival and no limits, passing equals fifo,scan=skip, and strict equals
      fifo,scan=stop.

    Sources
    -------
    - Partitions, PriorityTier, MaxTRESPerUser, GrpTRES, MaxJobsPerUser and Preempt of Slurm; queues and limits of PBS
      and LSF.
    - Our choices: the order of nodes, which jobs are stopped, one promise per partition, and estimates that were
      exceeded.
    """

    card = Card(
        name="site",
        parameters=(
            Parameter(
                "order",
                "arrival",
                "which jobs of a tier go first: the earliest, the most urgent, the shortest, those with the least GPU "
                "time, or those of the user or VC that uses the fewest GPUs",
                ("arrival", "priority", "shortest", "smallest", "fair-share-user", "fair-share-vc"),
            ),
            Parameter(
                "behind",
                "passing",
                "what later jobs of a partition do while a job cannot start",
                ("strict", "passing", "easy"),
                words=(
                    "later jobs of the partition wait behind a job that cannot start",
                    "later jobs may overtake a job that cannot start",
                    "later jobs may overtake if they do not delay a partition's first waiting job",
                ),
            ),
            Parameter("tiers", "none", "partitions that go first, in order, joined by '/', or none"),
            Parameter(
                "preempts",
                "none",
                "whose jobs may stop whose, joined by '/': qos:high:low, partition:rush:batch, or none",
            ),
            Parameter("limits", "none", "limits, joined by '/': user:gpus:16, vc:jobs:8, vc:NAME:gpus:32, or none"),
            NOISE,
        ),
        assumptions=("D1", "M11"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> SiteRules:
        """Return the rules with one key, tier and owner per job."""
        p = self.parameters
        limits = () if p["limits"] == "none" else tuple(p["limits"].split("/"))
        jobs, own, elsewhere = with_others(everyone := _with_concerned(jobs, limits))
        length = believed(jobs, models, p["noise"], seed)
        known = jobs.work_ms if length is None else length
        keys = {
            "priority": -jobs.priority.astype(np.int64),
            "shortest": known,
            "smallest": known * jobs.devices,
        }
        owners = {"fair-share-user": jobs.user, "fair-share-vc": jobs.tenant}
        return SiteRules(
            key=keys.get(p["order"], np.zeros(len(jobs), np.int64)),
            tier=tiers_of(jobs, () if p["tiers"] == "none" else tuple(map(unquote, p["tiers"].split("/")))),
            behind=p["behind"],
            limits=(
                *(_limit(text, jobs) for text in limits),
                *_arrays(jobs),
            ),
            length_ms=length,
            owner=owners.get(p["order"]),
            **({} if p["preempts"] == "none" else _stops(p["preempts"].split("/"), jobs)),
            others=None if everyone.others is None else WithOthers(jobs, own, elsewhere),
        )


def _with_concerned(jobs: Jobs, limits: tuple[str, ...]) -> Jobs:
    """Return the jobs without others that run elsewhere and count towards none of the limits of these jobs."""
    others = jobs.others
    if others is None:
        return jobs
    kept = ~others.elsewhere
    for text in limits:
        per, *middle, _, _ = text.split(":") if text.count(":") in {2, 3} else ("", "", "")
        codes, names = (getattr(others.jobs, field) for field in _OWNERS.get(per, ("user", "users")))
        concerned = {unquote(middle[0])} if middle else set(getattr(jobs, _OWNERS.get(per, ("", "users"))[1]))
        if codes is not None:
            # The last entry is for unknown owners, because their code -1 indexes it.
            kept |= np.array([*(name in concerned for name in names), False])[codes]
    if kept.all():
        return jobs
    left = None if not kept.any() else Others(others.jobs.rows(np.flatnonzero(kept)), others.elsewhere[kept])
    return replace(jobs, others=left)


def _limit(text: str, jobs: Jobs) -> Limit:
    per, *middle, of, most = text.split(":") if text.count(":") in {2, 3} else ("", "", "")
    if per not in _OWNERS or of not in _COUNTED or not (most.isascii() and most.isdigit() and len(most) < 16):
        raise UsageError(
            f"the policy site: limits={text[:80]} is not a limit",
            hint="write user:gpus:16, vc:jobs:8 or vc:NAME:gpus:32",
        )
    codes, names = (getattr(jobs, field) for field in _OWNERS[per])
    owner: NDArray[np.int32] = np.full(len(jobs), -1, np.int32) if codes is None else codes.astype(np.int32)
    if middle:
        owner = np.where(owner == _named(unquote(middle[0]), per, names), owner, -1).astype(np.int32)
    return Limit("gpus" if of == "gpus" else "jobs", owner, np.full(len(names), int(most), np.int64))


def _stops(rules: list[str], jobs: Jobs) -> dict[str, NDArray[np.int64]]:
    """Return by which of the rules each job may stop others, and may be stopped, as the fields of `SiteRules`."""
    if len(rules) > _MOST_RULES:
        raise UsageError(f"the policy site: preempts has {len(rules):,} rules; use at most {_MOST_RULES}")
    may_stop, yields = np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64)
    for bit, text in enumerate(rules):
        per, *names = text.split(":")
        if per not in _CLASSES or len(names) != 2:
            raise UsageError(
                f"the policy site: preempts={text[:80]} is not a rule",
                hint="write qos:high:low or partition:rush:batch",
            )
        codes, known = (getattr(jobs, field) for field in _CLASSES[per])
        for name, rows in zip(names, (may_stop, yields), strict=True):
            rows[codes == _named(unquote(name), per, known)] |= 1 << bit
    return {"may_stop": may_stop, "yields": yields}


_CLASSES = {"qos": ("qos", "qoses"), "partition": ("partition", "partitions")}
"""The fields of `Jobs` with the class of each job by which it may stop others, and their names."""
_MOST_RULES = 62


def _arrays(jobs: Jobs) -> tuple[Limit, ...]:
    """Return the limit on the tasks of each array, if any."""
    if jobs.array is None or jobs.array_most is None:
        return ()
    most = np.ones(int(jobs.array.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, jobs.array[tasks := jobs.array >= 0], jobs.array_most[tasks])
    return (Limit("jobs", jobs.array, most),)


def _named(name: str, per: str, names: Sequence[Any]) -> int:
    if name not in names:
        raise UsageError(
            f"the policy site: no {per} is called '{name[:80]}'", hint=nearest(name[:80], list(names)[:200])
        )
    return list(names).index(name)
