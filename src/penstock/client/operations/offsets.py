"""Offsets of partitions, and deletion of their oldest records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from penstock.client.failures import NoAnswer
from penstock.client.operations.routing import (
    RETRIABLE,
    Cluster,
    Operation,
    Refused,
    ToEach,
    TryAgain,
    check,
    locate,
    retried,
)
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
LATEST_TIERED = -5
# Stands for the high watermark in a DeleteRecords request.
HIGH_WATERMARK = -1
DELETE_TIMEOUT_MS = 15_000

# A leader that does not know its partition has not learned of it yet, or it was just deleted.
PASSING = RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

T = TypeVar("T")
# A partition in a response: its name, error code and result.
Row = tuple[TopicPartition, int, T]


class Position(NamedTuple):
    """An offset, the leader epoch that wrote it and its record's timestamp; -1 each where there is none."""

    offset: int
    leader_epoch: int
    timestamp_ms: int = -1


def read_positions(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Operation[dict[TopicPartition, Position | Refused]]:
    """The first record at or after a timestamp for each partition, or why there is no answer.

    `EARLIEST`, `LATEST`, `MAX_TIMESTAMP` and `LATEST_TIERED` stand for special offsets; with `read_committed` the end
    of a log is its last stable offset.
    """
    request_for = partial(_positions_request, timestamps, read_committed=read_committed)
    return (yield from _from_leaders(cluster, timestamps, request_for, _position_rows))


def positions(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Operation[dict[TopicPartition, Position]]:
    """As `read_positions`, for partitions that are all wanted: raises Refused."""
    found = yield from read_positions(cluster, timestamps, read_committed=read_committed)
    for each in found.values():
        if isinstance(each, Refused):
            raise each
    return {name: each for name, each in found.items() if not isinstance(each, Refused)}


def reachable_positions(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int]
) -> Operation[dict[TopicPartition, Position]]:
    """As `read_positions`, without waiting for leaders: partitions that none answers for now are left out."""
    found: dict[TopicPartition, Position | Refused] = {}
    # Known leaders may be out of date; those that are looked up are not.
    for _ in range(2):
        try:
            problem = yield from _ask_leaders(
                cluster, timestamps, partial(_positions_request, timestamps), _position_rows, found
            )
        except (NoAnswer, TryAgain) as error:
            problem = error
        if problem is None:
            break
        cluster.leaders.clear()
    return {name: each for name, each in found.items() if not isinstance(each, Refused)}


def delete_records(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> Operation[dict[TopicPartition, int | Refused]]:
    """Delete records before the given offsets; the new first offset by partition, or why it is as it was."""

    def request_for(partitions: Iterable[TopicPartition]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
        for each in partitions:
            topics[each.topic].append(DeleteRecordsPartition(each.partition, offsets[each]))
        return DeleteRecordsRequest([DeleteRecordsTopic(*each) for each in topics.items()], DELETE_TIMEOUT_MS)

    def rows(response: DeleteRecordsResponse) -> Iterator[Row[int]]:
        for topic in response.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition_index), each.error_code, each.low_watermark

    return (yield from _from_leaders(cluster, offsets, request_for, rows))


def _from_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    request_for: Callable[[Iterable[TopicPartition]], object],
    rows: Callable[[Any], Iterable[Row[T]]],
) -> Operation[dict[TopicPartition, T | Refused]]:
    """What the partitions' leaders answer; another attempt is only about those that are missing."""
    found: dict[TopicPartition, T | Refused] = {}

    @retried
    def attempt(cluster: Cluster) -> Operation[None]:
        problem = yield from _ask_leaders(cluster, partitions, request_for, rows, found)
        if problem is not None:
            raise problem

    yield from attempt(cluster)
    return found


def _ask_leaders(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    request_for: Callable[[Iterable[TopicPartition]], object],
    rows: Callable[[Any], Iterable[Row[T]]],
    found: dict[TopicPartition, T | Refused],
) -> Operation[NoAnswer | TryAgain | None]:
    """Ask once for what is not found yet; adds it to `found`, and returns why something is still missing."""
    problem: NoAnswer | TryAgain | None
    led, refused, problem = yield from locate(cluster, [each for each in partitions if each not in found])
    found.update(refused)
    answers = yield ToEach({address: request_for(some) for address, some in led.items()})
    for answer in answers.values():
        if isinstance(answer, NoAnswer):
            problem = answer
            continue
        for name, code, value in rows(answer):
            try:
                check(code, str(name), None, PASSING)
            except TryAgain as error:
                problem = error
            except Refused as error:
                found[name] = error
            else:
                found[name] = value
    return problem


def _positions_request(
    timestamps: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], *, read_committed: bool = False
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each in partitions:
        topics[each.topic].append(ListOffsetsPartition(each.partition, timestamp=timestamps[each]))
    wanted = [ListOffsetsTopic(*each) for each in topics.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=wanted)


def _position_rows(response: ListOffsetsResponse) -> Iterator[Row[Position]]:
    for topic in response.topics:
        for each in topic.partitions:
            position = Position(each.offset, each.leader_epoch, each.timestamp)
            yield TopicPartition(topic.name, each.partition_index), each.error_code, position
