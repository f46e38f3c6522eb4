"""A static instance that starts anew fences its former member in every request, also with the next coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.group.contract import GroupSettings
from penstock.model.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.worlds.consumer_world import GROUP, ConsumerWorld, assignment, subscription

INSTANCE = "i"
Errors = dict[str, ErrorCode]


def join(world: ConsumerWorld, member_id: str = "") -> Any:
    protocols = [JoinGroupRequestProtocol("range", subscription(["t"]))]
    request = JoinGroupRequest(GROUP, 10_000, 20_000, member_id, INSTANCE, "consumer", protocols)
    token = world.ask("join_group", request, 9)
    world.advance(0)
    return world.responses.pop(token)


def sync(world: ConsumerWorld, member_id: str, generation: int) -> Any:
    mine = [SyncGroupRequestAssignment(member_id, assignment({"t": [0, 1, 2, 3]}))]
    return world.answer("sync_group", SyncGroupRequest(GROUP, generation, member_id, INSTANCE, assignments=mine), 5)


def beat(world: ConsumerWorld, member_id: str, epoch: int, instance_id: str | None = INSTANCE) -> Any:
    request = ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, instance_id)
    if epoch == 0:
        request = request._replace(rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=())
    return world.answer("consumer.heartbeat", request, 1)


def commit(world: ConsumerWorld, member_id: str, epoch: int) -> ErrorCode:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 5)])]
    response = world.answer("offset_commit", OffsetCommitRequest(GROUP, epoch, member_id, INSTANCE, topics=topics), 9)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def commit_in_transaction(world: ConsumerWorld, member_id: str, epoch: int) -> ErrorCode:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
    request = TxnOffsetCommitRequest("id", GROUP, 7, 0, epoch, member_id, INSTANCE, topics)
    response = world.answer("txn_offset_commit", request, 5)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def classic_errors(world: ConsumerWorld, member_id: str, generation: int) -> Errors:
    leaving = LeaveGroupRequest(GROUP, members=[MemberIdentity(member_id, INSTANCE)])
    return {
        "join": join(world, member_id).error_code,
        "sync": sync(world, member_id, generation).error_code,
        "heartbeat": world.answer("heartbeat", HeartbeatRequest(GROUP, generation, member_id, INSTANCE), 4).error_code,
        "leave": world.answer("leave_group", leaving, 5).members[0].error_code,
        "commit": commit(world, member_id, generation),
        "commit in a transaction": commit_in_transaction(world, member_id, generation),
    }


def consumer_errors(world: ConsumerWorld, member_id: str, epoch: int) -> Errors:
    return {
        "heartbeat": beat(world, member_id, epoch).error_code,
        "leave": beat(world, member_id, -1).error_code,
        "leave for a while": beat(world, member_id, -2).error_code,
        "commit": commit(world, member_id, epoch),
        "commit in a transaction": commit_in_transaction(world, member_id, epoch),
    }


def replaced_in_a_classic_group(world: ConsumerWorld) -> Errors:
    old = join(world)
    sync(world, old.member_id, old.generation_id)
    assert join(world).member_id != old.member_id
    world.reload()
    return classic_errors(world, old.member_id, old.generation_id)


def replaced_in_a_consumer_group(world: ConsumerWorld) -> Errors:
    assert beat(world, "n", 0, None).error_code == ErrorCode.NONE
    old = join(world)
    assert join(world).member_id != old.member_id
    world.reload()
    return classic_errors(world, old.member_id, old.generation_id)


def replaced_by_a_member_of_the_other_protocol(world: ConsumerWorld) -> Errors:
    assert beat(world, "n", 0, None).error_code == ErrorCode.NONE
    epoch = beat(world, "old", 0).member_epoch
    assert join(world).error_code == ErrorCode.NONE
    world.reload()
    return consumer_errors(world, "old", epoch)


def replaced_after_it_left_for_a_while(world: ConsumerWorld) -> Errors:
    epoch = beat(world, "old", 0).member_epoch
    owned = [TopicPartitions(world.topics.ids["t"], [0, 1, 2, 3])]
    request = ConsumerGroupHeartbeatRequest(GROUP, "old", epoch, INSTANCE, topic_partitions=owned)
    assert world.answer("consumer.heartbeat", request, 1).error_code == ErrorCode.NONE
    assert beat(world, "new", 0).error_code == ErrorCode.UNRELEASED_INSTANCE_ID, "not two at once"
    assert beat(world, "old", -2).error_code == ErrorCode.NONE
    assert beat(world, "new", 0).error_code == ErrorCode.NONE
    world.reload()
    return consumer_errors(world, "old", epoch)


@pytest.mark.parametrize(
    "story",
    [
        replaced_in_a_classic_group,
        replaced_in_a_consumer_group,
        replaced_by_a_member_of_the_other_protocol,
        replaced_after_it_left_for_a_while,
    ],
)
@pytest.mark.parametrize("fails_over", [False, True], ids=["same coordinator", "next coordinator"])
def test_a_former_member_is_fenced(
    story: Callable[[ConsumerWorld], Errors], fails_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ConsumerWorld(GroupSettings(initial_rebalance_delay_ms=0), t=4)
    if not fails_over:
        monkeypatch.setattr(world, "reload", lambda: None)
    errors = story(world)
    assert errors == dict.fromkeys(errors, ErrorCode.FENCED_INSTANCE_ID)
