"""Read the Philly sample with only json and csv, for expectations that do not depend on the code under test.

The rules come from docs/quality.md. The sample needs those for Pacific wall clocks around the night of 5 November 2017,
when clocks went back an hour, for an attempt with start and end exchanged, and for unusable objects.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Attempt", "Job", "class_of", "jobs", "quantile", "samples_of"]

PHILLY = Path(__file__).parents[1] / "sample_traces" / "philly"
_LOG = PHILLY / "cluster_job_log"
_HOUR = dt.timedelta(hours=1)
_CHANGE = dt.datetime(2017, 11, 5)
_STATUS = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}


@dataclass
class Attempt:
    """One attempt, with times in UTC."""

    start: dt.datetime | None
    end: dt.datetime | None
    gpus: dict[str, list[int]]
    """Indices of the GPUs by node."""

    @property
    def size(self) -> int:
        return sum(len(indices) for indices in self.gpus.values())

    @property
    def seconds(self) -> float | None:
        return None if self.start is None or self.end is None else (self.end - self.start).total_seconds()


@dataclass
class Job:
    """One job, with times in UTC."""

    name: str
    vc: str
    user: str | None
    status: str
    submitted: dt.datetime
    attempts: list[Attempt] = field(default_factory=list)
    doubtful: int = 0
    """Number of the job's times that are not used as recorded."""

    @property
    def size(self) -> int | None:
        return self.attempts[0].size if self.attempts else None

    @property
    def seconds(self) -> float | None:
        """Time from the first start to the last end [s]."""
        if not self.attempts:
            return None
        return Attempt(self.attempts[0].start, self.attempts[-1].end, {}).seconds

    @property
    def wait(self) -> float | None:
        return Attempt(self.submitted, self.attempts[0].start, {}).seconds if self.attempts else None

    @property
    def gpu_seconds(self) -> float | None:
        known = [a.size * a.seconds for a in self.attempts if a.seconds is not None]
        return sum(known) if known else None


def quantile(values: list[float], share: float) -> float:
    """Return a quantile by interpolation between the two nearest values."""
    ordered = sorted(values)
    low, part = divmod(share * (len(ordered) - 1), 1)
    return ordered[int(low)] * (1 - part) + ordered[min(int(low) + 1, len(ordered) - 1)] * part


def class_of(gpus: int) -> str:
    return "1" if gpus == 1 else "2-4" if gpus <= 4 else "5-8" if gpus <= 8 else ">8"


def _wall(text: str | None) -> dt.datetime | None:
    return None if text in (None, "", "None") else dt.datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


def _instants(wall: dt.datetime) -> list[dt.datetime]:
    """Return the possible UTC times of a Pacific wall clock, which are two in the hour that the clock repeats."""
    summer, winter = wall + 7 * _HOUR, wall + 8 * _HOUR
    if wall < _CHANGE + _HOUR:
        return [summer]
    return [summer, winter] if wall < _CHANGE + 2 * _HOUR else [winter]


@cache
def jobs() -> tuple[Job, ...]:
    """Return the usable jobs of the log in its order."""
    found: dict[str, Job] = {}
    for entry in json.loads(_LOG.read_text(encoding="ascii")):
        if "jobid" not in entry or entry["jobid"] in found or not re.search(r" [012]\d:", entry["submitted_time"]):
            continue
        found[entry["jobid"]] = _job(entry)
    return tuple(found.values())


def _job(entry: dict[str, Any]) -> Job:
    wall = _wall(entry["submitted_time"])
    assert wall is not None
    submitted = _instants(wall)
    job = Job(entry["jobid"], entry["vc"], entry["user"], _STATUS[entry["status"]], submitted[0])
    job.doubtful = len(submitted) - 1
    before = job.submitted
    for told in entry["attempts"]:
        gpus = {part["ip"]: [int(name.removeprefix("gpu")) for name in part["gpus"]] for part in told["detail"]}
        times = [None if (t := _wall(told[name])) is None else _instants(t) for name in ("start_time", "end_time")]
        kept: list[dt.datetime | None] = []
        for place, choices in enumerate(times):
            if choices is None:
                kept.append(None)
                continue
            # A later time in the record may rule out the second instant, and an earlier time the first.
            later = times[1] if place == 0 else None
            fitting = [t for t in choices if t >= before and (later is None or t <= later[-1])] or choices
            job.doubtful += len(fitting) > 1 or fitting[0] < before
            kept.append(fitting[0] if fitting[0] >= before else None)
            before = max(before, fitting[0])
        job.attempts.append(Attempt(kept[0], kept[1], gpus))
    return job


@cache
def samples_of(file: str) -> dict[tuple[dt.datetime, str], list[str]]:
    """Return a telemetry file's cells by minute [UTC] and machine. If a minute has two rows, the last one counts.

    Unusable rows are left out. They have too few or too many fields, a time that does not exist, or another zone.
    """
    width = {"cluster_gpu_util": 8, "cluster_cpu_util": 1, "cluster_mem_util": 2}[file]
    found = {}
    for line in (PHILLY / file).read_text(encoding="ascii").splitlines()[1:]:
        time, machine, *cells = line.split(",")
        cells = cells[:-1] if len(cells) == width + 1 and not cells[-1] else cells
        told = re.fullmatch(r"(\d{4}-\d\d-\d\d (?:[01]\d|2[0-3]):[0-5]\d:\d\d) P([DS])T", time)
        if len(cells) == width and told:
            ahead = (7 if told[2] == "D" else 8) * _HOUR
            found[dt.datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S") + ahead, machine] = cells
    return found
