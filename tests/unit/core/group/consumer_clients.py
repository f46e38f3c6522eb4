"""Clients of both protocols as simple as they can be, and what must hold of their group at any time.

A client owns what it works on: it takes in what an answer adds, and lets go of what an answer takes away only when it
gets around to it. It forgets everything when it is told that it is no member any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.protocol import read_assignment, read_subscription
from penstock.core.group.modern.members import STATIC_LEAVE_EPOCH
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponseMember
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from support.worlds.consumer_world import GROUP, ConsumerWorld, assignment, subscription

Partition = tuple[Uuid, int]

_JOIN_AGAIN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class NewClient:
    """A client of the consumer protocol."""

    def __init__(self, world: ConsumerWorld, name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.member_id = name
        self.instance_id = instance_id
        self.subscription: dict[str, Any] = {"subscribed_topic_names": ["t"]}
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.told: set[Partition] = set()
        self.lives = 0

    def forget(self) -> None:
        self.epoch = 0
        self.owned, self.told = set(), set()

    def subscribe(self, **subscription: Any) -> None:
        self.subscription = subscription

    def catch_up(self) -> None:
        """Do what the last answer asked for."""
        self.owned = set(self.told)

    def heartbeat(self, *, answer_gets_lost: bool = False) -> None:
        response = self.world.answer(
            "consumer.heartbeat",
            ConsumerGroupHeartbeatRequest(
                GROUP,
                self.member_id,
                self.epoch,
                self.instance_id,
                rebalance_timeout_ms=30_000,
                topic_partitions=_rows(self.owned),
                **self.subscription,
            ),
            1,
        )
        if answer_gets_lost:
            return
        if response.error_code in _JOIN_AGAIN:
            self.forget()
        elif response.error_code == ErrorCode.NONE:
            assert response.member_epoch >= self.epoch, "a member's epoch never falls"
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.told = {(bytes(r.topic_id), p) for r in response.assignment.topic_partitions for p in r.partitions}
                self.owned |= self.told

    def leave(self) -> None:
        self._say_goodbye(-1)

    def pause(self) -> None:
        """Restart, telling so if the client is static; the next life has another member id."""
        self._say_goodbye(-1 if self.instance_id is None else STATIC_LEAVE_EPOCH)
        self.lives += 1
        self.member_id = f"{self.name}{self.lives}"

    def _say_goodbye(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, epoch, self.instance_id)
        self.world.answer("consumer.heartbeat", request, 1)
        self.forget()


class OldClient:
    """A client of the classic protocol that rebalances cooperatively."""

    def __init__(self, world: ConsumerWorld, name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.epoch = -1
        self.topics = ["t"]
        self.owned: set[Partition] = set()
        self.told: set[Partition] = set()
        self.join_token: int | None = None
        self.sync_token: int | None = None
        # Everything it ever asked that may be answered later, if only when the coordinator goes away.
        self.parked: set[int] = set()
        self.must_join = True

    def forget(self) -> None:
        self.member_id, self.epoch = "", -1
        self.owned, self.told = set(), set()
        self.join_token = self.sync_token = None
        self.must_join = True

    def subscribe(self, **subscription: Any) -> None:
        self.topics = list(subscription.get("subscribed_topic_names", self.topics))
        self.must_join = True

    def catch_up(self) -> None:
        self.owned = set(self.told)

    def heartbeat(self, *, answer_gets_lost: bool = False) -> None:
        """Whatever is due next: wait for an answer, join, or tell that one is there."""
        self._collect()
        if self.join_token is not None or self.sync_token is not None:
            return
        if self.must_join:
            self._join()
            return
        request = HeartbeatRequest(GROUP, self.epoch, self.member_id, self.instance_id)
        error = self.world.answer("heartbeat", request, 4).error_code
        if answer_gets_lost:
            return
        self._take(error)

    def _take(self, error: int) -> bool:
        if error in _JOIN_AGAIN:
            self.forget()
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        return error == ErrorCode.NONE

    def _join(self) -> None:
        owned: dict[str, list[int]] = {}
        for topic_id, partition in self.owned:
            name = self.world.topics.topic_name(topic_id)
            if name is not None:
                owned.setdefault(name, []).append(partition)
        protocols = [JoinGroupRequestProtocol("cooperative-sticky", subscription(self.topics, owned))]
        request = JoinGroupRequest(GROUP, 20_000, 30_000, self.member_id, self.instance_id, "consumer", protocols)
        self.must_join = False
        self.join_token = self.world.ask("join_group", request)
        self.parked.add(self.join_token)
        self._collect()

    def _collect(self) -> None:
        """Take in answers that have come."""
        if self.join_token is not None and self.join_token in self.world.responses:
            response = self.world.responses.pop(self.join_token)
            self.join_token = None
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
                self.must_join = True
            elif self._take(response.error_code):
                self.member_id, self.epoch = response.member_id, response.generation_id
                leads = response.leader == response.member_id
                self._sync(response.members if leads else ())
        if self.sync_token is not None and self.sync_token in self.world.responses:
            response = self.world.responses.pop(self.sync_token)
            self.sync_token = None
            if self._take(response.error_code):
                rows = read_assignment(response.assignment).assigned_partitions if response.assignment else ()
                ids = self.world.topics.ids
                self.told = {(ids[row.topic], p) for row in rows if row.topic in ids for p in row.partitions}
                self.owned |= self.told
                # Cooperative members join again once they gave something up.
                self.must_join = self.must_join or self.owned != self.told

    def _sync(self, members: Sequence[JoinGroupResponseMember]) -> None:
        """Request the assignment. The leader of a classic group hands partitions out in turns; what belongs to another
        member yet is held back until the next rebalance.
        """
        owners = {
            (row.topic, partition): member.member_id
            for member in members
            for row in read_subscription(member.metadata).owned_partitions
            for partition in row.partitions
        }
        parts: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in members}
        turn = 0
        for name, count in sorted(self.world.topics.counts.items()):
            for partition in range(count if members else 0):
                taker = members[turn % len(members)].member_id
                if owners.get((name, partition), taker) == taker:
                    parts[taker].setdefault(name, []).append(partition)
                turn += 1
        assignments = [SyncGroupRequestAssignment(member_id, assignment(part)) for member_id, part in parts.items()]
        request = SyncGroupRequest(GROUP, self.epoch, self.member_id, self.instance_id, assignments=assignments)
        self.sync_token = self.world.ask("sync_group", request, 5)
        self.parked.add(self.sync_token)
        self._collect()

    def leave(self) -> None:
        if self.member_id:
            identity = MemberIdentity(self.member_id, self.instance_id)
            self.world.answer("leave_group", LeaveGroupRequest(GROUP, members=[identity]), 5)
        self._abandon()

    def pause(self) -> None:
        """Crash and come back; a static one takes its place again, the other one's former self has to time out."""
        self._abandon()

    def _abandon(self) -> None:
        for token in (self.join_token, self.sync_token):
            self.world.responses.pop(token, None)
        self.forget()


Client = NewClient | OldClient


def _rows(partitions: set[Partition]) -> list[TopicPartitions]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in partitions:
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in topics.items()]


def flat(partitions: Any) -> set[Partition]:
    """Partitions by topic as a set of pairs."""
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


def durable(group: ConsumerGroup) -> dict[str, Any]:
    """Everything about a group that its records hold, and what is counted from that."""
    soft = {
        "metadata_is_current",
        "regex_version",
        "acknowledged",
        "awaited_joins",
    }
    return {name: value for name, value in vars(group).items() if name not in soft}
