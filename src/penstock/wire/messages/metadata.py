"""Messages of the Metadata API.

Generated from definitions/metadata.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class MetadataRequestTopic(NamedTuple):
    topic_id: bytes = ZERO_UUID
    name: str | None = ""


class MetadataRequest(NamedTuple):
    """Versions 0-13, flexible from 9."""

    topics: Sequence[MetadataRequestTopic] | None = ()
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

    def response_class(self) -> type[MetadataResponse]:
        return MetadataResponse


class MetadataResponseBroker(NamedTuple):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class MetadataResponsePartition(NamedTuple):
    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class MetadataResponseTopic(NamedTuple):
    error_code: int = 0
    name: str | None = ""
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: int = -2147483648


class MetadataResponse(NamedTuple):
    """Versions 0-13, flexible from 9."""

    throttle_time_ms: int = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: int = -2147483648
    error_code: int = 0
