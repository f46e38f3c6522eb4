"""Elects leaders: when brokers come and go, when an operator requests it, and to balance leadership."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum

from penstock.core.metadata.election_rules import ElectionRules, leader_check, rules_for
from penstock.core.metadata.image import Image, PartitionState, Topic
from penstock.core.metadata.partition_change import Election, PartitionChange
from penstock.core.metadata.result import Result
from penstock.model.errors import ErrorCode
from penstock.model.ids import NO_LEADER, Uuid
from penstock.wire.messages.elect_leaders import PartitionResult, ReplicaElectionResult, TopicPartitions
from penstock.wire.messages.metadata_records import PartitionChangeRecord

# How many leaders one round of balancing moves; the next round follows at once if there are more.
ELECTIONS_PER_ROUND_MAX = 1000

PartitionKey = tuple[Uuid, int]


class ElectionType(IntEnum):
    """What ElectLeaders can request."""

    PREFERRED = 0
    UNCLEAN = 1


def named_count(image: Image, broker_id: int, *, unclean: bool) -> int:
    """How many partitions change when a broker goes: it is in their ISR or, after an unclean shutdown, in their ELR."""
    in_sync = image.in_sync_counts.get(broker_id, 0)
    if in_sync and not image.eligible_leader_replicas_enabled:
        in_sync -= sum(_is_last_in_sync(image.state(*key), broker_id) for key in image.leaderless)
    return in_sync + (image.eligible_counts.get(broker_id, 0) if unclean else 0)


def names_broker(image: Image, state: PartitionState, broker_id: int, *, unclean: bool) -> bool:
    """Whether a partition changes when a broker goes."""
    if broker_id in state.in_sync_replicas:
        return image.eligible_leader_replicas_enabled or not _is_last_in_sync(state, broker_id)
    return unclean and broker_id in state.eligible_leader_replicas


def _is_last_in_sync(state: PartitionState, broker_id: int) -> bool:
    """Whether only a broker that is away may lead. Without eligible leader replicas it stays in the ISR for that."""
    return state.leader == NO_LEADER and state.in_sync_replicas == (broker_id,)


def partitions_naming(
    image: Image, broker_id: int, found: Sequence[PartitionKey] | None = None, *, unclean: bool = False
) -> Sequence[PartitionKey]:
    """The partitions that change when a broker goes; in each topic those that it leads come first.

    `found` is the result of an earlier search. It is as good as a new one if the broker got no partitions since.
    """
    expected = named_count(image, broker_id, unclean=unclean)
    if expected == 0:
        return ()
    if found is not None and _still_named(image, broker_id, found, unclean) == expected:
        return found
    return [
        (topic.topic_id, index)
        for topic in image.topics.values()
        for index in partitions_of_topic_naming(image, topic, broker_id, unclean=unclean)
    ]


def _still_named(image: Image, broker_id: int, found: Sequence[PartitionKey], unclean: bool) -> int:
    count = 0
    for topic_id, index in found:
        topic = image.topics_by_id.get(topic_id)
        count += topic is not None and names_broker(image, topic.partitions[index], broker_id, unclean=unclean)
    return count


def partitions_of_topic_naming(image: Image, topic: Topic, broker_id: int, *, unclean: bool) -> Iterator[int]:
    """The partitions of one topic that change when a broker goes; those that it leads come first."""
    followed = []
    for index, state in enumerate(topic.partitions):
        if state.leader == broker_id:
            yield index
        elif names_broker(image, state, broker_id, unclean=unclean):
            followed.append(index)
    yield from followed


def leader_and_isr_updates(
    image: Image,
    partitions: Iterable[PartitionKey],
    defaults: ElectionRules,
    *,
    removed: int = NO_LEADER,
    added: int = NO_LEADER,
    unclean: int = NO_LEADER,
    avoid: Collection[int] = (),
) -> Iterator[PartitionChangeRecord]:
    """What the departure or arrival of a broker changes in partitions.

    A `removed` broker leaves the ISR (and may stay eligible), an `unclean` one may have lost records and leaves ISR and
    ELR, an `added` one may lead although the image still shows it as fenced. Brokers to `avoid` will stop next: they
    lead only where no other replica can. Partitions that are deleted or unchanged yield nothing.
    """
    can_lead = leader_check(image, without=removed if unclean == NO_LEADER else unclean, with_broker=added)
    # Equal states are one object, and change in the same way: a million partitions have few different states.
    memo: dict[tuple[int, ElectionRules], PartitionChangeRecord | None] = {}
    topic_id, topic, rules = b"", None, defaults
    for key in partitions:
        if key[0] != topic_id:
            topic_id = key[0]
            topic = image.topics_by_id.get(topic_id)
            rules = rules_for(image, topic.name, defaults) if topic is not None else defaults
        if topic is None or key[1] >= len(topic.partitions):
            continue
        state = topic.partitions[key[1]]
        kind = (id(state), rules)
        if kind in memo:
            pattern = memo[kind]
        else:
            change = PartitionChange(image, state, can_lead, rules)
            change.unclean_shutdown = unclean
            change.avoid = avoid
            change.in_sync_replicas = tuple(
                replica for replica in state.in_sync_replicas if replica not in (removed, unclean)
            )
            pattern = memo[kind] = change.build(topic_id, key[1])
        assert topic_id == topic.topic_id
        if pattern is not None:
            yield PartitionChangeRecord(key[1], topic_id, *pattern[2:])


def elect_leaders(
    image: Image,
    kind: ElectionType,
    wanted: Sequence[TopicPartitions] | None,
    defaults: ElectionRules,
    records_max: int,
) -> Result[list[ReplicaElectionResult]]:
    """Decide on an ElectLeaders request; with None for `wanted`, elect wherever an election would change something.

    At most `records_max` elections are held; the response contains no others.
    """
    records: list[PartitionChangeRecord] = []
    results = []
    everything = wanted is None
    if wanted is None:
        wanted = [TopicPartitions(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    for row in wanted:
        outcomes = []
        for index in row.partitions:
            if len(records) >= records_max:
                break
            error, message = _elect(image, row.topic, index, kind, defaults, records)
            if not (everything and error is ErrorCode.ELECTION_NOT_NEEDED):
                outcomes.append(PartitionResult(index, error, message))
        if outcomes or not everything:
            results.append(ReplicaElectionResult(row.topic, outcomes))
    assert len(records) <= records_max
    assert everything or len(results) == len(wanted), "every topic has an answer"
    return Result(records, results)


def _elect(
    image: Image,
    topic: str,
    index: int,
    kind: ElectionType,
    defaults: ElectionRules,
    records: list[PartitionChangeRecord],
) -> tuple[ErrorCode, str | None]:
    state = image.partition(topic, index)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}"
    if kind is ElectionType.PREFERRED and state.leader == state.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica leads already"
    if kind is ElectionType.UNCLEAN and state.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads already"
    record = _election(image, image.topics[topic], index, state, kind, defaults)
    if record is not None:
        records.append(record)
        return ErrorCode.NONE, None
    if kind is ElectionType.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {state.replicas[0]} is not in sync, or not up"
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is up"


def _election(
    image: Image, topic: Topic, index: int, state: PartitionState, kind: ElectionType, defaults: ElectionRules
) -> PartitionChangeRecord | None:
    change = PartitionChange(image, state, leader_check(image), rules_for(image, topic.name, defaults))
    change.election = Election.PREFERRED if kind is ElectionType.PREFERRED else Election.UNCLEAN
    return change.build(topic.topic_id, index)


def balance_leaders(
    image: Image, topics: Iterable[Topic], defaults: ElectionRules, elections_max: int = ELECTIONS_PER_ROUND_MAX
) -> list[PartitionChangeRecord]:
    """Move leadership back to preferred replicas that are in sync again."""
    records: list[PartitionChangeRecord] = []
    for topic in topics:
        for index, state in enumerate(topic.partitions):
            preferred = state.replicas[0]
            if state.leader == preferred or preferred not in state.in_sync_replicas:
                continue
            record = _election(image, topic, index, state, ElectionType.PREFERRED, defaults)
            if record is not None:
                records.append(record)
            if len(records) >= elections_max:
                return records
    return records


def elect_unclean_leaders(
    image: Image, defaults: ElectionRules, elections_max: int = ELECTIONS_PER_ROUND_MAX
) -> list[PartitionChangeRecord]:
    """Elect leaders for partitions without one, where the topic allows unclean elections."""
    records: list[PartitionChangeRecord] = []
    for topic_id, index in image.leaderless:
        topic = image.topics_by_id[topic_id]
        if not rules_for(image, topic.name, defaults).unclean_leader_election:
            continue
        assert topic.partitions[index].leader == NO_LEADER, "what is listed has no leader"
        record = _election(image, topic, index, topic.partitions[index], ElectionType.UNCLEAN, defaults)
        if record is not None:
            records.append(record)
        if len(records) >= elections_max:
            break
    return records
