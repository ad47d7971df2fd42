"""Raw samples of a running Prometheus, saved as its own answers, which the reader of files then reads.

An instant query of METRIC[WINDOW] gives the samples as they were scraped; `query_range` would go on for 5 minutes after
a series ends. Each answer is a file in a folder beside the Trace, so that a run that is stopped goes on where it was. A
window that holds more samples than the server allows (HTTP 422) is halved.

The bearer token comes from the environment; it goes to the server's own host only, and is never written anywhere.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tracekit.errors import SourceError, UsageError
from tracekit.ingest.telemetry._metrics import METRICS, NODE_METRICS
from tracekit.ingest.telemetry._unused import shown_names
from tracekit.outputs import output_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tracekit.progress import Progress

__all__ = ["TOKEN_VARIABLE", "Prometheus"]

TOKEN_VARIABLE = "TRACEKIT_PROMETHEUS_TOKEN"  # noqa: S105 -- the name of a variable, not a token
"""Environment variable with the bearer token."""

WINDOW_S = 86_400
"""Length of the first window that is asked for [s]."""

_LEAST_WINDOW_S = 60
_TRIES = 5
_TIMEOUT_S = 130.0
"""The server gives up after two minutes by itself."""
_LONGEST_PAUSE_S = 60.0
_CHUNK = 1 << 18


def _read(response: HTTPResponse) -> bytes:
    """Return the next bytes of an answer.

    Raises
    ------
    _BusyError
        The connection broke off.
    """
    try:
        return response.read(_CHUNK)
    except (HTTPException, OSError) as error:
        raise _BusyError(f"the connection broke off ({type(error).__name__})") from error


def _like_gpus(names: set[str]) -> str:
    """Return the names of a server's metrics in words, those that may be of GPUs where there are any."""
    of_gpus = {name for name in names if re.search("gpu|dcgm|rocm|xpu|npu", name, re.IGNORECASE)}
    return shown_names(of_gpus or names) or "no metric at all"


class _TooMuchError(Exception):
    """The window holds more samples than the server allows."""


class _BusyError(Exception):
    """The server may answer later; `pause` is the time that it asks for [s]."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        self.pause = pause
        super().__init__(reason)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the token is for one host."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


@dataclass(frozen=True)
class Prometheus:
    """A server and the folder for its answers.

    Raises
    ------
    UsageError
        The address is none of a server, or holds a password.
    """

    address: str
    folder: Path
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if not parts.hostname:
            raise UsageError("is no address", where="--telemetry", hint="write it like http://host:9090")
        if parts.username or parts.password:
            raise UsageError(
                "an address with a password would be written into notes and logs",
                where="--telemetry",
                hint=f"put a bearer token into the environment variable {TOKEN_VARIABLE}",
            )

    def fetch(self, start: float, end: float, progress: Progress) -> list[Path]:
        """Save the samples from `start` to `end` [s since 1970] of every metric that fills a column; return the files.

        Raises
        ------
        SourceError
            The server does not give them; a later call goes on after those that are there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        names = self._names(start, end)
        have = [name for name in (*METRICS, *NODE_METRICS) if name in names]
        if not have:
            raise SourceError(
                "has none of the metrics that fill a column",
                where=self.address,
                hint=f"it has {_like_gpus(names)}; those that are read are in docs/telemetry.md",
            )
        found = []
        for name in have:
            progress.stage(f"asking {self._host} for {name}", int(end - start))
            for first, last, path in self._answers(name, start, end):
                progress.advance(int(last - first))
                found.append(path)
        return found

    @property
    def _host(self) -> str:
        return urlsplit(self.address).netloc

    def _names(self, start: float, end: float) -> set[str]:
        path = self.folder / "names.json"
        self._ask("label/__name__/values", {"start": f"{start:.3f}", "end": f"{end:.3f}"}, path)
        try:
            names = json.loads(path.read_bytes()).get("data") or []
        except (ValueError, RecursionError):
            path.unlink()
            raise self._not_prometheus(b"JSON that is cut or damaged") from None
        return {name for name in names if isinstance(name, str)}

    def _not_prometheus(self, said: bytes) -> SourceError:
        return SourceError(
            f"does not answer as Prometheus does: {said.decode('utf-8', 'replace')}",
            where=self.address,
            hint="is it the address of Prometheus, without /api/v1, and is there a log-in before it?",
        )

    def _answers(self, metric: str, start: float, end: float) -> Iterator[tuple[float, float, Path]]:
        """Yield windows with the files of their samples, earlier ones first."""
        windows = []
        first = start
        while first < end:
            windows.append((first, min(first + WINDOW_S, end)))
            first += WINDOW_S
        windows.reverse()
        while windows:
            first, last = windows.pop()
            path = self.folder / f"{metric}-{first:.0f}-{last:.0f}.json"
            try:
                if not path.exists():
                    named = f'{{__name__="{metric}"}}' if "." in metric else metric
                    query = f"{named}[{max(1, round((last - first) * 1000))}ms]"
                    self._ask("query", {"query": query, "time": f"{last:.3f}"}, path)
            except _TooMuchError as error:
                if last - first < 2 * _LEAST_WINDOW_S:
                    raise SourceError(
                        f"{metric} has more samples in a minute than the server gives out",
                        where=self.address,
                        hint="raise its --query.max-samples",
                    ) from error
                middle = (first + last) / 2
                windows += [(middle, last), (first, middle)]
                continue
            yield first, last, path

    def _ask(self, what: str, query: dict[str, str], path: Path) -> None:
        """Save the answer to a question, trying again while the server is busy."""
        reason = ""
        for again in range(_TRIES):
            try:
                self._save(f"{self.address.rstrip('/')}/api/v1/{what}?{urlencode(query)}", path)
            except _BusyError as error:
                reason = str(error)
                if again + 1 < _TRIES:
                    self.pause(min(2.0**again if error.pause is None else error.pause, _LONGEST_PAUSE_S))
            else:
                return
        raise SourceError(
            f"the server does not answer: {reason}",
            where=self.address,
            hint="run the same command again later: it goes on from here",
        )

    def _save(self, url: str, path: Path) -> None:
        part = path.with_suffix(".part")
        with self._open(url) as response, output_errors(part), part.open("wb") as file:
            length = response.headers.get("Content-Length", "")
            while chunk := _read(response):
                file.write(chunk)
            size = file.tell()
        if length.isdecimal() and size < int(length):
            raise _BusyError("the connection broke off")
        with part.open("rb") as file:
            head = file.read(64)
            file.seek(max(0, size - 64))
            tail = file.read(64)
        begins, ends = b"".join(head.split()).startswith(b'{"status":"success"'), tail.rstrip().endswith(b"}")
        if not begins or not ends:
            part.unlink()
            raise self._not_prometheus(b"an answer without an end" if begins or not size else head[:40])
        part.replace(path)

    def _open(self, url: str) -> HTTPResponse:
        token = os.environ.get(TOKEN_VARIABLE, "")
        headers = {"User-Agent": "tracekit", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            request = Request(url, headers=headers)  # noqa: S310 -- companion.is_address has checked the scheme
            response = build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S)
        except HTTPError as error:
            with error:
                raise self._refused(error) from None  # the error has the headers that were sent
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise _BusyError(f"no connection: {getattr(reason, 'strerror', None) or reason}") from None
        if not isinstance(response, HTTPResponse):
            raise SourceError("is not on the web", where=self.address)
        return response

    def _refused(self, error: HTTPError) -> Exception:
        if error.code == 422:
            return _TooMuchError()
        if error.code in (429, 500, 502, 503, 504):
            after = error.headers.get("Retry-After", "")
            return _BusyError(f"HTTP {error.code} {error.reason}", float(after) if after.isdecimal() else None)
        hint = "is it the address of Prometheus, without /api/v1?"
        if error.code in (401, 403):
            hint = f"put a bearer token into the environment variable {TOKEN_VARIABLE}"
        if 300 <= error.code < 400:
            hint = "name the address that it redirects to"
        return SourceError(f"the server refuses: HTTP {error.code} {error.reason}", where=self.address, hint=hint)
