"""Compares mirrors with their source, batch by batch: where each begins and ends, and its checksum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.cli.failures import CommandFailure
from penstock.client.cluster import ClusterClient
from penstock.model.errors import ErrorCode, error_name
from penstock.model.ids import TopicPartition
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from penstock.wire.records import read_header

FETCH_BYTES = 4 * 1024 * 1024
LATEST, EARLIEST = -1, -2


class Batch(NamedTuple):
    """What is the same at the source and in a mirror."""

    base_offset: int
    last_offset: int
    crc: int


class Comparison(NamedTuple):
    """The result for one partition. `differences` are the first offsets of batches that are not the same."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    batches: int
    differences: list[int]


def compare(source: ClusterClient, mirror: ClusterClient, name: TopicPartition, mirror_end: int | None) -> Comparison:
    """Compare a partition from where both logs begin, up to `mirror_end` or the mirror's end if that is None."""
    start = max(_offset(source, name, EARLIEST), _offset(mirror, name, EARLIEST))
    end = _offset(mirror, name, LATEST) if mirror_end is None else mirror_end
    theirs, ours = _batches(source, name, start, end), _batches(mirror, name, start, end)
    count = 0
    differences: list[int] = []
    left, right = next(theirs, None), next(ours, None)
    while left is not None or right is not None:
        count += 1
        if left == right:
            left, right = next(theirs, None), next(ours, None)
            continue
        first = min(batch.base_offset for batch in (left, right) if batch is not None)
        differences.append(first)
        # Whichever is behind is read on, so that one batch more or less is one difference.
        behind_left = right is None or (left is not None and left.base_offset <= right.base_offset)
        behind_right = left is None or (right is not None and right.base_offset <= left.base_offset)
        left = next(theirs, None) if behind_left else left
        right = next(ours, None) if behind_right else right
    return Comparison(name.topic, name.partition, start, end, count, differences)


def _offset(client: ClusterClient, name: TopicPartition, timestamp: int) -> int:
    return client.offsets({name: timestamp})[name]


def _batches(client: ClusterClient, name: TopicPartition, start: int, end: int) -> Iterator[Batch]:
    offset = start
    while offset < end:
        row = FetchPartition(name.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(max_bytes=FETCH_BYTES, max_wait_ms=0, topics=[FetchTopic(name.topic, partitions=[row])])
        response: FetchResponse = client.leader(name).call(request)
        answer = response.responses[0].partitions[0]
        if answer.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
            client.forget(name)
            continue
        if answer.error_code:
            raise CommandFailure(f"{name} cannot be read", error_name(answer.error_code))
        data = memoryview(answer.records or b"")  # type: ignore[arg-type]
        position = 0
        while len(data) - position >= 61:
            header = read_header(data, position)
            if header.size_bytes > len(data) - position:
                break
            position += header.size_bytes
            if header.base_offset >= end:
                return
            if header.last_offset >= start:
                yield Batch(header.base_offset, header.last_offset, header.crc)
            offset = header.next_offset
        if not position:
            return
