"""What the transaction coordinator's shell must do besides appending and replying, and the coordinator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.ids import TopicPartition


class Markers(NamedTuple):
    """Write a decided transaction's markers to its partitions, and report each partition that has its marker.

    They are the reply to a token of the shell's own, so that they are sent when the decision is committed and never
    before; if the decision cannot be written they are dropped with it.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions, with Kafka's defaults."""

    max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
