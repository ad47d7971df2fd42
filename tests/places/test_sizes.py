"""A store that gives another number of bytes than it states fails an ingest and `validate --deep`, in one line."""

from __future__ import annotations

import pickle
import random
import re
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tracekit.errors import StoreError
from tracekit.ingest import ingest_logs
from tracekit.places import Address
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.places.conftest import Asked, Store
    from tests.reviewed import Golden

CONTENT = random.Random(1).randbytes(999) + b"\n"


def half(asked: Asked, content: bytes) -> bytes | None:
    """Give the first half of each range, as if it were the whole one."""
    return content[: len(content) // 2] if asked.method == "GET" and asked.last else None


def listing(change: Callable[[int], int]) -> Callable[[Asked, bytes], bytes | None]:
    """Give other sizes in listings."""

    def lie(asked: Asked, content: bytes) -> bytes | None:
        if asked.method != "GET" or b"<ListBucketResult" not in content:
            return None
        return re.sub(rb"<Size>(\d+)", lambda size: b"<Size>%d" % change(int(size[1])), content)

    return lie


def head(change: Callable[[int], int], ending: str) -> Callable[[Asked, bytes], int | None]:
    """Give another size of an object where the store is asked for that alone."""

    def lie(asked: Asked, content: bytes) -> int | None:
        del content
        return change(len(CONTENT)) if asked.method == "HEAD" and asked.key.endswith(ending) else None

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        half,
        listing(lambda size: size * 10 + 7),
        listing(lambda _: 2**62),
        listing(lambda _: 0),
        head(lambda size: size * 3, "log.swf"),
        head(lambda size: size - 100, "log.swf"),
        head(lambda _: 0, "log.swf"),
    ],
    ids=["half", "listed-more", "listed-huge", "listed-empty", "head-more", "head-less", "head-empty"],
)
def test_an_ingest_compares_what_it_reads_with_what_the_store_states(
    lie: Callable[[Asked, bytes], bytes | int | None], store: Store, tmp_path: Path, golden: Golden
) -> None:
    folder = store.put("sizes/log.swf", CONTENT).parent
    store.lies = lie
    with pytest.raises(StoreError) as caught:
        ingest_logs(folder, tmp_path / "trace", format_name="swf")
    assert caught.value.where == "s3://tracekit-tests/sizes/log.swf"
    assert list(tmp_path.iterdir()) == []
    golden(str(caught.value))


def test_an_object_that_ends_in_the_mark_by_chance_is_read_twice_and_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.places.reader.secrets.randbelow", lambda _: CONTENT[-1])
    address = store.put("sizes/twice", CONTENT)
    assert address.read_bytes() == CONTENT
    assert len(store.taken("twice")) == 2


def test_one_byte_too_few_is_found(store: Store) -> None:
    address = store.put("sizes/short", CONTENT)
    store.lies = lambda asked, content: content[:-1] if asked.method == "GET" and asked.last else None
    with pytest.raises(StoreError, match=r"returned 999 bytes instead of 1,000; the object has 1,000;"):
        address.read_bytes()


def test_the_size_of_a_listing_goes_to_other_processes(store: Store) -> None:
    store.put("listed/log", CONTENT)
    (found,) = store.address("listed").files_below()
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, Address)
    assert (again, again.listed, store.address("listed/log").listed) == (found, 1000, None)


@pytest.fixture
def remote(sample_trace: Callable[[str], Trace], store: Store) -> Trace:
    return Trace.open(store.upload(sample_trace("swf").path, "sizes/trace"))


def test_deep_validation_compares_the_size_of_an_object_with_the_manifest(remote: Trace, store: Store) -> None:
    stated = remote.manifest.tables["jobs"].bytes
    store.lies = head(lambda _: 1_234_567, "jobs.parquet")
    done = run("validate", remote.path, "--deep")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        f"the object {remote.path}/jobs.parquet has 1,234,567 bytes, but the manifest says {stated:,}",
    )


def test_deep_validation_counts_the_bytes_of_an_object(remote: Trace, store: Store) -> None:
    stated = remote.manifest.tables["jobs"].bytes
    store.lies = lambda asked, content: half(asked, content) if asked.key.endswith("jobs.parquet") else None
    done = run("validate", remote.path, "--deep")
    assert done.returncode == 2
    assert f"{remote.path}/jobs.parquet: returned {stated // 2:,} bytes instead of {stated:,}" in done.stderr
    assert done.stderr.count("\n") == 1
