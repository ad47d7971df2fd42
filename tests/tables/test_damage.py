"""A damaged Trace gives one sentence wherever the damage shows; a sound one is never blamed."""

from __future__ import annotations

import json
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from tests.command import run
from tracekit import run_query
from tracekit.damage import explain_damage, register_trace
from tracekit.errors import DamagedTraceError, QueryError, TraceError
from tracekit.tables.parquet import checksum
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def trace(sample_trace: Callable[[str], Trace], tmp_path: Path) -> Trace:
    """Return a Trace that the test may damage."""
    shutil.copytree(sample_trace("helios").path, tmp_path / "trace")
    return Trace.open(tmp_path / "trace")


def overwrite_pages(trace: Trace, table: str) -> None:
    """Put zeros over all pages of a table, and leave its footer as it is."""
    path = trace.path / f"{table}.parquet"
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[4:footer] = bytes(footer - 4)
    path.write_bytes(data)


def edit_manifest(trace: Trace, change: Callable[[dict[str, Any]], object]) -> None:
    path = trace.path / "manifest.json"
    raw = json.loads(path.read_bytes())
    change(raw)
    path.write_text(json.dumps(raw))


def test_every_table_has_the_checksum_of_its_file(trace: Trace) -> None:
    sums = {name: table.sha256 for name, table in trace.manifest.tables.items()}
    assert sums == {name: checksum(trace.files(name)[0]) for name in trace.tables}
    assert all(len(found or "") == 64 for found in sums.values())


def test_deep_finds_a_lawful_change_that_nothing_else_can(trace: Trace) -> None:
    path = trace.files("jobs")[0]
    frame = pl.read_parquet(path)
    frame.with_columns(user=pl.lit("somebody")).write_parquet(path)
    assert trace.validate() == []
    found = run("validate", trace.path, "--deep")
    assert (found.returncode, found.stdout, found.stderr) == (
        1,
        "the file of jobs has changed: its SHA-256 differs from the manifest\n",
        "",
    )


def test_a_trace_without_checksums_is_read_and_deep_says_so(trace: Trace) -> None:
    edit_manifest(trace, lambda raw: [table.pop("sha256") for table in raw["tables"].values()])
    found = run("validate", trace.path, "--deep")
    assert (found.returncode, found.stderr) == (
        0,
        "note: no SHA-256 to compare for jobs, attempts, capacity, rejects, which an older tracekit wrote\n",
    )


def test_damaged_pages_are_one_error_for_polars(trace: Trace) -> None:
    overwrite_pages(trace, "jobs")
    jobs = Trace.open(trace.path).scan("jobs")
    match = r"trace: the table jobs cannot be read: .*; run 'tracekit validate TRACE'"
    with pytest.raises(DamagedTraceError, match=match):
        jobs.select("job_id", "user").collect()


def test_damaged_pages_are_one_error_for_sql(trace: Trace) -> None:
    overwrite_pages(trace, "jobs")
    with pytest.raises(DamagedTraceError, match=r"trace: the table jobs cannot be read: "):
        run_query(trace.path, "overview/status")


def test_an_error_of_the_users_own_sql_stays_what_it_is(trace: Trace, tmp_path: Path) -> None:
    file = tmp_path / "mine.sql"
    file.write_text("SELECT job_id::INTEGER FROM jobs")
    with pytest.raises(QueryError, match=r"mine\.sql, line 1: Conversion Error: ") as caught:
        run_query(trace, file)
    assert not isinstance(caught.value, DamagedTraceError)


@pytest.mark.parametrize(
    "command",
    [
        ["validate"],
        ["query", "queuing/run_time"],
        ["wait", "--gpus", "1"],
        ["digest", "-o", "out"],
        ["guidelines"],
        ["replay", "-p", "fifo", "-o", "out"],
        ["calibrate", "--report", "out"],
        ["plan", "-o", "out"],
        ["fit", "-o", "out"],
        ["export", "--to", "swf", "-o", "out"],
        ["analyze", "-o", "out"],
        ["compare", "-o", "out"],
        ["ingest", "--append", "-o"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_tells_damaged_pages_in_one_line(
    trace: Trace, command: list[str], capfd: pytest.CaptureFixture[str], sample_source: Callable[[str], Path]
) -> None:
    for table in trace.tables:
        overwrite_pages(trace, table)
    verb, *rest = command
    more: list[str | Path] = [trace.path, *rest]
    if verb == "compare":
        more.append(trace.path)
    if verb == "ingest":
        newer = trace.path.parent / "newer"
        shutil.copytree(sample_source("helios"), newer)
        for log in newer.rglob("cluster_log.csv"):
            log.write_text(log.read_text() + "\n")
        more = [newer, *rest, trace.path]
    found = run(verb, *more, cwd=trace.path.parent)
    native = capfd.readouterr()
    assert "panicked" not in native.err
    if verb == "validate":
        assert (found.returncode, found.stderr) == (1, "")
        assert found.stdout.startswith("the table jobs cannot be read: ")
        assert found.stdout.count("cannot be read") == len(trace.tables)
        return
    errors = [line for line in found.stderr.splitlines() if not line.startswith("note: ")]
    assert found.returncode == 2
    assert len(errors) == 1
    assert errors[0].startswith("tracekit: error: ")
    assert "trace: " in errors[0]
    assert "cannot be" in errors[0]
    assert not (trace.path.parent / "out").exists()


def test_text_that_is_no_text_is_found_before_anybody_reads_it(trace: Trace) -> None:
    path = trace.files("jobs")[0]
    pl.read_parquet(path).with_columns(user=pl.lit("somebody")).write_parquet(path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace(b"somebody", b"some\xff\xfedy"))
    with pytest.raises(DamagedTraceError, match=r"the table jobs cannot be read: .*UTF"):
        trace.scan("jobs").select("user").collect()


@explain_damage()
def fail(trace: Trace | Path, error: Exception) -> None:
    """Read a Trace, and fail for another reason."""
    Trace.of(trace)
    raise error


def test_a_failure_on_a_sound_trace_is_raised_as_it_is(trace: Trace) -> None:
    for given in (trace, trace.path):
        with pytest.raises(ZeroDivisionError, match=r"^mine\n\(the files of the Trace are intact\)$"):
            fail(given, ZeroDivisionError("mine"))


def test_a_failure_on_a_damaged_trace_is_that_of_the_trace(trace: Trace) -> None:
    path = trace.files("jobs")[0]
    pl.read_parquet(path).with_columns(run_s=pl.lit(-1.0)).write_parquet(path)
    for given in (trace, trace.path):
        with pytest.raises(DamagedTraceError, match=r"trace: the file of jobs has changed"):
            fail(given, OverflowError())
        with pytest.raises(duckdb.ParserException):
            fail(given, duckdb.ParserException("the text of a query"))


def test_a_warning_of_a_library_is_a_reason_to_look_at_the_trace(trace: Trace) -> None:
    path = trace.files("capacity")[0]
    whole = pl.read_parquet(path)
    whole.with_columns(gpu_count=pl.lit(float("-inf"))).write_parquet(path)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with explain_damage(by_warnings=True):
            Trace.of(trace)
            with pytest.raises(DamagedTraceError, match=r"the file of capacity has changed"):
                warnings.warn("invalid value", RuntimeWarning, stacklevel=1)
    found = run("query", trace.path, "queuing/timeline")
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)


def test_a_warning_inside_a_function_that_reads_the_trace_is_heard_outside(trace: Trace) -> None:
    path = trace.files("capacity")[0]
    pl.read_parquet(path).with_columns(gpu_count=pl.lit(float("-inf"))).write_parquet(path)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # A command looks at warnings; the functions that it calls open the Trace themselves.
        with explain_damage(by_warnings=True), explain_damage():
            Trace.of(trace)
            with pytest.raises(DamagedTraceError, match=r"the file of capacity has changed"):
                warnings.warn("invalid value", RuntimeWarning, stacklevel=1)


@pytest.mark.parametrize("statistics", [True, False], ids=["footer", "rows"])
@pytest.mark.parametrize("value", [-(2**63), 253_402_300_800_000_000])
def test_a_time_in_no_year_is_refused_before_it_is_converted(trace: Trace, value: int, statistics: bool) -> None:
    path = trace.files("jobs")[0]
    rows = pl.read_parquet(path)
    times = pl.Series("end_time", [value] * rows.height).cast(rows.schema["end_time"])
    rows.with_columns(times).write_parquet(path, statistics=statistics)
    with pytest.raises(DamagedTraceError, match="end_time"), explain_damage():
        Trace.of(trace.path).scan("jobs").collect()


class Counted:
    """A sound Trace that counts how often it is looked at."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path, self.times = path, 0

    def validate(self, *, deep: bool) -> list[str]:
        assert deep
        self.times += 1
        return []


def test_a_trace_is_looked_at_once_and_only_for_arithmetic_that_failed(tmp_path: Path) -> None:
    first, second = Counted(tmp_path / "a"), Counted(tmp_path / "b")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with explain_damage(by_warnings=True):
            register_trace(first)
            for kind in (DeprecationWarning, FutureWarning, ResourceWarning, UserWarning):
                warnings.warn("of a library", kind, stacklevel=1)
            assert first.times == 0
            for _ in range(3):
                warnings.warn("invalid value", RuntimeWarning, stacklevel=1)
            assert first.times == 1
            register_trace(second)
            warnings.warn("divide by zero", RuntimeWarning, stacklevel=1)
    assert (first.times, second.times) == (1, 1)
    assert len(shown) == 4 + 3 + 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda raw: raw.update(tables=[]), "tables: [] is not a table"),
        (
            lambda raw: raw["tables"]["jobs"].update(rows="many"),
            "tables.jobs.rows: 'many' is not a whole number",
        ),
        (lambda raw: raw["tables"]["jobs"].update(rows=-1), "tables.jobs.rows: -1 is out of range"),
        (
            lambda raw: raw["tables"]["jobs"].update(rows=2**63),
            "tables.jobs.rows: a number of too many digits is out of range",
        ),
        (lambda raw: raw["tables"]["jobs"].update(columns="a"), "tables.jobs.columns: 'a' is not a list"),
        (lambda raw: raw.update(notes=[[]]), "notes[1]: [] is not a text"),
        (lambda raw: raw.update(time_base="never"), "time_base: 'never' is not an allowed value"),
        (lambda raw: raw.update(timezone=None), "timezone: None is not a text"),
        (lambda raw: raw.update(more=1), "more: no such key"),
        (lambda raw: raw["source"].update(tables={}), "its source is not a format and files"),
        (lambda raw: raw["source"]["files"][0].pop("path"), "files[1]: has no path"),
        (
            lambda raw: raw["capabilities"]["nodes"].update(available=1),
            "capabilities.nodes.available: 1 is neither true nor false",
        ),
        (
            lambda raw: raw["capabilities"]["nodes"].update(window=["a"]),
            "capabilities.nodes.window: is not a list of 2",
        ),
        (
            lambda raw: raw["capabilities"]["nodes"].update(window=["a", "b"]),
            "capabilities.nodes.window: 'a' is not a time",
        ),
    ],
)
def test_a_manifest_of_another_shape_is_named_by_its_place(
    trace: Trace, change: Callable[[dict[str, Any]], object], what: str
) -> None:
    edit_manifest(trace, change)
    with pytest.raises(TraceError) as caught:
        Trace.open(trace.path)
    assert caught.value.what.startswith(f"the manifest is damaged: {what}")
    found = run("info", trace.path)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (2, "", 1)


def test_a_table_named_like_a_path_is_refused(trace: Trace) -> None:
    edit_manifest(trace, lambda raw: raw["tables"].update({"../x": raw["tables"]["jobs"]}))
    with pytest.raises(TraceError, match=r"lists a table '\.\./x' that this tracekit does not know"):
        Trace.open(trace.path)


@pytest.mark.parametrize("kind", ["loop", "folder", "nothing"])
def test_a_table_that_is_not_a_file_is_missing(trace: Trace, kind: str) -> None:
    path = trace.files("jobs")[0]
    path.unlink()
    if kind == "loop":
        path.symlink_to(path.name)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(DamagedTraceError, match=r"trace: the table jobs is missing; ingest the source again"):
        Trace.open(trace.path)
    found = run("validate", trace.path)
    assert (found.returncode, found.stdout.splitlines()[0]) == (1, "the table jobs is missing")


def test_adding_failures_keeps_the_sums_of_what_it_takes_over(trace: Trace, tmp_path: Path) -> None:
    from tracekit.characterize.joblogs.run import add_to_trace

    path = trace.files("jobs")[0]
    pl.read_parquet(path).with_columns(user=pl.lit("somebody")).write_parquet(path)
    empty = pl.DataFrame(schema={"job_id": pl.String, "attempt": pl.Int64, "time": pl.Datetime("us"),
                                 "reason": pl.String, "category": pl.String, "signature": pl.String})  # fmt: skip
    again = add_to_trace(trace.path, empty)
    assert again.validate(deep=True) == ["the file of jobs has changed: its SHA-256 differs from the manifest"]


def test_the_lazy_frame_counts_rows_and_takes_the_first(trace: Trace) -> None:
    jobs, whole = trace.scan("jobs"), pl.read_parquet(trace.files("jobs")[0])
    assert jobs.select(pl.len()).collect().item() == whole.height
    assert jobs.head(7).collect().equals(whole.head(7))
    late = whole.filter(pl.col("gpu_count") > 1).select("gpu_count", "job_id").tail(3)
    assert jobs.filter(pl.col("gpu_count") > 1).select("gpu_count", "job_id").tail(3).collect().equals(late)
    assert jobs.collect(engine="streaming").equals(whole)
