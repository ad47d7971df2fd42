"""Connect to the stores that addresses refer to, look up names, and report failures.

Apache Arrow provides the clients for all stores. They take their settings (credentials, region, a different endpoint)
from the environment, under the names that each store's own tools use. Time and attempts are limited, so a run ends
after one or two minutes if a store does not respond. The clients do not notice a very slow response or an endless
listing, so `asked_of` limits the time of every call.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from tracekit.errors import StoreError
from tracekit.exchange import LateError, within
from tracekit.text import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyarrow.fs import FileInfo


T = TypeVar("T")

_CONNECT_S = 5.0
"""Maximum time to connect to a store [s]."""
_REQUEST_S = 20.0
"""Maximum time for which a store may send nothing [s]."""
_ATTEMPTS = 3
"""Maximum number of attempts at one request, including the first."""
_WHOLE_S = 120.0
"""Maximum time for one call, including all attempts [s]."""
_LEAST_RATE = 65_536.0
"""A call that reads gets extra time for its bytes, at this rate [B/s]."""
_REST_S = 30.0
"""How long not to ask a store again that did not respond [s]. Until then, requests fail immediately."""

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY",
    "hdfs": "HADOOP_USER_NAME, or a Kerberos ticket",
}
"""Credentials that each store uses to identify the user."""

_REACHED = {
    "s3": "AWS_ENDPOINT_URL",
    "gs": "the network",
    "az": "AZURE_STORAGE_ACCOUNT",
    "hdfs": "the host and its port",
}
"""What to check if a store cannot be reached."""

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
        "cannot be read with the credentials in the environment",
        "set {credentials}, or ask for permission",
    ),
    ("libhdfs|libjvm", "needs Hadoop, but its library libhdfs is missing", "set JAVA_HOME, HADOOP_HOME and CLASSPATH"),
    ("NO_SUCH_KEY|NoSuchKey|RESOURCE_NOT_FOUND|BlobNotFound|No such file|404|does not exist", "no such object", None),
    (_NO_ANSWER, _GONE, "check {reached}, and try again"),
)
"""Error text and hint for a failure, by patterns in the client's message. The first match is used."""
_CALL = re.compile(r"When .*? operation: ?|google::cloud::Status\(")
"""Text that clients write before the reason."""

_failures: list[StoreError] = []
"""The last failures, for `failure_behind`."""
_gone: dict[tuple[str, str], tuple[float, str, str | None]] = {}
"""The time and the error for each store (kind and bucket) that did not respond."""


class ObjectName(Protocol):
    """The parts of an object's name that a store needs. Its string form is the address."""

    @property
    def store(self) -> str:
        """The kind of store: s3, gs, az or hdfs."""

    @property
    def bucket(self) -> str:
        """Bucket, container (with the account after an @), or host of the store."""

    @property
    def key(self) -> str:
        """Name of the object within the bucket, or '' for the bucket itself."""


def look(address: ObjectName) -> FileInfo:
    """Return the store's information about a name.

    Raises
    ------
    StoreError
        The store does not respond, or rejects these credentials.
    """
    from pyarrow.fs import FileType

    info: FileInfo = asked_of(address, lambda client: client.get_file_info(native_path(address)))
    if info.type is FileType.NotFound and address.key and address.store != "hdfs":
        _require_bucket(address)
    return info


def _require_bucket(address: ObjectName) -> None:
    """Reject a missing bucket. Without permission to list, skip the check."""
    from pyarrow.fs import FileType

    bucket = address.bucket.partition("@")[0]
    with suppress(OSError, LateError):
        client = store_of(address)
        if within(_WHOLE_S, lambda: client.get_file_info(bucket)).type is FileType.NotFound:
            raise recorded(StoreError("the bucket does not exist", where=str(address), hint="check its name"))


def entries(folder: ObjectName) -> list[FileInfo]:
    """Return the entries directly below a folder, in order of their names.

    Raises
    ------
    StoreError
        The folder does not exist, or the store does not respond.
    """
    from pyarrow.fs import FileSelector

    found = asked_of(folder, lambda client: client.get_file_info(FileSelector(native_path(folder))))
    return sorted(found, key=lambda info: info.base_name)


def native_path(address: ObjectName) -> str:
    """Return the name of an object as spelled by Arrow's client for its store."""
    if address.store == "hdfs":
        return f"/{address.key}"
    bucket = address.bucket.partition("@")[0]
    return f"{bucket}/{address.key}".rstrip("/")


def store_of(address: ObjectName) -> Any:
    """Return the client for the store of an address, a `pyarrow.fs.FileSystem`.

    Raises
    ------
    StoreError
        Settings needed to reach the store are missing from the environment.
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
            "the container's storage account is unknown",
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
    return pf.AzureFileSystem(account, **more)  # if neither is given, the Azure SDK searches the environment


def _hdfs(host: str) -> Any:
    import pyarrow.fs as pf

    name, _, port = host.partition(":")
    return pf.HadoopFileSystem(name, int(port or (0 if name == "default" else 8020)))


def asked_of(address: ObjectName, work: Callable[[Any], T], size: int = 0) -> T:
    """Run `work` with the client for an address's store, in limited time, and return its result.

    Parameters
    ----------
    work : callable
        Receives the client, a `pyarrow.fs.FileSystem`, and runs in a separate thread.
    size : int
        Number of bytes that `work` reads. More bytes get more time.

    Raises
    ------
    StoreError
        The store fails or takes too long, or did so recently.
    """
    with _store_errors(address):
        return within(_WHOLE_S + size / _LEAST_RATE, lambda: work(store_of(address)))


@contextmanager
def _store_errors(address: ObjectName) -> Iterator[None]:
    """Raise a clear StoreError if a store fails, and do not ask a store again soon that did not respond.

    Raises
    ------
    StoreError
        The block failed, or the store failed recently.
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
    """Return the store failure that another library's error quotes, or None."""
    text = str(error)
    return next((failure for failure in reversed(_failures) if str(failure) in text), None)


def recorded(failure: StoreError) -> StoreError:
    """Store a failure for `failure_behind` and return it."""
    _failures.append(failure)
    del _failures[:-16]
    return failure


def _told(address: ObjectName, text: str) -> tuple[str, str | None]:
    """Return the error text and the hint for a store client's message."""
    # Remove the object's name first, because it may look like a reason.
    said = text.replace(address.key, "") if address.key else text
    for pattern, reason, hint in _REASONS:
        if re.search(pattern, said):
            words = {"credentials": _CREDENTIALS[address.store], "reached": _REACHED[address.store]}
            detail = f": {without_secrets(_CALL.sub('', text))[:120].rstrip('. ')}" if reason == _GONE else ""
            return f"{reason}{detail}", None if hint is None else hint.format(**words)
    return f"cannot be read: {without_secrets(text)[:200]}", None
