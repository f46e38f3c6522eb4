"""What stands before writes to topics with checked schema ids: the registry's answers, waiting in turn, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.topic import TOPIC_NAME_STRATEGY
from penstock.core.schema_ids import Registered, Rules
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.replication.admission import Place, Produced, Refusals
from penstock.runtime.schemas import registry_client
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable
from penstock.wire.record_types import Record
from penstock.wire.records import build_batch

PLACE: Place = ("orders", bytes(16), 0)
ORDERS = Registered(frozenset({"orders-value"}), frozenset())
OTHERS = Registered(frozenset({"other-value"}), frozenset())


def batch(schema_id: int) -> memoryview:
    return memoryview(build_batch([Record(0, 0, None, b"\0" + schema_id.to_bytes(4, "big"))]))


class Registry:
    """Stands in for the client; ids are answered when a test says so."""

    def __init__(self) -> None:
        self.known: dict[int, Registered] = {}
        self.asked: dict[int, asyncio.Future[Registered]] = {}

    def remembered(self, schema_id: int) -> Registered | None:
        return self.known.get(schema_id)

    async def ask(self, schema_id: int) -> Registered:
        return self.known.get(schema_id) or await self.ask_anew(schema_id)

    async def ask_anew(self, schema_id: int) -> Registered:
        return await self.answer_of(schema_id)

    def answer_of(self, schema_id: int) -> asyncio.Future[Registered]:
        return self.asked.setdefault(schema_id, asyncio.get_running_loop().create_future())


def guard(registry: Any) -> SchemaGuard:
    made = SchemaGuard(registry)
    made.watched["orders"] = Rules(None, TOPIC_NAME_STRATEGY)
    return made


def produced(schema_id: int, topic: str = "orders") -> list[Produced]:
    partition: Any = SimpleNamespace(name=TopicPartition(topic, 0))
    return [Produced(PLACE, partition, batch(schema_id))]


def codes(refusals: Refusals) -> dict[Place, ErrorCode]:
    return {place: error.code for place, error in refusals.items()}


def test_what_is_known_need_not_be_asked_about() -> None:
    registry = Registry()
    registry.known[1] = ORDERS
    assert guard(registry).check(produced(1)) == ({}, [])


@pytest.mark.parametrize(("now", "expected"), [(ORDERS, {}), (OTHERS, {PLACE: ErrorCode.INVALID_RECORD})])
def test_nothing_is_refused_for_what_was_so_some_time_ago(now: Registered, expected: dict[Place, ErrorCode]) -> None:
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


ANSWERS = {
    "/schemas/ids/1/subjects": (200, ["orders-value"]),
    "/schemas/ids/1": (200, {"schema": '{"type": "record", "name": "Order", "fields": []}'}),
    "/schemas/ids/3/subjects": (500, {}),
    "/schemas/ids/4/subjects": (200, b"not json"),
}


def test_the_client_asks_once_and_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving(ANSWERS) as (url, asked):
            client = RegistryClient(SystemEnv(), ["http://127.0.0.1:1", url])
            answers = [*await asyncio.gather(client.ask(1), client.ask(1))]
            assert answers == [Registered(frozenset({"orders-value"}), frozenset({"Order"}))] * 2
            assert asked == ["/schemas/ids/1/subjects", "/schemas/ids/1"]
            assert client.remembered(1) == answers[0]
            assert (await client.ask(2)).subjects == frozenset()
            assert client.remembered(2) is None
            monkeypatch.setattr(registry_client, "KNOWN_MS", 0)
            await client.ask_anew(1)
            assert client.remembered(1) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("schema_id", [3, 4])
def test_answers_that_say_nothing_are_no_answers(schema_id: int) -> None:
    async def scenario() -> None:
        async with serving(ANSWERS) as (url, _):
            with pytest.raises(RegistryUnreachable, match=url):
                await RegistryClient(SystemEnv(), [url]).ask(schema_id)

    asyncio.run(scenario())
