"""Messages of the RestoreTopics API.

Generated from definitions/restore_topics.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class RestorablePartition(NamedTuple):
    restored_offset: int = 0
    leader_epoch: int = 0


class RestorableTopicConfig(NamedTuple):
    name: str = ""
    value: str = ""


class RestorableTopic(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    replication_factor: int = 0
    partitions: Sequence[RestorablePartition] = ()
    configs: Sequence[RestorableTopicConfig] = ()


class RestoreTopicsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    topics: Sequence[RestorableTopic] = ()
    next_producer_id: int = 0
    timeout_ms: int = 60000

    def response_class(self) -> type[RestoreTopicsResponse]:
        return RestoreTopicsResponse


class RestoredTopicResult(NamedTuple):
    name: str = ""
    error_code: int = 0
    error_message: str | None = ""
    kept_producer_id: int = 0


class RestoreTopicsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: Sequence[RestoredTopicResult] = ()
