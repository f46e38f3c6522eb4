"""Moves replicas to other brokers.

A reassignment adds the replicas of its target, lists those that will be removed in `removing_replicas`, and completes
by itself once every replica of the target is in sync. Cancelling it removes the added ones again. Where that would
leave a single replica in sync, or eligible where none is in sync, although an added one has everything too, what both
acknowledged may be on no disk yet: then the added ones are removed like any others, once the earlier ones are in sync,
or the only one has confirmed that it holds everything.

A replica that was added and is on its way out again is in both lists, whether its reassignment was cancelled or got
another target. The replicas before the reassignment are those that are not in `adding_replicas`, so that a request that
comes twice, or after that one, starts from the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.metadata.election_rules import ElectionRules, leader_check, rules_for
from penstock.core.metadata.image import Image, PartitionState, Topic
from penstock.core.metadata.partition_change import PartitionChange
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.wire.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.wire.messages.metadata_records import PartitionChangeRecord


def alter_reassignments(
    image: Image,
    wanted: Sequence[ReassignableTopic],
    defaults: ElectionRules,
    records_max: int,
    *,
    allow_replication_factor_change: bool = True,
) -> Result[list[ReassignableTopicResponse]]:
    """Decide on an AlterPartitionReassignments request, partition by partition."""
    records: list[PartitionChangeRecord] = []
    responses = []
    seen: set[tuple[str, int]] = set()
    for topic in wanted:
        rows = []
        for row in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                if (topic.name, row.partition_index) in seen:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the request names it twice")
                if len(records) >= records_max:
                    raise ApiError(ErrorCode.POLICY_VIOLATION, f"one request may change {records_max} partitions")
                record = _reassign(image, topic.name, row, defaults, allow_replication_factor_change)
            except ApiError as error:
                code, message, record = error.code, error.message, None
            seen.add((topic.name, row.partition_index))
            if record is not None:
                records.append(record)
            rows.append(ReassignablePartitionResponse(row.partition_index, code, message))
        responses.append(ReassignableTopicResponse(topic.name, rows))
    assert len(records) <= records_max
    assert len({(one.topic_id, one.partition_id) for one in records}) == len(records), "a partition changes once"
    assert len(responses) == len(wanted), "every topic has an answer"
    return Result(records, responses)


def _reassign(
    image: Image, name: str, row: ReassignablePartition, defaults: ElectionRules, allow_factor_change: bool
) -> PartitionChangeRecord | None:
    state = image.partition(name, row.partition_index)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{row.partition_index}")
    topic = image.topics[name]
    rules = rules_for(image, name, defaults)
    change = PartitionChange(image, state, leader_check(image), rules)
    if row.replicas is None:
        _cancel(topic, row.partition_index, state, rules, change)
    else:
        target = tuple(row.replicas)
        check_target(image, target)
        if not allow_factor_change and len(target) != len(original_replicas(state)):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{name}-{row.partition_index} has {len(original_replicas(state))} replicas, the target {len(target)}",
            )
        _head_for(change, state, target)
    return change.build(topic.topic_id, row.partition_index)


def _head_for(change: PartitionChange, state: PartitionState, target: tuple[int, ...]) -> None:
    """Add the replicas of a target that are missing, and remove the others once those are in sync."""
    change.removing_replicas = tuple(sorted(set(state.replicas) - set(target)))
    change.replicas = target + change.removing_replicas
    change.adding_replicas = tuple(sorted(set(change.replicas) - set(original_replicas(state))))
    assert set(change.replicas) >= set(state.replicas), "a replica is only removed once the target is in sync"
    assert not set(target) & set(change.removing_replicas)
    assert set(change.adding_replicas) <= set(change.replicas)


def original_replicas(state: PartitionState) -> tuple[int, ...]:
    """The replicas before the reassignment in progress."""
    return tuple(replica for replica in state.replicas if replica not in state.adding_replicas)


def _cancel(topic: Topic, partition: int, state: PartitionState, rules: ElectionRules, change: PartitionChange) -> None:
    if not state.is_reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{topic.name}-{partition} is not being reassigned")
    change.replicas = original_replicas(state)
    change.in_sync_replicas = tuple(
        replica for replica in state.in_sync_replicas if replica not in state.adding_replicas
    )
    change.adding_replicas = change.removing_replicas = ()
    if not change.replicas:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica would be left")
    whole = {*state.in_sync_replicas, *state.eligible_leader_replicas}
    is_relied_on = not whole.isdisjoint(state.adding_replicas)
    left = change.in_sync_replicas
    if not state.in_sync_replicas:
        left = tuple(one for one in state.eligible_leader_replicas if one not in state.adding_replicas)
    if len(left) == 1 and (is_relied_on or len(change.replicas) == 1):
        change.in_sync_replicas = state.in_sync_replicas
        _head_for(change, state, change.replicas)
        return
    safe = state.in_sync_replicas or state.eligible_leader_replicas or state.last_known_leader_replicas
    assert not set(change.replicas) & set(state.adding_replicas), "what was added is removed again"
    if safe and set(safe) <= set(state.adding_replicas):
        # Only added replicas have every record, so removing them would lose records.
        if not rules.unclean_leader_election:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"no replica that {topic.name}-{partition} had before is in sync; going back would lose records",
            )
        eligible = [replica for replica in change.replicas if replica in state.eligible_leader_replicas]
        change.in_sync_replicas = (*eligible, *change.replicas)[:1]


def check_target(image: Image, target: Sequence[int]) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT for an invalid target."""
    unknown = sorted(set(target) - set(image.brokers))
    problem = ""
    if not target:
        problem = "no replica was given"
    elif unknown:
        problem = f"broker {unknown[0]} is not registered"
    elif len(set(target)) != len(target):
        problem = "a broker is named twice"
    if problem:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def list_reassignments(
    image: Image, wanted: Sequence[ListPartitionReassignmentsTopics] | None
) -> list[OngoingTopicReassignment]:
    """The reassignments in progress, all of them or those of the requested partitions."""
    keys: list[tuple[Uuid, int]] = list(image.reassigning)
    if wanted is not None:
        asked = {
            (image.topics[row.name].topic_id, index): None
            for row in wanted
            if row.name in image.topics
            for index in row.partition_indexes
        }
        keys = [key for key in asked if key in image.reassigning]
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for topic_id, index in sorted(keys, key=lambda key: (image.topics_by_id[key[0]].name, key[1])):
        topic = image.topics_by_id[topic_id]
        state = topic.partitions[index]
        topics.setdefault(topic.name, []).append(
            OngoingPartitionReassignment(index, state.replicas, state.adding_replicas, state.removing_replicas)
        )
    return [OngoingTopicReassignment(name, rows) for name, rows in topics.items()]
