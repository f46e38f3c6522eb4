"""A queue of records that are processed one after the other, and of those that wait for their next try.

While a record waits, later ones with its key wait behind it, in order; all others pass. Time is an argument.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.app.processing.progress import PartitionProgress
from penstock.client.application.records import Record

Partition = tuple[str, int]


class Job:
    """One record in processing: which try it is, and the messages that its handler sends."""

    __slots__ = ("attempt", "companions", "is_dead", "key", "offset", "outputs", "partition", "progress", "record")

    def __init__(
        self, record: Record[Any], partition: Partition, offset: int, key: Any, progress: PartitionProgress
    ) -> None:
        self.record = record
        self.partition = partition
        self.offset = offset
        # Records without a key have no order to keep: each has a key of its own.
        self.key = key if key is not None else (partition, offset)
        self.progress = progress
        self.attempt = 1
        self.outputs: list[Any] = []
        # The other jobs of a batch; this job has the outputs of all.
        self.companions: list[Job] = []
        # Whether it was dead-lettered.
        self.is_dead = False

    def __lt__(self, other: Job) -> bool:
        return (self.partition, self.offset) < (other.partition, other.offset)


class KeyQueue:
    """Jobs that are ready, delayed jobs, and for each delayed job those held behind it because they have its key."""

    def __init__(self) -> None:
        self._ready: deque[Job] = deque()
        self._delayed: list[tuple[float, Job]] = []
        self._held: dict[object, deque[Job]] = {}

    def __len__(self) -> int:
        return len(self._ready) + sum(map(len, self._held.values())) + len(self._delayed)

    def add(self, job: Job) -> None:
        """Add a record that was read, behind those with its key."""
        if self._held and job.key in self._held:
            self._held[job.key].append(job)
        else:
            self._ready.append(job)

    def take(self, limit: int, now: float) -> list[Job]:
        """Take the next records to process, in order; delayed ones that are due come first."""
        taken: list[Job] = []
        while self._delayed and self._delayed[0][0] <= now and len(taken) < limit:
            taken.append(heapq.heappop(self._delayed)[1])
        while self._ready and len(taken) < limit:
            taken.append(self._ready.popleft())
        return taken

    def give_back(self, jobs: Iterable[Job], now: float) -> None:
        """Put back records that were taken and not processed; they keep their order."""
        for job in reversed(list(jobs)):
            if job.attempt > 1 and job.key in self._held:
                heapq.heappush(self._delayed, (now, job))
            elif job.key in self._held:
                self._held[job.key].appendleft(job)
            else:
                self._ready.appendleft(job)

    def delay(self, job: Job, due: float) -> None:
        """Delay a record that failed until its next try; others with its key are held behind it, in order."""
        heapq.heappush(self._delayed, (due, job))
        if job.key not in self._held:
            self._held[job.key] = deque(each for each in self._ready if each.key == job.key)
            if self._held[job.key]:
                self._ready = deque(each for each in self._ready if each.key != job.key)

    def release(self, job: Job) -> None:
        """Release the records held behind one that is done or dead-lettered; they are next."""
        if self._held and job.key in self._held:
            self._ready.extendleft(reversed(self._held.pop(job.key)))

    @property
    def is_ready(self) -> bool:
        """Whether a record can be processed now, delayed ones aside."""
        return bool(self._ready)

    @property
    def due(self) -> float | None:
        """When the next delayed record is due; None if none is delayed."""
        return self._delayed[0][0] if self._delayed else None

    def drop(self, should_drop: Callable[[Job], bool]) -> None:
        """Drop records, such as those of revoked partitions."""
        self._ready = deque(job for job in self._ready if not should_drop(job))
        self._delayed = [(due, job) for due, job in self._delayed if not should_drop(job)]
        heapq.heapify(self._delayed)
        held = {key: deque(job for job in jobs if not should_drop(job)) for key, jobs in self._held.items()}
        waiting = {job.key for _, job in self._delayed}
        self._held = {key: jobs for key, jobs in held.items() if key in waiting}
        self._ready.extendleft(reversed([job for key, jobs in held.items() if key not in waiting for job in jobs]))
