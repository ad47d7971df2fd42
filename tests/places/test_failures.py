"""A store that fails ends a command in one line, soon, and without a secret."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.command import run
from tests.places.conftest import SECRET, fresh_clients
from tracekit.characterize import answer_query
from tracekit.comparison import compare
from tracekit.databases import connect_duckdb
from tracekit.errors import StoreError, TracekitError
from tracekit.places import Address, failure_behind, place_of, stores
from tracekit.places.in_duckdb import connect_stores
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.places.conftest import Asked, Store
    from tests.reviewed import Golden


_NO_ACCESS = "cannot be read with the credentials in the environment"


def _error_of(*command: str | Path) -> str:
    """Run a command that has to end in one line, and return it."""
    done = run(*command)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.returncode, len(lines), done.stdout) == (2, 1, ""), done
    assert lines[0].startswith("tracekit: error: ")
    assert SECRET not in done.stderr
    return lines[0].removeprefix("tracekit: error: ")


def test_a_bucket_that_is_not_there(store: Store, tmp_path: Path, golden: Golden) -> None:
    where = "s3://no-such-bucket-anywhere/trace"
    told = [
        _error_of("info", where),
        _error_of("ingest", where, "-o", tmp_path / "trace"),
        _error_of("info", str(store.address("nothing"))),
    ]
    assert all(
        line.startswith(place) for line, place in zip(told, (where, where, str(store.address("nothing"))), strict=True)
    )
    golden(told)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (("403 Forbidden", "AccessDenied"), f"{_NO_ACCESS}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ask"),
        (("403 Forbidden", "InvalidAccessKeyId"), _NO_ACCESS),
        (("301 Moved Permanently", "PermanentRedirect"), "is in another region; set AWS_REGION"),
    ],
)
def test_a_store_that_refuses(failure: tuple[str, str], told: str, store: Store) -> None:
    store.fails = lambda _: failure
    assert told in _error_of("info", "s3://tracekit-tests/trace")


def test_a_store_that_is_busy_is_asked_three_times_and_then_left_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fails = lambda _: ("503 Service Unavailable", "SlowDown")
    address = store.address("busy/object")
    with pytest.raises(StoreError, match="cannot be reached"):
        address.is_file()
    asked = len(store.asked)
    assert 2 <= asked <= stores._ATTEMPTS
    with pytest.raises(StoreError, match=r"busy/other: cannot be reached"):
        address.with_name("other").read_bytes()
    assert len(store.asked) == asked
    store.fails = lambda _: None
    monkeypatch.setattr(stores, "_REST_S", 0.0)  # as if that time had passed
    assert not address.is_file()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Return the address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_store_that_never_answers(
    store: Store, silent_server: str, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent_server)
    monkeypatch.setattr(stores, "_REQUEST_S", 1.0)
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    fresh_clients()
    begun = time.monotonic()
    told = _error_of("info", str(store.address("trace")))
    assert "cannot be reached: curlCode: 28" in told
    golden(told.rpartition("; ")[2])
    assert time.monotonic() - begun < 15


class _Stuck:
    """A client of a store whose answers drip, and whose listings have no end."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def get_file_info(self, _: object) -> None:
        self.over.wait(60)

    def open_input_file(self, _: str) -> _Stuck:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def size(self) -> int:
        return 10

    def metadata(self) -> dict[bytes, bytes]:
        return {}

    def seek(self, _: int) -> None:
        """Every position will do."""

    def readinto(self, _: bytearray) -> int:
        self.over.wait(60)
        return 0


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Stuck]:
    client = _Stuck()
    monkeypatch.setattr(stores, "_WHOLE_S", 0.05)
    monkeypatch.setattr(stores, "_client", lambda *_: client)
    yield client
    client.over.set()
    stores._gone.clear()


@pytest.mark.parametrize("act", ["is_file", "iterdir", "read_bytes"])
def test_every_call_of_a_store_ends_in_time(act: str, stuck: _Stuck, golden: Golden) -> None:
    del stuck
    address = place_of("s3://stuck/object")
    with pytest.raises(StoreError) as caught:
        list(address.iterdir()) if act == "iterdir" else getattr(address, act)()
    golden(str(caught.value))


def test_a_call_may_take_longer_for_more_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(stores, "within", lambda seconds, _: asked.append(seconds))
    address = place_of("s3://large/object")
    assert isinstance(address, Address)
    for size in (0, 8 << 20):
        stores.asked_of(address, lambda _: None, size)
    assert asked == [120.0, 120.0 + 128.0]


@pytest.fixture
def trace(sample_trace: Callable[[str], Trace], store: Store) -> Trace:
    """Return a Trace in the bucket."""
    return Trace.open(store.upload(sample_trace("slurm").path, "failing/slurm"))


def _gone(asked: Asked) -> tuple[str, str] | None:
    """Fail at everything but what opens a Trace."""
    tables = asked.key.endswith(("attempts.parquet", "jobs.parquet"))
    return ("500 Internal Server Error", "InternalError") if tables and asked.method == "GET" else None


def test_a_store_that_goes_away_in_the_middle(
    trace: Trace, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    fresh_clients()
    store.fails = _gone
    where = str(trace.path)
    for act in (
        lambda: trace.scan("jobs").collect(),
        lambda: answer_query(trace, "overview/status"),
        lambda: trace.validate(deep=True),
        lambda: Trace.open(where),
        lambda: compare([trace, trace], tmp_path / "compared", queries=["overview/status"]),
    ):
        fresh_clients()
        with pytest.raises(TracekitError) as caught:
            act()
        assert isinstance(caught.value, StoreError), caught.value
        assert "cannot be reached" in str(caught.value)
    for command in (["query", where, "overview/status"], ["validate", where], ["analyze", where, "-o", tmp_path / "o"]):
        fresh_clients()
        assert ".parquet: cannot be reached" in _error_of(*command)
    assert list(tmp_path.iterdir()) == []


def test_duckdb_passes_a_failure_on_and_it_is_reported_as_it_was(
    trace: Trace, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_ATTEMPTS", 1)
    fresh_clients()
    with connect_duckdb() as con:
        connect_stores(con)
        store.fails = _gone
        with pytest.raises(duckdb.Error) as caught:
            con.execute(f"SELECT max(user) FROM read_parquet('{trace.path}/jobs.parquet')")
    found = failure_behind(caught.value)
    assert found is not None
    assert found.where == f"{trace.path}/jobs.parquet"


def test_messages_show_no_secret(store: Store, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=hushhush")
    store.fails = lambda _: None

    def fail(*_: object) -> None:
        raise OSError(f"odd answer for {SECRET} at https://x/y?sig=abc&a=1 with sv=1&sig=hushhush")

    monkeypatch.setattr(stores, "store_of", fail)
    with pytest.raises(StoreError) as caught:
        store.address("x").is_file()
    assert not any(secret in str(caught.value) for secret in (SECRET, "abc", "hushhush"))
    golden(str(caught.value))


def test_hadoop_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    for name in ("JAVA_HOME", "HADOOP_HOME", "CLASSPATH", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    fresh_clients()
    golden(_error_of("info", "hdfs://name-node:9000/trace"))


def test_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    fresh_clients()
    golden(_error_of("info", "az://container/trace"))
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    client = stores.store_of(place_of("abfss://container@site.dfs.core.windows.net/trace"))  # type: ignore[arg-type]  # an address
    assert client.type_name == "abfs"
