"""Standard Workload Format: what becomes of each oddity of its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit import schema
from tracekit.errors import SourceError, TooManyRejectsError, UsageError
from tracekit.ingest import records
from tracekit.ingest.formats import swf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

FILE = "log.swf"
HEADER = "; Computer: Toy\n; UnixStartTime: 1000000000\n; TimeZoneString: Europe/Berlin\n"
# Waits 10 s, runs 90 s on 4 processors; asks for 8 with 512 MiB each and 120 s.
LINE = "1 100 10 90 4 85.5 1024 8 120 524288 1 3 2 6 1 1 -1 -1\n"
JOB = {
    "job_id": "1",
    "vc": "1",
    "user": "3",
    "group": "2",
    "status": "completed",
    "source_status": "1",
    "submit_time": "1970-01-01 00:01:40",
    "start_time": "1970-01-01 00:01:50",
    "end_time": "1970-01-01 00:03:20",
    "queue_s": 10.0,
    "run_s": 90.0,
    "cpu_count": 4.0,
    "memory_gib": 4.0,
    "attempt_count": 1,
    "time_limit_s": 120.0,
    "partition": "1",
}
ATTEMPT = {
    "job_id": "1",
    "attempt": 0,
    "start_time": "1970-01-01 00:01:50",
    "end_time": "1970-01-01 00:03:20",
    "run_s": 90.0,
    "wait_s": 10.0,
    "status": "completed",
}


def line(**changes: object) -> str:
    """Return LINE with fields changed by name."""
    names = schema.source("swf", "swf").names
    cells = dict(zip(names, LINE.split(), strict=True)) | {k: str(v) for k, v in changes.items()}
    assert tuple(cells) == names
    return " ".join(cells.values()) + "\n"


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in names}


def test_a_job_gives_a_job_and_an_attempt(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: LINE})
    assert trace.tables == ("jobs", "attempts")
    assert rows(trace, "jobs") == [JOB]
    assert rows(trace, "attempts") == [ATTEMPT]
    assert found_checks(trace) == {}
    assert (trace.manifest.format, trace.manifest.time_base) == ("swf", "relative")
    assert [trace.capabilities[n].available for n in ("calendar", "hour_of_day", "gpu_count")] == [False] * 3


def test_the_header_gives_date_zone_and_cluster(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({FILE: HEADER + LINE})
    times = {
        "submit_time": "2001-09-09 01:48:20",
        "start_time": "2001-09-09 01:48:30",
        "end_time": "2001-09-09 01:50:00",
    }
    assert rows(trace, "jobs") == [JOB | {"cluster": "Toy"} | times]
    assert rows(trace, "attempts") == [ATTEMPT | {k: v for k, v in times.items() if k in ATTEMPT}]
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "Europe/Berlin")
    assert trace.capabilities["hour_of_day"].available


@pytest.mark.parametrize("zone", ["", "; TimeZoneString: Mars/Olympus\n", "; TimeZone: 3600\n"])
def test_without_a_known_zone_hours_of_the_day_mean_nothing(ingest: Ingest, zone: str) -> None:
    trace = ingest({FILE: "; UnixStartTime: 1000000000\n" + zone + LINE})
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "UTC")
    assert trace.capabilities["calendar"].available
    assert not trace.capabilities["hour_of_day"].available


@pytest.mark.parametrize("start", ["0", "-1", "unknown", "99999999999"])
def test_an_impossible_start_of_the_log_leaves_times_relative(ingest: Ingest, rows: Rows, start: str) -> None:
    trace = ingest({FILE: f"; UnixStartTime: {start}\n" + LINE})
    assert rows(trace, "jobs") == [JOB]
    assert trace.manifest.time_base == "relative"


def test_totals_of_the_header_are_noted_only(ingest: Ingest) -> None:
    trace = ingest({FILE: "; MaxNodes: 16 (in four racks)\n; MaxProcs: 128\n" + LINE})
    assert trace.tables == ("jobs", "attempts")
    assert {
        "the header gives MaxNodes: 16 (in four racks); without a machine list, a total cannot fill a table",
        "the header gives MaxProcs: 128; without a machine list, a total cannot fill a table",
    } <= set(trace.manifest.notes)


def test_blanks_tabs_comments_and_line_ends_do_not_matter(ingest: Ingest, rows: Rows) -> None:
    second = "\t" + line(job=2).strip().replace(" ", "\t  ") + "  \r\n"
    text = b'\xef\xbb\xbf; Computer: Toy\r\n; Note: caf\xe9 "\r\n\r\n' + (LINE + "  ; between\n\n" + second).encode()
    trace = ingest({FILE: text.rstrip(b"\r\n")})
    assert rows(trace, "jobs") == [JOB | {"cluster": "Toy"}, JOB | {"cluster": "Toy", "job_id": "2"}]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(2, 2, 0)]


def test_keys_after_the_first_job_are_not_the_header(ingest: Ingest, rows: Rows) -> None:
    assert rows(ingest({FILE: LINE + HEADER}), "jobs") == [JOB]


def test_minus_one_is_unknown_in_every_field(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: "1" + " -1" * 15 + " -1.0 -1.00\n"})
    assert rows(trace, "jobs") == [{"job_id": "1", "status": "unknown", "attempt_count": 1}]
    assert rows(trace, "attempts") == [{"job_id": "1", "attempt": 0, "status": "unknown"}]
    assert found_checks(trace) == {"no_processors": (1, 1)}


def test_what_a_job_has_where_a_number_is_unknown_or_0(ingest: Ingest, rows: Rows) -> None:
    cases: dict[str, tuple[dict[str, object], dict[str, Any], dict[str, Any]]] = {
        "without a wait, start and end are unknown": (
            {"wait": -1},
            without(JOB, "start_time", "end_time", "queue_s"),
            without(ATTEMPT, "start_time", "end_time", "wait_s"),
        ),
        "a run of no time is a run": (
            {"run": 0},
            JOB | {"run_s": 0.0, "end_time": JOB["start_time"]},
            ATTEMPT | {"run_s": 0.0, "end_time": JOB["start_time"]},
        ),
        "requested processors stand in for unknown ones": ({"processors": -1}, JOB | {"cpu_count": 8.0}, ATTEMPT),
        "memory is per requested, else allocated processor": (
            {"requested_processors": -1},
            JOB | {"memory_gib": 2.0},
            ATTEMPT,
        ),
    }
    trace = ingest({FILE: "".join(line(job=n, **changes) for n, (changes, *_) in enumerate(cases.values(), 1))})
    for n, (case, (_, job, attempt)) in enumerate(cases.items(), 1):
        for table, row in (("jobs", job), ("attempts", attempt)):
            found = [row for row in rows(trace, table) if row["job_id"] == str(n)]
            assert found == [row | {"job_id": str(n)}], case


def test_processors_are_gpus_only_when_the_user_says_so(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({FILE: LINE}, options={"processors_are_gpus": "yes"})
    assert rows(trace, "jobs") == [without(JOB, "cpu_count") | {"gpu_count": 4.0}]
    assert rows(trace, "attempts") == [ATTEMPT | {"gpu_count": 4.0}]
    assert trace.manifest.options == {"processors_are_gpus": "yes", "vc": "queue"}
    with pytest.raises(UsageError, match="'maybe' is not a valid value of the option processors_are_gpus"):
        ingest({FILE: LINE}, options={"processors_are_gpus": "maybe"})


def test_the_tenant_is_the_queue_or_the_group(ingest: Ingest, rows: Rows) -> None:
    assert [j["vc"] for j in rows(ingest({FILE: LINE}, options={"vc": "group"}), "jobs")] == ["2"]


def test_queues_take_the_names_of_the_header_unless_they_share_one(ingest: Ingest, rows: Rows) -> None:
    names = "; Queue: 0 interactive\n; Queue: 1 batch\n; Queue: 2 batch\n; Queue: see the manual\n"
    lines = "".join(line(job=n, queue=q) for n, q in enumerate((0, 1, 2, 3, -1), 1))
    assert [j.get("vc") for j in rows(ingest({FILE: names + lines}), "jobs")] == ["interactive", "1", "2", "3", None]


def test_status_numbers_become_statuses(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    statuses = {"0": "failed", "1": "completed", "5": "cancelled", "9": "unknown"}
    trace = ingest({FILE: "".join(line(job=word, status=word) for word in statuses)})
    assert rows(trace, "jobs") == [
        JOB | {"job_id": word, "status": status, "source_status": word} for word, status in statuses.items()
    ]
    assert rows(trace, "attempts") == [
        ATTEMPT | {"job_id": word, "status": status} for word, status in statuses.items()
    ]
    assert found_checks(trace) == {"unknown_status_word": (1, 4)}


def test_a_job_cancelled_in_the_queue_has_no_attempt(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    ran_on = [(-1, 4), (0, 0), (0, -1)]
    lines = (line(job=n, status=5, run=run, processors=count) for n, (run, count) in enumerate(ran_on, 1))
    trace = ingest({FILE: "".join(lines)})
    cancelled = without(JOB, "job_id", "start_time", "queue_s", "run_s", "cpu_count") | {
        "status": "cancelled",
        "source_status": "5",
        "end_time": "1970-01-01 00:01:50",
        "attempt_count": 0,
    }
    found = [without(job, "job_id", "cpu_count") for job in rows(trace, "jobs")]
    assert dict(zip(ran_on, found, strict=True)) == dict.fromkeys(ran_on, cancelled)
    assert rows(trace, "attempts") == []
    assert found_checks(trace) == {"cancelled_before_start": (3, 3)}


SWAPPED = line(run=90) + line(submit=-1, wait=-1, run=30, status=2) + line(submit=-1, wait=20, run=60, status=3)


def check_swapped(trace: Trace, rows: Rows) -> None:
    """Check the rows of SWAPPED: runs from 110 to 140 and from 160 to 220 s."""
    (job, *_) = rows(trace, "jobs")
    assert job == JOB | {"end_time": "1970-01-01 00:03:40", "run_s": 110.0, "attempt_count": 2}
    part = {"run_s": 30.0, "end_time": "1970-01-01 00:02:20", "status": "preempted"}
    rest = {
        "attempt": 1,
        "start_time": "1970-01-01 00:02:40",
        "end_time": "1970-01-01 00:03:40",
        "run_s": 60.0,
        "wait_s": 20.0,
    }
    assert [a for a in rows(trace, "attempts") if a["job_id"] == "1"] == [ATTEMPT | part, ATTEMPT | rest]


def test_parts_of_a_job_are_its_attempts(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: SWAPPED + line(job=2)})
    check_swapped(trace, rows)
    assert sorted(a["job_id"] for a in rows(trace, "attempts")) == ["1", "1", "2"]
    assert found_checks(trace) == {}
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(4, 4, 0)]


@pytest.mark.parametrize("chunk", [1, 7, 60, 150])
def test_parts_may_stand_in_several_blocks(
    ingest: Ingest, rows: Rows, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(records, "_LINE_CHUNK", chunk)
    trace = ingest({FILE: "; Note: short\n" + SWAPPED + line(job=2) + "1 2 3\n" + line(job=1)})
    check_swapped(trace, rows)
    assert [(r["line"], r["raw"]) for r in rows(trace, "rejects")] == [(6, "1 2 3"), (7, LINE.strip())]


def test_after_a_part_of_unknown_length_times_are_unknown(ingest: Ingest, rows: Rows) -> None:
    text = line() + line(submit=-1, run=-1, status=2) + line(submit=-1, wait=5, run=60, status=4)
    trace = ingest({FILE: text})
    assert [(a.get("start_time"), a.get("end_time"), a["status"]) for a in rows(trace, "attempts")] == [
        ("1970-01-01 00:01:50", None, "preempted"),
        (None, None, "failed"),
    ]
    (job,) = rows(trace, "jobs")
    assert job == without(JOB, "end_time", "run_s") | {"attempt_count": 2}


def test_parts_without_a_line_for_the_whole_make_a_job(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: "".join(line(job=f"7{word}", status=word) for word in (2, 3, 4))})
    assert rows(trace, "jobs") == [
        without(JOB, "end_time", "run_s") | {"job_id": "72", "status": "unknown", "source_status": "2"},
        JOB | {"job_id": "73", "source_status": "3"},
        JOB | {"job_id": "74", "status": "failed", "source_status": "4"},
    ]
    assert rows(trace, "attempts") == [
        ATTEMPT | {"job_id": job, "status": status}
        for job, status in (("72", "preempted"), ("73", "completed"), ("74", "failed"))
    ]
    assert found_checks(trace) == {"parts_without_job": (3, 3)}


def test_parts_that_contradict_the_whole_are_counted(ingest: Ingest, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: line(run=91) + line(submit=100, run=90, status=3)})
    assert found_checks(trace) == {"parts_run_disagrees": (1, 1), "part_with_submission": (1, 1)}


def test_contradictions_of_the_header_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: "; MaxRecords: 5\n; MaxProcs: 3 or so\n" + LINE + line(job=2, processors=3)})
    assert len(rows(trace, "jobs")) == 2
    assert found_checks(trace) == {"header_record_count_disagrees": (3, None), "processors_over_header": (1, 2)}


def test_negative_spans_are_unknown_and_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({FILE: line(wait=-10, run=-20)})
    (attempt,) = rows(trace, "attempts")
    assert not {"wait_s", "run_s", "start_time", "end_time"} & set(attempt)
    assert found_checks(trace) == {
        "ends_before_start": (1, 1),
        "starts_before_queued": (1, 1),
        "completed_without_end": (1, 1),
    }
    assert [(t["line"], t["column"], t["value"]) for t in rows(trace, "doubtful_times")] == [
        (1, "queue_s", "-10.0 s"),
        (1, "run_s", "-20.0 s"),
    ]


def test_an_impossible_record_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    bad: list[tuple[str, str | None, str]] = [
        (line(job=-1), "job", "is missing"),
        (line(job="x2"), "job", "is not a whole number"),
        (LINE, "job", "repeats the key of an earlier record"),
        (line(job=2, run=600_000_000), "run", "is above 5e+08"),
        (line(job=2, run="long"), "run", "is not a number"),
        ("2 3 4\n", None, "expected 18 fields, found 3"),
        (LINE.strip() + " 7\n", None, "expected 18 fields, found 19"),
    ]
    text = "; Note: first\n\n" + LINE + "".join(record for record, *_ in bad)
    trace = ingest({FILE: text}, max_reject_share=0.9)
    assert rows(trace, "jobs") == [JOB]
    found = [(r["source_file"], r["line"], r["raw"], r.get("column"), r["reason"]) for r in rows(trace, "rejects")]
    assert sorted(found) == [
        (FILE, number, record.strip(), column, reason) for number, (record, column, reason) in enumerate(bad, 4)
    ]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(8, 1, 7)]


def test_any_other_number_that_cannot_be_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    impossible = {"processors": -4, "requested_memory": "1e300", "user": "x", "requested_time": "never"}
    damaged = [line(job=f"1{n}", **{column: cell}) for n, (column, cell) in enumerate(impossible.items())]
    unknown = [line(job=f"2{n}", **{column: -1}) for n, column in enumerate(impossible)]
    trace = ingest({FILE: line(job=30) + "".join(damaged + unknown)})
    whole, *found = (without(job, "job_id") for job in rows(trace, "jobs"))
    for n, column in enumerate(impossible):
        assert found[n] == found[len(impossible) + n], column
        assert found[n] != whole, column
    assert found_checks(trace) == {f"unreadable_{column}": (1, None) for column in impossible}


def test_a_line_that_is_not_text_is_set_aside(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({FILE: LINE.encode() + b"2 \xff 3\r\n"})
    assert [(r["line"], r["reason"], r["raw"]) for r in rows(trace, "rejects")] == [
        (2, "is not valid UTF-8", "2 \\xff 3")
    ]


@pytest.mark.parametrize("chunk", [50_000, 4_000_000])
def test_a_line_too_long_is_set_aside(ingest: Ingest, rows: Rows, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records, "_LINE_CHUNK", chunk)
    trace = ingest({FILE: LINE + "2 " * 300_000 + "\n" + line(job=3)})
    assert [j["job_id"] for j in rows(trace, "jobs")] == ["1", "3"]
    assert [(r["line"], r["reason"], r["raw"]) for r in rows(trace, "rejects")] == [
        (2, "longer than 65536 bytes", "2 " * 32_768)
    ]


def test_numbers_out_of_order_are_kept_once(ingest: Ingest, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_LINE_CHUNK", 60)
    order = [5, 2, 9, 2, 5, 1]
    trace = ingest({FILE: "".join(line(job=n) for n in order)})
    assert [j["job_id"] for j in rows(trace, "jobs")] == ["5", "2", "9", "1"]
    assert [r["line"] for r in rows(trace, "rejects")] == [4, 5]


def test_several_logs_are_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"^contains several logs: a\.swf, b\.swf; job numbers repeat; name one file"):
        ingest({"a.swf": LINE, "b.swf": LINE})


def test_a_log_without_jobs_is_refused(ingest: Ingest) -> None:
    with pytest.raises(TooManyRejectsError, match=r"contains no records"):
        ingest({FILE: HEADER})


def test_a_log_under_another_name_is_known_by_its_lines(ingest: Ingest, rows: Rows) -> None:
    assert rows(ingest({"log.txt": "; Note: x\n\n" + LINE}), "jobs") == [JOB]


def test_a_header_alone_is_known_by_its_keys() -> None:
    (kind,) = swf.FORMAT.raw_files
    assert kind.looks_right(b"; Version: 2.2\n; UnixStartTime: 0\n")
    assert not kind.looks_right(b"; a comment\n")
    assert not kind.looks_right(b"a,b,c\n1,2,3\n")


def test_the_sample_keeps_every_record_or_says_why(
    sample_trace: Callable[[str], Trace], rows: Rows, found_checks: FoundChecks
) -> None:
    trace = sample_trace("swf")
    assert trace.validate() == []
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(207, 204, 3)]
    assert len(rows(trace, "jobs")) == 202
    assert {job.get("vc") for job in rows(trace, "jobs")} == {"interactive", "1", "2"}
    assert found_checks(trace) == {
        "unreadable_requested_processors": (1, None),
        "header_record_count_disagrees": (1, None),
        "unknown_status_word": (1, 202),
        "cancelled_before_start": (1, 202),
        "parts_without_job": (1, 202),
        "processors_over_header": (1, 202),
        "no_processors": (1, 202),
        "completed_without_end": (1, 202),
    }
    counts = trace.scan("attempts").group_by("job_id").len().filter(pl.col("len") > 1).collect()
    assert counts.rows() == [("101", 2)]
