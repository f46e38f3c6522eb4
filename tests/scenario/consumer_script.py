"""Plays a script of events of consumer groups (KIP-848) and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Clients are called by names, which are
their member ids, too. Time stands still except for `wait`.

    set NAME=VALUE ...        settings of the coordinator, before the first event
    topic NAME=COUNT ...      topics come or grow; a count of 0 deletes one
    racks T/P=RACK[,RACK]     where replicas are
    join CLIENT [OPTION ...]  topics= regex= static= rack= assignor= rebalance=
    heartbeat CLIENT [...]    the client takes over what it was last told to own, and reports that; it can change what
                              it joined with, or claim another epoch=; with `full` it tells everything, as clients do
                              after an error
    busy CLIENT               a heartbeat of a client that has not given up anything yet, and says nothing
    leave CLIENT              for good; `pause CLIENT` is how a static member leaves for a while
    wait TIME                 such as 3s or 500ms
    commit CLIENT T/P=OFFSET  epoch= claims another epoch
    describe, delete          what ConsumerGroupDescribe shows; deletes the group
    failover                  another coordinator takes over with nothing but the log

Members of the classic protocol, whose ids the coordinator makes:

    old-join CLIENT [...]     topics= static= session= rebalance= protocols=; it owns what its last sync brought, less
                              what `owns=` says if it is there
    old-sync CLIENT           also leads the group if it is a classic one: everything goes to the leader
    old-heartbeat, old-leave CLIENT
"""

from __future__ import annotations

from typing import Any

from play import Play, group_settings, number, pairs

from penstock.core.group.consumer.members import MemberState
from penstock.core.group.consumer.protocol import read_assignment
from penstock.core.group.contract import Effects
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages import consumer_group_records as records
from penstock.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.worlds.consumer_world import GROUP, ConsumerWorld, assignment, subscription


class Client:
    """What a client of the script remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = name
        self.instance_id: str | None = None
        self.epoch = 0
        self.told: list[TopicPartitions] = []
        self.reported: list[TopicPartitions] | None = None
        self.options: dict[str, str] = {}
        self.owned_by_name: dict[str, list[int]] = {}


class ConsumerScript(Play):
    """One play."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld()
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        self.asked: dict[int, tuple[Client, str]] = {}
        self.state = "-"

    def _after_event(self) -> None:
        listed = {row.group_id: f"{row.group_type} {row.group_state}" for row in self.world.shard.list_groups()}
        state = listed.get(GROUP, "-")
        if state != self.state:
            self.lines.append(f"group {self.state} -> {state}")
        self.state = state

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    def _set(self, arguments: list[str]) -> None:
        self.world = ConsumerWorld(group_settings(arguments))
        self.world.observer = self._observe

    def _topic(self, arguments: list[str]) -> None:
        self.world.observer = self._observe
        for name, count in pairs(arguments).items():
            self.world.put_topic(name, int(count))

    def _racks(self, arguments: list[str]) -> None:
        for place, racks in pairs(arguments).items():
            topic, partition = place.split("/")
            self.world.topics.rack_of[topic, int(partition)] = frozenset(racks.split(","))

    def _join(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        client.options = pairs(arguments[1:])
        client.instance_id = client.options.get("static")
        client.epoch, client.told, client.reported = 0, [], []
        self._beat(client, client.options, 0, [], client.options.get("rebalance", "60s"))

    def _heartbeat(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        options = pairs([word for word in arguments[1:] if word != "full"])
        full = "full" in arguments
        if full:
            options = {"topics": "t", **client.options, **options}
        reported = client.told if full or client.told != client.reported else None
        client.reported = client.told
        self._beat(client, options, int(options.get("epoch", client.epoch)), reported, "60s" if full else "-1")

    def _busy(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        self._beat(client, {}, client.epoch, None)

    def _leave(self, arguments: list[str]) -> None:
        self._beat(self._client(arguments[0]), {}, -1, None)

    def _pause(self, arguments: list[str]) -> None:
        self._beat(self._client(arguments[0]), {}, -2, None)

    def _beat(
        self,
        client: Client,
        options: dict[str, str],
        epoch: int,
        owned: list[TopicPartitions] | None,
        rebalance: str = "-1",
    ) -> None:
        topics = options.get("topics")
        names = topics.split(",") if topics else None
        if epoch == 0 and names is None and "regex" not in options:
            names = ["t"]
        request = ConsumerGroupHeartbeatRequest(
            GROUP,
            client.member_id,
            epoch,
            client.instance_id,
            options.get("rack"),
            number(rebalance),
            names,
            options.get("regex"),
            options.get("assignor"),
            owned,
        )
        self._ask(client, "consumer.heartbeat", request, 1)

    def _old_join(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        options = client.options = {**client.options, **pairs(arguments[1:])}
        client.instance_id = options.get("static")
        if client.member_id == client.name:
            client.member_id = ""
        owned = client.owned_by_name
        if "owns" in options:
            owned = {name: list(map(int, numbers.split(","))) for name, numbers in [options.pop("owns").split("/")]}
        metadata = subscription(options.get("topics", "t").split(","), owned)
        request = JoinGroupRequest(
            GROUP,
            number(options.get("session", "10s")),
            number(options.get("rebalance", "60s")),
            client.member_id,
            client.instance_id,
            "consumer",
            [JoinGroupRequestProtocol(name, metadata) for name in options.get("protocols", "range").split(",")],
        )
        self._ask(client, "join_group", request)
        if self.lines and self.lines[-1] == f"{client.name} join: MEMBER_ID_REQUIRED":
            self.lines.pop()
            self._ask(client, "join_group", request._replace(member_id=client.member_id))

    def _old_sync(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        everything = {name: list(range(count)) for name, count in self.world.topics.counts.items()}
        request = SyncGroupRequest(
            GROUP,
            client.epoch,
            client.member_id,
            client.instance_id,
            assignments=[SyncGroupRequestAssignment(client.member_id, assignment(everything))],
        )
        self._ask(client, "sync_group", request)

    def _old_heartbeat(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        self._ask(client, "heartbeat", HeartbeatRequest(GROUP, client.epoch, client.member_id, client.instance_id))

    def _old_leave(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        identity = MemberIdentity(client.member_id, client.instance_id)
        self._ask(client, "leave_group", LeaveGroupRequest(GROUP, members=[identity]), 5)

    def _wait(self, arguments: list[str]) -> None:
        self.world.advance(number(arguments[0]))

    def _commit(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        offsets = pairs(arguments[1:])
        epoch = int(offsets.pop("epoch", client.epoch))
        topics = []
        for place, offset in offsets.items():
            topic, partition = place.split("/")
            row = OffsetCommitRequestPartition(int(partition), int(offset))
            topics.append(OffsetCommitRequestTopic(topic, partitions=[row]))
        request = OffsetCommitRequest(GROUP, epoch, client.member_id, client.instance_id, topics=topics)
        self._ask(client, "offset_commit", request)

    def _describe(self, _arguments: list[str]) -> None:
        try:
            group = self.world.shard.consumer.describe(GROUP)
        except ApiError as error:
            self.lines.append(error.code.name)
            return
        epochs = f"epoch {group.group_epoch} assignment {group.assignment_epoch}"
        self.lines.append(f"{group.group_state} {epochs} by {group.assignor_name}")
        for member in group.members:
            has = self.world.shown(member.assignment.topic_partitions)
            target = self.world.shown(member.target_assignment.topic_partitions)
            kind = "classic " if member.member_type == 0 else ""
            name = f"{kind}member {self._name(member.member_id)}"
            self.lines.append(f"{name} epoch {member.member_epoch} has {has}, is to have {target}")

    def _delete(self, _arguments: list[str]) -> None:
        self.lines.append(f"delete: {ErrorCode(self.world.delete_group(GROUP)).name}")

    def _failover(self, _arguments: list[str]) -> None:
        self.asked.clear()
        self.world.reload()

    def _ask(self, client: Client, method: str, request: Any, version: int = 9) -> None:
        self.asked[self.world._next_token] = (client, method)
        self.world.ask(method, request, version, client.name)

    def _observe(self, effects: Effects) -> None:
        for token, response in effects.replies:
            if isinstance(response, JoinGroupResponse) and response.member_id:
                self.names[response.member_id] = self.asked[token][0].name  # type: ignore[index]
        for record in effects.records:
            self._note_record(record.key, record.value)
        for token, response in effects.replies:
            if token in self.asked:
                client, method = self.asked.pop(token)  # type: ignore[arg-type]
                self._note_response(client, method, response)

    def _note_record(self, key: Any, value: Any) -> None:
        text = None
        if isinstance(key, records.ConsumerGroupMetadataKey):
            text = "group deleted" if value is None else f"epoch {value.epoch}"
        elif isinstance(key, records.ConsumerGroupMemberMetadataKey):
            text = f"member {self._name(key.member_id)}{' gone' if value is None else ''}"
        elif isinstance(key, records.ConsumerGroupTargetAssignmentMetadataKey):
            text = None if value is None else f"target is for epoch {value.assignment_epoch}"
        elif isinstance(key, records.ConsumerGroupTargetAssignmentMemberKey) and value is not None:
            text = f"target of {self._name(key.member_id)} {self.world.shown(value.topic_partitions)}"
        elif isinstance(key, records.ConsumerGroupCurrentMemberAssignmentKey) and value is not None:
            owned, revoked = value.assigned_partitions, value.partitions_pending_revocation
            text = f"{self._name(key.member_id)} epoch {value.member_epoch} {MemberState(value.state).name}"
            text += f" owns {self.world.shown(owned)}"
            text += f", gives up {self.world.shown(revoked)}" if revoked else ""
        elif isinstance(key, records.ConsumerGroupRegularExpressionKey):
            text = f"pattern {key.regular_expression} " + ("gone" if value is None else f"is {' '.join(value.topics)}")
        elif isinstance(key, GroupMetadataKey):
            text = "classic group deleted" if value is None else f"classic generation {value.generation}"
        elif isinstance(key, OffsetCommitKey):
            text = f"{key.topic}/{key.partition} " + ("deleted" if value is None else str(value.offset))
        if text is not None:
            self.lines.append(f"record: {text}")

    def _note_response(self, client: Client, method: str, response: Any) -> None:
        if isinstance(response, OffsetCommitResponse):
            errors = {row.error_code for topic in response.topics for row in topic.partitions}
            self.lines.append(f"{client.name} commit: {' '.join(ErrorCode(error).name for error in sorted(errors))}")
            return
        verb = "heartbeat" if method.endswith("heartbeat") else method.split("_")[0]
        text = ErrorCode(response.error_code).name
        if isinstance(response, ConsumerGroupHeartbeatResponse) and not response.error_code:
            client.epoch = max(response.member_epoch, 0)
            text = f"epoch {response.member_epoch}"
            if response.assignment is not None:
                client.told = list(response.assignment.topic_partitions)
                text += f", owns {self.world.shown(client.told)}"
        elif isinstance(response, JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
            if not response.error_code:
                client.epoch = response.generation_id
                text = f"generation {response.generation_id} {response.protocol_name}"
        elif isinstance(response, SyncGroupResponse) and not response.error_code:
            rows = read_assignment(response.assignment).assigned_partitions if response.assignment else ()
            client.owned_by_name = {row.topic: list(row.partitions) for row in rows}
            parts = [f"{name}/{','.join(map(str, numbers))}" for name, numbers in client.owned_by_name.items()]
            text = f"owns {' '.join(parts) or 'nothing'}"
        self.lines.append(f"{client.name} {verb}: {text}")
