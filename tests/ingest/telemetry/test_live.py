"""Samples of a running server, which may be slow, busy, small, or no Prometheus at all."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.ingest.telemetry.monitored import DAY, Cluster, at, series
from tracekit.errors import SourceError, UsageError
from tracekit.ingest.telemetry import _live
from tracekit.ingest.telemetry._live import TOKEN_VARIABLE, Prometheus
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    world = Server(samples=[(at("10:00") + 30 * n, n / 2) for n in range(120)])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            world.tokens.add(self.headers.get("Authorization"))
            status, headers, body = world.answer(parts.path, parse_qs(parts.query))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        world.address = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield world
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


def test_a_server_that_gives_nothing_at_all_is_told(server: Server, tmp_path: Path) -> None:
    server.most = 0
    with pytest.raises(SourceError, match="the server refuses even one minute"):
        ask(server, tmp_path)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_when_it_says(server: Server, tmp_path: Path, status: int) -> None:
    server.instead = [(status, {"Retry-After": "7"}, b""), (status, {}, b"")]
    pauses: list[float] = []
    assert ask(server, tmp_path, pauses) == server.samples
    assert pauses == [7.0, 2.0]


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server, tmp_path: Path) -> None:
    server.instead = [(200, {"Content-Length": "1000"}, b'{"status":"success","data":{')]
    assert ask(server, tmp_path) == server.samples


def test_a_run_goes_on_where_an_earlier_one_stopped(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_live, "WINDOW_S", 900)
    good = server.answer

    def stops(path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        return good(path, query) if len(server.asked) < 2 else (503, {}, b"")

    monkeypatch.setattr(server, "answer", stops)
    with pytest.raises(SourceError, match=r"the server does not answer: HTTP 503.*run the same command again later"):
        ask(server, tmp_path)
    monkeypatch.setattr(server, "answer", good)
    server.asked.clear()
    assert ask(server, tmp_path) == server.samples
    assert len(server.asked) == 2  # of four windows


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, b"<html>log in</html>", "does not answer as Prometheus does: <html>"),
        (200, b'{"error": 1}', "does not answer as Prometheus does"),
        (401, b"", f"HTTP 401 Unauthorized.*{TOKEN_VARIABLE}"),
        (404, b"", "HTTP 404 Not Found.*without /api/v1"),
        (302, b"", "HTTP 302 Found.*name the address that it redirects to"),
    ],
)
def test_what_is_no_prometheus_is_one_clear_error(
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
    with pytest.raises(SourceError, match="does not answer as Prometheus does: an answer without an end"):
        ask(server, tmp_path)
    assert ask(server, tmp_path) == server.samples


@pytest.mark.parametrize(
    "names", [b'{"status":"success","data":[}', b'{"status":"success","data":' + b"[" * 99999 + b"}"]
)
def test_names_that_are_no_json_are_one_clear_error(
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
