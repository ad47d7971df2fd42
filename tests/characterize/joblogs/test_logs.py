"""Finding logs, reading their names, opening them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs import LogNames
from tracekit.characterize.joblogs.logs import find_logs, open_log
from tracekit.errors import SourceError, UsageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "job", "attempt"),
    [
        ("logs/slurm-123.out", "123", None),
        ("logs/slurm-123_4.err", "123_4", None),
        ("logs/job-7/stderr", "job-7", None),
        ("logs/job-7/attempt_2/stderr.txt", "job-7", 2),
        ("logs/job-7/1/stdout", "job-7", 1),
        ("logs/7/stdout", "7", None),
        ("logs/job-7.attempt1.err", "job-7", 1),
        ("logs/train.o4711", "4711", None),
        ("logs/job-7.err", "job-7", None),
        ("logs/job-7_1.err", "job-7", 1),
        ("logs/application_1506638472019_10258.log.gz", "application_1506638472019_10258", None),
        ("logs/plain", "plain", None),
    ],
)
def test_names_tell_job_and_attempt(name: str, job: str, attempt: int | None) -> None:
    owner = LogNames().owners(name)[0]
    assert (owner.job_id, owner.attempt) == (job, attempt)


def test_a_pattern_of_the_user_replaces_the_built_in_ones() -> None:
    names = LogNames(r"run-(?P<job_id>\w+)-try(?P<attempt>\d+)")
    assert names.owners("logs/run-abc-try2.txt")[0] == ("abc", 2)
    assert names.owners("logs/slurm-1.out") == ()


@pytest.mark.parametrize(("pattern", "said"), [("(", "is not a regular expression"), (r"(\d+)", "no group job_id")])
def test_a_bad_pattern_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        LogNames(pattern)


def test_links_and_pipes_are_passed_over(tmp_path: Path) -> None:
    secret = tmp_path / "secret.err"
    secret.write_text("x")
    logs = tmp_path / "logs"
    (logs / "deep" / "er").mkdir(parents=True)
    (logs / "b.err").write_text("x")
    (logs / "deep" / "er" / "a.err").write_text("xyz")
    (logs / "link.err").symlink_to(secret)
    (logs / "round").symlink_to(logs)
    (logs / "gone").symlink_to(tmp_path / "absent")
    os.mkfifo(logs / "pipe")
    found = find_logs(logs, LogNames())
    assert [(f.name, f.bytes) for f in found.files] == [("logs/b.err", 1), ("logs/deep/er/a.err", 3)]
    assert found.passed_over == {"links, which are not followed": 3, "pipes, sockets and devices": 1}


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder"):
        find_logs(tmp_path / "absent", LogNames())
    with pytest.raises(SourceError, match="contains no files"):
        find_logs(tmp_path, LogNames())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="neither a file nor a folder"):
        find_logs(tmp_path / "pipe", LogNames())


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd.compress])
def test_packed_logs_are_inflated_whatever_their_name(tmp_path: Path, pack: object) -> None:
    path = tmp_path / "a.err"
    path.write_bytes(pack(b"line\n" * 1000))  # type: ignore[operator]  # one of the five
    stream = open_log(path)
    assert stream is not None
    with stream:
        assert stream.read() == b"line\n" * 1000


def test_a_file_that_is_no_text_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "core.1234"
    path.write_bytes(bytes(range(4)) * 2000)
    assert open_log(path) is None


def test_a_few_nul_bytes_make_no_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "a.err"
    path.write_bytes(b"\0\0" + b"line\n" * 100)
    stream = open_log(path)
    assert stream is not None
    stream.close()


def test_a_damaged_log_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.err.zst"
    path.write_bytes(zstd.compress(b"line\n" * 1000)[:-4])
    stream = open_log(path)
    assert stream is not None
    with stream, pytest.raises(SourceError, match="damaged: it is truncated"):
        stream.read()
    assert stream.closed
