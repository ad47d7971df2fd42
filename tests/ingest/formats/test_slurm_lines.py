"""Line breaks in commands and comments: the lines of one record are found again, or set aside with the cure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import TooManyRejectsError
from tracekit.ingest import records
from tracekit.ingest.formats import _slurm_text
from tracekit.ingest.formats._slurm_text import SacctLayout, join_lines, with_lines_after
from tracekit.ingest.records import RecordReader
from tracekit.schema import source

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

SCRIPT = "sbatch --gres=gpu:3 --wrap=#!/bin/sh\n\necho a | tee log\n\nsrun train.py || exit 1"
CURE = "again without free-text columns (SubmitLine, Comment, ...) or with sacct --json"
ORDERS = {
    "command inside": ("JobID", "Submit", "JobName", "SubmitLine", "Start", "End", "State", "NodeList"),
    "two texts apart": ("JobID", "Submit", "Comment", "Start", "End", "JobName", "State", "SubmitLine", "NodeList"),
    "text before the job": ("Account", "Comment", "JobID", "Start", "End", "State", "Submit", "SubmitLine", "User"),
    "command last": ("JobID", "Submit", "Start", "End", "State", "NodeList", "SubmitLine"),
}
CELLS = {
    "Submit": "2024-03-04T10:00:00",
    "Start": "2024-03-04T10:00:10",
    "End": "2024-03-04T11:00:10",
    "State": "COMPLETED",
    "NodeList": "n1",
    "JobName": "train",
    "Account": "vision",
    "Comment": "first\nsecond | third",
    "User": "ann",
    "SubmitLine": SCRIPT,
}


def dump(order: tuple[str, ...], *jobs: dict[str, str], trailing: bool = False) -> str:
    end = "|\n" if trailing else "\n"
    lines = ["|".join(order), *("|".join((CELLS | job)[name] for name in order) for job in jobs)]
    return "".join(line + end for line in lines)


def test_records_over_several_lines_are_read_whole(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    plain = {"SubmitLine": "sbatch job.sh", "Comment": ""}
    ways = {f"{name}, {end}": (order, end) for name, order in ORDERS.items() for end in ("trailing", "bare")}
    files: dict[str, str] = {}
    expected: dict[str, object] = {}
    for number, (way, (order, end)) in enumerate(ways.items(), 1):
        ids = [f"{number}{n}" for n in range(1, 6)]
        jobs = [{"JobID": id_} | (plain if n in (0, 3) else {}) for n, id_ in enumerate(ids)]
        files[f"sacct {way}.txt"] = dump(order, *jobs, trailing=end == "trailing")
        expected |= {f"slurm/{id_}": (3600.0, "completed") for id_ in ids}
    trace = ingest(files)
    assert {job["job_id"]: (job["run_s"], job["status"]) for job in rows(trace, "jobs")} == expected
    accounts = {account.path: (account.records, account.rejected) for account in trace.manifest.files}
    assert accounts == dict.fromkeys(files, (5, 0))
    assert found_checks(trace)["line_break_in_text"] == (24, None)


def test_lines_that_need_not_be_one_record_are_set_aside_with_the_cure(ingest: Ingest, rows: Rows) -> None:
    good = {"SubmitLine": "sbatch a", "Comment": ""}
    # In both texts, and nothing between them tells which delimiter parts them.
    order = ("JobID", "Submit", "Start", "End", "State", "Comment", "SubmitLine", "NodeList")
    unsure = {"JobID": "2", "Comment": "a\nb|c", "SubmitLine": "d"}
    trace = ingest({"sacct.txt": dump(order, *({"JobID": str(n)} | good for n in (1, 3, 4)), unsure)})
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["slurm/1", "slurm/3", "slurm/4"]
    reasons = [row["reason"] for row in rows(trace, "rejects")]
    assert len(reasons) == trace.manifest.rejected == 2
    assert all(reason.endswith(CURE) for reason in reasons)


def test_a_file_of_such_lines_is_refused_with_the_cure(ingest: Ingest) -> None:
    order = ("JobID", "Submit", "Start", "End", "State", "Comment", "SubmitLine", "NodeList")
    with pytest.raises(TooManyRejectsError, match="sacct --json"):
        ingest({"sacct.txt": dump(order, {"JobID": "2", "Comment": "a\nb|c", "SubmitLine": "d"})})


def test_damaged_lines_spoil_no_record_beside_them(ingest: Ingest, rows: Rows) -> None:
    damaged = {
        "sacct ends early.txt": "2|2024-03-04T10:00:00|train",
        "sacct is cut in a time.txt": (
            "2|2024-03-04T10:00:00|train|sbatch a|2024-03-04T10:\n00:10|2024-03-04T11:00:10|COMPLETED|n1"
        ),
        "sacct fails.txt": "sacct: error: the database is gone",
    }
    files, ids = {}, set()
    for number, (name, cut) in enumerate(damaged.items(), 1):
        good = [{"JobID": f"{number}{n}", "SubmitLine": "sbatch a"} for n in (1, 3, 4, 5)]
        header, first, *rest = dump(ORDERS["command inside"], *good).splitlines()
        files[name] = "\n".join([header, first, cut, *rest, ""])
        ids |= {f"slurm/{job['JobID']}" for job in good}
    trace = ingest(files)
    assert {job["job_id"] for job in rows(trace, "jobs")} == ids
    rejected = {account.path: account.rejected for account in trace.manifest.files}
    assert rejected == {name: cut.count("\n") + 1 for name, cut in damaged.items()}


def test_what_may_be_a_record_is_not_taken_for_the_end_of_a_command(ingest: Ingest, rows: Rows) -> None:
    good = [{"JobID": str(number), "SubmitLine": "sbatch a"} for number in (1, 3, 4)]
    header, first, *rest = dump(ORDERS["command last"], *good).splitlines()
    trace = ingest({"sacct.txt": "\n".join([header, first, "2|2024-03-04T10:00", *rest, ""])})
    assert len(rows(trace, "jobs")) == 3
    assert trace.manifest.rejected == 1


TEXTS = st.text("ab|\n 7", max_size=8)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5), st.sampled_from(list(ORDERS)[:3]))
def test_joined_lines_are_records_that_were_written(texts: list[tuple[str, str]], name: str) -> None:
    order = ORDERS[name]
    jobs = [CELLS | {"JobID": str(n), "Comment": a, "SubmitLine": b} for n, (a, b) in enumerate(texts, 1)]
    text = dump(order, *jobs).partition("\n")[2]
    names = tuple(column.lower() for column in order)
    layout = SacctLayout({c: order.index(c) for c in order}, names, "|", False, source("slurm", "sacct"))
    written = [[job[column] for column in order] for job in jobs]
    for block, bad in with_lines_after(RecordReader(_Bytes(text.encode()), b"|", quoting=False).blocks(len(order))):
        odd = join_lines(block, bad, layout)
        for _, cells in odd.joined:
            # Empty lines are no part of a dump's records.
            assert [" ".join(cell.split()) for cell in cells] in [[" ".join(c.split()) for c in w] for w in written]
        lines = sum(record.raw.count(b"\n") + 1 for record, _ in odd.joined) + len(odd.alone)
        assert lines == len(bad)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        found, self.data = self.data[:size], self.data[size:]
        return found


def test_a_record_that_two_reads_cut_is_whole(ingest: Ingest, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_CHUNK", 150)
    jobs = [{"JobID": str(number)} for number in range(1, 30)]
    trace = ingest({"sacct.txt": dump(ORDERS["command inside"], *jobs)})
    assert len(rows(trace, "jobs")) == 29
    assert trace.manifest.rejected == 0


def test_lines_are_joined_up_to_a_bound(ingest: Ingest, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_slurm_text, "_MOST_LINES", 4)
    good = [{"JobID": str(number), "SubmitLine": "sbatch a"} for number in range(1, 9)]
    trace = ingest({"sacct.txt": dump(ORDERS["command inside"], *good, {"JobID": "9", "SubmitLine": "a\nb\nc\nd\ne"})})
    assert len(rows(trace, "jobs")) == 8
    assert trace.manifest.rejected == 5
