"""The hot keys of a whole topic, from what the leaders of its partitions say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.wire.messages.describe_hot_keys import HotPartition


@dataclass(slots=True)
class MergedKey:
    """One key, with the partitions that it was found in and what it has at least."""

    key: bytes
    is_cut: bool
    partitions: list[int] = field(default_factory=list)
    records: int = 0
    size_bytes: int = 0

    @property
    def text(self) -> str:
        """The key for people: text if it is that, else its bytes in hex."""
        try:
            text = self.key.decode()
        except UnicodeDecodeError:
            text = ""
        shown = text if text.isprintable() and text else f"0x{self.key.hex()}" if self.key else '""'
        return f"{shown}…" if self.is_cut else shown


@dataclass(slots=True)
class MergedHotKeys:
    """All that was looked at. Any figure of a key is too low by at most the error."""

    partitions: int = 0
    records: int = 0
    size_bytes: int = 0
    keyless_records: int = 0
    keyless_bytes: int = 0
    records_error: int = 0
    bytes_error: int = 0
    keys: list[MergedKey] = field(default_factory=list)

    def top(self, count: int, *, by_bytes: bool) -> list[MergedKey]:
        """The hottest keys, the hottest first."""
        ordered = sorted(self.keys, key=lambda one: one.size_bytes if by_bytes else one.records, reverse=True)
        return ordered[:count]


def merge(partitions: Iterable[HotPartition]) -> MergedHotKeys:
    """Add up partitions; those with errors are left out.

    A key of several partitions has what it has in those where it is hot; what it has elsewhere is within the error.
    """
    merged = MergedHotKeys()
    found: dict[object, MergedKey] = {}
    for partition in partitions:
        if partition.error_code:
            continue
        merged.partitions += 1
        merged.records += partition.records
        merged.size_bytes += partition.size_bytes
        merged.keyless_records += partition.keyless_records
        merged.keyless_bytes += partition.keyless_bytes
        merged.records_error += partition.records_error
        merged.bytes_error += partition.bytes_error
        for number, row in enumerate(partition.keys):
            # Keys that begin alike are different ones.
            name = (partition.partition_index, number) if row.is_cut else bytes(row.key)
            one = found.setdefault(name, MergedKey(bytes(row.key), row.is_cut))
            one.partitions.append(partition.partition_index)
            one.records += row.records
            one.size_bytes += row.size_bytes
    merged.keys = list(found.values())
    return merged
