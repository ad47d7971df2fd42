"""The dumps of a real Slurm in sample_traces/slurm-dumps: every form tells the same jobs."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs
from tracekit.settings import IngestSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

COLUMNS = (
    "JobID,JobIDRaw,Cluster,Submit,Eligible,Start,End,State,Elapsed,Timelimit,AllocTRES,ReqTRES,NNodes,NodeList,"
    "Account,Partition,QOS,User,Priority"
)
"""What the dump without header line was asked for."""
SAME = ("submit_time", "start_time", "end_time", "status", "attempt_count", "gpu_count", "account", "partition", "qos")
OTHER_FORMS = ("site", "all-columns", "headerless", "delimiter", "epoch-times", "offset-times", "json")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE"}


@pytest.fixture(scope="module")
def dumps(sample_source: Callable[[str], Path]) -> Path:
    return sample_source("slurm-dumps")


def allocations(dumps: Path) -> list[dict[str, str]]:
    """Return the rows of runs of the plainest form, read without tracekit: no name with a delimiter is in it."""
    lines = (dumps / "readme-columns" / "sacct.txt").read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(lines[0].split("|"), line.split("|"), strict=True)) for line in lines[1:]]
    return [row for row in rows if "." not in row["JobID"]]


def read(source: Path, out: Path, **options: str) -> Trace:
    trace = ingest_logs(source, out, IngestSettings(options=options))
    assert trace.validate() == []
    return trace


def by_job(trace: Trace) -> dict[str, dict[str, Any]]:
    return {row["job_id"]: {name: row[name] for name in SAME} for row in trace.scan("jobs").collect().to_dicts()}


@pytest.fixture(scope="module")
def plain(dumps: Path, once: Callable[[str, Callable[[Path], Any]], Any]) -> Trace:
    """Return the Trace of the plainest form."""
    trace: Trace = once("plain-dump", lambda folder: read(dumps / "readme-columns", folder / "plain-dump"))
    return trace


def test_the_plainest_form_has_every_job_run_and_gpu_second(dumps: Path, plain: Trace) -> None:
    rows = allocations(dumps)
    # A job's number is that of its first component; raw ids of an array's tasks are numbers of their own.
    jobs = {row["JobID"].split("+")[0] if "+" in row["JobID"] else row["JobIDRaw"] for row in rows}
    assert {row["job_id"] for row in plain.scan("jobs").collect().to_dicts()} == {f"tk/{job}" for job in jobs}
    assert len(jobs) > 25
    assert plain.manifest.rejected == 0
    last = {}
    for row in rows:
        if "+" not in row["JobID"]:
            last[f"tk/{row['JobIDRaw']}"] = row["State"].split()[0]
    assert set(last.values()) == ENDED
    assert {row["State"] for row in rows} >= {"NODE_FAIL", "PREEMPTED", "REQUEUED", "RESIZING"}
    words = {row["job_id"]: row["source_status"] for row in plain.scan("jobs").collect().to_dicts()}
    assert {job: words[job] for job in last} == last


def test_machines_events_and_samples_are_next_to_the_jobs(dumps: Path) -> None:
    site = dumps / "site"
    assert {path.name for path in site.iterdir()} == {
        "sacct.txt",
        "sacctmgr-event.psv",
        "scontrol-nodes.txt",
        "scontrol-show-job-d.txt",
        "sinfo-N.psv",
        "sinfo.json",
    }
    events = (site / "sacctmgr-event.psv").read_text(encoding="utf-8").splitlines()
    assert [line.split("|")[1] for line in events[2:]] == ["node2", "node3", "node4"]


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_every_form_tells_the_same_jobs(dumps: Path, plain: Trace, form: str, tmp_path: Path) -> None:
    options = {"fields": COLUMNS} if form == "headerless" else {}
    trace = read(dumps / form, tmp_path / "trace", **options)
    assert trace.manifest.rejected == 0
    assert by_job(trace) == by_job(plain)


def test_the_json_form_has_the_same_number_of_runs(dumps: Path) -> None:
    jobs = json.loads(gzip.decompress((dumps / "json" / "sacct.json.gz").read_bytes()))["jobs"]
    assert len(jobs) == len(allocations(dumps))


def test_the_series_are_answers_of_a_server(dumps: Path) -> None:
    paths = sorted((dumps / "telemetry").iterdir())
    answers = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    assert len(answers) == 5
    assert {answer["status"] for answer in answers} == {"success"}
    series = [{(s["metric"]["Hostname"], s["metric"]["gpu"]) for s in answer["data"]["result"]} for answer in answers]
    assert all(len(gpus) == 16 for gpus in series)
