"""Ways to break tiered storage on purpose, as in `broken`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.core.tier.segments import RemotePartition, RemoteSegment, SegmentState
from penstock.runtime.logs.housekeeping import Housekeeping
from penstock.runtime.replication.partition import Partition
from penstock.runtime.tier.copier import Copier
from penstock.runtime.tier.remote_logs import RemoteLogs, _key
from penstock.storage.tier.layout import Seal
from penstock.storage.tier.sealing import KEY_BYTES, NONCE_BYTES, Sealer, Seals


@contextmanager
def delete_before_the_copy_is_durable() -> Iterator[None]:
    """Let segments leave the disk whose copy has begun."""
    right = Housekeeping._trim

    def begun(tier: RemoteLogs, partition: Partition) -> int:
        remote = tier._metadata.get(_key(partition))
        return max((one.end_offset for one in remote.segments()), default=-1) if remote is not None else -1

    def trim(housekeeping: Any, partition: Partition, now_ms: int) -> None:
        with patch.object(RemoteLogs, "copied_offset", begun):
            right(housekeeping, partition, now_ms)

    with patch.object(Housekeeping, "_trim", trim):
        yield


@contextmanager
def take_a_stale_copy() -> Iterator[None]:
    """Let a leader of before finish a copy that its successor gave up and removed."""
    begin, update = RemotePartition.begin, RemotePartition.update
    copies: dict[bytes, RemoteSegment] = {}

    def remember(partition: RemotePartition, segment: RemoteSegment) -> bool:
        copies[segment.segment_id] = segment
        return begin(partition, segment)

    def finish(
        partition: RemotePartition, segment_id: bytes, state: SegmentState, broker_id: int, now_ms: int, **options: bool
    ) -> bool:
        known = partition.get(segment_id)
        if state is SegmentState.COPY_SEGMENT_FINISHED and (known is None or not known.is_readable):
            if known is not None:
                partition._take_out(known)
            if segment_id in copies:
                partition._put(replace(copies[segment_id], state=state, broker_id=broker_id))
            return True
        return update(partition, segment_id, state, broker_id, now_ms, **options)

    with (
        patch.object(RemotePartition, "begin", remember),
        patch.object(RemotePartition, "update", finish),
        patch.object(Copier, "is_led", staticmethod(lambda *_: True)),
    ):
        yield


@contextmanager
def tell_before_the_objects_are_there() -> Iterator[None]:
    """Announce a copy as finished, then make it."""
    right = Copier._send

    async def send(copier: Copier, place: Any, segment: RemoteSegment, source: Any, crc: int) -> None:
        await copier._note(place, segment.segment_id, SegmentState.COPY_SEGMENT_FINISHED)
        await right(copier, place, segment, source, crc)

    with patch.object(Copier, "_send", send):
        yield


@contextmanager
def name_a_key_that_did_not_seal() -> Iterator[None]:
    """Where a key has just been rotated, protect a segment's key with the one of before, and name the new one."""
    right = Seals.begin

    def begin(seals: Seals, segment_id: bytes) -> tuple[Sealer, Seal]:
        before = list(seals._keys.values())[-1:]
        sealer, seal = right(seals, segment_id)
        if not before or not seal.key_id or before[0] == seals._keys[seal.key_id]:
            return sealer, seal
        key, nonce = bytes(KEY_BYTES), bytes(NONCE_BYTES)
        wrapped = nonce + AESGCM(before[0]).encrypt(nonce, key, segment_id)
        return Sealer(seal.compression, key, segment_id), seal._replace(wrapped_key=wrapped)

    with patch.object(Seals, "begin", begin):
        yield


TIERED_VARIANTS = (
    delete_before_the_copy_is_durable,
    take_a_stale_copy,
    tell_before_the_objects_are_there,
    name_a_key_that_did_not_seal,
)
