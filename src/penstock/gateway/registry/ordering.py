"""Which records of `_schemas` are accepted, when several gateways write concurrently without a leader.

A gateway decides from what it has read and appends the outcome with the offset of the last record it had read. The
record counts only if nothing came in between, which every reader can derive from the log alone: the partition's leader
orders appends, and of two that were decided from the same state the first one counts. Its writer reads it back; the
other writer sees its own record rejected, decides again from the newer state, and appends again.

A rejected record may hide, under the same key, one that counts, and compaction would then remove the wrong one. So
a gateway whose record was rejected appends the valid value of that key again (`stale_keys`); if it cannot, another
gateway does. Records without the two headers, which Confluent's registry writes, always count.
"""

from __future__ import annotations

from typing import NamedTuple

BASE_HEADER = "penstock.base"
WRITE_HEADER = "penstock.write"


class OrderedRecord(NamedTuple):
    """A record of the topic. `base` and `write` come from its headers; None and empty without them."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    base: int | None = None
    write: str = ""


class AppendOrder:
    """Decides in log order which entries count, and remembers the valid value of each key."""

    def __init__(self) -> None:
        self.last_offset = -1
        self._write = ""
        self._before_write = -1
        self._values: dict[bytes, bytes | None] = {}
        self._stale: dict[bytes, None] = {}

    def admit(self, entry: OrderedRecord) -> bool:
        """Whether the entry counts. Entries must be passed in offset order, each once."""
        assert entry.offset > self.last_offset
        if not entry.write or entry.write != self._write:
            self._write, self._before_write = entry.write, self.last_offset
        self.last_offset = entry.offset
        counts = entry.base is None or entry.base >= self._before_write
        if entry.key is None:
            return False
        if counts:
            self._values[entry.key] = entry.value
        if self._values.get(entry.key) == entry.value:
            self._stale.pop(entry.key, None)
        else:
            self._stale[entry.key] = None
        return counts

    @property
    def stale_keys(self) -> list[bytes]:
        """Keys whose last record does not count, so that the valid value must be appended again."""
        return list(self._stale)

    def value(self, key: bytes) -> bytes | None:
        """The valid value of a key; None if there is none."""
        return self._values.get(key)
