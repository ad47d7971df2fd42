"""Every job that ran, as `tracekit ingest` tells it, against Slurm's own accounting database."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.configuration import CLUSTER
from tests.services.dumps import VARIANTS, dump_sacct
from tests.services.records import common_status
from tests.services.tables import attempts_of, by_job, differing, ingest, placements_of
from tests.services.workload import ODD_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.services.conftest import Records
    from tests.services.records import Job
    from tracekit.trace import Trace

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def told(ran: Records, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return ingest(ran.folder / "more-columns", tmp_path_factory.mktemp("told") / "trace")


def test_the_workload_has_every_kind_of_job(ran: Records) -> None:
    states = {run.state for run in ran.runs}
    assert states >= {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "NODE_FAIL", "PREEMPTED", "REQUEUED"}
    assert "RESIZING" in states
    assert len(ran.jobs) >= 250
    assert {len(job.attempts) for job in ran.jobs.values()} >= {0, 1, 2, 3}
    assert any(len(job.first) == 2 and len(job.attempts) == 2 for job in ran.jobs.values())
    assert {len(run.nodes) for run in ran.runs} >= {0, 1, 2, 3, 4}
    assert {run.scheduler for run in ran.runs} == {"main", "backfill", None}
    assert any(run.suspended_s > 0 for run in ran.runs)
    assert {run.qos for run in ran.runs} == {"normal", "low", "high", "scene", "capped", "grouped"}


def test_sacct_leaves_out_only_what_never_became_eligible(ran: Records, tmp_path: Path) -> None:
    left_out = {job.first[0].name: name for name, job in ran.never_eligible.items()}
    assert left_out.keys() == {"held", "never"}
    # Asked for by number, sacct knows them.
    numbers = [name.partition("/")[2] for name in left_out.values()]
    dump_sacct(ran.services, tmp_path, ["more-columns"], numbers)
    found = by_job(ingest(tmp_path / "more-columns", tmp_path / "trace"))
    assert found.keys() == set(left_out.values())
    assert {(row["status"], row["start_time"], row["eligible_time"]) for row in found.values()} == {
        ("cancelled", None, None)
    }


def _sum(kind: str) -> Callable[[Job], float]:
    return lambda job: float(sum(run.tres.get(kind, 0) for run in job.first))


def _models(job: Job) -> str | None:
    return "|".join(sorted({kind.split(":")[1] for run in job.first for kind in run.tres if ":" in kind})) or None


def _end(job: Job) -> Any:
    ends = [run.end for run in job.runs if run.start and run.end]
    return max(ends) if ends else job.runs[-1].end


FACTS: dict[str, Callable[[Job], Any]] = {
    "submit_time": lambda job: min(run.submit for run in job.runs),
    "start_time": lambda job: min((run.start for run in job.runs if run.start), default=None),
    "end_time": _end,
    "eligible_time": lambda job: max((run.eligible for run in job.first if run.eligible), default=None),
    "status": lambda job: common_status(job.runs[-1].state),
    "attempt_count": lambda job: len(job.attempts),
    "gpu_count": _sum("gres/gpu"),
    "cpu_count": _sum("cpu"),
    "memory_gib": lambda job: _sum("mem")(job) / 1024,
    "gpu_model": _models,
    "node_count": lambda job: int(_sum("node")(job)),
    "account": lambda job: job.first[0].account,
    "partition": lambda job: job.first[0].partition,
    "qos": lambda job: job.first[0].qos,
    "user": lambda job: job.first[0].user,
    "time_limit_s": lambda job: job.first[0].time_limit_s,
    "name": lambda job: job.first[0].name,
}
"""What the database says of each job, by column of the table jobs."""


def _steady(ran: Records) -> dict[str, Job]:
    """Return the jobs that kept their machines while they ran; the others have a test of their own."""
    return {name: job for name, job in ran.jobs.items() if not job.resized}


def test_no_job_is_lost_and_none_invented(ran: Records, told: Trace) -> None:
    assert by_job(told).keys() == ran.jobs.keys()
    assert told.manifest.rejected == 0


@pytest.mark.parametrize("column", FACTS)
def test_every_job_is_as_the_database_says(ran: Records, told: Trace, column: str) -> None:
    expected = {name: FACTS[column](job) for name, job in _steady(ran).items()}
    assert differing(expected, {name: row[column] for name, row in by_job(told).items() if name in expected}) == {}


def test_every_attempt_is_as_the_database_says(ran: Records, told: Trace) -> None:
    expected = {
        name: [
            (
                min(run.start for run in parts if run.start),
                max(run.end for run in parts if run.end),
                float(sum(run.gpus for run in parts)),
                common_status(parts[0].state),
            )
            for parts in job.attempts
        ]
        for name, job in _steady(ran).items()
        if job.attempts
    }
    assert differing(expected, {k: v for k, v in attempts_of(told).items() if not ran.jobs[k].resized}) == {}


def test_every_attempt_was_on_the_machines_of_the_database(ran: Records, told: Trace) -> None:
    expected = {
        (name, number, node)
        for name, job in _steady(ran).items()
        for number, parts in enumerate(job.attempts)
        for run in parts
        for node in run.nodes
    }
    assert {place for place in placements_of(told) if not ran.jobs[place[0]].resized} == expected


def test_a_job_that_gave_a_machine_back_holds_it_no_longer(ran: Records, told: Trace) -> None:
    resized = {name: job for name, job in ran.jobs.items() if job.resized}
    assert len(resized) == 1
    attempts = attempts_of(told)
    for name, job in resized.items():
        held = sum(gpus * (end - start).total_seconds() for start, end, gpus, _ in attempts[name])
        assert held == sum(run.gpu_s for run in job.runs)
        spans = sorted((start, end) for start, end, _, _ in attempts[name])
        assert all(early[1] <= late[0] for early, late in pairwise(spans))
        row = by_job(told)[name]
        assert (row["start_time"], row["end_time"], row["status"]) == (
            job.runs[0].start,
            job.runs[-1].end,
            "completed",
        )


def test_gpu_hours_are_those_of_the_database(ran: Records, told: Trace) -> None:
    attempts = [attempt for attempts in attempts_of(told).values() for attempt in attempts]
    held = sum(gpus * (end - start).total_seconds() for start, end, gpus, _ in attempts)
    assert held == sum(run.gpu_s for run in ran.runs)


def test_odd_names_come_back_as_slurm_keeps_them(ran: Records, told: Trace) -> None:
    names = {job.first[0].name for job in ran.jobs.values()}
    # Slurm itself writes " as `.
    assert {name.replace('"', "`") for name in ODD_NAMES} <= names
    assert {row["name"] for row in by_job(told).values()} == names


def _stated_reasons(path: Path) -> dict[str, str | None]:
    """Return the Reason of each job of one run in a dump, read without tracekit."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    names = header.split("|")
    reason = names.index("Reason") - len(names)
    found: dict[str, list[str]] = {}
    for line in lines:
        # Only the name, before it, can hold a delimiter.
        cells = line.split("|")
        if "." not in cells[0] and "+" not in cells[0]:
            found.setdefault(f"{CLUSTER}/{cells[1]}", []).append(cells[reason])
    return {job: None if words[0] == "None" else words[0] for job, words in found.items() if len(words) == 1}


def test_what_held_jobs_back_is_kept(ran: Records, told: Trace) -> None:
    expected = _stated_reasons(ran.folder / "more-columns" / "sacct.txt")
    assert differing(expected, {n: row["wait_reason"] for n, row in by_job(told).items() if n in expected}) == {}
    # Which limit is the last that held a job depends on how busy the host is; a begin time always does.
    assert {expected[f"{CLUSTER}/{job}"] for job in ran.done.jobs["begin"]} == {"BeginTime"}
    assert len(set(expected.values())) >= 4


def test_which_scheduler_started_each_job_is_kept(ran: Records, told: Trace) -> None:
    expected = {name: job.first[0].scheduler for name, job in _steady(ran).items() if len(job.runs) == 1}
    assert (
        differing(expected, {name: row["started_by"] for name, row in by_job(told).items() if name in expected}) == {}
    )


def test_suspensions_are_kept(ran: Records, told: Trace) -> None:
    expected = {
        name: float(sum(run.suspended_s for run in job.runs))
        for name, job in ran.jobs.items()
        if any(run.suspended_s for run in job.runs)
    }
    assert len(expected) == 1
    assert {name: by_job(told)[name]["suspended_s"] for name in expected} == expected


SAME = ("submit_time", "start_time", "end_time", "status", "attempt_count", "gpu_count", "account", "partition", "qos")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_form_of_dump_tells_the_same(ran: Records, told: Trace, variant: str, tmp_path: Path) -> None:
    other = ingest(ran.folder / variant, tmp_path / "trace", variant)
    assert other.manifest.rejected == 0
    expected = {name: {column: row[column] for column in SAME} for name, row in by_job(told).items()}
    assert differing(expected, {n: {c: row[c] for c in SAME} for n, row in by_job(other).items()}) == {}
    assert differing(attempts_of(told), attempts_of(other)) == {}


def test_a_history_of_two_dumps_is_the_last_one(ran: Records, told: Trace, tmp_path: Path) -> None:
    history = ingest(ran.folder / "half-way", tmp_path / "trace")
    assert {"running", "pending"} <= {row["status"] for row in by_job(history).values()}
    history = ingest(ran.folder / "readme-columns", tmp_path / "trace", append=True)
    expected = {name: {column: row[column] for column in SAME} for name, row in by_job(told).items()}
    assert differing(expected, {n: {c: row[c] for c in SAME} for n, row in by_job(history).items()}) == {}
    assert differing(attempts_of(told), attempts_of(history)) == {}
