"""Outputs appear whole, replace nothing unasked, and what killed runs left is put back or removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tracekit import outputs
from tracekit.errors import OutputError
from tracekit.outputs import StagedFiles, StagedFolder, recover
from tracekit.trace import Trace, is_trace

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
MARKER = "mark"
DEAD = 99999999
"""No process has so high a number."""


def staged(target: Path, content: str, *, force: bool = False) -> StagedFolder:
    folder = StagedFolder(target, force=force, marker=MARKER, kind="a test")
    (folder.path / MARKER).write_text(content)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def complete(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / MARKER).write_text(content)
    return folder


def test_a_second_run_to_one_place_is_refused_while_the_first_is_writing(tmp_path: Path) -> None:
    first = staged(tmp_path / "out", "first")
    for force in (False, True):
        with pytest.raises(OutputError, match=r"out: another run is writing it; wait for it, or choose another -o$"):
            staged(tmp_path / "out", "second", force=force)
    first.commit()
    assert (tmp_path / "out" / MARKER).read_text() == "first"
    assert names(tmp_path) == ["out"]


def test_what_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    for appear in (
        lambda out: complete(out, "theirs"),
        lambda out: out.write_text("a file"),
        lambda out: out.symlink_to(tmp_path),
    ):
        place = tmp_path / "place"
        place.mkdir()
        folder = staged(place / "out", "ours")
        appear(place / "out")
        with pytest.raises(
            OutputError, match=r"out: another run wrote it in the meantime; choose another -o, or add --forc"
        ):
            folder.commit()
        folder.discard()
        assert names(place) == ["out"]
        subprocess.run(["rm", "-r", str(place)], check=True)


def test_force_replaces_what_appeared_meanwhile_when_it_is_of_the_kind(tmp_path: Path) -> None:
    folder = staged(tmp_path / "out", "ours", force=True)
    complete(tmp_path / "out", "theirs")
    folder.commit()
    assert (tmp_path / "out" / MARKER).read_text() == "ours"
    assert names(tmp_path) == ["out"]
    folder = staged(tmp_path / "out", "new", force=True)
    (tmp_path / "out" / MARKER).rename(tmp_path / "out" / "precious")
    with pytest.raises(OutputError, match=r"out: exists and is not a test, so it will not be replaced"):
        folder.commit()
    folder.discard()
    assert names(tmp_path / "out") == ["precious"]


def test_of_two_forced_runs_at_the_very_end_one_wins_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = complete(tmp_path / "out", "old")
    folder = staged(out, "ours", force=True)
    rename = Path.rename
    moved: list[Path] = []

    def raced(self: Path, target: Path) -> Path:
        # Another run puts its own folder there between our two renames, once.
        if self == folder.path and not moved:
            moved.append(complete(out, "theirs"))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", raced)
    folder.commit()
    assert moved
    assert (out / MARKER).read_text() == "ours"
    assert names(tmp_path) == ["out"]


def test_a_failing_replacement_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = complete(tmp_path / "out", "old")
    folder = staged(out, "ours", force=True)
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self == folder.path:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OutputError, match="cannot write: Input/output error"):
        folder.commit()
    folder.discard()
    assert (out / MARKER).read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_link_to_an_empty_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    staged(tmp_path / "out", "ours").commit()
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / MARKER).read_text() == "ours"


KILLED = """
import os, signal, sys
from pathlib import Path
from tracekit.outputs import StagedFolder

out, moment = Path(sys.argv[1]), int(sys.argv[2])
folder = StagedFolder(out, force=True, marker="mark", kind="a test")
(folder.path / "mark").write_text("new")
rename, calls = os.rename, []

def killing(*given, **named):
    if len(calls) == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(given)
    return rename(*given, **named)

os.rename = killing
folder.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("moment", "kept"), [(0, "old"), (1, "old"), (2, "new"), (3, "new")])
def test_a_run_killed_while_it_replaces_costs_neither_the_old_nor_the_new(
    tmp_path: Path, moment: int, kept: str
) -> None:
    out = complete(tmp_path / "out", "old")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(out), str(moment)], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    if moment == 1:
        assert not out.exists()
    recover(out, MARKER)
    assert (out / MARKER).read_text() == kept
    staged(out, "next", force=True).commit()
    assert (out / MARKER).read_text() == "next"
    assert names(tmp_path) == ["out"]


def test_what_was_set_aside_is_put_back_or_removed_but_never_lost(tmp_path: Path) -> None:
    complete(tmp_path / f".out.old-{DEAD}", "old")
    (tmp_path / f".out.old-{DEAD - 1}").mkdir()
    complete(tmp_path / ".out.old-backup", "of the user")
    complete(tmp_path / f".other.old-{DEAD}", "of another")
    recover(tmp_path / "out", "another marker")  # a folder of another kind is not this one
    assert not (tmp_path / "out").exists()
    recover(tmp_path / "out", MARKER)
    assert (tmp_path / "out" / MARKER).read_text() == "old"
    recover(tmp_path / "out", MARKER)
    assert names(tmp_path) == [f".other.old-{DEAD}", ".out.old-backup", "out"]


def test_what_a_living_run_sets_aside_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_SWAP_S", 0.05)
    out = tmp_path / "out"
    writing = staged(out, "new")
    complete(tmp_path / f".out.old-{DEAD}", "old")
    recover(out, MARKER)
    assert not out.exists()
    writing.discard()
    recover(out, MARKER)
    assert (out / MARKER).read_text() == "old"


def test_commands_that_read_put_a_trace_back(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    home = tmp_path / "trace"
    looks: tuple[Callable[[], bool], ...] = (
        lambda: run("info", home).returncode == 0,
        lambda: run("query", home, "overview/status").returncode == 0,
        lambda: len(Trace.open(home).tables) == 1,
        lambda: is_trace(home),
        lambda: run("analyze", home, "-o", tmp_path / "report", "--no-fit", "--replay-jobs", "0").returncode == 0,
    )
    for look in looks:
        make_trace(jobs=[{"job_id": "a"}]).path.rename(tmp_path / f".trace.old-{DEAD}")
        assert look()
        assert f".trace.old-{DEAD}" not in names(tmp_path)
        home.rename(tmp_path / f".trace.old-{DEAD}")
        home.mkdir()
        (home / "manifest.json").write_text("{}")
        is_trace(home)
        assert names(tmp_path) in (["trace"], ["report", "trace"])
        subprocess.run(["rm", "-r", str(home)], check=True)
    # The Trace inside a report that was set aside.
    (tmp_path / "report").rename(tmp_path / f".report.old-{DEAD}")
    assert run("info", tmp_path / "report" / "trace").returncode == 0


def test_two_runs_at_once_one_wins_and_the_other_says_so(tmp_path: Path) -> None:
    source, out = ROOT / "sample_traces" / "alibaba-openb", tmp_path / "out"
    command = [sys.executable, "-m", "tracekit", "ingest", str(source), "-o", str(out)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(2)]
    lines = [process.communicate()[1].decode() for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2]
    error = [line for line in lines[codes.index(2)].splitlines() if not line.startswith("note: ")]
    assert len(error) == 1
    assert "another run" in error[0] or "exists already" in error[0]
    assert names(tmp_path) == ["out"]
    assert run("validate", out).returncode == 0


def test_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    main, beside = tmp_path / "main", tmp_path / "beside"
    for late in (main, beside):
        with StagedFiles(main, beside, force=False) as files:
            for path in (main, beside):
                files.part(path).write_text("ours")
            late.write_text("theirs")
            with pytest.raises(OutputError, match=f"{late.name}: another run wrote it in the meantime"):
                files.commit()
        assert names(tmp_path) == [late.name]
        assert late.read_text() == "theirs"
        late.unlink()
    with StagedFiles(main, beside, force=False) as files:
        with pytest.raises(OutputError, match="main: another run is writing it"):
            StagedFiles(main, force=True)
        files.part(main).write_text("ours")
        files.commit()
    assert names(tmp_path) == ["beside", "main"]
    with StagedFiles(main, force=True) as files:
        files.part(main).write_text("forced")
        files.commit()
    assert main.read_text() == "forced"
    assert names(tmp_path) == ["beside", "main"]


def test_where_files_have_one_name_only_they_replace_nothing_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "out"
    with StagedFiles(target, force=False) as files:
        files.part(target).write_text("ours")
        target.write_text("theirs")
        with pytest.raises(OutputError, match="another run wrote it in the meantime"):
            files.commit()
        target.unlink()
        files.commit()
    assert target.read_text() == "ours"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_only_files_are_replaced_by_files(make_trace: Callable[..., Trace], tmp_path: Path, force: tuple[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    trace = make_trace(jobs=[{"job_id": "a"}]).path
    result = run("query", trace, "overview/status", "-f", "csv", "-o", tmp_path / "pipe", *force)
    assert result.returncode == 2
    assert "pipe: is not a regular file, so it will not be replaced" in result.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_a_long_name_can_be_staged(tmp_path: Path) -> None:
    target = tmp_path / ("é" * 120)
    staged(target, "ours").commit()
    with StagedFiles(tmp_path / ("ü" * 120), force=False) as files:
        files.commit()
    assert names(tmp_path) == ["é" * 120, "ü" * 120]
