"""Which topics take the dead letters of share groups, and how writes to their leaders turn out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.metadata.image import Image, PartitionState, ResourceType, partition_record
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.peer import PeerLost
from penstock.runtime.share.dead_letter_topics import ENABLED, DeadLetterDestination, DeadLetterTopics
from penstock.wire.messages.metadata_records import ConfigRecord, TopicRecord
from penstock.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC_ID = b"t" * 16


class World:
    def __init__(self, *, may_create: bool = True) -> None:
        self.image = Image()
        self.created: list[Any] = []
        self.outcome = ErrorCode.NONE
        self.requests: list[tuple[int, ProduceRequest, int]] = []
        self.answers: list[Any] = []
        settings = SimpleNamespace(
            errors_deadletterqueue_topic_name_prefix="dlq.",
            errors_deadletterqueue_auto_create_topics_enable=may_create,
        )
        self.topics = DeadLetterTopics(
            cast("Any", self), self.image, cast("Any", self), cast("Any", None), cast("Any", lambda: settings)
        )

    def add(self, name: str, leaders: Sequence[int], enabled: str | None = "true") -> None:
        self.image.replay(TopicRecord(name, TOPIC_ID))
        for number, leader in enumerate(leaders):
            self.image.replay(partition_record(TOPIC_ID, number, PartitionState((1, 2), (1, 2), leader, 0, 0)))
        if enabled is not None:
            self.image.replay(ConfigRecord(ResourceType.TOPIC, name, ENABLED, enabled))

    async def create_topics(self, topics: Sequence[Any]) -> list[Any]:
        self.created += topics
        if self.outcome in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.add(topics[0].name, [2])
        return [SimpleNamespace(error=self.outcome, message="as it is")]

    async def ask(self, node: int, request: ProduceRequest, *, timeout_ms: int) -> ProduceResponse:
        self.requests.append((node, request, timeout_ms))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ProduceResponse([TopicProduceResponse(partition_responses=[PartitionProduceResponse(0, answer)])])

    def place(self, name: str, partition: int = 0) -> DeadLetterDestination:
        return asyncio.run(self.topics.place_of(name, partition))


def test_partitions_share_the_partitions_of_the_topic() -> None:
    world = World()
    world.add("dlq.jobs", [1, 2])
    assert world.place("dlq.jobs", 0) == DeadLetterDestination("dlq.jobs", TOPIC_ID, 0, 1)
    assert world.place("dlq.jobs", 5) == DeadLetterDestination("dlq.jobs", TOPIC_ID, 1, 2)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__anything", "jobs", "xdlq.jobs"])
def test_internal_topics_and_those_without_the_prefix_take_none(name: str) -> None:
    world = World()
    world.add(name, [1])
    with pytest.raises(ApiError) as raised:
        world.place(name)
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("enabled", [None, "false"])
def test_a_topic_takes_dead_letters_only_where_its_settings_allow_it(enabled: str | None) -> None:
    world = World()
    world.add("dlq.jobs", [1], enabled)
    with pytest.raises(ApiError, match=ENABLED) as raised:
        world.place("dlq.jobs")
    assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_partition_without_a_leader_takes_them_later() -> None:
    world = World()
    world.add("dlq.jobs", [0, -1])
    assert world.place("dlq.jobs", 0).leader == 0
    with pytest.raises(ApiError) as raised:
        world.place("dlq.jobs", 1)
    assert raised.value.code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("outcome", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_a_missing_topic_is_created_with_the_setting(outcome: ErrorCode) -> None:
    world = World()
    world.outcome = outcome
    assert world.place("dlq.jobs") == DeadLetterDestination("dlq.jobs", TOPIC_ID, 0, 2)
    (topic,) = world.created
    assert (topic.name, topic.configs) == ("dlq.jobs", {ENABLED: "true"})
    # The cluster's defaults.
    assert (topic.partitions, topic.replication_factor) == (-1, -1)


def test_a_topic_that_may_not_or_cannot_be_created_is_an_error() -> None:
    forbidden = World(may_create=False)
    with pytest.raises(ApiError) as raised:
        forbidden.place("dlq.jobs")
    assert (raised.value.code, forbidden.created) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    refused = World()
    refused.outcome = ErrorCode.POLICY_VIOLATION
    with pytest.raises(ApiError, match="as it is") as raised:
        refused.place("dlq.jobs")
    assert raised.value.code == ErrorCode.POLICY_VIOLATION


def test_batches_are_written_to_the_leader_with_all_acknowledgements() -> None:
    world = World()
    world.answers = [0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.NOT_LEADER_OR_FOLLOWER, PeerLost("gone")]
    world.answers.append(ApiError(ErrorCode.REQUEST_TIMED_OUT, "late"))
    batches = [b"a", b"b", b"c", b"d", b"e"]
    codes = asyncio.run(world.topics.write(DeadLetterDestination("dlq.jobs", TOPIC_ID, 4, 2), batches))
    # A duplicate is there already.
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
    for (node, request, timeout_ms), batch in zip(world.requests, batches, strict=True):
        assert (node, request.acks, request.transactional_id) == (2, -1, None)
        assert timeout_ms == request.timeout_ms == 15_000
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert (topic.name, topic.topic_id, data.index, bytes(data.records or b"")) == ("dlq.jobs", TOPIC_ID, 4, batch)
