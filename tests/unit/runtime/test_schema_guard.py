"""What stands before writes to topics with checked schema ids: the registry's answers, waiting in turn, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.topic import TOPIC_NAME_STRATEGY
from penstock.core.schema_ids import IDS_MAX, Registered, Rules
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.replication.admission import Produced, Refusals, RequestedPartition
from penstock.runtime.schemas import guard as schema_guard
from penstock.runtime.schemas import registry_client
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.schemas.http_connection import BadAnswer, HttpConnection
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable
from penstock.wire.compression import Compression
from penstock.wire.record_types import Record
from penstock.wire.records import build_batch

PLACE: RequestedPartition = ("orders", bytes(16), 0)
ORDERS = Registered(frozenset({"orders-value"}), frozenset())
OTHERS = Registered(frozenset({"other-value"}), frozenset())


def batch(schema_id: int) -> memoryview:
    return memoryview(build_batch([Record(0, 0, None, b"\0" + schema_id.to_bytes(4, "big"))]))


class Registry:
    """Stands in for the client; ids are answered when a test decides."""

    def __init__(self) -> None:
        self.known: dict[int, Registered] = {}
        self.asked: dict[int, asyncio.Future[Registered]] = {}

    def remembered(self, schema_id: int) -> Registered | None:
        return self.known.get(schema_id)

    async def look_up(self, topic: str, schema_id: int) -> Registered:
        del topic
        return await self.answer_of(schema_id)

    def answer_of(self, schema_id: int) -> asyncio.Future[Registered]:
        return self.asked.setdefault(schema_id, asyncio.get_running_loop().create_future())


def guard(registry: Any) -> SchemaGuard:
    made = SchemaGuard(SystemEnv(), registry)
    made.watched["orders"] = Rules(None, TOPIC_NAME_STRATEGY)
    return made


def produced(schema_id: int, topic: str = "orders") -> list[Produced]:
    return [written(batch(schema_id), topic)]


def written(records: memoryview, topic: str = "orders", index: int = 0) -> Produced:
    partition: Any = SimpleNamespace(name=TopicPartition(topic, index))
    return Produced((topic, bytes(16), index), partition, records)


def batch_of(schema_ids: Iterable[int], compression: int = Compression.NONE, padding: int = 0) -> memoryview:
    values = [b"\0" + schema_id.to_bytes(4, "big") + bytes(padding) for schema_id in schema_ids]
    return memoryview(
        build_batch([Record(n, 0, None, value) for n, value in enumerate(values)], compression=compression)
    )


def codes(refusals: Refusals) -> dict[RequestedPartition, ErrorCode]:
    return {place: error.code for place, error in refusals.items()}


def test_what_is_known_need_not_be_asked_about() -> None:
    registry = Registry()
    registry.known[1] = ORDERS
    assert guard(registry).check(produced(1)) == ({}, [])


@pytest.mark.parametrize(("now", "expected"), [(ORDERS, {}), (OTHERS, {PLACE: ErrorCode.INVALID_RECORD})])
def test_nothing_is_refused_for_what_was_so_some_time_ago(
    now: Registered, expected: dict[RequestedPartition, ErrorCode]
) -> None:
    async def scenario() -> None:
        registry = Registry()
        registry.known[1] = OTHERS
        registry.answer_of(1).set_result(now)
        made = guard(registry)
        refusals, unchecked = made.check(produced(1))
        assert refusals == {}
        assert codes(await made.ask(unchecked)) == expected

    asyncio.run(scenario())


def test_topics_that_do_not_ask_for_it_are_let_through() -> None:
    assert guard(Registry()).check(produced(1, "free")) == ({}, [])


def test_without_a_registry_nothing_unchecked_gets_in() -> None:
    refusals, unchecked = guard(None).check(produced(1))
    assert codes(refusals) == {PLACE: ErrorCode.INVALID_RECORD}
    assert unchecked == []


def test_a_registry_that_cannot_be_asked_makes_producers_try_again() -> None:
    async def scenario() -> None:
        registry = Registry()
        made = guard(registry)
        registry.answer_of(1).set_exception(RegistryUnreachable("gone"))
        refused = await made.ask(made.check(produced(1))[1])
        assert refused[PLACE].code is ErrorCode.REQUEST_TIMED_OUT
        assert "gone" in refused[PLACE].message

    asyncio.run(scenario())


@asynccontextmanager
async def serving(answers: dict[str, tuple[int, Any]]) -> AsyncIterator[tuple[str, list[str]]]:
    """A registry that answers these paths; its address, and what it was asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        asked.append(path)
        status, answer = answers.get(path, (404, {"error_code": 40403}))
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


class Server:
    """A registry that keeps its connections open."""

    url = ""
    connections = 0

    def __init__(self) -> None:
        self.asked: list[str] = []


@asynccontextmanager
async def keeping(answers: dict[str, tuple[int, Any]]) -> AsyncIterator[Server]:
    """A registry that answers these paths, any number of them on one connection."""
    made = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
                made.asked.append(path)
                status, answer = answers.get(path, (404, {"error_code": 40403}))
                body = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield made


@asynccontextmanager
async def saying(raw: bytes) -> AsyncIterator[str]:
    """A server that answers anything with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


ANSWERS = {
    "/schemas/ids/1/subjects": (200, ["orders-value"]),
    "/schemas/ids/1": (200, {"schema": '{"type": "record", "name": "Order", "fields": []}'}),
    "/schemas/ids/3/subjects": (500, {}),
    "/schemas/ids/4/subjects": (200, b"not json"),
}


def test_the_client_queries_once_and_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving(ANSWERS) as (url, asked):
            client = RegistryClient(SystemEnv(), ["http://127.0.0.1:1", url])
            answers = [*await asyncio.gather(client.look_up("a", 1), client.look_up("b", 1))]
            assert answers == [Registered(frozenset({"orders-value"}), frozenset({"Order"}))] * 2
            assert asked == ["/schemas/ids/1/subjects", "/schemas/ids/1"]
            assert client.remembered(1) == answers[0]
            assert (await client.look_up("a", 2)).subjects == frozenset()
            assert client.remembered(2) is None
            monkeypatch.setattr(registry_client, "KNOWN_MS", 0)
            await client.look_up("a", 1)
            assert client.remembered(1) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("schema_id", [3, 4])
def test_answers_without_content_are_no_answers(schema_id: int) -> None:
    async def scenario() -> None:
        async with serving(ANSWERS) as (url, _):
            with pytest.raises(RegistryUnreachable, match=url):
                await RegistryClient(SystemEnv(), [url]).look_up("orders", schema_id)

    asyncio.run(scenario())


def test_ids_of_large_batches_are_read_by_a_thread_and_checked() -> None:
    async def scenario() -> None:
        registry = Registry()
        registry.known[1] = ORDERS
        made = guard(registry)
        large = [*[1] * 20_000, 7]
        for compression in (Compression.NONE, Compression.GZIP):
            refusals, unchecked = made.check([written(batch_of(large, compression))])
            assert (refusals, len(unchecked)) == ({}, 1)
            registry.asked = {}
            registry.answer_of(7).set_result(ORDERS)
            assert await made.ask(unchecked) == {}
            registry.asked = {}
            registry.answer_of(7).set_result(OTHERS)
            registry.answer_of(1).set_result(ORDERS)
            assert codes(await made.ask(unchecked)) == {PLACE: ErrorCode.INVALID_RECORD}

    asyncio.run(scenario())


def test_a_batch_that_decompresses_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(schema_guard, "AT_ONCE_BYTES_MAX", 1_000)
        monkeypatch.setattr(schema_guard, "BODY_BYTES_MAX", 10_000)
        made = guard(Registry())
        refusals, unchecked = made.check([written(batch_of([1] * 100, Compression.GZIP, padding=1_000))])
        assert (refusals, len(unchecked)) == ({}, 1)
        assert codes(await made.ask(unchecked)) == {PLACE: ErrorCode.INVALID_RECORD}

    asyncio.run(scenario())


def test_a_batch_may_use_a_thousand_ids_and_no_more() -> None:
    async def scenario() -> None:
        registry = Registry()
        made = guard(registry)
        for schema_id in range(IDS_MAX):
            registry.answer_of(schema_id).set_result(ORDERS)
        assert await made.ask(made.check([written(batch_of(range(IDS_MAX)))])[1]) == {}
        refusals, unchecked = made.check([written(batch_of(range(12_000), padding=100))])
        assert codes({**refusals, **await made.ask(unchecked)}) == {PLACE: ErrorCode.INVALID_RECORD}

    asyncio.run(scenario())


def test_the_batches_of_a_request_that_use_too_many_ids_together_are_sent_again() -> None:
    async def scenario() -> None:
        registry = Registry()
        made = guard(registry)
        for schema_id in range(2 * IDS_MAX):
            registry.answer_of(schema_id).set_result(ORDERS)
        half = IDS_MAX // 2 + 1
        batches = [written(batch_of(range(start, start + half)), index=start) for start in (0, half)]
        assert codes(await made.ask(made.check(batches)[1])) == {batches[1].place: ErrorCode.REQUEST_TIMED_OUT}

    asyncio.run(scenario())


def test_a_flood_of_ids_uses_few_connections_and_leaves_turns_to_other_topics() -> None:
    async def scenario() -> None:
        async with keeping(ANSWERS) as server:
            client = RegistryClient(SystemEnv(), [server.url])
            flood = [asyncio.ensure_future(client.look_up("flood", 100 + number)) for number in range(1_000)]
            await asyncio.sleep(0)
            assert (await client.look_up("orders", 1)).subjects == {"orders-value"}
            # It would be the last otherwise.
            assert server.asked.index("/schemas/ids/1/subjects") < 100
            assert {each.subjects for each in await asyncio.gather(*flood)} == {frozenset()}
            assert server.connections == registry_client.CONNECTIONS_MAX
            assert (await client.look_up("orders", 1)).subjects == {"orders-value"}
            assert server.connections == registry_client.CONNECTIONS_MAX + 1

    asyncio.run(scenario())


def test_a_registry_that_is_down_fails_everything_that_waits() -> None:
    async def scenario() -> None:
        client = RegistryClient(SystemEnv(), ["http://127.0.0.1:1"])
        found = await asyncio.gather(*(client.look_up("orders", n) for n in range(1_000)), return_exceptions=True)
        assert {type(each) for each in found} <= {RegistryUnreachable, registry_client._NoneReached}

    asyncio.run(scenario())


def test_only_so_many_ids_of_a_topic_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(registry_client, "WAITING_PER_TOPIC_MAX", 10)
        async with keeping(ANSWERS) as server:
            client = RegistryClient(SystemEnv(), [server.url])
            flood = [asyncio.ensure_future(client.look_up("flood", 100 + number)) for number in range(100)]
            await asyncio.sleep(0)
            assert (await client.look_up("orders", 1)).subjects == {"orders-value"}
            failed = [
                each for each in await asyncio.gather(*flood, return_exceptions=True) if isinstance(each, Exception)
            ]
            assert len(failed) == 90

    asyncio.run(scenario())


def test_answers_are_remembered_up_to_a_size_and_a_topic_displaces_its_own_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(registry_client, "REMEMBERED_BYTES_MAX", 20_000)
        many = [f"subject-{number}" for number in range(20)]
        answers = {f"/schemas/ids/{number}/subjects": (200, many) for number in range(100, 200)}
        answers |= {f"/schemas/ids/{number}": (200, {"schema": '"string"'}) for number in range(100, 200)}
        async with keeping({**ANSWERS, **answers}) as server:
            client = RegistryClient(SystemEnv(), [server.url])
            await client.look_up("orders", 1)
            await asyncio.gather(*(client.look_up("flood", number) for number in range(100, 200)))
            assert client.remembered(1) is not None
            kept = [number for number in range(100, 200) if client.remembered(number) is not None]
            assert 1 <= len(kept) <= 10

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "raw",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n["or"\r\n1\r\n]\r\n0\r\nTrailer: 1\r\n\r\n',
        b'HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\n["or"]',
        b'HTTP/1.1 200 OK\r\n\r\n["or"]',
    ],
)
def test_bodies_arrive_in_any_of_the_ways_of_http(raw: bytes) -> None:
    async def scenario() -> None:
        async with saying(raw) as url:
            connection = await HttpConnection.open(url, None, None)
            assert await connection.get("/x") == (200, b'["or"]')
            connection.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "raw",
    [
        b"220 smtp ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
    ],
)
def test_answers_that_are_not_valid_http_are_distinguished(raw: bytes) -> None:
    async def scenario() -> None:
        async with saying(raw) as url:
            connection = await HttpConnection.open(url, None, None)
            with pytest.raises(BadAnswer):
                await connection.get("/x")
            connection.close()

    asyncio.run(scenario())


def test_a_small_batch_without_an_id_is_refused_at_once() -> None:
    made = guard(Registry())
    refusals, unchecked = made.check([written(memoryview(build_batch([Record(0, 0, None, b"no id")])))])
    assert (codes(refusals), unchecked) == ({PLACE: ErrorCode.INVALID_RECORD}, [])
