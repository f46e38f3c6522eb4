"""Messages of the OffsetFetch API.

Generated from definitions/offset_fetch.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class OffsetFetchRequestTopic(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()


class OffsetFetchRequestTopics(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partition_indexes: Sequence[int] = ()


class OffsetFetchRequestGroup(NamedTuple):
    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: Sequence[OffsetFetchRequestTopics] | None = ()


class OffsetFetchRequest(NamedTuple):
    """Versions 1-10, flexible from 6."""

    group_id: str = ""
    topics: Sequence[OffsetFetchRequestTopic] | None = ()
    groups: Sequence[OffsetFetchRequestGroup] = ()
    require_stable: bool = False

    def response_class(self) -> type[OffsetFetchResponse]:
        return OffsetFetchResponse


class OffsetFetchResponsePartition(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetFetchResponsePartition] = ()


class OffsetFetchResponsePartitions(NamedTuple):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class OffsetFetchResponseTopics(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[OffsetFetchResponsePartitions] = ()


class OffsetFetchResponseGroup(NamedTuple):
    group_id: str = ""
    topics: Sequence[OffsetFetchResponseTopics] = ()
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    """Versions 1-10, flexible from 6."""

    throttle_time_ms: int = 0
    topics: Sequence[OffsetFetchResponseTopic] = ()
    error_code: int = 0
    groups: Sequence[OffsetFetchResponseGroup] = ()
