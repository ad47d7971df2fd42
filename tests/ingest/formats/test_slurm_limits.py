"""Where the rules for `sacct` begin and end: just inside a limit, on it, and just outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import JOB, WAITING, sacct
from tracekit.ingest import ingest_logs
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.node_lists import MAX_NODES, expand_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


@pytest.mark.parametrize(("first", "second"), [("4000", "9000"), ("9000", "4000"), ("4000", "")])
def test_a_heterogeneous_job_has_the_priority_of_its_first_component(
    ingest: Ingest, rows: Rows, first: str, second: str
) -> None:
    leader = {"JobID": "7+0", "Priority": first, "Timelimit": "02:00:00"}
    other = {"JobID": "7+1", "JobIDRaw": "8", "Priority": second, "Timelimit": "01:00:00"}
    # The order of the rows does not matter.
    for lines in ((leader, other), (other, leader)):
        (job,) = rows(ingest(sacct(*lines)), "jobs")
        assert (job["priority"], job["time_limit_s"]) == (int(first), 7200.0)


def test_a_first_component_without_priority_does_not_borrow_one(ingest: Ingest, rows: Rows) -> None:
    leader = {"JobID": "7+0", "Priority": ""}
    (job,) = rows(ingest(sacct(leader, {"JobID": "7+1", "JobIDRaw": "8"})), "jobs")
    assert "priority" not in job


@pytest.mark.parametrize(
    ("text", "gib"), [("536870912", 0.5), ("524288K", 0.5), ("512M", 0.5), ("0.5G", 0.5), ("512MB", 0.5), ("0", 0.0)]
)
def test_measured_memory_without_a_unit_is_in_bytes(text: str, gib: float) -> None:
    assert text_of.used_gib(text) == gib


@pytest.mark.parametrize(("text", "gib"), [("512", 0.5), ("512M", 0.5), ("524288K", 0.5), ("512Mc", 0.5)])
def test_requested_memory_without_a_unit_is_in_mib(text: str, gib: float) -> None:
    assert text_of.memory(text).gib == gib


def test_a_bare_maxrss_reaches_the_trace_in_bytes(ingest: Ingest, rows: Rows) -> None:
    step = {"JobID": "7.0", "JobIDRaw": "7.0", "MaxRSS": "3221225472"}
    assert rows(ingest(sacct({}, step)), "job_usage") == [{"job_id": "slurm/7", "instance": "0", "memory_gib": 3.0}]


# The job ran an hour.
@pytest.mark.parametrize(
    ("elapsed", "found"),
    [("01:00:00", 0), ("01:00:00.999", 0), ("00:59:59.001", 0), ("01:00:01", 1), ("00:59:59", 1), ("01:00:02", 1)],
)
def test_a_stated_run_time_that_is_a_second_off_disagrees(
    ingest: Ingest, found_checks: FoundChecks, elapsed: str, found: int
) -> None:
    checks = found_checks(ingest(sacct({"Elapsed": elapsed})))
    assert checks == ({"duration_disagrees": (1, 1)} if found else {})


# The job ended on 4 March at 09:00:10.
REUSE = pytest.mark.parametrize(
    ("submit", "jobs"),
    [
        ("2024-03-05T09:00:09", [("slurm/7", 2)]),
        ("2024-03-05T09:00:10", [("slurm/7", 2)]),
        ("2024-03-05T09:00:11", [("slurm/7", 1), ("slurm/7#2", 1)]),
    ],
)


def again(submit: str) -> dict[str, str]:
    return {"Submit": submit, "Eligible": submit, "Start": "2024-03-05T10:00:00", "End": "2024-03-05T11:00:00"}


@REUSE
def test_an_id_is_free_for_another_job_after_more_than_a_day(
    ingest: Ingest, rows: Rows, submit: str, jobs: list[tuple[str, int]]
) -> None:
    trace = ingest(sacct({}, again(submit)))
    assert [(job["job_id"], job["attempt_count"]) for job in rows(trace, "jobs")] == jobs


@REUSE
def test_an_appended_id_is_free_for_another_job_after_more_than_a_day(
    write_source: Callable[[Mapping[str, str]], Path],
    tmp_path: Path,
    rows: Rows,
    submit: str,
    jobs: list[tuple[str, int]],
) -> None:
    for number, row in enumerate(({}, again(submit))):
        source = write_source({f"sacct-{number}.txt": sacct(row)["sacct.txt"]})
        trace = ingest_logs(source, tmp_path / "trace", append=True)
    assert [(job["job_id"], job["attempt_count"]) for job in rows(trace, "jobs")] == jobs


def test_a_job_that_still_runs_keeps_its_id_however_long_ago_it_was_submitted(ingest: Ingest, rows: Rows) -> None:
    running = {"State": "RUNNING", "End": "Unknown"}
    waiting = {**WAITING, "Submit": "2024-03-09T09:00:10", "Eligible": JOB["Eligible"], "End": "Unknown"}
    trace = ingest(sacct(running, waiting | {"State": "PENDING"}))
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["slurm/7"]


@pytest.mark.parametrize("last", [65_536, 65_537])
@pytest.mark.parametrize("text", ["n[1-{last}]", "a,n[2-{last}]", "n[1-9],n[10-{last}]"])
def test_a_list_may_name_as_many_nodes_as_a_cluster_has(text: str, last: int) -> None:
    if last <= MAX_NODES:
        assert len(expand_nodes(text.format(last=last))) == 65_536
    else:
        with pytest.raises(ValueError, match=r"^names more than 65536 nodes$"):
            expand_nodes(text.format(last=last))


def test_the_limit_counts_every_combination_of_two_brackets() -> None:
    assert len(expand_nodes("a[1-2]b[1-3]", limit=6)) == 6
    with pytest.raises(ValueError, match=r"^names more than 5 nodes$"):
        expand_nodes("a[1-2]b[1-3]", limit=5)
