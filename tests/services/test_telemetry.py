"""GPU series beside the jobs: from a live Prometheus and from its answers in files, against what was planted."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.services.planted import LABELLED, METRICS
from tests.services.tables import differing, ingest, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.conftest import Records
    from tracekit.trace import Trace

pytestmark = pytest.mark.services

Sample = tuple[Any, str, int]


@pytest.fixture(scope="module")
def live(ran: Records, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder = tmp_path_factory.mktemp("live")
    return ingest(ran.folder / "more-columns", folder / "trace", "", "--telemetry", ran.services.url)


@pytest.fixture(scope="module")
def from_files(ran: Records, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    files = str(ran.folder / "query-range")
    folder = tmp_path_factory.mktemp("files")
    return ingest(ran.folder / "more-columns", folder / "trace", "", "--telemetry", files)


def _samples(trace: Trace) -> dict[Sample, dict[str, Any]]:
    found = rows(trace, "gpu_utilization")
    assert len({(row["time"], row["node_id"], row["gpu_index"]) for row in found}) == len(found)
    return {(row["time"], row["node_id"], row["gpu_index"]): row for row in found}


def test_what_is_planted_covers_many_jobs(ran: Records) -> None:
    jobs = {sample.job_id for sample in ran.samples if sample.job_id}
    assert len(jobs) > 150
    assert {sample.node for sample in ran.samples if sample.number} == set(LABELLED)


def test_the_server_has_what_was_planted(ran: Records) -> None:
    sums = {}
    for metric in METRICS:
        found = json.loads((ran.folder / "query-range" / f"{metric}.json").read_bytes())["data"]["result"]
        sums[metric] = (
            sum(len(series["values"]) for series in found),
            round(sum(float(value) for series in found for _, value in series["values"]), 3),
        )
    assert sums == {
        metric: (len(ran.samples), round(sum(value(sample.utilization) for sample in ran.samples), 3))
        for metric, value in METRICS.items()
    }


@pytest.mark.parametrize("source", ["live", "from_files"])
def test_every_sample_is_what_was_planted(ran: Records, source: str, request: pytest.FixtureRequest) -> None:
    found = _samples(request.getfixturevalue(source))
    # A live pull may end with the last job; the files go on for some seconds.
    times = {time for time, _, _ in found}
    expected = {
        (sample.time, sample.node, sample.gpu): float(sample.utilization)
        for sample in ran.samples
        if min(times) <= sample.time <= max(times)
    }
    assert min(times) <= min(run.start for run in ran.runs if run.start)
    assert max(times) >= max(run.end for run in ran.runs if run.start and run.end) - dt.timedelta(seconds=1)
    assert {place: row["utilization_pct"] for place, row in found.items()} == expected
    for place, use in expected.items():
        row = found[place]
        assert row["memory_used_gib"] == pytest.approx(use)
        assert row["power_w"] == pytest.approx(60 + 3 * use)
        assert row["sm_active_pct"] == pytest.approx(100 * use / 125)
        assert row["tensor_active_pct"] == pytest.approx(100 * use / 250)


@pytest.mark.parametrize("source", ["live", "from_files"])
def test_samples_with_a_label_are_those_of_its_job(ran: Records, source: str, request: pytest.FixtureRequest) -> None:
    found = _samples(request.getfixturevalue(source))
    labelled = [sample for sample in ran.samples if sample.number]
    wrong = {
        (sample.number, found[sample.time, sample.node, sample.gpu]["job_id"])
        for sample in labelled
        if found[sample.time, sample.node, sample.gpu]["job_id"] != sample.job_id
    }
    assert wrong == set()


@pytest.mark.parametrize("source", ["live", "from_files"])
def test_samples_without_a_label_are_never_given_to_another_job(
    ran: Records, source: str, request: pytest.FixtureRequest
) -> None:
    found = _samples(request.getfixturevalue(source))
    # A live pull begins with the first job.
    unlabelled = [s for s in ran.samples if not s.number and (s.time, s.node, s.gpu) in found]
    assert len(unlabelled) > 1000
    told = [(sample, found[sample.time, sample.node, sample.gpu]["job_id"]) for sample in unlabelled]
    assert [(sample, job) for sample, job in told if job not in {None, sample.job_id}] == []


def test_samples_without_a_label_are_known_by_the_gpus_that_scontrol_named(ran: Records, tmp_path: Path) -> None:
    shutil.copytree(ran.folder / "machines", tmp_path / "logs")
    shutil.copy(ran.folder / "more-columns" / "sacct.txt", tmp_path / "logs")
    trace = ingest(tmp_path / "logs", tmp_path / "trace", "", "--telemetry", str(ran.folder / "query-range"))
    found = _samples(trace)
    told = [(s, found[s.time, s.node, s.gpu]["job_id"]) for s in ran.samples if not s.number]
    assert [(sample, job) for sample, job in told if job not in {None, sample.job_id}] == []
    # The log itself says who held the others: the GPUs of a placement are named.
    holders: dict[tuple[str, int], list[tuple[Any, Any, str]]] = {}
    for row in sorted(rows(trace, "placements"), key=lambda row: row["start_time"]):
        for gpu in row["gpu_index"] or ():
            holders.setdefault((row["node_id"], gpu), []).append((row["start_time"], row["end_time"], row["job_id"]))
    known = {}
    for sample in ran.samples:
        if not sample.number:
            spans = holders.get((sample.node, sample.gpu), ())
            # Whoever began later has it: a run that had ended before its requeue lasts until that in the database.
            known[sample] = next((job for start, end, job in reversed(spans) if start <= sample.time < end), None)
    assert [(sample, job) for sample, job in known.items() if job not in {None, sample.job_id}] == []
    assert len({job for job in known.values() if job}) > 10


def test_live_and_files_tell_the_same(live: Trace, from_files: Trace) -> None:
    pulled, read = _samples(live), _samples(from_files)
    assert differing(pulled, {place: row for place, row in read.items() if place in pulled}) == {}
    # A live pull goes from the first job to the last.
    first, last = (find(time for time, _, _ in pulled) for find in (min, max))
    assert [time for time, _, _ in read.keys() - pulled.keys() if first <= time <= last] == []


def test_a_window_bounds_what_is_pulled(ran: Records, tmp_path: Path) -> None:
    first = ran.samples[0].time + dt.timedelta(seconds=30)
    last = first + dt.timedelta(seconds=20)
    window = ("--from", f"{first:%Y-%m-%dT%H:%M:%S}", "--to", f"{last:%Y-%m-%dT%H:%M:%S}")
    source = ("--telemetry", ran.services.url)
    found = _samples(ingest(ran.folder / "more-columns", tmp_path / "trace", "", *source, *window))
    # Servers differ in whether the first moment of a window is part of it.
    assert {place for place in found if place[0] not in {first, last}} == {
        (sample.time, sample.node, sample.gpu) for sample in ran.samples if first < sample.time < last
    }
    assert min(time for time, _, _ in found) >= first
    assert max(time for time, _, _ in found) <= last


def test_the_mean_of_every_labelled_job_is_what_was_planted(ran: Records, live: Trace) -> None:
    means: dict[str, set[float]] = {}
    for row in rows(live, "gpu_utilization"):
        if row["job_id"] is not None and row["node_id"] in LABELLED and row["utilization_pct"]:
            means.setdefault(row["job_id"], set()).add(row["utilization_pct"])
    expected: dict[str, set[float]] = {}
    for sample in ran.samples:
        if sample.number and sample.job_id:
            expected.setdefault(sample.job_id, set()).add(float(sample.utilization))
    assert means == expected
