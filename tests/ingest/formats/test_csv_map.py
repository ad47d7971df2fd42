"""Jobs of mapped logs: their rows, and records that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.mapped_logs import ATTEMPT, BASIC, HEADER, JOB, LINE, simple
from tracekit.errors import TooManyRejectsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]


def test_a_job_gives_one_job_and_one_attempt_in_utc(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    trace = mapped(BASIC, {"jobs.csv": HEADER + LINE})
    assert rows(trace, "jobs") == [JOB]
    assert rows(trace, "attempts") == [ATTEMPT]
    assert found_checks(trace) == {}
    assert (trace.manifest.time_base, trace.timezone) == ("absolute", "America/Los_Angeles")


def test_records_that_cannot_be_used_are_rejected_with_their_place(mapped: Mapped, rows: Rows) -> None:
    bad = [
        "j2,u,t,yesterday,,,1,OK",
        "j3,u,t,,,,many,OK",
        "j1,u,t,,,,1,OK",
        ",u,t,,,,1,OK",
        "j5,u,t,,,,-1,OK",
        "j6,u,t",
        "j8,u,t,,,,inf,OK",
    ]
    good = "".join(LINE.replace("j1", f"k{i}") for i in range(8))
    trace = mapped(BASIC, {"jobs.csv": HEADER + LINE + "\n".join(bad) + "\n" + good})
    assert sorted((r["line"], r.get("column"), r["reason"], r["raw"]) for r in rows(trace, "rejects")) == [
        (3, "created", "is not a time like %Y-%m-%d %H:%M:%S", bad[0]),
        (5, "job_id", "repeats the key of an earlier record", bad[2]),
        (6, "id", "is missing", bad[3]),
        (8, None, "expected 8 fields, found 3", bad[5]),
    ]
    (account,) = trace.manifest.files
    assert (account.records, account.kept, account.rejected) == (16, 12, 4)
    # What cannot be read of any other column is unknown, and no limit (inf) is not counted.
    assert [r["job_id"] for r in rows(trace, "jobs") if "gpu_count" not in r] == ["j3", "j5", "j8"]
    check = trace.manifest.checks["unreadable_gpus"]
    assert (check.count, check.examples) == (2, ["many: is not a number", "-1: is below 0"])


def test_missing_words_are_unknown_and_unlisted_states_are_counted(
    mapped: Mapped, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = mapped(BASIC, {"jobs.csv": HEADER + "j1,None,,None, ,,,WHAT\n"})
    assert rows(trace, "jobs") == [
        {"job_id": "j1", "cluster": "a", "status": "unknown", "source_status": "WHAT", "attempt_count": 0}
    ]
    assert rows(trace, "attempts") == []
    assert found_checks(trace) == {"unknown_status_word": (1, 1)}


def test_the_end_of_a_running_job_is_not_used(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    trace = mapped(BASIC, {"jobs.csv": HEADER + LINE.replace("OK", "RUN")})
    changed = {"status": "running", "source_status": "RUN"}
    assert rows(trace, "jobs") == [{k: v for k, v in JOB.items() if k not in ("end_time", "run_s")} | changed]
    assert found_checks(trace) == {"end_of_unfinished_job": (1, 1)}


def test_a_cluster_column_stands_before_the_job(mapped: Mapped, rows: Rows) -> None:
    trace = mapped(simple("job_id = 'id'\ncluster = 'c'"), {"a.csv": "id,c\n1,x\n1,y\n"})
    assert [(r["job_id"], r["cluster"]) for r in rows(trace, "jobs")] == [("x/1", "x"), ("y/1", "y")]


def test_a_job_has_account_partition_qos_and_the_time_it_was_eligible_from(
    mapped: Mapped, rows: Rows, found_checks: FoundChecks
) -> None:
    columns = 'account = "acc"\npartition = { value = "gpu" }\nqos = "qos"\neligible_time = "ready"\n'
    mapping = BASIC.replace("[jobs.status]", columns + "[jobs.status]")
    header = HEADER.replace("\n", ",acc,qos,ready\n")
    times = ("2017-10-03 08:00:05", "", "2017-10-03 07:59:59", "2017-10-03 08:00:11", "1970-01-01 00:00:00")
    lines = [LINE.replace("j1", f"j{k}").replace("\n", f",a,q,{at}\n") for k, at in enumerate(times)]
    trace = mapped(mapping, {"jobs.csv": header + "".join(lines)})
    more = {"account": "a", "partition": "gpu", "qos": "q"}
    first = {"eligible_time": "2017-10-03 15:00:05"}
    assert rows(trace, "jobs") == [JOB | more | {"job_id": f"j{k}"} | (first if k == 0 else {}) for k in range(5)]
    assert found_checks(trace) == {"eligible_out_of_order": (2, 3), "impossible_dates": (1, 19)}
    assert [(r["line"], r["column"], r["value"]) for r in rows(trace, "doubtful_times")] == [
        (6, "eligible_time", "1970-01-01 08:00:00"),
        (4, "eligible_time", "2017-10-03 14:59:59"),
        (5, "eligible_time", "2017-10-03 15:00:11"),
    ]


def test_a_log_in_which_no_job_started_has_no_placements(mapped: Mapped, rows: Rows) -> None:
    mapping = simple("job_id = 'id'\nstart_time = 's'") + "[jobs.nodes]\ncolumn = 'n'"
    trace = mapped(mapping, {"a.csv": "id,s,n\n1,,a\n", "b.csv": "id,s,n\n2,,\n"})
    assert trace.tables == ("jobs",)


def test_a_log_of_which_nothing_is_usable_is_refused(mapped: Mapped) -> None:
    with pytest.raises(TooManyRejectsError, match=r"contains no usable record \(1 unusable\)"):
        mapped(BASIC, {"jobs.csv": HEADER + "x\n"})
    with pytest.raises(TooManyRejectsError, match=r"line 2, column created: is not a time like"):
        mapped(BASIC, {"jobs.csv": HEADER + LINE.replace("2017", "x")})
