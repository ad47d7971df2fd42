"""A source is a folder or a file, plain or compressed; what is damaged or unreadable is refused in one line."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import random
import sys
import tempfile
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import SourceError, UsageError
from tracekit.ingest import archives
from tracekit.ingest.files import HashingReader, source_files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable


def contents(source: Path) -> list[tuple[str, bytes]]:
    found = []
    for file in source_files(source):
        with file.open() as stream:
            found.append((file.path, stream.read()))
    return found


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


def test_other_compressed_files_go_under_their_own_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(b"1") + bz2.compress(b"2"))
    (tmp_path / "b.csv.xz").write_bytes(lzma.compress(b"34"))
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"5") + gzip.compress(b"6") + bytes(100))
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"any"
    (tmp_path / "d.csv.zst").write_bytes(skipped + zstd.compress(b"7") + skipped + zstd.compress(b"8"))
    assert contents(tmp_path) == [("a.csv", b"12"), ("b.csv", b"34"), ("c.csv", b"56"), ("d.csv", b"78")]


def test_the_same_file_plain_and_compressed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"1")
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"1"))
    with pytest.raises(SourceError, match=r"'log\.csv' occurs 2 times, with different compression; keep one of them$"):
        source_files(tmp_path)


def test_a_bomb_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "INFLATION_FLOOR", 1000)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(SourceError, match=r"^log\.csv\.gz: inflates beyond [\d,]+ bytes; raise --max-inflation"):
        contents(tmp_path)


@pytest.mark.parametrize(("max_inflation", "refused"), [(2.0, True), (5000.0, False), (float("inf"), False)])
def test_the_limit_of_inflation_is_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_inflation: float, refused: bool
) -> None:
    monkeypatch.setattr(archives, "INFLATION_FLOOR", 1000)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    (file,) = source_files(tmp_path, max_inflation)
    with pytest.raises(SourceError, match="inflates beyond") if refused else nullcontext(), file.open() as stream:
        assert stream.read() == bytes(1_000_000)


@pytest.mark.parametrize("max_inflation", [0.5, -1.0, float("nan")])
def test_a_limit_below_one_is_refused(tmp_path: Path, max_inflation: float) -> None:
    (tmp_path / "log.csv").write_bytes(b"1")
    with pytest.raises(UsageError, match=r"^--max-inflation: .* is too small; give a number of at least 1$"):
        source_files(tmp_path, max_inflation)


def test_small_files_may_inflate_far(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    assert contents(tmp_path) == [("log.csv", bytes(1_000_000))]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    # With a checksum, as the command line writes it.
    "zst": lambda content: zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: 1}),
}


@pytest.mark.parametrize("ending", PACKED)
def test_a_truncated_file_is_refused_wherever_it_is_cut(tmp_path: Path, ending: str) -> None:
    whole = PACKED[ending](bytes(range(256)) * 10)
    for cut in range(0, len(whole), 7):
        (tmp_path / f"log.csv.{ending}").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match=rf"^log\.csv\.{ending}: the archive is damaged: .*; fetch it again$"):
            contents(tmp_path)


@pytest.mark.parametrize("ending", PACKED)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_byte_is_reported_or_changes_nothing(ending: str, at: int, bit: int) -> None:
    content = random.Random(0).randbytes(300) + b"x" * 3000
    packed = bytearray(PACKED[ending](content))
    packed[at % len(packed)] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"log.csv.{ending}").write_bytes(packed)
        with suppress(SourceError):
            assert contents(Path(folder)) == [("log.csv", content)]


@pytest.mark.parametrize("ending", PACKED)
def test_what_follows_compressed_data_is_not_passed_over(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"log.csv.{ending}").write_bytes(PACKED[ending](b"1") + b"more of it")
    with pytest.raises(SourceError, match=r"the archive is damaged: other data follows the compressed data"):
        contents(tmp_path)


def _frame(window_log: int) -> bytes:
    """Return a Zstandard frame of one byte, stored, with a window of 2**window_log bytes (RFC 8878, 3.1.1)."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([window_log - 10 << 3]) + b"\x09\x00\x00" + b"1"


@pytest.mark.parametrize("ending", ["xz", "zst"])
def test_a_file_may_not_ask_for_gigabytes_of_memory(tmp_path: Path, ending: str) -> None:
    if ending == "xz":
        packed = lzma.compress(b"1", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}])
    else:
        packed = (
            b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x98" + b"\x09\x00\x00" + b"1"
        )  # a window of 2**29 bytes, and one byte
    (tmp_path / f"log.csv.{ending}").write_bytes(packed)
    with pytest.raises(SourceError, match=rf"^log\.csv\.{ending}: needs more than 256 MiB of memory to unpack"):
        contents(tmp_path)


def test_a_zstandard_file_of_the_largest_window_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.csv.zst").write_bytes(_frame(28))
    assert contents(tmp_path) == [("log.csv", b"1")]


def test_an_error_of_whoever_reads_is_not_taken_for_one_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"1"))
    (file,) = source_files(tmp_path)
    with pytest.raises(EOFError, match="mine"), file.open():
        raise EOFError("mine")


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
    with pytest.raises(SourceError, match=r"contains no files; name the folder with the raw log files$"):
        source_files(tmp_path)


def test_a_missing_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent: no such file or folder$"):
        source_files(tmp_path / "absent")


def test_the_hash_is_that_of_the_whole_content_however_much_was_read() -> None:
    content = bytes(range(256)) * 10_000
    advanced: list[int] = []
    reader = HashingReader(io.BytesIO(content), advanced.append)
    assert reader.read(100) == content[:100]
    assert reader.finish() == hashlib.sha256(content).hexdigest()
    assert (reader.bytes, sum(advanced)) == (2_560_000, 2_560_000)
