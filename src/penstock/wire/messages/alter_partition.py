"""Messages of the AlterPartition API.

Generated from definitions/alter_partition.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class BrokerState(NamedTuple):
    broker_id: int = 0
    broker_epoch: int = -1


class AlterPartitionRequestPartitionData(NamedTuple):
    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: Sequence[int] = ()
    new_isr_with_epochs: Sequence[BrokerState] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlterPartitionRequestTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AlterPartitionRequestPartitionData] = ()


class AlterPartitionRequest(NamedTuple):
    """Versions 2-3, flexible from 2."""

    broker_id: int = 0
    broker_epoch: int = -1
    topics: Sequence[AlterPartitionRequestTopicData] = ()

    def response_class(self) -> type[AlterPartitionResponse]:
        return AlterPartitionResponse


class AlterPartitionResponsePartitionData(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: Sequence[int] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlterPartitionResponseTopicData(NamedTuple):
    topic_id: bytes = ZERO_UUID
    partitions: Sequence[AlterPartitionResponsePartitionData] = ()


class AlterPartitionResponse(NamedTuple):
    """Versions 2-3, flexible from 2."""

    throttle_time_ms: int = 0
    error_code: int = 0
    topics: Sequence[AlterPartitionResponseTopicData] = ()
