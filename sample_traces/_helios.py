"""Write the synthetic Helios traces of two clusters: job logs and quota tables, with their planted faults.

Shapes follow Hu et al. (SC 2021): sizes, run times, status shares per cluster, half of the jobs without a GPU, and
the submission rate over the hours of the day. Times are seconds since 1970 of the operator's wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from sample_traces._draw import Table

__all__ = ["write_helios"]

HOUR = 3600
DAY = 24 * HOUR
FIRST_DAY = 1585699200
"""2020-04-01 00:00:00 [s], a Wednesday."""
DAYS = 28
JOBS = 1500

HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
HOURLY = (26, 19, 17, 11, 8, 6, 5, 7, 11, 23, 37, 43, 34, 37, 45, 48, 50, 50, 37, 38, 39, 39, 33, 30)
STATES = {
    True: (("COMPLETED", 0.62), ("CANCELLED", 0.21), ("FAILED", 0.14), ("TIMEOUT", 0.015), ("NODE_FAIL", 0.015)),
    False: (("COMPLETED", 0.89), ("CANCELLED", 0.03), ("FAILED", 0.075), ("TIMEOUT", 0.005)),
}
"""Shares of final states for jobs with (True) and without (False) GPUs."""
Steps = list[tuple[int, int]]  # (day from which it holds, GPUs of the quota)


@dataclass(frozen=True)
class Cluster:
    """What differs between two clusters."""

    name: str
    sizes: tuple[tuple[int, float], ...]
    """GPUs of a job and their weights."""
    gpu_run: Table
    """Run time of GPU jobs [s]."""
    cpu_run: Table
    """Run time of CPU jobs [s]."""
    quotas: tuple[tuple[str, Steps], ...]
    """GPUs per virtual cluster, from day to day."""


VENUS = Cluster(
    "Venus",
    ((1, 52), (2, 6), (4, 7), (8, 25), (16, 4), (24, 1), (32, 3), (64, 2)),
    ((0, 1), (0.1, 16), (0.23, 64), (0.38, 128), (0.55, 256), (0.73, 1024), (0.87, 8192), (0.97, 100_000),
     (1, 420_000)),
    ((0, 0), (0.45, 1), (0.53, 32), (0.84, 128), (0.92, 512), (0.98, 8192), (1, 70_000)),
    (("vcQ1x", [(0, 72)]), ("vcT4k", [(0, 32), (14, 40)]), ("vcSha", [(0, 24)]), ("vcN0w", [(0, 0), (9, 16)]),
     ("vcZ7e", [(0, 16), (14, 8)])),
)  # fmt: skip
EARTH = Cluster(
    "Earth",
    ((1, 76), (2, 8), (4, 7), (8, 7), (16, 1.2), (32, 0.5), (64, 0.3)),
    ((0, 1), (0.12, 16), (0.3, 64), (0.5, 234), (0.75, 1400), (0.9, 9000), (0.97, 40_000), (1, 300_000)),
    ((0, 0), (0.55, 1), (0.75, 5), (0.9, 120), (0.98, 1200), (1, 10_000)),
    (("vcB2m", [(0, 64)]), ("vcSha", [(0, 8)]), ("vcK9d", [(0, 8), (18, 16)]), ("vcW5u", [(0, 8)]),
     ("vcR3p", [(0, 0), (20, 8)])),
)  # fmt: skip


@dataclass
class _Job:
    submit: int
    user: str
    vc: str
    gpus: int
    cpus: int
    state: str
    run: int
    start: int = 0
    number: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    """Columns that a planted fault overwrites."""

    def row(self) -> list[str]:
        """Return the twelve cells of the log."""
        nodes = max(1, -(-self.gpus // 8))
        end = self.start + self.run
        cells = [str(self.number), self.user, self.vc, str(self.gpus), str(self.cpus), str(nodes), self.state]
        cells += [stamp(self.submit), stamp(self.start), stamp(end), str(self.run), str(self.start - self.submit)]
        return [self.fields.get(name, cell) for name, cell in zip(HEADER.split(","), cells, strict=True)]


def write_helios(folder: Path, seed: int) -> list[Quirk]:
    """Write both clusters below `folder` and return what was planted."""
    quirks: list[Quirk] = []
    for cluster in (VENUS, EARTH):
        draw = Draw(seed, f"helios/{cluster.name}")
        jobs = _jobs(cluster, draw)
        _queue(cluster, jobs)
        log = f"helios/{cluster.name}/cluster_log.csv"
        table = f"helios/{cluster.name}/cluster_gpu_number.csv"
        rows, planted = _log(log, cluster, jobs)
        write_rows(folder / log, rows)
        write_rows(folder / table, _quota_rows(cluster))
        quirks += planted + _quota_quirks(table, cluster)
    return quirks


def _jobs(cluster: Cluster, draw: Draw) -> list[_Job]:
    letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    users = ["u" + word for word in draw.words(60, 4, letters)]
    jobs: list[_Job] = []
    while len(jobs) < JOBS:
        job = _job(cluster, users, draw)
        copies = draw.between(6, 14) if draw.chance(0.01) else 1  # a script that submits a whole sweep at once
        for _ in range(copies):
            run = int(draw.quantile(cluster.gpu_run if job.gpus else cluster.cpu_run))
            jobs.append(_Job(job.submit, job.user, job.vc, job.gpus, job.cpus, job.state, run))
    jobs.sort(key=lambda job: job.submit)
    for number, job in enumerate(jobs, start=1):
        job.number = number
    return jobs


def _job(cluster: Cluster, users: list[str], draw: Draw) -> _Job:
    day = draw.weighted([(day, 5.0 if (day + 2) % 7 >= 5 else 9.0) for day in range(DAYS)])
    hour = draw.weighted(list(enumerate(HOURLY)))
    submit = FIRST_DAY + day * DAY + hour * HOUR + draw.between(0, HOUR - 1)
    has_gpu = draw.chance(0.5)
    vc = draw.weighted([(name, _quota(steps, day) + 3.0 * (_quota(steps, day) > 0)) for name, steps in cluster.quotas])
    limit = max(8, min(_quota(dict(cluster.quotas)[vc], later) for later in range(day, DAYS)))
    gpus = draw.weighted([(size, weight) for size, weight in cluster.sizes if size <= limit]) if has_gpu else 0
    cpus = gpus * draw.between(3, 8) if has_gpu else draw.between(1, 16)
    user = users[int(60 * draw.share() * draw.share() * draw.share())]
    return _Job(submit, user, vc, gpus, cpus, draw.weighted(STATES[has_gpu]), 0)


def _quota(steps: Steps, day: int) -> int:
    return [gpus for first, gpus in steps if first <= day][-1]


def _queue(cluster: Cluster, jobs: list[_Job]) -> None:
    """Start the jobs of each virtual cluster in order of submission, within its quota; CPU jobs do not wait."""
    for vc, steps in cluster.quotas:
        running: list[tuple[int, int]] = []  # (end, GPUs)
        now = 0
        for job in [job for job in jobs if job.vc == vc]:
            if job.gpus == 0:
                job.start = job.submit
                continue
            now = max(now, job.submit)
            while True:
                running = [(end, gpus) for end, gpus in running if end > now]
                quota = _quota(steps, max(0, (now - FIRST_DAY) // DAY))
                if sum(gpus for _, gpus in running) + job.gpus <= quota:
                    break
                midnight = FIRST_DAY + ((now - FIRST_DAY) // DAY + 1) * DAY  # a quota changes only there
                now = min([end for end, _ in running] + [midnight])
            job.start = now
            running.append((now + job.run, job.gpus))


def _log(file: str, cluster: Cluster, jobs: list[_Job]) -> tuple[list[str], list[Quirk]]:
    """Return header and rows of the log, and the faults planted in them."""
    quirks = [Quirk(file, f"job_id {job.number}", kind, what) for job, kind, what in _plant(cluster, jobs)]
    burst = next(job for job, other in zip(jobs, jobs[5:], strict=False) if job.submit == other.submit)
    quirks.append(Quirk(file, f"job_id {burst.number} and following", "burst", "many submissions in one second"))
    quirks.append(Quirk(file, "vcSha", "shared-vc-name", "this virtual cluster occurs in Venus and in Earth"))
    quirks.append(Quirk(file, "job_id 1, 2, ...", "ids-per-cluster", "both clusters count from 1"))
    rows = [",".join(job.row()) for job in jobs]
    rows[700], rows[701] = rows[701], rows[700]
    what = f"stands before job_id {jobs[700].number}: one inversion of the order"
    quirks.append(Quirk(file, f"job_id {jobs[701].number}", "inverted-ids", what))
    return [HEADER, *_with_unusable(rows, jobs, file, quirks)], quirks


def _plant(cluster: Cluster, jobs: list[_Job]) -> list[tuple[_Job, str, str]]:
    """Change jobs in place and return (job, kind, what) for each change."""
    used: set[int] = set()

    def take(first: int, *, gpu: bool = True, state: str = "COMPLETED") -> _Job:
        fits = (job for job in jobs[first:] if bool(job.gpus) is gpu and job.state == state)
        job = next(job for job in fits if job.number not in used)
        used.add(job.number)
        return job

    planted: list[tuple[_Job, str, str]] = []
    wide = [job for job in jobs if job.submit >= FIRST_DAY + 21 * DAY][:3]
    for job in wide:
        used.add(job.number)
        job.gpus, job.cpus, job.run, job.state = 64, 256, 2 * HOUR, "COMPLETED"
        job.vc, job.submit, job.start = cluster.quotas[0][0], wide[0].submit, wide[0].submit
        planted.append((job, "over-quota", "one of three 64-GPU jobs of 2020-04-22: together more than the total"))
    for first, blank, word in ((200, "", "empty"), (320, "None", "the word None")):
        job = take(first, state="CANCELLED")
        job.fields = {"start_time": blank, "duration": "0", "queue": str(job.run)}
        job.fields["end_time"] = stamp(job.submit + job.run)
        planted.append((job, "cancelled-before-start", f"start_time is {word}"))
    for first, state, end in ((800, "SUSPENDED", None), (1000, "RUNNING", ""), (1200, "SPECIAL_EXIT", None)):
        job = take(first)
        job.state = state
        if end is not None:
            job.fields = {"end_time": end, "duration": "0"}
        planted.append((job, "rare-state", f"state {state}" + (" without end_time" if end == "" else "")))
    for first, column, more in ((400, "duration", 60), (520, "duration", 3600), (640, "queue", 45)):
        job = take(first)
        stated = (job.run if column == "duration" else job.start - job.submit) + more
        job.fields = {column: str(stated)}
        planted.append((job, f"{column}-disagrees", f"stated {column} is {more} s more than the times give"))
    job = take(900)
    job.fields = {"node_num": str(max(1, -(-job.gpus // 8)) + 1)}
    planted.append((job, "extra-node", "node_num is one more than the GPUs need"))
    job = jobs[0]
    job.gpus, job.cpus, job.submit, job.start = 0, 4, FIRST_DAY - 2 * HOUR, FIRST_DAY - 2 * HOUR
    planted.append((job, "early-submission", "submitted on 2020-03-31, before the window"))
    job = take(150, gpu=False)
    job.run = 16 * DAY + 5 * HOUR
    planted.append((job, "long-run", "runs for more than 16 days"))
    return planted


def _with_unusable(rows: list[str], jobs: list[_Job], file: str, quirks: list[Quirk]) -> list[str]:
    """Return the rows with five more that no reader can keep."""
    cells = jobs[650].row()
    last = len(jobs)

    def broken(number: int, **changes: str) -> str:
        names = HEADER.split(",")
        new = {**dict(zip(names, cells, strict=True)), "job_id": str(number), **changes}
        return ",".join(new[name] for name in names)

    more = [
        (300, ",".join(broken(last + 1).split(",")[:8]), last + 1, "few-fields", "eight fields"),
        (500, broken(last + 2) + ",0,0", last + 2, "many-fields", "fourteen fields"),
        (750, broken(last + 3, submit_time="2020-04-31 12:00:00"), last + 3, "unreadable-time", "April has 30 days"),
        (950, broken(last + 4, gpu_num="-8"), last + 4, "negative-gpus", "gpu_num is -8"),
        (1150, broken(jobs[650].number, user="uTwin"), jobs[650].number, "repeated-id", "second row, user uTwin"),
    ]
    rows = list(rows)
    for place, row, number, kind, what in more:
        rows.insert(place, row)
        quirks.append(Quirk(file, f"job_id {number}", kind, what, usable=False))
    return rows


def _quota_rows(cluster: Cluster) -> list[str]:
    rows = ["date," + ",".join(name for name, _ in cluster.quotas) + ",total"]
    for day in range(DAYS):
        gpus = [_quota(steps, day) for _, steps in cluster.quotas]
        total = sum(gpus) + (8 if day == 5 else 0)
        date = stamp(FIRST_DAY + day * DAY)[:10]
        rows.append(",".join([date, *(str(count) for count in gpus), str(total)]))
    return rows


def _quota_quirks(file: str, cluster: Cluster) -> list[Quirk]:
    quirks = [Quirk(file, "2020-04-06", "total-disagrees", "total is 8 more than the sum of the row")]
    for name, steps in cluster.quotas:
        for (_, old), (day, new) in pairwise(steps):
            date = stamp(FIRST_DAY + day * DAY)[:10]
            quirks.append(Quirk(file, f"{date} {name}", "quota-change", f"from {old} to {new} GPUs"))
    return quirks
