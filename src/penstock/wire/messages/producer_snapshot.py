"""Messages of the file family.

Generated from definitions/producer_snapshot.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ProducerEntry(NamedTuple):
    producer_id: int = 0
    epoch: int = 0
    last_sequence: int = 0
    last_offset: int = 0
    offset_delta: int = 0
    timestamp: int = 0
    coordinator_epoch: int = 0
    current_txn_first_offset: int = 0


class ProducerSnapshot(NamedTuple):
    """Version 1."""

    crc: int = 0
    producer_entries: Sequence[ProducerEntry] = ()
