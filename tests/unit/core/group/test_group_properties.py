"""Any interleaving of joins, syncs, leaves, crashes, commits and takeovers keeps these promises.

After every event:
- no request is answered twice;
- in one generation no two members are told that they own the same partition, and a member is told what the leader said;
- while one coordinator is in charge, a group's generation only grows;
- a coordinator that knows only the log has the groups as they were last recorded, and exactly the same offsets, whether
  it replays every record, the newest of every key, or has the offsets loaded as bytes;
- an offset changes only by a commit that was accepted, and a commit is accepted only from a present member in the
  present generation, or from no particular member while the group is empty;
- timers belong to what there is: a session to a member or to one who was given an id, a join phase to a group that
  prepares a rebalance, a sync phase to a generation that a member has not synced yet; and a member that must not
  be waited for without end has one;
- what a group counts is what there is to count.

When all clients fall silent, every request gets its answer, every group becomes empty, and no timer is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.core.group.classic.group import ClassicGroup, ClassicState
from penstock.core.group.contract import Effects, GroupSettings
from penstock.core.group.shard import GroupShard
from penstock.model.errors import ErrorCode
from penstock.wire.frame import decode_coordinator_key, decode_versioned
from penstock.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.worlds.group_world import GroupWorld

GROUPS = ("g", "h")
# Name, instance id, JoinGroup version. Two clients were given the same instance id by mistake.
CLIENTS = (
    ("a", None, 9),
    ("b", None, 9),
    ("c", None, 3),
    ("s", "one", 9),
    ("t", "one", 8),
    ("u", "two", 9),
)
PARTITIONS = tuple(range(6))
SILENCE_MS = 60 * 60 * 1000
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("other",))

a_client = st.integers(0, len(CLIENTS) - 1)
a_group = st.sampled_from(GROUPS)


@dataclass
class Membership:
    """What a client knows about itself in one group."""

    name: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    members: list[str] = field(default_factory=list)


class GroupMachine(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from((0, 3000)), max_size=st.sampled_from((2, 100)))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.world = GroupWorld(GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=max_size))
        self.world.observer = self._observe
        self.clients = {(group, index): Membership(*row) for group in GROUPS for index, row in enumerate(CLIENTS)}
        self.asked: dict[int, tuple[str, int, Any]] = {}
        self.owners: dict[tuple[str, int, int], dict[int, str]] = {}
        self.told: dict[tuple[str, int, int], dict[str, bytes]] = {}
        self.incarnation = dict.fromkeys(GROUPS, 0)
        self.generations = dict.fromkeys(GROUPS, 0)
        self.offsets: dict[tuple[str, int], int] = {}
        self.recorded: dict[str, Any] = {}

    @rule(group=a_group, index=a_client, protocols=st.sampled_from(PROTOCOLS), metadata=st.sampled_from((b"x", b"y")))
    def join(self, group: str, index: int, protocols: tuple[str, ...], metadata: bytes) -> None:
        client = self.clients[group, index]
        rows = [JoinGroupRequestProtocol(name, metadata) for name in protocols]
        request = JoinGroupRequest(group, 6000, 20_000, client.member_id, client.instance_id, "consumer", rows)
        self._ask(group, index, "join_group", request, client.version)

    @rule(group=a_group, index=a_client, shift=st.integers(0, 5))
    def sync(self, group: str, index: int, shift: int) -> None:
        client = self.clients[group, index]
        assignments = []
        if client.members:
            shares = {
                member_id: bytes(PARTITIONS[number :: len(client.members)])
                for number, member_id in enumerate(client.members[shift:] + client.members[:shift])
            }
            assignments = [SyncGroupRequestAssignment(*row) for row in shares.items()]
        request = SyncGroupRequest(
            group, client.generation, client.member_id, client.instance_id, None, None, assignments
        )
        self._ask(group, index, "sync_group", request)

    @rule(group=a_group, indexes=st.sets(a_client, min_size=2), wait_ms=st.sampled_from((0, 6000)))
    def gather(self, group: str, indexes: set[int], wait_ms: int) -> None:
        """Several clients do what clients do, which random events alone seldom get to."""
        for index in sorted(indexes):
            for _ in range(2):
                if not self.clients[group, index].member_id or not self._is_waiting(group, index):
                    self.join(group, index, ("range", "sticky"), b"x")
        self.world.advance(wait_ms)
        for index in sorted(indexes):
            self.sync(group, index, 0)

    def _is_waiting(self, group: str, index: int) -> bool:
        return any(asked[:2] == (group, index) for asked in self.asked.values())

    @rule(group=a_group, index=a_client)
    def heartbeat(self, group: str, index: int) -> None:
        client = self.clients[group, index]
        request = HeartbeatRequest(group, client.generation, client.member_id, client.instance_id)
        self._ask(group, index, "heartbeat", request)

    @rule(group=a_group, index=a_client, as_administrator=st.booleans())
    def leave(self, group: str, index: int, as_administrator: bool) -> None:
        client = self.clients[group, index]
        member_id = "" if as_administrator else client.member_id
        request = LeaveGroupRequest(group, members=[MemberIdentity(member_id, client.instance_id)])
        self._ask(group, index, "leave_group", request, 5)

    @rule(group=a_group, index=a_client, partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 1000))
    def commit(self, group: str, index: int, partition: int, offset: int) -> None:
        client = self.clients[group, index]
        rows = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(partition, offset)])]
        request = OffsetCommitRequest(group, client.generation, client.member_id, client.instance_id, topics=rows)
        self._ask(group, index, "offset_commit", request)

    @rule(group=a_group, index=a_client)
    def restart(self, group: str, index: int) -> None:
        """The client starts anew and knows nothing of its former membership."""
        self.clients[group, index] = Membership(*CLIENTS[index])

    @rule(milliseconds=st.sampled_from((0, 500, 3000, 6000, 20_000, 400_000)))
    def wait(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)

    @rule()
    def fail_over(self) -> None:
        self.asked.clear()
        self.world.reload()
        self.generations = {group: self._generation(group) for group in GROUPS}

    @rule(group=a_group)
    def delete(self, group: str) -> None:
        self.world.delete_group(group)

    @rule(days=st.sampled_from((0, 8)))
    def expire(self, days: int) -> None:
        for effects in self.world.shard.expire_offsets(self.world.now_ms + days * 86_400_000):
            self.world.perform(effects)

    def _ask(self, group: str, index: int, method: str, request: Any, version: int = 9) -> None:
        self.asked[self.world._next_token] = (group, index, request)
        if method == "offset_commit":
            self._expect_commit(group, request)
        self.world.ask(method, request, version, CLIENTS[index][0])

    def _expect_commit(self, group: str, request: OffsetCommitRequest) -> None:
        live = self._live(group)
        generation = request.generation_id_or_member_epoch
        if live is None or live.state is ClassicState.EMPTY:
            self.commit_allowed = generation < 0
        else:
            self.commit_allowed = (
                request.member_id in live.members
                and generation == live.generation
                and live.state is not ClassicState.COMPLETING_REBALANCE
                and live.members[request.member_id].instance_id == request.group_instance_id
            )

    def _observe(self, effects: Effects) -> None:
        for key, value, _ in effects.records:
            if isinstance(key, GroupMetadataKey):
                self.recorded[key.group] = value
                if value is None:
                    self.incarnation[key.group] += 1
                    self.generations[key.group] = 0
            elif isinstance(key, OffsetCommitKey) and value is None:
                del self.offsets[key.group, key.partition]
        for token, response in effects.replies:
            if token in self.asked:
                self._answered(*self.asked.pop(token), response)

    def _answered(self, group: str, index: int, request: Any, response: Any) -> None:
        client = self.clients[group, index]
        if isinstance(response, JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
                client.members = []
            if response.error_code == ErrorCode.NONE:
                client.generation = response.generation_id
                if response.leader == response.member_id and not response.skip_assignment:
                    client.members = [row.member_id for row in response.members]
        elif isinstance(response, SyncGroupResponse) and response.error_code == ErrorCode.NONE:
            self._owns(group, request, response.assignment)
        elif isinstance(request, OffsetCommitRequest):
            row = request.topics[0].partitions[0]
            accepted = response.topics[0].partitions[0].error_code == ErrorCode.NONE
            assert accepted == self.commit_allowed
            if accepted:
                self.offsets[group, row.partition_index] = row.committed_offset

    def _owns(self, group: str, request: SyncGroupRequest, assignment: bytes) -> None:
        generation = (group, self.incarnation[group], request.generation_id)
        identity = request.group_instance_id or request.member_id
        owners = self.owners.setdefault(generation, {})
        for partition in assignment:
            assert owners.setdefault(partition, identity) == identity, f"{partition} has two owners in {generation}"
        told = self.told.setdefault(generation, {})
        assert told.setdefault(identity, assignment) == assignment

    def _live(self, group: str) -> ClassicGroup | None:
        found = self.world.shard._groups.get(group)
        assert found is None or isinstance(found, ClassicGroup)
        return found

    def _generation(self, group: str) -> int:
        live = self._live(group)
        return 0 if live is None else live.generation

    @invariant()
    def what_members_take_is_what_they_take_one_by_one(self) -> None:
        for group in self.world.shard._groups.values():
            assert isinstance(group, ClassicGroup)
            members = sum(member.size_bytes for member in group.members.values())
            assert group.others_bytes("") == members + sum(map(len, group.pending_members))
            for member in group.members.values():
                assert group.others_bytes("") - group.others_bytes(member.member_id) == member.size_bytes

    @invariant()
    def generations_only_grow(self) -> None:
        for group in GROUPS:
            assert self._generation(group) >= self.generations[group]
            self.generations[group] = self._generation(group)

    @invariant()
    def offsets_change_only_by_accepted_commits(self) -> None:
        assert _offsets(self.world.shard) == self.offsets

    @invariant()
    def the_log_tells_all_that_lasts(self) -> None:
        shards = [self.world.replayed(), self.world.replayed(latest_only=True), _loaded_as_bytes(self.world)]
        for shard in shards:
            assert shard._groups.keys() == self.world.shard._groups.keys()
            assert _offsets(shard) == self.offsets
            for group, value in self.recorded.items():
                if value is not None:
                    assert _durable(shard, group) == value
        for group in GROUPS:
            live = self._live(group)
            recorded = self.recorded.get(group)
            if live is not None and recorded and live.state in (ClassicState.EMPTY, ClassicState.STABLE):
                assert live.record().value == recorded

    @invariant()
    def timers_belong_to_what_there_is(self) -> None:
        running = set()
        for kind, group, *rest in self.world.timers:
            live = self._live(group)
            assert live is not None, "a timer of a group that is gone"
            if kind == "session":
                assert rest[0] in live.members or rest[0] in live.pending_members
            elif kind == "join":
                assert live.state is ClassicState.PREPARING_REBALANCE
            else:
                assert kind == "sync"
                assert live.pending_sync
            running.add((kind, group, *rest))
        for group in GROUPS:
            live = self._live(group)
            if live is None:
                continue
            if live.state is ClassicState.PREPARING_REBALANCE:
                assert ("join", group) in running
            if live.pending_sync:
                assert ("sync", group) in running
            for member_id in live.pending_members:
                assert ("session", group, member_id) in running
            for member in live.members.values():
                assert ("session", group, member.member_id) in running or member.needs_no_heartbeat

    @invariant()
    def counts_are_true(self) -> None:
        for group in GROUPS:
            live = self._live(group)
            if live is None:
                continue
            members = live.members
            assert live.awaiting_join_count == sum(member.join_token is not None for member in members.values())
            assert live.static_members == {
                member.instance_id: member_id for member_id, member in members.items() if member.instance_id
            }
            assert live.leader is None or live.leader in members
            assert bool(live.leader) == bool(members)
            assert live.state is not ClassicState.EMPTY or not members
            assert live.state not in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE) or members
            assert live.pending_sync.keys() <= members.keys()
            assert not live.pending_members.keys() & members.keys()
            for name, count in live._protocol_support.items():
                assert count == sum(name in member.protocol_names for member in members.values()) > 0
            if live.state is not ClassicState.PREPARING_REBALANCE:
                assert not live.awaiting_join_count
            if live.state is ClassicState.STABLE:
                assert not any(member.sync_token is not None for member in members.values())

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.advance(SILENCE_MS)
        assert not self.world.tokens_open, "a request still waits"
        assert not self.world.timers, "a timer is left"
        for group in GROUPS:
            live = self._live(group)
            assert live is None or live.state is ClassicState.EMPTY
            assert live is None or not live.pending_members


def _offsets(shard: GroupShard) -> dict[tuple[str, int], int]:
    return {
        (group, place.partition): progress.committed.offset
        for group in GROUPS
        for place, progress in shard.committed(group).items()
    }


def _durable(shard: GroupShard, group: str) -> Any:
    found = shard._groups[group]
    assert isinstance(found, ClassicGroup)
    return found.record().value


def _loaded_as_bytes(world: GroupWorld) -> GroupShard:
    shard = GroupWorld(world.settings).shard
    for key, value in shard.load(world.log):
        message, classes = decode_coordinator_key("group", key)
        shard.replay(message, None if value is None else decode_versioned(classes.value, value))
    shard.loaded(world.now_ms)
    return shard


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
