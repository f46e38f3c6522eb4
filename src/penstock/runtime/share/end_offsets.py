"""Where partitions end, asked of their leaders: a coordinator need not have replicas of what its groups read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TIMEOUT_MS = 5_000
LATEST = -1
CONSUMER = -1


class EndOffsets:
    """Asks the leaders, of which this broker may be one."""

    def __init__(self, brokers: Brokers, leader_of: Callable[[str, int], int | None]) -> None:
        self._brokers = brokers
        self._leader_of = leader_of

    async def of(self, names: Iterable[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        """The high watermark of each partition, or why it is not known."""
        found: dict[TopicPartition, int | ErrorCode] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in names:
            leader = self._leader_of(*name)
            if leader is None or leader < 0:
                found[name] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(name)
        answers = await asyncio.gather(*(self._ask(leader, wanted) for leader, wanted in by_leader.items()))
        for answer in answers:
            found.update(answer)
        return found

    async def _ask(self, leader: int, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | ErrorCode]:
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in names:
            by_topic.setdefault(topic, []).append(ListOffsetsPartition(partition, timestamp=LATEST))
        topics = [ListOffsetsTopic(topic, rows) for topic, rows in by_topic.items()]
        request = ListOffsetsRequest(CONSUMER, topics=topics, timeout_ms=TIMEOUT_MS)
        try:
            response: ListOffsetsResponse = await self._brokers.ask(leader, request, timeout_ms=TIMEOUT_MS)
        except PeerLost:
            return dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
        return {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.error_code) if row.error_code else row.offset
            for topic in response.topics
            for row in topic.partitions
        }
