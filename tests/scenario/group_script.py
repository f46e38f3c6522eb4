"""Plays a script of group events and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Clients are called by names of one
letter or word; the member ids that they get are shown as those names. Time stands still except for `wait`.

    set NAME=VALUE ...           settings of the coordinator, before the first event
    join CLIENT [OPTION ...]     session= rebalance= topics= protocols= static= version= type=; with `once` a client
                                 that is asked to come back with an id does not
    sync CLIENT [NAME=PART ...]  the leader names everybody's part
    heartbeat CLIENT             generation= claims another generation
    commit CLIENT T/P=OFFSET     generation= claims another one; `commit nobody ...` commits without being a member
    fetch T/P ...                what is committed
    leave CLIENT ...             or `leave static=INSTANCE`, which an administrator does
    restart CLIENT               the client forgets its member id
    wait TIME                    such as 3s or 500ms
    expire, delete, describe     of offsets, of the group, and what DescribeGroups shows
    failover                     another coordinator takes over with nothing but the log
    unload                       the coordinator goes away
"""

from __future__ import annotations

from typing import Any

from play import Play, group_settings, number, pairs

from penstock.core.group.contract import Effects
from penstock.model.errors import ErrorCode
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from penstock.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from support.worlds.group_world import GroupWorld

GROUP = "g"
DEFAULT_VERSION = 9


class Client:
    """What a client of the script remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.instance_id: str | None = None
        self.generation = -1
        self.options: dict[str, str] = {}


class GroupScript(Play):
    """One play."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.clients: dict[str, Client] = {}
        self.names: dict[str, str] = {}
        self.asked: dict[int, tuple[Client, str]] = {}
        self.state = "-"

    def _after_event(self) -> None:
        listed = {row.group_id: row.group_state for row in self.world.shard.list_groups()}
        state = listed.get(GROUP, "-")
        if state != self.state:
            self.lines.append(f"group {self.state} -> {state}")
        self.state = state

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _name(self, member_id: str | None) -> str:
        return self.names.get(member_id or "", member_id or "-")

    def _set(self, arguments: list[str]) -> None:
        self.world = GroupWorld(group_settings(arguments))
        self.world.observer = self._observe

    def _join(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        given = pairs([word for word in arguments[1:] if "=" in word])
        client.options = options = {**client.options, **given}
        if "static" in given:
            client.instance_id = given["static"]
        metadata = _subscription(options.get("topics", "t").split(","))
        request = JoinGroupRequest(
            GROUP,
            number(options.get("session", "10s")),
            number(options.get("rebalance", "60s")),
            client.member_id,
            client.instance_id,
            options.get("type", "consumer"),
            [JoinGroupRequestProtocol(name, metadata) for name in options.get("protocols", "range").split(",")],
        )
        version = int(options.get("version", DEFAULT_VERSION))
        self._ask(client, "join_group", request, version)
        if self.lines and self.lines[-1] == f"{client.name} join: MEMBER_ID_REQUIRED" and "once" not in arguments:
            self.lines.pop()
            self._ask(client, "join_group", request._replace(member_id=client.member_id), version)

    def _sync(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        parts = pairs(arguments[1:])
        generation = int(parts.pop("generation", client.generation))
        assignments = [
            SyncGroupRequestAssignment(self._client(name).member_id, part.encode()) for name, part in parts.items()
        ]
        request = SyncGroupRequest(GROUP, generation, client.member_id, client.instance_id, assignments=assignments)
        self._ask(client, "sync_group", request)

    def _heartbeat(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        generation = int(pairs(arguments[1:]).get("generation", client.generation))
        request = HeartbeatRequest(GROUP, generation, client.member_id, client.instance_id)
        self._ask(client, "heartbeat", request)

    def _commit(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        offsets = pairs(arguments[1:])
        generation = int(offsets.pop("generation", client.generation))
        topics = []
        for place, offset in offsets.items():
            topic, partition = place.split("/")
            row = OffsetCommitRequestPartition(int(partition), int(offset))
            topics.append(OffsetCommitRequestTopic(topic, partitions=[row]))
        request = OffsetCommitRequest(GROUP, generation, client.member_id, client.instance_id, topics=topics)
        self._ask(client, "offset_commit", request)

    def _fetch(self, arguments: list[str]) -> None:
        topics = []
        for place in arguments:
            topic, partition = place.split("/")
            topics.append(OffsetFetchRequestTopics(topic, partition_indexes=[int(partition)]))
        request = OffsetFetchRequestGroup(GROUP, topics=topics)
        found = self.world.shard.offset_fetch_group(request, False, None)  # type: ignore[arg-type]
        for row in found.topics:
            for partition_row in row.partitions:
                self.lines.append(f"{row.name}/{partition_row.partition_index} is {partition_row.committed_offset}")

    def _leave(self, arguments: list[str]) -> None:
        identities = []
        for word in arguments:
            if word.startswith("static="):
                identities.append(MemberIdentity("", word.removeprefix("static=")))
            else:
                client = self._client(word)
                identities.append(MemberIdentity(client.member_id, client.instance_id))
        self._ask(Client("-"), "leave_group", LeaveGroupRequest(GROUP, members=identities), 5)

    def _restart(self, arguments: list[str]) -> None:
        client = self._client(arguments[0])
        # Its former id is shown with a mark from now on, so that a fenced request can be told from a new one.
        if client.member_id:
            self.names[client.member_id] = f"old-{client.name}"
        former = self._client(f"old-{client.name}")
        former.member_id, former.generation = client.member_id, client.generation
        former.instance_id, former.options = client.instance_id, client.options
        self.asked = {token: (former if who is client else who, what) for token, (who, what) in self.asked.items()}
        client.member_id, client.generation = "", -1

    def _wait(self, arguments: list[str]) -> None:
        self.world.advance(number(arguments[0]))

    def _expire(self, arguments: list[str]) -> None:  # noqa: ARG002
        for effects in self.world.shard.expire_offsets(self.world.now_ms):
            self.world.perform(effects)

    def _delete(self, arguments: list[str]) -> None:  # noqa: ARG002
        error = self.world.delete_group(GROUP)
        self.lines.append(f"delete: {ErrorCode(error).name}")

    def _describe(self, arguments: list[str]) -> None:  # noqa: ARG002
        group = self.world.shard.describe_group(GROUP)
        self.lines.append(f"{group.group_state} type={group.protocol_type} protocol={group.protocol_data}")
        for member in group.members:
            static = f" static={member.group_instance_id}" if member.group_instance_id else ""
            self.lines.append(f"member {self._name(member.member_id)}{static} has {member.member_assignment.decode()}")

    def _failover(self, arguments: list[str]) -> None:  # noqa: ARG002
        self.asked.clear()
        self.world.reload()

    def _unload(self, arguments: list[str]) -> None:  # noqa: ARG002
        self.world.perform(self.world.shard.unloaded())

    def _ask(self, client: Client, method: str, request: Any, version: int = DEFAULT_VERSION) -> None:
        self.asked[self.world._next_token] = (client, method)
        self.world.ask(method, request, version, client.name)

    def _observe(self, effects: Effects) -> None:
        # Ids first: records and responses of one event may show the same new member.
        for token, response in effects.replies:
            if isinstance(response, JoinGroupResponse) and response.member_id:
                client = self.asked[token][0]  # type: ignore[index]
                if response.member_id not in self.names and response.member_id.startswith(
                    (f"{client.name}-", f"{client.instance_id}-")
                ):
                    self.names[response.member_id] = client.name
        for record in effects.records:
            self._note_record(record.key, record.value)
        for token, response in effects.replies:
            if token in self.asked:
                client, method = self.asked.pop(token)
                self._note_response(client, method, response)

    def _note_record(self, key: Any, value: Any) -> None:
        if isinstance(key, GroupMetadataKey):
            if value is None:
                self.lines.append("record: group deleted")
                return
            parts = " ".join(f"{self._name(row.member_id)}={row.assignment.decode()}" for row in value.members)
            self.lines.append(f"record: generation {value.generation} {parts or 'empty'}")
        elif isinstance(key, OffsetCommitKey):
            text = "deleted" if value is None else str(value.offset)
            self.lines.append(f"record: {key.topic}/{key.partition} {text}")

    def _note_response(self, client: Client, method: str, response: Any) -> None:
        verb = method.split("_")[0] if method != "offset_commit" else "commit"
        if isinstance(response, LeaveGroupResponse):
            for row in response.members:
                who = self._name(row.member_id) if row.member_id else f"static={row.group_instance_id}"
                self.lines.append(f"{who} leave: {ErrorCode(row.error_code).name}")
            return
        if isinstance(response, OffsetCommitResponse):
            errors = {row.error_code for topic in response.topics for row in topic.partitions}
            self.lines.append(f"{client.name} commit: {' '.join(ErrorCode(error).name for error in sorted(errors))}")
            return
        text = ErrorCode(response.error_code).name
        if isinstance(response, JoinGroupResponse):
            if response.member_id and response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
                self.names[response.member_id] = client.name
            if not response.error_code:
                client.generation = response.generation_id
                text = self._joined(response)
        elif isinstance(response, SyncGroupResponse) and not response.error_code:
            text = f"has {response.assignment.decode() or 'nothing'}"
        self.lines.append(f"{client.name} {verb}: {text}")

    def _joined(self, response: JoinGroupResponse) -> str:
        text = f"generation {response.generation_id} {response.protocol_name} leader={self._name(response.leader)}"
        if response.members:
            text += f" members={','.join(self._name(row.member_id) for row in response.members)}"
        return text + (" skip-assignment" if response.skip_assignment else "")


def _subscription(topics: list[str]) -> bytes:
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=topics), 1)
