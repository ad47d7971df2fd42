"""Read each run of each job from Slurm's accounting database with SQL, independently of `sacct` and tracekit."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tests.services.configuration import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.services.daemons import Services

__all__ = ["Event", "Job", "Run", "jobs_of", "read_events", "read_runs", "unfinished"]

# From slurm.h: the lower byte is the state, and higher bits are flags.
_STATES = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
_FLAGS = {0x400: "REQUEUED", 0x800: "REQUEUED", 0x2000: "RESIZING"}
_COMMON = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_fail",
    "PREEMPTED": "preempted",
    "REQUEUED": "unknown",
    "PENDING": "pending",
    "RUNNING": "running",
}
_NOBODY = 2**32 - 2
"""Value that the database uses for a missing number."""

_QUERY = """
SELECT j.id_job, j.het_job_id, j.het_job_offset, j.id_array_job, j.id_array_task, j.state, j.time_submit,
       j.time_eligible, j.time_start, j.time_end, j.time_suspended, j.nodelist, j.nodes_alloc, j.tres_alloc, j.tres_req,
       j.account, j.`partition`, q.name, a.user, j.timelimit, j.flags, HEX(CONVERT(j.job_name USING utf8mb4))
FROM tk_job_table j LEFT JOIN qos_table q ON q.id = j.id_qos LEFT JOIN tk_assoc_table a ON a.id_assoc = j.id_assoc
WHERE j.deleted = 0 ORDER BY j.job_db_inx"""


@dataclass(frozen=True)
class Run:
    """One row of the job table: a run of a job or of a heterogeneous job's component. Times are in UTC."""

    job_id: str
    """Job id as tracekit spells it."""
    number: int
    """Number that the job itself sees as SLURM_JOB_ID."""
    component: int | None
    state: str
    submit: dt.datetime
    eligible: dt.datetime | None
    start: dt.datetime | None
    end: dt.datetime | None
    suspended_s: int
    nodes: tuple[str, ...]
    tres: dict[str, int]
    """Allocated resources, or requested resources if the run never started, with memory in MiB."""
    account: str | None
    partition: str | None
    qos: str | None
    user: str | None
    time_limit_s: float
    scheduler: str | None
    name: str

    @property
    def gpus(self) -> int:
        """Number of GPUs allocated, or requested if the run never started."""
        return self.tres.get("gres/gpu", 0)

    @property
    def gpu_s(self) -> float:
        """GPU-seconds from the run's start or resize to its end."""
        if self.start is None or self.end is None:
            return 0.0
        return self.gpus * (self.end - max(self.start, self.submit)).total_seconds()


@dataclass(frozen=True)
class Job:
    """All runs of a job in order, or of each component if the job is heterogeneous."""

    job_id: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> list[Run]:
        """The first run of each component."""
        least = self.runs[0].component
        if least is None:
            return [self.runs[0]]
        seen: dict[int | None, Run] = {}
        for run in self.runs:
            seen.setdefault(run.component, run)
        return list(seen.values())

    @property
    def attempts(self) -> list[list[Run]]:
        """The runs that started, in order, with a heterogeneous job's components grouped together."""
        started = [run for run in self.runs if run.start is not None]
        by_component = [[run for run in started if run.component == first.component] for first in self.first]
        return [list(parts) for parts in zip(*by_component, strict=True)]

    @property
    def listed(self) -> bool:
        """Whether `sacct` lists the job. It selects by eligible time and leaves out jobs that never became eligible."""
        return any(run.eligible is not None for run in self.runs)

    @property
    def resized(self) -> bool:
        """Whether the job gave machines back while it ran."""
        return any(run.state == "RESIZING" for run in self.runs)


@dataclass(frozen=True)
class Event:
    """A time during which a machine was unavailable, according to the accounting database."""

    node: str
    start: dt.datetime
    end: dt.datetime | None
    state: str
    """tracekit's word."""
    reason: str


def unfinished(services: Services) -> int:
    """Return the number of runs without an end in the database."""
    ((count,),) = services.sql("SELECT count(*) FROM tk_job_table WHERE time_end = 0 AND deleted = 0")
    return int(count or 0)


def read_runs(services: Services) -> list[Run]:
    """Return all runs in the order in which the database recorded them."""
    kinds = {
        str(number): f"{kind}/{name}" if name else str(kind)
        for number, kind, name in services.sql("SELECT id, type, name FROM tres_table")
    }
    return [_run([cell or "" for cell in row], kinds) for row in services.sql(_QUERY)]


def read_events(services: Services) -> list[Event]:
    """Return when and why machines were unavailable."""
    query = """SELECT node_name, time_start, time_end, state, HEX(CONVERT(reason USING utf8mb4)) FROM tk_event_table
    WHERE node_name <> '' ORDER BY time_start, node_name"""
    events = []
    for node, start, end, state, reason in services.sql(query):
        begun = _time(start or "")
        assert begun is not None
        # The lowest four bits are the state, where 1 is DOWN. Higher bits are flags, such as DRAIN.
        word = "down" if int(state or 0) & 0xF == 1 else "drained"
        events.append(Event(str(node), begun, _time(end or ""), word, bytes.fromhex(reason or "").decode()))
    return events


def jobs_of(runs: Iterable[Run]) -> dict[str, Job]:
    """Group runs into jobs."""
    # A waiting run sorts by its submission, which is later than the start of any earlier run.
    ordered = sorted(runs, key=lambda run: (run.job_id, run.start or run.submit, run.submit, run.component or 0))
    return {name: Job(name, tuple(mine)) for name, mine in groupby(ordered, key=lambda run: run.job_id)}


def expand(nodes: str) -> tuple[str, ...]:
    """Return the names in a list such as node[1-2,4]."""
    if nodes in {"", "None assigned"}:
        return ()
    match = re.fullmatch(r"(\w+)\[([\d,-]+)\]", nodes)
    if match is None:
        return tuple(nodes.split(","))
    spans = [part.partition("-")[::2] for part in match[2].split(",")]
    return tuple(f"{match[1]}{number}" for low, high in spans for number in range(int(low), int(high or low) + 1))


def _run(row: list[str], kinds: dict[str, str]) -> Run:
    number, het, offset, _, _, state, submit, eligible, start, end, suspended, nodelist, _, held, asked = row[:15]
    account, partition, qos, user, limit, flags, name = row[15:]
    nodes = expand(nodelist)
    submitted = _time(submit)
    assert submitted is not None
    # Bits 4 and 3 of the flags show which scheduler started the job. A job cancelled before it started has one time for
    # all columns, and no machine.
    scheduler = "backfill" if int(flags) & 8 else "main" if int(flags) & 4 else None
    return Run(
        job_id=f"{CLUSTER}/{het if int(het) else number}",
        number=int(number),
        component=int(offset) if int(het) and int(offset) != _NOBODY else None,
        state=_state(int(state)),
        submit=submitted,
        eligible=_time(eligible),
        start=_time(start) if nodes else None,
        end=_time(end),
        suspended_s=int(suspended),
        nodes=nodes,
        tres=_tres(held or asked, kinds),
        account=account or None,
        partition=partition or None,
        qos=qos or None,
        user=user or None,
        time_limit_s=60.0 * int(limit),
        scheduler=scheduler if nodes else None,
        name=bytes.fromhex(name).decode(),
    )


def _state(number: int) -> str:
    return next((word for flag, word in _FLAGS.items() if number & flag), _STATES[number & 0xFF])


def common_status(state: str) -> str:
    """Return tracekit's word for a final state."""
    return _COMMON[state]


def _time(seconds: str) -> dt.datetime | None:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).replace(tzinfo=None) if seconds not in {"", "0"} else None


def _tres(text: str, kinds: dict[str, str]) -> dict[str, int]:
    pairs = (part.split("=") for part in text.split(",") if part)
    # The largest numbers stand for 'unknown'.
    return {kinds[kind]: int(count) for kind, count in pairs if int(count) < 2**63}
