"""Write the synthetic Philly trace: job log, utilization files, list of machines, and their planted faults."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from sample_traces._draw import Draw, Quirk, write_rows
from sample_traces._philly_jobs import SERVERS, SNAPSHOT, pacific, schedule, workload
from sample_traces._philly_telemetry import BEGIN, END, TELEMETRY_SERVERS, telemetry_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sample_traces._philly_jobs import Attempt, Job

__all__ = ["write_philly"]

EVERYDAY_JOBS = 760
LOG = "philly/cluster_job_log"
MACHINES = "philly/cluster_machine_list"
Record = dict[str, Any]  # one job object of the log

LISTED = {"m3": 2, "m8": 2, "m14": 2, "m21": 8, "m29": 2, "m33": 2, "m102": 8, "m107": 8, "m115": 2, "m118": 8,
          "m121": 8, "m126": 2}  # fmt: skip
"""GPUs per server that runs jobs, as the list of machines states it; wrong for most, as in the release."""


def write_philly(folder: Path, seed: int) -> list[Quirk]:
    """Write the five files below `folder` and return what was planted."""
    draw = Draw(seed, "philly")
    jobs = workload(draw, EVERYDAY_JOBS)
    schedule(jobs, Draw(seed, "philly/schedule"))
    records = _records(jobs, draw)
    quirks = _Planter(records).plant()
    files, telemetry_quirks = telemetry_files(jobs, Draw(seed, "philly/telemetry"))
    files[LOG] = json.dumps(records, indent=4).split("\n")
    files[MACHINES] = _machine_list()
    for name, rows in files.items():
        write_rows(folder / name, rows)
    return quirks + telemetry_quirks + _machine_quirks()


def _records(jobs: list[Job], draw: Draw) -> list[Record]:
    clusters = draw.words(6, 6)
    users = draw.words(42, 6)
    return [
        {
            "status": job.status,
            "vc": clusters[job.vc],
            "jobid": f"application_1507512345678_{number:04d}",
            "attempts": [_attempt(attempt) for attempt in job.attempts],
            "submitted_time": pacific(job.submit)[0],
            "user": users[job.user],
        }
        for number, job in enumerate(jobs, start=1)
    ]


def _attempt(attempt: Attempt) -> Record:
    return {
        "start_time": pacific(attempt.start)[0],
        "end_time": pacific(attempt.end)[0] if attempt.end < SNAPSHOT else None,
        "detail": [
            {"ip": server, "gpus": [f"gpu{index}" for index in indices]} for server, indices in attempt.gpus.items()
        ],
    }


def _machine_list() -> list[str]:
    unused = dict.fromkeys(("m1", "m5", "m11", "m17", "m25", "m40", "m52", "m60", "m77", "m91"), 2)
    unused |= dict.fromkeys(("m104", "m110", "m128", "m136", "m141", "m147", "m150", "m158"), 8)
    listed = sorted((LISTED | unused).items())  # by text, so m102 precedes m3, as in the release
    memory = {2: 12, 8: 24}
    return ["machineId, number of GPUs, single GPU mem"] + [f"{name},{n}, {memory[n]}GB" for name, n in listed]


def _machine_quirks() -> list[Quirk]:
    untold = sorted(set(SERVERS) - set(TELEMETRY_SERVERS))
    return [
        Quirk(MACHINES, "header and every row", "blank-after-comma", "blanks after commas, memory ends in GB"),
        Quirk(
            MACHINES, "m3, m8, m14, m29, m33", "label-too-small", "listed with 2 GPUs, run 8-GPU jobs (gpu0 to gpu7)"
        ),
        Quirk(MACHINES, "m102, m107", "label-too-large", "listed with 8 GPUs, only four columns are filled"),
        Quirk(MACHINES, ", ".join(untold), "no-telemetry", "run jobs but have no utilization rows"),
        Quirk(MACHINES, "m1, m5, m104 and 15 more", "unused-machine", "neither jobs nor utilization rows"),
    ]


class _Planter:
    """Puts one fault of each kind into the job objects, each into another job.

    Faults go to jobs that end before the telemetry window, so that the utilization samples stay complete.
    """

    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self._touched: set[str] = set()
        self._quirks: list[Quirk] = []

    def plant(self) -> list[Quirk]:
        """Change the records in place and return the list of faults."""
        self._found()
        self._missing()
        self._contradictions()
        self._unusable()
        return self._quirks

    def _take(self, kind: str, what: str, test: Callable[[Record], bool]) -> Record:
        """Return the first untouched record that passes the test, and note it."""
        record = next(record for record in self._records if record["jobid"] not in self._touched and test(record))
        self._note(record["jobid"], kind, what)
        return record

    def _note(self, jobid: str, kind: str, what: str, *, usable: bool = True) -> None:
        self._touched.add(jobid)
        self._quirks.append(Quirk(LOG, jobid, kind, what, usable))

    def _found(self) -> None:
        """Note one example of each oddity that the simulation itself brings about."""
        for status, spelling in (("Pass", None), ("Killed", ""), ("Failed", "None")):
            name = {None: "JSON null", "": "an empty string", "None": "the word None"}[spelling]
            what = f"{status}, last attempt without end (running at the snapshot), spelled as {name}"
            record = self._take("running-at-snapshot", what, partial(_is_running, status))
            record["attempts"][-1]["end_time"] = spelling
        self._take("no-attempts", "attempts is an empty list", lambda job: not job["attempts"])
        self._take("size-change", "2 GPUs in the first attempt, 4 in the second", lambda job: _sizes(job) == [2, 4])
        self._take("retries", "failed after four attempts", lambda job: len(job["attempts"]) == 4)
        self._take("doubled-hour", "starts in the hour that the clock shows twice", _starts_in_doubled_hour)
        end = pacific(END)[0]
        self._take("before-telemetry", "no utilization rows for its time", _single)
        self._take("after-telemetry", "no utilization rows for its time", lambda job: bool(job["submitted_time"] > end))
        what = "8 or 16 GPUs on more servers than needed"
        self._take("spread-gang", what, lambda job: any(len(a["detail"]) > 2 for a in job["attempts"]))

    def _missing(self) -> None:
        """Blank times and a user."""
        job = self._take("no-start", "attempt without start", _single)
        job["attempts"][0]["start_time"] = None
        job = self._take("no-start", "attempt without start, spelled as an empty string", _single)
        job["attempts"][0]["start_time"] = ""
        what = "first of several attempts has no end"
        job = self._take("no-end-in-the-middle", what, lambda job: _early(job) and len(job["attempts"]) > 1)
        job["attempts"][0]["end_time"] = None
        self._take("user-null", "user is JSON null", _single)["user"] = None

    def _contradictions(self) -> None:
        """Plant one attempt that ends before it starts and one GPU that is held twice."""
        job = self._take("end-before-start", "start and end are exchanged", _single)
        attempt = job["attempts"][0]
        attempt["start_time"], attempt["end_time"] = attempt["end_time"], attempt["start_time"]
        outer, inner = next(
            (a, b) for a in self._records if self._fresh(a) for b in self._records if self._fresh(b) and _inside(a, b)
        )
        inner["attempts"][0]["detail"] = copy.deepcopy(outer["attempts"][0]["detail"])
        self._note(outer["jobid"], "gpu-held-twice", f"shares its GPU with {inner['jobid']} at the same time")
        self._note(inner["jobid"], "gpu-held-twice", f"shares its GPU with {outer['jobid']} at the same time")

    def _fresh(self, job: Record) -> bool:
        return job["jobid"] not in self._touched and _single(job)

    def _unusable(self) -> None:
        """Insert three objects that no reader can keep."""
        sample = copy.deepcopy(next(job for job in self._records if self._fresh(job)))
        again = sample["jobid"]
        nameless = {key: value for key, value in copy.deepcopy(sample).items() if key != "jobid"}
        broken = copy.deepcopy(sample) | {"jobid": "application_1507512345678_9001"}
        broken["submitted_time"] = "2017-10-33 99:00:00"
        repeated = copy.deepcopy(sample) | {"user": "0ddba1"}
        for place, record in ((200, nameless), (400, broken), (600, repeated)):
            self._records.insert(place, record)
        self._note("object 201 of the array", "no-jobid", "object without jobid", usable=False)
        self._note(broken["jobid"], "unreadable-time", "submitted_time is 2017-10-33 99:00:00", usable=False)
        self._note(again, "repeated-jobid", "object 601 repeats this id with user 0ddba1", usable=False)


def _sizes(job: Record) -> list[int]:
    return [sum(len(entry["gpus"]) for entry in attempt["detail"]) for attempt in job["attempts"]]


def _early(job: Record) -> bool:
    """Return True if every attempt has both times and the last ends before telemetry begins."""
    times = [attempt[key] for attempt in job["attempts"] for key in ("start_time", "end_time")]
    return bool(times) and all(times) and times[-1] < pacific(BEGIN)[0]


def _single(job: Record) -> bool:
    """Return True for an early job of one attempt on one GPU that ran for some minutes."""
    if not _early(job) or _sizes(job) != [1]:
        return False
    attempt = job["attempts"][0]
    return bool(attempt["start_time"][:15] < attempt["end_time"][:15])  # ten-minute digits differ


def _is_running(status: str, job: Record) -> bool:
    return bool(job["status"] == status and job["attempts"] and job["attempts"][-1]["end_time"] is None)


def _starts_in_doubled_hour(job: Record) -> bool:
    return any((attempt["start_time"] or "").startswith("2017-11-05 01:") for attempt in job["attempts"])


def _inside(outer: Record, inner: Record) -> bool:
    """Return True if the only attempt of `inner` lies within that of `outer` on another GPU."""
    a, b = outer["attempts"][0], inner["attempts"][0]
    within = a["start_time"] < b["start_time"] and b["end_time"] < a["end_time"]
    return bool(within and a["detail"] != b["detail"])
