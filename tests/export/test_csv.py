"""The CSV table: its cells, and the mapping file beside it."""

from __future__ import annotations

import csv
import tomllib
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.testing import assert_frame_equal

from tracekit import ingest_logs, schema
from tracekit.spreadsheets import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]


def test_every_column_of_a_job_is_there(small: Trace, run: Run) -> None:
    path, done = run(small, "csv", "jobs.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(schema.common("jobs").names)
    assert len(rows) == 7
    shown = {name: text for name, text in rows[5].items() if text}
    assert shown == {
        "job_id": "f",
        "cluster": "Earth",
        "vc": "red",
        "status": "timeout",
        "submit_time": "2020-04-02T00:04:00.000000Z",
        "start_time": "2020-04-02T00:04:01.000000Z",
        "end_time": "2020-04-02T00:04:13.400000Z",
        "queue_s": "1.0",
        "run_s": "12.4",
        "gpu_count": "0.5",
    }
    assert done.log.left_out == {}
    assert "1 job: they had several attempts, but a table of jobs has one row per job" in done.log.notes


def test_the_mapping_file_reads_the_table_back(small: Trace, run: Run) -> None:
    path, _ = run(small, "csv", "jobs.csv")
    mapping = path.with_name("jobs.map.toml")
    raw = tomllib.loads(mapping.read_text())
    assert raw["source"] == {"files": "jobs.csv", "type": "csv", "timezone": "UTC", "cluster": "Earth"}
    assert raw["jobs"]["status"]["timeout"] == ["timeout"]
    back = ingest_logs(path, path.with_name("trace"), format_name="csv", options={"map": str(mapping)})
    lost = ["attempt_count", "source_status"]
    assert_frame_equal(back.scan("jobs").drop(lost).sort("job_id").collect(), small.scan("jobs").drop(lost).collect())


def test_a_guarded_text_is_undone_by_taking_one_quote_away() -> None:
    texts = ["=1", "+1", "-1", "@a", "\ta", "\ra", "'a", "''=", "a=1", "a'b", ""]
    frame, changed = guarded(pl.DataFrame({"text": texts, "number": range(len(texts))}))
    assert frame["text"].to_list() == ["'" + t for t in texts[:8]] + texts[8:]
    assert changed == 8
    assert frame["text"].str.replace("^'", "").to_list() == texts


def test_names_that_spreadsheets_run_come_back(make_trace: Callable[..., Trace], run: Run, golden: Golden) -> None:
    names = [
        "=cmd|' /C calc'!A0",
        "+1",
        "-1",
        "@SUM(A1)",
        "'quoted",
        'say "hi", now',
        "two\nlines",
        "ünïcode 😀",
        "x,y",
    ]
    jobs = [{"job_id": f"{n}{i}", "user": n, "vc": n, "submit_time": "2020-01-01"} for i, n in enumerate(names)]
    trace = make_trace(jobs=jobs)
    path, done = run(trace, "csv", "we[i]rd*.csv")
    with path.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in set("=+-@\t\r")]
    golden(done.log.notes)
    mapping = path.with_name("we[i]rd*.map.toml")
    back = ingest_logs(path, path.with_name("t"), format_name="csv", options={"map": str(mapping)})
    columns = ["job_id", "user", "vc"]
    assert (
        back.scan("jobs")
        .select(columns)
        .sort("job_id")
        .collect()
        .equals(trace.scan("jobs").select(columns).sort("job_id").collect())
    )
