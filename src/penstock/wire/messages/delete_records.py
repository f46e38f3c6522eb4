"""Messages of the DeleteRecords API.

Generated from definitions/delete_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DeleteRecordsPartition(NamedTuple):
    partition_index: int = 0
    offset: int = 0


class DeleteRecordsTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartition] = ()


class DeleteRecordsRequest(NamedTuple):
    """Versions 0-2, flexible from 2."""

    topics: Sequence[DeleteRecordsTopic] = ()
    timeout_ms: int = 0

    def response_class(self) -> type[DeleteRecordsResponse]:
        return DeleteRecordsResponse


class DeleteRecordsPartitionResult(NamedTuple):
    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


class DeleteRecordsTopicResult(NamedTuple):
    name: str = ""
    partitions: Sequence[DeleteRecordsPartitionResult] = ()


class DeleteRecordsResponse(NamedTuple):
    """Versions 0-2, flexible from 2."""

    throttle_time_ms: int = 0
    topics: Sequence[DeleteRecordsTopicResult] = ()
