"""A leader changes the in-sync replicas of its partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.core.metadata.brokers import check_broker_epoch
from penstock.core.metadata.election_rules import ElectionRules, leader_check, rules_for
from penstock.core.metadata.image import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    Image,
    PartitionState,
    Topic,
    changed_state,
)
from penstock.core.metadata.partition_change import PartitionChange
from penstock.core.metadata.result import Result
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from penstock.wire.messages.metadata_records import PartitionChangeRecord

ANY_EPOCH = -1


def alter_partition(
    image: Image, request: AlterPartitionRequest, defaults: ElectionRules
) -> Result[list[AlterPartitionResponseTopicData]]:
    """Decide on an AlterPartition request; raises STALE_BROKER_EPOCH for an earlier incarnation of the broker."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    topics = []
    seen: set[tuple[bytes, int]] = set()
    for row in request.topics:
        topic = image.topics_by_id.get(row.topic_id)
        partitions = []
        for wanted in row.partitions:
            key = (row.topic_id, wanted.partition_index)
            if key in seen:
                partitions.append(_refusal(wanted, ErrorCode.INVALID_REQUEST))
            else:
                partitions.append(_alter(image, request.broker_id, topic, wanted, defaults, records))
            seen.add(key)
        topics.append(AlterPartitionResponseTopicData(row.topic_id, partitions))
    return Result(records, topics)


def pieces(request: AlterPartitionRequest, partitions_max: int) -> Iterator[AlterPartitionRequest]:
    """The same request in pieces of a bounded size, at least one; a topic may be in several."""
    topics: list[AlterPartitionRequestTopicData] = []
    room = partitions_max
    for topic in request.topics:
        rows = topic.partitions
        while len(rows) > room:
            topics.append(topic._replace(partitions=rows[:room]))
            rows = rows[room:]
            yield request._replace(topics=topics)
            topics, room = [], partitions_max
        topics.append(topic._replace(partitions=rows))
        room -= len(rows)
    yield request._replace(topics=topics)


def _alter(
    image: Image,
    broker_id: int,
    topic: Topic | None,
    wanted: AlterPartitionRequestPartitionData,
    defaults: ElectionRules,
    records: list[PartitionChangeRecord],
) -> AlterPartitionResponsePartitionData:
    if topic is None:
        return _refusal(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
    state = image.partition(topic.name, wanted.partition_index)
    if state is None:
        return _refusal(wanted, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Version 2 carries no epochs of the replicas, so they cannot be checked.
    new_isr = wanted.new_isr_with_epochs or [BrokerState(replica, ANY_EPOCH) for replica in wanted.new_isr]
    error = _problem(image, broker_id, state, wanted, new_isr)
    if error is not ErrorCode.NONE:
        return _refusal(wanted, error)
    change = PartitionChange(image, state, leader_check(image), rules_for(image, topic.name, defaults))
    change.in_sync_replicas = tuple(row.broker_id for row in new_isr)
    change.by_leader = True
    change.leader_recovery_state = wanted.leader_recovery_state
    record = change.build(topic.topic_id, wanted.partition_index)
    if record is not None:
        records.append(record)
        state = changed_state(state, record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The new ISR completed a reassignment, and the leader is not one of the remaining replicas.
            return _refusal(wanted, ErrorCode.NEW_LEADER_ELECTED)
    return AlterPartitionResponsePartitionData(
        wanted.partition_index,
        ErrorCode.NONE,
        state.leader,
        state.leader_epoch,
        state.in_sync_replicas,
        state.leader_recovery_state,
        state.partition_epoch,
    )


def _problem(
    image: Image,
    broker_id: int,
    state: PartitionState,
    wanted: AlterPartitionRequestPartitionData,
    new_isr: Sequence[BrokerState],
) -> ErrorCode:
    error = ErrorCode.NONE
    if wanted.leader_epoch > state.leader_epoch or wanted.partition_epoch > state.partition_epoch:
        # The leader knows newer state than we do: most likely we are no longer the active controller.
        error = ErrorCode.NOT_CONTROLLER
    elif wanted.leader_epoch < state.leader_epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif broker_id != state.leader:
        error = ErrorCode.INVALID_REQUEST
    elif wanted.partition_epoch < state.partition_epoch:
        error = ErrorCode.INVALID_UPDATE_VERSION
    elif not (_possible_isr(state, new_isr) and _possible_recovery(state, wanted, new_isr)):
        error = ErrorCode.INVALID_REQUEST
    elif not all(_eligible(image, state, row) for row in new_isr):
        error = ErrorCode.INELIGIBLE_REPLICA
    return error


def _possible_isr(state: PartitionState, new_isr: Sequence[BrokerState]) -> bool:
    replicas = {row.broker_id for row in new_isr}
    return len(replicas) == len(new_isr) and replicas <= set(state.replicas) and state.leader in replicas


def _possible_recovery(
    state: PartitionState, wanted: AlterPartitionRequestPartitionData, new_isr: Sequence[BrokerState]
) -> bool:
    """A leader that recovers from an unclean election is alone in the ISR, and one that has recovered stays so."""
    if wanted.leader_recovery_state == RECOVERED:
        return True
    return wanted.leader_recovery_state == RECOVERING == state.leader_recovery_state and len(new_isr) == 1


def _eligible(image: Image, state: PartitionState, wanted: BrokerState) -> bool:
    broker = image.brokers.get(wanted.broker_id)
    if broker is None or not broker.active or wanted.broker_epoch not in (ANY_EPOCH, broker.epoch):
        return False
    # What was replicated into a directory that failed may be gone. A damaged replica may be about to begin anew.
    return broker.has_online_directory(state.directory(wanted.broker_id))


def _refusal(wanted: AlterPartitionRequestPartitionData, error: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(wanted.partition_index, error, leader_id=NO_LEADER)
