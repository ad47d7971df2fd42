"""The stores that addresses lead to: how one is reached, what it says of a name, and how its failures are told.

Apache Arrow has the clients of all of them. What they need to know - credentials, region, another endpoint - they take
from the environment, under the names that each store's own tools use. Each attempt and the number of attempts are
bounded, so that a store that does not answer ends a run after a minute or two. The clients do not notice an answer that
drips, or a listing without an end: `asked_of` bounds the time of every call.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from tracekit.errors import StoreError
from tracekit.exchange import LateError, within
from tracekit.text import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


T = TypeVar("T")

_CONNECT_S = 5.0
"""Longest time to connect to a store [s]."""
_REQUEST_S = 20.0
"""Longest time in which a store sends nothing [s]."""
_ATTEMPTS = 3
"""Attempts at one request, the first one included."""
_WHOLE_S = 120.0
"""Longest time of one call, all attempts included [s]."""
_LEAST_RATE = 65_536.0
"""A call that reads may take longer by its bytes at this rate [B/s]."""
_REST_S = 30.0
"""Time for which a store that did not answer is not asked again [s]: what else a run wants of it fails at once."""

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY",
    "hdfs": "HADOOP_USER_NAME, or a ticket of Kerberos",
}
"""What tells a store who asks."""

_REACHED = {
    "s3": "AWS_ENDPOINT_URL",
    "gs": "the network",
    "az": "AZURE_STORAGE_ACCOUNT",
    "hdfs": "the host and its port",
}
"""What to look at when a store cannot be reached."""

_GONE = "cannot be reached"
_NO_ACCESS = (
    "ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|InvalidAccessKey|SIGNATURE|Signature|EXPIRED_TOKEN|ExpiredToken"
    "|UNRECOGNIZED_CLIENT|AuthenticationFailed|AuthorizationFailure|PERMISSION_DENIED|UNAUTHENTICATED"
    "|Failed to get token|OAuth2 access token"
    r"|\b401\b|\b403\b|[Ff]orbidden|[Pp]ermission denied"
)
_NO_ANSWER = (
    "NETWORK_CONNECTION|SLOW_DOWN|SlowDown|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|UNAVAILABLE|curlCode"
    r"|[Tt]imeout|[Tt]imed out|[Cc]onnection|[Cc]ould ?n.t (?:connect|resolve)|[Rr]etry|\b50[0-9]\b"
)
_REASONS = (
    (
        "NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound",
        "the bucket does not exist",
        "check its name",
    ),
    ("301|PermanentRedirect|authorization header is malformed", "is in another region", "set AWS_REGION"),
    (
        _NO_ACCESS,
        "may not be read with the credentials of the environment",
        "set {credentials}, or ask for the permission",
    ),
    ("libhdfs|libjvm", "needs Hadoop, but its library libhdfs is missing", "set JAVA_HOME, HADOOP_HOME and CLASSPATH"),
    ("NO_SUCH_KEY|NoSuchKey|RESOURCE_NOT_FOUND|BlobNotFound|No such file|404|does not exist", "no such object", None),
    (_NO_ANSWER, _GONE, "check {reached}, and try again"),
)
"""What a failure is told as, by what the client says; the first one that fits."""
_CALL = re.compile(r"When .*? operation: ?|google::cloud::Status\(")
"""What clients say before the reason."""

_failures: list[StoreError] = []
"""The last failures, for `failure_behind`."""
_gone: dict[tuple[str, str], tuple[float, str, str | None]] = {}
"""When a store did not answer, by kind and bucket, and what was said."""


class ObjectName(Protocol):
    """What a store needs to know of an object; its text is its address."""

    @property
    def store(self) -> str:
        """The kind of store: s3, gs, az or hdfs."""

    @property
    def bucket(self) -> str:
        """Bucket, container (with the account behind an @), or host of the store."""

    @property
    def key(self) -> str:
        """What stands behind the bucket, '' for the bucket itself."""


class Found(NamedTuple):
    """What a store says of a name."""

    is_file: bool
    is_dir: bool
    size: int
    changed: float
    """Time of the last change [s since 1970], 0 where it is not known."""


def look(address: ObjectName) -> Found:
    """Return what the store says of a name.

    Raises
    ------
    StoreError
        The store does not answer, or not with these credentials.
    """
    from pyarrow.fs import FileType

    info = asked_of(address, lambda client: client.get_file_info(native_path(address)))
    if info.type is FileType.NotFound and address.key and address.store != "hdfs":
        _require_bucket(address)
    changed = info.mtime.timestamp() if info.mtime is not None else 0.0
    return Found(info.type is FileType.File, info.type is FileType.Directory, info.size or 0, changed)


def _require_bucket(address: ObjectName) -> None:
    """Refuse a bucket that does not exist; who may not ask for that passes."""
    from pyarrow.fs import FileType

    bucket = address.bucket.partition("@")[0]
    with suppress(OSError, LateError):
        client = store_of(address)
        if within(_WHOLE_S, lambda: client.get_file_info(bucket)).type is FileType.NotFound:
            raise recorded(StoreError("the bucket does not exist", where=str(address), hint="check its name"))


class Entry(NamedTuple):
    """A name in the listing of a folder."""

    name: str
    is_file: bool
    size: int | None
    """Bytes of a file; None if the listing does not state them."""


def entries(folder: ObjectName) -> list[Entry]:
    """Return what is directly below a folder.

    Raises
    ------
    StoreError
        There is no such folder, or the store does not answer.
    """
    from pyarrow.fs import FileSelector, FileType

    found = asked_of(folder, lambda client: client.get_file_info(FileSelector(native_path(folder))))
    return [Entry(info.base_name, info.type is FileType.File, info.size) for info in found]


def native_path(address: ObjectName) -> str:
    """Return the name of an object as Arrow's client of its store spells it."""
    if address.store == "hdfs":
        return f"/{address.key}"
    bucket = address.bucket.partition("@")[0]
    return f"{bucket}/{address.key}".rstrip("/")


def store_of(address: ObjectName) -> Any:
    """Return the client for the store of an address: a `pyarrow.fs.FileSystem`.

    Raises
    ------
    StoreError
        The environment does not say enough to reach it.
    """
    return _client(address.store, address.bucket)


@lru_cache(maxsize=16)
def _client(store: str, bucket: str) -> Any:
    return {"s3": _s3, "gs": _gs, "az": _az, "hdfs": _hdfs}[store](bucket)


def _s3(bucket: str) -> Any:
    import pyarrow.fs as pf

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if region is None and endpoint is None:
        region = pf.resolve_s3_region(bucket)
    more: dict[str, Any] = {}
    if endpoint is not None:
        parts = urlsplit(endpoint if "//" in endpoint else f"https://{endpoint}")
        more = {"scheme": parts.scheme, "endpoint_override": f"{parts.netloc}{parts.path.rstrip('/')}"}
    return pf.S3FileSystem(
        region=region,
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        retry_strategy=pf.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **more,
    )


def _gs(_: str) -> Any:
    import pyarrow.fs as pf

    limit = dt.timedelta(seconds=_REQUEST_S)
    emulator = os.environ.get("CLOUD_STORAGE_EMULATOR_ENDPOINT") or os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator is not None:
        parts = urlsplit(emulator if "//" in emulator else f"http://{emulator}")
        return pf.GcsFileSystem(
            anonymous=True, scheme=parts.scheme, endpoint_override=parts.netloc, retry_time_limit=limit
        )
    return pf.GcsFileSystem(retry_time_limit=limit)


def _az(bucket: str) -> Any:
    import pyarrow.fs as pf

    host = bucket.partition("@")[2]
    account = host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise StoreError(
            "the storage account of the container is unknown",
            where=f"az://{bucket}",
            hint="set AZURE_STORAGE_ACCOUNT, or write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER",
        )
    more: dict[str, Any] = {}
    emulator = os.environ.get("AZURE_STORAGE_SERVICE_ENDPOINT")
    if emulator is not None:
        parts = urlsplit(emulator)
        for kind in ("blob", "dfs"):
            more |= {f"{kind}_storage_authority": parts.netloc, f"{kind}_storage_scheme": parts.scheme}
    key, token = os.environ.get("AZURE_STORAGE_KEY"), os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if key:
        more["account_key"] = key
    elif token:
        more["sas_token"] = token
    return pf.AzureFileSystem(account, **more)  # without either: what the Azure SDK finds in the environment


def _hdfs(host: str) -> Any:
    import pyarrow.fs as pf

    name, _, port = host.partition(":")
    return pf.HadoopFileSystem(name, int(port or (0 if name == "default" else 8020)))


def asked_of(address: ObjectName, work: Callable[[Any], T], size: int = 0) -> T:
    """Return what `work` gets from the client of an address's store, in bounded time.

    Parameters
    ----------
    work : callable
        Receives the client, a `pyarrow.fs.FileSystem`; runs in a thread of its own.
    size : int
        Bytes that it reads; more may take longer.

    Raises
    ------
    StoreError
        The store fails or takes too long, or did so a moment ago.
    """
    with _store_errors(address):
        return within(_WHOLE_S + size / _LEAST_RATE, lambda: work(store_of(address)))


@contextmanager
def _store_errors(address: ObjectName) -> Iterator[None]:
    """Raise one clear StoreError when a store fails; ask no store again at once that did not answer.

    Raises
    ------
    StoreError
        The block failed, or the store failed a moment ago.
    """
    store = (address.store, address.bucket)
    since, reason, hint = _gone.get(store, (-_REST_S, "", None))
    if time.monotonic() - since < _REST_S:
        raise recorded(StoreError(reason, where=str(address), hint=hint))
    try:
        yield
    except StoreError as error:
        recorded(error)
        raise
    except Exception as error:
        reason, hint = _told(address, " ".join(str(error).split()))
        if reason.startswith(_GONE):
            _gone[store] = (time.monotonic(), reason, hint)
        raise recorded(StoreError(reason, where=str(address), hint=hint)) from error


def failure_behind(error: BaseException) -> StoreError | None:
    """Return the failure of a store that another library's error passes on as text, None where there is none."""
    text = str(error)
    return next((failure for failure in reversed(_failures) if str(failure) in text), None)


def recorded(failure: StoreError) -> StoreError:
    """Return a failure after keeping it for `failure_behind`."""
    _failures.append(failure)
    del _failures[:-16]
    return failure


def _told(address: ObjectName, text: str) -> tuple[str, str | None]:
    """Return what is wrong, and what to do, from what the client of a store says."""
    # The name of the object may look like a reason.
    said = text.replace(address.key, "") if address.key else text
    for pattern, reason, hint in _REASONS:
        if re.search(pattern, said):
            words = {"credentials": _CREDENTIALS[address.store], "reached": _REACHED[address.store]}
            detail = f": {without_secrets(_CALL.sub('', text))[:120].rstrip('. ')}" if reason == _GONE else ""
            return f"{reason}{detail}", None if hint is None else hint.format(**words)
    return f"cannot be read: {without_secrets(text)[:200]}", None
