"""Logs of any layout: what a mapping file makes of each feature of them."""

from __future__ import annotations

import gzip
import io
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit.errors import SourceError, TooManyRejectsError, UsageError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]

EXAMPLES = Path(__file__).parents[3] / "docs" / "mapping"


@pytest.fixture
def mapped(tmp_path: Path, ingest: Ingest) -> Mapped:
    """Return a function that ingests files with a mapping given as text."""

    def run(mapping: str, files: dict[str, str | bytes]) -> Trace:
        path = tmp_path / "map.toml"
        path.write_text(mapping)
        # A tiny input with a record for each fault is mostly faults.
        return ingest(files, format_name="csv", options={"map": str(path)}, max_reject_share=0.9)

    return run


BASIC = """
[source]
timezone = "America/Los_Angeles"
time_format = "%Y-%m-%d %H:%M:%S"
missing = ["None"]
cluster = "a"
[jobs]
files = "jobs*.csv"
[jobs.columns]
job_id = "id"
user = "who"
vc = "team"
submit_time = "created"
start_time = "started"
end_time = "ended"
gpu_count = "gpus"
[jobs.status]
column = "state"
completed = ["OK"]
failed = ["ERR", "BAD"]
running = ["RUN"]
"""
HEADER = "id,who,team,created,started,ended,gpus,state\n"
LINE = "j1,u1,t1,2017-10-03 08:00:00,2017-10-03 08:00:10,2017-10-03 08:01:40,4,OK\n"
JOB = {
    "job_id": "j1",
    "cluster": "a",
    "vc": "t1",
    "user": "u1",
    "status": "completed",
    "source_status": "OK",
    "submit_time": "2017-10-03 15:00:00",
    "start_time": "2017-10-03 15:00:10",
    "end_time": "2017-10-03 15:01:40",
    "queue_s": 10.0,
    "run_s": 90.0,
    "gpu_count": 4.0,
    "attempt_count": 1,
}
ATTEMPT = {
    "job_id": "j1",
    "attempt": 0,
    "start_time": "2017-10-03 15:00:10",
    "end_time": "2017-10-03 15:01:40",
    "run_s": 90.0,
    "wait_s": 10.0,
    "gpu_count": 4.0,
    "status": "completed",
}


def simple(columns: str, source: str = "") -> str:
    return f'[source]\ntime_format = "epoch_s"\n{source}\n[jobs.columns]\n{columns}\n'


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
def test_every_time_format_gives_utc(mapped: Mapped, rows: Rows, form: str, text: str, utc: str) -> None:
    mapping = f"""
    [source]
    timezone = "Europe/Berlin"
    [jobs.columns]
    job_id = "id"
    submit_time = {{ column = "t", format = "{form}" }}
    """
    assert rows(mapped(mapping, {"a.csv": f"id,t\n1,{text}\n"}), "jobs")[0]["submit_time"] == utc


@pytest.mark.parametrize(
    ("target", "unit", "cell", "value"),
    [
        ("run_s", "min", "1.5", 90.0),
        ("run_s", "clock", "1-02:03:04", 93784.0),
        ("run_s", "clock", "02:30", 150.0),
        ("time_limit_s", "h", "2", 7200.0),
        ("memory_gib", "MiB", "512", 0.5),
        ("memory_gib", "B", "1073741824", 1.0),
        ("memory_gib", "quantity", "16Gi", 16.0),
        ("memory_gib", "quantity", "1.5 GiB", 1.5),
        ("memory_gib", "quantity", "1048576Ki", 1.0),
        ("cpu_count", "quantity", "500m", 0.5),
        ("cpu_count", "milli", "2000", 2.0),
        ("gpu_count", "percent", "25", 0.25),
    ],
)
def test_every_unit_becomes_that_of_the_trace(
    mapped: Mapped, rows: Rows, target: str, unit: str, cell: str, value: float
) -> None:
    mapping = simple(f'job_id = "id"\n{target} = {{ column = "x", unit = "{unit}" }}')
    assert rows(mapped(mapping, {"a.csv": f"id,x\n1,{cell}\n"}), "jobs")[0][target] == value


def test_regex_default_expression_constant_and_words(mapped: Mapped, rows: Rows) -> None:
    columns = r"""
    job_id = "id"
    gpu_count = { column = "tres", regex = 'gpu=(\d+)', default = 0 }
    cpu_count = { expression = "nodes * (`cores per node` + 1) / 2" }
    gpu_model = { value = "A100" }
    workload = { column = "kind", words = { training = ["train"], other = ["x"] } }
    preemptible = "spot"
    priority = "prio"
    """
    text = (
        "id,tres,nodes,cores per node,kind,spot,prio\n"
        "1,cpu=4;gpu=8,2,3,train,yes,5\n2,cpu=4,,3,,FALSE,\n3,,x,3,x,,\n4,,1,1,what,,\n5,,1,1,x,maybe,1.5\n6,,1,1,x,,1.5\n"
    )
    trace = mapped(simple(columns, 'cluster = "c"'), {"a.csv": text})
    common = {"cluster": "c", "attempt_count": 0, "gpu_model": "A100"}
    assert rows(trace, "jobs") == [
        {
            "job_id": "1",
            "gpu_count": 8.0,
            "cpu_count": 4.0,
            "workload": "training",
            "preemptible": True,
            "priority": 5,
            **common,
        },
        {"job_id": "2", "gpu_count": 0.0, "preemptible": False, **common},
        {"job_id": "3", "gpu_count": 0.0, "workload": "other", **common},
        {"job_id": "4", "gpu_count": 0.0, "cpu_count": 1.0, **common},
        {"job_id": "5", "gpu_count": 0.0, "cpu_count": 1.0, "workload": "other", **common},
        {"job_id": "6", "gpu_count": 0.0, "cpu_count": 1.0, "workload": "other", **common},
    ]
    found = {name: (check.count, check.examples[0]) for name, check in trace.manifest.checks.items() if check.count}
    assert found == {
        "unreadable_nodes_cores_per_node": (1, "x: 'nodes' is not a number"),
        "unreadable_kind": (1, "what: is not a listed word for workload"),
        "unreadable_prio": (2, "1.5: is not a whole number"),
        "unreadable_spot": (1, "maybe: is not one of true, yes, 1, false, no, 0"),
    }


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


# By its times the job waits 10 s and runs 90 s; the wait is stated in seconds, the run in minutes.
@pytest.mark.parametrize(
    ("wait", "minutes", "found"),
    [
        ("10.99", "2.49", []),
        ("11", "1.5", ["queue_disagrees"]),
        ("9", "1.5", ["queue_disagrees"]),
        ("10", "2.5", ["duration_disagrees"]),
        ("10", "0.5", ["duration_disagrees"]),
    ],
)
def test_a_stated_span_disagrees_from_one_unit_on(
    mapped: Mapped, found_checks: FoundChecks, wait: str, minutes: str, found: list[str]
) -> None:
    mapping = BASIC.replace(
        'gpu_count = "gpus"', 'gpu_count = "gpus"\nqueue_s = "wait"\nrun_s = {column = "dur", unit = "min"}'
    )
    line = LINE.replace("OK", f"OK,{wait},{minutes}")
    trace = mapped(mapping, {"jobs.csv": HEADER.replace("state", "state,wait,dur") + line})
    assert found_checks(trace) == dict.fromkeys(found, (1, 1))


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


def test_line_numbers_are_ids_and_several_files_keep_them_apart(mapped: Mapped, rows: Rows) -> None:
    mapping = simple("job_id = { line = true }\ngpu_count = 'g'")
    assert [r["job_id"] for r in rows(mapped(mapping, {"a.csv": "g\n1\n\n2\n"}), "jobs")] == ["2", "4"]
    trace = mapped(mapping, {"a.csv": "g\n1\n", "b.csv": "g\n2\n"})
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["a.csv:2", "b.csv:2"]


def test_a_cluster_column_stands_before_the_job(mapped: Mapped, rows: Rows) -> None:
    trace = mapped(simple("job_id = 'id'\ncluster = 'c'"), {"a.csv": "id,c\n1,x\n1,y\n"})
    assert [(r["job_id"], r["cluster"]) for r in rows(trace, "jobs")] == [("x/1", "x"), ("y/1", "y")]


def test_nodes_with_indices_become_placements(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        simple('job_id = "id"\nstart_time = "s"\ngpu_count = "g"')
        + r"""
    [jobs.nodes]
    column = "hosts"
    separator = ";"
    pattern = '(?<node>[^:]+)(?::(?<gpu_index>[\d,-]+))?'
    """
    )
    text = 'id,s,g,hosts\n1,0,5,"n1:0-2,5;n2:7"\n2,0,2,n3\n3,,1,n1:0\n4,0,4,n1;n2\n5,0,1,n1:x\n6,0,1,\n'
    trace = mapped(mapping, {"a.csv": text})
    start = {"attempt": 0, "start_time": "1970-01-01 00:00:00"}
    assert rows(trace, "placements") == [
        {"job_id": "1", "node_id": "n1", "gpu_index": [0, 1, 2, 5], "gpu_count": 4.0, **start},
        {"job_id": "1", "node_id": "n2", "gpu_index": [7], "gpu_count": 1.0, **start},
        {"job_id": "2", "node_id": "n3", "gpu_count": 2.0, **start},
        {"job_id": "4", "node_id": "n1", **start},
        {"job_id": "4", "node_id": "n2", **start},
    ]
    assert [r.get("node_count") for r in rows(trace, "jobs")] == [2, 1, 1, 2, None, None]
    assert trace.manifest.checks["unreadable_hosts"].count == 1


def test_a_node_that_is_listed_once_for_each_slot_is_one(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        simple('job_id = "id"\nstart_time = "s"')
        + r"""
    [jobs.nodes]
    column = "hosts"
    separator = " "
    pattern = '(?:(?<gpu_count>\d+)\*)?(?<node>.+)'
    """
    )
    trace = mapped(mapping, {"a.csv": "id,s,hosts\n1,0,2*a b 1*a\n"})
    assert [(r["node_id"], r.get("gpu_count")) for r in rows(trace, "placements")] == [("a", 3.0), ("b", None)]


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet", "headerless", "gz"])
def test_every_kind_of_file_gives_the_same_rows(mapped: Mapped, rows: Rows, kind: str) -> None:
    columns = 'job_id = "id"\nstart_time = "s"\ngpu_count = "g"\nname = "n"'
    frame = pl.DataFrame({"id": [1, 2], "s": [10, None], "g": [1.5, 2.0], "n": ["a", None]})
    extra = ""
    files: dict[str, str | bytes]
    if kind == "tsv":
        files = {"a.tsv": frame.write_csv(separator="\t")}
    elif kind == "jsonl":
        files = {"a.jsonl": frame.write_ndjson() + "\n"}
    elif kind == "parquet":
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        files = {"a.parquet": buffer.getvalue()}
    elif kind == "gz":
        files = {"a.csv.gz": gzip.compress(frame.write_csv().encode())}
    else:
        extra = 'delimiter = "|"\nheader = ["id", "s", "g", "n"]'
        files = {"a.txt": frame.write_csv(separator="|", include_header=False)}
    trace = mapped(simple(columns, extra), files)
    assert rows(trace, "jobs") == [
        {"job_id": "1", "name": "a", "start_time": "1970-01-01 00:00:10", "gpu_count": 1.5, "attempt_count": 1},
        {"job_id": "2", "gpu_count": 2.0, "attempt_count": 0},
    ]


def test_times_and_lists_of_parquet_keep_their_types(mapped: Mapped, rows: Rows) -> None:
    frame = pl.DataFrame({"id": ["a"], "t": ["2017-10-03 17:00:00"], "h": [["n1", "n2"]], "b": [True]}).with_columns(
        t=pl.col("t").str.to_datetime(), z=pl.col("t").str.to_datetime().dt.replace_time_zone("UTC")
    )
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    mapping = """
    [source]
    timezone = "Europe/Berlin"
    [jobs.columns]
    job_id = "id"
    submit_time = "t"
    start_time = "z"
    preemptible = "b"
    [jobs.nodes]
    column = "h"
    """
    trace = mapped(mapping, {"a.parquet": buffer.getvalue()})
    (job,) = rows(trace, "jobs")
    assert (job["submit_time"], job["start_time"]) == ("2017-10-03 15:00:00", "2017-10-03 17:00:00")
    assert job["preemptible"] is True
    assert [r["node_id"] for r in rows(trace, "placements")] == ["n1", "n2"]


def test_json_lines_that_are_no_objects_are_rejected(mapped: Mapped, rows: Rows) -> None:
    text = '{"a": {"b.c": [{"d": 1}]}}\n{broken\n[1]\n\n{"a": {"b.c": [{"d": true}]}}\n{"a": 3}'
    trace = mapped(simple("job_id = 'a.b.c.0.d'"), {"a.jsonl": text})
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["1", "true"]
    assert [(r["line"], r["reason"]) for r in rows(trace, "rejects")] == [
        (2, "is not JSON"),
        (3, "is not a JSON object"),
        (6, "is missing"),
    ]


def test_plain_tables_are_filled_by_their_columns(mapped: Mapped, rows: Rows) -> None:
    mapping = """
    [source]
    cluster = "c"
    [nodes]
    files = "nodes.csv"
    [nodes.columns]
    node_id = "n"
    gpu_count = "g"
    memory_gib = { column = "m", unit = "MiB" }
    [capacity]
    files = "quota.csv"
    [capacity.columns]
    time = "t"
    vc = "v"
    gpu_count = "g"
    """
    trace = mapped(
        mapping,
        {"nodes.csv": "n,g,m\na,8,1024\na,8,1\nb,,\nc,0.5,\n", "quota.csv": "t,v,g\n2020-01-01,x,8\n,x,9\n"},
    )
    assert rows(trace, "nodes") == [
        {"node_id": "a", "cluster": "c", "gpu_count": 8, "memory_gib": 1.0},
        {"node_id": "b", "cluster": "c"},
        {"node_id": "c", "cluster": "c"},
    ]
    assert rows(trace, "capacity") == [{"time": "2020-01-01 00:00:00", "cluster": "c", "vc": "x", "gpu_count": 8.0}]
    assert [(r["source_file"], r["line"]) for r in rows(trace, "rejects")] == [
        ("nodes.csv", 3),
        ("quota.csv", 3),
    ]


LONG = r"""
[source]
time_format = "epoch_s"
[telemetry.dcgm]
files = "dcgm.csv"
layout = "long"
time = "ts"
uuid = "uuid"
metric = "m"
value = "v"
gpu_metrics = { utilization_pct = "UTIL", memory_used_gib = { column = "FB", unit = "MiB" } }
[telemetry.host]
files = "host.csv"
layout = "long"
time = "ts"
node = { column = "instance", regex = "([^:]+)" }
metric = "m"
value = "v"
host_metrics = { cpu_pct = { column = "cpu", unit = "share" } }
[gpus]
files = "gpus.csv"
uuid = "u"
node = "h"
gpu = "i"
"""


def test_long_samples_are_joined_by_time_and_gpu(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    trace = mapped(
        LONG,
        {
            "dcgm.csv": "ts,uuid,m,v\n60,G1,UTIL,50\n60,G1,FB,2048\n0,G2,UTIL,7\n0,G2,UTIL,9\n0,G2,TEMP,hot\n"
            "0,G9,UTIL,1\n0,G1,UTIL,x\n",
            "host.csv": "ts,instance,m,v\n0,n1:9400,cpu,0.25\n",
            "gpus.csv": "u,h,i\nG1,n1,0\nG2,n1,1\n",
        },
    )
    assert rows(trace, "gpu_utilization") == [
        {"time": "1970-01-01 00:00:00", "node_id": "n1", "gpu_index": 1, "utilization_pct": 9.0},
        {
            "time": "1970-01-01 00:01:00",
            "node_id": "n1",
            "gpu_index": 0,
            "utilization_pct": 50.0,
            "memory_used_gib": 2.0,
        },
    ]
    assert rows(trace, "host_utilization") == [{"time": "1970-01-01 00:00:00", "node_id": "n1", "cpu_pct": 25.0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (7, "uuid", "is not in the table of GPUs"),
        (8, "value", "is not a finite number"),
    ]
    assert found_checks(trace) == {"unmapped_metric": (1, 6), "repeated_gpu_utilization_values": (1, 4)}
    assert [(f.path, f.records, f.kept) for f in trace.manifest.files] == [
        ("gpus.csv", 2, 2),
        ("dcgm.csv", 7, 5),
        ("host.csv", 1, 1),
    ]


def test_wide_matrices_and_rows_are_unpivoted(mapped: Mapped, rows: Rows) -> None:
    mapping = r"""
    [source]
    time_format = "epoch_s"
    [telemetry.util]
    files = "util.csv"
    layout = "wide"
    server = '(?<node>\w+)-(?<gpu>\d+)'
    gpu_metrics = { utilization_pct = "*" }
    [telemetry.cpu]
    files = "cpu.csv"
    layout = "wide"
    host_metrics = { cpu_pct = { column = "*", unit = "share" } }
    [telemetry.smi]
    files = "smi.csv"
    layout = "row"
    time = "t"
    node = "n"
    gpu = "g"
    gpu_metrics = { power_w = "w" }
    """
    trace = mapped(
        mapping,
        {
            "util.csv": "Time,a-0,a-1,other\n0,10,,1\n60,x,5,2\n120,20,30,\n",
            "cpu.csv": "Time,a,b\n0,0.5,\n",
            "smi.csv": "t,n,g,w\n0,a,0,250\n0,a,1,-5\n",
        },
    )
    assert rows(trace, "gpu_utilization") == [
        {"time": "1970-01-01 00:00:00", "node_id": "a", "gpu_index": 0, "utilization_pct": 10.0, "power_w": 250.0},
        {"time": "1970-01-01 00:01:00", "node_id": "a", "gpu_index": 1, "utilization_pct": 5.0},
        {"time": "1970-01-01 00:02:00", "node_id": "a", "gpu_index": 0, "utilization_pct": 20.0},
        {"time": "1970-01-01 00:02:00", "node_id": "a", "gpu_index": 1, "utilization_pct": 30.0},
    ]
    assert rows(trace, "host_utilization") == [{"time": "1970-01-01 00:00:00", "node_id": "a", "cpu_pct": 50.0}]
    assert rows(trace, "rejects") == []
    assert {name: check.count for name, check in trace.manifest.checks.items() if name.startswith("unreadable")} == {
        "unreadable_a_0": 1,
        "unreadable_w": 1,
    }


def test_a_sample_whose_wall_clock_names_no_instant_is_rejected(mapped: Mapped, rows: Rows) -> None:
    mapping = """
    [source]
    timezone = "America/Los_Angeles"
    [telemetry.cpu]
    layout = "wide"
    host_metrics = { cpu_pct = "*" }
    """
    trace = mapped(mapping, {"a.csv": "t,n1\n2017-11-05 00:30:00,5\n2017-11-05 01:30:00,6\n"})
    assert rows(trace, "host_utilization") == [{"time": "2017-11-05 07:30:00", "node_id": "n1", "cpu_pct": 5.0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (3, "t", "is missing, or names no instant")
    ]


@pytest.mark.parametrize(
    ("mapping", "files", "message"),
    [
        (
            simple('job_id = "jobid"'),
            {"a.csv": "job_id\n1\n"},
            r"map\.toml, key jobs\.columns\.job_id: a\.csv has no column 'jobid'; did you mean 'job_id'\?$",
        ),
        (
            BASIC,
            {"a.csv": "id\n1\n"},
            r"map\.toml, key jobs\.files: no file of the source is named jobs\*\.csv; there are: a\.csv$",
        ),
        (
            simple('job_id = "id"') + '[nodes.columns]\nnode_id = "id"',
            {"a.csv": "id\n1\n"},
            r"map\.toml, key nodes\.files: a\.csv also belongs to jobs; name each section's own files$",
        ),
        (simple('job_id = "id"'), {"a.csv": ""}, r"^a\.csv: is empty; a header line is due$"),
        (simple('job_id = "id"'), {"a.csv": "id,id\n1,1\n"}, r"^a\.csv, line 1: the header names 'id' twice"),
        (simple('job_id = "id"'), {"a.parquet": b"PAR1 no"}, r"^a\.parquet: cannot be read as Parquet: "),
    ],
)
def test_a_file_that_does_not_fit_the_mapping_is_one_line(
    mapped: Mapped, mapping: str, files: dict[str, str | bytes], message: str
) -> None:
    with pytest.raises((UsageError, SourceError), match=message) as raised:
        mapped(mapping, files)
    assert "\n" not in str(raised.value)


def test_without_a_mapping_the_format_says_so(ingest: Ingest) -> None:
    with pytest.raises(UsageError, match=r"^--map: the format csv needs a mapping file; see docs/mapping\.md$"):
        ingest({"a.csv": "id\n1\n"}, format_name="csv")


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
def test_a_time_beyond_reason_is_unknown_and_listed(mapped: Mapped, rows: Rows, form: str, cell: str) -> None:
    mapping = f"""
    [source]
    timezone = "Europe/Berlin"
    time_format = "{form}"
    [jobs.columns]
    job_id = "id"
    end_time = "t"
    """
    trace = mapped(mapping, {"a.csv": f"id,t\n1,\n2,{cell}\n"})
    assert rows(trace, "jobs") == [{"job_id": "1", "attempt_count": 0}, {"job_id": "2", "attempt_count": 0}]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "doubtful_times")] == [
        (3, "end_time", "is no date of this log")
    ]


@pytest.mark.parametrize(("form", "cell"), [("epoch_s", "nan"), ("iso8601", "2017-13-01")])
def test_what_is_no_time_rejects_its_record(mapped: Mapped, rows: Rows, form: str, cell: str) -> None:
    mapping = simple("job_id = 'id'\nend_time = 't'").replace("epoch_s", form)
    trace = mapped(mapping, {"a.csv": f"id,t\n1,\n2,{cell}\n"})
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


def test_a_log_in_which_no_job_started_has_no_placements(mapped: Mapped, rows: Rows) -> None:
    mapping = simple("job_id = 'id'\nstart_time = 's'") + "[jobs.nodes]\ncolumn = 'n'"
    trace = mapped(mapping, {"a.csv": "id,s,n\n1,,a\n", "b.csv": "id,s,n\n2,,\n"})
    assert trace.tables == ("jobs",)


def test_a_log_of_which_nothing_is_usable_is_refused(mapped: Mapped) -> None:
    with pytest.raises(TooManyRejectsError, match=r"holds no usable record \(1 unusable\)"):
        mapped(BASIC, {"jobs.csv": HEADER + "x\n"})
    with pytest.raises(TooManyRejectsError, match=r"line 2, column created: is not a time like"):
        mapped(BASIC, {"jobs.csv": HEADER + LINE.replace("2017", "x")})


def example(tmp_path: Path, name: str, files: dict[str, str]) -> Trace:
    source = tmp_path / "source"
    source.mkdir()
    for file, text in files.items():
        (source / file).write_text(text)
    trace = ingest_logs(source, tmp_path / "out", format_name="csv", options={"map": str(EXAMPLES / name)})
    assert trace.validate() == []
    return trace


def test_the_kubernetes_example(tmp_path: Path, rows: Rows, found_checks: FoundChecks) -> None:
    job = (
        '{"metadata": {"uid": "u1", "name": "bert", "namespace": "nlp", "creationTimestamp": "2024-05-01T10:00:00Z", '
        '"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}, "spec": {"parallelism": 2, "template": {"spec": {'
        '"nodeSelector": {"nvidia.com/gpu.product": "A100"}, "containers": [{"resources": {"limits": {'
        '"nvidia.com/gpu": "4"}}}]}}}, "status": {"startTime": "2024-05-01T10:01:00Z", '
        '"completionTime": "2024-05-01T11:01:00Z", "conditions": [{"type": "SuccessCriteriaMet"}, '
        '{"type": "Complete"}]}}\n'
    )
    running = '{"metadata": {"uid": "u2"}, "status": {"startTime": "2024-05-01T10:01:00Z"}}\n'
    node = (
        '{"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "A100"}}, "status": {"capacity": '
        '{"cpu": "96", "memory": "1048576Ki", "nvidia.com/gpu": "8"}}}\n{"metadata": {"name": "n2"}}\n'
    )
    trace = example(tmp_path, "kubernetes.toml", {"jobs.jsonl": job + running, "nodes.jsonl": node})
    assert rows(trace, "jobs") == [
        {
            "job_id": "u1",
            "cluster": "k8s",
            "vc": "team-a",
            "name": "bert",
            "group": "nlp",
            "status": "completed",
            "source_status": "Complete",
            "submit_time": "2024-05-01 10:00:00",
            "start_time": "2024-05-01 10:01:00",
            "end_time": "2024-05-01 11:01:00",
            "queue_s": 60.0,
            "run_s": 3600.0,
            "gpu_count": 8.0,
            "gpu_model": "A100",
            "instance_count": 2,
            "attempt_count": 1,
        },
        {
            "job_id": "u2",
            "cluster": "k8s",
            "status": "running",
            "start_time": "2024-05-01 10:01:00",
            "attempt_count": 1,
        },
    ]
    assert rows(trace, "nodes") == [
        {
            "node_id": "n1",
            "cluster": "k8s",
            "gpu_count": 8,
            "gpu_model": "A100",
            "cpu_count": 96.0,
            "memory_gib": 1.0,
        },
        {"node_id": "n2", "cluster": "k8s", "gpu_count": 0},
    ]
    assert found_checks(trace) == {}


def test_the_lsf_example(tmp_path: Path, rows: Rows, found_checks: FoundChecks) -> None:
    text = (
        "JOBID|USER|QUEUE|STAT|SUBMIT_TIME|START_TIME|FINISH_TIME|RUN_TIME|GPU_NUM|MEM|EXEC_HOST\n"
        "101|ann|gpu|DONE|Oct  3 17:00:00 2023|Oct  3 17:10:00 2023|Oct  3 18:10:00 2023|3600 second(s)|8|4 GiB|"
        "4*hostA:4*hostB\n"
        "102|bob|gpu|PEND|Oct 13 17:00:00 2023|-|-|0 second(s)|-|-|-\n"
    )
    trace = example(tmp_path, "lsf.toml", {"jobs.txt": text})
    common = {"cluster": "lsf", "vc": "gpu"}
    assert rows(trace, "jobs") == [
        {
            "job_id": "101",
            "user": "ann",
            "status": "completed",
            "source_status": "DONE",
            "submit_time": "2023-10-03 15:00:00",
            "start_time": "2023-10-03 15:10:00",
            "end_time": "2023-10-03 16:10:00",
            "queue_s": 600.0,
            "run_s": 3600.0,
            "gpu_count": 8.0,
            "memory_gib": 4.0,
            "node_count": 2,
            "attempt_count": 1,
            **common,
        },
        {
            "job_id": "102",
            "user": "bob",
            "status": "pending",
            "source_status": "PEND",
            "submit_time": "2023-10-13 15:00:00",
            "gpu_count": 0.0,
            "attempt_count": 0,
            **common,
        },
    ]
    assert [(r["job_id"], r["node_id"]) for r in rows(trace, "placements")] == [("101", "hostA"), ("101", "hostB")]
    assert found_checks(trace) == {}


def test_the_released_philly_jobs(tmp_path: Path, real_data: Callable[[str], Path]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copy(real_data("philly/philly_jobs_2017-09_10.csv.gz"), source)
    mapping = EXAMPLES / "philly_jobs.toml"
    trace = ingest_logs(source, tmp_path / "out", format_name="csv", options={"map": str(mapping)})
    assert trace.validate() == []
    jobs = trace.scan("jobs").collect()
    assert jobs.height == 52_849
    assert jobs["vc"].n_unique() >= 11
    assert jobs["job_id"][0] == "2"
    assert trace.manifest.records == 52_849


@pytest.mark.parametrize("name", ["philly_jobs_2017-09_10.csv", "philly.csv", "fifteen weeks.txt", "jobs.csv.gz"])
def test_the_philly_example_fits_any_list_of_its_layout(tmp_path: Path, rows: Rows, name: str) -> None:
    # Fifteen weeks, through the change from UTC-7 to UTC-8; the list ends with an empty line.
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-08-07 10:00:00,66.0,1,66.0,11cb48\n"
        "2017-11-05 03:00:00,30.0,2,60.0,6214e9\n2017-11-20 10:00:00,0.0,8,0.0,11cb48\n\n"
    )
    source = tmp_path / "source" / name
    source.parent.mkdir()
    source.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    common = {"cluster": "philly"}
    for where in (source, source.parent):
        out = tmp_path / f"trace-{where.name}"
        trace = ingest_logs(where, out, format_name="csv", options={"map": str(EXAMPLES / "philly_jobs.toml")})
        assert trace.validate() == []
        kept = ("job_id", "cluster", "vc", "submit_time", "run_s", "gpu_count")
        assert [{k: v for k, v in row.items() if k in kept} for row in rows(trace, "jobs")] == [
            {"job_id": "2", "vc": "11cb48", "submit_time": "2017-08-07 17:00:00", "run_s": 66.0, "gpu_count": 1.0}
            | common,
            {"job_id": "3", "vc": "6214e9", "submit_time": "2017-11-05 11:00:00", "run_s": 30.0, "gpu_count": 2.0}
            | common,
            {"job_id": "4", "vc": "11cb48", "submit_time": "2017-11-20 18:00:00", "run_s": 0.0, "gpu_count": 8.0}
            | common,
        ]


def test_a_mapping_wins_over_what_files_look_like(mapped: Mapped, rows: Rows) -> None:
    header = "JobID|Submit|Start|End|State\n"
    files: dict[str, str | bytes] = {
        f"jobs-{n}.csv": f"{header}{n}|2024-03-04T08:00:00|2024-03-04T08:00:00|2024-03-04T09:00:00|COMPLETED\n"
        for n in (1, 2)
    }
    columns = 'job_id = "JobID"\nsubmit_time = "Submit"\nstart_time = "Start"\nend_time = "End"\n'
    trace = mapped(f'[source]\ndelimiter = "|"\n[jobs]\nfiles = "jobs-*.csv"\n[jobs.columns]\n{columns}', files)
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["1", "2"]


def test_every_example_is_in_the_documentation() -> None:
    text = (EXAMPLES.parent / "mapping.md").read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.toml"):
        assert re.search(rf"mapping/{re.escape(path.name)}", text)


EVENTS = """
[jobs]
files = "jobs.csv"
[jobs.columns]
job_id = "id"
[node_events]
files = "events.csv"
time_format = "%Y-%m-%d %H:%M"
timezone = "Europe/Berlin"
[node_events.columns]
node_id = "host"
start_time = "since"
end_time = "until"
state = { column = "state", words = { down = ["DOWN", "FAIL"], drained = "DRAIN", maintenance = "MAINT" } }
cause = { column = "why", words = { hardware = ["Xid 79"] } }
source_cause = "why"
source = { value = "scontrol" }
"""
EVENTS_HEADER = "host,since,until,state,why\n"


def test_a_mapped_file_of_events_gives_node_events(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    lines = "n1,2024-03-04 08:00,2024-03-04 09:30,FAIL,Xid 79\nn1,2024-03-05 08:00,,DRAIN,\n"
    trace = mapped(EVENTS, {"jobs.csv": "id\n1\n", "events.csv": EVENTS_HEADER + lines})
    assert trace.tables == ("jobs", "node_events")
    assert rows(trace, "node_events") == [
        {
            "node_id": "n1",
            "start_time": "2024-03-04 07:00:00",
            "end_time": "2024-03-04 08:30:00",
            "state": "down",
            "cause": "hardware",
            "source_cause": "Xid 79",
            "source": "scontrol",
        },
        {"node_id": "n1", "start_time": "2024-03-05 07:00:00", "state": "drained", "source": "scontrol"},
    ]
    assert found_checks(trace) == {}


def test_an_event_without_usable_times_or_state_is_rejected(mapped: Mapped, rows: Rows) -> None:
    bad = [
        "n1,2024-03-04 08:00,2024-03-04 07:59,FAIL,",  # ends before it starts
        "n1,2024-03-04 08:00,1970-01-01 01:00,FAIL,",  # would never end
        "n1,1970-01-01 01:00,2024-03-04 08:00,FAIL,",
        "n1,2024-03-04 08:00,9999-12-31 00:00,FAIL,",
        "n1,2024-03-04 08:00,soon,FAIL,",
        "n1,2024-03-04 08:00,2024-10-27 02:30,FAIL,",  # one of two instants
        "n1,,2024-03-04 08:00,FAIL,",
        "n1,2024-03-04 08:00,,ALLOC,",
        ",2024-03-04 08:00,,FAIL,",
        "n1,2024-03-05 08:00,2024-03-06 08:00,FAIL,",  # the key of an earlier one
    ]
    good = [f"n1,2024-03-{day:02} 08:00,2024-03-{day:02} 09:00,FAIL," for day in range(5, 15)]
    text = EVENTS_HEADER + "\n".join([*good, *bad]) + "\n"
    trace = mapped(EVENTS, {"jobs.csv": "id\n1\n", "events.csv": text})
    assert len(rows(trace, "node_events")) == 10
    assert [(r["line"] - 11, r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (1, "until", "lies before the start"),
        (2, "until", "is no date of this log"),
        (3, "since", "is no date of this log"),
        (4, "until", "is no date of this log"),
        (5, "until", "is not a time like %Y-%m-%d %H:%M"),
        (6, "until", "names no instant"),
        (7, "since", "is missing, or names no instant"),
        (8, "state", "is not a listed word for state"),
        (9, "host", "is missing"),
        (10, "node_id, start_time, state, source", "repeats the key of an earlier record"),
    ]


@pytest.mark.parametrize("name", ["node_id", "start_time", "state"])
def test_node_events_need_a_node_a_start_and_a_state(mapped: Mapped, name: str) -> None:
    lines = [line for line in EVENTS.splitlines() if not line.startswith(f"{name} =")]
    with pytest.raises(UsageError, match=rf"line 10: node_events\.columns: does not say what {name} is"):
        mapped("\n".join(lines), {"jobs.csv": "id\n1\n", "events.csv": EVENTS_HEADER})


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
