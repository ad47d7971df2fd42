"""Who may ask a server, and what a browser may do with its answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from tests.serve.conftest import TOKEN
from tracekit.serve.app import made_app
from tracekit.serve.run import Gate, is_loopback

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from tracekit.serve.trace import ServedTrace


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765", "127.8.9.1", "localhost."]
)
def test_this_machine_may_be_called_by_its_own_names(client: TestClient, host: str) -> None:
    assert client.get("/nothing", headers={"Host": host}).status_code == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.1.7", "0.0.0.0",
     "[fe80::1]", "", "localhost@evil.example", "[::1].evil.example"],
)  # fmt: skip
def test_a_host_of_another_name_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", "/answer/queuing/run_time", "/first", "/job/a1"):
        assert client.get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_done(client: TestClient, method: str) -> None:
    for path in ("/", "/answer/queuing/run_time", "/first", "/job/a1", "/nothing"):
        found = client.request(method, path)
        assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    ("site", "mode", "code"),
    [("same-origin", "cors", 200), ("none", "navigate", 200), ("cross-site", "navigate", 200),
     ("cross-site", "no-cors", 403), ("same-site", "cors", 403), ("cross-site", "websocket", 403)],
)  # fmt: skip
def test_pages_of_other_origins_ask_nothing(client: TestClient, site: str, mode: str, code: int) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert client.get("/job/a1", headers=headers).status_code == code


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
@pytest.mark.parametrize("place", ["document", "iframe", "frame", "embed", "object", "fencedframe"])
def test_no_other_site_has_an_answer_worked_on_for_its_frame(site: str, place: str) -> None:
    worked: list[str] = []

    async def work(scope: Scope, receive: Receive, send: Send) -> None:
        worked.append(scope["path"])
        await PlainTextResponse("answer")(scope, receive, send)

    asked = TestClient(Gate(work, names={"localhost"}, local=True), base_url="http://localhost")
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": place}
    foreign = site.endswith("-site") and place != "document"
    assert asked.get("/", headers=headers).status_code == (403 if foreign else 200)
    assert worked == ([] if foreign else ["/"])


def test_every_answer_says_what_a_browser_may_do_with_it(client: TestClient) -> None:
    for path in (
        "/",
        "/job/a1",
        "/nothing",
        "/report.json",
        "/answer/queuing/run_time",
        "/answer/x",
        "/first",
        "/find?q=a",
    ):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers
        assert not any(name.startswith("access-control") for name in headers)
    assert "default-src 'none'" in client.get("/report.json").headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/job/a1", "/answer/queuing/run_time", "/report.json", "/nothing"])
def test_without_the_token_nothing_is_reported(guarded: TestClient, path: str) -> None:
    wrong = TOKEN[:-1] + "x"
    for address, headers in (
        (path, {}),
        (f"{path}?token={wrong}", {}),
        (f"{path}?token=", {}),
        (f"{path}?token={wrong}&token={TOKEN}", {}),
        (path, {"Authorization": f"Bearer {wrong}"}),
        (path, {"Cookie": f"tracekit-80={TOKEN}"}),  # the cookie is not the token
        (path, {"Cookie": "tracekit-80=ü".encode("latin-1")}),
    ):
        found = guarded.get(address, headers=headers)  # type: ignore[arg-type]  # bytes are what a stranger sends
        assert found.status_code == 403
        assert "alice" not in found.text


def test_the_token_of_the_address_becomes_a_cookie_that_no_script_reads(guarded: TestClient) -> None:
    found = guarded.get(f"/job/a1?token={TOKEN}&x=1")
    assert (found.status_code, found.headers["location"]) == (303, "/job/a1?x=1")
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert "max-age=43200;" in cookie.lower()
    assert TOKEN not in cookie
    assert guarded.get("/job/a1").status_code == 200


def test_a_cookie_ends_and_no_other_server_takes_it(served: ServedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    def server(port: int) -> TestClient:
        gate = Gate(made_app(served), names={"localhost"}, local=True, token=TOKEN, port=port)
        return TestClient(gate, base_url="http://localhost", follow_redirects=False)

    def code(asked: TestClient, value: str, port: int) -> int:
        return asked.get("/nothing", headers={"Cookie": f"other=1; tracekit-{port}={value}; x"}).status_code

    first, now = server(80), time.time()
    value = first.get(f"/?token={TOKEN}").cookies["tracekit-80"]
    end, _, seal = value.partition("-")
    assert code(TestClient(first.app, base_url="http://localhost"), value, 80) == 404
    for other in (server(80), server(81)):  # another run, another port, with the same token
        assert {code(other, value, port) for port in (80, 81)} == {403}
    fresh = TestClient(first.app, base_url="http://localhost")
    for forged in (f"{int(end) + 1}-{seal}", f"0{value}", f"{end}-", f"-{seal}", seal, f"{'9' * 5000}-{seal}", "ü-ü"):
        assert fresh.get("/", headers={b"Cookie": f"tracekit-80={forged}".encode()}).status_code == 403
    monkeypatch.setattr(time, "time", lambda: now + 12 * 3600 - 10)
    assert code(fresh, value, 80) == 404
    monkeypatch.setattr(time, "time", lambda: now + 12 * 3600 + 10)
    assert code(fresh, value, 80) == 403


def test_programs_send_the_token_in_a_header(guarded: TestClient) -> None:
    found = guarded.get("/answer/queuing/run_time", headers={"Authorization": f"Bearer {TOKEN}"})
    assert found.status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example", "/%2F%2Fevil.example", "///evil.example"])
def test_the_token_leads_to_no_other_host(guarded: TestClient, path: str) -> None:
    found = guarded.get(f"http://host.example{path}?token={TOKEN}")
    assert found.status_code == 303
    target = urlsplit(found.headers["location"])
    assert (target.scheme, target.netloc) == ("", "")
    assert found.headers["location"].startswith("/evil.example")


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("host.example", False), ("", False)],
)
def test_only_this_machine_is_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) is own
