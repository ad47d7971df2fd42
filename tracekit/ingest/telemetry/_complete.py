"""Fill gpu_utilization, and add GPU errors (XID) and node conditions to node_events, from the telemetry next to a log.

Samples are first collected in a file of numbers. All metrics of a GPU at one time then become one row with the job that
used the GPU. Machines are processed in groups, so memory use is bounded. The rules:

- A host is matched to the log's machine with the same name, with or without cluster and domain.
- If several series of one metric have samples for the same GPU and time, they contradict each other, unless one has
  already ended: `query_range` repeats values for 5 minutes. The series that began last counts, or the largest value if
  they began together.
- A sample belongs to the job in its labels if an attempt of that job ran at that time. Without job labels, it belongs
  to the only attempt that can have used the GPU. GPU indices in the log identify this attempt; without them, only an
  attempt that used all GPUs of the machine is certain.
- Placements get the GPU indices in labels if the number of indices equals the number of GPUs in the log.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

import polars as pl

from tracekit.databases import sql_text
from tracekit.errors import SourceError, UsageError
from tracekit.exchange import QUESTIONS, ExchangeError, LostError, TooLargeError, ask
from tracekit.ingest.companion import answers_of, companions
from tracekit.ingest.file_tasks import read_each
from tracekit.ingest.files import source_files
from tracekit.ingest.telemetry._holders import place_series
from tracekit.ingest.telemetry._joined import write_samples
from tracekit.ingest.telemetry._node_conditions import NodeConditions
from tracekit.ingest.telemetry._pivot import SampleFile
from tracekit.ingest.telemetry._series import COLUMNS, METRICS, NODE_METRICS, Labels, Samples, SeriesTable, shown_names
from tracekit.outputs import output_errors
from tracekit.text import passed_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import duckdb

    from tracekit.exchange import Answer
    from tracekit.ingest.companion import CompanionFiles, TelemetryReader
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import Sink
    from tracekit.progress import Progress


# Pull raw samples from a running Prometheus, and save its responses as files for the file reader.
#
# An instant query of METRIC[WINDOW] returns the samples as they were scraped, whereas `query_range` would repeat values
# for 5 minutes after the end of a series. Each response is a file in a folder next to the Trace, so an interrupted run
# can resume.
#
# If the server rejects a window because of a limit, the window is halved. For too many samples, chunks or bytes,
# Prometheus, Mimir, Cortex, Thanos and VictoriaMetrics return HTTP 422. For too long a time span, Mimir and Cortex
# return HTTP 400; if a query takes too long, Prometheus returns HTTP 503. `tracekit.exchange.QUESTIONS` limits every
# response.
#
# The bearer token comes from the environment. It is sent only to the server's host and never written to disk.

T = TypeVar("T")

TOKEN_VARIABLE = "TRACEKIT_PROMETHEUS_TOKEN"  # noqa: S105 -- the name of a variable, not a token
"""Environment variable with the bearer token."""

WINDOW_S = 86_400
"""Length of the first window requested [s]."""

_LEAST_WINDOW_S = 60
_TOO_LARGE = 3
"""A pull fails after this many oversized responses in a row, each for half of the window before."""
_NAMES = replace(QUESTIONS, most_bytes=64 << 20)
"""Limits for the response with all metric names, which must fit into memory."""
_CHUNK = 1 << 18
_LIMIT = re.compile("too (many|much|long|large)|limit|exceed|max-", re.IGNORECASE)
"""Matches servers' error messages for a query that exceeds a limit."""


def _like_gpus(names: set[str]) -> str:
    """List a server's metric names as text. If any look like GPU metrics, list only these."""
    of_gpus = {name for name in names if re.search("gpu|dcgm|rocm|xpu|npu", name, re.IGNORECASE)}
    return shown_names(of_gpus or names) or "no metrics at all"


def _clock(moment: float) -> str:
    """Format a time [s since 1970] in UTC."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%S}"


class _TooMuchError(Exception):
    """The window exceeds a server limit. The exception's message is the server's."""


class _BusyError(Exception):
    """The server may respond later. `pause` is the requested wait [s]."""

    def __init__(self, reason: object, pause: float | None = None) -> None:
        self.pause = pause
        super().__init__(str(reason))


@dataclass(frozen=True)
class Prometheus:
    """A server, and the folder for its responses.

    Raises
    ------
    UsageError
        The address is not a server address, or contains a password.
    """

    address: str
    folder: Path
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if not parts.hostname:
            raise UsageError("is not an address", where="--telemetry", hint="write it like http://host:9090")
        if parts.username or parts.password:
            raise UsageError(
                "an address with a password would appear in notes and logs",
                where="--telemetry",
                hint=f"put a bearer token into the environment variable {TOKEN_VARIABLE}",
            )

    def fetch(self, start: float, end: float, progress: Progress) -> list[Path]:
        """Save the samples of every metric that fills a column from `start` to `end` [s since 1970]. Return the files.

        Raises
        ------
        SourceError
            The server does not return the samples. A later call continues after the saved samples.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        names = self._names(start, end)
        have = [name for name in (*METRICS, *NODE_METRICS) if name in names]
        if not have:
            raise SourceError(
                "has no metrics that tracekit reads",
                where=self.address,
                hint=f"it has {_like_gpus(names)}; docs/telemetry.md lists the metrics that tracekit reads",
            )
        found = []
        for name in have:
            progress.stage(f"querying {self._host} for {name}", int(end - start))
            for first, last, path in self._answers(name, start, end):
                progress.advance(int(last - first))
                found.append(path)
        return found

    @property
    def _host(self) -> str:
        return urlsplit(self.address).netloc

    def _names(self, start: float, end: float) -> set[str]:
        def names(first: float, last: float) -> set[str]:
            path = self.folder / "names.json"
            self._ask("label/__name__/values", {"start": f"{first:.3f}", "end": f"{last:.3f}"}, path)
            try:
                found = json.loads(path.read_bytes()).get("data") or []
            except (ValueError, RecursionError):
                path.unlink()
                raise self._not_prometheus(b"JSON that is cut or damaged") from None
            return {name for name in found if isinstance(name, str)}

        return set().union(*(found for _, _, found in self._windows("names of metrics", [(start, end)], names)))

    def _not_prometheus(self, said: bytes) -> SourceError:
        return SourceError(
            f"does not respond like Prometheus: {said.decode('utf-8', 'replace')}",
            where=self.address,
            hint="check that this is the address of Prometheus, without /api/v1, and needs no login",
        )

    def _answers(self, metric: str, start: float, end: float) -> Iterator[tuple[float, float, Path]]:
        """Yield time windows with the files that contain their samples, earliest first."""

        def samples(first: float, last: float) -> Path:
            path = self.folder / f"{metric}-{first:.0f}-{last:.0f}.json"
            if not path.exists():
                named = f'{{__name__="{metric}"}}' if "." in metric else metric
                query = f"{named}[{max(1, round((last - first) * 1000))}ms]"
                self._ask("query", {"query": query, "time": f"{last:.3f}"}, path)
            return path

        windows = []
        first = start
        while first < end:
            windows.append((first, min(first + WINDOW_S, end)))
            first += WINDOW_S
        yield from self._windows(metric, windows, samples)

    def _windows(
        self, what: str, windows: list[tuple[float, float]], answer: Callable[[float, float], T]
    ) -> Iterator[tuple[float, float, T]]:
        """Yield each window with its response, earliest first. A window that the server rejects is halved.

        Raises
        ------
        SourceError
            The server rejects a window of one minute, does not respond, or its responses never end.
        """
        left, too_large = windows[::-1], 0
        while left:
            first, last = left.pop()
            span = f"{what}, {_clock(first)} to {_clock(last)} UTC"
            try:
                found = answer(first, last)
            except (_TooMuchError, TooLargeError) as error:
                too_large = too_large + 1 if isinstance(error, TooLargeError) else 0
                if too_large >= _TOO_LARGE:
                    raise SourceError(
                        f"the server's responses never end ({span}): {error}",
                        where=self.address,
                        hint="query Prometheus directly, without a proxy",
                    ) from error
                if last - first < 2 * _LEAST_WINDOW_S:
                    raise SourceError(
                        f"the server rejects even a window of one minute ({span}): {error}",
                        where=self.address,
                        hint="raise its limits, such as Prometheus's --query.max-samples",
                    ) from error
                middle = (first + last) / 2
                left += [(middle, last), (first, middle)]
                continue
            except (_BusyError, ExchangeError) as error:
                raise SourceError(
                    f"the server does not respond: {error} ({span})",
                    where=self.address,
                    hint="run the same command again later; it continues from this point",
                ) from error
            too_large = 0
            yield first, last, found

    def _ask(self, what: str, query: dict[str, str], path: Path) -> None:
        """Save the response to a query, retrying while the server is busy.

        Raises
        ------
        _TooMuchError, TooLargeError
            The response exceeds a limit of the server or of tracekit.
        _BusyError, ExchangeError
            The last try failed, or the response was not complete in time.
        """
        for failures in range(1, QUESTIONS.attempts + 1):
            try:
                return self._save(f"{self.address.rstrip('/')}/api/v1/{what}?{urlencode(query)}", path)
            except (_BusyError, LostError) as error:
                if failures == QUESTIONS.attempts:
                    raise
                self.pause(QUESTIONS.pause_s(failures, getattr(error, "pause", None)))
        raise AssertionError

    def _save(self, url: str, path: Path) -> None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        part = path.with_suffix(".part")
        try:
            with ask(url, headers, _NAMES if path.name == "names.json" else QUESTIONS) as answer:
                if answer.status != 200:
                    raise self._refused(answer)
                encoding = answer.headers.get("Content-Encoding", "identity")
                if encoding != "identity":
                    raise self._not_prometheus(f"content encoded as {passed_on(encoding, 20)}, unasked".encode())
                with output_errors(part), part.open("wb") as file:
                    while chunk := answer.read(_CHUNK):
                        file.write(chunk)
                    size = file.tell()
            if answer.length is not None and size < answer.length:
                raise _BusyError(f"the connection was lost after {size:,} of {answer.length:,} bytes")
            self._require_success(part, size)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _require_success(self, part: Path, size: int) -> None:
        """Reject a response that does not begin and end like one from Prometheus."""
        with part.open("rb") as file:
            head = file.read(64)
            file.seek(max(0, size - 64))
            tail = file.read(64)
        begins, ends = b"".join(head.split()).startswith(b'{"status":"success"'), tail.rstrip().endswith(b"}")
        if not begins or not ends:
            raise self._not_prometheus(b"a response without an end" if begins or not size else head[:40])

    def _refused(self, answer: Answer) -> Exception:
        """Return the error for an HTTP status, including the server's message."""
        said, kind = _said(answer.words())
        status = f"HTTP {answer.status} {answer.reason}"
        what = f"{status}: {said}" if said else status
        too_long = answer.status in (400, 413) and _LIMIT.search(said)
        if answer.status == 422 or too_long or (answer.status == 503 and kind == "timeout"):
            return _TooMuchError(what)
        if answer.status in (429, 500, 502, 503, 504):
            return _BusyError(what, answer.retry_after_s)
        hint = "check that this is the address of Prometheus, without /api/v1"
        if answer.status in (401, 403):
            hint = f"put a bearer token into the environment variable {TOKEN_VARIABLE}"
        if 300 <= answer.status < 400:
            hint = "use the address that it redirects to"
        return SourceError(f"the server rejects the query: {what}", where=self.address, hint=hint)


def _said(text: str) -> tuple[str, str]:
    """Return a response's error message and its type, which is '' for a proxy's page."""
    try:
        stated = json.loads(text)
        said, kind = str(stated.get("error", "")), str(stated.get("errorType", ""))
    except (ValueError, RecursionError, AttributeError):
        said, kind = "" if text.lstrip()[:1] in {"<", "{", "["} else text, ""
    return passed_on(said, 200), kind


def complete_telemetry(given: CompanionFiles, frame: TimeFrame, sink: Sink) -> None:
    """Read telemetry, and join it with the log's complete tables of machines and jobs.

    Raises
    ------
    SourceError
        A file cannot be read as its detected kind, or a server does not respond.
    """
    series, conditions = SeriesTable(), NodeConditions()
    with sink.connect() as con, SampleFile(sink.writer.scratch / "telemetry.samples") as samples:
        sink.attach(con, "jobs", "attempts", "placements", "nodes")
        hosts = _hosts(con)
        files = {name: list(found) for name, found in given.telemetry.items()}
        for address in given.servers:
            files.setdefault("prometheus", []).extend(_pulled(con, address, given.window, sink))
        with output_errors(sink.writer.target):
            own = _own_samples(con, sink) if samples_lack_jobs(sink) else ()
            every = [(name, file) for name, found in files.items() for file in found]
            for part in chain(own, read_each(every, partial(_read_file, frame, hosts), sink)):
                if not conditions.add(part):
                    samples.add(series.number(part.labels, part.metric), part.times, part.values)
        if conditions and frame.base == "absolute":
            conditions.write(con, sink)
        elif conditions:
            sink.note(f"the log's times are {frame.base}, so we ignore the node states in telemetry")
        if series.numbers:
            join(con, samples, series, sink)
        elif not conditions:
            sink.note("the telemetry contains no samples that tracekit reads")


_OWN_BATCH = 1 << 19
_OWN_KEY = ("node_id", "gpu_index", "gpu_instance", "job_id")


def samples_lack_jobs(sink: Sink) -> bool:
    """Return whether the samples cannot be joined with the log's jobs by GPU."""
    if not sink.has("gpu_utilization"):
        return False
    with sink.connect() as con:
        sink.attach(con, "gpu_utilization", "placements")
        if con.execute("SELECT 1 FROM gpu_utilization WHERE job_id IS NOT NULL LIMIT 1").fetchall():
            return True
        indexed = con.execute("SELECT 1 FROM placements WHERE len(gpu_index) > 0 LIMIT 1").fetchall()
        return sink.has("placements") and not indexed


def _own_samples(con: duckdb.DuckDBPyConnection, sink: Sink) -> Iterator[Samples]:
    """Yield the samples of gpu_utilization and remove the table, which the join writes again.

    The rules for other telemetry apply. A job name from a mapped column is treated as a label.
    """
    import pyarrow.parquet as pq

    path = sink.path("gpu_utilization")
    ordered = sink.writer.scratch / "own_samples.parquet"
    key = ", ".join(_OWN_KEY)
    con.execute(
        f"""COPY (SELECT {key}, epoch_us(time) AS time, {", ".join(COLUMNS)} FROM read_parquet({sql_text(path)})
        ORDER BY {key}, time) TO {sql_text(ordered)} (FORMAT parquet)"""
    )
    path.unlink()
    for batch in pq.ParquetFile(ordered).iter_batches(_OWN_BATCH):
        frame = pl.DataFrame(pl.from_arrow(batch))
        for (node, gpu, instance, job), part in frame.group_by(_OWN_KEY, maintain_order=True):
            labels = Labels(str(node), int(gpu), None, instance, job, None, None)
            for column in COLUMNS:
                known = part.select("time", column).drop_nulls()
                if known.height:
                    times, values = known["time"].to_numpy(), known[column].to_numpy()
                    yield Samples(labels, f"gpu_utilization.{column}", times, values)


def join(con: duckdb.DuckDBPyConnection, samples: SampleFile, series: SeriesTable, sink: Sink) -> None:
    """Write gpu_utilization and GPU errors, using the log's attached tables."""
    sink.progress.stage("joining telemetry with jobs")
    con.register("series_label", series.frame().to_arrow())
    con.execute("CREATE TABLE label AS SELECT * FROM series_label")
    place_series(con, sink)
    write_samples(con, samples, sink)


def _pulled(
    con: duckdb.DuckDBPyConnection, address: str, window: tuple[datetime | None, datetime | None], sink: Sink
) -> list[SourceFile]:
    """Return a server's responses for the time in which attempts ran, or for the user's time range in UTC."""
    first, last, running = con.execute(
        """SELECT epoch(min(start_time)), epoch(max(greatest(start_time, end_time))), count(*) > count(end_time)
        FROM attempts WHERE start_time IS NOT NULL"""
    ).fetchall()[0]
    asked = [None if moment is None else moment.replace(tzinfo=UTC).timestamp() for moment in window]
    if first is None and None in asked:
        raise SourceError("no job has started, so no telemetry can belong to a job", where=address)
    begin = first if asked[0] is None else asked[0]
    end = asked[1] if asked[1] is not None else time.time() if running else last
    if begin > end or (None not in asked and begin == end):
        spans = "jobs ran from {:%Y-%m-%dT%H:%M:%S} to {:%Y-%m-%dT%H:%M:%S} UTC"
        hint = spans.format(*(datetime.fromtimestamp(t, UTC) for t in (first, last))) if first is not None else None
        raise UsageError("the time range of the telemetry ends before it begins", where="--from/--to", hint=hint)
    digest = sha256(address.encode()).hexdigest()[:12]
    server = Prometheus(address, answers_of(sink.writer.target) / digest)
    saved = {path.name for path in server.fetch(begin, end, sink.progress)}
    bounds = "within --from and --to" if any(window) else "from the first start to the last end"
    sink.note(f"telemetry from {address}: {len(saved)} responses, raw samples {bounds}")
    return [replace(file, path=f"{digest}/{file.path}") for file in source_files(server.folder) if file.path in saved]


def _read_file(frame: TimeFrame, hosts: frozenset[str], name: str, file: SourceFile, sink: Sink) -> Iterator[Samples]:
    reader: TelemetryReader = companions("telemetry")[name]  # type: ignore[assignment]  # members of this family are telemetry readers
    with sink.opened(file) as opened:
        yield from reader.read(opened, frame, hosts)


def _hosts(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the names of the log's machines, with and without their cluster."""
    rows = con.execute(
        """SELECT DISTINCT unnest([node_id, split_part(node_id, '/', -1)])
        FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM placements)"""
    ).fetchall()
    return frozenset(str(row[0]) for row in rows)
