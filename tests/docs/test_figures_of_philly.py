"""The figures of the Philly sample on the pages, computed again from its files with json and csv alone."""

from __future__ import annotations

import datetime as dt
import re
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import DOCS
from tests.philly_by_hand import Job, class_of, jobs, quantile, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESEARCHER = "tutorials/researcher.md"
STATUSES = ("cancelled", "completed", "failed")
HOUR = dt.timedelta(hours=1)
MINUTE = dt.timedelta(minutes=1)


def shown(page: str) -> list[str]:
    """Return the lines of a page, numbers without the commas of their thousands."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", line) for line in text.splitlines()]


def words_of(page: str, *first: str) -> list[str]:
    """Return the rest of the only line of a page that begins with these words."""
    (found,) = [words[len(first) :] for line in shown(page) if tuple((words := line.split())[: len(first)]) == first]
    return found


def cells_of(page: str, *first: str) -> list[str]:
    """Return the rest of the only line of CSV on a page that begins with these cells."""
    lines = [line.split(",") for line in (DOCS / page).read_text(encoding="utf-8").splitlines()]
    (found,) = [cells[len(first) :] for cells in lines if tuple(cells[: len(first)]) == first]
    return found


def assert_shown(told: Sequence[str], values: Iterable[float]) -> None:
    """Hold that each number on the page is the value, rounded as it is written there; cut where it ends in '...'."""
    for text, value in zip(told, values, strict=True):
        number = text.removesuffix("...")
        unit = 10.0 ** -len(number.partition(".")[2])
        assert float(number) - (0 if number != text else 0.5 * unit) <= value + 1e-9, (text, value)
        assert value - 1e-9 <= float(number) + (unit if number != text else 0.5 * unit), (text, value)


def size_of(job: Job) -> int:
    assert job.size is not None
    return job.size


def gpu_hours(some: Iterable[Job]) -> float:
    return sum(job.gpu_seconds or 0.0 for job in some) / 3600


def test_the_records_are_counted() -> None:
    attempts = [attempt for job in jobs() for attempt in job.attempts]
    gpus = samples_of("cluster_gpu_util")
    counts = {
        "jobs": len(jobs()),
        "attempts": len(attempts),
        "placements": sum(len(attempt.gpus) for attempt in attempts),
        "gpu_utilization": sum(cell not in {"", "NA"} for cells in gpus.values() for cell in cells),
        "host_utilization": len({*samples_of("cluster_cpu_util"), *samples_of("cluster_mem_util")}),
        "doubtful_times": sum(job.doubtful for job in jobs()),
    }
    (line,) = [line for line in shown(RESEARCHER) if line.startswith("Trace: philly (")]
    told = [part.split() for part in line.partition("(")[2].strip(")").split(", ")]
    assert {name: int(number) for number, name in told if name in counts} == counts
    assert f"{counts['jobs']} jobs" in shown(RESEARCHER)
    assert any(line.startswith(f"fitted to {counts['jobs']} jobs; ") for line in shown("tutorials/simulator.md"))


def test_large_jobs_are_counted() -> None:
    assert f"[({sum((job.size or 0) > 8 for job in jobs())},)]" in shown(RESEARCHER)


@pytest.mark.parametrize("status", STATUSES)
def test_jobs_and_gpu_hours_by_status(status: str) -> None:
    some = [job for job in jobs() if job.status == status]
    held = gpu_hours(some)
    on_gpus, gpu_jobs = (sum(1 for job in which if job.size) for which in (some, jobs()))
    values = (len(some), len(some) / len(jobs()), held, held / gpu_hours(jobs()), on_gpus, on_gpus / gpu_jobs)
    lines = [line.split() for line in shown(RESEARCHER)]
    (told,) = [line[1:] for line in lines if line[:1] == [status] and len(line) == 8]
    assert told.pop() == "-"  # no job without GPUs
    assert_shown(told, values)
    gaps = {s: sum(j.seconds * size_of(j) for j in jobs() if j.seconds and j.status == s) for s in STATUSES}
    assert_shown(cells_of(RESEARCHER, status), [gaps[status] / sum(gaps.values())])


@pytest.mark.parametrize("size", ["1", "2-4", "5-8", ">8"])
def test_run_times_and_first_waits_by_size(size: str) -> None:
    some = [job for job in jobs() if job.size and class_of(job.size) == size]
    runs = [job.seconds for job in some if job.seconds is not None]
    assert_shown(cells_of(RESEARCHER, size)[:2], [len(runs), statistics.median(runs)])
    waits = defaultdict(list)
    for job in some:
        if job.wait is not None:
            waits[len(job.attempts[0].gpus)].append(job.wait)
    rows = [line.split()[1:] for line in shown(RESEARCHER) if line.split()[:1] == [size] and len(line.split()) == 6]
    assert [int(row[0]) for row in rows] == sorted(waits)
    for row in rows:
        some_waits = waits[int(row[0])]
        values = (len(some_waits), statistics.fmean(some_waits), *(quantile(some_waits, q) for q in (0.5, 0.9)))
        assert_shown(row[1:], values)


def test_utilization_by_size_and_number_of_nodes() -> None:
    cells = samples_of("cluster_gpu_util")
    pooled: dict[tuple[int, int], list[float]] = defaultdict(list)
    for attempt in (attempt for job in jobs() for attempt in job.attempts):
        if attempt.start is None or attempt.end is None:
            continue
        minute = attempt.start.replace(second=0)
        while minute < attempt.end:
            for node, indices in attempt.gpus.items():
                told = cells.get((minute, node))
                for index in indices if told is not None else ():
                    if told is not None and told[index] not in {"", "NA"}:
                        pooled[attempt.size, len(attempt.gpus)].append(float(told[index]))
            minute += MINUTE
    lines = [line.split() for line in shown(RESEARCHER)]
    start = next(k for k, line in enumerate(lines) if line[:3] == ["gpu_count", "node_count", "samples"]) + 2
    rows = lines[start : start + len(pooled)]
    assert [(int(row[0]), int(row[1])) for row in rows] == sorted(pooled)
    for row in rows:
        values = pooled[int(row[0]), int(row[1])]
        shares = [quantile(values, share) for share in (0.5, 0.9, 0.95)]
        assert_shown(row[2:], [len(values), statistics.fmean(values), *shares])


def test_the_first_failures() -> None:
    hours = defaultdict(list)
    for job in jobs():
        if job.status == "failed" and job.seconds is not None:
            hours[job.vc].append(job.seconds / 3600)
    assert len(hours) == 6
    for vc, some in hours.items():
        assert_shown(words_of(RESEARCHER, vc), [len(some), statistics.fmean(some)])


def test_what_a_replay_leaves_out_and_what_the_log_recorded() -> None:
    sized = [job for job in jobs() if job.size]
    assert f"note: {len(jobs()) - len(sized)} jobs are left out: no GPU count" in shown(RESEARCHER)
    run = [job for job in sized if job.gpu_seconds is not None]
    assert {words_of(RESEARCHER, policy)[0] for policy in ("fifo", "srtf")} == {str(len(run))}
    sojourns, waits = [], []
    for job in run:
        if job.wait is not None and job.attempts[-1].end is not None:
            sojourns.append((job.attempts[-1].end - job.submitted).total_seconds() / 3600)
            waits.append(job.wait / 3600)
    values = [statistics.fmean(sojourns), statistics.median(sojourns), statistics.fmean(waits), quantile(waits, 0.99)]
    assert_shown(words_of(RESEARCHER, "recorded")[:5], [len(sojourns), *values])


def test_the_largest_jobs() -> None:
    known = [(size_of(job), job.seconds, job.name) for job in jobs() if job.seconds is not None]
    for size, seconds, name in sorted(known, key=lambda job: (-job[0], -job[1], job[2]))[:3]:
        assert_shown(words_of("howto/query.md", name), [size, seconds / 3600])


def test_gpu_hours_by_week_and_user() -> None:
    weeks: dict[tuple[dt.date, str], list[Job]] = defaultdict(list)
    for job in jobs():
        if (job.size or 0) >= 8 and job.user is not None:
            monday = job.submitted.date() - dt.timedelta(days=job.submitted.weekday())
            weeks[monday, job.user].append(job)
    rows = sorted(weeks.items(), key=lambda item: (item[0][0], -gpu_hours(item[1]), item[0][1]))
    for (monday, user), some in rows[:3]:
        failed = sum(job.status == "failed" for job in some) / len(some)
        assert_shown(words_of("howto/query.md", str(monday), user), [len(some), gpu_hours(some), failed])


def test_two_periods_compared() -> None:
    # The trace's zone is Pacific time, seven hours behind, and eight from 5 November 2017, 9:00 UTC, on.
    def local(time: dt.datetime) -> dt.date:
        return (time - (7 if time < dt.datetime(2017, 11, 5, 9) else 8) * HOUR).date()

    cut = dt.date(2017, 10, 23)
    days = sorted(local(job.submitted) for job in jobs())
    before = [job for job in jobs() if local(job.submitted) < cut]
    after = [job for job in jobs() if local(job.submitted) >= cut]
    medians = [statistics.median(job.seconds for job in some if job.seconds is not None) for some in (before, after)]
    assert_shown(cells_of("howto/compare.md", "median run time", "all jobs", "s")[:2], medians)
    lengths = [(cut - days[0]).days, (days[-1] - cut).days + 1]
    daily = [gpu_hours(some) / length for some, length in zip((before, after), lengths, strict=True)]
    (line,) = [line for line in shown("howto/compare.md") if line.startswith("('GPU-hours a day', ")]
    assert_shown(line.split(", ")[1:3], daily)
