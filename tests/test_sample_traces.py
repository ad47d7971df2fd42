"""The sample traces are reproducible, small, and hold every oddity that their list names."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "sample_traces"
PHILLY = FOLDER / "philly"
PAI = FOLDER / "alibaba-pai"
OPENB = FOLDER / "alibaba-openb"
HELIOS_COLUMNS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
HOUR = timedelta(hours=1)


class Quirk(NamedTuple):
    file: str
    record: str
    kind: str
    usable: str
    what: str


class Hold(NamedTuple):
    """One GPU held by one attempt, wall-clock times."""

    gpu: tuple[str, str]
    start: str
    end: str
    jobid: str


def written_files(folder: Path) -> dict[str, bytes]:
    """Return what make.py writes; a real Slurm printed slurm-dumps, which has tests of its own."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"})
    paths = (path for path in paths if folder / "slurm-dumps" not in path.parents)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def quirks(file: str, kind: str | None = None) -> list[Quirk]:
    rows = [Quirk(*row) for row in read_csv(FOLDER / "quirks.csv")[1:]]
    return [row for row in rows if row.file == file and kind in {None, row.kind}]


def records_of(file: str, kind: str) -> list[str]:
    return [row.record for row in quirks(file, kind)]


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="ascii") as handle:
        return list(csv.reader(handle))


def read_archive(name: str) -> list[list[str]]:
    with tarfile.open(PAI / f"{name}.tar.gz") as archive:
        assert archive.getnames() == [f"{name}.csv"]
        member = archive.extractfile(f"{name}.csv")
        assert member is not None
        return list(csv.reader(io.StringIO(member.read().decode("ascii"))))


def philly_log() -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads((PHILLY / "cluster_job_log").read_text(encoding="ascii"))
    return jobs


def by_jobid(kind: str) -> list[dict[str, Any]]:
    wanted = records_of("philly/cluster_job_log", kind)
    return [next(job for job in philly_log() if job.get("jobid") == jobid) for jobid in wanted]


def gpu_count(attempt: dict[str, Any]) -> int:
    return sum(len(entry["gpus"]) for entry in attempt["detail"])


def complete(attempt: dict[str, Any]) -> bool:
    start, end = attempt["start_time"], attempt["end_time"]
    return bool(start and end and "None" not in {start, end} and start < end)


def utc(wall: str, zone: str | None = None) -> datetime:
    """Read Pacific time; without zone the doubled hour counts as its first pass."""
    time = datetime.fromisoformat(wall)
    summer = zone == "PDT" if zone else time < datetime(2017, 11, 5, 2)
    return time + (7 if summer else 8) * HOUR


def test_a_second_run_gives_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-B", str(FOLDER / "make.py"), "-o", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    again, here = written_files(tmp_path), written_files(FOLDER)
    assert sorted(again) == sorted(here)
    assert [name for name in sorted(again) if again[name] != here[name]] == []


def test_another_seed_gives_other_traces(tmp_path: Path) -> None:
    command = [sys.executable, "-B", str(FOLDER / "make.py"), "--seed", "7", "-o", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    again, here = written_files(tmp_path), written_files(FOLDER)
    same = {name for name in again if again[name] == here[name]}
    # Machines do not depend on the seed, nor do the small logs of LSF, which are written out by hand.
    expected = {"philly/cluster_machine_list", "lsf/bjobs.json", "lsf/history.txt"}
    assert {n for n in same if "node" not in n and "gpu_number" not in n and ".header" not in n} == expected


def test_the_folder_is_small() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    real = [path for path in files if FOLDER / "slurm-dumps" in path.parents]
    assert sum(path.stat().st_size for path in real) < 300_000
    # Every format that is read has a sample, some in several forms.
    assert sum(path.stat().st_size for path in files) < 4_000_000


def test_the_readme_lists_every_planted_record() -> None:
    text = (FOLDER / "README.md").read_text(encoding="ascii")
    for row in read_csv(FOLDER / "quirks.csv")[1:]:
        assert f"| `{row[0]}` | {row[1]} | {row[2]} |" in text


def test_philly_log_holds_its_missing_values() -> None:
    running = by_jobid("running-at-snapshot")
    assert [(job["status"], job["attempts"][-1]["end_time"]) for job in running] == [
        ("Pass", None),
        ("Killed", ""),
        ("Failed", "None"),
    ]
    assert [job["attempts"][0]["start_time"] for job in by_jobid("no-start")] == [None, ""]
    assert [job["attempts"] for job in by_jobid("no-attempts")] == [[]]
    (middle,) = by_jobid("no-end-in-the-middle")
    assert middle["attempts"][0]["end_time"] is None
    assert middle["attempts"][-1]["end_time"]
    assert [job["user"] for job in by_jobid("user-null")] == [None]


def test_philly_log_holds_its_oddities() -> None:
    assert [gpu_count(attempt) for attempt in by_jobid("size-change")[0]["attempts"]] == [2, 4]
    assert [(job["status"], len(job["attempts"])) for job in by_jobid("retries")] == [("Failed", 4)]
    assert by_jobid("doubled-hour")[0]["attempts"][0]["start_time"].startswith("2017-11-05 01:")
    assert by_jobid("before-telemetry")[0]["submitted_time"] < "2017-11-04 18:00:00"
    assert by_jobid("after-telemetry")[0]["submitted_time"] > "2017-11-05 09:00:00"
    turned = [
        job["jobid"]
        for job in philly_log()
        for attempt in job["attempts"]
        if "jobid" in job and (attempt["end_time"] or "None") < (attempt["start_time"] or "")
    ]
    assert turned == records_of("philly/cluster_job_log", "end-before-start")


def test_philly_log_holds_three_unusable_objects() -> None:
    jobs = philly_log()
    assert "jobid" not in jobs[200]
    assert sum("jobid" not in job for job in jobs) == 1
    assert [job["jobid"] for job in jobs if job["submitted_time"].startswith("2017-10-33")] == records_of(
        "philly/cluster_job_log", "unreadable-time"
    )
    ids = Counter(job.get("jobid") for job in jobs)
    assert [jobid for jobid, count in ids.items() if count > 1] == records_of(
        "philly/cluster_job_log", "repeated-jobid"
    )


def test_philly_gpus_are_exclusive_but_for_the_planted_pair() -> None:
    unusable = {row.record for row in quirks("philly/cluster_job_log") if row.usable == "no"}
    holds = sorted(
        Hold((entry["ip"], gpu), attempt["start_time"], attempt["end_time"], job["jobid"])
        for job in philly_log()
        if job.get("jobid", "object 201 of the array") not in unusable
        for attempt in job["attempts"]
        if complete(attempt)
        for entry in attempt["detail"]
        for gpu in entry["gpus"]
    )
    clashes = set()
    for place, first in enumerate(holds):
        for second in holds[place + 1 :]:
            if second.gpu != first.gpu or second.start >= first.end:
                break
            clashes.add(frozenset((first.jobid, second.jobid)))
    assert clashes == {frozenset(records_of("philly/cluster_job_log", "gpu-held-twice"))}


def test_philly_gpu_rows_hold_their_oddities() -> None:
    rows = read_csv(PHILLY / "cluster_gpu_util")
    assert rows[0][:3] == ["time", "machineId", "gpu0_util"]
    assert Counter(len(row) for row in rows[1:] if row[0][-3:] in {"PDT", "PST"}) == {11: 7669, 10: 3, 4: 1, 14: 1}
    cells = {(row[0], row[1]): row[2:10] for row in rows[1:]}
    assert cells["2017-11-05 04:40:00 PST", "m14"][3] == "NA"
    assert cells["2017-11-05 01:20:00 PDT", "m102"] == ["NA"] * 4 + [""] * 4
    assert ("2017-11-04 23:09:00 PDT", "m8") not in cells
    assert {("2017-11-05 01:00:00 PDT", "m3"), ("2017-11-05 01:00:00 PST", "m3")} <= set(cells)
    assert Counter((row[0], row[1]) for row in rows if len(row) == 11)["2017-11-05 01:20:00 PST", "m21"] == 2
    assert sum("EST" in row[0] for row in rows) == sum("25:61" in row[0] for row in rows) == 1


def test_philly_host_rows_hold_their_oddities() -> None:
    cpu, mem = read_csv(PHILLY / "cluster_cpu_util"), read_csv(PHILLY / "cluster_mem_util")
    assert cpu[0] == ["time", "machine_id", "cpu_util"]
    assert mem[0] == ["time", "machine_id", "mem_total", "mem_free"]
    assert sum(row[2] == "NA" for row in cpu) == sum(row[2:] == ["NA", "NA"] for row in mem) == 10
    for rows in (cpu, mem):
        keys = {(row[0], row[1]) for row in rows}
        assert ("2017-11-04 23:05:00 PDT", "m8") not in keys
        assert ("2017-11-04 23:04:00 PDT", "m8") in keys
    assert [row[1] for row in cpu if "not-a-time" in row[0]] == ["m3"]
    assert [row[1] for row in mem if "EST" in row[0]] == ["m3"]
    assert [len(row) for row in mem if len(row) != 4] == [3]


def test_philly_machine_list_contradicts_its_use() -> None:
    text = (PHILLY / "cluster_machine_list").read_text(encoding="ascii")
    assert text.startswith("machineId, number of GPUs, single GPU mem\nm1,2, 12GB\n")
    listed = {row[0]: int(row[1]) for row in read_csv(PHILLY / "cluster_machine_list")[1:]}
    filled = {row[1]: 10 - row[:10].count("") - 2 for row in read_csv(PHILLY / "cluster_gpu_util")[1:] if len(row) > 9}
    used = {entry["ip"] for job in philly_log() for attempt in job["attempts"] for entry in attempt["detail"]}
    wide = {
        entry["ip"]
        for job in philly_log()
        for attempt in job["attempts"]
        for entry in attempt["detail"]
        if len(entry["gpus"]) == 8
    }
    assert len(listed) == 30
    assert used <= set(listed)
    assert {name for name in wide if listed[name] == 2} == {"m3", "m8", "m14", "m29", "m33"}
    assert {name for name in filled if listed[name] == 2 and filled[name] == 8} == {"m3", "m8", "m14", "m29"}
    assert {name for name in filled if listed[name] == 8 and filled[name] == 4} == {"m102", "m107"}
    assert used - set(filled) == {"m33", "m118", "m121", "m126"}


def utilization_by_layout() -> dict[tuple[int, int], list[float]]:
    """Return the GPU-minutes [percent] of complete attempts by (GPUs, servers)."""
    cells: dict[tuple[str, datetime], list[str]] = {}
    for row in read_csv(PHILLY / "cluster_gpu_util")[1:]:
        if row[0][-3:] in {"PDT", "PST"} and ":61:" not in row[0] and len(row) in {10, 11}:
            cells[row[1], utc(row[0][:-4], row[0][-3:])] = row[2:10]
    samples: dict[tuple[int, int], list[float]] = defaultdict(list)
    for attempt in (attempt for job in philly_log() for attempt in job["attempts"] if complete(attempt)):
        start, end = utc(attempt["start_time"]), utc(attempt["end_time"])
        first = max(start.replace(second=0), utc("2017-11-04 18:00:00"))
        minutes = int((min(end, utc("2017-11-05 09:00:00")) - first).total_seconds() // 60)
        for entry in attempt["detail"]:
            for minute in range(minutes):
                row = cells.get((entry["ip"], first + timedelta(minutes=minute)), [])
                found = [row[int(gpu[3:])] for gpu in entry["gpus"] if row]
                layout = gpu_count(attempt), len(attempt["detail"])
                samples[layout] += [float(cell) for cell in found if cell != "NA"]
    return samples


def test_philly_utilization_falls_with_spread() -> None:
    samples = utilization_by_layout()
    layouts = [(1, 1), (4, 1), (8, 1), (16, 2), (16, 4), (16, 8)]
    assert all(len(samples[layout]) > 1000 for layout in layouts)
    assert [mean(samples[layout]) for layout in layouts] == pytest.approx([52, 45, 50, 44, 41, 29], abs=3)
    assert mean(samples[8, 1]) > mean(samples[8, 2]) > mean(samples[8, 4])
    assert mean(samples[16, 2]) > mean(samples[16, 4]) > mean(samples[16, 8])


def test_philly_run_times_rise_with_size() -> None:
    runs: dict[str, list[float]] = defaultdict(list)
    for job in philly_log():
        attempts = job["attempts"]
        if attempts and all(complete(attempt) for attempt in attempts):
            size = gpu_count(attempts[0])
            name = "1" if size == 1 else "2-4" if size <= 4 else "5-8" if size <= 8 else ">8"
            run = utc(attempts[-1]["end_time"]) - utc(attempts[0]["start_time"])
            runs[name].append(run.total_seconds() / 60)
    assert median(runs["1"]) < median(runs["2-4"]) < median(runs["5-8"])
    assert median(runs[">8"]) > median(runs["1"])
    assert len(runs["1"]) > 500


def helios_rows(cluster: str) -> list[dict[str, str]]:
    """Return the rows of twelve fields."""
    rows = read_csv(FOLDER / "helios" / cluster / "cluster_log.csv")
    assert rows[0] == HELIOS_COLUMNS.split(",")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == 12]


def helios_job(cluster: str, kind: str) -> list[dict[str, str]]:
    wanted = [record.split()[1] for record in records_of(f"helios/{cluster}/cluster_log.csv", kind)]
    return [next(row for row in helios_rows(cluster) if row["job_id"] == number) for number in wanted]


def seconds_between(first: str, second: str) -> int:
    return int((datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds())


@pytest.mark.parametrize("cluster", ["Venus", "Earth"])
def test_helios_log_holds_its_oddities(cluster: str) -> None:
    rows = helios_rows(cluster)
    assert 0.45 < mean(row["gpu_num"] == "0" for row in rows) < 0.55
    assert [row["start_time"] for row in helios_job(cluster, "cancelled-before-start")] == ["", "None"]
    rare = helios_job(cluster, "rare-state")
    assert [row["state"] for row in rare] == ["SUSPENDED", "RUNNING", "SPECIAL_EXIT"]
    assert [bool(row["end_time"]) for row in rare] == [True, False, True]
    usual = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"}
    assert {row["state"] for row in rows} == usual | {row["state"] for row in rare}
    assert helios_job(cluster, "early-submission")[0]["submit_time"] < "2020-04-01"
    assert int(helios_job(cluster, "long-run")[0]["duration"]) > 14 * 86400
    burst = helios_job(cluster, "burst")[0]["submit_time"]
    assert sum(row["submit_time"] == burst for row in rows) >= 6
    first = next(place for place, (a, b) in enumerate(pairwise(rows)) if is_swap(a, b))
    assert [f"job_id {rows[first]['job_id']}"] == records_of(f"helios/{cluster}/cluster_log.csv", "inverted-ids")


def is_swap(row: dict[str, str], following: dict[str, str]) -> bool:
    return int(row["job_id"]) == int(following["job_id"]) + 1


@pytest.mark.parametrize("cluster", ["Venus", "Earth"])
def test_helios_columns_disagree_only_where_planted(cluster: str) -> None:
    differing = []
    for row in helios_rows(cluster):
        if (
            not row["end_time"]
            or row["start_time"] in {"", "None"}
            or int(row["gpu_num"]) < 0
            or "-31 12" in row["submit_time"]
        ):
            continue
        duration = seconds_between(row["start_time"], row["end_time"])
        queue = seconds_between(row["submit_time"], row["start_time"])
        if (duration, queue) != (int(row["duration"]), int(row["queue"])):
            differing.append(f"job_id {row['job_id']}")
    file = f"helios/{cluster}/cluster_log.csv"
    assert sorted(differing) == sorted(records_of(file, "duration-disagrees") + records_of(file, "queue-disagrees"))


@pytest.mark.parametrize("cluster", ["Venus", "Earth"])
def test_helios_log_holds_five_unusable_rows(cluster: str) -> None:
    file = f"helios/{cluster}/cluster_log.csv"
    rows = read_csv(FOLDER / file)
    assert sorted(len(row) for row in rows if len(row) != 12) == [8, 14]
    assert [row[3] for row in rows if row[3].startswith("-")] == ["-8"]
    assert sum(row[7] == "2020-04-31 12:00:00" for row in rows) == 1
    ids = Counter(row[0] for row in rows)
    assert [f"job_id {number}" for number, count in ids.items() if count > 1] == records_of(file, "repeated-id")
    assert sum(row.usable == "no" for row in quirks(file)) == 5


@pytest.mark.parametrize("cluster", ["Venus", "Earth"])
def test_helios_running_gpus_exceed_the_total_on_one_day(cluster: str) -> None:
    table = read_csv(FOLDER / "helios" / cluster / "cluster_gpu_number.csv")
    totals = {row[0]: int(row[-1]) for row in table[1:]}
    events = []
    for row in helios_rows(cluster):
        if row["end_time"] and row["start_time"] not in {"", "None"} and int(row["gpu_num"]) > 0:
            events += [(row["start_time"], int(row["gpu_num"])), (row["end_time"], -int(row["gpu_num"]))]
    held, over = 0, set()
    for time, change in sorted(events):
        held += change
        if held > totals.get(time[:10], held):
            over.add(time[:10])
    assert over == {"2020-04-22"}


def test_helios_quotas_change_and_one_total_is_wrong() -> None:
    names: list[set[str]] = []
    for cluster in ("Venus", "Earth"):
        table = read_csv(FOLDER / "helios" / cluster / "cluster_gpu_number.csv")
        numbers = [[int(cell) for cell in row[1:]] for row in table[1:]]
        names.append(set(table[0][1:-1]))
        assert (len(table), table[0][0], table[0][-1]) == (29, "date", "total")
        assert all(cell % 8 == 0 for row in numbers for cell in row)
        wrong = [table[day + 1][0] for day, row in enumerate(numbers) if sum(row[:-1]) != row[-1]]
        assert wrong == ["2020-04-06"]
        columns = list(zip(*numbers, strict=True))[:-1]
        assert any(column[0] == 0 and column[-1] > 0 for column in columns)
    assert names[0] & names[1] == {"vcSha"}
    ids = [{row["job_id"] for row in helios_rows(cluster)} for cluster in ("Venus", "Earth")]
    assert {"1", "2", "1500"} <= ids[0] & ids[1]


def pai_tables() -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Return the job, task and instance rows of full length."""
    jobs, tasks = read_csv(PAI / "pai_job_table.csv"), read_csv(PAI / "pai_task_table.csv")
    instances = read_archive("pai_instance_table")
    assert [len(row) for row in jobs if len(row) != 6] == [3]
    assert [len(row) for row in tasks if len(row) != 10] == [4]
    assert [len(row) for row in instances if len(row) != 9] == [3]
    return (
        [row for row in jobs if len(row) == 6],
        [row for row in tasks if len(row) == 10],
        [row for row in instances if len(row) == 9],
    )


def pai_record(kind: str, table: str) -> str:
    extension = "tar.gz" if table == "instance" else "csv"
    return records_of(f"alibaba-pai/pai_{table}_table.{extension}", kind)[0]


def test_pai_tables_follow_the_null_pattern() -> None:
    jobs, tasks, instances = pai_tables()
    ends = {
        status: [bool(row[5]) for row in jobs if row[3] == status]
        for status in ("Waiting", "Running", "Failed", "Terminated")
    }
    assert not any(ends["Waiting"] + ends["Running"])
    assert 0 < mean(ends["Failed"]) < 0.3
    assert all(ends["Terminated"])
    assert all(not row[4] for row in jobs if row[3] == "Waiting")
    assert {row[8] for row in tasks} == {"", "25.0", "50.0", "100.0", "200.0", "half"}
    assert {row[9] for row in tasks} == {"T4", "P100", "V100", "V100M32", "MISC", ""}
    assert max(float(row[2]) for row in tasks) == 32
    assert {row[5] for row in instances} == {"Terminated", "Failed", "Running", "Interrupted"}


def test_pai_tables_hold_their_oddities() -> None:
    jobs, tasks, instances = pai_tables()
    machines = read_archive("pai_machine_spec")
    assert [row[6] for row in instances if row[0] == pai_record("start-zero", "instance")] == ["0.0"]
    assert [row[4] for row in tasks if row[0] == pai_record("start-zero", "task")] == ["0.0"]
    assert [row[9] for row in tasks if row[0] == pai_record("mixed-types", "task")] == ["V100", "T4"]
    lost = pai_record("lost-instances", "instance")
    planned = sum(float(row[2]) for row in tasks if row[0] == lost)
    assert sum(row[0] == lost for row in instances) == planned - 2
    tries = [row for row in instances if row[0] == pai_record("retried-worker", "instance")]
    assert len(tries) == 3
    assert len({row[3] for row in tries}) == 1
    assert max(tries, key=lambda row: (row[5], float(row[6]), float(row[7])))[5] == "Terminated"
    assert len({row[8] for row in instances} - {row[0] for row in machines}) == 2
    assert {row[0] for row in tasks} - {row[0] for row in jobs} == {pai_record("task-without-job", "task")}
    orphans = {(row[0], row[1]) for row in instances} - {(row[0], row[1]) for row in tasks}
    assert [" ".join(pair) for pair in orphans] == [pai_record("instance-without-task", "instance")]
    assert [row[0] for row in machines if row[1] == "CPU"][:1] == records_of(
        "alibaba-pai/pai_machine_spec.tar.gz", "cpu-machine"
    )


def test_pai_jobs_start_with_their_first_task_and_keep_office_hours() -> None:
    jobs, tasks, _ = pai_tables()
    starts: dict[str, list[float]] = defaultdict(list)
    for row in tasks:
        if row[4] not in {"", "0.0"} and row[1] != "extra":
            starts[row[0]].append(float(row[4]))
    zero = pai_record("start-zero", "task")
    assert [row[0] for row in jobs if row[4] and row[0] != zero and min(starts[row[0]]) != float(row[4])] == []
    hours = Counter(int(float(row[4]) + 8 * 3600) // 3600 % 24 for row in jobs if row[4])
    assert sum(hours[hour] for hour in range(10, 18)) > 2 * sum(hours[hour] for hour in range(8))


def test_pai_tables_hold_five_unusable_rows() -> None:
    jobs, tasks, _ = pai_tables()
    ids = Counter(row[0] for row in jobs)
    assert [name for name, count in ids.items() if count > 1] == [pai_record("repeated-job", "job")]
    assert [f"{row[0]} {row[1]}" for row in tasks if row[8] == "half"] == [pai_record("unreadable-number", "task")]
    files = [f"alibaba-pai/pai_{name}" for name in ("job_table.csv", "task_table.csv", "instance_table.tar.gz")]
    assert [sum(row.usable == "no" for row in quirks(file)) for file in files] == [2, 2, 1]


def test_pai_headers_name_the_columns() -> None:
    _, tasks, instances = pai_tables()
    assert len(read_csv(PAI / "pai_task_table.header")[0]) == len(tasks[0])
    assert len(read_csv(PAI / "pai_instance_table.header")[0]) == len(instances[0])
    assert (PAI / "pai_job_table.header").read_text(encoding="ascii") == (
        "job_name,inst_id,user,status,start_time,end_time\n"
    )
    assert read_csv(PAI / "pai_machine_spec.header") == [["machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"]]


PAI_USE = {"pai_sensor_table": 16, "pai_group_tag_table": 5, "pai_machine_metric": 12}
"""Columns of the tables of measured use and tags."""


def pai_use(name: str) -> list[list[str]]:
    """Return the rows of full length of such a table."""
    return [row for row in read_csv(PAI / f"{name}.csv") if len(row) == PAI_USE[name]]


def pai_planted(table: str, kind: str) -> str:
    (found,) = records_of(f"alibaba-pai/{table}.csv", kind)
    return found


def test_pai_measured_use_holds_its_oddities() -> None:
    jobs, _, instances = pai_tables()
    rows = pai_use("pai_sensor_table")
    by_worker = {row[2]: row for row in rows}
    machines = {row[3]: row[8] for row in instances}
    assert by_worker[pai_planted("pai_sensor_table", "no-gpu-values")][5] == ""
    assert all((row[5] == "") == (row[7] == "") == (row[10] == "") for row in rows if row[7] != "high")
    assert {row[0] for row in rows} - {row[0] for row in jobs} == {pai_planted("pai_sensor_table", "use-without-job")}
    strays = {row[2] for row in rows if row[0] in {job[0] for job in jobs}} - set(machines)
    assert strays == {pai_planted("pai_sensor_table", "use-without-instance")}
    moved = [row[2] for row in rows if machines.get(row[2], row[4]) != row[4]]
    assert moved == [pai_planted("pai_sensor_table", "other-machine")]
    twice = [worker for worker, count in Counter(row[2] for row in rows if row[7] != "high").items() if count > 1]
    assert twice == [pai_planted("pai_sensor_table", "repeated-worker")]


def test_pai_group_tags_hold_their_oddities() -> None:
    jobs, tasks, _ = pai_tables()
    rows = pai_use("pai_group_tag_table")
    first = {row[0]: row for row in reversed(rows)}
    users = {row[1]: row[2] for row in reversed(jobs)}
    types: dict[str, set[str]] = defaultdict(set)
    for row in tasks:
        types[row[0]] |= {row[9]} if row[8] else set()
    assert first[pai_planted("pai_group_tag_table", "model-tag")][4] == "bert"
    assert {row[0] for row in rows} - set(users) == {pai_planted("pai_group_tag_table", "tag-without-job"), ""}
    assert [row[0] for row in rows if users.get(row[0], row[1]) != row[1]] == [
        pai_planted("pai_group_tag_table", "other-user")
    ]
    other = [row[1] for row in jobs if row[1] in first and first[row[1]][2] not in types[row[0]] | {""}]
    assert other == [pai_planted("pai_group_tag_table", "other-type")]
    assert [alias for alias, count in Counter(row[0] for row in rows).items() if count > 1] == [
        pai_planted("pai_group_tag_table", "repeated-tag")
    ]
    assert [row[0] for row in rows].index("") == 40


def test_pai_machine_use_holds_its_oddities() -> None:
    rows = pai_use("pai_machine_metric")
    machines = {row[0] for row in read_archive("pai_machine_spec")}
    assert [row[0] for row in rows if row[2] == "0"] == [pai_planted("pai_machine_metric", "start-zero")]
    assert [row[0] for row in rows if not row[11]] == [pai_planted("pai_machine_metric", "no-value")]
    assert [row[0] for row in rows if int(row[3]) < int(row[2])] == [
        pai_planted("pai_machine_metric", "end-before-start")
    ]
    numbers = [row for row in rows if row[11] not in {"", "n/a"}]
    assert [row[0] for row in numbers if float(row[11]) > 100] == [pai_planted("pai_machine_metric", "above-100")]
    unknown = pai_planted("pai_machine_metric", "unknown-machine")
    assert unknown in [row[0] for row in rows if row[1] not in machines]
    again = next(row for row in rows if row[0] == pai_planted("pai_machine_metric", "repeated-interval"))
    assert sum(row[1:3] == again[1:3] for row in rows) == 2
    parts = [row for row in numbers if row[0] != again[0]]
    assert all(sum(map(float, row[4:7])) == pytest.approx(float(row[11]), abs=1e-6) for row in parts)


@pytest.mark.parametrize(("name", "width"), PAI_USE.items())
def test_pai_tables_of_use_and_tags_hold_two_unusable_rows_each(name: str, width: int) -> None:
    rows = read_csv(PAI / f"{name}.csv")
    assert sum(len(row) != width for row in rows) == 1
    assert sum(row.usable == "no" for row in quirks(f"alibaba-pai/{name}.csv")) == 2
    assert [len(row) for row in read_csv(PAI / f"{name}.header")] == [width]


def openb_pods(name: str) -> list[dict[str, str]]:
    """Return the usable pods of one list."""
    rows = read_csv(OPENB / f"openb_pod_list_{name}.csv")
    pods = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == len(rows[0])]
    return [pod for pod in pods if pod["name"] and pod["gpu_milli"].isdigit()]


def test_openb_default_list_holds_its_oddities() -> None:
    file = "alibaba-openb/openb_pod_list_default.csv"
    pods = openb_pods("default")
    blank = [pod["name"] for pod in pods if not pod["scheduled_time"] and pod["pod_phase"] != "Pending"]
    assert blank == records_of(file, "never-scheduled")
    assert all(not pod["scheduled_time"] for pod in pods if pod["pod_phase"] == "Pending")
    assert [pod["name"] for pod in pods if pod["deletion_time"] == "12902960"] == records_of(file, "alive-at-end")
    assert all(pod["deletion_time"] for pod in pods)
    assert [pod["name"] for pod in pods if pod["memory_mib"] == "0"] == records_of(file, "no-memory")
    assert {pod["qos"] for pod in pods} == {"LS", "BE", "Burstable", "Guaranteed"}
    assert {pod["pod_phase"] for pod in pods} == {"Running", "Failed", "Pending", "Succeeded"}
    assert {pod["gpu_spec"] for pod in pods} == {""}
    assert {pod["num_gpu"] for pod in pods} == {"0", "1", "2", "4", "8"}
    assert all((pod["num_gpu"] == "0") == (pod["gpu_milli"] == "0") for pod in pods)
    assert all(pod["gpu_milli"] == "1000" for pod in pods if pod["num_gpu"] in {"2", "4", "8"})


def test_openb_other_lists_hold_their_oddities() -> None:
    specs = {pod["name"]: pod["gpu_spec"] for pod in openb_pods("gpuspec33")}
    file = "alibaba-openb/openb_pod_list_gpuspec33.csv"
    assert specs[records_of(file, "repeated-model")[0]] == "V100M16|V100M32|V100M32"
    assert specs[records_of(file, "model-list")[0]] == "V100M16|V100M32"
    assert len(openb_pods("multigpu20")) == 600
    assert list(openb_pods("multigpu20")[0]) == ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]


def test_openb_lists_hold_their_unusable_rows() -> None:
    for name, lengths in (("default", [6]), ("gpuspec33", [6]), ("multigpu20", [4])):
        rows = read_csv(OPENB / f"openb_pod_list_{name}.csv")
        assert [len(row) for row in rows if len(row) != len(rows[0])] == lengths
        unusable = sum(row.usable == "no" for row in quirks(f"alibaba-openb/openb_pod_list_{name}.csv"))
        assert len(rows) - 1 - len(openb_pods(name)) == unusable
    text = (OPENB / "openb_pod_list_default.csv").read_text(encoding="ascii").splitlines()
    assert text[241].startswith(",")


def test_openb_nodes_without_gpu_have_no_model() -> None:
    nodes = read_csv(OPENB / "openb_node_list_all_node.csv")[1:]
    assert {row[4] for row in nodes} == {"", "A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32"}
    assert all((row[3] == "0") == (row[4] == "") for row in nodes)
    assert all(row[4] for row in read_csv(OPENB / "openb_node_list_gpu_node.csv")[1:])
