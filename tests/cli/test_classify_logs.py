"""tracekit classify-logs as a user meets it."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.cli.test_commands import assert_one_line
from tests.command import run

if TYPE_CHECKING:
    from pathlib import Path

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nKeyError: 1\n'


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Return a folder with the logs of four jobs."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in {"a.err": OOM, "b.err": TRACEBACK, "c.out": "fine\n", "d.err": OOM}.items():
        (folder / name).write_text("begin\n" + text)
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a Trace of the jobs: c completed, the others failed, e has no log."""
    (tmp_path / "log.csv").write_text(
        "id,created,begun,over,state\na,100,110,400,bad\nb,200,210,300,bad\nc,300,310,400,ok\ne,500,510,600,bad\n"
    )
    (tmp_path / "my.toml").write_text(
        '[source]\ntime_format = "epoch_s"\ntime_base = "relative"\n[jobs]\nfiles = "log.csv"\n[jobs.columns]\n'
        'job_id = "id"\nsubmit_time = "created"\nstart_time = "begun"\nend_time = "over"\n'
        '[jobs.status]\ncolumn = "state"\ncompleted = ["ok"]\nfailed = ["bad"]\n'
    )
    made = run("ingest", tmp_path / "log.csv", "--map", tmp_path / "my.toml", "-o", tmp_path / "trace")
    assert made.returncode == 0, made.stderr
    return tmp_path / "trace"


def test_the_summary_counts_trials_and_jobs(logs: Path) -> None:
    result = run("classify-logs", logs, "-f", "json")
    assert result.returncode == 0, result.stderr
    rows = [(r["reason"], r["category"], r["trials"], r["share"], r["jobs"]) for r in json.loads(result.stdout)]
    assert rows == [
        ("gpu_out_of_memory", "engine", 2, 0.666667, 2),
        ("traceback_from_crash", "user", 1, 0.333333, 1),
    ]
    assert "note: 4 logs read" in result.stderr
    assert "note: the logs of 1 attempts show no failure" in result.stderr
    table = run("classify-logs", logs).stdout
    assert "gpu_out_of_memory" in table


def test_a_single_log_without_a_failure(logs: Path) -> None:
    assert run("classify-logs", logs / "c.out").stdout == "no failed attempts\n"


def test_the_failures_are_written_and_replaced_only_by_force(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "failures.parquet"
    assert run("classify-logs", logs, "-o", out).returncode == 0
    assert sorted(pl.read_parquet(out)["job_id"]) == ["a", "b", "d"]
    with (tmp_path / "failures.lines.csv").open() as lines:
        assert [(r["log_file"], r["line"]) for r in csv.DictReader(lines)] == [
            ("logs/a.err", "2"),
            ("logs/b.err", "4"),
            ("logs/d.err", "2"),
        ]
    assert_one_line(run("classify-logs", logs, "-o", out), "exists already", "--force")
    assert run("classify-logs", logs, "-o", out, "--force").returncode == 0


def test_a_trace_gets_the_table_and_answers_the_query(logs: Path, trace: Path) -> None:
    result = run("classify-logs", logs, "--trace", trace, "--add")
    assert result.returncode == 0, result.stderr
    for said in (
        "1 attempts did not fail",
        "1 logs belong to no attempt in the Trace",
        "1 failed jobs of the Trace have no",
    ):
        assert said in result.stderr
    assert run("validate", trace).returncode == 0
    answer = json.loads(run("query", trace, "failures/reasons", "-f", "json").stdout)
    assert [(r["reason"], r["trials"], r["jobs"]) for r in answer] == [
        ("gpu_out_of_memory", 1, 1),
        ("traceback_from_crash", 1, 1),
    ]
    assert_one_line(run("classify-logs", logs, "--trace", trace, "--add"), "already has a failures table", "--force")
    assert run("classify-logs", logs, "--trace", trace, "--add", "--force").returncode == 0


def test_rules_of_the_user(logs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[[rule]]\nreason = "our_cache"\ncategory = "user"\nsignatures = ["^KeyError"]\n')
    both = {
        r["reason"]: r["trials"] for r in json.loads(run("classify-logs", logs, "--rules", mine, "-f", "json").stdout)
    }
    assert both == {"gpu_out_of_memory": 2, "our_cache": 1}
    only = run("classify-logs", logs, "--rules", mine, "--rules-only", "-f", "json")
    assert {r["reason"] for r in json.loads(only.stdout)} >= {"our_cache"}
    listed = json.loads(run("classify-logs", "--rules", mine, "--list-rules", "-f", "json").stdout)
    assert listed[0]["reason"] == "our_cache"
    assert listed[-1]["reason"] == "no_signature"
    assert "gpu_ecc_error" in run("classify-logs", "--list-rules").stdout


def test_mistakes_are_one_line(logs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[[rule]]\nreason = "x"\ncategory = "user"\nsignatures = ["("]\n')
    assert_one_line(run("classify-logs"), "no logs are given")
    assert_one_line(run("classify-logs", tmp_path / "absent"), "absent", "no such file or folder")
    assert_one_line(run("classify-logs", logs, "--add"), "--add", "--trace TRACE")
    assert_one_line(run("classify-logs", logs, "--rules-only"), "--rules-only", "--rules FILE")
    assert_one_line(run("classify-logs", logs, "--name-pattern", "x"), "--name-pattern", "job_id")
    assert_one_line(run("classify-logs", logs, "--rules", bad), "bad.toml")
    assert_one_line(run("classify-logs", logs, "--trace", tmp_path / "absent"), "no such Trace")
    assert_one_line(run("classify-logs", logs, "-o", tmp_path / "f.csv"), ".parquet")
