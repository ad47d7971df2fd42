"""Runs whose end a scheduler lost are counted, and make no machine larger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

HEADER = "JobID|User|Partition|Submit|Start|End|State|Timelimit|AllocTRES|NNodes|NodeList"


def row(job: int, start: str, end: str, state: str, gpus: int = 8, limit: str = "1-00:00:00") -> str:
    return f"{job}|ana|gpu|{start}|{start}|{end}|{state}|{limit}|cpu=8,gres/gpu={gpus},node=1|1|gn01"


LOST = row(500, "2025-02-20T08:00:00", "Unknown", "RUNNING")
"""8 GPUs, a day at most: to 21 February 08:00."""

MARCH = [
    row(1000 + day, f"2025-03-{day:02}T00:00:00", f"2025-03-{day:02}T06:00:00", "COMPLETED") for day in range(3, 11)
]
"""8 runs of 8 GPUs and 6 hours."""


def sacct(*rows: str) -> dict[str, str]:
    return {"sacct.txt": "\n".join([HEADER, *rows]) + "\n"}


def gpus_of(trace: Trace) -> dict[str, int | None]:
    return dict(trace.scan("nodes").select("node_id", "gpu_count").collect().iter_rows())


def test_a_run_past_its_limit_is_counted_and_holds_no_gpus_after_it(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest(sacct(LOST, *MARCH))
    assert found_checks(trace) == {"running_past_limit": (1, 1)}
    check = trace.manifest.checks["running_past_limit"]
    assert check.examples == ["slurm/500: past its time limit"]
    assert "sacctmgr show runawayjobs" in check.meaning
    # Two runs at once would make a machine of 16.
    assert gpus_of(trace) == {"gn01": 8}
    assert trace.scan("attempts").collect().filter(job_id="slurm/500")["end_time"].to_list() == [None]
    found = {r["metric"]: r["value"] for r in run_query(trace, "queuing/gpu_time_held").iter_rows(named=True)}
    assert found["running_gpu_hours"] == 24 * 8
    assert found["held_gpu_hours"] == 24 * 8 + 8 * 6 * 8
    assert found["held_share"] <= 1


def test_a_later_run_excludes_one_without_a_limit_where_the_machine_is_listed(
    ingest: Ingest, found_checks: FoundChecks
) -> None:
    lost = row(500, "2025-02-20T08:00:00", "Unknown", "RUNNING", limit="UNLIMITED")
    listed = "NodeName=gn01 Arch=x86_64 CPUTot=64 Gres=gpu:8 RealMemory=512000 State=ALLOCATED Partitions=gpu\n"
    trace = ingest(sacct(lost, *MARCH) | {"nodes.txt": listed})
    assert found_checks(trace)["running_past_limit"] == (1, 1)
    assert trace.manifest.checks["running_past_limit"].examples == ["slurm/500: a later run uses its GPUs"]
    found = {r["metric"]: r["value"] for r in run_query(trace, "queuing/gpu_time_held").iter_rows(named=True)}
    # From 20 February 08:00 to 3 March 00:00: 10 days and 16 hours.
    assert found["running_gpu_hours"] == 256 * 8


def test_what_still_runs_within_its_limit_is_not_lost(ingest: Ingest, found_checks: FoundChecks) -> None:
    running = row(2000, "2025-03-10T00:00:00", "Unknown", "RUNNING", gpus=4)
    trace = ingest(sacct(running, *MARCH[:-1], row(2001, "2025-03-10T00:00:00", "2025-03-10T06:00:00", "FAILED", 3)))
    assert found_checks(trace) == {}
    assert gpus_of(trace) == {"gn01": 8}


def test_runs_of_unknown_end_show_no_gpus_beside_others(ingest: Ingest) -> None:
    # A run that is over at an unknown time was not held beside those of March; alone it was.
    over = row(500, "2025-02-20T08:00:00", "Unknown", "FAILED", gpus=6)
    assert gpus_of(ingest(sacct(over, *MARCH))) == {"gn01": 8}
    assert gpus_of(ingest(sacct(over, row(1, "2025-03-03T00:00:00", "2025-03-03T06:00:00", "COMPLETED", 4)))) == {
        "gn01": 6
    }
