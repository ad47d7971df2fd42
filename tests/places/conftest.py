"""A store for tests: S3 emulated by moto on a free local port, with a record of all requests."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tracekit.places import Address, place_of, stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

BUCKET = "tracekit-tests"
SECRET = "a-secret-of-the-tests"
_ACCOUNT = "123456789012"
"""The account that owns everything in moto."""


class Asked(NamedTuple):
    """A request for an object with its byte range, whose ends are 0 if there is none."""

    method: str
    key: str
    first: int
    last: int

    @property
    def bytes(self) -> int:
        """Number of bytes requested."""
        return self.last - self.first + 1


class Store:
    """The store, which is a WSGI application around moto's."""

    def __init__(self, application: Any, backend: Any) -> None:
        self._application, self._backend = application, backend
        self._lock = threading.Lock()
        self.asked: list[Asked] = []
        self.fails: Callable[[Asked], tuple[str, str] | None] = lambda _: None
        """Function that returns the status and code with which a request fails, or None if it does not fail."""
        self.lies: Callable[[Asked, bytes], bytes | int | None] = lambda *_: None
        """Function that returns the wrong bytes or size to put in a response, or None if the response is right."""

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", environ.get("HTTP_RANGE", ""))
        key = environ["PATH_INFO"].removeprefix(f"/{BUCKET}").lstrip("/")
        asked = Asked(environ["REQUEST_METHOD"], key, *(map(int, found.groups()) if found else (0, 0)))
        with self._lock:
            self.asked.append(asked)
        failure = self.fails(asked)
        if failure is None:
            return self._answer(asked, environ, start)
        status, code = failure
        body = f"<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>".encode()
        start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, asked: Asked, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        begun: list[Any] = []
        content = b"".join(self._application(environ, lambda status, headers: begun.extend((status, headers))))
        lie = self.lies(asked, content)
        size = lie if isinstance(lie, int) else None if lie is None else len(lie)
        status, headers = begun
        if size is not None:
            headers = [h for h in headers if h[0].lower() != "content-length"] + [("Content-Length", str(size))]
        start(status, headers)
        return [lie if isinstance(lie, bytes) else content]

    def put(self, key: str, content: bytes) -> Address:
        """Put an object into the bucket and return its address."""
        self._backend.put_object(BUCKET, key, content)
        return self.address(key)

    def upload(self, folder: Path, key: str) -> Address:
        """Put a folder's files into the bucket and return the folder's address."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return self.address(key)

    def address(self, key: str) -> Address:
        """Return the address of an object or folder."""
        found = place_of(f"s3://{BUCKET}/{key}")
        assert isinstance(found, Address)
        return found

    def taken(self, key: str = "") -> list[Asked]:
        """Return the requests for bytes of objects whose keys end in `key`."""
        return [asked for asked in self.asked if asked.method == "GET" and asked.last and asked.key.endswith(key)]

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._backend.delete_object(BUCKET, key)


@pytest.fixture(scope="session")
def _server() -> Iterator[tuple[Store, str]]:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 -- the signature of werkzeug
            """Say nothing."""

    backend = s3_backends[_ACCOUNT]["aws"]
    if BUCKET not in backend.buckets:  # moto keeps one store for all of a process's servers
        backend.create_bucket(BUCKET, "us-east-1")
    store = Store(DomainDispatcherApplication(create_backend_app), backend)
    server = make_server("127.0.0.1", 0, store, threaded=True, request_handler=Silent)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield store, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def store(_server: tuple[Store, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Return the store, to which the test's environment points, without any requests so far."""
    found, endpoint = _server
    for name, value in {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    found.asked.clear()
    fresh_clients()
    yield found
    found.fails, found.lies = lambda _: None, lambda *_: None
    fresh_clients()


def fresh_clients() -> None:
    """Make the next access to a store read the environment again, and forget earlier failures."""
    stores._client.cache_clear()
    stores._gone.clear()
