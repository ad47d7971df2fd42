"""Write a Slurm log with outages: two months of a cluster that trains large models, its machines, and their events.

The cluster is invented in a way that the answers are known: nodes go down at a constant rate, one of them far more
often, and a job that is stopped goes on from its last checkpoint. Times are seconds since 1970 of its wall clock.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["write_slurm_outages"]

FOLDER = "slurm-outages"
HOUR = 3600
DAY = 24 * HOUR
FIRST_DAY = 1714953600
"""2024-05-06 00:00:00 [s], a Monday."""
DAYS = 60
NODES = 24
PER_NODE = 8
"""GPUs of a node."""
RATE = 0.05
"""Outages of a node in a day in which it is up."""
LEMON, LEMON_RATE = 6, 0.4
"""The place of a node that goes down far more often, and how often in a day."""
REPAIR = ((0, HOUR // 2), (0.5, 4 * HOUR), (0.9, 12 * HOUR), (1, 36 * HOUR))
"""How long a node is away [s]: 6.7 h in the mean."""
REASONS = (
    ("Xid 79 GPU has fallen off the bus", 30), ("GPU ECC uncorrectable error", 22), ("NVLink error", 14),
    ("IB link down", 12), ("Not responding", 12), ("power supply failed", 6), ("fan failure", 4),
)  # fmt: skip
"""Reasons of outages and their weights."""
SAVED = 4 * HOUR
"""Every job saves its work each time it has run for so long [s]."""
RESTART = 600
"""A job that begins again does no work for so long [s]."""
GANG = 16
"""Nodes of the largest jobs, of which one after the other trains."""
GANG_RUN = (3 * DAY, 6 * DAY)
"""Work of one of them [s]."""
SMALL = 700
"""Other jobs."""
SIZES = ((1, 40), (2, 16), (4, 18), (8, 20), (16, 6))
"""GPUs of the other jobs and their weights."""
RUN = ((0, 120), (0.4, HOUR), (0.8, 5 * HOUR), (0.97, 12 * HOUR), (1, 20 * HOUR))
"""Work of the other jobs [s]."""
STATES = (("COMPLETED", 82), ("FAILED", 12), ("CANCELLED by 1002", 6))
"""How the other jobs end if no node fails, and their weights."""

COLUMNS = (
    "JobID", "JobIDRaw", "Cluster", "Submit", "Start", "End", "State", "Elapsed", "Timelimit", "AllocTRES", "NNodes",
    "NodeList", "Account", "Partition", "User", "JobName",
)  # fmt: skip
EVENTS = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"


@dataclass(order=True)
class _Job:
    place: tuple[int, int, int]
    """Order in which jobs start: the largest first, then by submission."""
    number: int = field(compare=False)
    submit: int = field(compare=False)
    gpus: int = field(compare=False)
    left: int = field(compare=False)
    """Run time until it would end [s]."""
    state: str = field(compare=False)
    user: str = field(compare=False)
    held: list[int] = field(default_factory=list, compare=False)
    """Nodes on which it runs."""
    start: int = field(default=0, compare=False)
    runs: int = field(default=0, compare=False)


@dataclass(frozen=True)
class _Outage:
    node: int
    since: int
    until: int
    reason: str


def write_slurm_outages(folder: Path, seed: int) -> list[Quirk]:
    """Write the trace below `folder` and return what was planted."""
    draw = Draw(seed, "slurm-outages")
    outages, jobs = _outages(draw), _jobs(draw)
    rows = ["|".join(COLUMNS), *_runs(jobs, outages)]
    write_rows(folder / FOLDER / "sacct.txt", rows)
    told = [EVENTS]
    for outage in sorted(outages, key=lambda o: (o.since, o.node)):
        times = f"{_time(outage.since)}|{_time(outage.until)}"
        told.append(f"train|{_name(outage.node)}|{times}|DOWN|{outage.reason}|root(0)")
    write_rows(folder / FOLDER / "sacctmgr-event.psv", told)
    write_rows(folder / FOLDER / "scontrol-nodes.txt", [line for node in range(NODES) for line in _machine(node)])
    stopped = sum("|NODE_FAIL|" in row for row in rows)
    return [
        Quirk(f"{FOLDER}/sacct.txt", "NODE_FAIL", "stopped", f"{stopped} runs stop as a node of theirs goes down"),
        Quirk(
            f"{FOLDER}/sacct.txt", "every row", "checkpoints",
            "work is saved after each 4 h of a run, and 10 min of the next run are a restart",
        ),
        Quirk(
            f"{FOLDER}/sacctmgr-event.psv", _name(LEMON), "lemon",
            f"goes down {LEMON_RATE:g} times a day, every other node {RATE:g} times",
        ),
    ]  # fmt: skip


def _outages(draw: Draw) -> list[_Outage]:
    """Draw for each hour and node whether it goes down; the time between two is geometric, near to exponential."""
    found = []
    for node in range(NODES):
        now = FIRST_DAY
        while now < FIRST_DAY + DAYS * DAY:
            if draw.chance((LEMON_RATE if node == LEMON else RATE) / 24):
                since = now + draw.between(0, HOUR - 1)
                until = since + int(draw.quantile(REPAIR))
                found.append(_Outage(node, since, until, draw.weighted(REASONS)))
                now = until
            else:
                now += HOUR
    return found


def _jobs(draw: Draw) -> list[_Job]:
    drawn: list[tuple[int, int, int, str, str]] = []
    now = FIRST_DAY + 2 * HOUR
    while now < FIRST_DAY + (DAYS - 8) * DAY:
        run = draw.between(*GANG_RUN)
        drawn.append((now, GANG * PER_NODE, run, "COMPLETED", "pretrain"))
        # What stops a job makes it longer: the next one is submitted when this one has most likely ended.
        now += run * 13 // 10
    for _ in range(SMALL):
        submit = FIRST_DAY + draw.between(0, (DAYS - 2) * DAY)
        run = int(draw.quantile(RUN))
        drawn.append((submit, draw.weighted(SIZES), run, draw.weighted(STATES), f"u{draw.between(1, 12):02d}"))
    return [
        _Job((gpus < GANG * PER_NODE, submit, number), number, submit, gpus, run, state, user)
        for number, (submit, gpus, run, state, user) in enumerate(sorted(drawn), start=70_001)
    ]


def _runs(jobs: list[_Job], outages: list[_Outage]) -> Iterator[str]:
    """Yield a row for each run as it ends, of jobs that start as soon as they fit and none before them waits."""
    free, up = [PER_NODE] * NODES, [True] * NODES
    waiting: list[_Job] = []
    running: dict[int, _Job] = {}
    # Of one second first ends, then nodes that come back, then nodes that go down, then submissions.
    ahead = [(job.submit, 3, job.number, 0) for job in jobs]
    ahead += [(outage.until, 1, outage.node, 0) for outage in outages]
    ahead += [(outage.since, 2, outage.node, 0) for outage in outages]
    heapq.heapify(ahead)
    by_number = {job.number: job for job in jobs}
    while ahead:
        now, kind, what, run = heapq.heappop(ahead)
        if kind == 0 and what in running and by_number[what].runs == run:
            yield _end(running.pop(what), now, by_number[what].state, free)
        elif kind == 1:
            up[what] = True
        elif kind == 2:
            up[what] = False
            for job in [job for job in running.values() if what in job.held]:
                yield _end(running.pop(job.number), now, "NODE_FAIL", free)
                saved = (now - job.start) // SAVED * SAVED
                # A run that has saved nothing leaves its own restart, if it had one, to be done again.
                job.left += (RESTART if saved or job.runs == 1 else 0) - saved
                job.submit = now
                heapq.heappush(waiting, job)
        elif kind == 3:
            heapq.heappush(waiting, by_number[what])
        while waiting and (nodes := _place(waiting[0].gpus, free, up)):
            job = heapq.heappop(waiting)
            job.held, job.start, job.runs = nodes, now, job.runs + 1
            for node in nodes:
                free[node] -= min(job.gpus, PER_NODE)
            running[job.number] = job
            heapq.heappush(ahead, (now + job.left, 0, job.number, job.runs))


def _place(gpus: int, free: list[int], up: list[bool]) -> list[int]:
    """Return the fullest nodes on which a job fits, none where it does not."""
    each, number = min(gpus, PER_NODE), max(1, gpus // PER_NODE)
    fits = sorted((free[node], node) for node in range(NODES) if up[node] and free[node] >= each)
    return sorted(node for _, node in fits[:number]) if len(fits) >= number else []


def _end(job: _Job, now: int, state: str, free: list[int]) -> str:
    """Give a job's nodes back, and return the row of the run."""
    for node in job.held:
        free[node] += min(job.gpus, PER_NODE)
    count = len(job.held)
    tres = f"cpu={8 * job.gpus},gres/gpu:h100={job.gpus},gres/gpu={job.gpus},mem={64 * job.gpus}G,node={count}"
    elapsed = now - job.start
    days, rest = divmod(elapsed, DAY)
    clock = f"{rest // HOUR:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    team = "foundation" if job.gpus == GANG * PER_NODE else "research"
    names = ",".join(_name(node) for node in job.held)
    return "|".join((
        str(job.number), str(job.number), "train", _time(job.submit), _time(job.start), _time(now), state,
        f"{days}-{clock}" if days else clock, "14-00:00:00", tres, str(count), names, team, "h100", job.user, "train",
    ))  # fmt: skip


def _machine(node: int) -> list[str]:
    name = _name(node)
    return [
        f"NodeName={name} Arch=x86_64 CoresPerSocket=32 ",
        "   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.10",
        f"   Gres=gpu:h100:{PER_NODE}",
        f"   NodeAddr={name} NodeHostName={name} Version=23.11.4",
        "   RealMemory=1024000 AllocMem=0 FreeMem=1000000 Sockets=2 Boards=1",
        "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        "   Partitions=h100 ",
        f"   CfgTRES=cpu=64,mem=1000G,billing=64,gres/gpu={PER_NODE},gres/gpu:h100={PER_NODE}",
        "",
    ]


def _name(node: int) -> str:
    return f"hgx{node + 1:02d}"


def _time(seconds: int) -> str:
    return stamp(seconds).replace(" ", "T")
