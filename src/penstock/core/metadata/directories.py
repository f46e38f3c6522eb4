"""Which log directory each replica of a broker is in."""

from __future__ import annotations

from penstock.core.metadata.brokers import RESERVED_DIRECTORIES, check_broker_epoch
from penstock.core.metadata.election_rules import ElectionRules, leader_check, rules_for
from penstock.core.metadata.image import LOST_DIRECTORY, Broker, Image, PartitionState
from penstock.core.metadata.partition_change import PartitionChange
from penstock.core.metadata.result import Result
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from penstock.wire.messages.metadata_records import PartitionChangeRecord

# Brokers of Apache Kafka do not report which state of the partition they know.
ANY_EPOCH = -1


def assign_replicas(
    image: Image, request: AssignReplicasToDirsRequest, defaults: ElectionRules
) -> Result[list[AssignReplicasToDirsResponseDirectoryData]]:
    """Decide on an AssignReplicasToDirs request; raises STALE_BROKER_EPOCH for an earlier incarnation of the broker.

    A replica that the broker cannot open, although its directory works, is reported in the reserved directory LOST. So
    is one that it found damaged and can still read (`kept_records`); that one is only taken out of service where other
    replicas suffice.

    Where a replica leaves LOST or enters it, or begins anew, the report must be about the partition as it is
    (`partition_epoch`). One that arrives late is refused with INVALID_UPDATE_VERSION, and changes nothing of a replica
    that has begun anew since. One that is repeated changes nothing either.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    seen: set[tuple[Uuid, int]] = set()
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            rows = []
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                error = ErrorCode.INVALID_REQUEST
                is_assignable = directory.id == LOST_DIRECTORY or directory.id not in RESERVED_DIRECTORIES
                if key not in seen and is_assignable:
                    error = _assign(image, broker, directory.id, topic.topic_id, row, defaults, records)
                seen.add(key)
                rows.append(AssignReplicasToDirsResponsePartitionData(row.partition_index, error))
            topics.append(AssignReplicasToDirsResponseTopicData(topic.topic_id, rows))
        directories.append(AssignReplicasToDirsResponseDirectoryData(directory.id, topics))
    return Result(records, directories)


def _assign(
    image: Image,
    broker: Broker,
    directory: Uuid,
    topic_id: Uuid,
    row: AssignReplicasToDirsRequestPartitionData,
    defaults: ElectionRules,
    records: list[PartitionChangeRecord],
) -> ErrorCode:
    topic, index = image.topics_by_id.get(topic_id), row.partition_index
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    state = topic.partitions[index]
    broker_id = broker.broker_id
    if broker_id not in state.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    rules = rules_for(image, topic.name, defaults)
    former = state.directory(broker_id)
    # The directory that it was in may be gone, and with it the records that made the replica eligible.
    begins_anew = not row.kept_records and directory != former and not broker.has_online_directory(former)
    if row.partition_epoch not in (ANY_EPOCH, state.partition_epoch):
        if directory == former:
            return ErrorCode.NONE
        if begins_anew or LOST_DIRECTORY in (directory, former):
            return ErrorCode.INVALID_UPDATE_VERSION
    if directory == LOST_DIRECTORY and row.kept_records:
        return _retire_damaged(image, broker_id, topic_id, index, state, rules, records)
    can_lead = leader_check(image, without=broker_id if begins_anew else -1)
    change = PartitionChange(image, state, can_lead, rules)
    change.set_directory(broker_id, directory)
    if begins_anew:
        change.emptied = broker_id
        change.disproves_progress = former == LOST_DIRECTORY
    if not broker.has_online_directory(directory):
        change.in_sync_replicas = tuple(replica for replica in state.in_sync_replicas if replica != broker_id)
    record = change.build(topic_id, index)
    if record is not None:
        records.append(record)
    return ErrorCode.NONE


def _retire_damaged(
    image: Image,
    broker_id: int,
    topic_id: Uuid,
    index: int,
    state: PartitionState,
    rules: ElectionRules,
    records: list[PartitionChangeRecord],
) -> ErrorCode:
    """Take a damaged replica out of service where as many others are in sync as a commit needs, or all others are.

    Where fewer are it stays in sync, since it has everything but what is damaged, and another one leads
    (NOT_ENOUGH_REPLICAS). Where none is, or it is all that could be elected, nothing changes
    (ELIGIBLE_LEADERS_NOT_AVAILABLE): it is the last copy.
    """
    if state.directory(broker_id) == LOST_DIRECTORY:
        # A repeated report, whose first answer was lost. It may be eligible still.
        return ErrorCode.NONE
    can_lead = leader_check(image)
    others = [one for one in state.in_sync_replicas if one != broker_id and can_lead(state, one)]
    change = PartitionChange(image, state, can_lead, rules)
    error = ErrorCode.NONE
    if not others or broker_id in state.eligible_leader_replicas:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if broker_id in state.in_sync_replicas and len(others) < min(rules.min_insync_replicas, len(state.replicas) - 1):
        change.avoid = (broker_id,)
        error = ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        change.set_directory(broker_id, LOST_DIRECTORY)
        change.in_sync_replicas = tuple(replica for replica in state.in_sync_replicas if replica != broker_id)
    record = change.build(topic_id, index)
    if record is not None:
        records.append(record)
    return error
