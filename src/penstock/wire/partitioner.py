"""Which partition a key belongs to, as the Java client decides it, so that every client agrees."""

from __future__ import annotations

from penstock.wire.kernel import murmur2
from penstock.wire.record_types import Buffer

__all__ = ["murmur2", "partition_for_key"]


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of records with this key, out of `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
