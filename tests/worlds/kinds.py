"""Planted sites, where each kind has its rules and a seed determines its jobs.

The kinds in `KNOWN` have rules that tracekit's search can express. The kinds in `OUTSIDE` depend on something that no
log records, so no simulation of them may be graded close or fair. The kinds in `BUSY` have long queues.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tests.worlds.site import Job, Limit, Node, Outage, Reservation, Rules, Site

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86_400
DAYS = 28
_SIZES = (1, 2, 4, 8, 16)
_USERS = 16
_ACCOUNTS = ("vision", "nlp", "bio", "physics")


class Part(NamedTuple):
    """A partition with its own nodes, and its load."""

    name: str
    nodes: int
    load: float
    """GPU time of the partition's jobs, divided by that of its nodes over the whole period."""
    jobs: int
    model: str = "a100"


_ONE = (Part("gpu", 12, 0.95, 1500),)


def make_site(kind: str, seed: int) -> Site:
    """Return a site of a kind, with jobs sampled from a seed."""
    random = np.random.default_rng([seed, [*KNOWN, *OUTSIDE, *BUSY].index(kind)])
    return {**KNOWN, **OUTSIDE, **BUSY}[kind](random)


def _site(random: np.random.Generator, parts: tuple[Part, ...] = _ONE, rules: Rules | None = None) -> Site:
    nodes = [
        Node(f"{part.name}{k:02}", 8, 64, 512, (part.name,), part.model) for part in parts for k in range(part.nodes)
    ]
    jobs = [job for part in parts for job in _jobs(random, part)]
    return Site(nodes, _numbered(jobs), rules or Rules())


def _numbered(jobs: list[Job]) -> list[Job]:
    jobs = sorted(jobs, key=lambda job: job.submit)
    return [job._replace(number=1000 + k) for k, job in enumerate(jobs)]


def make_long_site(seed: int, load: float, months: int) -> Site:
    """Return a site of several months of `DAYS` days. Its load varies by chance from month to month."""
    part = Part("gpu", 12, load, 1500 * months)
    jobs = _jobs(np.random.default_rng([seed, months]), part, DAYS * months)
    return Site([Node(f"gpu{k:02}", 8, 64, 512, ("gpu",)) for k in range(part.nodes)], _numbered(jobs))


def _jobs(random: np.random.Generator, part: Part, days: int = DAYS) -> list[Job]:
    """Sample a partition's jobs, by day and night, with lognormal run times and limits of 1.2 to 8 times these."""
    hours = random.uniform(0, days * 24, 4 * part.jobs)
    daily = 0.6 + 0.4 * np.sin((hours % 24 - 8) / 24 * 2 * np.pi)
    submit = np.sort(hours[random.random(len(hours)) < daily][: part.jobs] * 3600).astype(int)
    count = len(submit)
    gpus = random.choice(_SIZES, count, p=[0.5, 0.15, 0.15, 0.17, 0.03])
    run = np.clip(random.lognormal(8.5, 1.4, count), 30, 3 * DAY)
    run = np.clip(run * part.load * part.nodes * 8 * days * DAY / (gpus * run).sum(), 5, 3 * DAY)
    limit = -(-run * random.choice([1.2, 2.0, 4.0, 8.0], count) // 60) * 60
    limit = np.maximum(np.minimum(limit, 4 * DAY), run)  # the partition's MaxTime
    user = random.choice(_USERS, count, p=np.arange(_USERS, 0, -1) / (_USERS * (_USERS + 1) / 2))
    return [
        Job(
            number=0,
            submit=int(submit[k]),
            run=int(run[k]),
            limit=int(limit[k]),
            user=f"u{user[k]:02}",
            account=_ACCOUNTS[user[k] % len(_ACCOUNTS)],
            partition=part.name,
            gpus=int(gpus[k]),
            cpus=4 * int(gpus[k]),
            memory=32 * int(gpus[k]),
            nodes=max(int(gpus[k]) // 8, 1),
        )
        for k in range(count)
    ]


_DISJOINT = (Part("a100", 6, 0.6, 900), Part("h100", 4, 1.0, 700, "h100"), Part("l40s", 3, 0.7, 400, "l40s"))


def _disjoint(random: np.random.Generator) -> Site:
    return _site(random, _DISJOINT, Rules(backfill="easy"))


def _overlapping(random: np.random.Generator) -> Site:
    """Return a site where half the nodes are also a partition for short jobs, which is served first."""
    site = _site(random, rules=Rules(tiers={"rush": 10}))
    nodes = [n._replace(partitions=("gpu", "rush")) if k % 2 else n for k, n in enumerate(site.nodes)]
    short = random.random(len(site.jobs)) < 0.6
    jobs = [
        j._replace(partition="rush") if j.limit <= 4 * 3600 and j.nodes == 1 and s else j
        for j, s in zip(site.jobs, short, strict=True)
    ]
    return replace(site, nodes=nodes, jobs=jobs)


def _several_rules(random: np.random.Generator) -> Site:
    limits = (Limit("gpus", "user", 24), Limit("gpus", "account", 32, only="nlp"), Limit("jobs", "user", 10))
    return _site(random, _DISJOINT, Rules(backfill="easy", limits=limits))


def _cpu_bound(random: np.random.Generator) -> Site:
    """Return a site where a third of the jobs request most of a node's CPUs but few GPUs."""
    site = _site(random, (Part("gpu", 12, 0.7, 1500),))
    many = random.random(len(site.jobs)) < 0.33
    jobs = [j._replace(cpus=48, memory=128) if m and j.gpus <= 2 else j for j, m in zip(site.jobs, many, strict=True)]
    return replace(site, jobs=jobs)


def _cpu_jobs(random: np.random.Generator) -> Site:
    """Return a site where jobs without GPUs use all CPUs of nodes."""
    site = _site(random, (Part("gpu", 12, 0.6, 1100),))
    more = _jobs(random, Part("gpu", 12, 0.6, 700))
    more = [
        j._replace(gpus=0, cpus=int(c), memory=2 * int(c), nodes=1) for j in more for c in [random.choice([16, 32, 64])]
    ]
    return replace(site, jobs=_numbered(site.jobs + more))


def _account_limits(random: np.random.Generator) -> Site:
    limits = tuple(Limit("gpus", "account", most, only=a) for a, most in zip(_ACCOUNTS, (48, 24, 24, 16), strict=True))
    return _site(random, (Part("gpu", 12, 0.85, 1500),), Rules(backfill="easy", limits=limits))


def _jobs_per_user(random: np.random.Generator) -> Site:
    return _site(random, (Part("gpu", 12, 0.7, 1500),), Rules(limits=(Limit("jobs", "user", 4),)))


def _arrays(random: np.random.Generator) -> Site:
    """Return a site where a tenth of the one-GPU jobs are arrays of 10 to 40 tasks, most of them throttled."""
    site = _site(random, (Part("gpu", 12, 0.75, 1100),))
    jobs: list[Job] = []
    for k, job in enumerate(site.jobs):
        if job.gpus == 1 and random.random() < 0.1:
            tasks, most = int(random.integers(10, 41)), int(random.choice([2, 4, 8, 1000]))
            share = np.maximum(job.run * random.lognormal(0, 0.3, tasks) / 4, 5).astype(int)
            jobs += [job._replace(run=int(r), array=k, array_most=most, limit=max(job.limit, int(r))) for r in share]
        else:
            jobs.append(job)
    jobs = _numbered(jobs)
    first: dict[int, int] = {}
    jobs = [j if j.array is None else j._replace(array=first.setdefault(j.array, j.number)) for j in jobs]
    return replace(site, jobs=jobs)


def _reservations(random: np.random.Generator) -> Site:
    """Return a site with eight hours of maintenance a week, and two nodes reserved for an account on two days."""
    site = _site(random, (Part("gpu", 12, 0.85, 1500),), Rules(backfill="easy"))
    every = tuple(range(len(site.nodes)))
    weekly = [Reservation(d * DAY + 8 * 3600, d * DAY + 16 * 3600, every) for d in range(5, DAYS, 7)]
    return replace(site, reservations=[*weekly, Reservation(10 * DAY, 12 * DAY, (0, 1), "bio")])


def _rule_change(random: np.random.Generator) -> Site:
    """Return a site where, from day 20 on, a user may use at most 16 GPUs."""
    site = _site(random, (Part("gpu", 12, 0.9, 1500),))
    return replace(site, later=(20 * DAY, Rules(limits=(Limit("gpus", "user", 16),))))


def _preemption(random: np.random.Generator) -> Site:
    site = _site(random, (Part("gpu", 12, 0.9, 1500),), Rules(preempts={"high": ("low",)}))
    qos = random.choice(["low", "normal", "high"], len(site.jobs), p=[0.4, 0.4, 0.2])
    return replace(site, jobs=[j._replace(qos=str(q)) for j, q in zip(site.jobs, qos, strict=True)])


def _outages(random: np.random.Generator) -> Site:
    site = _site(random)
    begins = random.uniform(0, DAYS * DAY, 30).astype(int)
    lasts = random.exponential(5 * 3600, 30).astype(int) + 900
    outages = [Outage(int(b), int(b + d), int(random.integers(12))) for b, d in zip(begins, lasts, strict=True)]
    return replace(site, outages=outages)


def _hidden(random: np.random.Generator) -> Site:
    """Return a site where jobs run in an order that no column of the log shows."""
    site = _site(random, rules=Rules(order="hidden"))
    hidden = random.random(len(site.jobs))
    return replace(site, jobs=[j._replace(hidden=float(h)) for j, h in zip(site.jobs, hidden, strict=True)])


def _holds(random: np.random.Generator) -> Site:
    """Return a site where half the jobs are held for hours after submission, which no log shows."""
    site = _site(random, (Part("gpu", 12, 0.6, 1500),))
    held = (random.random(len(site.jobs)) < 0.5) * random.exponential(6 * 3600, len(site.jobs))
    return replace(site, jobs=[j._replace(hold=int(h)) for j, h in zip(site.jobs, held, strict=True)])


KNOWN: dict[str, Callable[[np.random.Generator], Site]] = {
    "disjoint partitions": _disjoint,
    "overlapping partitions": _overlapping,
    "several rules": _several_rules,
    "CPU-bound": _cpu_bound,
    "CPU jobs": _cpu_jobs,
    "account limits": _account_limits,
    "jobs per user": _jobs_per_user,
    "arrays": _arrays,
    "reservations": _reservations,
    "rule change": _rule_change,
    "preemption": _preemption,
    "outages": _outages,
}
OUTSIDE: dict[str, Callable[[np.random.Generator], Site]] = {"hidden order": _hidden, "holds": _holds}


def _overload(random: np.random.Generator, backfill: str) -> Site:
    """Return a site with 1.2 times as much work as it can do, so that the queue grows to the end."""
    return _site(random, (Part("gpu", 12, 1.2, 1500),), Rules(backfill=backfill))


def _ramp(random: np.random.Generator, backfill: str) -> Site:
    """Return a site where jobs come more and more often."""
    site = _site(random, rules=Rules(backfill=backfill))
    last = DAYS * DAY
    jobs = [job._replace(submit=int(last * (job.submit / last) ** 0.65)) for job in site.jobs]
    return replace(site, jobs=_numbered(jobs))


def _bursts(random: np.random.Generator, backfill: str) -> Site:
    """Return a site where 40 % of the jobs come in nine bursts of six hours."""
    site = _site(random, (Part("gpu", 12, 0.85, 1500),), Rules(backfill=backfill))
    begins = random.uniform(0, DAYS * DAY, 9)
    moved = np.where(
        random.random(len(site.jobs)) < 0.4,
        begins[random.integers(9, size=len(site.jobs))] + random.uniform(0, 6 * 3600, len(site.jobs)),
        [job.submit for job in site.jobs],
    )
    jobs = [job._replace(submit=int(time)) for job, time in zip(site.jobs, moved, strict=True)]
    return replace(site, jobs=_numbered(jobs))


BUSY: dict[str, Callable[[np.random.Generator], Site]] = {
    f"{name}, {backfill}": partial(make, backfill=backfill)
    for name, make in (("overload", _overload), ("ramp", _ramp), ("bursts", _bursts))
    for backfill in ("passing", "easy", "strict")
}
