"""Ledgers of runs: what is damaged is no result, writers do not meet, and nobody removes another's work."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tracekit.errors import OutputError, UnfinishedError, UsageError
from tracekit.runs import ledger
from tracekit.runs.ledger import Ledger, RunFolder

if TYPE_CHECKING:
    from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = {"a": 1.5, "b": [None, "x"], "c": {"d": True}, "e": 0.1 + 0.2}


def opened(folder: Path) -> RunFolder:
    return RunFolder(folder / "runs", folder)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    results = opened(tmp_path)
    assert results.read("d1") is None
    results.write("d1", RESULT)
    assert opened(tmp_path).read("d1") == RESULT
    endless = {"x": math.inf, "y": -math.inf}
    results.write("d2", endless)
    assert results.read("d2") == endless
    results.write("d3", {"x": math.nan})
    assert math.isnan((results.read("d3") or {})["x"])
    assert sorted(path.name for path in results.folder.iterdir()) == ["d1.json", "d2.json", "d3.json"]


def test_nothing_but_the_whole_file_under_its_own_name_is_a_result(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.write("d1", RESULT)
    path = results.folder / "d1.json"
    whole = path.read_bytes()
    for length in range(len(whole.rstrip())):
        path.write_bytes(whole[:length])
        assert results.read("d1") is None
    damaged = [
        whole.replace(b"1.5", b"1.6"), b"[]", b"null", b"{}", b"\xff", b"[" * 100_000,
        whole.replace(b"check", b"chuck"), json.dumps(RESULT).encode(), b"\0" * len(whole),
    ]  # fmt: skip
    for content in damaged:
        path.write_bytes(content)
        assert results.read("d1") is None
    path.write_bytes(whole)
    assert results.read("d1") == RESULT
    path.rename(results.folder / "d2.json")
    assert results.read("d2") is None
    (results.folder / "d3.json").mkdir()
    assert results.read("d3") is None


def test_a_failure_is_kept_beside_results_and_is_none(tmp_path: Path) -> None:
    results = opened(tmp_path)
    results.write("d1", {"error": "it failed"}, failed=True)
    assert results.read("d1", failed=True) == {"error": "it failed"}
    assert results.read("d1") is None
    assert results.read("d2", failed=True) is None
    assert [path.name for path in results.folder.iterdir()] == ["d1.failed.json"]


def test_the_number_of_shards_is_that_of_the_last_time(tmp_path: Path) -> None:
    results = opened(tmp_path)
    assert results.shards is None
    results.note_shards(8)
    results.note_shards(3)
    assert opened(tmp_path).shards == 3
    (results.folder / "shards.json").write_text('{"shards": 4}')
    assert results.shards is None


def test_a_folder_that_is_not_there_is_not_made_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"contains no finished results; make them with --shard first"):
        RunFolder(tmp_path / "runs", tmp_path, make=False)
    assert not (tmp_path / "runs").exists()


def test_a_full_disk_is_one_clear_error_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = opened(tmp_path)
    results.write("d1", RESULT)
    real = Path.write_bytes

    def full(self: Path, content: bytes) -> int:
        real(self, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    for digest in ("d1", "d2"):
        with pytest.raises(OutputError, match=r"cannot write: No space left on device"):
            results.write(digest, {"a": 2})
    monkeypatch.undo()
    assert results.read("d1") == RESULT
    assert [path.name for path in results.folder.iterdir()] == ["d1.json"]


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write: "):
        RunFolder(tmp_path / "file" / "runs", tmp_path)


_DIES = """
import os, signal, sys
from pathlib import Path
from tracekit.runs import ledger
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
ledger.write_whole(Path(sys.argv[1]), b"half of it")
"""


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="only Linux tells processes of containers apart")
def test_leftovers_of_the_dead_of_this_machine_go_and_all_others_stay(tmp_path: Path) -> None:
    results = opened(tmp_path)
    died = subprocess.run([sys.executable, "-c", _DIES, results.folder / "d1.json"], cwd=ROOT, check=False)
    assert died.returncode == -9
    (left,) = results.folder.iterdir()
    assert left.read_bytes() == b"half of it"
    stem, host, space, pid, count = left.name.rsplit("-", 4)
    kept = {
        # Of another machine, of another container, of a process that lives, and files that are no leftovers of ours.
        f"{stem}-elsewhere-{'0' * 12}-{pid}-{count}",
        f"{stem}-{host}-unknown-{pid}-{count}",
        f"{stem}-{host}-{space}-{os.getppid()}-0",
        f"{stem}-{host}-{space}-{os.getpid()}-999999",
        f".d1.json.partial-{pid}",
        "mine.txt",
    }
    for name in kept:
        (results.folder / name).write_bytes(b"x")
    again = opened(tmp_path)
    assert {path.name for path in again.folder.iterdir()} == kept
    again.write("d1", RESULT)
    assert again.read("d1") == RESULT
    assert {path.name for path in again.folder.iterdir()} == {*kept, "d1.json"}


def test_where_nothing_tells_who_is_alive_every_leftover_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_space", lambda: "unknown")
    (tmp_path / "runs").mkdir()
    left = tmp_path / "runs" / f".d1.json.partial-h-unknown-{2**22 + 1}-0"
    left.write_bytes(b"x")
    opened(tmp_path)
    assert left.exists()


_WRITES = """
import sys
from pathlib import Path
from tracekit.runs.ledger import RunFolder
results = RunFolder(Path(sys.argv[1]), Path(sys.argv[1]))
for k in range(300):
    results.write("d1", {"by": sys.argv[2], "k": k, "more": sys.argv[2] * 5000})
"""


def test_two_writers_of_one_result_never_show_half_of_it(tmp_path: Path) -> None:
    results = opened(tmp_path)
    command = [sys.executable, "-c", _WRITES, str(results.folder)]
    writers = [subprocess.Popen([*command, by], cwd=ROOT) for by in ("x", "y")]
    seen: set[Any] = set()
    while any(writer.poll() is None for writer in writers):
        if (results.folder / "d1.json").exists():
            found = results.read("d1")
            assert found is not None
            assert found["more"] == found["by"] * 5000
            seen.add((found["by"], found["k"]))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(seen) > 1
    assert [path.name for path in results.folder.iterdir()] == ["d1.json"]


def made_by(ledger: Ledger, names: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the results of items, and which of them were made now."""
    now: list[str] = []

    def make(name: str) -> dict[str, Any]:
        now.append(name)
        return {"name": name}

    return ledger.results({name: partial(make, name) for name in names}, "items"), now


def test_a_shard_makes_its_own_items_first_and_then_those_that_nobody_made(tmp_path: Path) -> None:
    whole = [{"name": name} for name in "abcdefg"]
    second = Ledger.opened(tmp_path / "runs", "2/3", collect=False)
    assert second is not None
    second.put("g", {"name": "g"})  # another shard made it before
    found, now = made_by(second, "abcdefg")
    assert found == whole
    assert now[:2] == ["b", "e"]
    assert sorted(now) == sorted("abcdef")
    late = Ledger.opened(tmp_path / "runs", "1/3", collect=False)
    assert late is not None
    assert made_by(late, "abcdefg") == (whole, [])
    assert (second.made, late.made) == (7, 0)


def test_an_item_that_another_makes_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    first = Ledger.opened(tmp_path / "runs", "1/2", collect=False)
    other = Ledger.opened(tmp_path / "runs", "2/2", collect=False)
    assert first is not None
    assert other is not None

    def make_a() -> dict[str, Any]:
        other.put("b", {"name": "b"})
        return {"name": "a"}

    makers = {"a": make_a, "b": lambda: pytest.fail("b is there")}
    assert first.results(makers, "items") == [{"name": "a"}, {"name": "b"}]


def test_who_gathers_makes_nothing_and_names_what_to_run(tmp_path: Path) -> None:
    makes = Ledger.opened(tmp_path / "runs", "1/4", collect=False)
    assert makes is not None
    made_by(makes, "ab")
    gathers = Ledger.opened(tmp_path / "runs", None, collect=True)
    assert gathers is not None
    assert made_by(gathers, "ab") == ([{"name": "a"}, {"name": "b"}], [])
    with pytest.raises(
        UnfinishedError, match=r"1 of 3 items are missing; run the same command with --shard 1/4, or any other"
    ):
        made_by(gathers, "abc")


def test_without_a_folder_results_stay_in_memory_by_all_their_facts() -> None:
    whole = Ledger()
    found, now = made_by(whole, "ab")
    assert (found, now, whole.made) == ([{"name": "a"}, {"name": "b"}], ["a", "b"], 2)
    one, other = (whole.about(log=name) for name in "xy")
    assert len({whole.digest(seed=0), one.digest(seed=0), other.digest(seed=0), other.digest(seed=1)}) == 4
    assert one.about(log="y").digest(seed=1) == other.digest(seed=1)
    one.put(one.digest(seed=0), {"name": "c"})
    assert (other.get(one.digest(seed=0)), other.get(other.digest(seed=0)), whole.made) == ({"name": "c"}, None, 3)


def test_shard_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    assert Ledger.opened(None, None, collect=False) is None
    with pytest.raises(UsageError, match="needs the folder shared by the shards"):
        Ledger.opened(None, "1/2", collect=False)
    with pytest.raises(UsageError, match="cannot be combined with --collect, which only merges results"):
        Ledger.opened(tmp_path, "1/2", collect=True)
    with pytest.raises(OutputError, match="contains no finished results"):
        Ledger.opened(tmp_path / "none", None, collect=True)
