"""Messages of the transaction family.

Generated from definitions/transaction_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class TransactionLogKey(NamedTuple):
    """Version 0."""

    transactional_id: str = ""


class PartitionsSchema(NamedTuple):
    topic: str = ""
    partition_ids: Sequence[int] = ()


class TransactionLogValue(NamedTuple):
    """Versions 0-1, flexible from 1."""

    producer_id: int = 0
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = 0
    next_producer_epoch: int = -1
    transaction_timeout_ms: int = 0
    transaction_status: int = 0
    transaction_partitions: Sequence[PartitionsSchema] | None = ()
    transaction_last_update_timestamp_ms: int = 0
    transaction_start_timestamp_ms: int = 0
    client_transaction_version: int = 0
