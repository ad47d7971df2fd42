"""Write the synthetic LSF logs: lsb.acct, a history and a listing of jobs of a small cluster, with planted faults.

The cluster, its users and its load are invented. Times are seconds since 1970; the printed clock is UTC.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_lsf"]

FOLDER = "lsf"
ACCT, HISTORY, LISTING = f"{FOLDER}/lsb.acct", f"{FOLDER}/history.txt", f"{FOLDER}/bjobs.json"
FIRST = 1709542800
"""2024-03-04 09:00:00 [s]."""
JOBS = 40
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
USAGE = "12.500000 1.500000 966960 0 -1 0 0 3026323 0 0 0 0 -1 0 0 0 1252 649 -1"


def write_lsf(folder: Path, seed: int) -> list[Quirk]:
    """Write the three files and return what was planted."""
    draw = Draw(seed, FOLDER)
    write_rows(folder / ACCT, [*(_finished(draw, number) for number in range(JOBS)), *_odd()])
    write_rows(folder / HISTORY, [*_history()])
    write_rows(folder / LISTING, [json.dumps(_listing(), indent=2)])
    return [
        Quirk(ACCT, "JOB_RESIZE", "other-record", "a record of another type"),
        Quirk(ACCT, "job 5000", "never-started", "startTime is 0"),
        Quirk(ACCT, "job 5001", "short-record", "ends before the run limit, as older versions"),
        Quirk(ACCT, "job 5002", "quotes", "quotes in the name and the command"),
        Quirk(ACCT, "job 5003[7]", "array", "the seventh member of an array"),
        Quirk(ACCT, "job 5004", "per-task-gpus", "one GPU a task"),
        Quirk(ACCT, "job 5005", "asked-hosts", "asked for two hosts"),
        Quirk(ACCT, "few fields", "few-fields", "four fields", usable=False),
        Quirk(ACCT, "job 5007", "unreadable-number", "submitTime is the word then", usable=False),
        Quirk(ACCT, "job 5008", "open-quote", "a quote is not closed", usable=False),
        Quirk(HISTORY, "Job <6001>", "requeued", "two runs, the first one requeued"),
        Quirk(HISTORY, "Job <6002>", "suspended", "suspended for 300 s, ended by its run limit"),
        Quirk(HISTORY, "Job <6003>", "cut-lines", "lines cut at the width of the terminal"),
        Quirk(HISTORY, "Job <6004>", "no-year", "times without a year", usable=False),
        Quirk(HISTORY, "Job <6005>", "no-submission", "no event Submitted", usable=False),
        Quirk(LISTING, "JOBID 7001", "running", "FINISH_TIME is an estimate"),
        Quirk(LISTING, "JOBID 7002", "pending", "with its reason"),
        Quirk(LISTING, "JOBID none", "unreadable-id", "not a job id", usable=False),
    ]


def _record(
    job: int, submit: int, start: int, end: int, hosts: list[str], request: str, *, asked: str = "0",
    status: str = "64", name: str = "train", command: str = "run", index: int = 0, info: int = 0, limit: int = 43200,
    tasks: int = 4,
) -> str:  # fmt: skip
    listed = " ".join([str(len(hosts)), *(f'"{host}"' for host in hosts)])
    return (
        f'"JOB_FINISH" "10.1" {end} {job} 1001 33554434 {tasks} {submit} 0 0 {start} "user{job % 5}" "gpu" "" "" "" '
        f'"login" "/work" "" "" "" "{submit}.{job}" {asked} {listed} {status} 60.0 "{name}" "{command}" {USAGE} "" '
        f'"project{job % 2}" 0 {tasks} "" "" {index} {(job % 9 + 1) * 1048576} 0 '
        f'"" "" "" "" 0 "" {info} "" -1 "" "" "" "" -1 "" "" 5136 "" {start} "" "" '
        f'1 1032 "0" 0 {limit} 4194304 1024 "{request}" "" -1 "" -1 0 "" 0 0'
    )


def _finished(draw: Draw, number: int) -> str:
    submit = FIRST + number * 4000 + draw.between(0, 2000)
    start = submit + draw.between(2, 3600)
    end = start + draw.between(30, 30_000)
    hosts = [f"4*h{(number + i) % 6 + 1}" for i in range(draw.pick((1, 1, 1, 2)))]
    status, info = draw.weighted((((64, 0), 70), ((32, 0), 14), ((32, 5), 8), ((32, 14), 5), ((32, 16), 3)))
    gpus = draw.pick((1, 2, 4))
    request = f"select[(ngpus>0) && (type == local)] order[r15s:pg] rusage[ngpus_physical={gpus}.00/host:gmodel=A100] "
    return _record(
        4000 + number, submit, start, end, hosts, request, status=str(status), info=info, tasks=4 * len(hosts)
    )


def _odd() -> list[str]:
    t = FIRST
    plain = "select[type == local] order[r15s:pg] "
    one = _record(5004, t, t + 60, t + 900, ["2*h1", "h2"], "rusage[ngpus_physical=1.00/task] ", tasks=3)
    short = _record(5001, t, t + 60, t + 600, ["h1"], plain)
    return [
        f'"JOB_RESIZE" "10.1" {t} 4001 0 {t} 1001 "user1" 1 {t} 0 0 0 0 0',
        _record(5000, t, 0, t + 30, [], "", status="32", info=14),
        short[: short.index(' "" -1 "" "" "" ""')],
        _record(5002, t, t + 60, t + 700, ["h1"], plain, name='the ""best"" one', command='echo ""a b"" ; true'),
        _record(5003, t, t + 60, t + 800, ["h1"], plain, index=7),
        one,
        _record(5005, t, t + 60, t + 900, ["h2"], plain, asked='2 "h2" "h3"'),
        f'"JOB_FINISH" "10.1" {t} 5006',
        _record(5007, t, t + 60, t + 900, ["h1"], plain).replace(f" {t} 0 0 ", " then 0 0 ", 1),
        _record(5008, t, t + 60, t + 900, ["h1"], plain).replace('"run"', '"run', 1),
    ]


def _clock(seconds: int, *, year: bool = True) -> str:
    when = stamp(seconds)
    return f"Mon {MONTHS[int(when[5:7]) - 1]} {int(when[8:10]):2} {when[11:]}" + (f" {when[:4]}" if year else "")


def _history() -> list[str]:
    t = FIRST
    where = "<h1> <h1>, Allocated 2 Slot(s) on Host(s) <h1> <h1>, "
    where += "Effective RES_REQ <rusage[ngpus_physical=2.00/host] >;"
    one = "Dispatched 1 Task(s) on Host(s) <h2>, Allocated 1 Slot(s) on Host(s) <h2>, "
    one += "Effective RES_REQ <select[ngpus>0] >;"
    return [
        "Job <6001>, Job Name <again>, User <user1>, Project <project1>, Command <run>",
        f"{_clock(t)}: Submitted from host <login>, to Queue <gpu>, CWD </work>;",
        f"{_clock(t + 60)}: Dispatched 2 Task(s) on Host(s) {where}",
        f"{_clock(t + 360)}: Pending: Job has been requeued;",
        f"{_clock(t + 660)}: Dispatched 2 Task(s) on Host(s) {where}",
        f"{_clock(t + 960)}: Done successfully. The CPU time used is 3.0 seconds;",
        "",
        "-" * 78,
        "Job <6002>, User <user2>, Project <project0>, Queue <gpu>, Command <run>",
        f"{_clock(t)}: Submitted from host <login>, CWD </work>;",
        "",
        " RUNLIMIT",
        " 10.0 min of h2",
        f"{_clock(t + 60)}: {one}",
        f"{_clock(t + 960)}: Exited by signal 12. The CPU time used is 1.5 seconds;",
        f"{_clock(t + 961)}: Completed <exit>; TERM_RUNLIMIT: job killed after reaching LSF run time limit;",
        "",
        "GPU_ALLOCATION:",
        " HOST             TASK GPU_ID  MODEL        MTOTAL  FACTOR MRSV    SOCKET NVLINK/XGMI",
        " h2               0    1       A100         80G     0.0    0M      0      -",
        "",
        "Summary of time in seconds spent in various states by the job",
        "  PEND     PSUSP    RUN      USUSP    SSUSP    UNKWN    TOTAL",
        "  60       0        600      200      100      0        960",
        "",
        "-" * 78,
        "Job <6003>, User <user3>, Project <project0>, Status <DONE>, Queue <gpu>, Com",
        "                     mand <a long one>",
        f"{_clock(t)}: Submitted from host <login>, CWD </work/a/",
        "                     b>;",
        f"{_clock(t + 30)}: Dispatched 1 Task(s) on Host(s) <h3>, Allocated 1 S",
        "                     lot(s) on Host(s) <h3>, Effective RES_REQ <select[type == local] >;",
        f"{_clock(t + 330)}: Completed <done>.",
        "-" * 78,
        "Job <6004>, User <user3>, Project <project0>, Queue <gpu>, Command <run>",
        f"{_clock(t, year=False)}: Submitted from host <login>, CWD </work>;",
        "-" * 78,
        "Job <6005>, User <user3>, Project <project0>, Queue <gpu>, Command <run>",
        f"{_clock(t)}: Completed <done>.",
    ]


def _listing() -> dict[str, object]:
    running = {
        "JOBID": "7001", "JOBINDEX": "0", "USER": "user1", "QUEUE": "gpu", "JOB_NAME": "now", "PROJ_NAME": "project1",
        "STAT": "RUN", "ALLOC_SLOT": "h4:h4:h5", "SUBMIT_TIME": "Mar  6 18:10:00 2024",
        "START_TIME": "Mar  6 18:10:55 2024", "FINISH_TIME": "Mar  7 22:27:01 2024 L",
        "EFFECTIVE_RESREQ": "rusage[ngpus_physical=2.00/host] ", "GPU_NUM": "3", "GPU_ALLOC": "h4:0,1,0;h5:2",
    }  # fmt: skip
    waiting = {
        "JOBID": "7002", "JOBINDEX": "3", "USER": "user2", "QUEUE": "gpu", "STAT": "PEND", "GPU_NUM": "8",
        "SUBMIT_TIME": "Mar  6 18:12:00 2024", "START_TIME": "", "FINISH_TIME": "",
        "PEND_REASON": "Job requirements for reserving resource (ngpus_physical) not satisfied: 6 hosts;",
    }  # fmt: skip
    return {"COMMAND": "bjobs", "JOBS": 3, "RECORDS": [running, waiting, {"JOBID": "none", "STAT": "PEND"}]}
