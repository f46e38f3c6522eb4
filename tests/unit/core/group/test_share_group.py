"""What share groups refuse, keep, and survive; tests/scenario has how their members come and go."""

from __future__ import annotations

from random import Random

import pytest

from penstock.core.group.contract import GroupSettings
from penstock.core.group.shard import GroupShard
from penstock.core.group.share.group import ShareGroup
from penstock.core.group.share.partitions import SharePartitions, difference, union
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.wire.messages.sync_group import SyncGroupRequest
from support.worlds.consumer_world import GROUP, ConsumerWorld

T = b"t" * 16
DAY_MS = 24 * 3600 * 1000


class ShareWorld(ConsumerWorld):
    """A share coordinator that does at once what it is asked for."""

    def beat(self, member: str, epoch: int = 0, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(GROUP, member, epoch, None, topics)
        response, states = self.answer("share.heartbeat", request, 1)
        for state in states:
            self.perform(
                self.shard.share.initialized(GROUP, {state.topic_id: frozenset({state.partition})}, {}, self.token())
            )
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def token(self) -> int:
        self._next_token += 1
        self.tokens_open.add(self._next_token - 1)
        return self._next_token - 1

    def share_group(self, shard: GroupShard | None = None) -> ShareGroup:
        group = (shard or self.shard)._groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group


@pytest.fixture
def world() -> ShareWorld:
    world = ShareWorld(t=2)
    world.beat("a", topics=["t"])
    return world


def test_offsets_are_not_for_share_groups(world: ShareWorld) -> None:
    row = OffsetCommitRequestPartition(0, 1)
    request = OffsetCommitRequest(GROUP, -1, "", None, topics=[OffsetCommitRequestTopic("t", partitions=[row])])
    response = world.answer("offset_commit", request)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.answer("offset_delete", OffsetDeleteRequest(GROUP)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    caller_less = world.shard.offset_fetch_group(OffsetFetchRequestGroup(GROUP), False, None)  # type: ignore[arg-type]
    assert (caller_less.error_code, list(caller_less.topics)) == (0, [])


def test_members_of_classic_groups_are_unknown(world: ShareWorld) -> None:
    assert world.answer("heartbeat", HeartbeatRequest(GROUP, 1, "a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.answer("sync_group", SyncGroupRequest(GROUP, 1, "a")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leaving = LeaveGroupRequest(GROUP, members=[MemberIdentity("a")])
    assert world.answer("leave_group", leaving, 5).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_other_descriptions_do_not_find_it(world: ShareWorld) -> None:
    for describe in (world.shard.describe_group, world.shard.consumer.describe):
        with pytest.raises(ApiError, match="is not a c") as raised:
            describe(GROUP)
        assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_does_not_expire(world: ShareWorld) -> None:
    world.beat("a", -1)
    world.now_ms += 1000 * DAY_MS
    for effects in world.shard.expire_offsets(world.now_ms):
        world.perform(effects)
    assert [row.group_state for row in world.shard.list_groups()] == ["Empty"]


def test_a_group_has_its_own_intervals_within_bounds(world: ShareWorld) -> None:
    world.configs[GROUP] = {"share.heartbeat.interval.ms": "7000", "share.session.timeout.ms": "10"}
    assert world.beat("a", 2).heartbeat_interval_ms == 7000
    least_ms = world.settings.share_session_timeout_ms.least
    assert world.timers["share-session", GROUP, "a"] == world.now_ms + least_ms
    world.configs[GROUP] = {"share.heartbeat.interval.ms": "1000000"}
    assert world.beat("a", 3).heartbeat_interval_ms == world.settings.share_heartbeat_interval_ms.most


@pytest.mark.parametrize(
    ("member", "group", "rack", "topics"),
    [("", GROUP, None, ["t"]), ("a", " ", None, ["t"]), ("a", GROUP, "", ["t"]), ("a", GROUP, None, None)],
)
def test_incomplete_requests_are_refused(member: str, group: str, rack: str | None, topics: list[str] | None) -> None:
    world = ShareWorld(t=1)
    request = ShareGroupHeartbeatRequest(group, member, 0, rack, topics)
    response, states = world.answer("share.heartbeat", request, 1)
    assert (response.error_code, states, world.log) == (ErrorCode.INVALID_REQUEST, (), [])


def test_state_that_arrives_after_the_group_is_gone_changes_nothing(world: ShareWorld) -> None:
    world.beat("a", -1)
    assert world.delete_group(GROUP) is ErrorCode.NONE
    length = len(world.log)
    world.perform(world.shard.share.initialized(GROUP, {T: frozenset({0})}, {}, world.token()))
    world.perform(world.shard.share.deleted(GROUP, [T], world.token()))
    assert len(world.log) == length


def test_a_topic_begun_again_while_it_is_deleted_stays() -> None:
    one = {T: frozenset({0})}
    state = SharePartitions().begin(one).complete(one).condemn([T])
    assert state == SharePartitions(deleting=frozenset({T}))
    again = state.begin(one).complete(one)
    assert again.finish([T]) == SharePartitions(initialized=one)
    assert again.forget([T]) == SharePartitions()
    assert state.finish([T]) == SharePartitions()


def test_sets_of_partitions() -> None:
    first, second = {T: frozenset({0, 1})}, {T: frozenset({1, 2}), b"u": frozenset({0})}
    assert union(first, second) == {T: frozenset({0, 1, 2}), b"u": frozenset({0})}
    assert difference(first, second) == {T: frozenset({0})}
    assert difference(first, first) == {}


@pytest.mark.parametrize("seed", range(20))
def test_the_log_alone_gives_the_same_group(seed: int) -> None:
    """Random members, topics and failovers; reading the log, compacted or not, gives the same group."""
    random = Random(seed)
    world = ShareWorld(GroupSettings(share_max_size=5), seed, t=2, u=1)
    epochs: dict[str, int] = {}
    for _ in range(150):
        member = f"m{random.randrange(7)}"
        chance = random.random()
        if chance < 0.15:
            epochs[member] = world.beat(member, 0, random.sample(["t", "u", "v"], random.randrange(1, 4))).member_epoch
        elif chance < 0.7:
            epochs[member] = world.beat(member, epochs.get(member, 1)).member_epoch
        elif chance < 0.8:
            world.beat(member, -1)
        elif chance < 0.88:
            name = random.choice(["t", "u", "v"])
            known = world.topics.counts.get(name, 0)
            world.put_topic(name, 0 if known and random.random() < 0.3 else known + 1)
        elif chance < 0.95:
            world.advance(random.randrange(60_000))
        else:
            world.reload()
        if GROUP not in world.shard._groups:
            continue
        group = world.share_group()
        for latest_only in (False, True):
            other = world.share_group(world.replayed(latest_only=latest_only))
            for name in ("epoch", "assignment_epoch", "metadata_hash", "members", "targets", "partitions"):
                assert getattr(other, name) == getattr(group, name), name
            assert +other.name_counts == +group.name_counts
        assert group.targets.keys() <= group.members.keys()
    assert len(world.log) > 50


def test_a_topic_that_was_deleted_while_no_coordinator_was_there_is_forgotten(world: ShareWorld) -> None:
    world.put_topic("u", 1)
    world.beat("a", 0, ["t", "u"])
    former, kept = world.topics.ids["u"], world.topics.ids["t"]
    assert world.share_group().partitions.topic_ids() == {former, kept}
    world.topics.delete("u")
    for _ in range(2):
        size = len(world.log)
        world.reload()
        assert world.share_group().partitions.topic_ids() == {kept}
    assert len(world.log) == size, "once is enough"
