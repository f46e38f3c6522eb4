"""Plays a script of events of streams groups (KIP-1071) and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Clients are called by names, which are
their member ids, and their processes unless they say otherwise. Time stands still except for `wait`.

    set NAME=VALUE ...        settings of the coordinator, before the first event
    config NAME=VALUE ...     settings of the group
    topic NAME=COUNT ...      topics come or grow; a count of 0 deletes one
    join CLIENT [...]         its first heartbeat: topology=simple, counts, joined or fixed, version= its epoch;
                              process=, endpoint=, rack=, instance=
    heartbeat CLIENT [...]    it owns what it was last given; epoch= claims another epoch, owns= other tasks, endpoints=
                              what it knows of the others' endpoints
    busy CLIENT               a heartbeat that does not say what it owns
    shutdown CLIENT           a heartbeat that asks for the end of the whole application
    leave CLIENT
    create                    the internal topics that are missing are created
    commit CLIENT T/P [epoch=] commits an offset of a partition
    wait TIME                 such as 3s or 500ms
    describe, delete          what StreamsGroupDescribe shows; deletes the group
    failover                  another coordinator takes over with nothing but the log
    classic-join, consumer-join CLIENT  members of other kinds of groups, in the same group

Topologies: `simple` reads t. `counts` reads t, repartitions through r, and counts into c. `joined` joins t and u. In
`fixed` the repartition topic r has three partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from play import Play, group_settings, number, pairs

from penstock.core.group.contract import Effects
from penstock.core.group.streams.internal_topics import InternalTopic
from penstock.core.group.streams.members import MemberState
from penstock.core.group.streams.status import StatusCode
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages import streams_group_records as records
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from support.worlds.consumer_world import GROUP, ConsumerWorld, subscription

REPARTITION, CHANGELOG = TopicInfo("r"), TopicInfo("c")
TOPOLOGIES = {
    "simple": [Subtopology("0", ["t"])],
    "counts": [
        Subtopology("0", ["t"], repartition_sink_topics=["r"]),
        Subtopology("1", state_changelog_topics=[CHANGELOG], repartition_source_topics=[REPARTITION]),
    ],
    "joined": [Subtopology("0", ["t", "u"], copartition_groups=[CopartitionGroup([0, 1])])],
    "fixed": [
        Subtopology("0", ["t"], repartition_sink_topics=["r"]),
        Subtopology("1", state_changelog_topics=[CHANGELOG], repartition_source_topics=[TopicInfo("r", 3)]),
    ],
}


class StreamsScript(Play):
    """One play."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerWorld()
        self.world.observer = self._observe
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, tuple[Any, Any]] = {}
        self.missing: list[InternalTopic] = []
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

    def _config(self, arguments: list[str]) -> None:
        self.world.configs[GROUP] = pairs(arguments)

    def _topic(self, arguments: list[str]) -> None:
        for name, count in pairs(arguments).items():
            self.world.put_topic(name, int(count))

    def _create(self, _arguments: list[str]) -> None:
        for topic in self.missing:
            self.world.put_topic(topic.name, topic.partitions)
            self.lines.append(f"created {topic.name} with {topic.partitions} partitions")

    def _join(self, arguments: list[str]) -> None:
        client, options = arguments[0], pairs(arguments[1:])
        rows = TOPOLOGIES[options.get("topology", "simple")]
        endpoint = options.get("endpoint")
        request = StreamsGroupHeartbeatRequest(
            GROUP,
            client,
            0,
            int(options.get("endpoints", "0")),
            options.get("instance"),
            options.get("rack"),
            60_000,
            Topology(int(options.get("version", "0")), rows),
            [],
            [],
            [],
            options.get("process", client),
            None if endpoint is None else Endpoint(endpoint, 80),
            [],
        )
        self._beat(client, request)

    def _heartbeat(self, arguments: list[str]) -> None:
        client, options = arguments[0], pairs(arguments[1:])
        active, standby = self.owned.get(client, ([], []))
        if "owns" in options:
            active = _tasks(options["owns"])
        request = StreamsGroupHeartbeatRequest(
            GROUP,
            client,
            int(options.get("epoch", self.epochs.get(client, 0))),
            int(options.get("endpoints", "0")),
            active_tasks=active,
            standby_tasks=standby,
            warmup_tasks=[],
        )
        self._beat(client, request)

    def _busy(self, arguments: list[str]) -> None:
        self._beat(arguments[0], StreamsGroupHeartbeatRequest(GROUP, arguments[0], self.epochs[arguments[0]]))

    def _shutdown(self, arguments: list[str]) -> None:
        client = arguments[0]
        request = StreamsGroupHeartbeatRequest(GROUP, client, self.epochs[client], shutdown_application=True)
        self._beat(client, request)

    def _leave(self, arguments: list[str]) -> None:
        self._beat(arguments[0], StreamsGroupHeartbeatRequest(GROUP, arguments[0], -1))

    def _beat(self, client: str, request: StreamsGroupHeartbeatRequest) -> None:
        response, missing = self.world.answer("streams.heartbeat", request, 0, client)
        if response.error_code:
            self.lines.append(f"{client}: {ErrorCode(response.error_code).name} {response.error_message}")
            return
        self.missing = missing
        self.epochs[client] = response.member_epoch
        text = f"{client}: epoch {response.member_epoch}"
        if response.active_tasks is not None:
            self.owned[client] = (response.active_tasks, response.standby_tasks)
            text += f", has {_shown(*self.owned[client])}"
        self.lines.append(text)
        for row in response.status:
            self.lines.append(f"status {StatusCode(row.status_code).name}: {row.status_detail}")
        if response.partitions_by_user_endpoint is not None:
            self.lines.append(f"endpoints of epoch {response.endpoint_information_epoch}:")
            for row in response.partitions_by_user_endpoint:
                parts = [f"{part.topic}/{','.join(map(str, part.partitions))}" for part in row.active_partitions]
                self.lines.append(f"  {row.user_endpoint.host} {' '.join(parts)}".rstrip())

    def _commit(self, arguments: list[str]) -> None:
        client, place = arguments[:2]
        topic, partition = place.split("/")
        epoch = int(pairs(arguments[2:]).get("epoch", self.epochs.get(client, -1)))
        row = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(int(partition), 1)])
        response = self.world.answer("offset_commit", OffsetCommitRequest(GROUP, epoch, client, None, topics=[row]))
        self.lines.append(f"{client}: {ErrorCode(response.topics[0].partitions[0].error_code).name}")

    def _describe(self, _arguments: list[str]) -> None:
        try:
            group = self.world.shard.streams.describe(GROUP)
        except ApiError as error:
            self.lines.append(error.code.name)
            return
        self.lines.append(f"{group.group_state} epoch {group.group_epoch} assignment {group.assignment_epoch}")
        for row in group.topology.subtopologies or () if group.topology else ():
            text = f"subtopology {row.subtopology_id} reads {','.join(row.source_topics) or '-'}"
            for name, topics in (
                ("repartitions", row.repartition_source_topics),
                ("changelogs", row.state_changelog_topics),
            ):
                if topics:
                    text += f", {name} {' '.join(f'{topic.name}={topic.partitions}' for topic in topics)}"
            self.lines.append(text)
        for member in group.members:
            has = _shown(member.assignment.active_tasks, member.assignment.standby_tasks)
            target = _shown(member.target_assignment.active_tasks, member.target_assignment.standby_tasks)
            where = f" at {member.process_id}"
            self.lines.append(
                f"member {member.member_id} epoch {member.member_epoch}{where} has {has}, is to have {target}"
            )

    def _delete(self, _arguments: list[str]) -> None:
        self.lines.append(ErrorCode(self.world.delete_group(GROUP)).name)

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
            text = _noted(record.key, record.value)
            if text is not None:
                self.lines.append(f"record: {text}")


def _noted(key: Any, value: Any) -> str | None:
    if isinstance(key, records.StreamsGroupMetadataKey):
        if value is None:
            return "group deleted"
        return f"epoch {value.epoch}{'' if value.validated_topology_epoch >= 0 else ', not ready'}"
    if isinstance(key, records.StreamsGroupMemberMetadataKey):
        return f"member {key.member_id}{' gone' if value is None else ''}"
    if value is None:
        return None
    if isinstance(key, records.StreamsGroupTopologyKey):
        return f"topology {value.epoch}"
    if isinstance(key, records.StreamsGroupTargetAssignmentMetadataKey):
        return f"target is for epoch {value.assignment_epoch}"
    if isinstance(key, records.StreamsGroupTargetAssignmentMemberKey):
        return f"target of {key.member_id} {_shown(value.active_tasks, value.standby_tasks)}"
    if isinstance(key, records.StreamsGroupCurrentMemberAssignmentKey):
        state = MemberState(value.state).name
        text = (
            f"{key.member_id} epoch {value.member_epoch} {state} has {_shown(value.active_tasks, value.standby_tasks)}"
        )
        pending = _shown(value.active_tasks_pending_revocation, value.standby_tasks_pending_revocation)
        return text if pending == "nothing" else f"{text}, gives up {pending}"
    return None


def _tasks(text: str) -> list[TaskIds]:
    rows = [part.split("/") for part in text.split("+") if part != "nothing"]
    return [TaskIds(name, list(map(int, numbers.split(",")))) for name, numbers in rows]


def _shown(active: Iterable[Any], standby: Iterable[Any]) -> str:
    parts = [f"{row.subtopology_id}/{','.join(map(str, row.partitions))}" for row in active]
    parts += [f"standby {row.subtopology_id}/{','.join(map(str, row.partitions))}" for row in standby]
    return " ".join(parts) or "nothing"
