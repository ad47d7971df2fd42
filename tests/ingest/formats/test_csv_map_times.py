"""Times of mapped logs: formats, zones, stated spans, and dates that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.ingest.formats.mapped_logs import BASIC, HEADER, JOB, LINE, simple
from tracekit.ingest.mapping.values import read_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]


@pytest.mark.parametrize(
    ("form", "text", "utc"),
    [
        ("epoch_s", "1507042806", "2017-10-03 15:00:06"),
        ("epoch_s", "1507042806.25", "2017-10-03 15:00:06.250000"),
        ("epoch_ms", "1507042806250", "2017-10-03 15:00:06.250000"),
        ("epoch_us", "1507042806000001", "2017-10-03 15:00:06.000001"),
        ("iso8601", "2017-10-03T15:00:06Z", "2017-10-03 15:00:06"),
        ("iso8601", "2017-10-03 17:00:06.5+02:00", "2017-10-03 15:00:06.500000"),
        ("iso8601", "2017-10-03T09:30:06-0530", "2017-10-03 15:00:06"),
        ("iso8601", "2017-10-03T17:00:06", "2017-10-03 15:00:06"),
        ("iso8601", "2017-10-03", "2017-10-02 22:00:00"),
        ("%d.%m.%Y %H:%M", "03.10.2017 17:00", "2017-10-03 15:00:00"),
        ("%Y-%m-%dT%H:%M:%S%z", "2017-10-03T17:00:06+0200", "2017-10-03 15:00:06"),
    ],
)
def test_every_time_format_gives_utc(form: str, text: str, utc: str) -> None:
    found = read_times(pl.Series([None, text]), form, "Europe/Berlin")
    assert [at and str(at) for at in found.utc] == [None, utc]
    assert not found.unread.any()
    assert not found.out_of_range.fill_null(value=False).any()


def test_each_column_has_its_own_time_format(mapped: Mapped, rows: Rows) -> None:
    columns = 'job_id = "id"\nsubmit_time = { column = "s", format = "%d.%m.%Y %H:%M" }\nend_time = "e"'
    (job,) = rows(mapped(simple(columns), {"a.csv": "id,s,e\n1,03.10.2017 15:00,1507042806\n"}), "jobs")
    assert (job["submit_time"], job["end_time"]) == ("2017-10-03 15:00:00", "2017-10-03 15:00:06")


def test_a_wall_clock_that_occurs_twice_is_unknown_unless_an_option_decides(
    mapped: Mapped, rows: Rows, found_checks: FoundChecks
) -> None:
    line = "j1,u,t,2017-11-05 01:30:00,,,1,OK\n"
    trace = mapped(BASIC, {"jobs.csv": HEADER + line})
    assert rows(trace, "jobs")[0]["submit_time"] == "2017-11-05 08:30:00"
    assert found_checks(trace) == {"ambiguous_local_time": (1, 1), "completed_without_end": (1, 1)}
    assert [(r["line"], r["column"], r["earliest"], r["latest"]) for r in rows(trace, "doubtful_times")] == [
        (2, "submit_time", "2017-11-05 08:30:00", "2017-11-05 09:30:00")
    ]
    trace = mapped(BASIC.replace("[source]", '[source]\ndoubled_hour = "null"'), {"jobs.csv": HEADER + line})
    assert "submit_time" not in rows(trace, "jobs")[0]
    trace = mapped(BASIC.replace("[source]", '[source]\ndoubled_hour = "second"'), {"jobs.csv": HEADER + line})
    assert rows(trace, "jobs")[0]["submit_time"] == "2017-11-05 09:30:00"


@pytest.mark.parametrize(
    ("choice", "utc"),
    [
        ("first", "2018-03-11 09:30:00"),
        ("second", "2018-03-11 10:30:00"),
        ("null", None),
        ("bounded", None),  # a quota has no other times that a reading could fit
    ],
)
def test_a_skipped_wall_clock_means_the_same_in_jobs_and_in_quotas(
    mapped: Mapped, rows: Rows, choice: str, utc: str | None
) -> None:
    quota = '\n[capacity]\nfiles = "quota.csv"\n[capacity.columns]\ntime = "t"\ngpu_count = "g"\n'
    mapping = BASIC.replace("[source]", f'[source]\ndoubled_hour = "{choice}"') + quota
    skipped = "2018-03-11 02:30:00"
    quotas = f"t,g\n{skipped},8\n2018-03-12 00:00:00,9\n"
    trace = mapped(mapping, {"jobs.csv": f"{HEADER}j1,u,t,{skipped},,,1,OK\n", "quota.csv": quotas})
    job = rows(trace, "jobs")[0]
    assert job.get("submit_time") == ("2018-03-11 09:30:00" if choice == "bounded" else utc)
    assert [row["time"] for row in rows(trace, "capacity")] == [*([] if utc is None else [utc]), "2018-03-12 07:00:00"]
    assert len(rows(trace, "rejects")) == (utc is None)


@pytest.mark.parametrize(
    ("form", "cell"),
    [
        ("epoch_s", "1e300"),
        ("epoch_ms", "-1"),
        ("epoch_us", "99999999999999999999"),
        ("iso8601", "0001-01-01"),
        ("iso8601", "9999-12-31T23:59:59+00:00"),
        ("%Y-%m-%d", "3000-01-01"),
    ],
)
def test_times_beyond_reason_are_out_of_range(form: str, cell: str) -> None:
    found = read_times(pl.Series([None, cell]), form, "Europe/Berlin")
    assert found.out_of_range.fill_null(value=False).to_list() == [False, True]
    assert not found.unread.any()


def test_a_time_beyond_reason_is_unknown_and_listed(mapped: Mapped, rows: Rows) -> None:
    trace = mapped(simple('job_id = "id"\nend_time = "t"'), {"a.csv": "id,t\n1,\n2,1e300\n"})
    assert rows(trace, "jobs") == [{"job_id": "1", "attempt_count": 0}, {"job_id": "2", "attempt_count": 0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "doubtful_times")] == [
        (3, "end_time", "cannot be a date of this log")
    ]


@pytest.mark.parametrize(("form", "cell"), [("epoch_s", "nan"), ("iso8601", "2017-13-01")])
def test_what_is_no_time_is_not_read(form: str, cell: str) -> None:
    assert read_times(pl.Series([None, cell]), form).unread.to_list() == [False, True]


def test_what_is_no_time_rejects_its_record(mapped: Mapped, rows: Rows) -> None:
    trace = mapped(simple("job_id = 'id'\nend_time = 't'"), {"a.csv": "id,t\n1,\n2,nan\n"})
    assert [(r["line"], r["column"]) for r in rows(trace, "rejects")] == [(3, "t")]


def test_durations_beyond_reason_reject_their_record(mapped: Mapped, rows: Rows) -> None:
    mapping = simple("job_id = 'id'\nstart_time = 's'\nrun_s = {column = 'd', unit = 'd'}")
    trace = mapped(mapping, {"a.csv": "id,s,d\n1,0,1e12\n2,0,-1\n5,0,1e9\n3,9000000000,50000\n4,0,1\n"})
    assert [(r["line"], r["reason"]) for r in rows(trace, "rejects")] == [
        (2, "is above 1e+15"),
        (3, "is below 0"),
        (4, "is above 9214646400"),
    ]
    assert [r.get("end_time") for r in rows(trace, "jobs")] == [None, "1970-01-02 00:00:00"]


def test_times_stand_above_stated_spans_which_are_checked(
    mapped: Mapped, rows: Rows, found_checks: FoundChecks
) -> None:
    mapping = BASIC.replace(
        'gpu_count = "gpus"', 'gpu_count = "gpus"\nqueue_s = "wait"\nrun_s = {column = "dur", unit = "min"}'
    )
    header, line = HEADER.replace("state", "state,wait,dur"), LINE.replace("OK", "OK,10,1")
    trace = mapped(mapping, {"jobs.csv": header + line})
    assert rows(trace, "jobs") == [JOB]
    assert found_checks(trace) == {}  # a minute and a half is one minute, cut
    trace = mapped(mapping, {"jobs.csv": header + LINE.replace("OK", "OK,12,9")})
    assert rows(trace, "jobs") == [JOB]
    assert found_checks(trace) == {"queue_disagrees": (1, 1), "duration_disagrees": (1, 1)}


def test_a_stated_span_disagrees_from_one_unit_on(mapped: Mapped, found_checks: FoundChecks) -> None:
    # By its times each job waits 10 s and runs 90 s; the wait is stated in seconds, the run in minutes.
    spans = {"in": ("10.99", "2.49"), "w1": ("11", "1.5"), "w2": ("9", "1.5"), "d1": ("10", "2.5"), "d2": ("10", "0.5")}
    mapping = BASIC.replace(
        'gpu_count = "gpus"', 'gpu_count = "gpus"\nqueue_s = "wait"\nrun_s = {column = "dur", unit = "min"}'
    )
    lines = [LINE.replace("j1", name).replace("OK", f"OK,{wait},{run}") for name, (wait, run) in spans.items()]
    trace = mapped(mapping, {"jobs.csv": HEADER.replace("state", "state,wait,dur") + "".join(lines)})
    assert found_checks(trace) == {"queue_disagrees": (2, 5), "duration_disagrees": (2, 5)}
    examples = [trace.manifest.checks[f"{name}_disagrees"].examples for name in ("queue", "duration")]
    assert [[text[:2] for text in found] for found in examples] == [["w1", "w2"], ["d1", "d2"]]


def test_an_end_comes_from_start_and_duration(mapped: Mapped, rows: Rows) -> None:
    trace = mapped(
        simple('job_id = "id"\nstart_time = "s"\nrun_s = "d"'), {"a.csv": "id,s,d\n1,100,50\n2,,50\n3,100,\n"}
    )
    assert rows(trace, "jobs") == [
        {
            "job_id": "1",
            "start_time": "1970-01-01 00:01:40",
            "end_time": "1970-01-01 00:02:30",
            "run_s": 50.0,
            "attempt_count": 1,
        },
        {"job_id": "2", "run_s": 50.0, "attempt_count": 1},
        {"job_id": "3", "start_time": "1970-01-01 00:01:40", "attempt_count": 1},
    ]
    assert [(r["job_id"], r.get("run_s")) for r in rows(trace, "attempts")] == [("1", 50.0), ("2", 50.0), ("3", None)]


def test_a_start_comes_from_submission_and_wait(mapped: Mapped, rows: Rows) -> None:
    mapping = simple('job_id = "id"\nsubmit_time = "s"\nqueue_s = "w"\nrun_s = "d"', 'time_base = "relative"')
    trace = mapped(mapping, {"a.csv": "id,s,w,d\n1,100,20,50\n2,100,20,0\n"})
    assert rows(trace, "jobs") == [
        {
            "job_id": "1",
            "submit_time": "1970-01-01 00:01:40",
            "start_time": "1970-01-01 00:02:00",
            "end_time": "1970-01-01 00:02:50",
            "queue_s": 20.0,
            "run_s": 50.0,
            "attempt_count": 1,
        },
        {"job_id": "2", "submit_time": "1970-01-01 00:01:40", "queue_s": 20.0, "run_s": 0.0, "attempt_count": 0},
    ]
    assert trace.manifest.time_base == "relative"


def test_a_time_of_eligibility_in_a_doubled_hour_has_bounds(mapped: Mapped, rows: Rows) -> None:
    mapping = BASIC.replace("[jobs.status]", 'eligible_time = "ready"\n[jobs.status]')
    # Clocks went back from 02:00 to 01:00 on that day.
    line = "j1,u1,t1,2017-11-05 00:10:00,2017-11-05 02:10:00,2017-11-05 03:00:00,4,OK,2017-11-05 01:30:00\n"
    trace = mapped(mapping, {"jobs.csv": HEADER.replace("\n", ",ready\n") + line})
    assert rows(trace, "jobs")[0]["eligible_time"] == "2017-11-05 08:30:00"
    (doubt,) = rows(trace, "doubtful_times")
    assert (doubt["column"], doubt["earliest"], doubt["latest"]) == (
        "eligible_time",
        "2017-11-05 08:30:00",
        "2017-11-05 09:30:00",
    )
