"""Cells of `sacct` that cannot be read: which of them cost their row, and which only themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.sacct_rows import JOB_ROW, numbered, sacct
from tracekit.errors import TooManyRejectsError
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


def test_an_unusable_key_costs_its_row(ingest: Ingest, rows: Rows) -> None:
    cases = [
        ({"JobID": "total"}, "JobID", "is not a job id"),
        ({"JobIDRaw": "x"}, "JobIDRaw", "is not a job id"),
        ({"JobID": ""}, "JobID", "is missing"),
        ({"Submit": "Unknown"}, "Submit", "is missing"),
        ({"Start": "2024-02-30T00:00:00"}, "Start", "is not a time like %Y-%m-%dT%H:%M:%S"),
        ({"JobID": "7_[9-8]"}, "JobID", "is not a list of array tasks"),
    ]
    trace = ingest(numbered([{}, *(changes for changes, *_ in cases)]), max_reject_share=0.99)
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["slurm/1"]
    found = [(row["line"], row["column"], row["reason"]) for row in rows(trace, "rejects")]
    assert found == [(line, column, reason) for line, (_, column, reason) in enumerate(cases, 3)]


def test_any_other_cell_that_cannot_be_read_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    no_duration = "is not a duration like 1-02:03:04"
    cases: list[tuple[dict[str, str], str | None, str]] = [
        ({"Elapsed": "soon"}, None, no_duration),
        ({"Suspended": "soon"}, "suspended_s", no_duration),
        ({"Timelimit": "99999999999-00"}, "time_limit_s", no_duration),
        ({"NodeList": "gpu[1-99999999]"}, None, "names more than 65536 nodes"),
        ({"NodeList": "gpu[1-"}, None, "is not a node list"),
        ({"Priority": "high"}, "priority", "is not a whole number"),
        ({"Eligible": "at noon"}, "eligible_time", "is not a time like %Y-%m-%dT%H:%M:%S"),
    ]
    trace = ingest(numbered(changes for changes, *_ in cases))
    assert rows(trace, "jobs") == [
        {k: v for k, v in JOB_ROW.items() if k != lost} | {"job_id": f"slurm/{n}"}
        for n, (_, lost, _) in enumerate(cases, 1)
    ]
    said: dict[str, list[str]] = defaultdict(list)
    for changes, _, reason in cases:
        ((column, text),) = changes.items()
        said[f"unreadable_{column.lower()}"].append(f"{text}: {reason}")
    assert found_checks(trace) == {name: (len(texts), None) for name, texts in said.items()}
    assert {name: trace.manifest.checks[name].examples for name in said} == said
    assert {row["job_id"] for row in rows(trace, "placements")} == {f"slurm/{n}" for n in (1, 2, 3, 6, 7)}


def test_a_column_of_which_most_cells_cannot_be_read_is_named_in_a_note(ingest: Ingest) -> None:
    notes = ingest(sacct({"Elapsed": "soon"})).manifest.notes
    assert any("most cells of the column 'Elapsed' cannot be read" in note for note in notes)


def test_gpus_are_unknown_where_their_list_cannot_be_read(ingest: Ingest, rows: Rows) -> None:
    cases: list[tuple[dict[str, str], float | None]] = [
        ({"AllocTRES": "cpu"}, 8.0),  # those that the job requested
        ({"AllocTRES": "cpu=x", "ReqTRES": ""}, None),
        ({"AllocTRES": "cpu=x", "ReqTRES": "cpu=1"}, None),
        ({"AllocTRES": "", "ReqTRES": "?"}, None),
        ({"AllocTRES": "cpu=1", "ReqTRES": "?"}, 0.0),
    ]
    found = rows(ingest(numbered(changes for changes, _ in cases)), "jobs")
    assert [job.get("gpu_count") for job in found] == [gpus for _, gpus in cases]


def test_no_limit_is_unknown_without_being_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    words = ("UNLIMITED", "inf", "4294967295", "[]", "Partition_Limit")
    trace = ingest(numbered({"Timelimit": word, "Priority": "4294967295"} for word in words))
    assert len(found := rows(trace, "jobs")) == len(words)
    assert all({"time_limit_s", "priority"}.isdisjoint(job) for job in found)
    assert found_checks(trace) == {}


def test_a_source_without_usable_rows_is_refused(ingest: Ingest) -> None:
    with pytest.raises(TooManyRejectsError, match=r"line 2, column JobID: is not a job id"):
        ingest(sacct({"JobID": "total"}))


@given(st.integers(0, 10**9), st.booleans())
def test_durations_survive_the_round_trip(seconds: int, short: bool) -> None:
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    text = (
        f"{m:02}:{s:02}" if short and not hours else f"{days}-{h:02}:{m:02}:{s:02}" if days else f"{h:02}:{m:02}:{s:02}"
    )
    assert text_of.duration_s(text) == seconds
    assert text_of.duration_s(text + ".250") == seconds + 0.25


PARSERS: list[Callable[[str], object]] = [
    text_of.duration_s,
    text_of.limit_s,
    text_of.count,
    text_of.memory,
    text_of.used_gib,
    text_of.tres,
    text_of.usage,
    text_of.gres,
    text_of.state,
    text_of.array_tasks,
    expand_nodes,
]


def reason(parse: Callable[[str], object], text: str) -> str | None:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


@given(st.sampled_from(PARSERS), st.text(max_size=30) | st.text("0123456789-:,[]=.KMGcn%+ ", max_size=30))
def test_no_cell_breaks_a_parser(parse: Callable[[str], object], text: str) -> None:
    assert re.match(r"is not a|is a duration out|names more than", reason(parse, text) or "is not a")
