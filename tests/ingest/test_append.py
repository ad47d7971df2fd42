"""Appending newer exports to a Trace: a history in which every job occurs once, with its latest record."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command import run
from tests.effort import examples
from tests.older_traces import as_version_1
from tracekit.errors import OutputError, SourceError, TooManyRejectsError, TraceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.sink import Sink
from tracekit.progress import Progress
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.reviewed import Golden

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    WriteSource = Callable[[Mapping[str, str | bytes]], Path]

HEADER = "Cluster|JobID|Submit|Start|End|State|AllocTRES|NodeList|User"


def line(job: str, submit: str, start: str, end: str, state: str, *, node: str = "n1", cluster: str = "c") -> str:
    """Return a row of sacct; times are day and hour of March 2024, like '04T08', '' when unknown."""
    times = (f"2024-03-{t}:00:00" if t else "Unknown" for t in (submit, start, end))
    return "|".join([cluster, job, *times, state, "gres/gpu=2", node if start else "None assigned", "u1"])


def dump(*lines: str) -> str:
    return "\n".join([HEADER, *lines]) + "\n"


DAY1 = dump(
    line("7", "04T08", "04T09", "04T10", "COMPLETED"),
    line("8", "04T08", "04T10", "", "RUNNING"),
    line("9", "04T12", "", "", "PENDING"),
)
DAY2 = dump(
    line("8", "04T08", "04T10", "05T10", "FAILED"),
    line("9", "04T12", "05T10", "05T11", "NODE_FAIL"),
    line("9", "05T11", "05T12", "", "RUNNING", node="n2"),
    line("10", "05T13", "05T14", "05T15", "COMPLETED", node="n2"),
)
# Of job 9 the day lists the last run only; 7 is used again for another job.
DAY3 = dump(
    line("9", "05T11", "05T12", "06T12", "COMPLETED", node="n2"),
    line("7", "06T08", "06T09", "06T10", "TIMEOUT"),
)


@pytest.fixture
def append(tmp_path: Path, write_source: WriteSource) -> Callable[..., Trace]:
    """Return a function that appends raw files given as text to one Trace, and checks that it stays valid."""

    def run(files: Mapping[str, str | bytes], **arguments: Any) -> Trace:
        trace = ingest_logs(write_source(files), tmp_path / "history" / "trace", append=True, **arguments)
        assert trace.validate() == []
        return trace

    return run


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Return the Trace after each of the three days, which no test may change."""
    place = tmp_path_factory.mktemp("days")
    found: list[Trace] = []
    for number, text in enumerate((DAY1, DAY2, DAY3), 1):
        (place / f"sacct-{number}.txt").write_text(text)
        if found:
            shutil.copytree(found[-1].path, place / str(number))
        found.append(ingest_logs(place / f"sacct-{number}.txt", place / str(number), append=True))
        assert found[-1].validate() == []
    return found


@pytest.fixture
def after(history: list[Trace], tmp_path: Path) -> Callable[[int], Trace]:
    """Return a function that puts the Trace after so many of the three days where `append` goes on."""

    def copy(days: int) -> Trace:
        return Trace.open(shutil.copytree(history[days - 1].path, tmp_path / "history" / "trace"))

    return copy


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tables(trace: Trace) -> dict[str, list[dict[str, Any]]]:
    return {table: trace.scan(table).collect().to_dicts() for table in trace.tables}


def lives(trace: Trace, rows: Rows) -> list[tuple[Any, ...]]:
    keys = ("job_id", "status", "submit_time", "start_time", "end_time", "attempt_count")
    return [tuple(str(job[k])[-11:-6] if "time" in k and k in job else job.get(k) for k in keys)
            for job in rows(trace, "jobs")]  # fmt: skip


def test_three_days_give_one_history(history: list[Trace], rows: Rows) -> None:
    first, _, trace = history
    assert lives(first, rows) == [
        ("c/7", "completed", "04 08", "04 09", "04 10", 1),
        ("c/8", "running", "04 08", "04 10", None, 1),
        ("c/9", "pending", "04 12", None, None, 0),
    ]
    assert first.manifest.additions == []
    assert lives(trace, rows) == [
        ("c/7", "completed", "04 08", "04 09", "04 10", 1),
        ("c/8", "failed", "04 08", "04 10", "05 10", 1),
        ("c/9", "completed", "04 12", "05 10", "06 12", 2),
        ("c/10", "completed", "05 13", "05 14", "05 15", 1),
        ("c/7#2", "timeout", "06 08", "06 09", "06 10", 1),
    ]
    hour = 3600.0
    nine = [a for a in rows(trace, "attempts") if a["job_id"] == "c/9"]
    assert [(a["attempt"], a["wait_s"], a["run_s"], a["status"]) for a in nine] == [
        (0, 22 * hour, hour, "node_fail"),
        (1, hour, 24 * hour, "completed"),
    ]
    assert [(p["job_id"], p["attempt"], p["node_id"]) for p in rows(trace, "placements")] == [
        ("c/7", 0, "n1"),
        ("c/8", 0, "n1"),
        ("c/9", 0, "n1"),
        ("c/9", 1, "n2"),
        ("c/10", 0, "n2"),
        ("c/7#2", 0, "n1"),
    ]
    # On n2 job 10 ran beside job 9; on n1 none ran beside another.
    assert [(n["node_id"], n["gpu_count"]) for n in rows(trace, "nodes")] == [("n1", 2), ("n2", 4)]


def test_waiting_tasks_that_a_later_export_shows_otherwise_are_no_longer_there(append: Callable[..., Trace]) -> None:
    """Task 1 gets the number 21 when it starts, and another cluster of the federation starts job 67108901."""
    head = HEADER.replace("JobID", "JobID|JobIDRaw")

    def numbered(raw: str, text: str) -> str:
        cluster, job, rest = text.split("|", 2)
        return f"{cluster}|{job}|{raw}|{rest}"

    union = ("67108901", "04T08")
    first = [
        numbered("20", line("20_[1-3]", "04T08", "", "", "PENDING")),
        numbered("30", line("30_[1-2]", "04T08", "", "", "PENDING")),
        *(numbered(union[0], line(*union, "", "", "PENDING", cluster=name)) for name in ("c", "d")),
    ]
    second = [
        numbered("20", line("20_[2-3]", "04T08", "", "", "PENDING")),
        numbered("21", line("20_1", "04T08", "05T08", "", "RUNNING")),
        numbered(union[0], line(*union, "05T08", "05T09", "COMPLETED", cluster="c")),
        numbered(union[0], line(*union, "", "05T08", "REVOKED", cluster="d")),
    ]
    before = append({"sacct-1.txt": "\n".join([head, *first, ""])})
    waits = {"c/20_2", "c/20_3", "c/30_1", "c/30_2"}
    assert set(before.scan("jobs").collect()["job_id"]) == {*waits, "c/20_1", "c/67108901", "d/67108901"}
    trace = append({"sacct-2.txt": "\n".join([head, *second, ""])})
    assert set(trace.scan("jobs").collect()["job_id"]) == {*waits, "c/21", "c/67108901"}


def test_the_manifest_accounts_for_every_export_and_the_same_name_again_changes_no_byte(
    append: Callable[..., Trace],
) -> None:
    bad = line("11", "06T08", "06T09", "06T10", "COMPLETED").replace("2024-03-06T08", "long ago")
    append({"sacct.txt": DAY1 + bad + "\n"})
    append({"sacct.txt": DAY2})
    trace = append({"sacct.txt": DAY3 + bad + "\n"})
    manifest = trace.manifest
    assert [(f.path, f.records, f.kept, f.rejected) for f in manifest.files] == [
        ("sacct.txt", 4, 3, 1),
        ("sacct.txt#2", 4, 4, 0),
        ("sacct.txt#3", 3, 2, 1),
    ]
    rejects = trace.scan("rejects").collect()
    assert rejects.select("source_file", "line", "column").rows() == [
        ("sacct.txt", 5, "Submit"),
        ("sacct.txt#3", 4, "Submit"),
    ]
    assert [(a.files, a.jobs_added, a.jobs_replaced, a.jobs_older) for a in manifest.additions] == [
        (["sacct.txt#2"], 1, 2, 0),
        (["sacct.txt#3"], 1, 1, 0),
    ]
    # Runs of one job in several exports are runs that the source records.
    assert trace.capabilities["retries"].available
    assert manifest.checks["ends_before_start"].of == 6
    assert manifest.checks["typed_gpus_disagree"].meaning.endswith(
        "; summed over the exports, so repeated rows count again"
    )
    assert manifest.checks["superseded_rows"].of == 3 + 4 + 2
    assert manifest.created <= manifest.additions[0].created
    before = contents(trace.path)
    assert contents(append({"sacct.txt": DAY3 + bad + "\n"}).path) == before
    assert contents(append({"sacct.txt": DAY1 + bad + "\n"}).path) == before


def test_the_same_files_again_change_no_byte(append: Callable[..., Trace], after: Callable[[int], Trace]) -> None:
    trace = after(2)
    before = contents(trace.path)
    for again in ({"sacct-2.txt": DAY2}, {"sacct-1.txt": DAY1}, {"sacct-1.txt": DAY1, "sacct-2.txt": DAY2}):
        assert contents(append(again).path) == before
    assert sorted(p.name for p in trace.path.parent.iterdir()) == ["trace"]


@pytest.mark.thorough
def test_a_copy_under_another_name_changes_no_table(
    append: Callable[..., Trace], after: Callable[[int], Trace]
) -> None:
    before = tables(after(3))
    for number, copy in enumerate([DAY1, DAY2, DAY3]):
        again = append({f"sacct-copy-{number}.txt": copy})
        assert tables(again) == before
        assert again.manifest.additions[-1].jobs_added == 0


@pytest.mark.thorough
def test_a_growing_folder_counts_each_file_once(
    append: Callable[..., Trace], after: Callable[[int], Trace], rows: Rows
) -> None:
    after(1)
    trace = append({"sacct-1.txt": DAY1, "sacct-2.txt": DAY2})
    assert [(f.path, f.kept) for f in trace.manifest.files] == [("sacct-1.txt", 3), ("sacct-2.txt", 4)]
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["c/7", "c/8", "c/9", "c/10"]


def test_an_older_export_takes_nothing_back(append: Callable[..., Trace], rows: Rows) -> None:
    append({"sacct-2.txt": DAY2})
    append({"sacct-3.txt": DAY3})
    trace = append({"sacct-1.txt": DAY1})
    assert sorted(lives(trace, rows)) == [
        ("c/10", "completed", "05 13", "05 14", "05 15", 1),
        ("c/7", "completed", "04 08", "04 09", "04 10", 1),
        ("c/7#2", "timeout", "06 08", "06 09", "06 10", 1),
        ("c/8", "failed", "04 08", "04 10", "05 10", 1),
        ("c/9", "completed", "04 12", "05 10", "06 12", 2),
    ]
    assert (trace.manifest.checks["older_records"].count, trace.manifest.checks["older_records"].of) == (2, 3)
    assert trace.manifest.checks["older_records"].examples == ["c/8", "c/9"]
    assert trace.manifest.additions[-1].jobs_older == 2


def test_a_job_that_ended_and_waits_again_is_counted(append: Callable[..., Trace], rows: Rows) -> None:
    append({"sacct-1.txt": dump(line("7", "04T08", "04T09", "04T10", "NODE_FAIL"))})
    trace = append({"sacct-2.txt": dump(line("7", "04T10", "", "", "PENDING"))})
    assert lives(trace, rows) == [("c/7", "pending", "04 08", "04 09", None, 1)]
    assert trace.manifest.checks["reopened_jobs"].count == 1


def test_a_requeue_seen_only_afterwards_does_not_wait_for_ever(
    append: Callable[..., Trace], write_source: WriteSource, tmp_path: Path, rows: Rows
) -> None:
    # Without --duplicates the first run never shows, and the job's submission moves.
    days = {
        "sacct-1.txt": dump(line("7", "04T08", "", "", "PENDING")),
        "sacct-2.txt": dump(line("7", "04T12", "04T13", "04T14", "COMPLETED")),
    }
    for name, text in days.items():
        trace = append({name: text})
    assert lives(trace, rows) == [("c/7", "completed", "04 08", "04 13", "04 14", 1)]
    assert tables(trace) == tables(ingest_logs(write_source(days), tmp_path / "at-once"))


HELD = "Cluster|JobID|Submit|Eligible|Start|End|State|AllocTRES|NodeList|User|Account|Partition|QOS"


def held_dump(*rows: tuple[str, str, str, str, str, str]) -> str:
    """Return an export of jobs with Eligible: job, four times as in `line`, state."""
    lines = [HELD]
    for job, submit, eligible, start, end, state in rows:
        _, _, submitted, started, ended, *rest = line(job, submit, start, end, state).split("|")
        since = f"2024-03-{eligible}:00:00" if eligible else "Unknown"
        lines.append("|".join(["c", job, submitted, since, started, ended, *rest, "lab", "gpu", "high"]))
    return "\n".join(lines) + "\n"


def test_accounts_and_times_of_eligibility_stay_over_the_days(
    append: Callable[..., Trace], write_source: WriteSource, tmp_path: Path, rows: Rows
) -> None:
    days = {
        "sacct-1.txt": held_dump(
            ("7", "04T08", "04T09", "04T09", "04T10", "COMPLETED"),
            ("8", "04T08", "", "", "", "PENDING"),  # held, then released at 14:00
            ("9", "04T08", "04T08", "04T09", "", "RUNNING"),  # requeued at 13:00
        ),
        "sacct-2.txt": held_dump(
            ("8", "04T08", "04T14", "04T15", "04T16", "COMPLETED"),
            ("9", "04T08", "04T08", "04T09", "04T13", "NODE_FAIL"),
            ("9", "04T13", "04T14", "04T15", "04T16", "COMPLETED"),
        ),
    }
    for name, text in days.items():
        trace = append({name: text})
    found = [
        (j["job_id"], j["eligible_time"][8:13], j["account"], j["partition"], j["qos"]) for j in rows(trace, "jobs")
    ]
    assert found == [
        ("c/7", "04 09", "lab", "gpu", "high"),
        ("c/8", "04 14", "lab", "gpu", "high"),
        ("c/9", "04 08", "lab", "gpu", "high"),
    ]
    assert tables(trace)["jobs"] == tables(ingest_logs(write_source(days), tmp_path / "at-once"))["jobs"]


def test_a_trace_of_the_older_schema_is_appended_to(append: Callable[..., Trace], rows: Rows) -> None:
    first = append({"sacct-1.txt": held_dump(("7", "04T08", "04T09", "04T09", "04T10", "COMPLETED"))})
    as_version_1(first.path)
    assert Trace.open(first.path).manifest.schema_version == "1"
    trace = append({"sacct-2.txt": held_dump(("8", "04T08", "04T09", "04T09", "04T10", "COMPLETED"))})
    assert trace.manifest.schema_version == "5"
    assert [(j["job_id"], j.get("qos"), j.get("eligible_time")) for j in rows(trace, "jobs")] == [
        ("c/7", None, None),
        ("c/8", "high", "2024-03-04 09:00:00"),
    ]


def test_an_event_that_went_on_ends_in_a_newer_export(append: Callable[..., Trace], tmp_path: Path, rows: Rows) -> None:
    mapping = """
    [jobs]
    files = "jobs.csv"
    [jobs.columns]
    job_id = "id"
    [node_events]
    files = "events.csv"
    [node_events.columns]
    node_id = "host"
    start_time = "since"
    end_time = "until"
    state = "state"
    """
    (tmp_path / "map.toml").write_text(mapping)
    settings = {"format_name": "csv", "options": {"map": str(tmp_path / "map.toml")}}
    head, first = "host,since,until,state\n", "n1,2024-03-04,,down\n"
    append({"jobs.csv": "id\n1\n", "events.csv": head + first + "n2,2024-03-04,,down\n"}, **settings)
    second = "n1,2024-03-04,2024-03-05,down\nn1,2024-03-06,2024-03-07,drained\n"
    trace = append({"jobs.csv": "id\n2\n", "events.csv": head + second}, **settings)
    assert [(e["node_id"], e["start_time"][8:10], e.get("end_time", "")[8:10]) for e in rows(trace, "node_events")] == [
        ("n1", "04", "05"),
        ("n2", "04", ""),
        ("n1", "06", "07"),
    ]


def test_machines_of_a_second_cluster_keep_their_names_apart(
    append: Callable[..., Trace], after: Callable[[int], Trace], rows: Rows, golden: Golden
) -> None:
    after(1)
    trace = append({"sacct-b.txt": dump(line("7", "04T08", "04T09", "04T10", "COMPLETED", cluster="d"))})
    assert [n["node_id"] for n in rows(trace, "nodes")] == ["c/n1", "d/n1"]
    assert [p["node_id"] for p in rows(trace, "placements")] == ["c/n1", "c/n1", "d/n1"]
    golden(note for note in trace.manifest.notes if "cluster" in note)
    trace = append({"sacct-c.txt": dump(line("20", "04T08", "04T09", "04T10", "COMPLETED"))})
    assert [(p["job_id"], p["node_id"]) for p in rows(trace, "placements")][3:] == [("c/20", "c/n1")]


def test_measured_use_of_the_runs_of_all_exports_is_kept(append: Callable[..., Trace], rows: Rows) -> None:
    names = "JobID|Submit|Start|End|State|MaxRSS\n"

    def run(job: str, submit: str, start: str, end: str, used: str) -> str:
        at = "|".join(f"2024-03-{t}:00:00" if t else "Unknown" for t in (submit, start, end))
        state = "COMPLETED" if end else "RUNNING"
        return f"{job}|{at}|{state}|\n{job}.0|{at}|{state}|{used}\n"

    first = run("7", "04T08", "04T09", "04T10", "1G")
    append({"sacct-1.txt": names + first + run("7", "04T10", "04T11", "", "2G")})
    trace = append({"sacct-2.txt": names + run("7", "04T10", "04T11", "05T11", "3G")})
    used = [(u["job_id"], u["instance"], u["memory_gib"]) for u in rows(trace, "job_usage")]
    assert used == [("slurm/7", "0", 1.0), ("slurm/7", "0", 3.0)]
    # An older export tells nothing newer, also under another name.
    before = tables(trace)
    assert tables(append({"sacct-x.txt": names + first + run("7", "04T10", "04T11", "", "2G")})) == before


LOG = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
QUOTA = "date,vcA,total\n2020-04-01,8,8\n"


GPU_HEADER = "time,machineId," + ",".join(f"gpu{n}_util" for n in range(8)) + "\n"


def helios(job: int, state: str = "COMPLETED", end: str = "2020-04-02 08:01:40") -> str:
    return f"{job},u1,vcA,4,16,1,{state},2020-04-02 08:00:00,2020-04-02 08:00:10,{end},,\n"


def test_a_log_without_runs_is_replaced_job_by_job(append: Callable[..., Trace], rows: Rows) -> None:
    quota = "Earth/cluster_gpu_number.csv"
    append({"Earth/cluster_log.csv": LOG + helios(1) + helios(2, "RUNNING", "") + helios(3), quota: QUOTA})
    second = LOG + helios(4) + helios(2, "FAILED") + helios(1, "RUNNING", "") + helios(3, "CANCELLED")
    trace = append({"Earth/cluster_log.csv": second, quota: QUOTA + "2020-04-02,16,16\n"})
    assert [(j["job_id"], j["status"]) for j in rows(trace, "jobs")] == [
        ("Earth/1", "completed"),
        ("Earth/2", "failed"),
        ("Earth/3", "cancelled"),
        ("Earth/4", "completed"),
    ]
    assert [(a["job_id"], a["status"]) for a in rows(trace, "attempts")] == [
        ("Earth/1", "completed"),
        ("Earth/2", "failed"),
        ("Earth/3", "cancelled"),
        ("Earth/4", "completed"),
    ]
    days = sorted((c["time"], c.get("vc", ""), c["gpu_count"]) for c in rows(trace, "capacity"))
    assert [(vc, gpus) for _, vc, gpus in days] == [("", 8), ("vcA", 8), ("", 16), ("vcA", 16)]
    assert trace.manifest.additions[0].jobs_older == 1


def test_samples_and_machines_that_repeat_are_kept_once(append: Callable[..., Trace], rows: Rows) -> None:
    machines = "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\n"
    samples = GPU_HEADER + "2017-10-03 00:00:00 PDT,m0,{0}\n2017-10-03 00:0{2}:00 PDT,m0,{1}\n"
    append({"cluster_machine_list": machines, "cluster_gpu_util": samples.format("1,,,,,,,,", "5,,,,,,,,", 1)})
    trace = append(
        {
            "cluster_machine_list": machines + "m1,2, 24GB\n",
            "cluster_gpu_util": samples.format("9,,,,,,,,", "6,,,,,,,,", 2),
        }
    )
    assert [(s["time"][11:16], s["utilization_pct"]) for s in rows(trace, "gpu_utilization")] == [
        ("07:00", 9.0),
        ("07:01", 5.0),
        ("07:02", 6.0),
    ]
    assert [(n["node_id"], n["gpu_count"]) for n in rows(trace, "nodes")] == [("m0", 2), ("m1", 2)]


MAP = """[jobs]
files = "*.csv"
[jobs.columns]
job_id = "id"
submit_time = "at"
"""


def test_an_id_of_two_clusters_is_refused(append: Callable[..., Trace], tmp_path: Path) -> None:
    def arguments(cluster: str) -> dict[str, Any]:
        place = tmp_path / f"{cluster}.toml"
        place.write_text(f'[source]\ncluster = "{cluster}"\n{MAP}')
        return {"format_name": "csv", "options": {"map": str(place)}}

    before = contents(append({"a.csv": "id,at\n1,2024-01-01 00:00:00\n"}, **arguments("x")).path)
    with pytest.raises(SourceError, match=r"the job '1' belongs to cluster 'x' in the Trace and to 'y' in the source"):
        append({"b.csv": "id,at\n1,2024-01-01 00:00:00\n"}, **arguments("y"))
    assert contents(tmp_path / "history" / "trace") == before


def test_what_does_not_go_together_is_refused(
    append: Callable[..., Trace], after: Callable[[int], Trace], tmp_path: Path
) -> None:
    before = contents(after(1).path)
    for source, arguments, error, message in (
        (
            {"E/cluster_log.csv": LOG + helios(1)},
            {},
            UsageError,
            "was ingested from the format slurm, but the source has the format hel",
        ),
        ({"sacct.txt": DAY2}, {"options": {"timezone": "Europe/Berlin"}}, UsageError, "timezone=UTC, but the source u"),
        ({"sacct.txt": DAY2}, {"options": {"vc": "qos"}}, UsageError, "use --option vc=account$"),
        ({"a.swf": "1 0 0 1 1 -1 -1 -1 -1 -1 1 1 1 -1 -1 -1 -1 -1\n"}, {}, UsageError, "each log numbers its jobs"),
        ({"sacct.txt": DAY2}, {"force": True}, UsageError, "^--append: cannot be combined with --force; either add to"),
        ({"sacct.txt": HEADER + "\nx|x|x|x|x|x|x|x|x\n"}, {}, SourceError, "contains no usable record"),
    ):
        with pytest.raises(error, match=message):
            append(source, **arguments)
    assert contents(tmp_path / "history" / "trace") == before
    assert sorted(p.name for p in (tmp_path / "history").iterdir()) == ["trace"]


def test_relative_times_are_refused(append: Callable[..., Trace], tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[source]\ntime_base = "relative"\n' + MAP)
    settings = {"format_name": "csv", "options": {"map": str(tmp_path / "map.toml")}}
    append({"a.csv": "id,at\n1,0\n"}, **settings)
    with pytest.raises(SourceError, match=r"cannot be appended: its times count from the start of each export"):
        append({"b.csv": "id,at\n2,5\n"}, **settings)


@pytest.mark.parametrize("kept", [0, 100])
def test_a_damaged_table_of_the_trace_is_one_line(
    append: Callable[..., Trace], after: Callable[[int], Trace], kept: int
) -> None:
    trace = after(1)
    path = trace.files("attempts")[0]
    content = path.read_bytes()
    path.write_bytes(b"no parquet" if not kept else content[:4] + bytes(kept) + content[4 + kept :])
    with pytest.raises(
        TraceError, match=r"trace: .*cannot be (read|joined).*run 'tracekit validate TRACE' for details"
    ):
        append({"sacct-2.txt": DAY2})


@pytest.mark.parametrize(
    ("place", "failure"),
    [
        ("tracekit.ingest.append.write_tables", KeyboardInterrupt()),
        ("tracekit.ingest.run.run_common_checks", RuntimeError("boom")),
    ],
)
def test_a_failure_in_the_middle_keeps_the_old_trace(
    append: Callable[..., Trace],
    after: Callable[[int], Trace],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    failure: BaseException,
) -> None:
    trace = after(1)
    before = contents(trace.path)

    def fail(*_: object, **__: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        with pytest.raises(type(failure)):
            append({"sacct-2.txt": DAY2})
    assert contents(trace.path) == before
    assert [p.name for p in trace.path.parent.iterdir()] == ["trace"]


def test_a_trace_that_changes_meanwhile_is_not_replaced(
    append: Callable[..., Trace], after: Callable[[int], Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = after(1)
    flush = Sink.flush

    def meanwhile(sink: Sink) -> None:
        (trace.path / "manifest.json").write_bytes((trace.path / "manifest.json").read_bytes() + b"\n")
        flush(sink)

    monkeypatch.setattr(Sink, "flush", meanwhile)
    with pytest.raises(OutputError, match=r"trace: was changed while this append ran; append again$"):
        append({"sacct-2.txt": DAY2})


def test_a_trace_set_aside_by_a_killed_run_is_put_back_and_appended_to(
    append: Callable[..., Trace], after: Callable[[int], Trace], rows: Rows
) -> None:
    trace = after(1)
    trace.path.rename(trace.path.with_name(".trace.old-99999999"))
    assert len(rows(append({"sacct-2.txt": DAY2}), "jobs")) == 4
    assert [p.name for p in trace.path.parent.iterdir()] == ["trace"]


def test_a_link_leads_to_the_trace_that_is_appended_to(
    write_source: WriteSource, after: Callable[[int], Trace], tmp_path: Path, rows: Rows
) -> None:
    (tmp_path / "link").symlink_to(after(1).path)
    ingest_logs(write_source({"sacct-2.txt": DAY2}), tmp_path / "link", append=True)
    assert (tmp_path / "link").is_symlink()
    assert len(rows(Trace.open(tmp_path / "history" / "trace"), "jobs")) == 4


def test_the_command_builds_a_history_and_shows_it(history: list[Trace], tmp_path: Path, golden: Golden) -> None:
    shutil.copytree(history[0].path, tmp_path / "t")
    (tmp_path / "sacct-1.txt").write_text(DAY1)
    for number, text in ((2, DAY2), (2, DAY2)):
        (tmp_path / f"sacct-{number}.txt").write_text(text)
        result = run("ingest", tmp_path / f"sacct-{number}.txt", "-o", tmp_path / "t", "--append")
        assert result.returncode == 0, result.stderr
    golden([*result.stderr.replace(str(tmp_path), "HERE").splitlines()[-1:], result.stdout.splitlines()[0]])
    shown = run("info", tmp_path / "t").stdout
    assert "jobs added" in shown
    assert "sacct-2.txt" in shown
    refused = run("ingest", tmp_path / "sacct-1.txt", "-o", tmp_path / "t", "--append", "--force")
    assert refused.returncode == 2
    golden(refused.stderr, "refused")


START = dt.datetime(2024, 3, 4)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, int, int | None, str]]]]:
    """Return jobs: number, and runs as hours of submission, start, end, and the state at the end."""
    jobs = []
    for number in range(draw(st.integers(1, 5))):
        free = 0
        for _ in range(draw(st.integers(1, 2))):
            moment = free + draw(st.integers(0, 60))
            runs: list[tuple[int, int, int | None, str]] = []
            for _ in range(draw(st.integers(0, 2))):
                start = moment + draw(st.integers(0, 30))
                end = start + draw(st.integers(1, 50))
                runs.append((moment, start, end, draw(st.sampled_from(["NODE_FAIL", "PREEMPTED", "REQUEUED"]))))
                moment = end
            start = moment + draw(st.integers(0, 30))
            runs.append((moment, start, start + draw(st.integers(1, 50)), "COMPLETED"))
            jobs.append((number, runs))
            # The id is free for another job when more than a day has passed.
            free = (runs[-1][2] or 0) + 26
    return jobs


def export(jobs: Sequence[tuple[int, list[Any]]], since: int, until: int) -> str:
    """Return what sacct --duplicates prints at the hour `until` for the window since `since`."""
    found: list[str] = []
    for number, runs in jobs:
        for n, (submit, start, end, word) in enumerate(runs):
            if submit > until or end <= since:
                continue
            state = "PENDING" if start > until else "RUNNING" if end > until else word
            times = (submit, start if start <= until else None, end if end <= until else None)
            text = "|".join((START + dt.timedelta(hours=t)).isoformat() if t is not None else "Unknown" for t in times)
            node = f"n{(number + n) % 2}" if start <= until else "None assigned"
            found.append(f"c|{number}|{text}|{state}|gres/gpu={number + 1}|{node}|u{number}")
    return dump(*found)


def unordered(trace: Trace) -> dict[str, list[str]]:
    return {table: sorted(map(str, rows)) for table, rows in tables(trace).items()}


def appended(exports: Iterable[str], place: Path) -> Trace:
    for number, text in enumerate(exports):
        source = place / f"sacct-{number:02}.txt"
        source.write_text(text)
        if "\n" in text.rstrip("\n"):
            trace = ingest_logs(source, place / "history", append=True)
    return trace


WINDOWS = st.lists(st.integers(5, 60), min_size=1, max_size=4)


@settings(max_examples=1)
@given(logs(), WINDOWS)
def test_windows_appended_one_by_one_are_what_all_of_them_tell_at_once(jobs: list[Any], steps: list[int]) -> None:
    assert_same_history(jobs, steps)


@pytest.mark.thorough
@settings(max_examples=examples(9))
@given(logs(), WINDOWS)
def test_many_windows_appended_one_by_one_are_what_all_of_them_tell_at_once(jobs: list[Any], steps: list[int]) -> None:
    assert_same_history(jobs, steps)


def assert_same_history(jobs: list[Any], steps: list[int]) -> None:
    """Compare what windows give one by one with what they give at once, and with a single export of all."""
    cuts = [0, *itertools.accumulate([*steps, 1000])]
    exports = [export(jobs, since, until) for since, until in itertools.pairwise(cuts)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        history = appended(exports, place)
        assert history.validate() == []
        (place / "all").mkdir()
        for number, text in enumerate(exports):
            (place / "all" / f"sacct-{number:02}.txt").write_text(text)
        assert unordered(history) == unordered(ingest_logs(place / "all", place / "at-once"))
        (place / "sacct-last.txt").write_text(export(jobs, -1, cuts[-1]))
        assert unordered(history) == unordered(ingest_logs(place / "sacct-last.txt", place / "last"))


IDLE = "JobID|Submit|Start|End|State\n"


def test_an_idle_day_adds_nothing_and_makes_no_trace(write_source: WriteSource, tmp_path: Path, golden: Golden) -> None:
    class Told(Progress):
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    row = "7|2024-03-04T08:00:00|2024-03-04T08:00:10|2024-03-04T09:00:10|COMPLETED\n"
    out, told = tmp_path / "history", Told()
    with pytest.raises(TooManyRejectsError, match=r"contains no records; .* you can add an idle day to a Trace"):
        ingest_logs(write_source({"sacct.txt": IDLE}), out, append=True)
    ingest_logs(write_source({"sacct.txt": IDLE + row}), out, append=True)
    before = (out / "manifest.json").read_bytes()
    trace = ingest_logs(write_source({"sacct.txt": IDLE}), out, append=True, progress=told)
    assert (out / "manifest.json").read_bytes() == before
    assert trace.scan("jobs").collect().height == 1
    golden(told.notes[-1])
    with pytest.raises(TooManyRejectsError, match="contains no usable record"):
        ingest_logs(write_source({"sacct.txt": IDLE + "x|y|z|z|z\n"}), out, append=True)
