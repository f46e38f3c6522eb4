"""Tenants own what begins with their name, and create no more topics and partitions than they may."""

from __future__ import annotations

from itertools import count

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata.client_quotas import alter_quotas
from penstock.core.metadata.image import Image
from penstock.core.metadata.tenants import TenantLimits, TenantUsage, tenant_limits, tenant_usage, tenants
from penstock.core.metadata.topics import NewTopic, TopicDefaults, TopicOutcome, add_partitions, create_topics
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequestEntryData, EntityData, OpData
from penstock.wire.messages.metadata_records import RemoveTopicRecord

REFUSED = ErrorCode.POLICY_VIOLATION
ids = count(1)


def limit(world: ClusterWorld, user: str | None, values: dict[str, float | None], **parts: str | None) -> ErrorCode:
    entity = [EntityData("user", user), *(EntityData(kind.replace("_", "-"), name) for kind, name in parts.items())]
    changes = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    (error,) = world.carry_out(alter_quotas(world.image, [AlterClientQuotasRequestEntryData(entity, changes)]))
    return ErrorCode.NONE if error is None else error.code


def world_with(**limits: float) -> ClusterWorld:
    world = ClusterWorld(1)
    assert limit(world, "acme", {f"tenant_{key}": value for key, value in limits.items()}) is ErrorCode.NONE
    return world


def admit(name: str, *_: object) -> None:
    if name.endswith(".unwanted"):
        raise ApiError(ErrorCode.INVALID_CONFIG, "a rule is against it")


def create(world: ClusterWorld, *wanted: NewTopic) -> dict[str, TopicOutcome]:
    outcomes = world.carry_out(
        create_topics(
            world.image,
            wanted,
            TopicDefaults(2, 1),
            lambda partitions, factor: [tuple(range(1, factor + 1))] * partitions,
            lambda _: None,
            lambda: next(ids).to_bytes(16),
            admit,
        )
    )
    return {outcome.name: outcome for outcome in outcomes}


def refused(outcomes: dict[str, TopicOutcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.error is REFUSED}


def grow(world: ClusterWorld, name: str, total: int) -> None:
    world.apply(add_partitions(world.image, name, total, None, lambda partitions, _: [(1,)] * partitions))


def test_one_request_creates_no_more_topics_than_there_is_room_for() -> None:
    world = world_with(topics=3)
    outcomes = create(
        world, *(NewTopic(f"acme.{number}") for number in range(5)), NewTopic("other.0"), NewTopic("acme")
    )
    assert refused(outcomes) == {"acme.3", "acme.4"}
    message = outcomes["acme.4"].message
    assert message is not None
    assert "tenant acme may have 3 topics (tenant_topics) and has 3" in message
    assert "raise the limit" in message
    assert refused(create(world, NewTopic("acme.5"))) == {"acme.5"}


def test_a_topic_that_is_refused_takes_no_room() -> None:
    world = world_with(topics=2, partitions=6)
    outcomes = create(
        world,
        NewTopic("acme.large", 7),
        NewTopic("acme.unwanted", 3),
        NewTopic("acme.a", 3),
        NewTopic("acme.!"),
        NewTopic("acme.b", 3),
    )
    assert refused(outcomes) == {"acme.large"}
    assert outcomes["acme.unwanted"].error is ErrorCode.INVALID_CONFIG
    assert tenant_usage(world.image, "acme") == TenantUsage(2, 6)


def test_one_request_creates_no_more_partitions_than_there_is_room_for() -> None:
    world = world_with(partitions=5)
    outcomes = create(world, NewTopic("acme.a"), NewTopic("acme.b"), NewTopic("acme.c"), NewTopic("acme.d", 1))
    assert refused(outcomes) == {"acme.c"}


def test_partitions_are_counted_however_they_come() -> None:
    world = world_with(partitions=5)
    assigned = NewTopic("acme.assigned", assignments={0: (1,), 1: (1,)})
    assert not refused(create(world, NewTopic("acme.default"), assigned))
    assert refused(create(world, NewTopic("acme.more"))) == {"acme.more"}
    grow(world, "acme.default", 3)
    with pytest.raises(ApiError, match=r"may have 5 partitions .* and has 5, so 1 more") as caught:
        grow(world, "acme.assigned", 3)
    assert caught.value.code is REFUSED


def test_what_is_deleted_makes_room() -> None:
    world = world_with(topics=1)
    create(world, NewTopic("acme.first"))
    assert refused(create(world, NewTopic("acme.second")))
    world.apply([RemoveTopicRecord(world.image.topics["acme.first"].topic_id)])
    assert world.image.topics_by_prefix == {}
    assert not refused(create(world, NewTopic("acme.second")))


def test_lowered_limits_take_nothing_away() -> None:
    world = world_with(topics=3)
    create(world, NewTopic("acme.a"), NewTopic("acme.b"))
    limit(world, "acme", {"tenant_topics": 1})
    assert tenant_usage(world.image, "acme").topics == 2
    assert refused(create(world, NewTopic("acme.c")))
    grow(world, "acme.a", 3)
    limit(world, "acme", {"tenant_topics": None})
    assert not refused(create(world, NewTopic("acme.c")))


@pytest.mark.parametrize("name", ["acme.eu", "acme_eu", "", "a" * 65, "b\u00e9ta", "a b", None])
def test_users_whose_names_topics_cannot_begin_with_are_no_tenants(name: str | None) -> None:
    world = ClusterWorld(1)
    assert limit(world, name, {"tenant_topics": 1}) is ErrorCode.INVALID_REQUEST
    assert tenants(world.image) == {}


def test_limits_are_of_users_alone() -> None:
    world = ClusterWorld(1)
    assert limit(world, "acme", {"tenant_topics": 1}, client_id="app") is ErrorCode.INVALID_REQUEST
    assert limit(world, "acme", {"tenant_topics": 1.5}) is ErrorCode.INVALID_REQUEST
    assert limit(world, "acme", {"tenant_topics": -1}) is ErrorCode.INVALID_REQUEST
    assert limit(world, "acme", {"tenant_topics": 0, "producer_byte_rate": 1000}) is ErrorCode.NONE
    assert limit(world, "rated", {"producer_byte_rate": 1000}) is ErrorCode.NONE
    assert tenants(world.image) == {"acme": TenantLimits(0, None, None)}
    assert tenant_limits(world.image, "rated") is None


def test_a_snapshot_knows_whose_topics_are_whose() -> None:
    world = world_with(storage_bytes=1e12)
    create(world, NewTopic("acme.a"), NewTopic("plain"))
    copy = Image()
    for record in world.image.snapshot():
        copy.replay(record)
    assert tenants(copy) == {"acme": TenantLimits(None, None, 10**12)}
    assert tenant_usage(copy, "acme") == TenantUsage(1, 2)
