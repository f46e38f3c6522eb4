"""Shares of what several owners compete for: a queue that serves them in turn, and a cache that evicts by share.

An owner is whatever is to be treated alike: a principal, an address, a topic. A flood by one of them makes that one's
own items wait or disappear, and those of all others hardly or not at all.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

O = TypeVar("O", bound=Hashable)  # noqa: E741
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FairQueue(Generic[O, T]):
    """Items of each owner in order; the owners take turns."""

    def __init__(self) -> None:
        self._items: OrderedDict[O, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def length(self, owner: O) -> int:
        """How many items an owner has in the queue."""
        return len(self._items.get(owner, ()))

    def put(self, owner: O, item: T) -> None:
        """Add an item behind the owner's others."""
        self._items.setdefault(owner, deque()).append(item)
        self._length += 1
        assert self._length >= len(self._items)

    def take(self) -> tuple[O, T]:
        """Remove the first item of the owner whose turn it is, and return both; raises IndexError if there is none."""
        if not self._items:
            raise IndexError("the queue is empty")
        owner, items = self._items.popitem(last=False)
        assert items, "an owner without items has no turn"
        item = items.popleft()
        self._length -= 1
        if items:
            self._items[owner] = items
        assert self._length >= len(self._items)
        return owner, item

    def remove(self, owner: O, item: T) -> bool:
        """Remove an item before its turn; False if it is not in the queue."""
        items = self._items.get(owner)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._length -= 1
        assert self._length >= 0
        if not items:
            del self._items[owner]
        return True


class _Entry(NamedTuple, Generic[O, T]):
    owner: O
    size: int
    value: T


class FairCache(Generic[O, K, T]):
    """Values by key, of a limited number and total size, each charged to an owner.

    When there is no room, the owner that holds the most loses the entry that it has not used for longest: by size if
    that is what ran out, otherwise by number. The newest entry is kept, unless it is larger than all may be.
    """

    def __init__(self, count_max: int, size_max: int | None = None) -> None:
        """Sizes are in any unit, usually bytes; without `size_max` only the number is limited."""
        self._entries: dict[K, _Entry[O, T]] = {}
        self._by_owner: dict[O, OrderedDict[K, None]] = {}
        self._counts = _Share[O](count_max)
        self._bytes = _Share[O](size_max)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    @property
    def size(self) -> int:
        """The total size of all entries."""
        return self._bytes.total

    def values(self) -> Iterator[T]:
        """All values."""
        return (entry.value for entry in self._entries.values())

    def of(self, owner: O) -> list[T]:
        """The values of an owner, the least recently used first."""
        return [self._entries[key].value for key in self._by_owner.get(owner, ())]

    def get(self, key: K) -> T | None:
        """A key's value, which counts as used now; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._by_owner[entry.owner].move_to_end(key)
        return entry.value

    def peek(self, key: K) -> T | None:
        """A key's value, without counting as a use."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, owner: O, key: K, value: T, size: int = 1) -> list[T]:
        """Keep a value in place of an earlier one; returns what was evicted for it, or the value if it is too large."""
        assert size >= 0
        self.pop(key)
        if self._bytes.limit is not None and size > self._bytes.limit:
            return [value]
        self._entries[key] = _Entry(owner, size, value)
        self._by_owner.setdefault(owner, OrderedDict())[key] = None
        self._counts.add(owner, 1)
        self._bytes.add(owner, size)
        evicted = []
        for share in (self._counts, self._bytes):
            while share.is_exceeded:
                oldest = next(iter(self._by_owner[share.largest()]))
                if oldest == key:
                    others = (each for each in self._by_owner if each != owner)
                    oldest = next(iter(self._by_owner[max(others, key=share.of)]))
                evicted.append(self._entries[oldest].value)
                self.pop(oldest)
        assert self._counts.total == len(self._entries)
        assert not self._counts.is_exceeded
        assert not self._bytes.is_exceeded
        assert key in self._entries, "the newest entry is kept"
        return evicted

    def pop(self, key: K) -> T | None:
        """Remove a key; returns its value, None if there was none."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        keys = self._by_owner[entry.owner]
        del keys[key]
        if not keys:
            del self._by_owner[entry.owner]
        self._counts.add(entry.owner, -1)
        self._bytes.add(entry.owner, -entry.size)
        assert self._counts.total == len(self._entries)
        assert self._bytes.total >= 0
        assert len(self._by_owner) <= len(self._entries), "an owner has an entry"
        assert bool(self._entries) or self._bytes.total == 0
        return entry.value


class _Share(Generic[O]):
    """How much of something each owner has, with a heap of (-amount, serial, owner) that is checked lazily."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._amounts: dict[O, int] = {}
        self._heap: list[tuple[int, int, O]] = []
        self._serial = 0
        self.total = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether all owners together have more than the limit."""
        return self.limit is not None and self.total > self.limit

    def of(self, owner: O) -> int:
        """How much an owner has."""
        return self._amounts.get(owner, 0)

    def add(self, owner: O, amount: int) -> None:
        """An owner has more, or less."""
        self.total += amount
        assert self.total >= 0
        left = self._amounts.get(owner, 0) + amount
        if left <= 0:
            self._amounts.pop(owner, None)
            return
        assert left <= self.total, "an owner has no more than all"
        self._amounts[owner] = left
        if self.limit is None:
            return
        self._push(owner, left)
        if len(self._heap) > 2 * len(self._amounts) + 100:
            self._heap.clear()
            for each, held in self._amounts.items():
                self._push(each, held)

    def largest(self) -> O:
        """The owner that has the most."""
        while True:
            amount, _, owner = self._heap[0]
            if self._amounts.get(owner) == -amount:
                return owner
            heapq.heappop(self._heap)

    def _push(self, owner: O, amount: int) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (-amount, self._serial, owner))
