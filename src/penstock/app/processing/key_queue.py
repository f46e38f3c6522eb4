"""A lane: records that are processed one after the other, and those that wait for their next try.

While a record waits, later ones with its key wait behind it, in order; all others go on. Time is an argument.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.app.lines.progress import PartitionProgress
from penstock.client.application.records import Record

Partition = tuple[str, int]


class Job:
    """One record on its way: which try it is, and what the handler wants to send."""

    __slots__ = ("attempt", "companions", "is_dead", "key", "offset", "outputs", "partition", "progress", "record")

    def __init__(
        self, record: Record[Any], partition: Partition, offset: int, key: Any, progress: PartitionProgress
    ) -> None:
        self.record = record
        self.partition = partition
        self.offset = offset
        # Records without a key have no order to keep: each is its own.
        self.key = key if key is not None else (partition, offset)
        self.progress = progress
        self.attempt = 1
        self.outputs: list[Any] = []
        # The others of a batch, whose outputs are here.
        self.companions: list[Job] = []
        # Whether a dead letter is sent for it.
        self.is_dead = False

    def __lt__(self, other: Job) -> bool:
        return (self.partition, self.offset) < (other.partition, other.offset)


class Lane:
    """What is ready, what waits, and what waits behind it."""

    def __init__(self) -> None:
        self._ready: deque[Job] = deque()
        self._delayed: list[tuple[float, Job]] = []
        self._held: dict[Any, deque[Job]] = {}

    def __len__(self) -> int:
        return len(self._ready) + sum(map(len, self._held.values())) + len(self._delayed)

    def add(self, job: Job) -> None:
        """A record was read."""
        if self._held and job.key in self._held:
            self._held[job.key].append(job)
        else:
            self._ready.append(job)

    def take(self, limit: int, now: float) -> list[Job]:
        """The next records to process, in order: those whose time has come first."""
        taken: list[Job] = []
        while self._delayed and self._delayed[0][0] <= now and len(taken) < limit:
            taken.append(heapq.heappop(self._delayed)[1])
        while self._ready and len(taken) < limit:
            taken.append(self._ready.popleft())
        return taken

    def give_back(self, jobs: Iterable[Job], now: float) -> None:
        """Records that were taken and not processed; they keep their places."""
        for job in reversed(list(jobs)):
            if job.attempt > 1 and job.key in self._held:
                heapq.heappush(self._delayed, (now, job))
            elif job.key in self._held:
                self._held[job.key].appendleft(job)
            else:
                self._ready.appendleft(job)

    def delay(self, job: Job, due: float) -> None:
        """A record failed, and is tried again at a time; others with its key wait, in order."""
        heapq.heappush(self._delayed, (due, job))
        if job.key not in self._held:
            self._held[job.key] = deque(each for each in self._ready if each.key == job.key)
            if self._held[job.key]:
                self._ready = deque(each for each in self._ready if each.key != job.key)

    def release(self, job: Job) -> None:
        """A record is done for good: what waited behind it goes on, before anything else."""
        if self._held and job.key in self._held:
            self._ready.extendleft(reversed(self._held.pop(job.key)))

    @property
    def is_ready(self) -> bool:
        """Whether a record can be processed now, apart from those whose time comes."""
        return bool(self._ready)

    @property
    def due(self) -> float | None:
        """When the next try is due."""
        return self._delayed[0][0] if self._delayed else None

    def drop(self, leaving: Callable[[Job], bool]) -> None:
        """Forget records, such as those of partitions that others have now."""
        self._ready = deque(job for job in self._ready if not leaving(job))
        self._delayed = [(due, job) for due, job in self._delayed if not leaving(job)]
        heapq.heapify(self._delayed)
        held = {key: deque(job for job in jobs if not leaving(job)) for key, jobs in self._held.items()}
        waiting = {job.key for _, job in self._delayed}
        self._held = {key: jobs for key, jobs in held.items() if key in waiting}
        self._ready.extendleft(reversed([job for key, jobs in held.items() if key not in waiting for job in jobs]))
