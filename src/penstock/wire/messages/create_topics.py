"""Messages of the CreateTopics API.

Generated from definitions/create_topics.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class CreatableReplicaAssignment(NamedTuple):
    partition_index: int = 0
    broker_ids: Sequence[int] = ()


class CreatableTopicConfig(NamedTuple):
    name: str = ""
    value: str | None = ""


class CreatableTopic(NamedTuple):
    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


class CreateTopicsRequest(NamedTuple):
    """Versions 2-7, flexible from 5."""

    topics: Sequence[CreatableTopic] = ()
    timeout_ms: int = 60000
    validate_only: bool = False

    def response_class(self) -> type[CreateTopicsResponse]:
        return CreateTopicsResponse


class CreatableTopicConfigs(NamedTuple):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


class CreatableTopicResult(NamedTuple):
    name: str = ""
    topic_id: bytes = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreatableTopicConfigs] | None = ()


class CreateTopicsResponse(NamedTuple):
    """Versions 2-7, flexible from 5."""

    throttle_time_ms: int = 0
    topics: Sequence[CreatableTopicResult] = ()
