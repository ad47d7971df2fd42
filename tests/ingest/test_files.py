"""A source is a folder, a file or an archive; what is damaged, unsafe or unreadable is refused in one line."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tracekit.errors import SourceError
from tracekit.ingest import files
from tracekit.ingest.files import HashingReader, source_files


def contents(source: Path) -> list[tuple[str, bytes]]:
    found = []
    for file in source_files(source):
        with file.open() as stream:
            found.append((file.path, stream.read()))
    return found


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # the stubs want a literal
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_folder_gives_its_files_by_path_without_hidden_ones(tmp_path: Path) -> None:
    for name, content in {"b": b"1", "a/c": b"2", ".hidden": b"3", ".git/config": b"4", "a/.x": b"5"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert contents(tmp_path) == [("a/c", b"2"), ("b", b"1")]


def test_a_file_knows_its_name_and_its_folder(tmp_path: Path) -> None:
    (tmp_path / "Earth").mkdir()
    (tmp_path / "Earth" / "log.csv").write_bytes(b"12")
    (file,) = source_files(tmp_path)
    assert (file.path, file.name, file.parent, file.size, file.head(1)) == (
        "Earth/log.csv",
        "log.csv",
        "Earth",
        2,
        b"1",
    )


def test_a_single_file_is_a_source(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"x")
    assert contents(tmp_path / "log.csv") == [("log.csv", b"x")]


def test_a_gzipped_file_goes_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"x" * 1000))
    assert contents(tmp_path) == [("log.csv", b"x" * 1000)]


@pytest.mark.parametrize(
    ("name", "mode"),
    [("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tgz", "w:gz"), ("a.tar.bz2", "w:bz2"), ("a.tar.xz", "w:xz")],
)
def test_a_tar_archive_gives_its_members(tmp_path: Path, name: str, mode: str) -> None:
    source = write_tar(tmp_path / name, {"Earth/log.csv": b"1", "Venus/log.csv": b"22"}, mode)
    assert contents(source) == [(f"{name}/Earth/log.csv", b"1"), (f"{name}/Venus/log.csv", b"22")]
    assert contents(tmp_path) == contents(source)


def test_a_zip_archive_gives_its_members(tmp_path: Path) -> None:
    source = write_zip(tmp_path / "a.zip", {"Venus/log.csv": b"22", "Earth/log.csv": b"1"})
    assert contents(source) == [("a.zip/Earth/log.csv", b"1"), ("a.zip/Venus/log.csv", b"22")]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "\\x"])
def test_a_member_that_climbs_out_of_its_archive_is_refused(tmp_path: Path, name: str) -> None:
    source = write_tar(tmp_path / "a.tar.gz", {name: b"1"})
    with pytest.raises(SourceError, match=r"^a\.tar\.gz: the archive entry '.*' climbs out of the archive"):
        source_files(source)


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x"])
def test_a_zip_member_that_climbs_out_of_its_archive_is_refused(tmp_path: Path, name: str) -> None:
    source = write_zip(tmp_path / "a.zip", {name: b"1"})
    with pytest.raises(SourceError, match=r"^a\.zip: the archive entry '.*' climbs out of the archive"):
        source_files(source)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_a_link_or_a_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("log.csv")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(SourceError, match=r"^a\.tar: the archive entry 'log\.csv' is a link or a device"):
        source_files(tmp_path / "a.tar")


def test_a_zip_member_that_is_a_link_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("log.csv")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(SourceError, match=r"^a\.zip: the archive entry 'log\.csv' is a link"):
        source_files(tmp_path / "a.zip")


def test_an_encrypted_zip_member_is_refused(tmp_path: Path) -> None:
    content = bytearray(write_zip(tmp_path / "a.zip", {"log.csv": b"1"}).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(SourceError, match=r"^a\.zip: the archive entry 'log\.csv' is encrypted"):
        source_files(tmp_path / "a.zip")


def test_a_gzip_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_INFLATION_FLOOR", 1000)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(SourceError, match=r"^log\.csv\.gz: inflates beyond [\d,]+ bytes"):
        contents(tmp_path)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_an_archive_bomb_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "_INFLATION_FLOOR", 1000)
    write = write_tar if name.endswith("gz") else write_zip
    write(tmp_path / name, {"log.csv": bytes(1_000_000)})
    with pytest.raises(SourceError, match=r"inflates to 1,000,000 bytes, more than 200 times its size"):
        source_files(tmp_path)


def test_small_files_may_inflate_far(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    assert contents(tmp_path) == [("log.csv", bytes(1_000_000))]


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(bytes(range(256)) * 100)
    (tmp_path / "log.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(SourceError, match=r"^log\.csv: the archive is damaged: .*; fetch it again$"):
        contents(tmp_path)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.tar.xz"])
def test_an_archive_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no archive at all")
    with pytest.raises(SourceError, match=r"the archive is damaged"):
        source_files(tmp_path)


def test_a_truncated_tar_archive_is_refused(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "a.tar.gz", {"log.csv": bytes(range(256)) * 100}).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[:-30])
    with pytest.raises(SourceError, match=r"the archive is damaged"):
        contents(tmp_path)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied"),
            "^log.csv: cannot be read: permission denied; check its permissions$",
        ),
        (OSError(5, "Input/output error"), "^log.csv: cannot be read: Input/output error; check the disk$"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    (tmp_path / "log.csv").write_bytes(b"x")
    (file,) = source_files(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SourceError, match=message):
        file.head()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"holds no files; name the folder with the raw log files$"):
        source_files(tmp_path)


def test_a_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent: no such file or folder$"):
        source_files(tmp_path / "absent")


def test_the_hash_is_that_of_the_whole_content_however_much_was_read() -> None:
    content = bytes(range(256)) * 10_000
    told: list[int] = []
    reader = HashingReader(io.BytesIO(content), told.append)
    assert reader.read(100) == content[:100]
    assert reader.finish() == hashlib.sha256(content).hexdigest()
    assert (reader.bytes, sum(told)) == (2_560_000, 2_560_000)
