"""What becomes of hostile input, kind by kind, in every reader that can meet it: kept, set aside, or one error."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tracekit.errors import SourceError, TooManyRejectsError, UsageError
from tracekit.ingest import records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Run = Callable[["Reader", str | bytes], "Outcome"]


class Reader(NamedTuple):
    """A reader and how to write its log."""

    format: str
    path: str
    """The file that the tests damage."""
    header: str
    record: str
    """One record, with places for {id}, {text}, {count} and {time}."""
    shown: tuple[str, str]
    """Table and column of the Trace in which {text} arrives."""
    time: str
    """A good time."""
    time_column: str | None
    count_column: str | None
    """What a reject names."""
    whole: bool = True
    """Whether {count} is a whole number."""
    most: str = "1e+09"
    """What {count} may not exceed."""
    delimiter: str = ","
    beside: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    mapping: str = ""


class Outcome(NamedTuple):
    records: int
    kept: int
    rejects: list[tuple[int, str | None, str]]
    """Line, column, reason."""
    texts: list[str]
    times: list[str]
    """In order; unknown ones are left out."""
    checks: dict[str, int]


_MAPPED = """
[source]
timezone = "America/Los_Angeles"
time_format = "%Y-%m-%d %H:%M:%S"
[jobs.columns]
job_id = "id"
user = "who"
gpu_count = "gpus"
submit_time = "submitted"
"""
_SAMPLED = """
[source]
timezone = "America/Los_Angeles"
time_format = "%Y-%m-%d %H:%M:%S"
[telemetry.host]
layout = "row"
time = "time"
node = "node"
host_metrics = { cpu_pct = "cpu" }
"""
_PHILLY = (
    '{{"status": "Pass", "vc": "v", "jobid": "{id}", "attempts": [{{"start_time": "{time}", "end_time": "{time}", '
    '"detail": [{{"ip": "m1", "gpus": ["gpu{count}"]}}]}}], "submitted_time": "{time}", "user": "{text}"}}'
)
_PHILLY_JOB = "[" + _PHILLY.format(id="j", text="u", count=1, time="2017-10-03 08:00:00") + "]"
_GPUS = ",".join(f"gpu{i}_util" for i in range(8))

LINES = {
    "helios": Reader(
        "helios",
        "Earth/cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        "{id},{text},vcA,{count},16,1,COMPLETED,{time},{time},{time},0,0",
        ("jobs", "user"),
        "2020-04-02 08:00:00",
        "submit_time",
        "gpu_num",
    ),
    "acme": Reader(
        "acme",
        "trace_seren.csv",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time",
        "{id},{text},1,{count},16,Other,COMPLETED,{time}+00:00,{time}+00:00,{time}+00:00,0,0,0",
        ("jobs", "user"),
        "2023-05-02 14:25:07",
        "submit_time",
        "gpu_num",
    ),
    "slurm": Reader(
        "slurm",
        "sacct.txt",
        "JobID|Submit|Start|End|State|User|NNodes|ReqTRES",
        "{id}|{time}|{time}|{time}|COMPLETED|{text}|1|gres/gpu={count}",
        ("jobs", "user"),
        "2024-03-04T04:04:42",
        "Submit",
        "ReqTRES",
        delimiter="|",
        options=(("timezone", "America/Los_Angeles"),),
    ),
    "mapped": Reader(
        "csv",
        "jobs.csv",
        "id,who,gpus,submitted",
        "{id},{text},{count},{time}",
        ("jobs", "user"),
        "2017-10-03 08:00:00",
        "submitted",
        "gpus",
        whole=False,
        most="1e+15",
        mapping=_MAPPED,
    ),
    "telemetry": Reader(
        "csv",
        "samples.csv",
        "time,node,cpu",
        "{time},{text},{id}",
        ("host_utilization", "node_id"),
        "2017-10-03 08:00:00",
        "time",
        None,
        mapping=_SAMPLED,
    ),
    "philly-gpu": Reader(
        "philly",
        "cluster_gpu_util",
        f"time,machineId,{_GPUS}",
        "{time} PDT,{text},{id},,,,,,,,",
        ("gpu_utilization", "node_id"),
        "2017-10-03 08:00:00",
        "time",
        None,
        beside=(("cluster_job_log", _PHILLY_JOB),),
    ),
    "alibaba-openb": Reader(
        "alibaba-openb",
        "openb_pod_list_default.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "p{id},1000,1024,{count},1000,{text},LS,Succeeded,{time},5000,4000",
        ("jobs", "gpu_model"),
        "100",
        "creation_time",
        "num_gpu",
    ),
    "alibaba-dlrm": Reader(
        "alibaba-dlrm",
        "disaggregated_DLRM_trace.csv",
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time",
        "i{id},CN,{text},14,14,{count},{count},30,30,112.0,112.0,512.0,700.0,2,{time},8123.0,18123.0",
        ("jobs", "group"),
        "100.0",
        "creation_time",
        "gpu_request",
        whole=False,
    ),
    "alibaba-spot": Reader(
        "alibaba-spot",
        "job_info_df.csv",
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type",
        "j{id},{text},H800,12,{count},1,{time},716,Spot",
        ("jobs", "vc"),
        "100",
        "submit_time",
        "gpu_request",
        whole=False,
    ),
    "alibaba-pai": Reader(
        "alibaba-pai",
        "pai_task_table.csv",
        "",
        "j{id},{text},{count},Terminated,{time},2000.0,600.0,29.3,50.0,T4",
        ("placements", "task"),
        "100.0",
        "start_time",
        "inst_num",
        whole=False,
        beside=(
            ("pai_job_table.csv", "".join(f"j{i},i{i},u,Terminated,100.0,2000.0\n" for i in (1, 2, 3))),
            ("pai_instance_table.csv", "".join(f"j{i},w,n{i},k{i},i{i},Terminated,100.0,9.0,m\n" for i in (1, 2, 3))),
        ),
    ),
}
"""Readers of delimited lines. All but Slurm's know quotes; the names of Philly's machines need none."""
CLOCKS = [name for name, reader in LINES.items() if ":" in reader.time]
SECONDS = [name for name in LINES if name not in CLOCKS]
COUNTS = [name for name, reader in LINES.items() if reader.count_column]
TEXTS = [name for name in LINES if name != "alibaba-pai"]
"""Readers whose {text} arrives in the Trace as it stands."""
QUOTED = [name for name in TEXTS if name not in {"slurm", "philly-gpu"}]
HEADED = [name for name, reader in LINES.items() if reader.header]

JSON_LINES = Reader(
    "csv",
    "jobs.jsonl",
    "",
    '{{"id": "{id}", "who": "{text}", "gpus": "{count}", "submitted": "{time}"}}',
    ("jobs", "user"),
    "2017-10-03 08:00:00",
    "submitted",
    "gpus",
    whole=False,
    most="1e+15",
    mapping=_MAPPED,
)
JOB_LOG = Reader(
    "philly",
    "cluster_job_log",
    "",
    _PHILLY,
    ("jobs", "user"),
    "2017-10-03 08:00:00",
    "submitted_time",
    "attempts[0].detail.gpus",
)
SWF = Reader(
    "swf",
    "log.swf",
    "; Version: 2.2",
    "{id} {time} 10 100 {count} -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 {text}",
    ("jobs", "job_id"),
    "100",
    "submit",
    "processors",
    whole=False,
    delimiter=" ",
)


def log(reader: Reader, *changes: dict[str, Any], end: str = "\n") -> str:
    """Return a log of one record for each change; {} is a good record."""
    lines = []
    for number, change in enumerate(changes, 1):
        good = {"id": number, "text": "-1" if reader is SWF else f"u{number}", "count": 1, "time": reader.time}
        lines.append(reader.record.format(**good | change))
    if reader is JOB_LOG:
        return f"[{f',{end}'.join(lines)}]{end}"
    return end.join([*([reader.header] if reader.header else []), *lines, ""])


def second(reader: Reader) -> int:
    """Return the line on which the second record of a log starts."""
    return 3 if reader.header else 2


@pytest.fixture
def run(tmp_path: Path, ingest: Callable[..., Trace], rows: Callable[[Trace, str], list[dict[str, Any]]]) -> Run:
    """Return a function that ingests a log with the files beside it, and tells what became of it."""

    def read(reader: Reader, content: str | bytes) -> Outcome:
        options = dict(reader.options)
        if reader.mapping:
            (tmp_path / "map.toml").write_text(reader.mapping)
            options["map"] = str(tmp_path / "map.toml")
        files = {**dict(reader.beside), reader.path: content}
        # A tiny log with one bad record is mostly fault.
        trace = ingest(files, format_name=reader.format, options=options, max_reject_share=0.9)
        (account,) = (file for file in trace.manifest.files if file.path == reader.path)
        table, column = reader.shown
        shown = rows(trace, table)
        return Outcome(
            account.records,
            account.kept,
            [(r["line"], r.get("column"), r["reason"]) for r in rows(trace, "rejects")],
            sorted(row[column] for row in shown if column in row),
            sorted(row["submit_time"] for row in shown if "submit_time" in row),
            {name: check.count for name, check in trace.manifest.checks.items() if check.count},
        )

    return read


@pytest.fixture
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set records of more than 1000 bytes aside."""
    # These take the limit as they are imported, which must not be the one of this test.
    for module in ("json_array", "mapping.blocks", "formats._lsf_history"):
        importlib.import_module(f"tracekit.ingest.{module}")
    monkeypatch.setattr(records, "MAX_RECORD", 1_000)


@pytest.mark.usefixtures("short_records")
@pytest.mark.parametrize("name", LINES)
def test_a_record_of_wrong_bytes_is_set_aside_alone(run: Run, name: str) -> None:
    reader = LINES[name]
    texts = ["René", "LATIN", "u3", "a\0b", "u5", "x" * 2_000, "u7"]
    content = log(reader, *({"text": text} for text in texts)).encode()
    first = second(reader) - 1
    outcome = run(reader, content.replace(b"LATIN", "René".encode("latin-1")))
    assert outcome[:3] == (
        7,
        4,
        [
            (first + 1, None, "is not valid UTF-8"),
            (first + 3, None, "contains a NUL byte"),
            (first + 5, None, "longer than 1000 bytes"),
        ],
    )
    if name in TEXTS:
        assert outcome.texts == ["René", "u3", "u5", "u7"]


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (JSON_LINES, "is not JSON"),
        (JOB_LOG, "is not valid JSON: str is not valid UTF-8: surrogates not allowed"),
        (SWF, "is not valid UTF-8"),
    ],
    ids=["jsonl", "philly", "swf"],
)
def test_a_record_in_another_encoding_is_set_aside_by_the_other_readers(run: Run, reader: Reader, reason: str) -> None:
    content = log(reader, {}, {"text": "LATIN"}, {}).encode().replace(b"LATIN", "René".encode("latin-1"))
    assert run(reader, content)[:3] == (3, 2, [(second(reader), None, reason)])


EVERY = {**LINES, "jsonl": JSON_LINES, "philly": JOB_LOG, "swf": SWF}


@pytest.mark.parametrize("reader", EVERY.values(), ids=EVERY)
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(run: Run, reader: Reader) -> None:
    plain = run(reader, log(reader, {}, {}, {}))
    assert plain[:3] == (3, 3, [])
    assert run(reader, "\ufeff" + log(reader, {}, {}, {}, end="\r\n")) == plain


@pytest.mark.thorough
@pytest.mark.parametrize("reader", EVERY.values(), ids=EVERY)
def test_a_byte_order_mark_or_windows_line_ends_alone_change_nothing(run: Run, reader: Reader) -> None:
    plain = run(reader, log(reader, {}, {}, {}))
    assert run(reader, "\ufeff" + log(reader, {}, {}, {})) == plain
    assert run(reader, log(reader, {}, {}, {}, end="\r\n")) == plain


@pytest.mark.parametrize("reader", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize(("codec", "mark"), [("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")])
def test_utf_16_is_refused_with_the_way_out(run: Run, reader: Reader, codec: str, mark: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        run(reader, mark + log(reader, {}, {}).encode(codec))
    assert str(caught.value) == f"{reader.path}: is UTF-16 text; convert it with 'iconv -f UTF-16 -t UTF-8'"


@pytest.mark.parametrize(
    "reader", [r for r in EVERY.values() if r is not JOB_LOG], ids=[n for n in EVERY if n != "philly"]
)
def test_lone_carriage_returns_end_no_lines(run: Run, reader: Reader) -> None:
    with pytest.raises((SourceError, UsageError)) as caught:
        run(reader, log(reader, {}, {}, {}, end="\r"))
    assert str(caught.value).isprintable()


def test_between_json_objects_carriage_returns_are_blanks(run: Run) -> None:
    assert run(JOB_LOG, log(JOB_LOG, {}, {}, {}, end="\r"))[:3] == (3, 3, [])


@pytest.mark.parametrize(
    ("reader", "column", "reason"),
    [
        (JSON_LINES, None, "is not JSON"),
        (JOB_LOG, None, "is not valid JSON: unexpected control character in string"),
    ],
    ids=["jsonl", "philly"],
)
def test_a_nul_byte_costs_its_record_in_the_other_readers(
    run: Run, reader: Reader, column: str | None, reason: str
) -> None:
    outcome = run(reader, log(reader, {}, {"text": "1\0"}, {}))
    assert outcome[:3] == (3, 2, [(second(reader), column, reason)])


def test_a_nul_byte_costs_its_cell_in_a_workload(run: Run) -> None:
    outcome = run(SWF, log(SWF, {}, {"text": "1\0"}, {}))
    assert (outcome[:3], outcome.checks["unreadable_think_time"]) == ((3, 3, []), 1)


@pytest.mark.parametrize("name", QUOTED)
def test_a_quoted_field_may_hold_anything(run: Run, name: str) -> None:
    reader = LINES[name]
    texts = ["u1", "a\nb", "a\r\nb", "u4", "a,b", 'a"b', "u7", "a\n\nb", "u9"]
    plain = re.compile(r"u\d")
    written = [text if plain.fullmatch(text) else '"' + text.replace('"', '""') + '"' for text in texts]
    outcome = run(reader, log(reader, *({"text": text} for text in written)))
    assert outcome[:4] == (9, 9, [], sorted(texts))


def test_sacct_knows_no_quotes(run: Run) -> None:
    outcome = run(LINES["slurm"], log(LINES["slurm"], {}, {"text": '"a'}, {"text": 'b"'}, {"text": '"c\nd"'}))
    assert outcome[:4] == (
        5,
        3,
        [(5, None, "expected 8 fields, found 6"), (6, None, "expected 8 fields, found 3")],
        ['"a', 'b"', "u1"],
    )


@pytest.mark.parametrize("name", QUOTED)
def test_a_quote_that_never_closes_costs_its_record_only(run: Run, name: str) -> None:
    reader = LINES[name]
    outcome = run(reader, log(reader, {}, {"text": '"a'}, {}, {}))
    assert (outcome.records, outcome.kept) == (4, 3)
    assert [(line, column) for line, column, _ in outcome.rejects] == [(second(reader), None)]


WORDED = {**{name: LINES[name] for name in TEXTS}, "jsonl": JSON_LINES, "philly": JOB_LOG}


@pytest.mark.parametrize(
    "reader",
    # One reader of each kind of text is read each time.
    [
        r if n in {"helios", "slurm", "jsonl"} else pytest.param(r, marks=pytest.mark.thorough)
        for n, r in WORDED.items()
    ],
    ids=WORDED,
)
def test_a_field_of_ten_megabytes_arrives_whole(run: Run, reader: Reader) -> None:
    outcome = run(reader, log(reader, {}, {"text": "x" * 10_000_000}, {}))
    assert outcome[:3] == (3, 3, [])
    assert [len(text) for text in outcome.texts] == [2, 2, 10_000_000]


@pytest.mark.parametrize("name", HEADED)
def test_a_column_that_is_named_twice_is_refused(run: Run, name: str) -> None:
    reader = LINES[name]
    first = reader.header.split(reader.delimiter)[0]
    good = log(reader, {}, {}).splitlines()
    content = "\n".join([good[0] + reader.delimiter + first, *(f"{line}{reader.delimiter}x" for line in good[1:]), ""])
    with pytest.raises(SourceError) as caught:
        run(reader, content)
    assert str(caught.value).startswith(f"{reader.path}, line 1: the header names '{first}' twice")


OUT_OF_RANGE = [
    "0000-01-01 00:00:00",
    "0001-01-01 00:00:00",
    "1600-01-01 00:00:00",
    "1970-01-01 00:00:00",
    "1970-01-01 08:00:00",
    "2038-01-19 03:14:07",
    "2099-01-01 00:00:00",
    "9999-12-31 23:59:59",
]
NO_TIME = ["2017-02-30 00:00:00", "2017-13-01 00:00:00", "2017-10-03 25:00:00", "99999999999999999999", "-1", "soon"]


def clock(reader: Reader, time: str) -> str:
    return time.replace(" ", "T") if "T" in reader.time else time


CLOCKED = {**{name: LINES[name] for name in CLOCKS}, "jsonl": JSON_LINES, "philly": JOB_LOG}
OF_JOBS = {name: reader for name, reader in CLOCKED.items() if reader.shown[0] == "jobs"}


@pytest.mark.parametrize("reader", OF_JOBS.values(), ids=OF_JOBS)
def test_a_date_far_from_the_log_is_no_time_and_its_record_is_kept(run: Run, reader: Reader) -> None:
    bad = len(OUT_OF_RANGE)
    good = bad + 1
    outcome = run(reader, log(reader, *[{}] * good, *({"time": clock(reader, time)} for time in OUT_OF_RANGE), {}))
    assert outcome[:3] == (good + bad + 1, good + bad + 1, [])
    assert len(outcome.times) == good + 1
    assert outcome.checks["impossible_dates"] >= bad


@pytest.mark.thorough
@pytest.mark.parametrize("reader", OF_JOBS.values(), ids=OF_JOBS)
@pytest.mark.parametrize("time", OUT_OF_RANGE)
def test_one_date_far_from_a_log_of_three_is_no_time(run: Run, reader: Reader, time: str) -> None:
    outcome = run(reader, log(reader, {}, {"time": clock(reader, time)}, {}))
    assert outcome[:3] == (3, 3, [])
    assert len(outcome.times) == 2
    assert outcome.checks["impossible_dates"] >= 1


@pytest.mark.parametrize("name", ["telemetry", "philly-gpu"])
def test_a_sample_at_a_date_out_of_range_is_set_aside(run: Run, name: str) -> None:
    reader = LINES[name]
    outcome = run(reader, log(reader, {}, {"time": "9999-12-31 23:59:59"}, {}))
    assert outcome[:3] == (3, 2, [(second(reader), "time", "is a date out of range")])


@pytest.mark.parametrize("name", ["telemetry", "philly-gpu"])
def test_a_sample_at_no_date_of_the_log_is_none(run: Run, name: str) -> None:
    reader = LINES[name]
    times = ["1970-01-01 00:00:00", "2038-01-19 03:14:07", "2099-01-01 00:00:00"]
    outcome = run(reader, log(reader, *[{}] * 4, *({"time": time} for time in times), {}))
    assert (outcome.records, outcome.kept, outcome.checks["impossible_dates"]) == (8, 8, 3)
    assert set(outcome.texts) == {"u1", "u2", "u3", "u4", "u8"}


@pytest.mark.parametrize("reader", CLOCKED.values(), ids=CLOCKED)
def test_a_date_that_does_not_exist_is_set_aside(run: Run, reader: Reader) -> None:
    outcome = run(reader, log(reader, {}, *({"time": clock(reader, time)} for time in NO_TIME), {}))
    assert (outcome.records, outcome.kept) == (len(NO_TIME) + 2, 2)
    first = second(reader)
    assert [(line, column) for line, column, _ in outcome.rejects] == [
        (first + number, reader.time_column) for number in range(len(NO_TIME))
    ]
    assert all(reason.startswith("is not a time like %Y-%m-%d") for *_, reason in outcome.rejects)


RELATIVE = {**{name: LINES[name] for name in SECONDS}, "swf": SWF}


@pytest.mark.parametrize("reader", RELATIVE.values(), ids=RELATIVE)
def test_seconds_out_of_range_are_no_time(run: Run, reader: Reader) -> None:
    times = ["1e18", "9" * 20, "1e400", "inf", "-1"]
    outcome = run(reader, log(reader, *[{}] * 6, *({"time": time} for time in times), {}))
    # openb: whole ones
    numbers = [t for t in times if t not in ("1e400", "inf") and (reader.format != "alibaba-openb" or t == "-1")]
    assert (outcome.records, outcome.kept) == (12, 7 + len(numbers))
    first = second(reader) - 1
    assert [(line, column) for line, column, _ in outcome.rejects] == [
        (first + 6 + number, reader.time_column) for number, time in enumerate(times) if time not in numbers
    ]
    assert len(outcome.times) == (7 if reader.shown[0] == "jobs" else 0)
    # -1 is the Standard Workload Format's word for unknown.
    assert outcome.checks.get("impossible_dates", 0) >= len(numbers) - (reader is SWF)


@pytest.mark.thorough
@pytest.mark.parametrize("reader", RELATIVE.values(), ids=RELATIVE)
@pytest.mark.parametrize("time", ["1e18", "9" * 20, "1e400", "inf", "-1"])
def test_one_number_of_seconds_out_of_range_in_a_log_of_three_is_no_time(run: Run, reader: Reader, time: str) -> None:
    outcome = run(reader, log(reader, {}, {"time": time}, {}))
    number = time not in ("1e400", "inf") and (reader.format != "alibaba-openb" or time == "-1")  # openb: whole ones
    if number:
        assert (outcome.records, outcome.kept) == (3, 3)
        assert len(outcome.times) == (2 if reader.shown[0] == "jobs" else 0)
        # -1 is the Standard Workload Format's word for unknown.
        assert outcome.checks.get("impossible_dates", 0) >= ((reader, time) != (SWF, "-1"))
        return
    assert (outcome.records, outcome.kept) == (3, 2)
    assert [(line, column) for line, column, _ in outcome.rejects] == [(second(reader), reader.time_column)]


ZONED = {"mapped": LINES["mapped"], "slurm": LINES["slurm"], "jsonl": JSON_LINES, "philly": JOB_LOG}


@pytest.mark.parametrize("reader", ZONED.values(), ids=ZONED)
def test_a_time_that_names_two_instants_or_none_is_kept_and_counted(run: Run, reader: Reader) -> None:
    doubled, skipped = (clock(reader, time) for time in ("2017-11-05 01:30:00", "2017-03-12 02:30:00"))
    outcome = run(reader, log(reader, {}, {"time": doubled}, {"time": skipped}, {}))
    assert outcome[:3] == (4, 4, [])
    assert len(outcome.times) == 4
    # Each record has its time once, or as submission, start and end.
    assert outcome.checks["ambiguous_local_time"] in (2, 6)


def test_a_sample_at_no_instant_is_set_aside(run: Run) -> None:
    outcome = run(LINES["telemetry"], log(LINES["telemetry"], {}, {"time": "2017-11-05 01:30:00"}, {}))
    assert outcome[:4] == (3, 2, [(3, "time", "is missing, or means no instant")], ["u1", "u3"])


COUNTED = {**{name: LINES[name] for name in COUNTS if name != "slurm"}, "jsonl": JSON_LINES, "swf": SWF}


@pytest.mark.parametrize("reader", COUNTED.values(), ids=COUNTED)
def test_a_count_that_cannot_be_costs_its_cell(run: Run, reader: Reader) -> None:
    unreadable = ["-5", "1e16", "1e308", "9" * 30, "9223372036854775808", "9223372036854775807", "-inf", "1e400"]
    unlimited = ["inf", "UNLIMITED", "4294967295"]  # which say that there is no number
    counts = [*unreadable, *unlimited]
    outcome = run(reader, log(reader, {}, *({"count": count} for count in counts), {}))
    assert outcome[:3] == (len(counts) + 2, len(counts) + 2, [])
    assert outcome.checks[f"unreadable_{reader.count_column}"] == len(unreadable)


def test_numbers_inside_words_are_looked_at_too(run: Run) -> None:
    reader = LINES["slurm"]
    counts = ["-5", "1e308", "9" * 30, "nan", "inf"]
    outcome = run(reader, log(reader, {}, *({"count": count} for count in counts), {}))
    assert outcome[:3] == (len(counts) + 2, len(counts) + 2, [])
    assert outcome.checks["unreadable_reqtres"] == len(counts)
    outcome = run(JOB_LOG, log(JOB_LOG, {}, *({"count": count} for count in counts), {}))
    assert outcome[:3] == (len(counts) + 2, len(counts) + 2, [])
    assert sum(n for name, n in outcome.checks.items() if name.startswith("unreadable_")) == len(counts)


def test_a_log_of_nothing_but_faults_is_one_error(run: Run) -> None:
    with pytest.raises(TooManyRejectsError, match=r"contains no usable record \(2 unusable\); the first one: line 2"):
        run(LINES["helios"], log(LINES["helios"], {"time": "soon"}, {"time": "soon"}))
