"""LSF: records of lsb.acct, blocks of bhist -l and listings of bjobs, and the rows that they must give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import TooManyRejectsError, UsageError
from tracekit.ingest.formats import _lsf_cells as text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

HEAD = '"JOB_FINISH" "9.11" 1389683139 404717 22025 33882739 32 1389642318 0 0 1389642771 '
HEAD += '"ann" "gpu" "" "" "" "login" "/w" "" "" "" "f" '
HOSTS = '0 2 "16*h1" "16*h2" '
MIDDLE = (
    '64 60.0 "my ""best"" job" "run ""a b""" 10.5 2.0 966960 0 -1 0 0 3026323 0 0 0 0 -1 0 0 0 1 6 -1 "" "proj" 0 32 '
    '"" "" 0 2097152 0 "" "" "" "" 0 "" {info} "" -1 "" "" "" "" -1 "" "" 6160 "" 1389642771 "" "" 1 1032 "0" '
    "1 h1 1306 0 1287486 242 "
)
TAIL = '43200 0 8688640 "select[ngpus>0] rusage[ngpus_physical=2.00/host:gmodel=A100] " "" -1 ""\n'
BLOCK = """Job <3>, User <ann>, Project <proj>, Status <EXIT>, Queue <gpu>, Inter
                     active mode, Command <bash>
Sun Apr 12 17:23:38 2026: Submitted from host <login>, CWD <$HOME>;
Sun Apr 12 17:23:39 2026: Dispatched 3 Task(s) on Host(s) <n2.example.com> <n2.
                     example.com> <n1.exam
                     ple.com>, Allocated 3 Slot(s) on Host(s) <n2.example.com>, Effective RES_REQ <
                     rusage[ngpus_physical=2.00/host] >;
Sun Apr 12 17:24:10 2026: Exited with exit code 140. The CPU time used is 0.5 seconds;
Sun Apr 12 17:24:14 2026: Completed <exit>; TERM_RUNLIMIT: job killed.

GPU_ALLOCATION:
 HOST             TASK GPU_ID  MODEL
 n1.exam          0    0       A100
                  1    1       A100
 n2.exam          0    3       A100
"""


def acct(info: int = 0, hosts: str = HOSTS, job: int = 404717) -> str:
    return HEAD.replace("404717", str(job)) + hosts + MIDDLE.format(info=info) + TAIL


def test_a_finished_job_of_lsb_acct(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest({"anything.txt": acct()})
    assert rows(trace, "jobs") == [
        {
            "job_id": "404717",
            "cluster": "lsf",
            "vc": "gpu",
            "user": "ann",
            "name": 'my "best" job',
            "status": "completed",
            "source_status": "DONE",
            "submit_time": "2014-01-13 19:45:18",
            "start_time": "2014-01-13 19:52:51",
            "end_time": "2014-01-14 07:05:39",
            "queue_s": 453.0,
            "run_s": 40368.0,
            "gpu_count": 4.0,
            "cpu_count": 32.0,
            "gpu_model": "A100",
            "node_count": 2,
            "attempt_count": 1,
            "time_limit_s": 43200.0,
            "account": "proj",
            "partition": "gpu",
        }
    ]
    assert [(r["node_id"], r["gpu_count"]) for r in rows(trace, "placements")] == [("h1", 2.0), ("h2", 2.0)]
    assert rows(trace, "job_usage") == [{"job_id": "404717", "cpu_s": 12.5, "memory_gib": 2.0}]
    assert (trace.manifest.format, found_checks(trace)) == ("lsf", {})


def test_why_lsf_ended_a_job_is_its_status(ingest: Ingest, rows: Rows) -> None:
    ends = {
        0: ("failed", "EXIT"), 5: ("timeout", "TERM_RUNLIMIT"), 14: ("cancelled", "TERM_OWNER"),
        16: ("out_of_memory", "TERM_MEMLIMIT"), 1: ("preempted", "TERM_PREEMPT"), 25: ("failed", "TERM_CWD_NOTEXIST"),
        99: ("failed", "EXIT"),
    }  # fmt: skip
    lines = (acct(info, job=info + 1).replace(" 64 60.0", " 32 60.0") for info in ends)
    jobs = rows(ingest({"lsb.acct": "".join(lines)}), "jobs")
    assert {int(job["job_id"]) - 1: (job["status"], job["source_status"]) for job in jobs} == ends


def test_asked_hosts_come_before_the_hosts_of_the_run(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"lsb.acct": acct(hosts='2 "h8" "h9" 3 "h1" "h1" "h2" ')})
    assert [r["node_id"] for r in rows(trace, "placements")] == ["h1", "h2"]
    assert rows(trace, "jobs")[0]["cpu_count"] == 3.0


def test_what_hosts_used_is_passed_over_in_either_layout(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    limit_and_gpus = {
        "0": (43200.0, 4.0),
        "1 h1 1306 0 50 2": (43200.0, 4.0),  # five fields an entry
        "1 h1 1306 0 50 2 0": (43200.0, 4.0),  # six: no pairs follow
        "2 h1 1306 0 50 2 0 h2 1291 0 50 3 0": (43200.0, 4.0),
        "1 h1 1306 0 50 2 1 pid 17": (43200.0, 4.0),  # a pair of key and value
        "1 h1 1306 0 50 2 0 7 7": (None, None),  # another layout: its numbers are those of other fields
        "-1": (None, None),
        "99 h1 1 1 1 1": (None, None),
    }
    lines = (acct(job=n).replace("1 h1 1306 0 1287486 242", used) for n, used in enumerate(limit_and_gpus, 1))
    trace = ingest({"lsb.acct": "".join(lines)})
    found = [(job.get("time_limit_s"), job.get("gpu_count")) for job in rows(trace, "jobs")]
    assert dict(zip(limit_and_gpus, found, strict=True)) == limit_and_gpus
    assert found_checks(trace) == {"short_records": (3, 8)}


def test_a_record_of_an_older_version_is_used_without_its_end(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    whole = acct()
    trace = ingest({"lsb.acct": whole[: whole.index(' "" "" "" "" 0 ""')] + "\n"})
    job = rows(trace, "jobs")[0]
    assert (job["status"], "time_limit_s" in job, "gpu_count" in job) == ("completed", False, False)
    assert found_checks(trace) == {"short_records": (1, 1)}


def test_a_printed_history_gives_runs_and_the_gpus_of_each_host(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"print": "\n" + BLOCK})
    job = rows(trace, "jobs")[0]
    assert (job["status"], job["source_status"], job["run_s"], job["gpu_count"]) == (
        "timeout",
        "TERM_RUNLIMIT",
        31.0,
        3.0,
    )
    assert [(r["node_id"], r["gpu_index"], r["gpu_count"]) for r in rows(trace, "placements")] == [
        ("n1.example.com", [0, 1], 2.0),
        ("n2.example.com", [3], 1.0),
    ]


def test_a_requeue_in_a_history_ends_a_run(ingest: Ingest, rows: Rows) -> None:
    lines = BLOCK.splitlines()[:7]
    again = [
        "Sun Apr 12 17:30:00 2026: Pending: Job has been requeued;",
        "\n".join(lines[3:7]).replace("17:23:39", "17:40:00"),
    ]
    trace = ingest({"print": "\n".join([*lines, *again, "Sun Apr 12 17:50:00 2026: Done successfully.", ""])})
    assert [(r["attempt"], r["run_s"], r["status"]) for r in rows(trace, "attempts")] == [
        (0, 381.0, "unknown"),
        (1, 600.0, "completed"),
    ]
    assert trace.capabilities["retries"].available


def test_times_without_a_year_need_one(ingest: Ingest, rows: Rows) -> None:
    text = BLOCK.replace(" 2026:", ":")
    with pytest.raises(TooManyRejectsError, match="without a year"):
        ingest({"print": text})
    assert rows(ingest({"print": text}, options={"year": "2026"}), "jobs")[0]["submit_time"] == "2026-04-12 17:23:38"
    with pytest.raises(UsageError, match="'soon' is not a year"):
        ingest({"print": text}, options={"year": "soon"})


def test_a_listing_of_bjobs_has_jobs_that_wait_and_run(ingest: Ingest, rows: Rows) -> None:
    running = {"JOBID": "321", "JOBINDEX": "0", "USER": "ann", "QUEUE": "gpu", "STAT": "RUN", "ALLOC_SLOT": "a:a:b",
               "SUBMIT_TIME": "Apr 12 18:10:00 2026", "START_TIME": "Apr 12 18:10:55 2026",
               "FINISH_TIME": "Apr 12 22:27:01 2026 L", "GPU_NUM": "3", "GPU_ALLOC": "a:0,1,0;b:2"}  # fmt: skip
    waiting = {
        "JOBID": "5",
        "JOBINDEX": "7",
        "STAT": "PEND",
        "SUBMIT_TIME": "Apr 12 18:10:00 2026",
        "PEND_REASON": "full",
    }
    trace = ingest({"x.json": json.dumps({"COMMAND": "bjobs", "JOBS": 2, "RECORDS": [running, waiting]}, indent=1)})
    jobs = {r["job_id"]: r for r in rows(trace, "jobs")}
    assert jobs["321"]["status"] == "running"
    assert "end_time" not in jobs["321"]
    assert (jobs["5[7]"]["status"], jobs["5[7]"]["wait_reason"]) == ("pending", "full")
    assert [(r["node_id"], r["gpu_index"]) for r in rows(trace, "placements")] == [("a", [0, 1]), ("b", [2])]
    assert rows(trace, "rejects") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rusage[ngpus_physical=2.00/host]", (2.0, "host")),
        ("rusage[ngpus_physical=1:mem=3]", (1.0, "host")),
        ("select[x] rusage[mem=4,ngpus_excl_p=3/task]", (3.0, "task")),
        ("rusage[ngpus_physical=2 || mem=1]", (2.0, "host")),
        ("select[ngpus>0] order[-ut]", (0.0, "host")),
    ],
)
def test_gpus_of_a_resource_requirement(text: str, expected: tuple[float, str]) -> None:
    found = text_of.gpu_request(text)
    assert found is not None
    assert (found.number, found.per) == expected


@pytest.mark.parametrize("text", ["", "2*{rusage[ngpus_physical=1]}+1*{select[x]}"])
def test_a_requirement_that_does_not_tell_is_unknown(text: str) -> None:
    assert text_of.gpu_request(text) is None


UNREADABLE: list[tuple[str, str, set[str], str]] = [
    ('"16*h1" "16*h2"', '"16*h1" "a b"', {"gpu_count", "node_count"}, "unreadable_exechosts"),
    (" 33882739 32 ", " 33882739 many ", set(), "unreadable_numprocessors"),  # the slots of its hosts tell as well
    (" 64 60.0 ", " done 60.0 ", {"status"}, "unreadable_jstatus"),
    (" 10.5 2.0 ", " x 2.0 ", {"cpu_s"}, "unreadable_ru_utime"),
    (" 10.5 2.0 ", " 10.5 -62135596801 ", {"cpu_s"}, "unreadable_ru_stime"),
    (" 2097152 0 ", " lots 0 ", {"memory_gib"}, "unreadable_maxrmem"),
]


def test_a_field_that_cannot_be_read_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    assert all(acct().count(old) == 1 for old, *_ in UNREADABLE)
    damaged = (acct(job=n).replace(old, new) for n, (old, new, *_) in enumerate(UNREADABLE, 1))
    trace = ingest({"lsb.acct": acct(job=0) + "".join(damaged)})
    assert rows(trace, "rejects") == []
    found = found_checks(trace)
    assert {check: found[check] for *_, check in UNREADABLE} == {check: (1, None) for *_, check in UNREADABLE}
    for table in ("jobs", "job_usage"):
        whole, *others = rows(trace, table)
        for (_, new, lost, check), row in zip(UNREADABLE, others, strict=True):
            same = {k: v for k, v in whole.items() if k not in lost | {"job_id", "source_status", "cpu_count"}}
            assert same.items() <= row.items(), (check, new)
            assert {row.get(name) for name in lost} <= {None, "unknown"}, (check, new)


def test_a_field_of_a_listing_that_cannot_be_read_costs_itself(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    job: dict[str, Any] = {
        "JOBID": "1", "STAT": "RUN", "USER": "ann", "QUEUE": "gpu", "SUBMIT_TIME": "Apr 12 17:23:38 2026",
        "START_TIME": "Apr 12 17:24:00 2026", "GPU_NUM": "2", "EXEC_HOST": "h1",
    }  # fmt: skip
    damaged: list[dict[str, Any]] = [{"GPU_NUM": "two"}, {"USER": 5}, {"EXEC_HOST": "a b"}, {"START_TIME": "noon"}]
    records = [job | {"JOBID": str(n)} | change for n, change in enumerate([{}, *damaged], 1)]
    document = {"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}
    trace = ingest({"bjobs.json": json.dumps(document)}, max_reject_share=0.9)
    found = [(r["job_id"], r.get("gpu_count"), r.get("user"), r.get("node_count")) for r in rows(trace, "jobs")]
    assert found == [("1", 2.0, "ann", 1), ("2", None, "ann", 1), ("3", 2.0, None, 1), ("4", 2.0, "ann", None)]
    assert [r["column"] for r in rows(trace, "rejects")] == ["START_TIME"]
    assert found_checks(trace) == {
        "unreadable_gpu_num": (1, None),
        "unreadable_user": (1, None),
        "unreadable_exec_host": (1, None),
    }


def test_a_bad_record_is_rejected_with_its_reason(ingest: Ingest, rows: Rows) -> None:
    bad = [
        ('"JOB_FINISH" "10.1" 1389683139 1', "userId", "is missing or has an unknown layout"),
        (acct().replace(" 1389642318 ", " then ", 1).strip(), "submitTime", "is not a number"),
        (acct(hosts="0 99 ").strip(), "execHosts", "is missing or has an unknown layout"),
    ]
    trace = ingest({"lsb.acct": acct() + "".join(f"{line}\n" for line, *_ in bad)}, max_reject_share=0.9)
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (number, column, reason) for number, (_, column, reason) in enumerate(bad, 2)
    ]


@pytest.mark.parametrize(
    ("option", "gpus"),
    [
        (
            "",
            {
                "rusage[ngpus_physical=2.00/host:npu=3.00/host] ": None,
                "rusage[mem=64.00:npu=1.00] ": None,
                "rusage[mem=64.00:scratch=1.00] ": 0.0,
            },
        ),
        (
            "npu",
            {
                "rusage[ngpus_physical=2.00/host:npu=3.00/host] ": 10.0,
                "rusage[mem=64.00:npu=1.00/task] ": 32.0,
                # One amount is for each host, the other for each task.
                "rusage[ngpus_physical=2.00/host:npu=1.00/task] ": None,
            },
        ),
        ("npu=0.5", {"rusage[ngpus_physical=2.00/host:npu=3.00/host] ": 7.0}),
        ("npu=0", {"rusage[ngpus_physical=2.00/host:npu=3.00/host] ": 4.0}),
    ],
)
def test_what_counts_as_gpus_is_an_option(
    option: str, gpus: dict[str, float | None], ingest: Ingest, rows: Rows
) -> None:
    # Two hosts of 16 slots; the jobs share them (the bit 0x40 of their options is not set).
    asked = "select[ngpus>0] rusage[ngpus_physical=2.00/host:gmodel=A100] "
    lines = (acct(job=n).replace(" 33882739 ", " 33882675 ").replace(asked, text) for n, text in enumerate(gpus))
    trace = ingest({"lsb.acct": "".join(lines)}, options={"gpu_resource": option})
    found = [job.get("gpu_count") for job in rows(trace, "jobs")]
    assert dict(zip(gpus, found, strict=True)) == gpus
    checks = {name: check.count for name, check in trace.manifest.checks.items() if "devices" in name and check.count}
    assert checks == ({} if option else {"unknown_devices_of_jobs": 2})


def test_hosts_for_one_job_alone_have_gpus_that_only_the_requirement_tells(ingest: Ingest, rows: Rows) -> None:
    alone, shared = (
        acct(job=n).replace("select[ngpus>0] rusage[ngpus_physical=2.00/host:gmodel=A100] ", "rusage[mem=64.00] ")
        for n in (1, 2)
    )
    trace = ingest({"lsb.acct": alone + shared.replace(" 33882739 ", " 33882675 ")})
    assert [job.get("gpu_count") for job in rows(trace, "jobs")] == [None, 0.0]
    check = trace.manifest.checks["whole_nodes_without_gpus"]
    assert (check.count, check.of, check.examples) == (1, 2, ["1"])
    printed = BLOCK.partition("\nGPU_ALLOCATION")[0].replace(
        "<\n                     rusage[ngpus_physical=2.00/host] >", "<>"
    )
    printed = printed.replace("CWD <$HOME>;", "CWD <$HOME>, Exclusive Execution;").replace(
        "RES_REQ <>", "RES_REQ <rusage[mem=1.0]>"
    )
    asked = printed.replace("Job <3>", "Job <4>").replace("rusage[mem=1.0]", "rusage[ngpus_physical=1.00/host]")
    found = {job["job_id"]: job.get("gpu_count") for job in rows(ingest({"h.txt": f"{printed}\n{asked}\n"}), "jobs")}
    assert found == {"3": None, "4": 2.0}
