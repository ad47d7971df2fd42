"""The Philly workload: who submits what, and a small gang scheduler that places it.

Sizes, run times, status shares and the clock of the day follow the figures of Jeon et al. (USENIX ATC 2019) and of
the notebook released with the trace. Times are UTC seconds since 1970; :func:`pacific` turns them into wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sample_traces._draw import stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sample_traces._draw import Draw, Table

__all__ = ["FALL_BACK", "SERVERS", "SNAPSHOT", "Attempt", "Job", "pacific", "schedule", "workload"]

HOUR = 3600
DAY = 24 * HOUR

FALL_BACK = 1509872400
"""2017-11-05 09:00:00 UTC [s]: the Pacific clock goes from 02:00 PDT back to 01:00 PST."""

FIRST_DAY = 1507532400
"""2017-10-09 00:00:00 PDT [s], a Monday."""

SNAPSHOT = FALL_BACK + 7 * DAY + 23 * HOUR
"""2017-11-13 00:00:00 PST [s]: what still runs here has no end."""

SERVERS: dict[str, int] = {
    **dict.fromkeys(("m3", "m8", "m14", "m21", "m29"), 8),
    **dict.fromkeys(("m102", "m107", "m115"), 4),  # up to here: the servers with telemetry, preferred in ties
    **dict.fromkeys(("m33",), 8),
    **dict.fromkeys(("m118", "m121", "m126"), 4),
}
"""True number of GPUs per server; the released list of machines says something else."""

# Minutes, from the run-time curves per size class of the released notebook; tails cut at about nine days.
RUN_MINUTES: dict[int, Table] = {
    1: ((0, 0.3), (0.12, 1), (0.25, 2), (0.4, 10), (0.5, 19), (0.75, 63), (0.9, 240), (0.96, 1000), (1, 7000)),
    2: ((0, 0.3), (0.23, 1), (0.38, 10), (0.5, 30), (0.57, 100), (0.75, 900), (0.9, 2600), (1, 9000)),
    8: ((0, 0.3), (0.08, 1), (0.22, 10), (0.39, 60), (0.5, 200), (0.68, 900), (0.9, 3600), (1, 9000)),
    16: ((0, 0.3), (0.13, 1), (0.26, 10), (0.43, 60), (0.5, 230), (0.75, 910), (0.9, 2600), (1, 6000)),
}
SIZES = ((1, 0.73), (2, 0.08), (4, 0.08), (8, 0.085), (16, 0.025))
STATUS = (("Pass", 0.69), ("Killed", 0.135), ("Failed", 0.175))
QUOTAS = (40, 32, 24, 24, 16, 8)
"""GPUs that each virtual cluster may hold at once; they add up to more than the servers have."""

HOURLY = (4, 3, 2, 2, 1, 1, 1, 2, 4, 7, 9, 9, 8, 9, 10, 10, 10, 9, 8, 6, 6, 6, 6, 5)
WEEKLY = (10, 11, 11, 10, 9, 5, 5)

TICK = 60
RETRY_TICKS = 3  # the released delays have a step near three minutes
TRIES_PER_LEVEL = 4


@dataclass
class Attempt:
    """One scheduling of a job."""

    start: int
    """[UTC s]"""
    end: int
    """[UTC s]; may lie behind the snapshot."""
    gpus: dict[str, list[int]]
    """GPU indices per server, in the order in which they were granted."""

    @property
    def size(self) -> int:
        """Number of GPUs."""
        return sum(len(indices) for indices in self.gpus.values())


@dataclass
class Job:
    """One submission with the run time and size of every attempt it will need."""

    submit: int
    """[UTC s]"""
    vc: int
    """Index of the virtual cluster."""
    user: int
    """Index of the user."""
    status: str
    runs: list[tuple[int, int]]
    """Per attempt: GPUs and run time [s]; empty where the job is withdrawn before it starts."""
    spread: int = 0
    """Number of servers that the user demands, 0 if it is left to the scheduler."""
    attempts: list[Attempt] = field(default_factory=list)


@dataclass
class _Waiting:
    job: Job
    since: int
    tries: int = 0
    next_tick: int = 0


def pacific(utc: int) -> tuple[str, str]:
    """Return Pacific wall clock and zone label of a UTC time [s] in autumn 2017."""
    if utc < FALL_BACK:
        return stamp(utc - 7 * HOUR), "PDT"
    return stamp(utc - 8 * HOUR), "PST"


def workload(draw: Draw, count: int) -> list[Job]:
    """Return `count` everyday jobs and the planned ones, ordered by submission."""
    jobs = [_everyday(draw) for _ in range(count)]
    jobs += list(_campaign(draw))
    jobs += list(_special(draw))
    jobs.sort(key=lambda job: job.submit)
    return jobs


def _everyday(draw: Draw) -> Job:
    vc = draw.weighted([(index, quota + 20.0) for index, quota in enumerate(QUOTAS)])
    size = draw.weighted([(gpus, share) for gpus, share in SIZES if gpus <= QUOTAS[vc]])
    status = draw.weighted(STATUS)
    user = vc * 7 + int(7 * draw.share() * draw.share())  # few users submit most jobs
    job = Job(_submit_time(draw), vc, min(user, 41), status, _runs(draw, size, status))
    if draw.chance(0.045):
        job.status, job.runs = ("Killed" if draw.chance(0.8) else "Failed"), []
    return job


def _submit_time(draw: Draw) -> int:
    day = draw.weighted([(day, WEEKLY[day % 7]) for day in range(35)])
    hour = draw.weighted(list(enumerate(HOURLY)))
    return FIRST_DAY + day * DAY + hour * HOUR + draw.between(0, HOUR - 1)


def _runs(draw: Draw, size: int, status: str) -> list[tuple[int, int]]:
    """Return size and run time per attempt; failed jobs are tried again, killed ones ran long."""
    total = draw.quantile(RUN_MINUTES[2 if size == 4 else size]) * 60
    attempts = 1
    if status == "Failed":
        attempts = draw.weighted([(1, 0.25), (2, 0.2), (3, 0.35), (4, 0.2)])
    elif draw.chance(0.04):
        attempts = 2
    if status == "Killed":
        total = min(total * 1.8, 9.0 * DAY)
    return [(size, max(15, int(total / attempts * (0.6 + 0.8 * draw.share())))) for _ in range(attempts)]


def _campaign(draw: Draw) -> Iterator[Job]:
    """Yield gangs of stated spread that run while telemetry is taken (like Table 5 of the paper)."""
    layouts = ((16, 2), (16, 4), (16, 8), (8, 1), (8, 2), (8, 4), (4, 1), (4, 2), (1, 1), (1, 1))
    begin = FALL_BACK - 9 * HOUR
    for turn in range(3):
        for place, (size, spread) in enumerate(layouts):
            submit = begin + turn * 4 * HOUR + place * 600 + draw.between(0, 300)
            if 0 <= submit - FALL_BACK < HOUR:
                submit += HOUR
            status = STATUS[(turn + place) % 3][0] if place % 4 == 3 else "Pass"
            run = draw.between(80, 110) * 60
            yield Job(submit, 0 if size == 16 else 1, place % 7, status, [(size, run)], spread)


def _special(draw: Draw) -> Iterator[Job]:
    """Yield one job per planned oddity that the scheduler itself has to produce."""
    for status, days in (("Pass", 2), ("Killed", 3), ("Failed", 4)):  # run into the snapshot
        yield Job(SNAPSHOT - days * DAY + 5 * HOUR, 3, 21 + days, status, [(1, 8 * DAY)])
    resized = [(2, draw.between(20, 40) * 60), (4, draw.between(60, 90) * 60)]
    yield Job(FIRST_DAY + 9 * DAY + 10 * HOUR, 2, 15, "Pass", resized)
    for minute in (5, 21, 38):  # short runs in the first pass of the doubled hour
        yield Job(FALL_BACK - HOUR + minute * 60, 4, 29, "Pass", [(1, 90 + minute)])


def schedule(jobs: list[Job], draw: Draw) -> None:
    """Place every attempt of the jobs; GPUs are exclusive and a gang starts as a whole.

    A waiting attempt is tried every third minute. It needs quota in its virtual cluster and enough free GPUs on
    few enough servers; the allowed number of servers doubles after some tries. Jobs that cannot start do not
    hold up those behind them.
    """
    free = {server: list(range(count)) for server, count in SERVERS.items()}
    used = [0] * len(QUOTAS)
    waiting: list[_Waiting] = []
    running: list[tuple[Job, Attempt]] = []
    pending = [job for job in jobs if job.runs]
    for now in range(FIRST_DAY, SNAPSHOT, TICK):
        for job, attempt in [pair for pair in running if pair[1].end <= now]:
            running.remove((job, attempt))
            _release(job, attempt, free, used)
            if len(job.attempts) < len(job.runs):
                waiting.append(_Waiting(job, attempt.end))
        while pending and pending[0].submit <= now:
            job = pending.pop(0)
            waiting.append(_Waiting(job, job.submit))
        if FALL_BACK <= now < FALL_BACK + HOUR:
            continue  # a start here would look an hour too early to a reader who cannot see the zone
        for item in list(waiting):
            started = _try(item, now, free, used, draw)
            if started is not None:
                waiting.remove(item)
                running.append((item.job, started))


def _release(job: Job, attempt: Attempt, free: dict[str, list[int]], used: list[int]) -> None:
    used[job.vc] -= attempt.size
    for server, indices in attempt.gpus.items():
        free[server] = sorted(free[server] + indices)


def _try(item: _Waiting, now: int, free: dict[str, list[int]], used: list[int], draw: Draw) -> Attempt | None:
    if now < item.next_tick:
        return None
    item.next_tick = now + RETRY_TICKS * TICK
    item.tries += 1
    job = item.job
    size, run = job.runs[len(job.attempts)]
    if used[job.vc] + size > QUOTAS[job.vc]:
        return None
    gpus = _demanded(size, job.spread, free) if job.spread else _fewest(size, item.tries, free)
    if gpus is None:
        return None
    start = now + draw.between(2, 45)
    attempt = Attempt(start, _readable_end(start, start + run), gpus)
    job.attempts.append(attempt)
    used[job.vc] += size
    for server, indices in gpus.items():
        free[server] = [index for index in free[server] if index not in indices]
    return attempt


def _readable_end(start: int, end: int) -> int:
    """Move an end by an hour if the clock change would make it read earlier than the start."""
    return end + HOUR if pacific(end)[0] <= pacific(start)[0] else end


def _demanded(size: int, spread: int, free: dict[str, list[int]]) -> dict[str, list[int]] | None:
    share = size // spread
    fitting = [server for server in SERVERS if len(free[server]) >= share]
    if len(fitting) < spread:
        return None
    return {server: free[server][:share] for server in fitting[:spread]}


def _fewest(size: int, tries: int, free: dict[str, list[int]]) -> dict[str, list[int]] | None:
    """Return the tightest single server, else the emptiest servers if they are few enough."""
    single = [server for server in SERVERS if len(free[server]) >= size]
    if single:
        best = min(single, key=lambda server: len(free[server]))
        return {best: free[best][:size]}
    level = min((tries - 1) // TRIES_PER_LEVEL, 3)
    allowed = -(-size // 8) * (1, 2, 4, 8)[level]
    chosen: dict[str, list[int]] = {}
    left = size
    for server in sorted(SERVERS, key=lambda name: -len(free[name])):
        if left == 0 or len(chosen) == allowed:
            break
        if free[server]:
            chosen[server] = free[server][:left]
            left -= len(chosen[server])
    return None if left else chosen
