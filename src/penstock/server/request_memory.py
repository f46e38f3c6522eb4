"""A limit on the bytes of requests that are being read, over all connections of a process."""

from __future__ import annotations

from collections.abc import Callable


class RequestMemory:
    """Admits requests until those that are being read have `bytes_max` together.

    As in Kafka, the last request admitted may exceed the limit: otherwise a request as large as the limit would wait
    for all others to be done.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        # The connections that wait for room, in order.
        self._waiting: dict[Callable[[], None], None] = {}

    def admit(self, size: int, go_on: Callable[[], None]) -> bool:
        """Count a request that is about to be read; or have `go_on` called once it should ask again."""
        if self._bytes >= self._bytes_max:
            self._waiting[go_on] = None
            return False
        self._bytes += size
        return True

    def forget(self, go_on: Callable[[], None]) -> None:
        """A waiting connection has closed."""
        self._waiting.pop(go_on, None)

    def release(self, size: int) -> None:
        """An admitted request was served or dropped."""
        self._bytes -= size
        while self._waiting and self._bytes < self._bytes_max:
            first = next(iter(self._waiting))
            del self._waiting[first]
            first()
