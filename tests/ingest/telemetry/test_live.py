"""Samples of a running server, which may be slow, busy, small, or no Prometheus at all."""

from __future__ import annotations

import gzip
import json
import re
import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ingest.telemetry.monitored import DAY, Cluster, at, series
from tracekit.errors import SourceError, UsageError
from tracekit.exchange import QUESTIONS
from tracekit.ingest.telemetry import _complete
from tracekit.ingest.telemetry._complete import TOKEN_VARIABLE, Prometheus
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.reviewed import Golden

UTIL = "DCGM_FI_DEV_GPU_UTIL"


@dataclass
class Server:
    """A Prometheus with one series, and what it does instead of answering."""

    samples: list[tuple[float, float]] = field(default_factory=list)
    most: int = 10**9
    instead: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    address: str = ""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        if path.endswith("/label/__name__/values"):
            return 200, {}, json.dumps({"status": "success", "data": [UTIL, "up"]}).encode()
        self.asked.append(query["query"][0])
        if self.instead:
            return self.instead.pop(0)
        end = float(query["time"][0])
        start = end - float(query["query"][0].partition("[")[2].removesuffix("ms]")) / 1000
        found = [[time, str(value)] for time, value in self.samples if start <= time <= end]
        if len(found) > self.most:
            return 422, {}, b'{"status":"error","errorType":"execution","error":"too many samples"}'
        result = [{"metric": series(UTIL, {}, Hostname="n1", gpu="0", hpc_job="1")["metric"], "values": found}]
        return 200, {}, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    over = threading.Event()
    world = Server(samples=[(at("10:00") + 30 * n, n / 2) for n in range(120)])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            world.tokens.add(self.headers.get("Authorization"))
            status, headers, body = world.answer(parts.path, parse_qs(parts.query))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
                while isinstance(body, Endless) and not over.wait(body.pause):
                    self.wfile.write(body)
            except OSError:
                return  # the client gave up

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        world.address = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield world
        over.set()
        listening.shutdown()
        thread.join()


def ask(server: Server, folder: Path, pauses: list[float] | None = None) -> list[tuple[float, float]]:
    """Return the samples that were saved, each once."""
    pause = [] if pauses is None else pauses
    files = Prometheus(server.address, folder, pause.append).fetch(at("10:00"), at("11:00"), Progress())
    found = set()
    for path in files:
        for one in json.loads(path.read_bytes())["data"]["result"]:
            found |= {(float(time), float(value)) for time, value in one["values"]}
    return sorted(found)


def test_a_log_is_joined_with_what_the_server_has(server: Server, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "11:00", 1, "n1"))
    trace = cluster.trace(telemetry=(server.address,))
    frame = trace.scan("gpu_utilization").collect()
    assert frame["utilization_pct"].to_list() == [n / 2 for n in range(120)]
    assert set(frame["job_id"]) == {"slurm/1"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "trace"]


def test_windows_are_halved_until_the_server_gives_them(server: Server, tmp_path: Path) -> None:
    server.most = 40
    assert ask(server, tmp_path) == server.samples
    assert [query.partition("[")[2] for query in server.asked[:3]] == ["3600000ms]", "1800000ms]", "900000ms]"]


def test_a_server_that_gives_nothing_at_all_is_reported(server: Server, tmp_path: Path) -> None:
    server.most = 0
    with pytest.raises(SourceError, match="the server rejects even a window of one minute"):
        ask(server, tmp_path)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(server: Server, tmp_path: Path, status: int) -> None:
    server.instead = [(status, {"Retry-After": "7"}, b""), (status, {}, b"")]
    pauses: list[float] = []
    assert ask(server, tmp_path, pauses) == server.samples
    assert pauses == [7.0, 2.0]


MIMIR = "the query exceeded the maximum number of chunks (limit: 2000000 chunks) (err-mimir-max-chunks-per-query)"
CORTEX = "the query time range exceeds the limit (query length: 24h0m0s, limit: 1h0m0s)"


def said(kind: str, words: str) -> bytes:
    """Return an error as the API states it."""
    return json.dumps({"status": "error", "errorType": kind, "error": words}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, said("execution", "query processing would load too many samples into memory in query execution")),
        (422, said("execution", MIMIR)),
        (422, MIMIR.encode()),
        (422, b""),
        (400, said("bad_data", CORTEX)),
        (400, CORTEX.encode()),
        (413, b"the response is too large"),
        (503, said("timeout", "query timed out in expression evaluation")),
    ],
)
def test_a_window_beyond_a_limit_is_halved_whoever_says_so(
    server: Server, tmp_path: Path, status: int, body: bytes
) -> None:
    server.instead = [(status, {}, body)] * 2
    pauses: list[float] = []
    assert ask(server, tmp_path, pauses) == server.samples
    windows = [query.partition("[")[2] for query in server.asked]
    assert windows == ["3600000ms]", "1800000ms]", "900000ms]", "900000ms]", "1800000ms]"]
    assert pauses == []


def test_names_of_metrics_beyond_a_limit_are_asked_for_in_halves(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, spans = server.answer, []

    def limited(path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        if not path.endswith("/values"):
            return good(path, query)
        first, last = (float(query[name][0]) - at("10:00") for name in ("start", "end"))
        spans.append((first, last))
        names = [UTIL] if first == 0 else ["up"]
        return (422, {}, said("bad_data", CORTEX)) if last - first > 1800 else (200, {}, success(names))

    monkeypatch.setattr(server, "answer", limited)
    assert ask(server, tmp_path) == server.samples
    assert spans == [(0, 3600), (0, 1800), (1800, 3600)]


def success(data: Any) -> bytes:
    return json.dumps({"status": "success", "data": data}).encode()


def test_what_the_server_says_is_passed_on_without_secrets(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-the-house")
    words = "no such \x1b[31mtenant\n s3cret-of-the-house password=hunter2"
    server.most = 0
    told = []
    for status in (400, 401, 500):
        server.instead = [(status, {}, said("bad_data", words))] * 5
        with pytest.raises(SourceError) as caught:
            ask(server, tmp_path)
        told.append(str(caught.value))
    server.instead = [(422, {}, said("execution", words))] * 20
    with pytest.raises(SourceError) as caught:
        ask(server, tmp_path)
    told.append(str(caught.value))
    assert not any(secret in line for line in told for secret in ("s3cret", "hunter2", "\x1b", "\n"))
    golden([line.replace(server.address, "http://HOST") for line in told])


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer of 100 kB be too large."""
    monkeypatch.setattr(_complete, "QUESTIONS", replace(QUESTIONS, most_bytes=100_000))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server be too slow after 50 ms."""
    monkeypatch.setattr(_complete, "QUESTIONS", replace(QUESTIONS, silence_s=0.05))


class Endless(bytes):
    """Content that a server repeats until its client goes away, with a pause [s]."""

    pause = 0.0


def endless(content: bytes, pause: float = 0.0) -> Endless:
    found = Endless(content)
    found.pause = pause
    return found


@pytest.mark.usefixtures("hasty")
def test_an_answer_that_drips_is_one_error_with_the_server_and_the_window(
    server: Server, tmp_path: Path, golden: Golden
) -> None:
    server.instead = [(200, {"Content-Length": "1000"}, endless(b" ", 0.01))] * 9
    pauses: list[float] = []
    with pytest.raises(SourceError) as caught:
        ask(server, tmp_path, pauses)
    assert (len(server.asked), pauses) == (5, [1.0, 2.0, 4.0, 8.0])
    assert server.address in str(caught.value)
    assert f"({UTIL}, 2026-03-02T10:00:00 to 2026-03-02T11:00:00 UTC)" in str(caught.value)
    golden(re.sub(r"\d+ B in [\d.]+ s", "N B in N s", str(caught.value).replace(server.address, "http://HOST")))


@pytest.mark.usefixtures("narrow")
def test_an_answer_without_an_end_is_asked_for_three_times_and_leaves_nothing(
    server: Server, tmp_path: Path, golden: Golden
) -> None:
    server.instead = [(200, {"Content-Length": ""}, endless(b'[1709251200,"5"],' * 4000))] * 9
    with pytest.raises(SourceError) as caught:
        ask(server, tmp_path)
    assert [query.partition("[")[2] for query in server.asked] == ["3600000ms]", "1800000ms]", "900000ms]"]
    assert [path.name for path in tmp_path.iterdir()] == ["names.json"]
    golden(str(caught.value).replace(server.address, "http://HOST"))


@pytest.mark.usefixtures("narrow")
def test_an_answer_that_is_too_large_for_its_bounds_is_asked_for_in_halves(server: Server, tmp_path: Path) -> None:
    server.samples = [(at("10:00") + n / 2, n / 2) for n in range(7200)]  # some 150 kB
    assert ask(server, tmp_path) == server.samples
    windows = [query.partition("[")[2] for query in server.asked]
    assert windows == ["3600000ms]", "1800000ms]", "1800000ms]"]


def test_content_with_an_encoding_is_not_unpacked(server: Server, tmp_path: Path) -> None:
    body = gzip.compress(b" " * 1_000_000)
    server.instead = [(200, {"Content-Encoding": "gzip"}, body)]
    with pytest.raises(SourceError, match="content encoded as gzip, unasked"):
        ask(server, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["names.json"]


@pytest.mark.parametrize("asked", ["100000", "9" * 400])
def test_a_server_is_not_waited_for_longer_than_a_minute(server: Server, tmp_path: Path, asked: str) -> None:
    server.instead = [(429, {"Retry-After": asked}, b"")]
    pauses: list[float] = []
    assert ask(server, tmp_path, pauses) == server.samples
    assert pauses == [60.0]


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server, tmp_path: Path) -> None:
    server.instead = [(200, {"Content-Length": "1000"}, b'{"status":"success","data":{')]
    assert ask(server, tmp_path) == server.samples


def test_a_run_goes_on_where_an_earlier_one_stopped(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_complete, "WINDOW_S", 900)
    good = server.answer

    def stops(path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        return good(path, query) if len(server.asked) < 2 else (503, {}, b"")

    monkeypatch.setattr(server, "answer", stops)
    with pytest.raises(SourceError, match=r"the server does not respond: HTTP 503.*run the same command again later"):
        ask(server, tmp_path)
    monkeypatch.setattr(server, "answer", good)
    server.asked.clear()
    assert ask(server, tmp_path) == server.samples
    assert len(server.asked) == 2  # of four windows


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>log in</html>", "does not respond like Prometheus: <html>"),
        (200, b'{"error": 1}', "does not respond like Prometheus"),
        (401, b"", f"HTTP 401 Unauthorized.*{TOKEN_VARIABLE}"),
        (404, b"", "HTTP 404 Not Found.*without /api/v1"),
        (302, b"", "HTTP 302 Found.*use the address that it redirects to"),
    ],
)
def test_what_is_not_a_prometheus_is_one_clear_error(
    server: Server, tmp_path: Path, status: int, body: bytes, message: str
) -> None:
    server.instead = [(status, {"Location": "http://127.0.0.1:1/"}, body)]
    with pytest.raises(SourceError, match=message):
        ask(server, tmp_path)


def test_the_token_is_sent_and_written_nowhere(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-the-house")
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "11:00", 1, "n1"))
    server.instead = [(401, {}, b"")]
    with pytest.raises(SourceError) as caught:
        cluster.trace(telemetry=(server.address,))
    assert server.tokens == {"Bearer s3cret-of-the-house"}
    assert "s3cret" not in str(caught.value)
    cluster.trace(telemetry=(server.address,))
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes()


def test_an_address_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an address with a password") as caught:
        Prometheus("http://me:pw@host:9090", tmp_path)
    assert "pw" not in str(caught.value).replace("password", "")


@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,',
        b'{"status":"success","data":[',
        b"",
    ],
)
def test_an_answer_without_an_end_is_not_kept(server: Server, tmp_path: Path, body: bytes) -> None:
    server.instead = [(200, {}, body)]
    with pytest.raises(SourceError, match="does not respond like Prometheus: a response without an end"):
        ask(server, tmp_path)
    assert ask(server, tmp_path) == server.samples


@pytest.mark.parametrize(
    "names", [b'{"status":"success","data":[}', b'{"status":"success","data":' + b"[" * 99999 + b"}"]
)
def test_names_that_are_not_json_are_one_clear_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: bytes
) -> None:
    monkeypatch.setattr(server, "answer", lambda *_: (200, {}, names))
    with pytest.raises(SourceError, match="JSON that is cut or damaged"):
        ask(server, tmp_path)


def test_the_time_to_ask_for_may_be_named(server: Server, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "logs", zone="Europe/Berlin")
    cluster.jobs(("1", "11:00", "12:00", 1, "n1"))
    first, last = (datetime.fromisoformat(f"{DAY}T{clock}") for clock in ("10:30", "10:45"))
    trace = cluster.trace(telemetry=(server.address,), start=first, end=last)
    found = trace.scan("gpu_utilization").collect()["utilization_pct"]
    assert found.to_list() == [n / 2 for n in range(60, 91)]
    with pytest.raises(UsageError, match="ends before it begins; jobs ran from 2026-03-02T10:00:00"):
        cluster.trace(telemetry=(server.address,), force=True, start=last, end=first)
