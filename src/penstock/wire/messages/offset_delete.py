"""Messages of the OffsetDelete API.

Generated from definitions/offset_delete.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class OffsetDeleteRequestPartition(NamedTuple):
    partition_index: int = 0


class OffsetDeleteRequestTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetDeleteRequestPartition] = ()


class OffsetDeleteRequest(NamedTuple):
    """Version 0."""

    group_id: str = ""
    topics: Sequence[OffsetDeleteRequestTopic] = ()

    def response_class(self) -> type[OffsetDeleteResponse]:
        return OffsetDeleteResponse


class OffsetDeleteResponsePartition(NamedTuple):
    partition_index: int = 0
    error_code: int = 0


class OffsetDeleteResponseTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[OffsetDeleteResponsePartition] = ()


class OffsetDeleteResponse(NamedTuple):
    """Version 0."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: Sequence[OffsetDeleteResponseTopic] = ()
