"""Messages of the AddPartitionsToTxn API.

Generated from definitions/add_partitions_to_txn.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AddPartitionsToTxnTopic(NamedTuple):
    name: str = ""
    partitions: Sequence[int] = ()


class AddPartitionsToTxnTransaction(NamedTuple):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: Sequence[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnRequest(NamedTuple):
    """Versions 0-5, flexible from 3."""

    transactions: Sequence[AddPartitionsToTxnTransaction] = ()
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ()

    def response_class(self) -> type[AddPartitionsToTxnResponse]:
        return AddPartitionsToTxnResponse


class AddPartitionsToTxnPartitionResult(NamedTuple):
    partition_index: int = 0
    partition_error_code: int = 0


class AddPartitionsToTxnTopicResult(NamedTuple):
    name: str = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResult(NamedTuple):
    transactional_id: str = ""
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnResponse(NamedTuple):
    """Versions 0-5, flexible from 3."""

    throttle_time_ms: int = 0
    error_code: int = 0
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = ()
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = ()
