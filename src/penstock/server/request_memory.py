"""A limit on the bytes of requests that are being read, over all connections of a process."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

# The requests of one owner may have so many times as many bytes as there is room left.
ROOM_FACTOR = 4


class RequestMemory:
    """Admits requests until those that are being read have `bytes_max` together.

    As in Kafka, the last request admitted may exceed the limit: otherwise a request as large as the limit would wait
    for all others to be done. Owners (users, or addresses) share the memory: however many large requests one has, or
    how slowly they arrive, it leaves room for those of others, and where several owners wait they take turns.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._of: Counter[str] = Counter()
        # The connections that wait for room, in order, by owner; the first owner is the next one.
        self._waiting: OrderedDict[str, dict[Callable[[], None], None]] = OrderedDict()

    def admit(self, owner: str, size: int, go_on: Callable[[], None]) -> bool:
        """Count a request that is about to be read; or have `go_on` called once it should ask again."""
        if not self._has_room(owner):
            self._waiting.setdefault(owner, {})[go_on] = None
            return False
        self._bytes += size
        self._of[owner] += size
        return True

    def _has_room(self, owner: str) -> bool:
        return self._of[owner] < ROOM_FACTOR * (self._bytes_max - self._bytes)

    def forget(self, go_on: Callable[[], None]) -> None:
        """A waiting connection has closed."""
        for owner, connections in self._waiting.items():
            if go_on in connections:
                self._remove(owner, go_on)
                return

    def _remove(self, owner: str, go_on: Callable[[], None]) -> None:
        connections = self._waiting[owner]
        del connections[go_on]
        if not connections:
            del self._waiting[owner]

    def release(self, owner: str, size: int) -> None:
        """An admitted request was served or dropped."""
        self._bytes -= size
        self._of[owner] -= size
        if not self._of[owner]:
            del self._of[owner]
        assert self._bytes >= 0
        # One that is called may have another reason to wait; it asks again when that has passed.
        for _ in range(sum(map(len, self._waiting.values()))):
            following = next((waiting for waiting in self._waiting if self._has_room(waiting)), None)
            if following is None:
                return
            go_on = next(iter(self._waiting[following]))
            self._waiting.move_to_end(following)
            self._remove(following, go_on)
            go_on()
