"""Archives are read member by member as streams; what is damaged, unsafe or ambiguous is refused in one line."""

from __future__ import annotations

import gzip
import io
import random
import sys
import tarfile
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit import streams
from tracekit.errors import SourceError
from tracekit.ingest import archives
from tracekit.ingest.files import source_files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMS = [
    ("a.tar", "w"),
    ("a.tar.gz", "w:gz"),
    ("a.tgz", "w:gz"),
    ("a.tar.bz2", "w:bz2"),
    ("a.tar.xz", "w:xz"),
    ("a.tar.zst", "w:zst"),
]


def contents(source: Path) -> list[tuple[str, bytes]]:
    found = []
    for file in source_files(source):
        with file.open() as stream:
            found.append((file.path, stream.read()))
    return found


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode.removesuffix(":zst")) as archive:  # type: ignore[call-overload]  # the stubs want a literal
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    if mode == "w:zst":  # tarfile writes it from Python 3.14 on
        path.write_bytes(zstd.compress(path.read_bytes()))
    return path


def write_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(("name", "mode"), FORMS)
def test_a_tar_archive_gives_its_members(tmp_path: Path, name: str, mode: str) -> None:
    source = write_tar(tmp_path / name, {"Earth/log.csv": b"1", "Venus/log.csv": b"22"}, mode)
    assert contents(source) == [(f"{name}/Earth/log.csv", b"1"), (f"{name}/Venus/log.csv", b"22")]
    assert contents(tmp_path) == contents(source)


def test_a_zip_archive_gives_its_members(tmp_path: Path) -> None:
    source = write_zip(tmp_path / "a.zip", {"Venus/log.csv": b"22", "Earth/log.csv": b"1"})
    assert contents(source) == [("a.zip/Earth/log.csv", b"1"), ("a.zip/Venus/log.csv", b"22")]


@given(
    sizes=st.lists(st.integers(0, 70_000), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
    gap=st.sampled_from([1, 10_000, 1 << 20]),
    marks=st.sampled_from([1, 2, 256]),
)
def test_members_of_a_gzipped_tar_may_be_opened_in_any_order(
    sizes: list[int], order: random.Random, gap: int, marks: int
) -> None:
    members = {f"{i}.csv": order.randbytes(size) for i, size in enumerate(sizes)}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_MARKS", marks)
        patch.setattr(streams, "_GAP", gap)
        found = source_files(write_tar(Path(folder) / "a.tar.gz", members))
        order.shuffle(found)
        for file in found:
            with file.open() as stream:
                assert stream.read() == members[file.name]


def test_a_member_of_a_gzipped_tar_is_read_without_what_comes_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = random.Random(0)
    source = write_tar(tmp_path / "a.tar.gz", {f"{i}.csv": noise.randbytes(3 << 20) for i in range(4)})
    last = source_files(source)[-1]
    taken = []
    inflate = streams.Inflated._next

    def count(stream: streams.Inflated, size: int) -> bytes:
        data = inflate(stream, size)
        taken.append(len(data))
        return data

    monkeypatch.setattr(streams.Inflated, "_next", count)
    with last.open() as stream:
        assert len(stream.read()) == 3 << 20
    assert sum(taken) == 3 << 20


def test_two_members_may_be_read_side_by_side(tmp_path: Path) -> None:
    one, other = source_files(write_tar(tmp_path / "a.tar.gz", {"1.csv": b"1" * 5000, "2.csv": b"2" * 5000}))
    with one.open() as first, other.open() as second:
        assert (first.read(10), second.read(10), first.read(), second.read()) == (
            b"1" * 10,
            b"2" * 10,
            b"1" * 4990,
            b"2" * 4990,
        )


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_a_compressed_member_is_read_as_its_content(tmp_path: Path, name: str) -> None:
    write = write_tar if name.endswith("gz") else write_zip
    write(tmp_path / name, {"Earth/log.csv.gz": gzip.compress(b"12"), "inner.tar.gz": b"not opened"})
    assert contents(tmp_path) == [(f"{name}/Earth/log.csv", b"12"), (f"{name}/inner.tar.gz", b"not opened")]


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "\\x"])
@pytest.mark.parametrize("archive", ["a.tar.gz", "a.zip"])
def test_a_member_that_climbs_out_of_its_archive_is_refused(tmp_path: Path, archive: str, name: str) -> None:
    (write_tar if archive.endswith("gz") else write_zip)(tmp_path / archive, {name: b"1"})
    with pytest.raises(
        SourceError, match=rf"^{archive}: the archive entry '.*' points outside the archive; do not trust"
    ):
        source_files(tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_a_link_or_a_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("log.csv")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(SourceError, match=r"^a\.tar: the archive entry 'log\.csv' is a link or a device; unpack"):
        source_files(tmp_path / "a.tar")


@pytest.mark.parametrize("mode", [0o120777, 0o010644, 0o020644])
def test_a_zip_member_that_is_a_link_or_a_device_is_refused(tmp_path: Path, mode: int) -> None:
    info = zipfile.ZipInfo("log.csv")
    info.external_attr = mode << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(SourceError, match=r"^a\.zip: the archive entry 'log\.csv' is a link or a device; unpack"):
        source_files(tmp_path / "a.zip")


def test_an_entry_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    for path, name in ((tmp_path / "a.tar", "log.csv"), (tmp_path / "b.zip", "./log.csv")):
        with tarfile.open(path, "w") if path.suffix == ".tar" else zipfile.ZipFile(path, "w") as archive:
            for entry in ("log.csv", name):
                if isinstance(archive, tarfile.TarFile):
                    archive.addfile(tarfile.TarInfo(entry))
                else:
                    archive.writestr(entry, "")
        with pytest.raises(SourceError, match=rf"^{path.name}: the archive entry '.*' occurs twice; unpack it by hand"):
            source_files(path)


def zip_with(tmp_path: Path, offset: int, value: int) -> Path:
    """Write a zip whose only entry has one byte of its central header changed."""
    path = write_zip(tmp_path / "a.zip", {"log.csv": b"1"})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + offset] = value
    path.write_bytes(content)
    return path


def test_an_encrypted_zip_member_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^a\.zip: the archive entry 'log\.csv' is encrypted; unpack it by hand$"):
        source_files(zip_with(tmp_path, 8, 1))


def test_an_unusual_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"^a\.zip: the archive entry 'log\.csv' uses compression method 9, which is not supported;"
    ):
        source_files(zip_with(tmp_path, 10, 9))


def test_a_zip_version_from_the_future_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^a\.zip: the archive cannot be read: zip file version 20\.0; unpack"):
        source_files(zip_with(tmp_path, 6, 200))


def test_backslashes_in_a_zip_separate_folders(tmp_path: Path) -> None:
    source = write_zip(tmp_path / "a.zip", {"Earth\\": b"", "Earth\\log.csv": b"1"})
    (file,) = source_files(source)
    assert (file.path, file.parent, file.head()) == ("a.zip/Earth/log.csv", "Earth", b"1")


def test_a_zip_in_its_large_form_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive, archive.open("log.csv", "w", force_zip64=True) as stream:
        stream.write(b"12")
    assert contents(tmp_path) == [("a.zip/log.csv", b"12")]


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_an_archive_bomb_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(archives, "INFLATION_FLOOR", 1000)
    write = write_tar if name.endswith("gz") else write_zip
    write(tmp_path / name, {"log.csv": bytes(1_000_000)})
    with pytest.raises(
        SourceError, match=rf"^{name}: decompresses to 1,000,000 bytes, more than 3 times its size; raise"
    ):
        source_files(tmp_path, 3.0)


def test_the_members_of_an_archive_are_measured_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "INFLATION_FLOOR", 1000)
    write_zip(tmp_path / "a.zip", {f"{i}.csv": bytes(900) for i in range(9)})
    with pytest.raises(SourceError, match=r"^a\.zip: decompresses to [\d,]+ bytes, more than 1 times its size"):
        source_files(tmp_path, 1.0)


def test_a_compressed_member_may_not_inflate_further_than_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "INFLATION_FLOOR", 1000)
    write_zip(tmp_path / "a.zip", {"log.csv.gz": gzip.compress(bytes(1_000_000))})
    with pytest.raises(SourceError, match=r"^a\.zip/log\.csv\.gz: inflates beyond [\d,]+ bytes; raise --max-inflation"):
        contents(tmp_path)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip", "a.tar.xz"])
def test_an_archive_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no archive at all")
    with pytest.raises(SourceError, match=rf"^{name}: the archive is damaged: .*; fetch it again$"):
        source_files(tmp_path)


@pytest.mark.parametrize(("name", "mode"), FORMS)
def test_a_truncated_tar_is_refused_wherever_it_is_cut(tmp_path: Path, name: str, mode: str) -> None:
    members = {f"{i}.csv": bytes(range(256)) * 3 for i in range(3)}
    whole = write_tar(tmp_path / name, members, mode).read_bytes()
    # A tar ends with zeros: cut there, nothing is lost.
    end = len(whole.rstrip(b"\0")) + 512 if mode == "w" else len(whole)
    for cut in range(0, end, 61):
        (tmp_path / name).write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=r"the archive is damaged: .*; fetch it again$"):
            contents(tmp_path)


def test_a_damaged_header_does_not_end_the_list_in_silence(tmp_path: Path) -> None:
    whole = bytearray(write_tar(tmp_path / "a.tar", {"1.csv": b"1", "2.csv": b"2"}, "w").read_bytes())
    whole[1024 + 150] ^= 1
    (tmp_path / "a.tar").write_bytes(whole)
    with pytest.raises(
        SourceError, match=r"^a\.tar: the archive is damaged: no header can be read at byte 1,024; fetch"
    ):
        source_files(tmp_path)


def test_a_truncated_zip_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "a.zip", {f"{i}.csv": bytes(range(256)) for i in range(3)}).read_bytes()
    for cut in range(0, len(whole), 13):
        (tmp_path / "a.zip").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=r"the archive is damaged: .*; fetch it again$"):
            contents(tmp_path)


@given(at=st.integers(0, 100_000), value=st.integers(0, 255), name=st.sampled_from(["a.tar", "a.tar.gz", "a.zip"]))
def test_a_changed_byte_gives_members_or_one_error(at: int, value: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if name == "a.zip":
            write_zip(path, {"1.csv": b"1" * 90, "2.csv": b"2" * 90})
        else:
            write_tar(path, {"1.csv": b"1" * 90, "2.csv": b"2" * 90}, "w" if name == "a.tar" else "w:gz")
        content = bytearray(path.read_bytes())
        content[at % len(content)] = value
        path.write_bytes(content)
        with suppress(SourceError):
            assert len(contents(path)) == 2


def test_what_an_archive_says_of_its_damage_stays_short(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(20_000)
    path = write_zip(tmp_path / "a.zip", {"log.csv": content})
    damaged = bytearray(path.read_bytes())
    damaged[26:28] = (6_000).to_bytes(2, "little")  # the length of the name in front of the member
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match="the archive is damaged") as caught:
        contents(path)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
