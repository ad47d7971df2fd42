"""What a Trace says for the rules of a site: jobs without GPUs, jobs elsewhere, arrays, and work that was lost."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

import tracekit
from tests.worlds.kinds import make_site
from tests.worlds.site import last_limits, simulate
from tests.worlds.slurm_dump import START, write_logs
from tracekit.calibration.workbench import workbench_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.worlds.site import Run, Site
    from tracekit.trace import Trace

    Made = Callable[[str], tuple[Site, list[list[Run]], Trace]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a function that returns a site of a kind, its runs, and its Trace divided into pools."""
    known: dict[str, tuple[Site, list[list[Run]], Trace]] = {}

    def make(kind: str) -> tuple[Site, list[list[Run]], Trace]:
        if kind not in known:
            site, folder = make_site(kind, 0), tmp_path_factory.mktemp("site")
            runs = simulate(site)
            write_logs(site, runs, folder / "logs", last_limits(site))
            known[kind] = site, runs, tracekit.ingest_logs(folder / "logs", folder / "trace").ingested.divided
        return known[kind]

    return make


def seconds(time: dt.datetime) -> int:
    """Return a time as seconds of the site."""
    return int((time.replace(tzinfo=dt.UTC) - START).total_seconds())


def test_jobs_without_gpus_compete_for_cpus(made: Made) -> None:
    site, runs, trace = made("CPU jobs")
    jobs = workbench_of(trace, "site", limit=None, seed=0).jobs
    assert jobs.others is not None
    assert not jobs.others.elsewhere.any()
    found, begin = jobs.others.jobs, seconds(jobs.origin)
    rows = zip(found.job_id, found.submit_ms.tolist(), found.cpu_milli.tolist(), found.work_ms.tolist(), strict=True)
    last = max(job.submit for job in site.jobs if job.gpus)
    expected = {
        f"site/{job.number}": (max(job.submit - begin, 0) * 1000, job.cpus * 1000, (ran[0].end - ran[0].start) * 1000)
        for job, ran in zip(site.jobs, runs, strict=True)
        if not job.gpus and ran[0].end > begin and job.submit <= last and ran[0].start >= begin
    }
    kept = {name: row for name, *row in rows if name in expected}
    assert {name: tuple(row) for name, row in kept.items()} == expected
    assert len(expected) > 0.9 * len(found)
    assert found.devices.tolist() == [0] * len(found)


def test_users_jobs_elsewhere_run_at_their_recorded_times(made: Made) -> None:
    site, runs, trace = made("several rules")
    jobs = workbench_of(trace, "l40s", limit=None, seed=0).jobs
    assert jobs.others is not None
    assert jobs.others.elsewhere.all()
    found, begin = jobs.others.jobs, seconds(jobs.origin)
    rows = zip(found.job_id, found.arrival_ms.tolist(), found.work_ms.tolist(), found.devices.tolist(), strict=True)
    last = max(job.submit for job in site.jobs if job.partition == "l40s")
    expected = sorted(
        (
            max(ran[0].start - begin, 0) * 1000,
            (ran[0].end - max(ran[0].start, begin if job.submit < begin else 0)) * 1000,
            job.gpus,
            f"site/{job.number}",
        )
        for job, ran in zip(site.jobs, runs, strict=True)
        if job.partition != "l40s" and ran[0].end > begin and job.submit <= last
    )
    assert sorted((at, work, gpus, name) for name, at, work, gpus in rows) == expected


def test_the_limit_of_an_array_is_what_its_tasks_waited_for(made: Made) -> None:
    site, _, trace = made("arrays")
    jobs = workbench_of(trace, "site", limit=None, seed=0).jobs
    assert jobs.array is not None
    assert jobs.array_most is not None
    waited = {job.array for job, word in zip(site.jobs, last_limits(site), strict=True) if word == "JobArrayTaskLimit"}
    expected = {f"site/{job.number}": job.array_most for job in site.jobs if job.array in waited}
    found = zip(jobs.job_id, jobs.array.tolist(), jobs.array_most.tolist(), strict=True)
    assert {name: most for name, array, most in found if array >= 0} == expected
    assert len(set(jobs.array.tolist())) == len(waited) + 1


@pytest.mark.parametrize("kind", ["outages", "preemption"])
def test_a_run_that_was_stopped_is_no_work_where_the_replay_stops_jobs(made: Made, kind: str) -> None:
    site, runs, trace = made(kind)
    bench = workbench_of(trace, "site", limit=None, seed=0)
    assert any(len(ran) > 1 for ran in runs)
    jobs = bench.jobs.starting_over(preempted=kind == "preemption", failed=kind == "outages")
    found = dict(zip(jobs.job_id, jobs.work_ms.tolist(), strict=True))
    assert found == {f"site/{job.number}": min(job.run, job.limit) * 1000 for job in site.jobs}
    ran = dict(zip(bench.jobs.job_id, bench.jobs.work_ms.tolist(), strict=True))
    assert ran == {
        f"site/{job.number}": sum(one.end - one.start for one in every) * 1000
        for job, every in zip(site.jobs, runs, strict=True)
    }
    assert bench.stoppers[:1] == ((("qos:high:low",),) if kind == "preemption" else ())
    assert ("outages" in bench.clusters) == (kind == "outages")


def test_the_jobs_from_a_time_on_begin_with_what_runs_then(made: Made) -> None:
    site, runs, trace = made("several rules")
    jobs = workbench_of(trace, "l40s", limit=None, seed=0).jobs
    assert jobs.others is not None
    day = 10 * 86_400
    later = jobs.others.since(day * 1000)
    begin = seconds(jobs.origin) + day
    ends = {f"site/{job.number}": ran[0].end for job, ran in zip(site.jobs, runs, strict=True)}
    assert set(later.jobs.job_id) == {name for name in jobs.others.jobs.job_id if ends[name] > begin}
    end_s = (later.jobs.arrival_ms + later.jobs.work_ms) / 1000 + begin
    assert end_s.tolist() == [ends[name] for name in later.jobs.job_id]
