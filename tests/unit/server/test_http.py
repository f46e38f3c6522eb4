"""The small HTTP server for metrics and health: what it serves, and what it does not put up with."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
import time
from collections.abc import Awaitable, Callable, Generator

import pytest

from penstock.server import http
from penstock.server.http import HttpAnswer, HttpListener, HttpRequest


def hello(request: HttpRequest) -> Generator[None, None, HttpAnswer]:
    yield
    return HttpAnswer(f"hello {','.join(request.query.get('name', []))}".encode())


# Who worked, in order.
steps: list[str] = []


def laborious(request: HttpRequest) -> Generator[None, None, HttpAnswer]:
    for _ in range(50):
        steps.extend(request.query.get("name", ()))
        time.sleep(0.002)
        yield
    return HttpAnswer(b"done")


def broken(_: HttpRequest) -> Generator[None, None, HttpAnswer]:
    yield
    raise ValueError("a defect")


def large(_: HttpRequest) -> Generator[None, None, HttpAnswer]:
    yield
    return HttpAnswer(b"x" * LARGE_BYTES)


LARGE_BYTES = 32 * 1024 * 1024
Talk = Callable[[bytes], Awaitable[bytes]]
HANDLERS = {"/hello": hello, "/laborious": laborious, "/broken": broken, "/large": large}
HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


def serving(test: Callable[[Talk], Awaitable[None]]) -> None:
    """Run a test against a listener."""

    async def run() -> None:
        listener = HttpListener("127.0.0.1", 0, HANDLERS)
        await listener.start()

        async def talk(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(request)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            return answer

        try:
            await test(talk)
        finally:
            await listener.stop()

    asyncio.run(run())


def test_a_path_is_answered() -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(b"GET /hello?name=you HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Length: 9\r\n" in head
        assert body == b"hello you"

    serving(test)


def test_requests_follow_each_other_on_a_connection() -> None:
    async def test(talk: Talk) -> None:
        one = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"HEAD /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await talk(one + one + last)
        assert answer.count(b"HTTP/1.1 200 OK") == 3
        assert answer.count(b"hello ") == 2

    serving(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nowhere HTTP/1.0\r\n\r\n", 404),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /hello?" + b"&".join([b"a=1"] * 100) + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * http.REQUEST_BYTES_MAX * 2 + b" HTTP/1.1\r\n\r\n", 431),
    ],
)
def test_what_is_not_served_is_refused_and_closed(request_bytes: bytes, status: int) -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())

    serving(test)


def test_a_peer_that_sends_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.1)

    async def test(talk: Talk) -> None:
        assert await talk(b"GET /hel") == b""

    serving(test)


def test_too_many_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def test(talk: Talk) -> None:
        first = asyncio.ensure_future(talk(b"GET /laborious HTTP/1.0\r\n\r\n"))
        await asyncio.sleep(0.02)
        # A reset is another way of being closed.
        with contextlib.suppress(ConnectionResetError):
            assert await talk(b"GET /hello HTTP/1.0\r\n\r\n") == b""
        assert (await first).endswith(b"done")

    serving(test)


def with_listener(
    test: Callable[[HttpListener], Awaitable[None]], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> None:
    """Run a test that connects by itself."""

    async def run() -> None:
        listener = HttpListener(host, 0, HANDLERS, tls)
        await listener.start()
        try:
            await asyncio.wait_for(test(listener), 20)
        finally:
            await listener.stop()
            for writer in opened:
                writer.close()
            opened.clear()

    asyncio.run(run())


# By `connect`, until the end of a test.
opened: list[asyncio.StreamWriter] = []


async def connect(
    listener: HttpListener, source: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(source, 0))
    opened.append(writer)
    return reader, writer


async def is_served(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    """Whether a connection is answered; otherwise it was closed."""
    reader, writer = connection
    try:
        writer.write(HELLO)
        return (await reader.readuntil(b"hello ")).startswith(b"HTTP/1.1 200 OK")
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


def test_where_there_are_too_many_the_address_with_the_most_loses_the_longest_idle_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)

    async def test(listener: HttpListener) -> None:
        many = [await connect(listener) for _ in range(3)]
        for connection in (many[1], many[0], many[2]):
            assert await is_served(connection)
        assert not await is_served(await connect(listener))
        other = await connect(listener, "127.0.0.2")
        assert await is_served(other)
        assert [await is_served(connection) for connection in many] == [True, False, True]
        # One that has as many as any other loses nothing to a third one with fewer than that.
        assert await is_served(await connect(listener, "127.0.0.3"))
        assert await is_served(other)
        assert not await is_served(await connect(listener, "127.0.0.2"))

    with_listener(test)


def test_peers_that_do_not_finish_a_handshake_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def test(listener: HttpListener) -> None:
        await connect(listener)
        refused, _ = await connect(listener)
        # Not after the time that a handshake may take.
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(refused.read(), http.HANDSHAKE_TIMEOUT_S / 2) == b""

    with_listener(test, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_what_a_peer_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_S_MAX", 0.2)
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def test(listener: HttpListener) -> None:
        reader, writer = await connect(listener)
        writer.write(b"GET /large HTTP/1.0\r\n\r\n")
        await reader.readexactly(100)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not await is_served(await connect(listener, "127.0.0.2")):
            opened.pop().close()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = 0
        with contextlib.suppress(ConnectionError):
            while some := await reader.read(1024 * 1024):
                received += len(some)
        assert received < LARGE_BYTES - 100

    with_listener(test)


def test_responses_that_take_work_leave_most_of_the_time_to_others() -> None:
    async def test(listener: HttpListener) -> None:
        async def work() -> None:
            reader, writer = await connect(listener)
            writer.write(b"GET /laborious HTTP/1.0\r\n\r\n")
            assert (await reader.read()).endswith(b"done")

        loop = asyncio.get_running_loop()
        began = loop.time()
        await work()
        await work()
        # Both work for 0.1 s at least.
        assert loop.time() - began > 0.1 * (2 + http.REST_FACTOR) * 0.9

    with_listener(test)


def test_an_answer_that_takes_work_leaves_the_others_their_turns() -> None:
    async def test(talk: Talk) -> None:
        steps.clear()
        working = asyncio.ensure_future(talk(b"GET /laborious?name=step HTTP/1.0\r\n\r\n"))
        turns = 0
        while not working.done():
            await asyncio.sleep(0)
            turns += 0 < len(steps) < 50
        assert (await working).endswith(b"done")
        assert turns >= 5

    serving(test)


def test_one_slow_response_is_produced_at_a_time_and_quick_ones_do_not_wait() -> None:
    async def test(talk: Talk) -> None:
        steps.clear()
        ended: list[str] = []

        async def ask(path: str) -> None:
            assert (await talk(f"GET {path} HTTP/1.0\r\n\r\n".encode())).startswith(b"HTTP/1.1 200")
            ended.append(path)

        await asyncio.gather(ask("/laborious?name=a"), ask("/laborious?name=b"), ask("/hello"))
        assert ended[0] == "/hello"
        # Each has its first moment, then one goes on to its end before the other does.
        changes = sum(one != other for one, other in itertools.pairwise(steps))
        assert changes <= 3

    serving(test)


def test_a_defect_costs_one_answer() -> None:
    async def test(talk: Talk) -> None:
        answer = await talk(b"GET /broken HTTP/1.0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert (await talk(b"GET /hello HTTP/1.0\r\n\r\n")).endswith(b"hello ")

    serving(test)
