"""Plays a script of events of share groups (KIP-932) and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Clients are called by names, which are
their member ids, too. Time stands still except for `wait`.

    set NAME=VALUE ...        settings of the coordinator, before the first event
    topic NAME=COUNT ...      topics come or grow; a count of 0 deletes one
    join CLIENT [topics=...]  its first heartbeat
    heartbeat CLIENT [...]    topics= changes its subscription, epoch= claims another epoch, rack= too
    leave CLIENT
    wait TIME                 such as 3s or 500ms
    state                     the share coordinator has done what it was last asked for; `state fails` says it could not
    alter T/P=OFFSET ...      has an empty group start elsewhere
    forget TOPIC ...          deletes the state of topics
    describe, delete          what ShareGroupDescribe shows; deletes the group with its state
    failover                  another coordinator takes over with nothing but the log
    classic-join, consumer-join CLIENT  members of other kinds of groups, in the same group
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from play import Play, group_settings, number, pairs

from penstock.core.group.assignors.contract import Partitions, group_by_topic
from penstock.core.group.contract import Effects
from penstock.core.group.share.partitions import NewState
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import delete_share_group_offsets as deleting
from penstock.wire.messages import share_group_records as records
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from support.worlds.consumer_world import GROUP, ConsumerWorld, PartitionsOf, subscription


class ShareScript(Play):
    """One play."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld()
        self.world.observer = self._observe
        self.epochs: dict[str, int] = {}
        self.asked: list[NewState] = []
        self.state = "-"

    def _after_event(self) -> None:
        listed = {row.group_id: f"{row.group_type} {row.group_state}" for row in self.world.shard.list_groups()}
        state = listed.get(GROUP, "-")
        if state != self.state:
            self.lines.append(f"group {self.state} -> {state}")
        self.state = state

    def _set(self, arguments: list[str]) -> None:
        self.world = ConsumerWorld(group_settings(arguments))
        self.world.observer = self._observe

    def _topic(self, arguments: list[str]) -> None:
        for name, count in pairs(arguments).items():
            self.world.put_topic(name, int(count))

    def _join(self, arguments: list[str]) -> None:
        self._beat(arguments[0], {"topics": "t", **pairs(arguments[1:]), "epoch": "0"})

    def _heartbeat(self, arguments: list[str]) -> None:
        self._beat(arguments[0], pairs(arguments[1:]))

    def _leave(self, arguments: list[str]) -> None:
        self._beat(arguments[0], {"epoch": "-1"})

    def _beat(self, client: str, options: dict[str, str]) -> None:
        epoch = int(options.get("epoch", self.epochs.get(client, 0)))
        names = options["topics"].split(",") if "topics" in options else None
        request = ShareGroupHeartbeatRequest(GROUP, client, epoch, options.get("rack"), names)
        token = self.world.ask("share.heartbeat", request, 1, client)
        response, to_initialize = self.world.responses.pop(token)
        if response.error_code:
            self.lines.append(f"{client}: {ErrorCode(response.error_code).name}")
            return
        self.epochs[client] = response.member_epoch
        text = f"{client}: epoch {response.member_epoch}"
        if response.assignment is not None:
            text += f", has {self.world.shown(response.assignment.topic_partitions)}"
        self.lines.append(text)
        self._note_asked(to_initialize)

    def _note_asked(self, states: list[NewState]) -> None:
        if states:
            self.asked = states
            offsets = {state.start_offset for state in states} - {-1}
            where = f" at {' '.join(map(str, sorted(offsets)))}" if offsets else ""
            shown = self._shown(_partitions(states))
            self.lines.append(f"to initialize: {shown} in state epoch {states[0].state_epoch}{where}")

    def _shown(self, partitions: Partitions) -> str:
        return self.world.shown([PartitionsOf(*row) for row in partitions.items()])

    def _state(self, arguments: list[str]) -> None:
        done = _partitions(self.asked)
        good, bad = ({}, done) if arguments == ["fails"] else (done, {})
        self._tell(lambda token: self.world.shard.share.initialized(GROUP, good, bad, token))

    def _tell(self, event: Callable[[int], Effects]) -> Any:
        token = self.world._next_token
        self.world._next_token += 1
        self.world.tokens_open.add(token)
        self.world.perform(event(token))
        answer = self.world.responses.pop(token)
        if isinstance(answer, ApiError):
            self.lines.append(answer.code.name)
            return None
        return answer

    def _alter(self, arguments: list[str]) -> None:
        topics = []
        for place, offset in pairs(arguments).items():
            topic, partition = place.split("/")
            row = altering.AlterShareGroupOffsetsRequestPartition(int(partition), int(offset))
            topics.append(altering.AlterShareGroupOffsetsRequestTopic(topic, [row]))
        request = altering.AlterShareGroupOffsetsRequest(GROUP, topics)
        result = self._tell(lambda token: self.world.shard.share.alter_offsets(request, token, self.world.now_ms))
        if result is not None:
            for topic in result.topics:
                for row in topic.partitions:
                    self.lines.append(f"{topic.topic_name}/{row.partition_index}: {ErrorCode(row.error_code).name}")
            self._note_asked(result.to_initialize)

    def _forget(self, arguments: list[str]) -> None:
        topics = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in arguments]
        request = deleting.DeleteShareGroupOffsetsRequest(GROUP, topics)
        result = self._tell(lambda token: self.world.shard.share.begin_delete_offsets(request, token))
        if result is None:
            return
        for row in result.refused:
            self.lines.append(f"{row.topic_name}: {ErrorCode(row.error_code).name}")
        if result.to_delete:
            self.lines.append(f"to delete: {self._shown(result.to_delete)} up to state epoch {result.state_epoch}")
            self._tell(lambda token: self.world.shard.share.deleted(GROUP, result.to_delete, token))

    def _delete(self, _arguments: list[str]) -> None:
        result = self._tell(lambda token: self.world.shard.share.begin_delete(GROUP, token))
        if result is not None:
            if result.to_delete:
                self.lines.append(f"to delete: {self._shown(result.to_delete)} up to state epoch {result.state_epoch}")
            self.lines.append(f"delete: {ErrorCode(self.world.delete_group(GROUP)).name}")

    def _describe(self, _arguments: list[str]) -> None:
        try:
            group = self.world.shard.share.describe(GROUP)
        except ApiError as error:
            self.lines.append(error.code.name)
            return
        epochs = f"epoch {group.group_epoch} assignment {group.assignment_epoch}"
        self.lines.append(f"{group.group_state} {epochs} by {group.assignor_name}")
        for member in group.members:
            has = self.world.shown(member.assignment.topic_partitions)
            self.lines.append(f"member {member.member_id} epoch {member.member_epoch} has {has}")

    def _wait(self, arguments: list[str]) -> None:
        self.world.advance(number(arguments[0]))

    def _failover(self, _arguments: list[str]) -> None:
        self.world.reload()

    def _classic_join(self, arguments: list[str]) -> None:
        protocol = JoinGroupRequestProtocol("range", subscription(["t"]))
        request = JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", [protocol])
        self._other(arguments[0], self.world.ask("join_group", request, 3, arguments[0]))

    def _consumer_join(self, arguments: list[str]) -> None:
        request = ConsumerGroupHeartbeatRequest(GROUP, arguments[0], 0, None, None, 60_000, ["t"], None, None, [])
        self._other(arguments[0], self.world.ask("consumer.heartbeat", request, 1, arguments[0]))

    def _other(self, client: str, token: int) -> None:
        response = self.world.responses.pop(token, None)
        self.lines.append(f"{client}: {'waits' if response is None else ErrorCode(response.error_code).name}")

    def _observe(self, effects: Effects) -> None:
        for record in effects.records:
            text = self._noted(record.key, record.value)
            if text is not None:
                self.lines.append(f"record: {text}")

    def _noted(self, key: Any, value: Any) -> str | None:
        if isinstance(key, records.ShareGroupMetadataKey):
            return "group deleted" if value is None else f"epoch {value.epoch}"
        if isinstance(key, records.ShareGroupMemberMetadataKey):
            return f"member {key.member_id}{' gone' if value is None else ''}"
        if value is None:
            return None
        if isinstance(key, records.ShareGroupTargetAssignmentMetadataKey):
            return f"target is for epoch {value.assignment_epoch}"
        if isinstance(key, records.ShareGroupTargetAssignmentMemberKey):
            return f"target of {key.member_id} {self.world.shown(value.topic_partitions)}"
        if isinstance(key, records.ShareGroupCurrentMemberAssignmentKey):
            return f"{key.member_id} epoch {value.member_epoch} has {self.world.shown(value.assigned_partitions)}"
        if isinstance(key, records.ShareGroupStatePartitionMetadataKey):
            parts = []
            if value.initializing_topics:
                parts.append(f"initializing {self.world.shown(value.initializing_topics)}")
            if value.initialized_topics:
                parts.append(f"initialized {self.world.shown(value.initialized_topics)}")
            if value.deleting_topics:
                parts.append("deleting " + " ".join(row.topic_name for row in value.deleting_topics))
            return f"state {', '.join(parts) or 'of nothing'}"
        return None


def _partitions(states: list[NewState]) -> Partitions:
    return group_by_topic((state.topic_id, state.partition) for state in states)
