"""The command line as a user meets it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.command import run
from tracekit.cli import _as_today
from tracekit.cli.display import write_frame
from tracekit.errors import UsageError
from tracekit.ingest.companion import all_companions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace


ROOT = Path(__file__).parent.parent.parent
COMMANDS = (
    "analyze",
    "compare",
    "classify-logs",
    "ingest",
    "info",
    "validate",
    "query",
    "guidelines",
    "fit",
    "generate",
    "formats",
    "datasets",
    "schema",
)


def assert_one_line(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Check that a mistake ended in exit code 2 and one line on stderr with all of `parts`."""
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert lines[0].startswith("tracekit: error: ")
    for part in parts:
        assert part in lines[0]


@pytest.fixture(scope="session")
def philly_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("cli") / "trace"
    result = run("ingest", ROOT / "sample_traces" / "philly", "-o", trace)
    assert result.returncode == 0, result.stderr
    return trace


def test_help_names_every_command_and_each_has_its_own() -> None:
    top = run("--help").stdout
    reference = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f" {command} " in top
        assert f"\n## tracekit {command}\n" in reference
        page = run(command, "--help")
        assert page.returncode == 0
        assert "Usage:" in page.stdout


def test_without_a_command_the_help_is_shown() -> None:
    result = run()
    assert "Usage:" in result.stdout + result.stderr


def test_version() -> None:
    assert run("--version").stdout == "tracekit 0.1.0\n"


def test_ingest_ends_with_the_account_and_the_trace(philly_trace: Path, tmp_path: Path) -> None:
    result = run("ingest", ROOT / "sample_traces" / "alibaba-openb", "-o", tmp_path / "t")
    assert result.returncode == 0
    records, trace = result.stdout.splitlines()
    assert records == "775 records: 773 kept, 2 rejected"
    assert trace.startswith(f"Trace: {tmp_path / 't'} (601 jobs, 538 attempts, 172 nodes")
    assert "note: format alibaba-openb, by name: " in result.stderr
    assert "only one pod list is read: 'default', not gpuspec33, multigpu20" in result.stderr


def test_info_shows_tables_and_checks_and_as_json_the_manifest(philly_trace: Path) -> None:
    page = run("info", philly_trace).stdout
    for word in ("cluster_job_log", "gpu_utilization", "hour_of_day", "gpu_held_twice", "America/Los_Angeles"):
        assert word in page
    manifest = json.loads(run("info", philly_trace, "-f", "json").stdout)
    assert manifest == json.loads((philly_trace / "manifest.json").read_text(encoding="utf-8"))


def test_validate_passes_on_a_good_trace_and_fails_on_a_damaged_one(philly_trace: Path, tmp_path: Path) -> None:
    assert run("validate", philly_trace).returncode == 0
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in philly_trace.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    pl.read_parquet(damaged / "jobs.parquet").head(10).write_parquet(damaged / "jobs.parquet")
    result = run("validate", damaged)
    assert result.returncode == 1
    assert "jobs has 10 rows, but the manifest says 797" in result.stdout


def test_query_writes_the_same_rows_in_every_format(philly_trace: Path, tmp_path: Path) -> None:
    name = "overview/status"
    from_csv = pl.read_csv(run("query", philly_trace, name, "-f", "csv").stdout.encode())
    from_json = pl.DataFrame(json.loads(run("query", philly_trace, name, "-f", "json").stdout))
    assert run("query", philly_trace, name, "-f", "parquet", "-o", tmp_path / "x.parquet").returncode == 0
    from_parquet = pl.read_parquet(tmp_path / "x.parquet")
    of_gpu_jobs = ["gpu_jobs", "gpu_jobs_share", "cpu_jobs_share"]
    assert from_csv.columns == ["status", "jobs", "jobs_share", "gpu_hours", "gpu_hours_share", *of_gpu_jobs]
    assert from_csv.rows() == from_json.rows() == from_parquet.rows()
    assert from_csv["jobs"].sum() == 797
    assert "completed" in run("query", philly_trace, name).stdout


def test_query_replaces_a_file_only_by_force(philly_trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("precious")
    arguments = ("query", philly_trace, "overview/status", "-f", "csv", "-o", file)
    assert_one_line(run(*arguments), "x.csv", "exists already", "--force")
    assert file.read_text() == "precious"
    assert run(*arguments, "--force").returncode == 0
    assert file.read_text().startswith("status,jobs,")
    assert [f.name for f in tmp_path.iterdir()] == ["x.csv"]


def test_a_damaged_table_is_one_line(philly_trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in philly_trace.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes())
    (damaged / "jobs.parquet").write_bytes(b"junk")
    assert_one_line(run("query", damaged, "overview/status"), "the table jobs cannot be read")
    assert capfd.readouterr() == ("", "")  # of libraries that write past Python
    assert run("validate", damaged).returncode == 1


def test_a_mapping_file_reads_any_log(tmp_path: Path) -> None:
    template = run("formats", "--template", "csv").stdout
    assert "[jobs.columns]" in template
    (tmp_path / "log.csv").write_text("id,created,state\na,100,ok\nb,200,bad\n")
    (tmp_path / "my.toml").write_text(
        """
        [source]
        time_format = "epoch_s"
        time_base = "relative"
        [jobs]
        files = "log.csv"
        [jobs.columns]
        job_id = "id"
        submit_time = "created"
        [jobs.status]
        column = "state"
        completed = ["ok"]
        failed = ["bad"]
        """
    )
    result = run("ingest", tmp_path / "log.csv", "--map", tmp_path / "my.toml", "-o", tmp_path / "t")
    assert result.returncode == 0, result.stderr
    assert pl.read_parquet(tmp_path / "t" / "jobs.parquet").select("job_id", "status").rows() == [
        ("a", "completed"),
        ("b", "failed"),
    ]
    assert_one_line(run("ingest", tmp_path / "log.csv", "--format", "csv", "-o", tmp_path / "u"), "mapping file")
    assert_one_line(
        run("ingest", tmp_path / "log.csv", "--map", "m", "--format", "swf", "-o", tmp_path / "u"), "docs/mapping.md"
    )
    assert_one_line(run("formats", "--template", "swf"), "only the csv format has a template")


def test_an_output_inside_the_source_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "cluster_machine_list").write_text("machineId, number of GPUs, single GPU mem\nm0,2, 12GB\n")
    assert_one_line(run("ingest", source, "-o", source / "t"), "lies inside the source")
    assert [f.name for f in source.iterdir()] == ["cluster_machine_list"]


def test_query_runs_a_file_of_the_user(philly_trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.sql"
    mine.write_text("SELECT count(*) AS jobs FROM jobs", encoding="utf-8")
    assert run("query", philly_trace, mine, "-f", "csv").stdout == "jobs\n797\n"


def test_queries_tells_what_a_trace_lacks(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("helios").path
    rows = {row["name"]: row for row in json.loads(run("query", trace, "-f", "json").stdout)}
    assert rows["queuing/run_time"]["can run here"] == "yes"
    assert rows["failures/retries"]["can run here"].startswith("no, lacks ")
    assert "gpu_utilization" in rows["utilization/gpu_by_size_status"]["can run here"]


@pytest.mark.parametrize(
    ("earlier", "today", "said"),
    [
        (("queries", "-f", "json"), ("query", "-f", "json"), "'tracekit queries' is 'tracekit query' now"),
        (
            ("fidelity", "absent", "--output=x"),
            ("calibrate", "absent", "--report=x"),
            "'tracekit fidelity' is 'tracekit calibrate --report OUT' now",
        ),
        (
            ("--debug", "plot", "absent.json", "-o", "x", "--png"),
            ("--debug", "fit", "absent.json", "--plots", "x", "--png"),
            "'tracekit plot' is 'tracekit fit --plots OUT' now",
        ),
    ],
)
def test_an_earlier_command_does_the_same_and_says_its_name_of_today(
    capfd: pytest.CaptureFixture[str], earlier: tuple[str, ...], today: tuple[str, ...], said: str
) -> None:
    assert _as_today(earlier) == list(today)
    assert capfd.readouterr().err == f"note: {said}\n"
    assert _as_today(today) == list(today)
    assert capfd.readouterr().err == ""


def test_a_format_is_shown_in_full() -> None:
    text = run("formats", "slurm").stdout
    for part in ("sacct --parsable2", "queue_from", "eligible", "slurm.schedmd.com", "tracekit ingest LOGS -o TRACE"):
        assert part in text
    shown = json.loads(run("formats", "pbs", "-f", "json").stdout)
    assert (shown["format"], shown["found"]) == ("pbs", {"accounting": "by content"})
    assert_one_line(run("formats", "slrm"), "slurm")


def test_formats_and_schema_print(philly_trace: Path) -> None:
    names = [row["format"] for row in json.loads(run("formats", "-f", "json").stdout)]
    assert names == sorted(names)
    assert {"alibaba-openb", "alibaba-pai", "helios", "philly"} <= set(names)
    listed = run("formats").stdout
    assert "doubled_hour" in listed
    assert "printed by scontrol show nodes" in listed
    assert "GPU-hours" not in run("schema", "nodes").stdout
    assert "gpu_memory_gib" in run("schema", "nodes").stdout


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("ingest", "absent", "-o", "t"), ("absent", "no such file or folder")),
        (("ingest", ".", "-o", "t"), ("contains no files",)),
        (("ingest", ".", "-o", "t", "--format", "phily"), ("contains no files",)),
        (("info", "absent"), ("absent", "no such Trace", "tracekit ingest")),
        (("query", "absent", "overview/status"), ("no such Trace",)),
        (("schema", "job"), ("no table 'job'", "did you mean 'jobs'?")),
        (("analyze", ".", "-o", "t", "--compare", "2017-02-30"), ("2017-02-30", "this day does not exist")),
        (("analyze", ".", "-o", "t", "--compare", "absent"), ("--compare absent", "does not exist")),
        (("analyze", ".", ".", "-o", "t", "--compare", "2017-10-31"), ("--compare", "with one source, not 2")),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert_one_line(run(*arguments, cwd=tmp_path), *parts)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_in_queries_are_one_line(philly_trace: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sql"
    bad.write_text("SELECT nothing FROM jobs", encoding="utf-8")
    assert_one_line(run("query", philly_trace, "queuing/runtime"), "queuing/run_time")
    assert_one_line(run("query", philly_trace, bad), "bad.sql", "nothing")
    assert_one_line(run("query", philly_trace, "overview/status", "--param", "x"), "--param", "NAME=VALUE")
    assert_one_line(run("query", philly_trace, "overview/status", "-f", "parquet"), "add -o FILE")
    assert_one_line(run("query", philly_trace, "overview/status", "--memory-limit", "lots"), "lots", "2GB")


def test_an_existing_output_is_refused_and_replaced_by_force(philly_trace: Path, tmp_path: Path) -> None:
    source = ROOT / "sample_traces" / "alibaba-openb"
    trace = tmp_path / "t"
    assert run("ingest", source, "-o", trace).returncode == 0
    assert_one_line(run("ingest", source, "-o", trace), "exists already", "--force")
    assert run("ingest", source, "-o", trace, "--force").returncode == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("x")
    assert_one_line(run("ingest", source, "-o", other, "--force"), "is not a Trace")
    assert (other / "precious").read_text() == "x"


@pytest.mark.parametrize(
    "arguments",
    [
        ("schema",),
        ("info", "TRACE"),
        *(pytest.param(one, marks=pytest.mark.thorough) for one in (("schema", "jobs"), ("validate", "TRACE"))),
    ],
)
def test_a_reader_who_goes_away_is_not_a_failure(philly_trace: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tracekit", *(str(philly_trace) if a == "TRACE" else a for a in arguments)]
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that takes a while."""
    big = tmp_path_factory.mktemp("big") / "Saturn" / "cluster_log.csv"
    big.parent.mkdir()
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    row = "u,v,1,1,1,COMPLETED,2020-04-02 00:00:00,2020-04-02 00:00:00,2020-04-02 00:01:00,60,0\n"
    with big.open("w") as out:
        out.write(head)
        out.writelines(f"{number},{row}" for number in range(600_000))
    return big


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_an_interrupted_ingest_leaves_nothing(big: Path, tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "place"
    command = [sys.executable, "-m", "tracekit", "ingest", str(big), "-o", str(place / "t")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(place.glob(".t.partial-*/jobs.parquet")), process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert list(place.iterdir()) == []


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a process does, while it lives."""
    while not happened() and process.poll() is None:
        time.sleep(0.002)


def test_a_long_result_is_written_in_parts_and_not_as_a_table(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": range(100_001), "text": "=x"})
    for form, read in (("csv", pl.read_csv), ("json", pl.read_json)):
        write_frame(frame, form, tmp_path / form, force=False)
        assert read(tmp_path / form).equals(frame)
    with pytest.raises(UsageError, match="100,001 rows"):
        write_frame(frame, "table", None, force=False)
    write_frame(frame.clear(), "json", tmp_path / "empty", force=False)
    assert (tmp_path / "empty").read_text(encoding="utf-8") == "[]\n"


def test_lists_in_a_csv_are_json(tmp_path: Path) -> None:
    frame = pl.DataFrame({"n": [1, 2], "many": [["x", "y, z"], None], "one": [{"a": 1.5}, {"a": None}]})
    write_frame(frame, "csv", tmp_path / "out.csv", force=False)
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"n": "1", "many": '["x", "y, z"]', "one": '{"a": 1.5}'},
            {"n": "2", "many": "", "one": '{"a": null}'},
        ]


def test_formats_in_json_have_what_lies_beside_a_log() -> None:
    rows = json.loads(run("formats", "-f", "json").stdout)
    beside = {row["format"] for row in rows if row["kind"] == "beside a log"}
    assert beside == {kind.name for kind in all_companions()}
    assert {"slurm", "philly"} <= {row["format"] for row in rows if row["kind"] == "log"}


def test_info_has_the_word_of_the_site(sample_trace: Callable[[str], Trace]) -> None:
    told = run("info", sample_trace("slurm").path).stdout
    assert "which account a job" in " ".join(told.split())
    assert "which VC" not in told
