"""Which partitions of a follower's fetch session must be looked at: those that changed since its last fetch.

A broker may follow thousands of partitions in one session, most of them idle. Every partition of the session notifies
the view when it grows, when its high watermark moves, and when its leader changes; a fetch looks at those, and at the
partitions that it names itself. A partition is clean again when the follower is in sync, has all of it and knows its
watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.core.replica.fetch_session import Wanted
from penstock.runtime.replication.fetch_rows import FetchKey
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.watcher import EVERYTHING


class FollowerView:
    """One session's partitions. `on_grown`, while set, is called with the number of bytes appended to them."""

    def __init__(self, replica: int, broker_epoch: int, now_ms: Callable[[], int]) -> None:
        self.replica = replica
        self.broker_epoch = broker_epoch
        self.fetch_count = 0
        self.fetched_ms = now_ms()
        self.on_grown: Callable[[int], None] | None = None
        self._now_ms = now_ms
        self._wanted: dict[FetchKey, Wanted] = {}
        self._watches: dict[FetchKey, Watch] = {}
        self._dirty: dict[FetchKey, None] = {}

    def update(self, wanted: Iterable[tuple[FetchKey, Wanted]], forgotten: Iterable[FetchKey]) -> None:
        """A fetch came: apply its partitions; they go to the end of the order."""
        self.fetch_count += 1
        self.fetched_ms = self._now_ms()
        for key, want in wanted:
            self._wanted[key] = want
            self._dirty.pop(key, None)
            self._dirty[key] = None
        for key in forgotten:
            self._forget(key)

    def asked(self) -> list[tuple[FetchKey, Wanted]]:
        """The partitions to look at, and what the follower wants of them."""
        wanted = self._wanted
        return [(key, wanted[key]) for key in self._dirty]

    def watch(self, key: FetchKey, partition: Partition) -> None:
        """Watch this partition from now on."""
        watch = self._watches.get(key)
        if watch is None or watch.partition is not partition:
            if watch is not None:
                watch.partition.unwatch(watch)
            self._watches[key] = watch = Watch(self, key, partition)
            partition.watch(watch)

    def mark_clean(self, key: FetchKey) -> None:
        """The follower has everything, and knows the watermarks."""
        self._dirty.pop(key, None)

    def mark_dirty(self, key: FetchKey, size_bytes: int) -> None:
        """A partition changed."""
        self._dirty[key] = None
        if size_bytes and self.on_grown is not None:
            self.on_grown(size_bytes)

    def fell_behind(self, key: FetchKey, partition: Partition, size_bytes: int) -> None:
        """A partition grew. If it was clean, the follower had everything until this moment."""
        if key not in self._dirty and partition.leading is not None:
            partition.leading.was_caught_up(self.replica, self._now_ms())
        self.mark_dirty(key, size_bytes)

    def close(self) -> None:
        """The session has ended."""
        for key in list(self._wanted):
            self._forget(key)

    def _forget(self, key: FetchKey) -> None:
        self._wanted.pop(key, None)
        self._dirty.pop(key, None)
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.partition.unwatch(watch)


class Watch:
    """Connects one partition to a view."""

    __slots__ = ("_key", "_view", "partition")

    def __init__(self, view: FollowerView, key: FetchKey, partition: Partition) -> None:
        self._view = view
        self._key = key
        self.partition = partition

    @property
    def replica(self) -> int:
        """The follower."""
        return self._view.replica

    @property
    def fetch_count(self) -> int:
        """How many fetches have come in its session."""
        return self._view.fetch_count

    @property
    def fetched_ms(self) -> int:
        """When the last one came."""
        return self._view.fetched_ms

    @property
    def is_parked(self) -> bool:
        """Whether the last one waits for records."""
        return self._view.on_grown is not None

    def grown(self, size_bytes: int) -> None:
        """Records were appended."""
        self._view.fell_behind(self._key, self.partition, size_bytes)

    def moved(self) -> None:
        """The high watermark moved: to be reported, but not worth answering a parked fetch for."""
        self._view.mark_dirty(self._key, 0)

    def changed(self) -> None:
        """The follower must be notified."""
        self._view.mark_dirty(self._key, EVERYTHING)
