"""Which files are exports of `sacct`: names, headers, columns and delimiters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.ingest.formats.sacct_rows import JOB, JOB_ROW, PLACEMENT, sacct
from tracekit.errors import SourceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.detect import detect
from tracekit.ingest.files import source_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]
    Write = Callable[[dict[str, str]], Path]


@pytest.mark.parametrize(("trailing", "newline"), [(False, "\n"), (True, "\r\n")])
def test_the_order_of_columns_does_not_matter(ingest: Ingest, rows: Rows, trailing: bool, newline: str) -> None:
    columns = sorted(JOB, reverse=trailing)
    (text,) = sacct({}, {"JobID": "8", "JobIDRaw": "8"}, columns=columns, trailing=trailing).values()
    trace = ingest({"sacct.txt": text.replace("\n", newline)})
    assert rows(trace, "jobs") == [JOB_ROW, JOB_ROW | {"job_id": "slurm/8"}]
    assert rows(trace, "placements")[0] == PLACEMENT | {"node_id": "gpu01"}


@pytest.mark.thorough
@settings(max_examples=examples(30))
@given(order=st.permutations(["JobID", "Submit", "Start", "End", "State", "JobName", "AllocTRES", "NodeList"]))
def test_any_order_of_columns_gives_the_same_rows(order: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("order")
    (folder / "sacct.txt").write_text(sacct({"JobName": "a|b"}, {"JobID": "8"}, columns=order)["sacct.txt"])
    trace = ingest_logs(folder / "sacct.txt", folder / "trace")
    names = ("job_id", "name", "gpu_count", "node_count", "run_s")
    assert trace.scan("jobs").select(names).collect().rows() == [
        ("slurm/7", "a|b", 8.0, 2, 3600.0),
        ("slurm/8", "train", 8.0, 2, 3600.0),
    ]


def test_five_columns_are_enough(ingest: Ingest, rows: Rows) -> None:
    trace = ingest(sacct({}, columns=["JobID", "Submit", "Start", "End", "State"]))
    known = ("job_id", "cluster", "status", "source_status", "submit_time", "start_time", "end_time", "queue_s")
    assert rows(trace, "jobs") == [{k: JOB_ROW[k] for k in (*known, "run_s", "attempt_count")}]
    assert trace.tables == ("jobs", "attempts")


@pytest.mark.parametrize("name", ["sacct-2024.csv", "my_sacct.psv", "SACCT.log", "anything.dat"])
def test_an_export_is_found_by_name_or_by_first_bytes(write_source: Write, name: str) -> None:
    folder = write_source({name: sacct({})["sacct.txt"]})
    assert detect(folder, source_files(folder)).format.name == "slurm"


def test_a_file_without_header_line_is_refused(ingest: Ingest) -> None:
    text = sacct({})["sacct.txt"].partition("\n")[2]
    with pytest.raises(SourceError, match=r"line 1: has no header line .*sacct --parsable2 .*--format=JobID,"):
        ingest({"sacct.txt": text})


def test_an_empty_file_is_refused(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"is empty"):
        ingest({"sacct.txt": ""})


def test_a_needed_column_that_is_missing_is_named(ingest: Ingest) -> None:
    with pytest.raises(SourceError, match=r"the column 'End' is missing"):
        ingest(sacct({}, columns=["JobID", "Submit", "Start", "State"]))


def test_a_name_may_hold_the_delimiter_and_quotes(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    for trailing in (False, True):
        trace = ingest(
            sacct({"JobName": 'a|"b|c'}, {"JobID": "8", "JobIDRaw": "8", "JobName": '5" x'}, trailing=trailing)
        )
        assert sorted((row["job_id"], row["name"]) for row in rows(trace, "jobs")) == [
            ("slurm/7", 'a|"b|c'),
            ("slurm/8", '5" x'),
        ]
        assert found_checks(trace) == {"delimiter_in_name": (1, None)}


def test_an_option_needs_its_column(ingest: Ingest) -> None:
    columns = ["JobID", "Submit", "Start", "End", "State"]
    for options, name in (({"vc": "qos"}, "QOS"), ({"queue_from": "eligible"}, "Eligible")):
        with pytest.raises(SourceError, match=rf"the column '{name}' is missing"):
            ingest(sacct({}, columns=columns), options=options)


@pytest.mark.parametrize("options", [{"timezone": "Mars/Base"}, {"timezone": "../x"}, {"shards_per_gpu": "many"}])
def test_an_option_without_meaning_is_refused(ingest: Ingest, options: dict[str, str]) -> None:
    (name,) = options
    with pytest.raises(UsageError, match=rf"--option {name}"):
        ingest(sacct({}), options=options)
