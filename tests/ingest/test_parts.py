"""Files cut in parts are joined, whatever the cuts; nothing is joined that does not belong together."""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import SourceError
from tracekit.ingest.files import source_files
from tracekit.streams import joined

if TYPE_CHECKING:
    from collections.abc import Callable

STYLES = {
    "letters after part": [".partaa", ".partab", ".partac"],
    "numbers after part": [".part00", ".part01", ".part02"],
    "numbers from one": [".part1", ".part2", ".part3"],
    "a hyphen between": [".part-aa", ".part-ab", ".part-ac"],
    "an underscore between": [".part_1", ".part_2", ".part_3"],
    "bare numbers": [".001", ".002", ".003"],
    "bare numbers from zero": [".00", ".01", ".02"],
    "bare letters": [".aa", ".ab", ".ac"],
}


def contents(source: Path) -> list[tuple[str, bytes]]:
    found = []
    for file in source_files(source):
        with file.open() as stream:
            found.append((file.path, stream.read()))
    return found


def write_tar(path: Path, name: str, content: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return path


def cut(folder: Path, name: str, content: bytes, endings: list[str]) -> None:
    size = -(-len(content) // len(endings))
    for number, ending in enumerate(endings):
        (folder / f"{name}{ending}").write_bytes(content[number * size : (number + 1) * size])


@pytest.mark.parametrize("endings", STYLES.values(), ids=STYLES)
def test_parts_are_one_file_under_the_name_of_the_whole(tmp_path: Path, endings: list[str]) -> None:
    cut(tmp_path, "log.csv", b"a,b\n1,2\n3,4\n", endings)
    (file,) = source_files(tmp_path)
    assert (file.path, file.size, file.head()) == ("log.csv", 12, b"a,b\n1,2\n3,4\n")
    assert file.note == f"log.csv is read from its 3 parts, log.csv{endings[0]} to log.csv{endings[-1]}"


@pytest.mark.parametrize("endings", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_part_as_source_takes_the_others_along(tmp_path: Path, endings: list[str], which: int) -> None:
    cut(tmp_path, "log.csv", b"a,b\n1,2\n3,4\n", endings)
    (tmp_path / "other.csv").write_bytes(b"x")
    (tmp_path / "other.csv.partaa").write_bytes(b"x")
    assert contents(tmp_path / f"log.csv{endings[which]}") == [("log.csv", b"a,b\n1,2\n3,4\n")]


def test_parts_of_archives_are_read_as_the_archive(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "a").mkdir()
    packed = write_tar(tmp_path / "whole" / "a.tar.gz", "x/log.csv", b"1" * 1000)
    cut(tmp_path / "a", packed.name, packed.read_bytes(), [".partaa", ".partab"])
    packed = tmp_path / "whole" / "b.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("log.csv", b"2" * 1000)
    cut(tmp_path / "a", packed.name, packed.read_bytes(), [".001", ".002"])
    cut(tmp_path / "a", "c.csv.gz", gzip.compress(b"3" * 1000), [".aa", ".ab"])
    assert contents(tmp_path) == [
        ("a/a.tar.gz/x/log.csv", b"1" * 1000),
        ("a/b.zip/log.csv", b"2" * 1000),
        ("a/c.csv", b"3" * 1000),
        ("whole/a.tar.gz/x/log.csv", b"1" * 1000),
        ("whole/b.zip/log.csv", b"2" * 1000),
    ]


def test_ten_parts_without_padding_follow_their_numbers(tmp_path: Path) -> None:
    cut(tmp_path, "log", bytes(range(12)), [f".part{number}" for number in range(1, 13)])
    assert contents(tmp_path) == [("log", bytes(range(12)))]


def test_letters_go_on_after_z(tmp_path: Path) -> None:
    endings = [f".part{first}{second}" for first in "ab" for second in "abcdefghijklmnopqrstuvwxyz"]
    cut(tmp_path, "log", bytes(range(52)), endings)
    assert contents(tmp_path) == [("log", bytes(range(52)))]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["log.partaa", "log.partac"], "'log.partaa' is followed by 'log.partac'"),
        (["log.partab", "log.partac"], "the first one present is 'log.partab'"),
        (["log.part2", "log.part3"], "the first one present is 'log.part2'"),
        (["log.csv.001", "log.csv.003"], "'log.csv.001' is followed by 'log.csv.003'"),
        (["log.tar.gz.002", "log.tar.gz.003"], "the first one present is 'log.tar.gz.002'"),
    ],
)
def test_a_missing_part_is_refused(tmp_path: Path, names: list[str], why: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    whole = names[0].rpartition(".")[0]
    for source in (tmp_path, tmp_path / names[1]):
        with pytest.raises(SourceError) as caught:
            source_files(source)
        assert str(caught.value) == f"{tmp_path}: a part of '{whole}' is missing: {why}; fetch all its parts"


@pytest.mark.parametrize("names", [["log.part1", "log.part01"], ["log.partaa", "log.part0"]])
def test_parts_named_in_two_ways_are_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        SourceError, match=r": the parts of 'log' have two naming schemes: '.*' and '.*'; keep the parts of"
    ):
        source_files(tmp_path)


@pytest.mark.parametrize(
    "names",
    [
        ["log.csv.20", "log.csv.21"],
        ["sacct.01", "sacct.02"],
        ["log.1", "log.2"],
        ["a.tar.bz2", "a.tar.gz"],
        ["log.csv.md", "log.csv.sh"],
        ["log.csv.part", "log.csv.partial"],
        ["part-00000", "part-00001"],
    ],
)
def test_files_that_only_look_like_parts_are_left_alone(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        if ".tar" in name:
            write_tar(tmp_path / name, "x", b"x")
        else:
            (tmp_path / name).write_bytes(b"x")
    assert [file.path.removesuffix("/x") for file in source_files(tmp_path)] == names


def test_parts_beside_the_whole_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"12")
    cut(tmp_path, "log.csv", b"12", [".partaa", ".partab"])
    assert [path for path, _ in contents(tmp_path)] == ["log.csv", "log.csv.partaa", "log.csv.partab"]


@given(content=st.binary(max_size=400), data=st.data())
def test_the_joined_parts_are_the_original(content: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    steps = data.draw(st.lists(st.tuples(st.integers(0, 450), st.integers(1, 450)), max_size=5))
    with tempfile.TemporaryDirectory() as folder:
        pieces = []
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(content)], strict=True)):
            pieces.append(Path(folder) / f"log.part{number:02}")
            pieces[-1].write_bytes(content[start:end])
        assert contents(Path(folder)) == [("log", content)]
        with joined(pieces) as whole:
            for at, size in steps:
                whole.seek(at)
                assert whole.read(size) == content[at : at + size]
            assert whole.seek(0, 2) == len(content)


def test_a_part_that_shrinks_while_it_is_read_is_reported(tmp_path: Path) -> None:
    cut(tmp_path, "log", b"12" * 500, [".part1", ".part2"])
    (file,) = source_files(tmp_path)
    with file.open() as stream:
        (tmp_path / "log.part2").write_bytes(b"1")
        with pytest.raises(
            SourceError, match=r"^log: the archive is damaged: 'log\.part2' was truncated; fetch it again$"
        ):
            stream.read()


def test_a_trace_tells_that_its_source_came_in_parts(ingest: Callable[..., Any], tmp_path: Path) -> None:
    header = b"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    job = b"1,u1,vcA,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:00:10,2020-04-02 08:01:40,90,10\n"
    trace = ingest({"Earth/cluster_log.csv.partaa": header + job[:9], "Earth/cluster_log.csv.partab": job[9:]})
    assert [(f.path, f.records, f.kept) for f in trace.manifest.files] == [("Earth/cluster_log.csv", 1, 1)]
    note = "Earth/cluster_log.csv is read from its 2 parts, cluster_log.csv.partaa to cluster_log.csv.partab"
    assert note in trace.manifest.notes
