"""A download that was stopped goes on, or starts from zero, but never gives a wrong file."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.datasets import fetch_dataset
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.datasets import Dataset

STOPPING = {"breaks_after": 20_000, "breaks": 5}
"""The server cuts the connection as often as one run tries: 100,000 bytes come when it can go on each time."""


def stop(server: Any, dataset: Dataset, folder: Path) -> None:
    """Let a run stop before the end, and forget what the server was asked."""
    with pytest.raises(SourceError, match=r"the connection ended after [0-9,]+ of 512,000 bytes"):
        fetch_dataset(dataset, folder)
    server.asked.clear()


def test_a_connection_that_breaks_is_gone_on_with_at_once(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", breaks_after=150_000))
    (found,) = fetch_dataset(dataset, tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert server.ranges == [None, "bytes=150000-", "bytes=300000-", "bytes=450000-"]
    assert heard.done == 512_000


def test_the_next_run_goes_on_and_nothing_stays_behind(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", **STOPPING))
    stop(server, dataset, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".tracekit-fetch"]
    (found,) = fetch_dataset(dataset, tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert server.ranges == ["bytes=100000-"]
    assert heard.done == 512_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.tar.gz", "tracekit-dataset.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"tag": '"two"', "content": b"new" * 1000},
        {"tag": None, "date": "Thu, 01 Jan 2026 00:00:00 GMT", "content": b"new" * 1000},
    ],
)
def test_a_file_that_changed_meanwhile_starts_from_zero(
    change: dict[str, Any], server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", **STOPPING), sha256=None, sha256_from=None, bytes=None)
    stop(server, dataset, tmp_path)
    server.serve("x", **change)
    (found,) = fetch_dataset(dataset, tmp_path, progress=heard)
    assert found.path.read_bytes() == change["content"]
    assert server.asked == [("/x", "bytes=100000-", 200)]
    assert heard.done == 3_000


def test_a_date_does_when_there_is_no_strong_tag(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    how = {"tag": 'W/"weak"', "date": "Thu, 01 Jan 2026 00:00:00 GMT"}
    dataset = make_dataset(server.serve("x", **how, **STOPPING), sha256=None, sha256_from=None, bytes=None)
    stop(server, dataset, tmp_path)
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == server.content
    assert server.asked == [("/x", "bytes=100000-", 206)]


def test_a_weak_tag_alone_is_not_a_reason_to_go_on(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    url = server.serve("x", tag='W/"weak"', **STOPPING)
    dataset = make_dataset(url, sha256=None, sha256_from=None, bytes=None)
    stop(server, dataset, tmp_path)
    server.serve("x", tag='W/"weak"', content=b"new" * 1000)
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == b"new" * 1000
    assert server.asked == [("/x", None, 200)]


def test_without_tag_and_date_only_a_file_with_a_checksum_is_gone_on_with(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    url = server.serve("x", tag=None, **STOPPING)
    known, unknown = make_dataset(url), make_dataset(url, sha256=None, sha256_from=None, bytes=None)
    stop(server, known, tmp_path / "known")
    fetch_dataset(known, tmp_path / "known")
    assert server.ranges == ["bytes=100000-"]
    server.serve("x", tag=None, **STOPPING)
    stop(server, unknown, tmp_path / "unknown")
    fetch_dataset(unknown, tmp_path / "unknown")
    assert server.ranges == [None]


def test_a_server_without_ranges_starts_from_zero(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", ranges=False, **STOPPING))
    stop(server, dataset, tmp_path)
    (found,) = fetch_dataset(dataset, tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert server.asked == [("/x", "bytes=20000-", 200)]
    assert heard.done == 512_000


def test_bytes_of_an_earlier_run_that_turn_out_wrong_are_fetched_anew(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", **STOPPING))
    stop(server, dataset, tmp_path)
    (part,) = (tmp_path / ".tracekit-fetch").glob("*.part")
    part.write_bytes(b"\0" * 100_000)
    (found,) = fetch_dataset(dataset, tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert server.ranges == ["bytes=100000-", None]
    assert heard.notes == []


def test_a_server_that_resumes_with_wrong_bytes_is_left_after_a_second_download(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    liar = server.serve("liar", breaks_after=200_000, resumed=b"y" * 512_000)
    with pytest.raises(
        SourceError, match=r"its SHA-256 is not [0-9a-f]{12}\.\.\., twice: the server resumes with the wrong bytes"
    ):
        fetch_dataset(make_dataset(liar), tmp_path)
    assert server.ranges == [None, "bytes=200000-", "bytes=400000-"] * 2
    (found,) = fetch_dataset(make_dataset(liar, server.serve("good")), tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert len(heard.notes) == 1


@pytest.mark.parametrize(
    ("tag", "date"), [('"two"', None), (None, "Thu, 01 Jan 2026 00:00:00 GMT")], ids=["entity tag", "date"]
)
def test_a_part_of_another_file_starts_from_zero_once(
    tag: str | None, date: str | None, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    """The server ignores If-Range, and says itself that its part is of another file."""
    first = {"tag": '"one"'} if tag else {"tag": None, "date": "Wed, 01 Jan 2025 00:00:00 GMT"}
    dataset = make_dataset(server.serve("x", **first, **STOPPING), sha256=None, sha256_from=None, bytes=None)
    stop(server, dataset, tmp_path)
    new = b"new!" * 128_000
    server.serve("x", tag=tag, date=date, content=new, resumed=new)
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == new
    assert server.asked == [("/x", "bytes=100000-", 206), ("/x", None, 200)]


@pytest.mark.parametrize("shift", [-10, 10])
def test_a_server_that_sends_another_part_is_left_after_one_fresh_start(
    shift: int, server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", breaks_after=200_000, shift=shift))
    with pytest.raises(SourceError, match="the server sent the wrong part of the file"):
        fetch_dataset(dataset, tmp_path, progress=heard)
    assert server.ranges == [None, "bytes=200000-"] * 2
    assert heard.done == 0


@pytest.mark.parametrize("facts", ["", "[]", "{", '{"total": 7, "validator": "\\"one\\""}'])
def test_damaged_facts_beside_an_earlier_run_do_no_harm(
    facts: str, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", **STOPPING))
    stop(server, dataset, tmp_path)
    (beside,) = (tmp_path / ".tracekit-fetch").glob("*.part.json")
    beside.write_text(facts, encoding="utf-8")
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == server.content
    assert server.ranges[-1] is None


def test_more_bytes_than_the_file_has_are_dropped(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", **STOPPING))
    stop(server, dataset, tmp_path)
    (part,) = (tmp_path / ".tracekit-fetch").glob("*.part")
    part.write_bytes(b"\0" * 600_000)
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == server.content


def test_what_one_source_gave_is_kept_while_another_is_tried(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    first = server.serve("x", **STOPPING)
    dataset = make_dataset(first, f"{server.base}/missing")
    with pytest.raises(SourceError, match="HTTP 404"):
        fetch_dataset(dataset, tmp_path)
    server.asked.clear()
    fetch_dataset(dataset, tmp_path)
    assert server.asked == [("/x", "bytes=100000-", 206)]


def test_a_connection_cut_without_a_stated_length_is_noticed_by_the_known_size(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x", with_length=False, breaks_after=200_000, breaks=1))
    (found,) = fetch_dataset(dataset, tmp_path)
    assert found.path.read_bytes() == server.content
    assert server.ranges == [None, "bytes=200000-"]


FETCH = """
import sys
from tracekit.datasets import Dataset, RemoteFile, fetch_dataset
url, sha256, folder = sys.argv[1:]
file = RemoteFile("data.tar.gz", (url,), 512_000, None, sha256, "publisher")
fetch_dataset(Dataset("toy", "", "philly", "", "", "", "", "", (file,)), folder)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_half_file_under_the_final_name(
    number: signal.Signals, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    url, folder = server.serve("x", stalls_after=100_000), tmp_path / "raw"
    run = subprocess.Popen([sys.executable, "-c", FETCH, url, server.sha256, str(folder)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not any(p.stat().st_size >= 100_000 for p in folder.glob(".tracekit-fetch/*.part")):
        assert run.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    run.send_signal(number)
    run.wait(timeout=60)
    server.paths["/x"].gate.set()
    assert [path.name for path in folder.iterdir()] == [".tracekit-fetch"]
    server.serve("x")
    server.asked.clear()
    (found,) = fetch_dataset(make_dataset(url), folder)
    assert found.path.read_bytes() == server.content
    assert server.ranges == ["bytes=100000-"]
    assert sorted(path.name for path in folder.iterdir()) == ["data.tar.gz", "tracekit-dataset.json"]


def test_wherever_a_run_is_stopped_while_files_are_renamed_the_next_goes_on(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make_dataset(server.serve("x"), sha256=None, sha256_from=None, bytes=None)
    rename, kept = Path.replace, []

    def stopping(self: Path, target: Path) -> Path:
        kept.append(self.name)
        if len(kept) > moment:
            raise KeyboardInterrupt
        return rename(self, target)

    for moment in range(4):
        kept.clear()
        folder = tmp_path / str(moment)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", stopping)
            with pytest.raises(KeyboardInterrupt):
                fetch_dataset(dataset, folder)
        (found,) = fetch_dataset(dataset, folder)
        assert found.path.read_bytes() == server.content
        assert sorted(path.name for path in folder.iterdir()) == ["data.tar.gz", "tracekit-dataset.json"]
    assert kept[-1] == "data.tar.gz"  # the last step of a run
