"""Where the values of a mapping come from: arrays of JSON, joined columns, names of files, lookup tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Mapped = Callable[[str, dict[str, str]], Trace]


def columns(trace: Trace, rows: Rows, *names: str) -> list[tuple[object, ...]]:
    """Return some columns of the jobs, in their order."""
    return [tuple(row.get(name) for name in names) for row in rows(trace, "jobs")]


RECORDS = [{"id": 1, "n": ["a", "b"]}, {"id": 2, "n": []}]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("place", "document"),
    [
        (".", RECORDS),
        (".", {"x": RECORDS[0], "y": RECORDS[1]}),
        ("jobs", {"meta": {"jobs": [{"id": 9}]}, "jobs": RECORDS}),
        ("data.jobs", {"jobs": [{"id": 9}], "data": {"v": {"jobs": [{"id": 8}]}, "jobs": RECORDS}}),
    ],
)
def test_the_records_of_a_document_stand_at_a_path(
    place: str, document: object, indent: int | None, mapped: Mapped, rows: Rows
) -> None:
    mapping = f'[source]\nrecords = "{place}"\n[jobs.columns]\njob_id = "id"\nuser = "n.0"\n'
    trace = mapped(mapping, {"jobs.json": json.dumps(document, indent=indent) + "\n"})
    assert columns(trace, rows, "job_id", "user") == [("1", "a"), ("2", None)]
    (account,) = trace.manifest.files
    assert (account.records, account.rejected) == (2, 0)


def test_what_is_not_a_record_of_a_document_is_rejected_with_its_line(mapped: Mapped, rows: Rows) -> None:
    text = '{\n"a": {"id": 1},\n"b": 7,\n"c": {"id": 2}\n}\n'
    trace = mapped('[source]\nrecords = "."\n[jobs.columns]\njob_id = "id"\n', {"jobs.json": text})
    assert columns(trace, rows, "job_id") == [("1",), ("2",)]
    assert [(r["line"], r["reason"]) for r in rows(trace, "rejects")] == [(3, "is not a JSON object")]


@pytest.mark.parametrize(
    ("place", "text", "error"),
    [
        (".", '{"a": {"id": 1}', "ends in the middle"),
        (".", '{"id": 1}\n{"id": 2}\n', "is neither an array of records nor an object of records"),
        (".", "", "is empty"),
        ("jobs", '{"job": [{"id": 1}]}', "has no list 'jobs'"),
        ("a.jobs", '{"a": {"b": 1}, "c": {"jobs": [{"id": 1}]}}', "has no list 'a.jobs'"),
    ],
)
def test_a_document_without_such_records_is_refused(place: str, text: str, error: str, mapped: Mapped) -> None:
    with pytest.raises(SourceError, match=error):
        mapped(f'[source]\nrecords = "{place}"\n[jobs.columns]\njob_id = "id"\n', {"jobs.json": text})


@pytest.mark.parametrize("text", ['[{"id": 1}]', '[\n{"id": 1}\n]', '[ {"id":\n1}]'])
def test_an_array_read_line_by_line_says_what_to_write(text: str, mapped: Mapped) -> None:
    with pytest.raises(SourceError, match=r'contains one JSON array, not one object per line; write records = "\."'):
        mapped('[jobs.columns]\njob_id = "id"\n', {"jobs.json": text})


def test_a_star_in_a_path_takes_each_item(mapped: Mapped, rows: Rows) -> None:
    text = '{"id": 1, "at": [{"host": "n1"}, {"x": 0}, {"host": "n2"}], "s": 0, "e": 10}\n'
    mapping = (
        '[source]\ntime_format = "epoch_s"\n[jobs.columns]\njob_id = "id"\nstart_time = "s"\nend_time = "e"\n'
        '[jobs.nodes]\ncolumn = "at.*.host"\n'
    )
    trace = mapped(mapping, {"jobs.jsonl": text.replace('"s": 0, "e": 10', '"s": 1000000000, "e": 1000000010')})
    assert [row["node_id"] for row in rows(trace, "placements")] == ["n1", "n2"]


def test_comments_are_not_read_and_lines_keep_their_numbers(mapped: Mapped, rows: Rows) -> None:
    text = '# Version: 8\n#\nid,gpus\n1,2\n#2,"4\n3,x,y\n4,8\n'
    trace = mapped('[source]\ncomment = "#"\n[jobs.columns]\njob_id = "id"\ngpu_count = "gpus"\n', {"jobs.csv": text})
    assert columns(trace, rows, "job_id", "gpu_count") == [("1", 2.0), ("4", 8.0)]
    (account,) = trace.manifest.files
    assert (account.records, account.rejected, account.bytes) == (3, 1, len(text))
    assert [r["line"] for r in rows(trace, "rejects")] == [6]


def test_columns_are_joined_and_empty_ones_left_out(mapped: Mapped, rows: Rows) -> None:
    text = "job,task,day,clock,a,b\n7,0,2024-03-04,10:00:00,x,y\n7,2,2024-03-04,,,z\n,0,,,,\n"
    mapping = (
        '[jobs.columns]\njob_id = { columns = ["job", "task"], missing = "0" }\n'
        'submit_time = { columns = ["day", "clock"] }\nuser = { columns = ["a", "b"], separator = "/" }\n'
    )
    trace = mapped(mapping, {"jobs.csv": text})
    assert columns(trace, rows, "job_id", "submit_time", "user") == [
        ("7", "2024-03-04 10:00:00", "x/y"),
        # A day without its clock is no time.
        ("7.2", None, "z"),
    ]
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [(4, "job, task", "is missing")]


def test_a_status_from_two_columns(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    text = "id,state,code\n1,4,0\n2,4,1\n3,3,\n4,,\n5,,0\n6,9,9\n"
    mapping = (
        '[jobs.columns]\njob_id = "id"\n[jobs.status]\ncolumns = ["state", "code"]\ncompleted = "4,0"\n'
        'failed = "4,*"\ncancelled = "3,*"\npending = ",0"\nwhen_missing = "running"\n'
    )
    trace = mapped(mapping, {"jobs.csv": text})
    assert columns(trace, rows, "job_id", "status", "source_status") == [
        ("1", "completed", "4,0"),
        ("2", "failed", "4,1"),
        ("3", "cancelled", "3,"),
        ("4", "running", None),
        ("5", "pending", ",0"),
        ("6", "unknown", "9,9"),
    ]
    assert found_checks(trace)["unknown_status_word"] == (1, 6)


def test_the_name_of_the_file_is_the_cluster(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        '[jobs]\nfiles = "jobs-*.csv"\n[jobs.columns]\njob_id = "id"\n'
        'cluster = { file = "jobs-([a-z]+)" }\nvc = { file = "jobs-.*[.]csv" }\n'
    )
    # One file a cluster, ids repeat.
    trace = mapped(mapping, {"jobs-north.csv": "id\n1\n", "jobs-south.csv": "id\n1\n"})
    assert columns(trace, rows, "job_id", "cluster", "vc") == [
        ("north/1", "north", "jobs-north.csv"),
        ("south/1", "south", "jobs-south.csv"),
    ]
    with pytest.raises(UsageError, match=r"jobs-7.csv does not match the regular expression 'jobs-\(\[a-z\]\+\)'"):
        mapped(mapping, {"jobs-7.csv": "id\n1\n"})


LOOKUP = (
    '[jobs]\nfiles = "jobs.csv"\n[jobs.columns]\njob_id = "id"\ngpu_model = { column = "host", lookup = "models" }\n'
    'gpu_count = { column = "queue", regex = "^[^.]*", lookup = "gpus", default = 0 }\n'
    '[lookup.gpus]\nvalues = { "full" = 8, "gpu*" = 1, "cpu" = 0.0 }\n'
    '[lookup.models]\nfiles = "nodes.csv"\nkey = "name"\nvalue = "model"\n'
)


def test_a_lookup_table_says_what_a_cell_stands_for(mapped: Mapped, rows: Rows, found_checks: FoundChecks) -> None:
    jobs = "id,host,queue\n1,n1,full.q\n2,n*,gpu-long\n3,,cpu\n4,n9,odd\n5,n2,\n"
    nodes = "name,model,x\nn1,A100,1\nn*,H100,2\nn2,A100,3\nn2,V100,4\nn3,,5\n"
    trace = mapped(LOOKUP, {"jobs.csv": jobs, "nodes.csv": nodes})
    assert columns(trace, rows, "job_id", "gpu_model", "gpu_count") == [
        ("1", "A100", 8.0),
        # In a file a star is a letter.
        ("2", "H100", 1.0),
        ("3", None, 0.0),
        ("4", None, None),
        # n2 has two models, and nothing says which is right; no queue is what the default is for.
        ("5", None, 0.0),
    ]
    assert found_checks(trace) == {
        "several_values_in_lookup_models": (1, 3),
        "unreadable_host": (2, None),
        "unreadable_queue": (1, None),
    }
    assert trace.manifest.checks["unreadable_queue"].examples == ["odd: is not in the lookup table gpus"]
    assert {file.path for file in trace.manifest.files} == {"jobs.csv", "nodes.csv"}


def test_a_file_of_a_lookup_table_is_not_a_log_and_may_be_a_table_of_nodes(mapped: Mapped, rows: Rows) -> None:
    files = {"jobs.csv": "id,host,queue\n1,n1,full\n", "nodes.csv": "name,model\nn1,A100\n"}
    every = LOOKUP.replace('files = "jobs.csv"\n', "")
    assert [row["job_id"] for row in rows(mapped(every, files), "jobs")] == ["1"]
    nodes = '[nodes]\nfiles = "nodes.csv"\n[nodes.columns]\nnode_id = "name"\ngpu_count = { value = 8 }\n'
    assert [row["node_id"] for row in rows(mapped(LOOKUP + nodes, files), "nodes")] == ["n1"]


def test_what_is_too_long_for_a_regular_expression_is_unknown(mapped: Mapped, rows: Rows) -> None:
    text = f"id,args,state\n1,gpu=4{' ' * 9_000}x,OK\n2,gpu=4{'x' * 10_000},OK {'x' * 10_000}\n"
    mapping = (
        '[jobs.columns]\njob_id = "id"\ngpu_count = { column = "args", regex = \'gpu=(\\d+)\', default = 0 }\n'
        '[jobs.status]\ncolumn = "state"\nregex = "[A-Z]+"\ncompleted = "OK"\nwhen_missing = "running"\n'
    )
    trace = mapped(mapping, {"jobs.csv": text})
    assert columns(trace, rows, "job_id", "gpu_count", "status") == [("1", 4.0, "completed"), ("2", None, "unknown")]
    checks = {name: check.count for name, check in trace.manifest.checks.items() if check.count}
    assert checks == {"unreadable_args": 1, "unreadable_state": 1, "unknown_status_word": 1, "completed_without_end": 1}


def test_an_expression_may_ask_a_lookup_table(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        '[jobs.columns]\njob_id = "id"\ngpu_count = { expression = "nodes * per_node(queue)" }\n'
        '[lookup.per_node]\nvalues = { "full-*" = 8, "single" = 1 }\n'
    )
    text = "id,nodes,queue\n1,2,full-node\n2,3,single\n3,2,new\n4,2,\n"
    trace = mapped(mapping, {"jobs.csv": text})
    assert columns(trace, rows, "job_id", "gpu_count") == [("1", 16.0), ("2", 3.0), ("3", None), ("4", None)]
    assert trace.manifest.checks["unreadable_nodes_queue"].count == 1
