"""Ingest as a whole: nothing is lost in silence, writes are atomic, refusals are one line."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit.errors import (
    OutputError,
    SourceError,
    TooManyRejectsError,
    TracekitError,
    UnknownFormatError,
    UsageError,
)
from tracekit.ingest import ingest_logs
from tracekit.ingest.sink import Sink
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    WriteSource = Callable[[Mapping[str, str | bytes]], Path]

SAMPLES = ("alibaba-openb", "alibaba-pai", "helios", "philly")
LOG = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
JOB = "{},u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:00:10,2020-04-02 08:01:40,90,10\n"
BAD = "{},u1,vcA,4,16,1,COMPLETED,soon,,,,\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def file_records(path: Path) -> int:
    """Count the records of a raw sample file with Python's own readers."""
    if path.name == "cluster_job_log":
        return len(json.loads(path.read_bytes()))
    if path.suffix == ".gz":
        with tarfile.open(path) as archive:
            (name,) = archive.getnames()
            member = archive.extractfile(name)
            assert member is not None
            text = member.read().decode()
    else:
        text = path.read_bytes().decode(errors="surrogateescape")
    lines = [row for row in csv.reader(io.StringIO(text.replace("\0", ""), newline="")) if row]
    return len(lines) - (0 if path.name.startswith("pai_") else 1)


def on_disk(source: Path, path: str) -> Path:
    whole = source / path
    return whole if whole.is_file() else whole.parent


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_record_of_a_sample_is_kept_or_rejected(
    name: str, sample_trace: Callable[[str], Trace], sample_source: Callable[[str], Path]
) -> None:
    manifest = sample_trace(name).manifest
    counted = {f.path: f.records for f in manifest.files if not f.path.endswith(".header")}
    assert counted == {path: file_records(on_disk(sample_source(name), path)) for path in counted}
    assert [f.records for f in manifest.files] == [f.kept + f.rejected for f in manifest.files]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_trace_of_a_sample_is_valid(name: str, sample_trace: Callable[[str], Trace]) -> None:
    assert sample_trace(name).validate() == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kept_job_record_is_a_job(name: str, sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace(name)
    lists = ("cluster_job_log", "cluster_log.csv", "pai_job_table.csv", "openb_pod_list_default.csv")
    kept = sum(f.kept for f in trace.manifest.files if f.path.endswith(lists))
    assert trace.manifest.tables["jobs"].rows == kept > 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("alibaba-openb", "by name: openb_pod_list_default.csv, openb_pod_list_gpuspec33.csv"),
        ("alibaba-pai", "by name: pai_job_table.csv, pai_task_table.csv"),
        ("helios", "by name: Earth/cluster_log.csv, Venus/cluster_log.csv"),
        ("philly", "by name: cluster_job_log, cluster_machine_list"),
    ],
)
def test_a_sample_is_detected_by_its_names(name: str, reason: str, sample_source: Callable[[str], Path]) -> None:
    from tracekit.ingest.detect import detect
    from tracekit.ingest.files import source_files

    found = detect(sample_source(name), source_files(sample_source(name)))
    assert found.format.name == name
    assert found.reasons[0].startswith(reason)


def test_a_renamed_file_is_known_by_its_first_bytes(ingest: Ingest) -> None:
    assert ingest({"Earth/jobs.txt": LOG + JOB.format(1)}).manifest.format == "helios"
    named = ingest({"Earth/jobs.txt": LOG + JOB.format(1), "x": "1"}, format_name="helios")
    assert [f.path for f in named.manifest.files] == ["Earth/jobs.txt"]
    assert "ignored files (format helios): x" in named.manifest.notes


def test_files_of_several_formats_in_one_source_are_refused(ingest: Ingest) -> None:
    both = {
        "cluster_log.csv": LOG + JOB.format(1),
        "openb_pod_list_default.csv": PODS + "p1,1,1,1,1000,,LS,Failed,1,4,2\n",
    }
    with pytest.raises(UnknownFormatError, match=r"several formats match: alibaba-openb, helios; choose with --format"):
        ingest(both)
    assert ingest(both, format_name="helios").manifest.format == "helios"


def test_an_unknown_format_name_names_the_nearest(ingest: Ingest) -> None:
    with pytest.raises(UnknownFormatError, match=r"^unknown format 'heliso'; did you mean 'helios'\?$"):
        ingest({"cluster_log.csv": LOG}, format_name="heliso")


def test_files_of_no_format_are_refused_with_the_formats_there_are(ingest: Ingest) -> None:
    with pytest.raises(
        UnknownFormatError,
        match=r"no known format matches these files \(a\.txt\); name one with --format: .*helios.*philly",
    ):
        ingest({"a.txt": "hello"})


def test_an_option_that_does_not_exist_is_refused(ingest: Ingest) -> None:
    with pytest.raises(UsageError, match=r"^the format helios has no option 'unit'; there is none$"):
        ingest({"cluster_log.csv": LOG + JOB.format(1)}, options={"unit": "task"})
    with pytest.raises(UsageError, match=r"^'tsk' is not a valid value of the option unit; did you mean 'task'\?$"):
        ingest({"pai_job_table.csv": "j,a,u,Failed,1,2\n"}, options={"unit": "tsk"})


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1_is_refused(ingest: Ingest, share: float) -> None:
    with pytest.raises(UsageError, match=r"^--max-reject-share: .* is not a share; give a number from 0 to 1$"):
        ingest({"cluster_log.csv": LOG + JOB.format(1)}, max_reject_share=share)


def test_one_bad_record_is_set_aside_with_its_place(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"E/cluster_log.csv": LOG + JOB.format(1) + BAD.format(2) + JOB.format(3)})
    assert [job["job_id"] for job in rows(trace, "jobs")] == ["E/1", "E/3"]
    assert rows(trace, "rejects") == [
        {
            "source_file": "E/cluster_log.csv",
            "line": 3,
            "column": "submit_time",
            "reason": "is not a time like %Y-%m-%d %H:%M:%S",
            "raw": BAD.format(2).strip(),
        }
    ]
    assert [(f.records, f.kept, f.rejected) for f in trace.manifest.files] == [(3, 2, 1)]


def test_more_bad_records_than_allowed_are_refused_and_the_first_one_named(ingest: Ingest) -> None:
    source = {"E/cluster_log.csv": LOG + JOB.format(1) + BAD.format(2) + BAD.format(3)}
    with pytest.raises(
        TooManyRejectsError,
        match=r"^E/cluster_log\.csv: 2 of 3 records are unusable; the first one: line 3, column submit_time: "
        r"is not a time like %Y-%m-%d %H:%M:%S; .*; --max-reject-share 0\.5 is the limit$",
    ):
        ingest(source)
    assert [(f.kept, f.rejected) for f in ingest(source, max_reject_share=1).manifest.files] == [(1, 2)]


def test_exactly_the_share_allowed_is_accepted(ingest: Ingest) -> None:
    trace = ingest({"E/cluster_log.csv": LOG + JOB.format(1) + BAD.format(2)}, max_reject_share=0.5)
    assert [(f.kept, f.rejected) for f in trace.manifest.files] == [(1, 1)]


def test_a_source_without_one_usable_record_is_refused_whatever_the_share(ingest: Ingest) -> None:
    with pytest.raises(TooManyRejectsError, match=r"contains no usable record \(1 unusable\); the first one: line 2, "):
        ingest({"E/cluster_log.csv": LOG + BAD.format(1)}, max_reject_share=1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cluster_log.csv", b"", r"^cluster_log\.csv: is empty; a header line is missing: job_id,user"),
        ("cluster_log.csv", LOG.encode(), r"contains no records; check that the file is complete; with --append"),
        ("cluster_log.csv", bytes(range(256)), r"^cluster_log\.csv, line 1: the column 'job_id' is missing"),
        ("cluster_job_log", bytes(range(256)), r"^cluster_job_log, line 1: is not a JSON array"),
        ("cluster_job_log", b"[]", r"contains no records; check that the file is complete; with --append"),
        ("pai_job_table.csv", bytes(range(256)), r"contains no usable record \(2 unusable\)"),
        ("openb_pod_list_default.csv", b"\xfe\xfe" * 50, r"line 1: the column 'name' is missing"),
        ("cluster_log.csv.gz", b"no gzip", r"^cluster_log\.csv\.gz: the archive is damaged"),
    ],
)
def test_junk_under_a_known_name_is_refused_and_leaves_nothing(
    write_source: WriteSource, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SourceError, match=message):
        ingest_logs(write_source({name: content}), out / "trace")
    assert leftovers(out) == []


def test_a_trace_is_not_a_source(ingest: Ingest, tmp_path: Path) -> None:
    trace = ingest({"cluster_log.csv": LOG + JOB.format(1)})
    with pytest.raises(SourceError, match=r"is already a Trace; use it unchanged"):
        ingest_logs(trace.path, tmp_path / "again")


def test_an_existing_trace_is_replaced_only_by_force(write_source: WriteSource, tmp_path: Path, rows: Rows) -> None:
    out = tmp_path / "out" / "trace"
    ingest_logs(write_source({"E/cluster_log.csv": LOG + JOB.format(1)}), out)
    second = write_source({"E/cluster_log.csv": LOG + JOB.format(2)})
    with pytest.raises(OutputError, match=r"trace: exists already; choose another -o, or add --force to replace it$"):
        ingest_logs(second, out)
    assert [job["job_id"] for job in rows(Trace.open(out), "jobs")] == ["E/1"]
    ingest_logs(second, out, force=True)
    assert [job["job_id"] for job in rows(Trace.open(out), "jobs")] == ["E/2"]
    assert leftovers(out.parent) == ["trace"]


def test_force_replaces_nothing_but_a_trace(write_source: WriteSource, tmp_path: Path) -> None:
    source = write_source({"cluster_log.csv": LOG + JOB.format(1)})
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("notes", "file"):
        with pytest.raises(OutputError, match=rf"{name}: exists and is not a Trace, so it will not be replaced"):
            ingest_logs(source, tmp_path / name, force=True)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "file").read_text() == "x"


def test_force_replaces_a_link_and_not_what_it_points_to(write_source: WriteSource, tmp_path: Path, rows: Rows) -> None:
    old = ingest_logs(write_source({"E/cluster_log.csv": LOG + JOB.format(1)}), tmp_path / "old")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace").symlink_to(old.path)
    new = ingest_logs(write_source({"E/cluster_log.csv": LOG + JOB.format(2)}), tmp_path / "out" / "trace", force=True)
    assert [job["job_id"] for job in rows(new, "jobs")] == ["E/2"]
    assert [job["job_id"] for job in rows(Trace.open(old.path), "jobs")] == ["E/1"]
    assert leftovers(tmp_path / "out") == ["trace"]


def test_an_empty_folder_may_become_the_trace(write_source: WriteSource, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    trace = ingest_logs(write_source({"cluster_log.csv": LOG + JOB.format(1)}), tmp_path / "out")
    assert trace.validate() == []


@pytest.mark.parametrize("place", ["file/trace", "file/deeper/trace", "x" * 300])
def test_an_impossible_output_place_is_one_line(write_source: WriteSource, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match=r"cannot write: .*; choose another -o, or free its path$"):
        ingest_logs(write_source({"cluster_log.csv": LOG + JOB.format(1)}), tmp_path / place)


def test_an_output_place_that_cannot_be_written_is_one_line(
    write_source: WriteSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_source({"cluster_log.csv": LOG + JOB.format(1)})

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match=r"trace: cannot write: Permission denied; choose another -o"):
        ingest_logs(source, tmp_path / "trace")


def test_a_full_disk_is_one_line_and_leaves_nothing(
    write_source: WriteSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    class FullDisk:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

    out = tmp_path / "out"
    monkeypatch.setattr(pq, "ParquetWriter", FullDisk)
    with pytest.raises(OutputError, match=r"cannot write: No space left on device"):
        ingest_logs(write_source({"cluster_log.csv": LOG + JOB.format(1)}), out / "trace")
    assert leftovers(out) == []


@pytest.mark.parametrize("failure", [RuntimeError("boom"), KeyboardInterrupt()])
def test_a_failure_in_the_middle_leaves_nothing_and_keeps_the_old_trace(
    write_source: WriteSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, rows: Rows
) -> None:
    out = tmp_path / "out" / "trace"
    ingest_logs(write_source({"E/cluster_log.csv": LOG + JOB.format(1)}), out)

    def fail(*_: object, **__: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(Sink, "flush", fail)
        with pytest.raises(type(failure)):
            ingest_logs(write_source({"E/cluster_log.csv": LOG + JOB.format(2)}), out, force=True)
    assert leftovers(out.parent) == ["trace"]
    assert [job["job_id"] for job in rows(Trace.open(out), "jobs")] == ["E/1"]


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (duckdb.OutOfMemoryException("Out of Memory Error: 1 GB used\nmore"), "use a larger --memory-limit"),
        (duckdb.IOException("IO Error: No space left\nmore"), "free the temporary folder"),
    ],
)
def test_a_join_that_does_not_fit_is_one_line_and_leaves_nothing(
    write_source: WriteSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, part: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tracekit.ingest.run.run_common_checks", fail)
    source = write_source({"cluster_machine_list": "machineId, number of GPUs, single GPU mem\nm0,2, 12GB\n"})
    with pytest.raises(TracekitError, match=part) as caught:
        ingest_logs(source, tmp_path / "place" / "t")
    assert "more" not in str(caught.value)
    assert list((tmp_path / "place").iterdir()) == []


def test_what_a_killed_writer_left_is_removed_by_the_next(write_source: WriteSource, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # No process has a number above the kernel's limit of 2**22; process 1 lives.
    for name in (".trace.partial-99999999", ".trace.partial-1", ".other.partial-99999999"):
        (out / name).mkdir(parents=True)
        (out / name / "jobs.parquet").write_bytes(b"half")
    ingest_logs(write_source({"cluster_log.csv": LOG + JOB.format(1)}), out / "trace")
    assert leftovers(out) == [".other.partial-99999999", ".trace.partial-1", "trace"]


def test_signs_in_the_name_of_the_output_mean_themselves(write_source: WriteSource, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in (".a[bc].partial-99999999", ".ab.partial-99999999"):
        (out / name).mkdir(parents=True)
    ingest_logs(write_source({"cluster_log.csv": LOG + JOB.format(1)}), out / "a[bc]")
    assert leftovers(out) == [".ab.partial-99999999", "a[bc]"]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_same_input_gives_the_same_bytes(
    name: str, tmp_path: Path, sample_source: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1500000000")
    contents = []
    for number in range(2):
        trace = ingest_logs(sample_source(name), tmp_path / str(number))
        contents.append({path.name: path.read_bytes() for path in trace.path.iterdir()})
    assert contents[0] == contents[1]
    assert json.loads(contents[0]["manifest.json"])["created"] == "2017-07-14T02:40:00Z"


def excerpts(sample_source: Callable[[str], Path]) -> dict[str, dict[str, bytes]]:
    """Return small cuts of the samples by format."""

    def lines(path: str, count: int) -> bytes:
        return b"".join((sample_source(".") / path).read_bytes().splitlines(keepends=True)[:count])

    jobs = json.loads((sample_source("philly") / "cluster_job_log").read_bytes())[:8]
    return {
        "philly": {
            "cluster_job_log": json.dumps(jobs, indent=1).encode(),
            "cluster_machine_list": lines("philly/cluster_machine_list", 9),
            "cluster_gpu_util": lines("philly/cluster_gpu_util", 9),
            "cluster_cpu_util": lines("philly/cluster_cpu_util", 9),
            "cluster_mem_util": lines("philly/cluster_mem_util", 9),
        },
        "helios": {
            "Earth/cluster_log.csv": lines("helios/Earth/cluster_log.csv", 12),
            "Earth/cluster_gpu_number.csv": lines("helios/Earth/cluster_gpu_number.csv", 8),
        },
        "alibaba-pai": {
            "pai_job_table.csv": lines("alibaba-pai/pai_job_table.csv", 8),
            "pai_task_table.csv": lines("alibaba-pai/pai_task_table.csv", 12),
            "pai_task_table.header": lines("alibaba-pai/pai_task_table.header", 1),
        },
        "alibaba-openb": {
            "openb_pod_list_default.csv": lines("alibaba-openb/openb_pod_list_default.csv", 10),
            "openb_node_list_all_node.csv": lines("alibaba-openb/openb_node_list_all_node.csv", 10),
        },
    }


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return `content` with a few bytes changed, lost, doubled or added."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(data) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            data[place : place + 1] = bytes([draw.choice(b'0123456789,"\n\r{}[]-e.\\ \0\xff\xc3')])
        elif kind == 1:
            del data[place : place + draw.choice((1, 1, 2, 20))]
        elif kind == 2:
            data[place:place] = data[place : place + draw.choice((1, 5, 200))]
        else:
            data[place:place] = draw.choice((b'"', b"9" * 19, b"e300", b"\r\n", b",,", b"\xef\xbb\xbf", b"None", b"}"))
    return bytes(data)


def outcome_of(source: Path, out: Path) -> Trace | TracekitError:
    try:
        return ingest_logs(source, out, max_reject_share=1)
    except TracekitError as error:
        return error


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_damaged_bytes_give_a_valid_trace_or_one_error(
    name: str, seed: int, sample_source: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_lawful(name, seed, sample_source, tmp_path_factory.mktemp("damaged"))


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32))
def test_many_damaged_bytes_give_a_valid_trace_or_one_error(
    name: str, seed: int, sample_source: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_lawful(name, seed, sample_source, tmp_path_factory.mktemp("damaged"))


def assert_lawful(name: str, seed: int, sample_source: Callable[[str], Path], folder: Path) -> None:
    """Damage a log, and check that it gives a valid Trace or one error."""
    draw = random.Random(seed)
    for path, content in excerpts(sample_source)[name].items():
        (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / path).write_bytes(damaged(content, draw) if draw.random() < 0.6 else content)
    outcome = outcome_of(folder / "source", folder / "trace")
    if isinstance(outcome, Trace):
        assert outcome.validate() == []
        assert all(f.records == f.kept + f.rejected for f in outcome.manifest.files)
        rejects = outcome.scan("rejects").select(pl.len()).collect().item() if outcome.has("rejects") else 0
        assert outcome.manifest.rejected == rejects
    else:
        assert str(outcome).isprintable()
        assert leftovers(folder) == ["source"]
    shutil.rmtree(folder)


def test_progress_is_reported_and_ends_at_the_size_of_the_files(write_source: WriteSource, tmp_path: Path) -> None:
    from tracekit.progress import Progress

    class Recorder(Progress):
        def __init__(self) -> None:
            self.stages: list[tuple[str, int | None]] = []
            self.advanced = 0

        def stage(self, what: str, total: int | None = None) -> None:
            self.stages.append((what, total))

        def advance(self, amount: int) -> None:
            self.advanced += amount

    recorder = Recorder()
    source = write_source({"E/cluster_log.csv": LOG + JOB.format(1)})
    ingest_logs(source, tmp_path / "trace", progress=recorder)
    size = os.path.getsize(source / "E" / "cluster_log.csv")  # noqa: PTH202 -- an independent count
    assert recorder.stages[0] == ("reading E/cluster_log.csv", size)
    assert recorder.advanced == size
