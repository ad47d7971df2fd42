"""Shapes in which `sacct` prints the same jobs: other delimiters and times, no header, delimiters in names, JSON."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.formats.sacct_rows import JOB_ROW, sacct
from tracekit.errors import SourceError, TooManyRejectsError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.formats import _slurm_cells as text_of
from tracekit.ingest.formats._slurm_json import job_rows, looks_like_json
from tracekit.ingest.formats._slurm_text import divide, looks_like_sacct

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

TEXT = sacct({})["sacct.txt"]


def parted_by(delimiter: str, number: int = 7) -> str:
    """Return a dump with another delimiter, of a job whose name holds the usual one."""
    text = sacct({"JobID": str(number), "JobIDRaw": str(number), "JobName": "a\0b"})["sacct.txt"]
    return text.replace("|", delimiter).replace("\0", "|")


def test_any_delimiter_is_read_off_the_header(ingest: Ingest, rows: Rows) -> None:
    files = {f"dump-{n}.dat": parted_by(delimiter, n) for n, delimiter in enumerate("^;\t\x1f~", 1)}
    found = {row["job_id"]: row for row in rows(ingest(files), "jobs")}
    assert found == {name: JOB_ROW | {"job_id": name, "name": "a|b"} for name in (f"slurm/{n}" for n in range(1, 6))}


@pytest.mark.parametrize(
    "delimiter", ["^", *(pytest.param(delimiter, marks=pytest.mark.thorough) for delimiter in ";\t\x1f~")]
)
def test_any_delimiter_may_be_stated(ingest: Ingest, rows: Rows, delimiter: str) -> None:
    trace = ingest({"dump.dat": parted_by(delimiter)}, options={"delimiter": delimiter})
    assert rows(trace, "jobs") == [JOB_ROW | {"name": "a|b"}]


def saved(delimiter: str, quoting: Literal[0, 1], *jobs: dict[str, str], index: bool = False) -> str:
    """Return a sacct table as another program saves it."""
    lines = [line.split("|") for line in sacct(*jobs)["sacct.txt"].splitlines()]
    if index:
        lines = [["" if not number else str(number - 1), *line] for number, line in enumerate(lines)]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerows(lines)
    return out.getvalue()


def test_a_table_that_pandas_or_excel_saved_is_read(ingest: Ingest, rows: Rows) -> None:
    ways: list[tuple[str, Literal[0, 1], bool]] = [
        (",", csv.QUOTE_MINIMAL, False),
        (",", csv.QUOTE_MINIMAL, True),
        (",", csv.QUOTE_ALL, False),
        (";", csv.QUOTE_MINIMAL, False),
        (";", csv.QUOTE_ALL, True),
        ("\t", csv.QUOTE_ALL, False),
    ]
    files: dict[str, str] = {}
    expected: dict[str, object] = {}
    for number, (delimiter, quoting, index) in enumerate(ways, 1):
        names = ["train", f'say "hi"{delimiter} all']
        ids = [f"{number}{n}" for n in (1, 2)]
        jobs = ({"JobID": id_, "JobIDRaw": id_, "JobName": name} for id_, name in zip(ids, names, strict=True))
        files[f"jobs-{number}.csv"] = saved(delimiter, quoting, *jobs, index=index)
        for id_, name in zip(ids, names, strict=True):
            expected[f"slurm/{id_}"] = JOB_ROW | {"job_id": f"slurm/{id_}", "name": name}
    trace = ingest(files)
    assert {row["job_id"]: row for row in rows(trace, "jobs")} == expected
    assert {f.path: (f.records, f.rejected) for f in trace.manifest.files} == dict.fromkeys(files, (2, 0))


def test_quotes_of_sacct_itself_are_letters(ingest: Ingest, rows: Rows) -> None:
    names = ['"', 'a "b" c', '"d"e', 'f"']
    files: dict[str, str] = {}
    expected: dict[str, object] = {}
    for number, delimiter in enumerate("|;\t^", 1):
        named = {f"{number}{n}": name for n, name in enumerate(names)}
        jobs = ({"JobID": id_, "JobIDRaw": id_, "JobName": name} for id_, name in named.items())
        files[f"dump-{number}.dat"] = sacct(*jobs)["sacct.txt"].replace("|", delimiter)
        expected |= {f"slurm/{id_}": name for id_, name in named.items()}
    assert {row["job_id"]: row["name"] for row in rows(ingest(files), "jobs")} == expected


def test_a_damaged_line_of_a_saved_table_costs_itself(ingest: Ingest, rows: Rows) -> None:
    first, second, *_ = saved(",", csv.QUOTE_MINIMAL, {}).splitlines()
    trace = ingest({"sacct.csv": "\n".join([first, second, second + ",more", second.replace('"', "", 1), ""])},
                   max_reject_share=0.9)  # fmt: skip
    assert rows(trace, "jobs") == [JOB_ROW]
    assert [r["line"] for r in rows(trace, "rejects")] == [3, 4]


def test_the_table_for_people_is_refused_with_the_cure_first(ingest: Ingest) -> None:
    wide = (
        "JobID           JobName  Partition      State              Submit               Start                 End\n"
        "------------ ---------- ---------- ---------- ------------------- ------------------- -------------------\n"
        "1001              train        gpu CANCELLED+ 2025-03-03T08:00:00 2025-03-03T08:00:00 2025-03-03T15:00:00\n"
    )
    for name in ("sacct.txt", "jobs.dat"):
        with pytest.raises(SourceError, match=r"line 1: export it again with --parsable2: .*; for example: sacct"):
            ingest({name: wide})


@pytest.mark.parametrize("text", ["ab", "||", "x", " ", "§", '"'])
def test_a_delimiter_that_cannot_be_one_is_refused(ingest: Ingest, text: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"--option delimiter: .* is not a delimiter; use the same single character.* in sacct --delimiter",
    ):
        ingest({"sacct.txt": TEXT}, options={"delimiter": text})


def test_several_characters_between_columns_are_reported(ingest: Ingest) -> None:
    with pytest.raises(
        SourceError, match=r"its column delimiter is '@@', which is not a single character.*a single character in sacct"
    ):
        ingest({"sacct.txt": TEXT.replace("|", "@@")})


def test_the_option_names_the_columns_of_a_dump_without_header(ingest: Ingest, rows: Rows) -> None:
    def dump(*ids: str, trailing: bool = False) -> tuple[str, str]:
        text = sacct(*({"JobID": id_, "JobIDRaw": id_} for id_ in ids), trailing=trailing)["sacct.txt"]
        header, _, lines = text.partition("\n")
        return header, lines

    header, lines = dump("1", "2")
    headed = "\n".join(dump("5"))  # a header line is believed
    files = {"sacct-1.txt": lines, "sacct-2.txt": dump("3", "4", trailing=True)[1], "sacct-3.txt": headed}
    trace = ingest(files, options={"fields": header.replace("|", "%20, ")})
    assert rows(trace, "jobs") == [JOB_ROW | {"job_id": f"slurm/{n}"} for n in range(1, 6)]
    accounts = {account.path: (account.records, account.rejected) for account in trace.manifest.files}
    assert accounts == {"sacct-1.txt": (2, 0), "sacct-2.txt": (2, 0), "sacct-3.txt": (1, 0)}


def test_a_dump_without_header_is_recognized_and_the_cure_named(ingest: Ingest) -> None:
    lines = TEXT.partition("\n")[2]
    assert looks_like_sacct(lines.encode())
    assert not looks_like_sacct(b"7|8|COMPLETED\n")
    with pytest.raises(SourceError, match=r"has no header line .*--option fields=JobID,"):
        ingest({"dump.dat": lines})
    with pytest.raises(SourceError, match="the column 'End' is missing"):
        ingest({"dump.dat": lines}, options={"fields": "JobID,Submit,Start,State"})


# The job's four times, 2024-03-04 08:00 in UTC, as SLURM_TIME_FORMAT lets sacct write them.
TIMES = {
    "%s": ("1709539200", "1709539204", "1709539210", "1709542810"),
    "%FT%T%z": (
        "2024-03-04T09:00:00+0100",
        "2024-03-04T03:00:04-05:00",
        "2024-03-04T13:30:10+0530",
        "2024-03-04T09:00:10Z",
    ),
}


def test_instants_need_no_zone(ingest: Ingest, rows: Rows) -> None:
    times = (dict(zip(("Submit", "Eligible", "Start", "End"), times, strict=True)) for times in TIMES.values())
    files = {
        f"{number}.txt": sacct({"JobID": str(number), "JobIDRaw": str(number), **changes})["sacct.txt"]
        for number, changes in enumerate(times)
    }
    for zone in ("UTC", "America/New_York"):
        trace = ingest(files, options={"timezone": zone})
        found = rows(trace, "jobs")
        assert dict(zip(TIMES, found, strict=True)) == {
            form: JOB_ROW | {"job_id": f"slurm/{number}"} for number, form in enumerate(TIMES)
        }
        assert not any("zone" in note for note in trace.manifest.notes)
        assert trace.timezone == zone


def test_instants_and_wall_clocks_may_stand_side_by_side(ingest: Ingest, rows: Rows) -> None:
    # The same run, once as wall clock of New York while it ran and once as instants after it.
    early = {"Submit": "2024-03-04T03:00:00", "Start": "2024-03-04T03:00:10", "Eligible": "", "End": "Unknown"}
    times = dict(zip(("Submit", "Eligible", "Start", "End"), TIMES["%s"], strict=True))
    trace = ingest(sacct(early | {"State": "RUNNING"}, times), options={"timezone": "America/New_York"})
    assert rows(trace, "jobs") == [JOB_ROW]


def test_what_is_no_time_is_rejected(ingest: Ingest, rows: Rows) -> None:
    texts = ["99999999999999", "2024-03-04T25:00:00+0100", "Ystday 12:00", "-5"]
    jobs = ({"JobID": str(n), "JobIDRaw": str(n), "Start": text} for n, text in enumerate(texts, 1))
    trace = ingest(sacct({"JobID": "9", "JobIDRaw": "9"}, *jobs), max_reject_share=0.9)
    assert [(row["column"], row["line"]) for row in rows(trace, "rejects")] == [("Start", n) for n in range(3, 7)]


NAMES = ["jobid", "comment", "constraints", "submit", "jobname", "elapsed", "submitline", "suspended", "workdir"]
TYPED = {"jobid": "7", "submit": "2024-03-04T08:00:00", "elapsed": "01:00:00", "suspended": "00:00:00"}


def pieces(**cells: str) -> list[str]:
    return "|".join({**dict.fromkeys(NAMES, "x"), **TYPED, **cells}[name] for name in NAMES).split("|")


def test_typed_columns_part_the_free_ones() -> None:
    read = {0, 3, 4, 5, 6, 7}
    line = {"comment": "a|b", "jobname": "c|d|e", "submitline": "sh | sh", "workdir": "/|"}
    assert divide(pieces(**line), NAMES, read, "|") == [
        "7", "a", "b|x", TYPED["submit"], "c|d|e", "01:00:00", "sh | sh",
        "00:00:00", "/|",
    ]  # fmt: skip
    # Two neighbours may share what they hold in any way, as long as neither is read.
    assert divide(pieces(**line), NAMES, read | {1}, "|") is None
    # A cell that looks like the column beside it leaves two ways.
    assert divide(pieces(jobname="a|01:00:00|b"), NAMES, read, "|") is None
    assert divide(pieces(submit="never", jobname="a|b"), NAMES, read, "|") is None
    assert divide(["7"] * 4000, NAMES, read, "|") is None


@given(st.lists(st.text(st.sampled_from("ab|: /0"), max_size=8), min_size=3, max_size=3))
def test_a_line_is_divided_as_it_was_made_or_not_at_all(texts: list[str]) -> None:
    names = ["jobid", "jobname", "submit", "comment", "state", "workdir"]
    cells = ["7", texts[0], "2024-03-04T08:00:00", texts[1], "COMPLETED", texts[2]]
    assert divide("|".join(cells).split("|"), names, set(range(6)), "|") in (cells, None)


def test_delimiters_in_names_and_commands_are_put_right_or_the_cure_is_named(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    held = {"JobName": "a|b", "Comment": "c|d", "SubmitLine": "sbatch --wrap 'env | grep CUDA'", "WorkDir": "/x|y"}
    columns = ["JobID", "Comment", "JobIDRaw", "JobName", "Submit", "SubmitLine", "Start", "WorkDir", "End", "State"]
    sure = {**held, "JobID": "7", "JobIDRaw": "7"}
    doubt = {**held, "JobID": "8", "JobIDRaw": "8", "Comment": "1|2|3"}
    trace = ingest(sacct(sure, doubt, columns=columns))
    assert [(row["job_id"], row["name"]) for row in rows(trace, "jobs")] == [("slurm/7", "a|b")]
    assert found_checks(trace)["delimiter_in_name"] == (1, None)
    (reject,) = rows(trace, "rejects")
    assert reject["reason"] == (
        "expected 10 fields, found 15: a name or a command contains the delimiter '|', but we cannot tell which one; "
        "export again with sacct --delimiter and a character that no name contains"
    )


def wrapped(value: object) -> object:
    """Return a JSON value with its numbers as later versions of Slurm wrap them."""
    if isinstance(value, dict):
        return {key: wrapped(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [wrapped(entry) for entry in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return {"set": True, "infinite": False, "number": value}
    return value


def tres(**counts: int) -> list[dict[str, Any]]:
    kinds = {"gpu": ("gres", "gpu"), "a100": ("gres", "gpu:a100")}
    return [
        {"type": kinds.get(name, (name, None))[0], "name": kinds.get(name, (name, None))[1], "id": 1, "count": count}
        for name, count in counts.items()
    ]


STEP: dict[str, Any] = {
    "time": {
        "elapsed": 3600,
        "start": 1709539210,
        "end": 1709542810,
        "suspended": 0,
        "total": {"seconds": 5, "microseconds": 250_000},
    },
    "state": "COMPLETED",
    "step": {"job_id": 7, "id": "batch"},
    "tasks": {"count": 2},
    "tres": {
        "allocated": tres(cpu=64),
        "requested": {"max": tres(mem=3 << 30), "average": tres(mem=2 << 30), "total": tres(mem=4 << 30)},
    },
}
OBJECT: dict[str, Any] = {
    "job_id": 7,
    "cluster": None,
    "array": {"job_id": 0, "task_id": None, "task": None},
    "het": {"job_id": 0, "job_offset": None},
    "association": {"user": "u1"},
    "user": "u1",
    "account": "vision",
    "partition": "long",
    "qos": "normal",
    "name": "train",
    "priority": 4000,
    "allocation_nodes": 2,
    "nodes": "gpu[01-02]",
    "flags": ["CLEAR_SCHEDULING", "STARTED_ON_BACKFILL"],
    "state": {"current": "COMPLETED", "reason": "AssocGrpGRES"},
    "time": {
        "elapsed": 3600,
        "submission": 1709539200,
        "eligible": 1709539204,
        "start": 1709539210,
        "end": 1709542810,
        "suspended": 0,
        "limit": 90,
        "total": {"seconds": 0, "microseconds": 0},
    },
    "tres": {
        "allocated": tres(cpu=64, mem=512 * 1024, energy=0, node=2, gpu=8, a100=8),
        "requested": tres(cpu=64, gpu=8),
    },
    "steps": [STEP],
}
OBJECT_ROW = JOB_ROW | {"time_limit_s": 5400.0, "wait_reason": "AssocGrpGRES", "started_by": "backfill"}


def document(*jobs: object, behind: bool = False) -> str:
    meta = {"plugin": {"type": "openapi/dbv0.0.38"}, "jobs": [1]}
    parts = {"meta": meta, "errors": [], "jobs": list(jobs)} if not behind else {"jobs": list(jobs), "meta": meta}
    return json.dumps(parts)


def exported(number: int, *, newer: bool) -> dict[str, Any]:
    """Return the job with this id, as an older or a newer version of Slurm exports it."""
    job: dict[str, Any] = {**OBJECT, "job_id": number, "steps": [{**STEP, "step": {"job_id": number, "id": "batch"}}]}
    if newer:
        job = wrapped(job)  # type: ignore[assignment]  # a dict stays one
        job["state"] = {"current": ["COMPLETED"], "reason": "AssocGrpGRES"}
        job["steps"][0]["state"] = ["COMPLETED"]
        job["steps"][0]["step"] = {"id": f"{number}.batch"}
    return job


def test_json_gives_the_rows_of_the_text(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    versions = list(enumerate([(False, False), (False, True), (True, False), (True, True)], 1))
    files = {
        f"newer={newer},behind={behind}.dat": document(exported(number, newer=newer), behind=behind)
        for number, (newer, behind) in versions
    }
    trace = ingest(files)
    own = {"TimelimitRaw": "90", "Timelimit": "", "Reason": "AssocGrpGRES", "Flags": "SchedBackfill,StartReceived"}
    step = {"MaxRSS": "3G", "NTasks": "2", "TotalCPU": "00:05.250"}
    lines = (
        {"JobID": id_, "JobIDRaw": id_, **cells}
        for number, _ in versions
        for id_, cells in ((str(number), own), (f"{number}.batch", step))
    )
    same = ingest(sacct(*lines))
    ids = [f"slurm/{number}" for number, _ in versions]
    assert rows(trace, "jobs") == rows(same, "jobs") == [OBJECT_ROW | {"job_id": id_} for id_ in ids]
    for table in ("attempts", "placements", "nodes", "job_usage"):
        assert rows(trace, table) == rows(same, table), table
    use = {"instance": "batch", "memory_gib": 3.0, "cpu_s": 5.25}
    assert rows(trace, "job_usage") == [{"job_id": id_, **use} for id_ in ids]
    assert found_checks(trace) == {}
    assert not any("zone" in note for note in trace.manifest.notes)
    accounts = {account.path: (account.records, account.kept) for account in trace.manifest.files}
    assert accounts == dict.fromkeys(files, (2, 2))


@pytest.mark.parametrize(
    ("changes", "name", "raw"),
    [
        ({}, "7", "7"),
        ({"array": {"job_id": 5, "task_id": 3, "task": None}}, "5_3", "7"),
        ({"array": {"job_id": 5, "task_id": {"set": True, "infinite": False, "number": 0}}}, "5_0", "7"),
        ({"array": {"job_id": 7, "task_id": {"set": False, "number": 0}, "task": "1-8,10%4"}}, "7_[1-8,10%4]", "7"),
        ({"het": {"job_id": 5, "job_offset": 2}}, "5+2", "7"),
        ({"het": {"job_id": 5, "job_offset": {"set": True, "number": 0}}}, "5+0", "7"),
    ],
)
def test_ids_are_those_that_the_text_has(changes: dict[str, Any], name: str, raw: str) -> None:
    own, step = job_rows({**OBJECT, **changes})
    assert (own["JobID"], own["JobIDRaw"]) == (name, raw)
    assert (step["JobID"], step["JobIDRaw"]) == (f"{name}.batch", f"{raw}.batch")


@pytest.mark.parametrize(
    ("words", "state"),
    [("COMPLETED", "COMPLETED"), (["CANCELLED"], "CANCELLED"), (["PENDING", "RESIZING"], "RESIZING"), ([], None)],
)
def test_of_several_words_for_a_state_the_one_counts_that_sacct_prints(words: object, state: str | None) -> None:
    assert job_rows({**OBJECT, "state": {"current": words}})[0]["State"] == state


def test_what_is_not_set_is_unknown(ingest: Ingest, rows: Rows) -> None:
    unset = {"set": False, "infinite": False, "number": 0}
    times = {**OBJECT["time"], "start": unset, "end": 0, "limit": {"set": True, "infinite": True, "number": 0}}
    waiting = {**OBJECT, "time": times, "state": {"current": ["PENDING"]}, "nodes": "None assigned", "steps": []}
    (row,) = rows(ingest({"sacct.json": document({**waiting, "tres": {"requested": tres(gpu=8)}})}), "jobs")
    assert row["status"] == "pending"
    assert row["gpu_count"] == 8.0
    assert {"start_time", "end_time", "time_limit_s"}.isdisjoint(row)


def test_damaged_json_costs_its_jobs_only(ingest: Ingest, rows: Rows) -> None:
    text = document(OBJECT, {**OBJECT, "job_id": 8}, {**OBJECT, "job_id": "total", "steps": []})
    text = text.replace('"job_id": 8', '"job_id": eight')
    trace = ingest({"sacct.json": text})
    assert [row["job_id"] for row in rows(trace, "jobs")] == ["slurm/7"]
    reasons = [(row.get("column"), row["reason"][:11]) for row in rows(trace, "rejects")]
    assert sorted(reasons, key=str) == [("JobID", "is not a jo"), (None, "is not JSON")]
    for damaged, message in (
        (text[:-1], "the file is truncated"),
        (text[: len(text) // 2], "the file is truncated"),
        ('{"meta": {"jobs": []}}', "has no list 'jobs'"),
    ):
        with pytest.raises(SourceError, match=message):
            ingest({"sacct.json": damaged})
    with pytest.raises(TooManyRejectsError, match="contains no records"):
        ingest({"sacct.json": document()})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["set", "infinite", "number", "time", "id"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.sampled_from(sorted(OBJECT)),
)
def test_no_value_breaks_the_reader_of_json(value: object, key: str) -> None:
    assert all(
        cell is None or isinstance(cell, str) for row in job_rows({**OBJECT, key: value}) for cell in row.values()
    )


def test_json_is_distinguished_from_that_of_squeue() -> None:
    assert looks_like_json(document(OBJECT).encode())
    assert not looks_like_json(b'{"jobs": [{"account": "x", "job_id": 1, "submit_time": 5}]}')
    assert not looks_like_json(b'[{"jobs": [], "association": 1}]')


def test_dumps_of_sacctmgr_are_not_taken_for_those_of_sacct(ingest: Ingest) -> None:
    trace = ingest({"sacct.txt": TEXT, "sacctmgr-event.psv": "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|\n"})
    assert trace.manifest.format == "slurm"
    assert [(account.path, account.records) for account in trace.manifest.files] == [
        ("sacct.txt", 1),
        ("sacctmgr-event.psv", 0),
    ]


@pytest.mark.parametrize(
    ("line", "per_node", "in_all"),
    [
        ("sbatch --gres=gpu:4 -N 2 x.sh", 4.0, None),
        ("sbatch --gres gpu:a100:2,nvme:1 x.sh", 2.0, None),
        ("sbatch --gres=gres/gpu:3", 3.0, None),
        ("sbatch --gpus-per-node=a100:8", 8.0, None),
        ("srun --gpus 7 x", None, 7.0),
        ("srun -G7 x", None, 7.0),
        ("sbatch --gpus=a100:6 x", None, 6.0),
        ("sbatch -J x --wrap 'srun --gres=gpu:1 y'", None, None),
        ("sbatch --gres=none --gpus-per-node=", None, None),
        ("sbatch --gres=gpu:many", 1.0, None),
    ],
)
def test_requests_in_a_command(line: str, per_node: float | None, in_all: float | None) -> None:
    assert text_of.request(line)[:2] == (per_node, in_all)


@pytest.fixture(scope="module")
def real(real_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trace]:
    """Return a function that ingests one of the dumps of a real Slurm."""
    dumps = real_data("slurm_services")
    folder = tmp_path_factory.mktemp("real")
    done: dict[str, Trace] = {}

    def read(name: str) -> Trace:
        if name not in done:
            done[name] = ingest_logs(dumps / name, folder / name)
        return done[name]

    return read


def test_a_real_pair_of_text_and_json_gives_the_same_rows(real: Callable[[str], Trace]) -> None:
    text, parsed = real("sacct-more.txt"), real("sacct.json.gz")
    for table in ("jobs", "attempts", "placements", "nodes"):
        assert text.scan(table).collect().equals(parsed.scan(table).collect()), table
    # Steps of which only the JSON has the processor time.
    use = parsed.scan("job_usage").filter(pl.col("memory_gib").is_not_null()).drop("cpu_s").collect()
    assert use.height == 150
    assert use.equals(text.scan("job_usage").drop("cpu_s").collect())
    assert [trace.manifest.records for trace in (text, parsed)] == [333, 333]


def test_every_column_of_a_real_dump_is_read_though_names_hold_the_delimiter(
    real: Callable[[str], Trace], real_data: Callable[[str], Path]
) -> None:
    trace = real("sacct-all.txt.gz")
    assert (trace.manifest.records, trace.manifest.rejected) == (333, 0)
    assert trace.manifest.checks["delimiter_in_name"].count == 3
    names = trace.scan("jobs").filter(pl.col("job_id") == "tk/30").select("name").collect().item()
    assert names == "a|b, `c` é"
    # The processor time of each job of one run is what its own row states.
    lines = gzip.decompress(real_data("slurm_services/sacct-all.txt.gz").read_bytes()).decode().splitlines()
    header = lines[0].split("|")
    raw, total = header.index("JobIDRaw"), header.index("TotalCPU")
    cells = [line.split("|") for line in lines[1:] if line.count("|") == len(header) - 1]
    stated: dict[str, list[float]] = {}
    for row in cells:
        if row[raw].isdecimal():
            minutes, seconds = row[total].split(":")[-2:]
            stated.setdefault(row[raw], []).append(int(minutes) * 60 + float(seconds))
    sums = dict(trace.scan("job_usage").group_by("job_id").agg(pl.col("cpu_s").sum()).collect().iter_rows())
    runs = dict(trace.scan("jobs").select("job_id", "attempt_count").collect().iter_rows())
    once = [name for name, times in stated.items() if len(times) == 1 and runs.get(f"tk/{name}") == 1]
    assert len(once) > 80
    for name in once:
        assert sums.get(f"tk/{name}", 0.0) == pytest.approx(stated[name][0], abs=4e-3), name


def test_real_resizes_are_attempts_that_do_not_overlap(real: Callable[[str], Trace]) -> None:
    runs = real("sacct-more.txt").scan("attempts").filter(pl.col("job_id").is_in(["tk/129", "tk/155"])).collect()
    assert runs.select("job_id", "run_s", "gpu_count", "wait_s").rows() == [
        ("tk/129", 24.0, 2.0, 58.0),
        ("tk/129", 1.0, 1.0, 0.0),
        ("tk/155", 3.0, 2.0, 1.0),
        ("tk/155", 11.0, 1.0, 0.0),
    ]
