"""What becomes of the runs of `sacct`: resizes, gangs, GPUs that were not accounted, waits, and clock changes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import ATTEMPT_ROW, JOB_ROW, numbered, sacct
from tracekit.errors import UsageError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

# Two nodes from 08:00:10 on, one of them from 08:20:10 on.
CHANGE = "2024-03-04T08:20:10"
LARGE = {"End": CHANGE, "State": "RESIZING", "Elapsed": "00:20:00"}
SMALL = {
    "Submit": CHANGE,
    "Eligible": CHANGE,
    "AllocTRES": "cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1",
    "NNodes": "1",
    "NodeList": "gpu01",
}


def test_a_resized_job_has_an_attempt_for_each_size(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    # Of each job, on two nodes of its own: does Elapsed state its run times, and which line comes first.
    ways = dict(enumerate(itertools.product((True, False), (1, -1)), 1))
    lines: list[dict[str, str]] = []
    for n, (elapsed, order) in ways.items():
        own = {"JobID": str(n), "JobIDRaw": str(n)} | ({} if elapsed else {"Elapsed": ""})
        nodes = [{"NodeList": f"n{n}-[1-2]"}, {"NodeList": f"n{n}-1"}]
        lines += [line | own | node for line, node in zip((LARGE, SMALL), nodes, strict=True)][::order]
    trace = ingest(sacct(*lines))
    assert rows(trace, "jobs") == [JOB_ROW | {"job_id": f"slurm/{n}", "attempt_count": 2} for n in ways]
    first = {"end_time": "2024-03-04 08:20:10", "run_s": 1200.0, "status": "unknown"}
    second = {"start_time": "2024-03-04 08:20:10", "run_s": 2400.0, "wait_s": 0.0, "gpu_count": 4.0, "node_count": 1}
    runs: dict[str, list[dict[str, Any]]] = {}
    for run in rows(trace, "attempts"):
        runs.setdefault(run["job_id"], []).append(run)
    held: dict[str, list[tuple[object, ...]]] = {}
    for row in rows(trace, "placements"):
        held.setdefault(row["job_id"], []).append((row["attempt"], row["node_id"], row["gpu_count"]))
    for n, way in ways.items():
        job = {"job_id": f"slurm/{n}"}
        assert runs[job["job_id"]] == [ATTEMPT_ROW | job | first, ATTEMPT_ROW | job | {"attempt": 1} | second], way
        assert sum(run["run_s"] * run["gpu_count"] for run in runs[job["job_id"]]) == 1200 * 8 + 2400 * 4
        assert held[job["job_id"]] == [(0, f"n{n}-1", 4.0), (0, f"n{n}-2", 4.0), (1, f"n{n}-1", 4.0)], way
    assert found_checks(trace) == {"resized_runs": (4, 8)}
    # No run was given up, so that nothing is known of requeues.
    assert not trace.capabilities["retries"].available


def test_the_second_size_alone_begins_at_the_change_if_elapsed_counts_from_before(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    # Where Elapsed does not, or nothing is stated, the start contradicts the submission.
    trace = ingest(numbered([SMALL, {**SMALL, "Elapsed": "00:40:00"}, {**SMALL, "Elapsed": ""}]))
    starts = {job["job_id"]: job.get("start_time") for job in rows(trace, "jobs")}
    assert starts == {"slurm/1": "2024-03-04 08:20:10", "slurm/2": None, "slurm/3": None}
    (run,) = (run for run in rows(trace, "attempts") if run["job_id"] == "slurm/1")
    assert (run["start_time"], run["run_s"]) == ("2024-03-04 08:20:10", 2400.0)
    assert found_checks(trace)["starts_before_queued"] == (2, 3)


def test_a_resized_job_of_two_daily_dumps_is_joined(
    rows: Rows, write_source: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    running = {**SMALL, "End": "Unknown", "State": "RUNNING", "Elapsed": "00:30:00"}
    ingest_logs(write_source(sacct(LARGE, running)), tmp_path / "history")
    trace = ingest_logs(write_source(sacct(SMALL)), tmp_path / "history", append=True)
    assert [(row["attempt"], row["run_s"], row["gpu_count"]) for row in rows(trace, "attempts")] == [
        (0, 1200.0, 8.0),
        (1, 2400.0, 4.0),
    ]
    assert [row["status"] for row in rows(trace, "jobs")] == ["completed"]


def gang(number: int, gpus: int, nodes: str = "gpu[01-02]", **cells: str) -> dict[str, str]:
    """Return a job on two nodes, which starts an hour after that of the number before."""
    hour = {"Start": f"2024-03-04T{10 + number}:00:00", "End": f"2024-03-04T{10 + number}:30:00"}
    held = {"AllocTRES": f"gres/gpu={gpus}", "ReqTRES": "", "Elapsed": "00:30:00", "NodeList": nodes, "NNodes": ""}
    return {"JobID": f"{number}", "JobIDRaw": f"{number}", **hour, **held, **cells}


def per_node(trace: Trace, rows: Rows) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for row in rows(trace, "placements"):
        found.setdefault(row["job_id"].removeprefix("slurm/"), []).append(row.get("gpu_count"))
    return found


def test_the_gpus_of_a_gang_on_each_node_are_known_where_they_must_be(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest(
        sacct(
            gang(1, 8),  # all that was ever held on either node
            gang(2, 6),  # 3 + 3 or 4 + 2
            gang(3, 2),  # one on each
            gang(4, 6, SubmitLine="sbatch --gres=gpu:3 x.sh"),
            gang(5, 6, SubmitLine="sbatch --gres=gpu:4 x.sh"),  # contradicts what it got
            gang(6, 6, SubmitLine="sbatch --gpus-per-node=a100:3 x.sh"),
            gang(7, 6, ReqGRES="gpu:3"),
            gang(8, 7),
            gang(9, 4, nodes="gpu03"),
            gang(10, 4, nodes="gpu[03-04]"),  # less than was held on gpu03
        )
    )
    assert per_node(trace, rows) == {
        "1": [4.0, 4.0],
        "2": [None, None],
        "3": [1.0, 1.0],
        "4": [3.0, 3.0],
        "5": [None, None],
        "6": [3.0, 3.0],
        "7": [3.0, 3.0],
        "8": [None, None],
        "9": [4.0],
        "10": [None, None],
    }
    assert found_checks(trace) == {"gpus_not_divisible": (1, 10), "gpus_per_node_unknown": (3, 10)}
    assert [(row["node_id"], row.get("gpu_count")) for row in rows(trace, "nodes")] == [
        ("gpu01", 4),
        ("gpu02", 4),
        ("gpu03", 4),
        ("gpu04", None),
    ]


def test_a_gang_does_not_fill_nodes_on_which_single_jobs_held_more_at_once(ingest: Ingest, rows: Rows) -> None:
    both = {"Start": "2024-03-04T12:00:00", "End": "2024-03-04T12:30:00", "NodeList": "gpu01"}
    trace = ingest(sacct(gang(1, 8), {**gang(2, 3), **both}, {**gang(3, 2), **both}))
    assert per_node(trace, rows)["1"] == [None, None]


OLD = {"AllocTRES": "", "ReqTRES": ""}


def test_a_number_means_gpu(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    one = {**OLD, "NNodes": "1", "NodeList": "gpu01"}
    trace = ingest(
        sacct(
            {**one, "AllocGRES": "7696487:2"},
            {**one, "JobID": "8", "JobIDRaw": "8", "AllocGRES": "7696487:4,7565421:50"},
            {**one, "JobID": "9", "JobIDRaw": "9", "AllocGRES": "6516589:1"},
        )
    )
    assert [row.get("gpu_count") for row in rows(trace, "jobs")] == [2.0, 4.0, None]
    assert found_checks(trace) == {"gres_by_number": (2, 3), "unknown_devices_of_jobs": (1, 3)}


BARE = {"AllocTRES": "billing=8,cpu=8,mem=64G,node=1", "ReqTRES": "", "NNodes": "1", "NodeList": "gpu01"}


def test_gpus_that_are_not_accounted_are_unknown_and_the_cure_is_named(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    two = {"JobID": "8", "JobIDRaw": "8", "Partition": "cpu"}
    trace = ingest(sacct({**BARE, "Partition": "gpu-long"}, {**BARE, **two}))
    assert [row.get("gpu_count") for row in rows(trace, "jobs")] == [None, 0.0]
    assert found_checks(trace)["gpus_not_listed"] == (1, 2)
    (note,) = (note for note in trace.manifest.notes if "GPU partitions" in note)
    assert note.startswith("1 runs in GPU partitions list no GPUs, and the GPUs of 1 are unknown: ")
    assert "AccountingStorageTRES=gres/gpu in slurm.conf" in note
    # Where the cluster accounts GPUs, a job without any in such a partition has none.
    held = {"JobID": "9", "JobIDRaw": "9", "AllocTRES": "gres/gpu=4", "NNodes": "1", "NodeList": "gpu02"}
    trace = ingest(sacct({**BARE, "Partition": "gpu-long"}, held))
    assert [row["gpu_count"] for row in rows(trace, "jobs")] == [0.0, 4.0]
    assert found_checks(trace) == {}


def test_unlisted_gpus_are_taken_from_the_command_or_the_typical_node_when_asked(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    lines = [
        {**BARE, "SubmitLine": "sbatch --gres=gpu:2 x.sh"},
        {**BARE, "JobID": "8", "JobIDRaw": "8", "Partition": "gpu", "SubmitLine": "sbatch x.sh"},
        {**BARE, "JobID": "9", "JobIDRaw": "9", "Partition": "gpu", "NNodes": "2", "NodeList": "gpu[01-02]"},
    ]
    for option, gpus, unknown in (
        ("listed", [None, None, None], 3),
        ("partition", [2.0, None, None], 2),
        ("gpu:4,other:8", [2.0, 4.0, 8.0], 0),
    ):
        trace = ingest(sacct(*lines), options={"gpus_from": option})
        assert [row.get("gpu_count") for row in rows(trace, "jobs")] == gpus
        assert any(f"list no GPUs, and the GPUs of {unknown} are unknown" in note for note in trace.manifest.notes)
        assert found_checks(trace).get("gpus_assumed", (0, 3)) == (3 - unknown, 3)
    # The accounting was put right half-way: later jobs tell what a node of the partition has.
    later = {"JobID": "10", "JobIDRaw": "10", "AllocTRES": "gres/gpu=4", "NNodes": "1", "NodeList": "gpu01"}
    asked = {**lines[1], "SubmitLine": "sbatch --gpus=1 x.sh"}
    trace = ingest(sacct(asked, {**later, "Partition": "gpu"}), options={"gpus_from": "partition"})
    assert {row["job_id"]: row["gpu_count"] for row in rows(trace, "jobs")} == {"slurm/8": 1.0, "slurm/10": 4.0}


@pytest.mark.parametrize("text", ["", "gpu", "gpu:x", "gpu:4,", "gpu:4,:8", "requests"])
def test_a_source_of_gpus_that_does_not_exist_is_refused(ingest: Ingest, text: str) -> None:
    with pytest.raises(UsageError, match=r"--option gpus_from: .* is not a source of GPU counts"):
        ingest(sacct({}), options={"gpus_from": text})


def test_flags_tell_what_started_a_job(ingest: Ingest, rows: Rows) -> None:
    started_by = {
        "SchedBackfill,StartReceived": "backfill",
        "SchedMain,StartRecieved": "main",
        "SchedSubmit": "main",
        "StartReceived": None,
        "": None,
    }
    jobs = rows(ingest(numbered({"Flags": flags, "Reason": "None"} for flags in started_by)), "jobs")
    assert dict(zip(started_by, [job.get("started_by") for job in jobs], strict=True)) == started_by
    assert all("wait_reason" not in job for job in jobs)


def test_reason_flags_and_suspension_are_those_of_the_runs(ingest: Ingest, rows: Rows) -> None:
    again = {"Submit": "2024-03-04T09:00:10", "Start": "2024-03-04T09:02:10", "End": "2024-03-04T10:12:10"}
    first = {"Reason": "QOSMaxGRESPerUser", "Flags": "SchedMain", "Suspended": "00:00:30", "Elapsed": "00:59:30"}
    second = {"Reason": "BeginTime", "Flags": "SchedBackfill", "Suspended": "00:10:00", "State": "COMPLETED"}
    (job,) = rows(ingest(sacct({**first, "State": "PREEMPTED"}, {**again, **second})), "jobs")
    # Why it waited is that of its first start; it was suspended in both runs.
    assert (job["wait_reason"], job["started_by"], job["suspended_s"]) == ("QOSMaxGRESPerUser", "main", 630.0)


def test_the_features_that_a_job_requires_are_kept(ingest: Ingest, rows: Rows) -> None:
    asked = ["a100&nvlink", "", "(null)"]
    jobs = rows(ingest(numbered({"Constraints": text} for text in asked)), "jobs")
    assert [job.get("constraint") for job in jobs] == ["a100&nvlink", None, None]


def test_suspension_in_two_dumps_is_known_where_one_record_tells_all(
    rows: Rows, write_source: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    # One job runs at the first dump, the other is preempted before it and runs again later.
    running = {"State": "RUNNING", "End": "Unknown", "Suspended": "00:00:10", "Elapsed": "00:10:00"}
    preempted = {"State": "PREEMPTED", "Suspended": "00:01:00"}
    ended = {"Suspended": "00:01:00", "Elapsed": "00:59:00"}
    again = {"Submit": "2024-03-04T09:00:10", "Start": "2024-03-04T09:02:10", "End": "2024-03-04T10:02:10"}
    for dump in ([running, preempted], [ended, again]):
        trace = ingest_logs(write_source(numbered(dump)), tmp_path / "history", append=True)
    suspended = {job["job_id"]: job.get("suspended_s") for job in rows(trace, "jobs")}
    assert suspended == {"slurm/1": 60.0, "slurm/2": None}


def test_processor_time_is_that_of_the_steps_or_the_runs_own(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    step = {"JobID": "7.batch", "JobIDRaw": "7.batch", "TotalCPU": "01:00:00"}
    other = {"JobID": "7.0", "JobIDRaw": "7.0", "TotalCPU": "00:30.500"}
    alone = {"JobID": "8", "JobIDRaw": "8", "TotalCPU": "1-00:00:00"}
    without = {"JobID": "9", "JobIDRaw": "9", "TotalCPU": "00:00:00"}
    more = {"JobID": "10", "JobIDRaw": "10", "TotalCPU": "02:00:00"}
    its_step = {"JobID": "10.0", "JobIDRaw": "10.0", "TotalCPU": "01:00:00"}
    trace = ingest(sacct({"TotalCPU": "01:00:30.500"}, step, other, alone, without, more, its_step))
    found = {(row["job_id"], row.get("instance")): row["cpu_s"] for row in rows(trace, "job_usage")}
    assert found == {
        ("slurm/7", "batch"): 3600.0,
        ("slurm/7", "0"): 30.5,
        ("slurm/8", None): 86_400.0,
        ("slurm/10", "0"): 3600.0,
    }
    assert len(rows(trace, "job_usage")) == len(found)
    assert found_checks(trace) == {"cpu_time_disagrees": (1, 3)}
    (example,) = trace.manifest.checks["cpu_time_disagrees"].examples
    assert example.startswith("slurm/10")


NIGHT = {"Submit": "2023-10-29T00:30:00", "Eligible": "", "Suspended": "00:00:00"}
"""Of the night in which clocks in Berlin went back from 03:00 to 02:00, at 01:00 UTC."""


@pytest.mark.parametrize("choice", ["bounded", "null"])
def test_elapsed_decides_what_a_doubled_hour_means(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks, choice: str
) -> None:
    cases = [
        ("01:30:00", "02:30:00", "01:00:00", ("2023-10-28 23:30:00", "2023-10-29 00:30:00")),
        ("01:30:00", "02:30:00", "02:00:00", ("2023-10-28 23:30:00", "2023-10-29 01:30:00")),
        ("02:30:00", "04:00:00", "02:30:00", ("2023-10-29 00:30:00", "2023-10-29 03:00:00")),
        ("02:30:00", "04:00:00", "01:30:00", ("2023-10-29 01:30:00", "2023-10-29 03:00:00")),
        ("02:30:00", "02:40:00", "01:10:00", ("2023-10-29 00:30:00", "2023-10-29 01:40:00")),
        ("02:50:00", "02:10:00", "00:20:00", ("2023-10-29 00:50:00", "2023-10-29 01:10:00")),
    ]
    changes = [
        {**NIGHT, "Start": f"2023-10-29T{start}", "End": f"2023-10-29T{end}", "Elapsed": elapsed}
        for start, end, elapsed, _ in cases
    ]
    trace = ingest(numbered(changes), options={"timezone": "Europe/Berlin", "doubled_hour": choice})
    found = [(job["start_time"], job["end_time"]) for job in rows(trace, "jobs")]
    assert found == [instants for *_, instants in cases]
    assert found_checks(trace) == {}
    assert rows(trace, "doubtful_times") == []


def test_a_run_that_nothing_decides_is_kept_with_bounds_of_an_hour(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    # Ten minutes in either of the two hours; or a run time that no reading of the clocks gives.
    times = {"Start": "2023-10-29T02:30:00", "End": "2023-10-29T02:40:00"}
    stated = ("", "00:05:00", "00:10:00")
    changes = [{**NIGHT, **times, "Elapsed": elapsed} for elapsed in stated]
    trace = ingest(numbered(changes), options={"timezone": "Europe/Berlin"})
    runs = [(r["start_time"], r["end_time"], r["run_s"], r["gpu_count"]) for r in rows(trace, "attempts")]
    run = ("2023-10-29 00:30:00", "2023-10-29 00:40:00", 600.0, 8.0)
    assert dict(zip(stated, runs, strict=True)) == dict.fromkeys(stated, run)
    assert found_checks(trace)["ambiguous_local_time"] == (6, 9)
    doubts = {(r["job_id"], r["column"]): (r["earliest"], r["latest"]) for r in rows(trace, "doubtful_times")}
    bounds = {
        "start_time": ("2023-10-29 00:30:00", "2023-10-29 01:30:00"),
        "end_time": ("2023-10-29 00:40:00", "2023-10-29 01:40:00"),
    }
    assert doubts == {(job, column): bounds[column] for job in "123" for column in bounds}
    assert len(rows(trace, "doubtful_times")) == 6
