"""Write the synthetic PBS logs: three days of accounting files of a small cluster, with planted faults.

The cluster, its users and its load are invented. Times are seconds since 1970; the clock is at UTC-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_pbs"]

FOLDER = "pbs"
FIRST = 1709528400
"""2024-03-04 00:00:00 of the cluster's clock [s]."""
CLOCK_S = -5 * 3600
HOUR = 3600
DAY = 24 * HOUR
JOBS = 40
SERVER = "hpc"


def write_pbs(folder: Path, seed: int) -> list[Quirk]:
    """Write the files of three days and return what was planted."""
    draw = Draw(seed, FOLDER)
    lines: list[tuple[int, str]] = []
    for number in range(JOBS):
        lines += _job(draw, number)
    day: dict[str, list[str]] = {name: [] for name in ("20240304", "20240305", "20240306")}
    for moment, text in sorted(lines, key=lambda line: line[0]):
        when = stamp(moment + CLOCK_S)
        name = when[:10].replace("-", "")
        day[name if name in day else "20240306"].append(f"{when[5:7]}/{when[8:10]}/{when[:4]} {when[11:]};{text}")
    quirks = _planted(day)
    for name, rows in day.items():
        write_rows(folder / FOLDER / name, rows)
    return quirks


def _job(draw: Draw, number: int) -> list[tuple[int, str]]:
    job = f"{1000 + number}.{SERVER}"
    submit = FIRST + number * 5400 + draw.between(0, 3000)
    start, run = submit + draw.between(5, 4000), draw.between(60, 9 * HOUR)
    nodes, gpus = draw.pick(((1, 1), (1, 2), (1, 4), (2, 4))), 0
    gpus = nodes[0] * nodes[1]
    names = [f"gpu{(number + i) % 6 + 1:02}" for i in range(nodes[0])]
    code = draw.weighted(((0, 70), (1, 12), (-29, 8), (271, 6), (-27, 4)))
    hosts = "+".join(f"{name}/0*8" for name in names)
    vnodes = "+".join(f"({name}:ncpus=8:ngpus={nodes[1]}:mem=67108864kb)" for name in names)
    user, group = f"user{number % 5}", f"group{number % 2}"
    head = f'user={user} group={group} account="lab {number % 3}" project=_pbs_project_default jobname=job{number}'
    times = f"ctime={submit} qtime={submit} etime={submit}"
    asked = (
        f"Resource_List.mem={64 * nodes[0]}gb Resource_List.ncpus={8 * nodes[0]} Resource_List.ngpus={gpus} "
        f"Resource_List.nodect={nodes[0]} Resource_List.select={nodes[0]}:ncpus=8:ngpus={nodes[1]}:mem=64gb "
        f"Resource_List.walltime=12:00:00"
    )
    ran = f"{times} start={{start}} exec_host={hosts} exec_vnode={vnodes} {asked}"
    found = [(submit, f"Q;{job};{head} queue=gpu {times} {asked}")]
    if number == 7:  # evicted once, then run to its end
        found += [
            (start, f"S;{job};{head} queue=gpu {ran.format(start=start)}"),
            (start + 600, f"R;{job};{head} queue=gpu {ran.format(start=start)}"),
        ]
        start += 1200
    found.append((start, f"S;{job};{head} queue=gpu {ran.format(start=start)}"))
    if number == JOBS - 1:  # still runs when the log ends
        return found
    end = start + run
    if code == 271:
        found.append((end - 2, f"D;{job};requestor={user}@login"))
    used = f"resources_used.cput={run // 3600:02}:00:00 resources_used.mem={4 + number}194304kb"
    found.append(
        (end, f"E;{job};{head} queue=gpu {ran.format(start=start)} session=1 end={end} Exit_status={code} {used}")
    )
    return found


def _planted(day: dict[str, list[str]]) -> list[Quirk]:
    """Add records of every oddity; their clock fits the day, their place in the file does not matter."""
    first, second = day["20240304"], day["20240305"]
    t = FIRST + 10 * HOUR
    clock = "03/04/2024 10:00:00"
    times = f"ctime={t} qtime={t} etime={t}"
    sweep = f"user=user2 jobname=sweep queue=gpu {times}"
    given = [
        f"start={t + 60 * i} exec_host=gpu06/{i} exec_vnode=(gpu06:ncpus=1:ngpus=1) Resource_List.ngpus=1"
        for i in (1, 2)
    ]
    devices = "exec_gpus=old1-gpu/0+old1-gpu/1+old2-gpu/0"
    torque = f"user=user3 jobname=torque queue=batch {times} start={t} exec_host=old1/0+old1/1+old2/0+old2/1 {devices}"
    again = f"904.{SERVER};user=user3 jobname=again queue=batch ctime={t} etime={t}"
    odd = f"{SERVER};user=user4 ctime={t} start={t}"
    first += [
        f"{clock};Q;900.{SERVER};queue=gpu",
        f"03/04/2024 10:05:00;D;900.{SERVER};requestor=user1@login",
        f"{clock};Q;901.{SERVER};queue=gpu",
        f"03/04/2024 10:10:00;A;901.{SERVER};",
        f"{clock};L;license;floating license hour:3 day:3 month:7 max:10",
        f"{clock};Q;902[].{SERVER};user=user2 group=group0 jobname=sweep queue=gpu {times}",
        f"03/04/2024 10:01:00;S;902[1].{SERVER};{sweep} {given[0]}",
        f"03/04/2024 10:02:00;S;902[2].{SERVER};{sweep} {given[1]}",
        f"03/04/2024 11:01:00;E;902[1].{SERVER};{sweep} {given[0]} end={t + HOUR + 60} Exit_status=0",
        f"03/04/2024 11:02:00;E;902[2].{SERVER};{sweep} {given[1]} end={t + HOUR + 120} Exit_status=0",
        f"{clock};S;903.{SERVER};{torque} Resource_List.nodes=2:ppn=2:gpus=2",
        f"{clock};S;{again} start={t} exec_host=old3/0",
    ]
    second += [
        f"03/05/2024 10:00:00;E;903.{SERVER};{torque} Resource_List.nodes=2:ppn=2:gpus=2 end={t + DAY} Exit_status=0",
        f"03/04/2024 10:20:00;S;{again} start={t + 1200} exec_host=old3/0",
        f"03/04/2024 11:00:00;E;{again} start={t + 1200} exec_host=old3/0 end={t + HOUR} Exit_status=1",
        f"{clock};E;990.{odd} exec_host=gpu01/0 end=soon Exit_status=0",
        f"{clock};E;991.{odd} exec_host=gpu01/0 end={t + 9} Exit_status=well",
        f"13/45/2024 10:00:00;Q;992.{SERVER};queue=gpu",
        f"{clock};S;993.{SERVER};user=user4 queue=gpu ctime={t}",
        f"{clock};Q;scheduler;queue=gpu",
        "03/05/2024 10:00 cut off",
        f"{clock};S;994.{odd} Resource_List.select=999999999:ngpus=1",
    ]
    a, b = f"{FOLDER}/20240304", f"{FOLDER}/20240305"
    return [
        Quirk(a, f"900.{SERVER}", "deleted-in-queue", "D without a start; Q names the queue only, as Torque's"),
        Quirk(a, f"901.{SERVER}", "aborted", "A without a start"),
        Quirk(a, "license", "other-record", "a record of licences"),
        Quirk(a, f"902[].{SERVER}", "array", "a whole array, then two of its members"),
        Quirk(a, f"903.{SERVER}", "torque-gpus", "exec_gpus lists three GPUs of four; it ends on the next day"),
        Quirk(a, f"904.{SERVER}", "start-without-end", "a second start without a word of the first one's end"),
        Quirk(a, f"1007.{SERVER}", "requeued", "R, then another start"),
        Quirk(b, f"990.{SERVER}", "unreadable-time", "end is the word soon", usable=False),
        Quirk(b, f"991.{SERVER}", "unreadable-status", "Exit_status is the word well", usable=False),
        Quirk(b, f"992.{SERVER}", "unreadable-date", "month 13", usable=False),
        Quirk(b, f"993.{SERVER}", "no-start", "S without start", usable=False),
        Quirk(b, "scheduler", "unreadable-id", "not a job id", usable=False),
        Quirk(b, "03/05/2024 10:00 cut off", "cut", "a line that was cut", usable=False),
        Quirk(b, f"994.{SERVER}", "absurd-request", "999,999,999 nodes", usable=False),
    ]
