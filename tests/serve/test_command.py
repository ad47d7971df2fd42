"""The command as a user meets it: the page in a real browser, mistakes in one line, and the end."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tests.serve.conftest import JOBS
from tracekit.serve import run as serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import uvicorn
    from playwright.sync_api import Browser, Page, Route

    from tracekit.serve.trace import ServedTrace
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def address(served: ServedTrace) -> Iterator[str]:
    """Return the address of a server in this process, whose report is the one that other tests read, too."""
    servers: queue.Queue[uvicorn.Server] = queue.Queue()
    addresses: queue.Queue[str] = queue.Queue()

    class Server(serving._Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            servers.put(self)

    def answer() -> None:
        serving.serve(
            served.trace,
            host="127.0.0.1",
            port=0,
            token=None,
            replay_jobs=0,
            memory_limit=None,
            started=addresses.put,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "report", lambda *_, **__: served.report)
        patch.setattr(serving, "_Server", Server)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        found = addresses.get(timeout=60)
        server = servers.get(timeout=60)
        yield found
        server.should_exit = True
        thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def command(make_trace: Callable[..., Trace], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the command, run as a process of its own; at its end Ctrl-C has to leave nothing behind."""
    trace = make_trace(jobs=JOBS)  # of jobs alone a report is made soon
    scratch = tmp_path_factory.mktemp("scratch")
    env = {**os.environ, "NO_COLOR": "1", "TMPDIR": str(scratch)}
    words = [sys.executable, "-m", "tracekit", "serve", str(trace.path), "--port", "0", "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"report: (http://127\.0\.0\.1:\d+/)  \(Ctrl-C ends it\)\n", said)
            assert found is not None, said or process.communicate()[1]
            yield found[1]
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=10)
        finally:
            process.kill()
    assert process.returncode == 130
    assert complaints.startswith("tracekit: interrupted;")
    assert complaints.count("\n") == 1
    assert list(scratch.iterdir()) == []


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Return a page that may ask the server; what it complains about fails the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    opened, complaints = context.new_page(), []
    opened.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else None)
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    yield opened
    context.close()
    assert complaints == []


CHOOSE = "part => window.tracekit.choose_all(part.where, part.since, part.until)"
STATUS = "#q-overview-status"


def _answered(page: Page) -> None:
    page.wait_for_selector("html[data-part^=READY]", state="attached", timeout=30_000)


@pytest.mark.thorough
@pytest.mark.browser
def test_a_part_that_is_chosen_is_asked_and_the_whole_comes_back(address: str, page: Page) -> None:
    page.goto(f"{address}#part-work")
    page.wait_for_selector("html[data-charts^=READY]", state="attached", timeout=60_000)
    whole = page.locator(f"{STATUS} .finding").first.inner_text()
    page.evaluate(CHOOSE, {"since": None, "until": None, "where": {"user": "alice"}})
    _answered(page)
    shown = page.locator(f"{STATUS} .answered")
    assert "only user alice" in shown.inner_text()
    assert "66.7\N{NO-BREAK SPACE}%" in shown.locator(".finding").inner_text()
    assert page.locator(f"{STATUS} .shown > .finding").first.is_visible() is False
    assert shown.locator(".plot svg .role-mark path").count() > 0
    assert "only user alice" in page.locator("#part-status").inner_text()
    page.get_by_role("button", name="Back to all data").click()
    page.wait_for_selector("html[data-part=WHOLE]", state="attached")
    assert page.locator(".answered").count() == 0
    back = page.locator(f"{STATUS} .finding").first
    assert back.is_visible()
    assert back.inner_text() == whole


def _first(page: Page, address: str) -> list[str]:
    """Return the first sentence and numbers that the page shows, once they are those of the Trace for this address."""
    page.wait_for_selector("html[data-numbers=READY]", state="attached", timeout=30_000)
    told = page.request.get(f"{address}first?{page.evaluate(PART)}").json()
    shown = [page.inner_text("#state"), *page.locator(".cards [data-number] .value").all_inner_texts()]
    assert shown == [told["state"], *(one["text"] for one in told["numbers"].values())]
    notes = page.locator(".cards [data-number] .note").all_inner_texts()
    assert notes == [one["note"] for one in told["numbers"].values()]
    courses = "[...document.querySelectorAll('.cards [data-number] .sparkline path')].map(p => p.getAttribute('d'))"
    assert page.evaluate(courses) == [one["path"] for one in told["numbers"].values()]
    return shown


PART = "window.asked_of"
NOTE_PART = """document.addEventListener("tracekit:part", event => {
    const part = event.detail, query = new URLSearchParams();
    for (const end of ["since", "until"]) if (part[end]) query.set(end, part[end]);
    for (const name in part.where) query.set("where." + name, part.where[name]);
    window.asked_of = query.toString();
})"""


@pytest.mark.thorough
@pytest.mark.browser
def test_the_first_sentence_and_numbers_are_asked_of_the_trace(address: str, page: Page) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-charts^=READY][data-parts=READY]", state="attached", timeout=60_000)
    page.evaluate(NOTE_PART)
    shown = "[document.querySelector('#state').innerText, document.querySelector('.cards').innerText]"
    whole = page.evaluate(shown)
    page.select_option("select[data-filter=user]", label="alice")
    alice = _first(page, address)
    # 1, 2 and 3 hours.
    assert alice[1:3] == ["2 h", "6 h"]
    assert "allocated to them" in alice[0]
    box = page.locator(".strip .plot").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 30, steps=3)
    page.mouse.up()
    assert "since=2020-05-0" in page.evaluate(PART)
    part = _first(page, address)
    assert part[1] == "unknown"
    page.select_option("select[data-filter=user]", label="all")
    assert _first(page, address) not in (alice, part)
    page.get_by_role("button", name="Back to all data").click()
    page.wait_for_selector("html[data-numbers=WHOLE]", state="attached")
    assert page.evaluate(shown) == whole


@pytest.mark.thorough
@pytest.mark.browser
def test_an_answer_to_an_earlier_part_is_dropped(address: str, page: Page) -> None:
    held: list[str] = []

    def route(one: Route) -> None:
        # The first question is answered only when the second part was chosen.
        if "where.user=bob" in one.request.url and not held:
            held.append(one.request.url)
            page.evaluate(CHOOSE, {"since": "2020-05-03T00:00:00Z", "until": None, "where": {"user": "alice"}})
        with contextlib.suppress(Exception):  # it was given up
            one.continue_()

    page.goto(f"{address}#part-work")
    page.wait_for_selector("html[data-charts^=READY]", state="attached", timeout=60_000)
    page.route("**/answer/**", route)
    page.evaluate(CHOOSE, {"since": None, "until": None, "where": {"user": "bob"}})
    _answered(page)
    assert held
    notes = page.locator(".answered .asked-of").all_inner_texts()
    assert notes
    assert all("only user alice" in note and "3 May 2020" in note for note in notes)


@pytest.mark.thorough
@pytest.mark.browser
def test_a_job_its_user_a_node_and_a_part_are_opened_and_read_well(address: str, browser: Browser) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(viewport={"width": 375, "height": 812}, color_scheme="dark", bypass_csp=True)
    try:
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Find a job, node or user").fill("a1")
        page.get_by_role("button", name="Open").click()
        page.wait_for_url("**/job/a1")
        page.wait_for_selector("html[data-charts^=READY]", state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
        faults = axe.Axe().run(page).response["violations"]
        page.get_by_role("link", name="alice").click()
        page.wait_for_url("**/user/alice")
        faults += axe.Axe().run(page).response["violations"]
        page.get_by_role("link", name="The report for these jobs only").click()
        page.wait_for_selector("html[data-part]", state="attached")
        assert "where.user=alice" in page.url
        page.wait_for_selector("html[data-part^=READY][data-charts^=READY]", state="attached", timeout=60_000)
        faults += axe.Axe().run(page, {"exclude": [[".tab.away"]]}).response["violations"]
        page.goto(f"{address}node/n1")
        page.wait_for_selector("html[data-charts^=READY]", state="attached")
        faults += axe.Axe().run(page).response["violations"]
    finally:
        context.close()
    assert [fault["id"] for fault in faults] == []


def test_a_real_server_holds_to_its_rules(command: str) -> None:
    port = int(command.rstrip("/").rpartition(":")[2])
    for request, code in (
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /job/a1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /answer/overview/status?where.user=alice HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
        (b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /tables/..%2f..%2fjobs.parquet HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
        (b"GET /answer/%2e%2e/%2e%2e/manifest.json HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n", b"400"),
        (b"\x16\x03\x01\r\n\r\n", b"400"),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asked:
            asked.sendall(request)
            status = asked.recv(4096).split(b"\r\n")[0]
        assert status.split()[1] == code, request[:60]


def test_mistakes_are_one_line(trace: Trace, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, said in (
            ([trace.path, "--port", port], f"--port: cannot listen on 127.0.0.1, port {port}: Address already in use"),
            ([trace.path, "--host", "no such host"], "--host: 'no such host' is not an address of this machine"),
            ([trace.path, "--host", "192.0.2.1", "--port", "0"], "cannot listen on 192.0.2.1"),
            ([trace.path, "--token", "short"], "--token: is too weak"),
            ([trace.path, "--by", "team"], "--by: 'team' is not a tenant"),
            ([tmp_path / "none"], "no such Trace"),
            ([tmp_path], "is not a Trace"),
        ):
            found = run("serve", *map(str, words), "--no-browser")
            assert found.returncode == 2
            assert said in found.stderr
            assert found.stderr.count("\n") == 1


def test_a_damaged_trace_is_one_line(trace: Trace, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in trace.path.iterdir():
        (folder / path.name).write_bytes(path.read_bytes()[: -100 if path.name == "jobs.parquet" else None])
    found = run("serve", folder, "--port", "0", "--no-browser")
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert "jobs" in found.stderr


def test_no_other_command_loads_the_server() -> None:
    servers = "('starlette', 'uvicorn', 'anyio')"
    code = f"from tracekit.cli import app; import sys; print([m for m in {servers} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
