"""Where the rules for `sacct` begin and end: just inside a limit, on it, and just outside."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import JOB, WAITING, numbered, sacct
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


def test_a_heterogeneous_job_has_the_priority_of_its_first_component(ingest: Ingest, rows: Rows) -> None:
    # Without one there, it does not borrow one; and the order of the rows does not matter.
    priorities = [("4000", "9000"), ("9000", "4000"), ("4000", ""), ("", "4000")]
    lines, expected = [], {}
    for number, (order, (first, second)) in enumerate(itertools.product((1, -1), priorities), 1):
        leader = {"JobID": f"{number}0+0", "JobIDRaw": f"{number}0", "Priority": first, "Timelimit": "02:00:00"}
        other = {"JobID": f"{number}0+1", "JobIDRaw": f"{number}1", "Priority": second, "Timelimit": "01:00:00"}
        lines += [leader, other][::order]
        expected[f"slurm/{number}0"] = (int(first) if first else None, 7200.0)
    jobs = rows(ingest(sacct(*lines)), "jobs")
    assert {job["job_id"]: (job.get("priority"), job["time_limit_s"]) for job in jobs} == expected


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


def test_a_stated_run_time_that_is_a_second_off_disagrees(ingest: Ingest, found_checks: FoundChecks) -> None:
    # The jobs ran an hour.
    stated = ["01:00:00", "01:00:00.999", "00:59:59.001", "01:00:01", "00:59:59", "01:00:02"]
    trace = ingest(numbered({"Elapsed": elapsed} for elapsed in stated))
    assert found_checks(trace) == {"duration_disagrees": (3, 6)}
    examples = trace.manifest.checks["duration_disagrees"].examples
    assert [example.split()[0] for example in examples] == ["4", "5", "6"]


# Each job ended on 4 March at 09:00:10.
SUBMITTED_AGAIN = ("2024-03-05T09:00:09", "2024-03-05T09:00:10", "2024-03-05T09:00:11")
ATTEMPTS_OF_REUSED = {"slurm/1": 2, "slurm/2": 2, "slurm/3": 1, "slurm/3#2": 1}


def again(submit: str) -> dict[str, str]:
    return {"Submit": submit, "Eligible": submit, "Start": "2024-03-05T10:00:00", "End": "2024-03-05T11:00:00"}


def test_an_id_is_free_for_another_job_after_more_than_a_day(ingest: Ingest, rows: Rows) -> None:
    ids = [{"JobID": str(number), "JobIDRaw": str(number)} for number in (1, 2, 3)]
    later = (id_ | again(submit) for id_, submit in zip(ids, SUBMITTED_AGAIN, strict=True))
    jobs = rows(ingest(sacct(*ids, *later)), "jobs")
    assert {job["job_id"]: job["attempt_count"] for job in jobs} == ATTEMPTS_OF_REUSED


def test_an_appended_id_is_free_for_another_job_after_more_than_a_day(
    write_source: Callable[[Mapping[str, str]], Path], tmp_path: Path, rows: Rows
) -> None:
    for day, changes in enumerate(([{}, {}, {}], map(again, SUBMITTED_AGAIN))):
        source = write_source({f"sacct-{day}.txt": numbered(changes)["sacct.txt"]})
        trace = ingest_logs(source, tmp_path / "trace", append=True)
    assert {job["job_id"]: job["attempt_count"] for job in rows(trace, "jobs")} == ATTEMPTS_OF_REUSED


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
