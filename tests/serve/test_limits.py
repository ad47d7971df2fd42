"""A question takes a minute at most, and none is worked on that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, cast

import pytest
from starlette.testclient import TestClient

from tracekit.characterize.limits import Stop, StoppedError
from tracekit.serve import limits
from tracekit.serve.app import made_app
from tracekit.serve.limits import AskedSession, BusyError, Desk

if TYPE_CHECKING:
    from starlette.requests import Request

    from tracekit.serve.trace import ServedTrace
    from tracekit.trace import Trace

ENDLESS = "SELECT count(*) FROM range(10000000000) a, range(1000) b WHERE hash(a.range + b.range) = 1"


class _Page:
    """A page that asks, and may be closed."""

    def __init__(self) -> None:
        self.gone = False

    async def is_disconnected(self) -> bool:
        return self.gone


def _asked(page: _Page) -> Request:
    return cast("Request", page)


def test_sql_that_takes_too_long_is_stopped(trace: Trace) -> None:
    session = AskedSession(trace)
    ended = threading.Event()

    def work(stop: Stop) -> None:
        try:
            with session.used_by(stop), session.connect() as con:
                con.execute(ENDLESS).fetchall()
        finally:
            ended.set()

    with pytest.raises(StoppedError, match=r"^no answer within 0\.3 s; ask for a smaller part$"):
        asyncio.run(Desk(0.3).answer(_asked(_Page()), work))
    assert ended.wait(10)
    # The next question is answered.
    with session.used_by(Stop()), session.connect() as con:
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_a_question_of_a_page_that_is_gone_is_stopped(trace: Trace) -> None:
    session, page, ended = AskedSession(trace), _Page(), threading.Event()

    def work(stop: Stop) -> None:
        page.gone = True
        try:
            with session.used_by(stop), session.connect() as con:
                con.execute(ENDLESS).fetchall()
        finally:
            ended.set()

    with pytest.raises(StoppedError, match="nobody waits"):
        asyncio.run(Desk().answer(_asked(page), work))
    assert ended.wait(10)


def test_a_stopped_question_opens_nothing_more(trace: Trace) -> None:
    session, stop = AskedSession(trace), Stop()
    stop.stop("enough")
    with session.used_by(stop), pytest.raises(StoppedError, match="enough"):
        session.connect()


def test_two_are_worked_on_at_a_time_and_too_many_are_refused() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_: Stop) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return 1

    async def ask() -> list[int | BaseException]:
        desk = Desk()
        found = await asyncio.gather(*(desk.answer(_asked(_Page()), work) for _ in range(40)), return_exceptions=True)
        assert await desk.answer(_asked(_Page()), work) == 1  # there is room again
        return found

    found = asyncio.run(ask())
    assert most == 2
    assert found.count(1) == 32
    assert sum(isinstance(one, BusyError) for one in found) == 8


def test_a_cancelled_question_frees_its_place_before_a_thread_took_it_up() -> None:
    going = threading.Event()
    worked: list[Stop] = []

    def work(_: Stop) -> None:
        going.wait(10)

    async def ask() -> None:
        desk = Desk()
        try:
            first = [asyncio.create_task(desk.answer(_asked(_Page()), work)) for _ in range(2)]
            page = _Page()
            waiting = [asyncio.create_task(desk.answer(_asked(page), worked.append)) for _ in range(30)]
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await desk.answer(_asked(_Page()), work)
            page.gone = True
            for found in await asyncio.gather(*waiting[1:], return_exceptions=True):
                assert isinstance(found, StoppedError)
            waiting[0].cancel()
            late = asyncio.create_task(desk.answer(_asked(_Page()), lambda _: 1))
            await asyncio.sleep(0)
            assert not late.done()  # it waits; no place was lost
        finally:
            going.set()
        assert await late == 1
        await asyncio.gather(*first)

    asyncio.run(ask())
    assert worked == []


def test_too_many_questions_may_ask_again_soon(served: ServedTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_WAITING", 0)
    asked = TestClient(made_app(served), base_url="http://localhost")
    for path in ("/answer/overview/status", "/first", "/job/a1", "/find?q=a", "/tables/users/queueing.csv"):
        found = asked.get(path)
        assert (found.status_code, found.headers["retry-after"]) == (503, "5"), path
    assert asked.get("/").status_code == 200


def test_one_question_at_a_time_uses_the_databases_of_a_part(trace: Trace) -> None:
    session, order = AskedSession(trace), []

    def use(name: str) -> None:
        with session.used_by(Stop()):
            order.append(name)
            time.sleep(0.05)
            order.append(name)

    threads = [threading.Thread(target=use, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order in (["a", "a", "b", "b"], ["b", "b", "a", "a"])
