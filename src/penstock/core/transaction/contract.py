"""What the transaction coordinator's shell must do beyond appending and replying, and the coordinator's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.ids import TopicPartition


class Markers(NamedTuple):
    """Write the end of a decided transaction to its partitions, and report each one that has it.

    They come as the reply to a token of the shell's own, so that they go out when the decision is committed and never
    before; a decision that fails to be written takes them with it.
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
