"""What the dispatcher charges to a client's quota: the work of a handler that waits, and not its waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.context import Client, RequestContext
from penstock.api.dispatch import REFUSED_SINCE, Dispatcher
from penstock.api.forwarding import Forwarding
from penstock.api.topics import create_partitions, create_topics, delete_topics
from penstock.core.security.quotas import CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE, USER, Windows, entity
from penstock.model.errors import Throttled
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.wire.apis import ApiKey
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request, encode_response
from penstock.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.primitives import Buffer

VERSION = 2
SIZE_BYTES = 4
Handler = Callable[[Any, RequestContext], Coroutine[Any, Any, ListGroupsResponse]]


class World:
    """A dispatcher with one API, and a clock that only moves when the test moves it."""

    def __init__(self, handle: Handler, **options: Any) -> None:
        self.now = 1_000.0
        quotas = ClientQuotas(
            SimpleNamespace(monotonic_ms=lambda: int(self.now * 1000)),  # type: ignore[arg-type]
            Windows(11, 1000),
            Windows(11, 1000),
        )
        quotas.table.set(REQUEST_PERCENTAGE, entity({USER: "alice"}), 10.0)
        quotas.are_set = True
        self.dispatcher = Dispatcher(
            {ApiKey.LIST_GROUPS: handle},
            {ApiKey.LIST_GROUPS: (0, 5)},
            clock=lambda: self.now,
            quotas=quotas,
            **options,
        )

    async def throttle_ms(self) -> int:
        """What a client hears."""
        return await self.send(Client(("127.0.0.1", 1), "CLIENTS", principal="User:alice"))

    async def send(self, client: Client, client_id: str = "test") -> int:
        """What a client hears on one of its connections."""
        header = RequestHeader(ApiKey.LIST_GROUPS, VERSION, 1, client_id)
        frame = b"".join(encode_request(header, [encode(ListGroupsRequest(), VERSION)]))[SIZE_BYTES:]
        reply = await self.dispatcher.answer(bytearray(frame), client)  # type: ignore[misc]
        answer = b"".join(reply)[SIZE_BYTES:]  # type: ignore[arg-type]
        _, position = decode_response_header(answer, 0)
        return int(decode(ListGroupsResponse, VERSION, answer[position:]).throttle_time_ms)


@pytest.mark.parametrize("works", [True, False])
def test_work_counts_and_waiting_does_not(works: bool) -> None:
    async def handle(_: Any, __: RequestContext) -> ListGroupsResponse:
        if works:
            world.now += 5
        await asyncio.sleep(0)
        return ListGroupsResponse()

    world = World(handle)

    async def scenario() -> int:
        asking = asyncio.ensure_future(world.throttle_ms())
        await asyncio.sleep(0)
        if not works:
            world.now += 5
        return await asking

    assert bool(asyncio.run(scenario())) is works


@pytest.mark.parametrize(
    ("is_between_brokers", "is_exempt", "is_charged"),
    [(False, False, True), (False, True, True), (True, False, True), (True, True, False)],
)
def test_only_brokers_ask_for_nothing_what_brokers_ask(
    is_between_brokers: bool, is_exempt: bool, is_charged: bool
) -> None:
    async def handle(_: Any, __: RequestContext) -> ListGroupsResponse:
        world.now += 5
        return ListGroupsResponse()

    keys = {ApiKey.LIST_GROUPS} if is_between_brokers else set()
    world = World(handle, between_brokers=keys, is_exempt=lambda _: is_exempt)
    assert bool(asyncio.run(world.throttle_ms())) is is_charged


def test_a_throttled_client_is_throttled_on_its_next_connection_too() -> None:
    served = 0

    async def handle(_: Any, __: RequestContext) -> ListGroupsResponse:
        nonlocal served
        served += 1
        world.now += 5
        return ListGroupsResponse()

    def connect(user: str = "alice") -> Client:
        client = Client(("127.0.0.1", 1), "CLIENTS", principal=f"User:{user}")
        client.mute = lambda _: None
        return client

    world = World(handle)

    async def scenario() -> None:
        first = connect()
        throttle_ms = await world.send(first)
        assert throttle_ms > 1_000
        for number in range(3):
            with pytest.raises(Throttled) as throttled:
                await world.send(connect(), f"another name {number}")
            assert throttled.value.delay_ms == throttle_ms
        assert served == 1
        # The connection that was throttled is muted, so it is not asked; others have no part in it.
        await world.send(first)
        await world.send(connect("bob"))
        # What has waited once is served, and from then on throttled like any connection.
        late = connect()
        with pytest.raises(Throttled):
            await world.send(late)
        assert await world.send(late) > 1_000
        world.now += 60
        await world.send(connect())

    asyncio.run(scenario())


def test_brokers_do_not_wait_for_what_clients_of_the_same_name_did() -> None:
    async def handle(_: Any, __: RequestContext) -> ListGroupsResponse:
        world.now += 5
        return ListGroupsResponse()

    world = World(handle, between_brokers={ApiKey.LIST_GROUPS}, is_exempt=lambda client: client.host == "broker")

    async def scenario() -> None:
        assert await world.throttle_ms() > 1_000
        broker = Client(("broker", 1), "CLIENTS", principal="User:alice")
        broker.mute = lambda _: None
        assert await world.send(broker) == 0

    asyncio.run(scenario())


def test_the_versions_that_the_controller_refuses_are_those_of_the_apis() -> None:
    assert REFUSED_SINCE == {
        ApiKey.CREATE_TOPICS: create_topics.STRICT_QUOTA_SINCE,
        ApiKey.DELETE_TOPICS: delete_topics.STRICT_QUOTA_SINCE,
        ApiKey.CREATE_PARTITIONS: create_partitions.STRICT_QUOTA_SINCE,
    }


class AskedController:
    """Carries out what is forwarded to it, and throttles its clients."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, envelope: EnvelopeRequest, _: int) -> EnvelopeResponse:
        self.asked += 1
        version = int.from_bytes(envelope.request_data[2:4], "big")
        body: list[Buffer] = [encode(CreateTopicsResponse(throttle_time_ms=5_000), version)]
        return EnvelopeResponse(b"".join(encode_response(1, 1 if version >= 5 else 0, body))[SIZE_BYTES:])


def test_a_client_that_the_controller_throttles_is_throttled_by_every_connection() -> None:
    now = 1_000.0
    env: Any = SimpleNamespace(monotonic_ms=lambda: int(now * 1000))
    quotas = ClientQuotas(env, Windows(11, 1000), Windows(11, 1000))
    quotas.table.set(CONTROLLER_MUTATION_RATE, entity({USER: "alice"}), 1.0)
    quotas.are_set = True
    controller = AskedController()
    dispatcher = Dispatcher(
        {ApiKey.CREATE_TOPICS: lambda *_: None},
        {ApiKey.CREATE_TOPICS: (2, 7)},
        forwarding=Forwarding(controller, lambda: False, {}),  # type: ignore[arg-type]
        clock=lambda: now,
        quotas=quotas,
    )
    permissive, strict = REFUSED_SINCE[ApiKey.CREATE_TOPICS] - 1, REFUSED_SINCE[ApiKey.CREATE_TOPICS]

    async def send(version: int, user: str = "alice", client_id: str = "one") -> None:
        """By a connection of its own, which may have sent other requests before."""
        client = Client(("127.0.0.1", 1), "CLIENTS", principal=f"User:{user}")
        client.mute = lambda _: None
        client.has_waited = True
        header = RequestHeader(ApiKey.CREATE_TOPICS, version, 1, client_id)
        frame = b"".join(encode_request(header, [encode(CreateTopicsRequest(), version)]))[SIZE_BYTES:]
        await dispatcher.answer(bytearray(frame), client)  # type: ignore[misc]

    async def scenario() -> None:
        nonlocal now
        await send(permissive)
        for client_id in ("one", "two"):
            with pytest.raises(Throttled) as throttled:
                await send(permissive, client_id=client_id)
            assert throttled.value.delay_ms == 5_000
        # The controller refuses those that it may refuse.
        await send(strict)
        await send(permissive, "bob")
        assert controller.asked == 3
        now += 5
        await send(permissive)
        assert controller.asked == 4

    asyncio.run(scenario())
