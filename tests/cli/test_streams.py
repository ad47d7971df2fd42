"""Every command on streams and names of every kind: plain success or one line, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import run, run_alone
from tracekit import errors
from tracekit.characterize import list_queries
from tracekit.cli import _line
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
SLURM = ROOT / "sample_traces" / "slurm"
COMMANDS: dict[str, tuple[str, ...]] = {
    "analyze": ("TRACE", "-o", "OUT", "--no-fit", "--replay-jobs", "0"),
    "digest": ("TRACE", "-o", "OUT"),
    "compare": ("TRACE", "TRACE", "-o", "OUT", "--query", "overview/status"),
    "classify-logs": ("LOGS", "-o", "OUT.parquet"),
    "ingest": (str(SLURM), "-o", "OUT"),
    "info": ("TRACE",),
    "validate": ("TRACE",),
    "query": ("TRACE", "overview/status"),
    "wait": ("TRACE", "--gpus", "1"),
    "replay": ("TRACE", "-p", "fifo", "-o", "OUT"),
    "plan": ("TRACE", "-o", "OUT"),
    "policies": (),
    "calibrate": ("TRACE", "--report", "OUT"),
    "sweep": ("--template",),
    "guidelines": ("TRACE", "--only", "gang-wait"),
    "fit": ("TRACE", "-o", "OUT.json", "--bootstrap", "0"),
    "generate": ("absent.json", "--jobs", "3", "-o", "OUT"),
    "export": ("TRACE", "--to", "swf", "-o", "OUT.swf"),
    "formats": (),
    "datasets": (),
    "schema": ("jobs",),
}
ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.fixture(scope="session")
def named(make_trace: Callable[..., Trace]) -> Path:
    """A Trace with names that ASCII lacks."""
    jobs = [
        {
            "job_id": f"j{i}",
            "user": "José",
            "vc": "研究",
            "status": "completed",
            "submit_time": f"2020-01-01 0{i}:00",
            "start_time": f"2020-01-01 0{i}:10",
            "end_time": f"2020-01-01 0{i}:50",
            "gpu_count": 1,
        }
        for i in range(8)
    ]
    return make_trace(jobs=jobs, nodes=[{"node_id": "knoten-ä", "gpu_count": 4}]).path


def given_to(command: str, named: Path, folder: Path) -> list[str]:
    """Return the arguments of a command, its outputs below `folder`."""
    (folder / "logs").mkdir(exist_ok=True)
    words = {"TRACE": str(named), "LOGS": str(folder / "logs")}
    return [words.get(word, word.replace("OUT", str(folder / "out"))) for word in COMMANDS[command]]


def said_by(
    command: str, named: Path, folder: Path, redirect: str, env: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a shell that redirects its streams."""
    given = given_to(command, named, folder)
    line = ["bash", "-c", f'"$@" {redirect}', "bash", sys.executable, "-m", "tracekit", command, *given]
    return subprocess.run(
        line, env={**os.environ, "PYTHONPATH": str(ROOT), **env}, capture_output=True, check=False, cwd=folder
    )


def assert_plain(done: subprocess.CompletedProcess[bytes]) -> None:
    """Check that a run ended well, or with one line of error."""
    told = [line for line in done.stderr.decode("ascii", "replace").splitlines() if not line.startswith("note: ")]
    assert done.returncode in (0, 2), done.stderr
    assert len(told) <= done.returncode // 2
    assert all(line.startswith("tracekit: error: ") for line in told)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_that_knows_ascii_only(command: str, named: Path, tmp_path: Path) -> None:
    result = run(command, *given_to(command, named, tmp_path), encoding="ascii")
    told = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert len(told) <= result.returncode // 2
    assert all(line.startswith("tracekit: error: ") for line in told)
    assert result.stdout or result.returncode == 2
    assert result.returncode == 0 or command in {"generate", "calibrate", "guidelines", "classify-logs", "plan"}


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    ("command", "redirect"),
    [
        # Each way once, and each command; every command in every way is thorough.
        pytest.param(command, redirect, marks=[] if redirect in first else pytest.mark.thorough)
        for command, first in (
            ("query", (">&-", "2>&-", "2>/dev/full")),
            ("ingest", (">/dev/full",)),
            ("generate", ("<&- >&- 2>&-",)),
        )
        for redirect in (">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full")
    ],
)
def test_streams_that_are_closed_or_full(command: str, redirect: str, named: Path, tmp_path: Path) -> None:
    done = said_by(command, named, tmp_path, redirect, {})
    assert_plain(done)
    failing = command == "generate" or redirect == ">/dev/full"
    assert done.returncode == (2 if failing else 0)
    if redirect == ">/dev/full" and command != "generate":
        assert b"tracekit: error: standard output: cannot write: No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-f", "json"), '[{"user":"José","vc":"研究"}]\n'),
        pytest.param(("-f", "csv"), "user,vc\nJosé,研究\n", marks=pytest.mark.thorough),
        ((), r"Jos\xe9"),
    ],
    ids=["json", "csv", "table"],
)
def test_data_are_utf8_wherever_they_go(options: tuple[str, ...], expected: str, named: Path, tmp_path: Path) -> None:
    sql = tmp_path / "users.sql"
    sql.write_text('SELECT DISTINCT "user", vc FROM jobs')
    env = {**os.environ, **ASCII, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tracekit", "query", str(named), str(sql)]
    done = subprocess.run([*command, *options], env=env, capture_output=True, check=True)
    assert expected in done.stdout.decode()


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names there are Unicode")
def test_raw_files_whose_names_are_not_utf8_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [query for query in list_queries() if query.name.startswith("overview/")]
    monkeypatch.setattr("tracekit.characterize.list_queries", lambda: few)
    source = Path(os.fsdecode(os.fsencode(tmp_path) + b"/lo\xffgs"))
    source.mkdir()
    (source / os.fsdecode(b"sa\xffct.txt")).write_bytes((SLURM / "sacct.txt").read_bytes())
    result = run("ingest", source, "-o", tmp_path / "t")
    assert result.returncode == 0, result.stderr
    assert [f.path for f in Trace.open(tmp_path / "t").manifest.files] == [r"sa\xffct.txt"]
    assert r"sa\xffct.txt" in run("info", tmp_path / "t").stdout
    assert run("validate", tmp_path / "t").returncode == 0
    for out, code in ((tmp_path / "u", 0), (source / "u", 2)):
        assert run("analyze", tmp_path / "t", "-o", out, "--no-fit", "--replay-jobs", "0").returncode == code
    (tmp_path / "t").rename(source / "t")
    for arguments in (("info",), ("validate",), ("query", "overview/status"), ("fit", "-o", tmp_path / "m.json")):
        result = run(arguments[0], source / "t", *arguments[1:])
        assert result.returncode == 2
        assert "its path is not UTF-8" in result.stderr


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names there are Unicode")
def test_a_result_may_have_any_name(named: Path, tmp_path: Path) -> None:
    for form in ("csv", "json", "parquet"):
        out = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9." + form.encode()))
        assert run("query", named, "overview/status", "-f", form, "-o", out).returncode == 0
        assert out.stat().st_size


@pytest.mark.parametrize("command", COMMANDS)
def test_loops_of_links_are_one_line(command: str, named: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    given = [word for word in COMMANDS[command] if word in {"TRACE", "LOGS", "absent.json"}]
    other: list[str | Path] = ["-o", tmp_path / "out"] if "-o" in COMMANDS[command] else []
    if command == "ingest":
        given = ["TRACE"]
    if command == "sweep":
        given, other = ["TRACE"], ["-o", tmp_path / "out"]
    if command in {"policies", "formats", "datasets", "schema"}:
        given = ["TRACE"]
    extra = {"query": ["overview/status"], "export": ["--to", "swf"], "generate": ["--jobs", "3"]}
    loops: list[str | Path] = [loop] * len(given)
    result = run(command, *loops, *extra.get(command, []), *other)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop"]
    if "-o" in COMMANDS[command]:
        for out in (loop, loop / "below", named / "jobs.parquet" / "below"):
            words = {"TRACE": named, "LOGS": named, "absent.json": ROOT / "absent.json"}
            words |= {"OUT": out, "OUT.json": out, "OUT.swf": out, "OUT.parquet": out.with_suffix(".parquet")}
            if command == "classify-logs" and out == loop:
                continue  # its name has to end in .parquet
            result = run(command, *(words.get(word, word) for word in COMMANDS[command]))
            assert result.returncode == 2, (command, out, result.stdout)
            told = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
            assert len(told) == 1
            assert told[0].startswith("tracekit: error: ")


def test_a_long_error_is_cut_and_debug_shows_all_of_it(tmp_path: Path) -> None:
    name = "/".join(["deep" * 20] * 6)
    result = run("info", name)
    (line,) = result.stderr.splitlines()
    assert len(line) == 300
    assert line.startswith("tracekit: error: deepdeep")
    assert line.endswith(
        "…; make one with 'tracekit ingest SRC -o TRACE' (cut short; 'tracekit --debug ...' shows all of it)"
    )
    whole = run_alone("--debug", "info", name).stderr
    assert f"{name}: no such Trace; make one" in whole
    assert "Traceback" in whole
    assert "TraceError" in whole
    cure = "do this " * 50
    assert _line(f"nothing: is wrong; {cure}", cure) == f"tracekit: error: nothing: is wrong; {cure}"
    cut = _line(f"{'deep' * 100}: is wrong; {cure}", cure)
    assert cut.startswith("tracekit: error: deepdeep")
    assert f"…; {cure} (cut short" in cut
    short = tmp_path / "absent"
    assert run("info", short).stderr == (
        f"tracekit: error: {short}: no such Trace; make one with 'tracekit ingest SRC -o TRACE'\n"
    )
    assert issubclass(errors.TraceError, errors.TracekitError)
