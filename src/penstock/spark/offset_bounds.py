"""Resolves the options' topics and bounds to partitions and offsets in the cluster."""

from __future__ import annotations

import re

from penstock.client.cluster import ClusterClient
from penstock.client.operations.offsets import EARLIEST as EARLIEST_TIME
from penstock.client.operations.offsets import LATEST as LATEST_TIME
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.spark.options import EARLIEST, Bound, SourceOptions
from penstock.spark.planning import Offsets


def partitions_of(client: ClusterClient, options: SourceOptions) -> list[TopicPartition]:
    """The current partitions of the options' topics. Raises ApiError for a topic that does not exist."""
    if options.assigned:
        known = client.partitions(each.topic for each in options.assigned)
        missing = [each for each in options.assigned if each.partition not in known.get(each.topic, ())]
        if missing:
            raise _unknown(str(missing[0]), "assign")
        return list(options.assigned)
    if options.pattern is not None:
        matcher = re.compile(options.pattern)
        topics = [topic for topic in client.topics() if matcher.fullmatch(topic)]
        known = client.partitions(topics) if topics else {}
    else:
        known = client.partitions(options.topics)
        for topic in options.topics:
            if topic not in known and options.fail_on_data_loss:
                raise _unknown(topic, "subscribe")
    return [TopicPartition(topic, index) for topic, indexes in sorted(known.items()) for index in indexes]


def resolve(
    client: ClusterClient, options: SourceOptions, bound: Bound, partitions: list[TopicPartition], *, is_start: bool
) -> Offsets:
    """A bound as offsets, for each of the partitions."""
    committed = options.read_committed
    if bound.word is not None:
        at = EARLIEST_TIME if bound.word == EARLIEST else LATEST_TIME
        return client.offsets(dict.fromkeys(partitions, at), read_committed=committed)
    if bound.timestamp is not None:
        timestamps = dict.fromkeys(partitions, bound.timestamp)
        return _by_time(client, options, timestamps, is_start=is_start)
    if bound.timestamps:
        timestamps = dict(bound.timestamps)
        _all_named(timestamps.keys(), partitions, is_start)
        return _by_time(client, options, {each: timestamps[each] for each in partitions}, is_start=is_start)
    offsets = dict(bound.offsets)
    _all_named(offsets.keys(), partitions, is_start)
    ends = {each: offsets[each] for each in partitions if offsets[each] < 0}
    found = client.offsets(ends, read_committed=committed) if ends else {}
    return {each: found.get(each, offsets[each]) for each in partitions}


def _by_time(
    client: ClusterClient, options: SourceOptions, timestamps: dict[TopicPartition, int], *, is_start: bool
) -> Offsets:
    found = client.offsets(timestamps, read_committed=options.read_committed)
    late = [each for each, offset in found.items() if offset < 0]
    if late and is_start and not options.latest_without_timestamp:
        raise ValueError(
            f"{late[0]} has no record at or after {timestamps[late[0]]}: choose an earlier time, or set "
            "startingOffsetsByTimestampStrategy to latest to start at the end there"
        )
    if late:
        found.update(client.offsets(dict.fromkeys(late, LATEST_TIME), read_committed=options.read_committed))
    return found


def _all_named(named: object, partitions: list[TopicPartition], is_start: bool) -> None:
    option = "startingOffsets" if is_start else "endingOffsets"
    have = set(named)  # type: ignore[call-overload]
    missing = [str(each) for each in partitions if each not in have]
    if missing:
        raise ValueError(f"{option} must name every partition: {', '.join(missing)} missing (-2 earliest, -1 latest)")
    extra = sorted(str(each) for each in have - set(partitions))
    if extra:
        raise ValueError(f"{option} names {', '.join(extra)}, which are not subscribed")


def _unknown(subject: str, option: str) -> ApiError:
    return ApiError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{subject} does not exist: create it (`penstock topic create`), or correct the option {option}",
    )
