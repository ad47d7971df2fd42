"""Fetching a dataset: what is in the folder afterwards, and what is said."""

from __future__ import annotations

import errno
import json
import re
import socketserver
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.datasets import RemoteFile, download, fetch, fetch_dataset
from tracekit.errors import OutputError, SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.datasets import Dataset

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_file_is_fetched_checked_and_recorded(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    url = server.serve("data.tar.gz")
    (found,) = fetch_dataset(make_dataset(url), tmp_path / "new" / "raw", progress=heard)
    folder = tmp_path / "new" / "raw"
    assert found == fetch.FetchedFile(folder / "data.tar.gz", 512_000, server.sha256, "publisher", was_there=False)
    assert found.path.read_bytes() == server.content
    assert names(folder) == ["data.tar.gz", "tracekit-dataset.json"]
    record = json.loads((folder / "tracekit-dataset.json").read_text(encoding="utf-8"))
    fetched = record["files"]["data.tar.gz"].pop("fetched")
    assert fetched.endswith("+00:00")
    assert record == {
        "dataset": "toy",
        "title": "A toy",
        "licence": "CC0",
        "citation": "Nobody, Nothing, 2020",
        "paper": "https://x.org/p",
        "origin": "https://x.org",
        "files": {
            "data.tar.gz": {"url": url, "bytes": 512_000, "sha256": server.sha256, "checked": "publisher"},
        },
    }
    assert heard.stages == [("fetching data.tar.gz", 512_000)]
    assert heard.done == 512_000
    assert heard.notes == []


def test_what_is_there_with_the_right_sum_is_not_fetched_again(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("data.tar.gz"))
    (tmp_path / "data.tar.gz").write_bytes(server.content)
    (found,) = fetch_dataset(dataset, tmp_path)
    assert (found.was_there, found.checked, server.asked) == (True, "publisher", [])
    record = json.loads((tmp_path / "tracekit-dataset.json").read_text(encoding="utf-8"))
    assert record["files"]["data.tar.gz"]["url"] == ""
    assert record["files"]["data.tar.gz"]["sha256"] == server.sha256


def test_without_a_known_sum_the_recorded_one_decides(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("data.tar.gz"), sha256=None, sha256_from=None, bytes=None)
    (first,) = fetch_dataset(dataset, tmp_path)
    assert (first.was_there, first.checked, first.sha256) == (False, "nothing", server.sha256)
    (second,) = fetch_dataset(dataset, tmp_path)
    assert (second.was_there, second.checked, second.sha256) == (True, "nothing", server.sha256)
    assert len(server.asked) == 1
    (tmp_path / "data.tar.gz").write_bytes(b"touched")
    with pytest.raises(OutputError, match=r"data\.tar\.gz: exists with different content; --force replaces it"):
        fetch_dataset(dataset, tmp_path)


def test_a_file_of_another_origin_is_replaced_only_by_force(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    known = make_dataset(server.serve("data.tar.gz"))
    unknown = replace(known, files=(replace(known.files[0], sha256=None, bytes=None),))
    path = tmp_path / "data.tar.gz"
    path.write_bytes(b"mine")
    with pytest.raises(OutputError, match="exists with different content"):
        fetch_dataset(known, tmp_path)
    with pytest.raises(OutputError, match="there is no checksum"):
        fetch_dataset(unknown, tmp_path)
    assert path.read_bytes() == b"mine"
    fetch_dataset(known, tmp_path, force=True)
    assert path.read_bytes() == server.content


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"status": 404}, "HTTP 404 Not Found"),
        ({"status": 503}, "HTTP 503 Service Unavailable"),
        ({"content": b"x" * 512_000}, r"its SHA-256 is not [0-9a-f]{12}\.\.\."),
        ({"content": b"x" * 10}, "it has 10 bytes there, not 512,000"),
        ({"content": b"x" * 512_001, "with_length": False}, "the server sent more than 512,000 bytes"),
        (
            {"content": POINTER.format("a" * 64, 1_055_988_361).encode()},
            "it is a Git-LFS pointer to a file of 1,055,",
        ),
        ({"content": b"version https://git-lfs.github.com/spec/v1\n"}, "it is a Git-LFS pointer to a file of 0 bytes"),
        ({"content": b"<!DOCTYPE html><p>log in"}, "the server sent a web page instead of the file"),
        (
            {"content": b"Sorry.", "content_type": "text/html; charset=utf-8"},
            "the server sent a web page instead of the file",
        ),
        ({"breaks_after": 0}, "the connection ended after 0 of 512,000 bytes"),
        ({"status": 302, "location": "ftp://127.0.0.1:1/x"}, "redirects to an address that is not http or https"),
    ],
)
def test_the_next_source_is_tried_and_each_failure_said(
    how: dict[str, Any],
    reason: str,
    server: Any,
    heard: Any,
    make_dataset: Callable[..., Dataset],
    tmp_path: Path,
) -> None:
    bad, good = server.serve("bad", **how), server.serve("good")
    (found,) = fetch_dataset(make_dataset(bad, good), tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    (note,) = heard.notes
    assert note.startswith(f"{bad}: ")
    assert re.search(f": {reason}.*; trying the next source$", note)
    assert names(tmp_path) == ["data.tar.gz", "tracekit-dataset.json"]


def test_a_server_may_send_elsewhere(server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    there = server.serve("there", breaks_after=300_000)
    url = server.serve("here", status=302, location=there)
    (found,) = fetch_dataset(make_dataset(url), tmp_path)
    assert found.path.read_bytes() == server.content
    assert [(path, asked) for path, asked, _ in server.asked] == [
        ("/here", None),
        ("/there", None),
        ("/here", "bytes=300000-"),
        ("/there", "bytes=300000-"),
    ]


def test_when_all_sources_fail_one_error_names_each_with_its_reason(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    missing, pointer = f"{server.base}/missing", server.serve("p", content=POINTER.format("a" * 64, 5).encode())
    with pytest.raises(SourceError) as caught:
        fetch_dataset(make_dataset(missing, pointer), tmp_path / "new", progress=heard)
    assert str(caught.value) == (
        f"data.tar.gz: could not be fetched: {missing}: HTTP 404 Not Found; "
        f"{pointer}: it is a Git-LFS pointer to a file of 5 bytes, not the file; "
        "try again later (the download is kept), or give another source with --mirror"
    )
    assert heard.notes == [f"{missing}: HTTP 404 Not Found; trying the next source"]
    assert not (tmp_path / "new").exists()


def test_a_silent_server_is_given_up(server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = make_dataset(server.serve("slow", pause=1.0), server.serve("good"))
    (found,) = fetch_dataset(dataset, tmp_path, timeout=0.1)
    assert found.path.read_bytes() == server.content
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1/x: no connection: "):
        fetch_dataset(make_dataset("http://127.0.0.1:1/x"), tmp_path / "other", timeout=0.1)


def test_a_pointer_tells_the_sum_that_the_next_source_must_have(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    pointer = server.serve("pointer", content=POINTER.format(server.sha256, 512_000).encode())
    other = server.serve("other", content=b"x" * 512_000)
    good = server.serve("good")
    (found,) = fetch_dataset(make_dataset(pointer, other, good, sha256=None, sha256_from=None, bytes=None), tmp_path)
    assert (found.checked, found.sha256) == ("git-lfs", server.sha256)


def test_parts_are_joined_until_the_size_is_reached(
    server: Any, heard: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    for suffix, start, end in (("aa", 0, 200_000), ("ab", 200_000, 400_000), ("ac", 400_000, 512_000)):
        server.serve(f"data.tar.gz.part{suffix}", content=server.content[start:end])
    (found,) = fetch_dataset(make_dataset(f"{server.base}/data.tar.gz.part*"), tmp_path, progress=heard)
    assert found.path.read_bytes() == server.content
    assert [path for path, _, _ in server.asked] == [f"/data.tar.gz.part{s}" for s in ("aa", "ab", "ac")]
    assert names(tmp_path) == ["data.tar.gz", "tracekit-dataset.json"]
    assert heard.done == 512_000


@pytest.mark.parametrize(
    ("last", "reason"),
    [(None, "part ab: HTTP 404 Not Found"), (0, "part ab is empty"), (400_000, "part ab: it has 400,000 bytes there")],
)
def test_parts_that_are_missing_or_too_large_are_refused_and_the_others_kept(
    last: int | None, reason: str, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    server.serve("partaa", content=server.content[:200_000])
    if last is not None:
        server.serve("partab", content=b"x" * last)
    dataset = make_dataset(f"{server.base}/part*")
    with pytest.raises(SourceError, match=reason):
        fetch_dataset(dataset, tmp_path)
    server.serve("partab", content=server.content[200_000:])
    fetch_dataset(dataset, tmp_path)
    assert [path for path, _, _ in server.asked].count("/partaa") == 1


def test_files_are_chosen_by_pattern_and_a_mirror_is_tried_first(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    server.serve("copy/b.csv")
    files = tuple(RemoteFile(n, (f"{server.base}/elsewhere",)) for n in ("a.csv", "b.csv", "c.txt"))
    found = fetch_dataset(make_dataset(files=files), tmp_path, only=["b*"], mirror=f"{server.base}/copy/")
    assert [f.path.name for f in found] == ["b.csv"]
    assert [path for path, _, _ in server.asked] == ["/copy/b.csv"]
    with pytest.raises(UsageError, match=r"^--file: no file of toy matches 'x\*'; it has a\.csv, b\.csv, c\.txt$"):
        fetch_dataset(make_dataset(files=files), tmp_path, only=["b*", "x*"])


@pytest.mark.parametrize("mirror", ["ftp://x.org", "x.org/data", "file:///etc", "https://"])
def test_a_mirror_must_be_an_address(mirror: str, make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^--mirror: '{mirror}' is not an http or https address"):
        fetch_dataset(make_dataset("https://x.org"), tmp_path / "new", mirror=mirror)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../out.csv", "/etc/x", "a/b", "..", ".hidden", "a\\b"])
def test_a_name_that_leads_out_of_the_folder_is_refused(
    name: str, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(files=(RemoteFile(name, (server.serve("x"),)),))
    with pytest.raises(OutputError, match="the file name points outside the folder"):
        fetch_dataset(dataset, tmp_path / "new")
    assert names(tmp_path) == []


def test_links_do_not_lead_out_of_the_folder(server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "raw"
    outside.mkdir()
    folder.mkdir()
    (outside / "target").write_bytes(b"mine")
    (folder / "data.tar.gz").symlink_to(outside / "target")
    dataset = make_dataset(server.serve("x"))
    fetch_dataset(dataset, folder, force=True)
    assert (outside / "target").read_bytes() == b"mine"
    (folder / ".tracekit-fetch").symlink_to(outside)
    with pytest.raises(OutputError, match="is a link, which may point outside the folder"):
        fetch_dataset(dataset, folder)
    assert names(outside) == ["target"]


def test_a_folder_holds_one_dataset_and_one_run(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x"))
    fetch_dataset(dataset, tmp_path)
    with pytest.raises(UsageError, match="already contains the dataset toy; use a separate folder for each dataset"):
        fetch_dataset(replace(dataset, name="other"), tmp_path)
    with fetch._staging(tmp_path), pytest.raises(OutputError, match="another run is writing it"):
        fetch_dataset(dataset, tmp_path)
    (tmp_path / "tracekit-dataset.json").write_text("[]", encoding="utf-8")
    with pytest.raises(OutputError, match="is not a record of fetched files"):
        fetch_dataset(dataset, tmp_path)


def test_a_place_that_cannot_be_written_is_one_error(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    dataset = make_dataset(server.serve("x"))
    (tmp_path / "file").write_text("", encoding="utf-8")
    for folder in (tmp_path / "file", tmp_path / "file" / "in"):
        with pytest.raises(OutputError, match=r"cannot write: .*; choose another -o, or free its path$"):
            fetch_dataset(dataset, folder)
    (tmp_path / "raw" / "data.tar.gz").mkdir(parents=True)
    with pytest.raises(OutputError, match="is a folder"):
        fetch_dataset(dataset, tmp_path / "raw", force=True)


def test_a_full_disk_is_one_error_and_keeps_what_came(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, read, calls = make_dataset(server.serve("x")), download._read, []
    monkeypatch.setattr(download, "_CHUNK", 60_000)

    def full(response: Any, gained: int) -> bytes:
        calls.append(gained)
        if gained > 100_000:
            raise_full()
        return read(response, gained)

    def raise_full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_read", full)
    with pytest.raises(
        OutputError, match=r": cannot write: No space left on device; choose another -o, or free its path$"
    ):
        fetch_dataset(dataset, tmp_path)
    assert not (tmp_path / "data.tar.gz").exists()
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "*")
    fetch_dataset(dataset, tmp_path)
    assert server.ranges == [None, f"bytes={calls[-1]}-"]


class _Asked(socketserver.BaseRequestHandler):
    """Notes that somebody came."""

    def handle(self) -> None:
        self.server.came = True  # type: ignore[attr-defined]  # a note of the test's


@pytest.mark.parametrize("scheme", ["ftp", "file", "gopher", "data"])
def test_a_server_cannot_lead_off_the_web(
    scheme: str, server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("xyzzy")
    with socketserver.TCPServer(("127.0.0.1", 0), _Asked) as elsewhere:
        elsewhere.came = False  # type: ignore[attr-defined]  # the same
        threading.Thread(target=elsewhere.serve_forever, args=(0.01,), daemon=True).start()  # asked to end so often
        address = {
            "ftp": f"ftp://127.0.0.1:{elsewhere.server_address[1]}/x",
            "gopher": f"gopher://127.0.0.1:{elsewhere.server_address[1]}/x",
            "file": (tmp_path / "secret").as_uri(),
            "data": "data:,xyzzy",
        }[scheme]
        url = server.serve("x", status=302, location=address)
        with pytest.raises(SourceError, match=r"redirects to an address that is not http or https|HTTP 302"):
            fetch_dataset(make_dataset(url), tmp_path / "raw")
        elsewhere.shutdown()
        assert not elsewhere.came  # type: ignore[attr-defined]  # the same
    assert not (tmp_path / "raw").exists()


def test_a_server_may_lead_to_another_page_of_the_web(
    server: Any, make_dataset: Callable[..., Dataset], tmp_path: Path
) -> None:
    url = server.serve("x", status=302, location=server.serve("y"))
    (found,) = fetch_dataset(make_dataset(url), tmp_path)
    assert found.path.read_bytes() == server.content
