"""The internal topics of streams groups: created in the background, once at a time, by those who may."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from penstock.api.context import Client
from penstock.api.groups.streams_group_heartbeat import streams_group_heartbeat
from penstock.api.groups.streams_internal_topics import StreamsInternalTopics
from penstock.core.group.streams.heartbeat import HeartbeatResult
from penstock.core.group.streams.internal_topics import InternalTopic
from penstock.core.group.streams.status import StatusCode
from penstock.core.metadata.features import STREAMS_VERSION
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

RETRY_MS = 10_000
TOPICS = [InternalTopic("app-c", 2, 0, {"cleanup.policy": "compact"}), InternalTopic("app-r", 2, 3, {})]


class Context(NamedTuple):
    client: Any = Client(("127.0.0.1", 1), "")
    client_id: str = "app"
    api_version: int = 0


class World:
    """A controller that answers what a test sets, and a clock."""

    def __init__(self) -> None:
        self.time_ms = 1_000
        self.asked: list[CreateTopicsRequest] = []
        self.answer: Any = None
        self.tasks: list[asyncio.Task[None]] = []
        self.topics = StreamsInternalTopics(self, self.decide)  # type: ignore[arg-type]

    def monotonic_ms(self) -> int:
        return self.time_ms

    def spawn(self, work: Coroutine[Any, Any, None], _name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def decide(self, key: ApiKey, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
        assert (key, context.api_version, context.client_id) == (ApiKey.CREATE_TOPICS, 7, "app")
        self.asked.append(request)
        if isinstance(self.answer, ApiError):
            raise self.answer
        errors = self.answer or {}
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(row.name, error_code=errors.get(row.name, 0), error_message="no room")
                for row in request.topics
            ]
        )

    def create(self) -> None:
        self.topics.create(TOPICS, Context(), RETRY_MS)  # type: ignore[arg-type]

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)

    def failures(self) -> dict[str, str]:
        return self.topics.failures(topic.name for topic in TOPICS)


def test_they_are_created_as_the_application_wants_them() -> None:
    async def story() -> None:
        world = World()
        world.create()
        # The next heartbeat comes before the answer.
        world.create()
        await world.settle()
        (request,) = world.asked
        rows = [(row.name, row.num_partitions, row.replication_factor) for row in request.topics]
        assert rows == [("app-c", 2, -1), ("app-r", 2, 3)]
        assert [tuple(row) for row in request.topics[0].configs] == [("cleanup.policy", "compact")]
        assert world.failures() == {}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "failures"),
    [
        ({"app-c": ErrorCode.INVALID_REPLICATION_FACTOR}, {"app-c": "no room"}),
        ({"app-c": ErrorCode.TOPIC_ALREADY_EXISTS}, {}),
        (
            ApiError(ErrorCode.REQUEST_TIMED_OUT, "there is no leader"),
            {"app-c": "there is no leader", "app-r": "there is no leader"},
        ),
    ],
)
def test_failures_are_reported_and_not_retried_for_a_while(answer: Any, failures: dict[str, str]) -> None:
    async def story() -> None:
        world = World()
        world.answer = answer
        world.create()
        await world.settle()
        assert world.failures() == failures
        world.create()
        await world.settle()
        again = {row.name for request in world.asked[1:] for row in request.topics}
        assert again == {topic.name for topic in TOPICS} - failures.keys()
        world.time_ms += RETRY_MS
        assert world.failures() == {}
        world.answer = None
        world.create()
        await world.settle()
        assert {row.name for row in world.asked[-1].topics} == {topic.name for topic in TOPICS}

    asyncio.run(story())


class Access:
    """Lets its client do what a test allows."""

    def __init__(self, *rights: tuple[Operation, str]) -> None:
        self.is_on = True
        self.rights = rights

    def allows(self, _asker: Any, operation: Operation, _kind: ResourceType, name: str, *, quiet: bool = False) -> bool:  # noqa: ARG002
        return operation is not Operation.CREATE or (operation, name) in self.rights

    def allows_on_cluster(self, _asker: Any, operation: Operation, *, quiet: bool = False) -> bool:  # noqa: ARG002
        return (operation, "cluster") in self.rights


@pytest.mark.parametrize(
    ("rights", "refused"),
    [
        ([], "app-c, app-r"),
        (["app-c"], "app-r"),
        (["app-c", "app-r"], None),
        (["cluster"], None),
    ],
)
def test_only_those_who_may_create_them_do(rights: list[str], refused: str | None) -> None:
    async def story() -> None:
        world = World()
        detail = "Internal topics are missing: app-c, app-r"
        response = StreamsGroupHeartbeatResponse(
            heartbeat_interval_ms=5_000, status=[Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)]
        )

        async def ask(*_: Any, **__: Any) -> HeartbeatResult:
            return HeartbeatResult(response, TOPICS)

        services: Any = SimpleNamespace(
            streams_topics=StreamsInternalTopics(world, world.decide),  # type: ignore[arg-type]
            image=SimpleNamespace(features={STREAMS_VERSION: 1}),
            groups=SimpleNamespace(ask=ask, protocols={"streams"}),
            access=Access(*((Operation.CREATE, name) for name in rights)),
        )
        handler: Any = partial(streams_group_heartbeat, services)
        answer = await handler(StreamsGroupHeartbeatRequest("app", "m", 2), Context())
        await world.settle()
        assert bool(world.asked) is (refused is None)
        told = detail if refused is None else f"{detail}; Unauthorized to CREATE on topics {refused}."
        assert [row.status_detail for row in answer.status] == [told]

    asyncio.run(story())
