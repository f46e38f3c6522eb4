"""Commits the offsets of the source's groups here, for the topics that a link mirrors.

The coordinator here refuses a commit without a member for a group that has members, so a group that is active on this
side keeps its own offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.client.failures import NoAnswer
from penstock.client.operations.groups import CLASSIC, CONSUMER, committed_offsets, list_groups
from penstock.client.operations.routing import Refused
from penstock.core.link.offsets import offsets_to_commit
from penstock.core.link.selection import GroupSelection
from penstock.core.metadata.image import Image
from penstock.model.errors import ErrorCode, error_name
from penstock.model.ids import TopicPartition
from penstock.runtime.brokers import Brokers
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.link.source import Source
from penstock.runtime.share.end_offsets import EndOffsets
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

GROUPS_AT_ONCE = 100
TIMEOUT_MS = 10_000
# The group has members here, whose offsets count.
_ACTIVE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


class GroupSync:
    """Offsets of groups, from a source to this cluster's coordinators."""

    def __init__(self, image: Image, groups: Groups, brokers: Brokers, ends: EndOffsets) -> None:
        self._image = image
        self._groups = groups
        self._brokers = brokers
        self._ends = ends

    async def sync(self, source: Source, selection: GroupSelection, topics: Collection[str]) -> dict[str, str]:
        """Move the selected groups on in these topics; returns why some cannot be. Raises NoAnswer or ApiError."""
        groups = await source.run(list_groups)
        names = [
            group.group_id
            for group in groups
            if group.type in (None, CLASSIC, CONSUMER) and selection.matches(group.group_id)
        ]
        refused: dict[str, str] = {}
        for first in range(0, len(names), GROUPS_AT_ONCE):
            found = await source.run(committed_offsets, names[first : first + GROUPS_AT_ONCE])
            theirs: dict[str, dict[TopicPartition, int]] = {}
            for name, offsets in found.items():
                if isinstance(offsets, Refused):
                    refused[name] = offsets.message
                    continue
                mirrored = {place: each.offset for place, each in offsets.items() if place.topic in topics}
                if mirrored:
                    theirs[name] = mirrored
            if theirs:
                refused |= await self._commit(theirs)
        return refused

    async def _commit(self, theirs: Mapping[str, Mapping[TopicPartition, int]]) -> dict[str, str]:
        places = {place for offsets in theirs.values() for place in offsets}
        ends = {place: end for place, end in (await self._ends.of(places)).items() if not isinstance(end, ErrorCode)}
        refused = {}
        for group, offsets in theirs.items():
            coordinator = (await self._groups.leader_of(group)).leader
            ours = await self._offsets(coordinator, group)
            wanted = offsets_to_commit(offsets, ours, ends)
            if wanted:
                code = await self._commit_group(coordinator, group, wanted)
                if code and code not in _ACTIVE:
                    refused[group] = f"its offsets cannot be committed here: {error_name(code)}"
        return refused

    async def _offsets(self, coordinator: int, group: str) -> dict[TopicPartition, int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, None)])
        response: OffsetFetchResponse = await self._ask(coordinator, request)
        found = {}
        for one in response.groups:
            if one.error_code:
                raise NoAnswer(f"the offsets of {group} are not known here: {error_name(one.error_code)}")
            for topic in one.topics:
                known = self._image.topics_by_id.get(topic.topic_id)
                name = known.name if known is not None else topic.name
                for row in topic.partitions:
                    if not row.error_code and row.committed_offset >= 0:
                        found[TopicPartition(name, row.partition_index)] = row.committed_offset
        return found

    async def _commit_group(self, coordinator: int, group: str, offsets: Mapping[TopicPartition, int]) -> int:
        """Commit as a tool does, without a member; returns the first error."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            # Leader epochs of the source mean nothing here.
            topics.setdefault(place.topic, []).append(OffsetCommitRequestPartition(place.partition, offset, -1, ""))
        rows: Sequence[OffsetCommitRequestTopic] = [
            OffsetCommitRequestTopic(name, self._image.topics[name].topic_id, partitions)
            for name, partitions in topics.items()
            if name in self._image.topics
        ]
        response: OffsetCommitResponse = await self._ask(coordinator, OffsetCommitRequest(group, topics=rows))
        codes = [row.error_code for topic in response.topics for row in topic.partitions]
        return next((code for code in codes if code), 0)

    async def _ask(self, broker_id: int, request: Any) -> Any:
        return await self._brokers.ask(broker_id, request, timeout_ms=TIMEOUT_MS)
