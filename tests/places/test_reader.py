"""Reading objects: positions, threads, streams, listings, and objects that change."""

from __future__ import annotations

import io
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tracekit.errors import StoreError
from tracekit.places.reader import ObjectReader, forget

if TYPE_CHECKING:
    from tests.places.conftest import Store


def test_threads_that_share_a_reader_do_not_take_each_others_bytes(store: Store) -> None:
    content = random.Random(1).randbytes(1 << 20)
    reader = ObjectReader(store.put("shared", content))
    together = threading.Barrier(8)

    def take(seed: int) -> int:
        draw = random.Random(seed)
        wrong = 0
        for _ in range(12):
            begin, size = draw.randrange(len(content)), draw.randrange(1, 5000)
            together.wait()
            reader.seek(begin)
            together.wait()  # every thread has a position now, and reads after all others have theirs
            wrong += reader.read(size) != content[begin : begin + size]
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 0


def test_a_thread_without_a_position_gets_an_error_and_no_bytes(store: Store) -> None:
    reader = ObjectReader(store.put("positions", b"0123456789"))
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(io.UnsupportedOperation, match="no position"):
            pool.submit(reader.read, 1).result()
        assert pool.submit(lambda: (reader.seek(-2, io.SEEK_END), reader.read())).result() == (8, b"89")
    assert reader.read(3) == b"012"


def test_a_stream_goes_on_in_another_thread_and_asks_for_few_ranges(store: Store) -> None:
    content = random.Random(2).randbytes((16 << 20) + 5)
    address = store.put("long", content)
    store.asked.clear()
    parts = []
    with address.open("rb") as stream, ThreadPoolExecutor(2) as pool:
        while part := pool.submit(stream.read, 1_000_001).result():
            parts.append(part)
    assert b"".join(parts) == content
    assert [(a.first, a.last) for a in store.taken()] == [
        (0, (8 << 20) - 1),
        (8 << 20, (16 << 20) - 1),
        (16 << 20, len(content) - 1),
    ]


def test_positions_follow_the_rules_of_files(store: Store) -> None:
    address = store.put("numbers", b"0123456789")
    with ObjectReader(address) as reader:
        assert (reader.seek(4), reader.read(2), reader.tell()) == (4, b"45", 6)
        assert (reader.seek(2, io.SEEK_CUR), reader.read(), reader.read(1), reader.tell()) == (8, b"89", b"", 10)
        assert (reader.seek(50), reader.read(1)) == (50, b"")
        with pytest.raises(ValueError, match="before the start"):
            reader.seek(-11, io.SEEK_END)
    assert address.read_bytes() == b"0123456789"
    assert address.read_text() == "0123456789"
    assert (address.stat().st_size, address.is_file(), address.is_dir(), address.exists()) == (10, True, False, True)


def test_an_empty_object_is_empty(store: Store) -> None:
    assert store.put("empty", b"").read_bytes() == b""


def test_an_object_that_is_replaced_while_it_is_read_is_reported(store: Store) -> None:
    address = store.put("folder/changing", b"before")
    assert address.read_bytes() == b"before"
    store.put("folder/changing", b"after!")  # as long as before
    with pytest.raises(StoreError, match="folder/changing: was replaced while we read it; run the command again"):
        address.read_bytes()
    forget(address.parent)
    assert address.read_bytes() == b"after!"


def test_more_objects_than_one_page_of_a_listing_are_found_in_order(store: Store) -> None:
    names = [f"{number:04}.csv" for number in range(1100)]
    for name in random.Random(3).sample(names, len(names)):
        store.put(f"many/{name}", b"")
    for hidden in ("many/.hidden", "many/.cache/x.csv"):
        store.put(hidden, b"")
    store.put("many/zone/deep.csv", b"")
    store.put("manya/other.csv", b"")
    folder = store.address("many")
    assert folder.files_below() == [*(folder / name for name in names), folder / "zone" / "deep.csv"]
    assert folder.is_dir()
    assert not folder.is_file()
    assert [*folder.rglob(".hid*"), *folder.rglob("deep.csv")] == [folder / ".hidden", folder / "zone" / "deep.csv"]
    assert len(list(folder.rglob("*"))) == len(names) + 3
    assert list((folder / "nothing").rglob("*")) == []


def test_what_is_not_there_is_not_there(store: Store) -> None:
    nothing = store.address("nothing")
    assert not nothing.exists()
    with pytest.raises(StoreError, match="no such object"):
        nothing.stat()
    with pytest.raises(StoreError, match="no such object"):
        nothing.read_bytes()
