"""Status words by pattern, node lists with ranges, and new columns of mapped logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import SourceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.ingest.mapping.values import meanings
from tracekit.ingest.node_lists import split_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    Write = Callable[[Mapping[str, str]], Path]

SACCT = (
    "JobID|Submit|Start|End|State|NodeList|AllocTRES\n"
    "1|2024-03-04T10:00:00|2024-03-04T10:01:00|2024-03-04T11:00:00|COMPLETED|n[1-2]|gres/gpu=4\n"
)
NODES = '[nodes]\nfiles = "nodes.csv"\n[nodes.columns]\nnode_id = "node"\ngpu_count = "gpus"\n'
EVENTS = (
    '[node_events]\nfiles = "events.csv"\n'
    '[node_events.columns]\nnode_id = "n"\nstart_time = "f"\nstate = { column = "w", words = { down = "DOWN*" } }\n'
)


def read(folder: Path, mapping: str, tmp_path: Path, **given: Any) -> Trace:
    """Ingest with a mapping file and check that the Trace is valid."""
    file = tmp_path / "map.toml"
    file.write_text(mapping)
    given.setdefault("format_name", "csv")
    trace = ingest_logs(folder, tmp_path / "out", options={"map": str(file)}, force=True, **given)
    assert trace.validate() == []
    return trace


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("CANCELLED", "a"), ("CANCELLED by 1005", "b"), ("CANCELLED by root", "c"), ("FAIL1", "d"), ("FAIL12", None),
        ("x.y", "e"), ("xzy", None), ("", None), ("two\nlines", "f"),
    ],
)  # fmt: skip
def test_a_pattern_means_what_it_fits_and_the_longest_counts(text: str, meaning: str | None) -> None:
    words = {"CANCELLED": "a", "CANCELLED by *": "b", "CANCELLED by r*": "c", "FAIL?": "d", "x.y": "e", "two*s": "f"}
    assert meanings(pl.Series([text, None]), words).to_list() == [meaning, None]


def test_status_words_by_pattern_and_columns_of_version_three(write_source: Write, tmp_path: Path, rows: Rows) -> None:
    folder = write_source(
        {"jobs.csv": "id,state,why,by,held,q\n1,CANCELLED by 7,Priority,BF,60,hi\n2,DONE,,,,\n3,odd,,,,\n"}
    )
    mapping = (
        '[jobs.columns]\njob_id = "id"\nwait_reason = "why"\npartition = "q"\nsuspended_s = "held"\n'
        'started_by = { column = "by", words = { backfill = "B?" } }\n'
        '[jobs.status]\ncolumn = "state"\ncancelled = "CANCELLED by *"\ncompleted = "DONE"\n'
    )
    trace = read(folder, mapping, tmp_path)
    assert [r["status"] for r in rows(trace, "jobs")] == ["cancelled", "completed", "unknown"]
    first = rows(trace, "jobs")[0]
    assert (first["wait_reason"], first["started_by"], first["suspended_s"], first["partition"]) == (
        "Priority", "backfill", 60.0, "hi",
    )  # fmt: skip
    assert trace.manifest.checks["unknown_status_word"].count == 1


def test_node_lists_expand_where_the_mapping_says_so(write_source: Write, tmp_path: Path, rows: Rows) -> None:
    folder = write_source({"jobs.csv": 'id,s,e,n\n1,10,20,"gpu[01-03],x"\n2,10,20,a[1-\n3,10,20,b\n'})
    mapping = (
        '[source]\ntime_format = "epoch_s"\n[jobs.columns]\njob_id = "id"\nstart_time = "s"\nend_time = "e"\n'
        '[jobs.nodes]\ncolumn = "n"\nexpand = true\n'
    )
    trace = read(folder, mapping, tmp_path)
    assert [(r["job_id"], r["node_id"]) for r in rows(trace, "placements")] == [
        ("1", "gpu01"), ("1", "gpu02"), ("1", "gpu03"), ("1", "x"), ("3", "b"),
    ]  # fmt: skip
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["1", "2", "3"]
    assert trace.manifest.checks["unreadable_n"].examples == ["a[1-: is not a list of nodes like gpu[01-03]"]


@given(st.text(alphabet="a,[]1-", max_size=30))
def test_parts_outside_brackets_put_together_are_the_text(text: str) -> None:
    parts = split_outside(text, ",")
    assert ",".join(parts) == text
    if "[" not in text and "]" not in text:
        assert parts == text.split(",")


def test_a_mapping_beside_a_format_adds_what_the_log_lacks(write_source: Write, tmp_path: Path, rows: Rows) -> None:
    files = {
        "sacct.txt": SACCT,
        "nodes.csv": "node,gpus\nn1,8\nn9,8\n",
        "events.csv": "n,f,w\nn1,2024-03-04T01:00:00Z,DOWN*\n",
    }
    trace = read(write_source(files), NODES + EVENTS, tmp_path, format_name="slurm")
    assert [(r["node_id"], r["gpu_count"]) for r in rows(trace, "nodes")] == [("n1", 8), ("n2", 2), ("n9", 8)]
    assert [(r["node_id"], r["state"]) for r in rows(trace, "node_events")] == [("n1", "down")]
    assert (trace.manifest.format, len(rows(trace, "jobs"))) == ("slurm", 1)
    check = trace.manifest.checks["nodes_not_listed"]
    assert (check.count, check.of) == (1, 2)
    assert {f.path for f in trace.manifest.files} == set(files)


@pytest.mark.parametrize(
    ("mapping", "error", "match"),
    [
        ('[jobs]\nfiles = "nodes.csv"\n[jobs.columns]\njob_id = "node"\n', UsageError, "already fills the table jobs"),
        (NODES.replace('files = "nodes.csv"\n', ""), UsageError, "does not name the files to read"),
        (NODES.replace("nodes.csv", "none.csv"), SourceError, "no file in the source matches"),
        ('[source]\ntime_base = "relative"\n' + NODES, UsageError, "relative times"),
    ],
)
def test_a_mapping_that_does_not_fit_the_log_is_refused(
    mapping: str, error: type[Exception], match: str, write_source: Write, tmp_path: Path
) -> None:
    with pytest.raises(error, match=match):
        read(
            write_source({"sacct.txt": SACCT, "nodes.csv": "node,gpus\nn1,8\n"}), mapping, tmp_path, format_name="slurm"
        )
    assert not (tmp_path / "out").exists()


def test_a_dump_of_sacctmgr_beside_sacct_is_not_a_log(write_source: Write, tmp_path: Path) -> None:
    folder = write_source({"sacct.txt": SACCT, "sacctmgr-qos.psv": "Name|Priority|\nnormal|0|\n"})
    trace = ingest_logs(folder, tmp_path / "out")
    assert [f.path for f in trace.manifest.files] == ["sacct.txt"]
    assert "ignored files (format slurm): sacctmgr-qos.psv" in trace.manifest.notes


def test_a_log_of_another_scheduler_under_the_name_of_sacct_is_left_out(write_source: Write, tmp_path: Path) -> None:
    pbs = "03/04/2024 05:00:00;Q;2.srv;queue=q\n"
    trace = ingest_logs(write_source({"sacct.txt": SACCT, "old-sacct.txt": pbs}), tmp_path / "out", format_name="slurm")
    assert [f.path for f in trace.manifest.files] == ["sacct.txt"]
