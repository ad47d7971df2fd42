"""Connections that ask nothing, or take no answer, keep no question out: asked of a server through real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from typing import TYPE_CHECKING, Protocol

import pytest
from starlette.responses import PlainTextResponse

from tests.serve.conftest import TOKEN
from tracekit.serve import run as serving
from tracekit.serve.app import made_app
from tracekit.serve.run import Gate, Patience

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from starlette.types import ASGIApp, Receive, Scope, Send

    from tracekit.serve.trace import ServedTrace

    Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

    class Open(Protocol):
        async def __call__(self, first: bytes = b"") -> Client: ...


ASKED = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT = Patience(headers_s=0.1, answer_s=0.15, connections=8, of_address=6)


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("answer")(scope, receive, send)


@contextlib.asynccontextmanager
async def _served(app: ASGIApp, patience: Patience) -> AsyncIterator[Open]:
    """Serve an application in this loop; what is given opens a connection and sends bytes."""
    with serving._listening("127.0.0.1", 0) as listening:
        server = serving._Server(serving.config_of(app, patience))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        writers = []

        async def opened(first: bytes = b"") -> Client:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writers.append(writer)
            writer.write(first)
            return reader, writer

        while not server.started:
            await asyncio.sleep(0.001)
        try:
            yield opened
        finally:
            for writer in writers:
                writer.transport.abort()
            server.should_exit = True
            await task


def in_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 20))

    return run


async def _status(reader: asyncio.StreamReader) -> int:
    """Return the status of the next answer, whose body is read; 0 if the connection is closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0
    length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    await reader.readexactly(int(length.partition(b":")[2]))
    return int(head.split()[1])


@in_a_loop
async def test_a_client_is_answered_while_others_occupy_every_connection() -> None:
    async with _served(_app, Patience(connections=8, of_address=6)) as opened:
        for first in (b"", b"GET / HTTP/1.1\r\nHost: loc", ASKED):
            hostile = [await opened(first) for _ in range(20)]
            for _ in range(3):
                reader, _ = await opened(ASKED)
                assert await _status(reader) == 200
            assert await _status(hostile[0][0]) in {0, 200}


@pytest.mark.parametrize("limits", [(4, 100), (100, 4)])
@in_a_loop
async def test_the_connection_that_waits_the_longest_gives_way(limits: tuple[int, int]) -> None:
    async with _served(_app, Patience(connections=limits[0], of_address=limits[1])) as opened:
        first, second, *_ = [await opened() for _ in range(4)]
        first[1].write(ASKED)  # now it has waited the shortest
        assert await _status(first[0]) == 200
        reader, _ = await opened(ASKED)
        assert await _status(reader) == 200
        assert await _status(second[0]) == 0
        first[1].write(ASKED)
        assert await _status(first[0]) == 200


@in_a_loop
async def test_questions_in_work_give_way_to_none() -> None:
    going = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await going.wait()
        await _app(scope, receive, send)

    async with _served(slow, Patience(connections=3)) as opened:
        asked = [await opened(ASKED) for _ in range(3)]
        await asyncio.sleep(0.02)
        reader, _ = await opened(ASKED)
        assert await _status(reader) == 0
        going.set()
        assert [await _status(one) for one, _ in asked] == [200, 200, 200]
        reader, _ = await opened(ASKED)
        assert await _status(reader) == 200


@in_a_loop
async def test_headers_have_to_end_in_time() -> None:
    async with _served(_app, SHORT) as opened:
        idle, slow, unfinished = await opened(), await opened(b"GET / HT"), await opened(ASKED + ASKED[:-2])
        assert await _status(unfinished[0]) == 200
        sent = 0
        while slow[0].exception() is None and not slow[0].at_eof() and sent < 50:
            slow[1].write(b"x")
            await asyncio.sleep(0.02)
            sent += 1
        assert 1 < sent < 50
        for reader, _ in (idle, slow, unfinished):
            assert await _status(reader) == 0


@in_a_loop
async def test_a_question_in_work_may_take_longer_than_headers() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.25)
        await _app(scope, receive, send)

    async with _served(slow, SHORT) as opened:
        reader, _ = await opened(ASKED)
        assert await _status(reader) == 200


@in_a_loop
async def test_a_client_that_does_not_read_is_cut_off_and_one_that_reads_slowly_is_not() -> None:
    size = 12_000_000

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(b"x" * size)(scope, receive, send)

    async with _served(large, SHORT) as opened:
        deaf = [await opened(ASKED), await opened(ASKED * 2)]  # a stream reads no more than its buffer holds
        slow, _ = await opened(ASKED)
        got, begun = 0, time.monotonic()
        while got < size:
            part = await slow.read(1 << 21)
            assert part
            got += len(part)
            await asyncio.sleep(0.005)
        assert time.monotonic() - begun > SHORT.answer_s
        for reader, _ in deaf:
            with contextlib.suppress(ConnectionError):
                assert len(await reader.read(-1)) < size


@in_a_loop
async def test_headers_are_bounded_and_a_name_of_thousands_of_letters_fits(served: ServedTrace) -> None:
    gate = Gate(made_app(served), names={"localhost"}, local=True)
    async with _served(gate, Patience()) as opened:
        for path, code in (
            (b"/user/" + b"%C3%BC" * 5000, 404),
            (b"/job/a%0Ab", 404),
            (b"/node/" + b"x" * 400_000, 400),
        ):
            reader, _ = await opened(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await _status(reader) == code, path[:20]


@in_a_loop
async def test_a_body_is_cut_off(served: ServedTrace) -> None:
    gate = Gate(made_app(served), names={"localhost"}, local=True)
    async with _served(gate, Patience()) as opened:
        for method, announced, code in (
            (b"GET", b"Content-Length: 1000000000", 413),
            (b"POST", b"Content-Length: 5", 405),
            (b"HEAD", b"Transfer-Encoding: chunked", 413),
        ):
            reader, _ = await opened(method + b" / HTTP/1.1\r\nHost: localhost\r\n" + announced + b"\r\n\r\n")
            head = await reader.read(-1)  # until the server closes the connection
            assert int(head.split()[1]) == code


@in_a_loop
async def test_head_is_answered_like_get_without_a_body(served: ServedTrace) -> None:
    gate = Gate(made_app(served), names={"host.example"}, local=False, token=TOKEN)
    words = b"Host: host.example\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\nConnection: close\r\n\r\n"
    async with _served(gate, Patience()) as opened:
        for path in (b"/", b"/job/a1", b"/nothing", b"/report.json", b"/first", b"/tables/users/queueing.csv"):
            reader, _ = await opened(b"GET " + path + b" HTTP/1.1\r\n" + words)
            wanted = (await reader.read(-1)).partition(b"\r\n\r\n")[0]
            reader, _ = await opened(b"HEAD " + path + b" HTTP/1.1\r\n" + words)
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            assert body == b""
            assert [line for line in head.split(b"\r\n") if not line.startswith(b"date")] == [
                line for line in wanted.split(b"\r\n") if not line.startswith(b"date")
            ]
