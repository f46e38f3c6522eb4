"""Messages of the share family.

Generated from definitions/share_state_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class ShareSnapshotKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    topic_id: bytes = ZERO_UUID
    partition: int = 0


class StateBatch(NamedTuple):
    first_offset: int = 0
    last_offset: int = 0
    delivery_state: int = 0
    delivery_count: int = 0
    letter_producer_id: int = -1
    letter_sequence: int = -1
    letter_reason: int = 0
    letter_member: str = ""


class ShareSnapshotValue(NamedTuple):
    """Version 0, flexible from 0."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    create_timestamp: int = 0
    write_timestamp: int = 0
    state_batches: Sequence[StateBatch] = ()
    delays_start: int = -1
    delays_due_ms: int = -1
    delays_offset: int = -1
    write_number: int = 0


class ShareUpdateKey(NamedTuple):
    """Version 0."""

    group_id: str = ""
    topic_id: bytes = ZERO_UUID
    partition: int = 0


class ShareUpdateValue(NamedTuple):
    """Version 0, flexible from 0."""

    snapshot_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1
    state_batches: Sequence[StateBatch] = ()
    delays_start: int = -1
    delays_due_ms: int = -1
    delays_offset: int = -1
    write_number: int = 0
