"""Applications with a transactional id: they crash, and are started again, sometimes while the one before still runs.

A writer writes to several partitions in one transaction, reads in it, and commits or aborts. A copier reads committed
records, writes a copy of each, and commits how far it has read, all in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.model.errors import ErrorCode
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from sim.consumer import READ_COMMITTED, Consumer
from sim.transactional import GROUP, Fenced, GaveUp, TransactionalProducer, Value
from sim.wire import BACKOFF_S, Failed

ABORTED_PART = 0.25
BATCHES_MAX = 4
POLLS_MAX = 5
COPY_GROUP = "copiers"

# Makes a producer with a name of its own, which may be on its own machine.
MakeProducer = Callable[[str], TransactionalProducer]


class Instance:
    """One process of an application; `work` returns when it is told to stop and has nothing left to do."""

    def __init__(self, producer: TransactionalProducer) -> None:
        self.producer = producer
        self.stopping = False
        self._count = 0
        self._random = producer.cluster.random

    async def run(self) -> None:
        """Work until done; raises Fenced."""
        try:
            await self.producer.start()
            await self.work()
        finally:
            self.producer.abandon()

    async def work(self) -> None:
        raise NotImplementedError

    def value(self) -> str:
        """A value that no other producer sends."""
        self._count += 1
        return f"{self.producer.name}:{self._count}"


class Writer(Instance):
    """Writes to the partitions of one topic."""

    def __init__(self, producer: TransactionalProducer, topic: str, partitions: int, pause_s: float) -> None:
        super().__init__(producer)
        self._topic = topic
        self._partitions = partitions
        self._pause_s = pause_s
        everything = list(range(partitions))
        self._reader = Consumer(
            f"{producer.name}r", producer.cluster, producer.history, topic, everything, READ_COMMITTED
        )

    async def work(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            try:
                await self._transact()
            except GaveUp:
                await self.producer.abort()

    async def _transact(self) -> None:
        random = self._random
        transaction = self.producer.begin()
        batches: dict[tuple[str, int], list[list[Value]]] = {}
        for _ in range(random.randint(1, BATCHES_MAX)):
            place = self._topic, random.randrange(self._partitions)
            batches.setdefault(place, []).append([(self.value(), None) for _ in range(random.randint(1, 2))])
        await self.producer.send_all(batches)
        if random.random() < 0.5:
            self._reader.fetched = []
            await self._reader.poll()
            transaction.reads += [(f"{self._topic}-{index}", *record) for index, *record in self._reader.fetched]
        await asyncio.sleep(random.expovariate(1 / self._pause_s))
        if random.random() < ABORTED_PART:
            await self.producer.abort()
        else:
            await self.producer.commit()


class Copier(Instance):
    """Copies partitions of one topic to the same partitions of another."""

    def __init__(self, producer: TransactionalProducer, source: str, target: str, partitions: list[int]) -> None:
        super().__init__(producer)
        self._source = source
        self._target = target
        self._partitions = partitions
        self._reader = Consumer(f"{producer.name}r", producer.cluster, producer.history, source, [], READ_COMMITTED)

    async def work(self) -> None:
        await self._go_back()
        while not (self.stopping and await self._is_at_end()):
            await asyncio.sleep(self._random.uniform(0.05, 0.3))
            self._reader.fetched = []
            for _ in range(POLLS_MAX):
                # Of small segments only a few records come at a time.
                found = len(self._reader.fetched)
                await self._reader.poll()
                if len(self._reader.fetched) == found:
                    break
            if not self._reader.fetched:
                continue
            try:
                await self._copy(self._reader.fetched)
            except GaveUp:
                await self.producer.abort()
                await self._go_back()

    async def _copy(self, records: list[tuple[int, int, str]]) -> None:
        transaction = self.producer.begin()
        transaction.reads += [(f"{self._source}-{index}", *record) for index, *record in records]
        batches: dict[tuple[str, int], list[list[Value]]] = {}
        for index, offset, _ in records:
            batches.setdefault((self._target, index), [[]])[0].append(
                (self.value(), (f"{self._source}-{index}", offset))
            )
        await self.producer.send_all(batches)
        await self.producer.send_offsets(COPY_GROUP, self._source, dict(self._reader.positions))
        if self._random.random() < ABORTED_PART / 2:
            raise GaveUp("on a whim")
        await self.producer.commit()

    async def _is_at_end(self) -> bool:
        ends = await self._reader.stable_ends()
        return ends is not None and all(self._reader.positions[index] >= end for index, end in ends.items())

    async def _go_back(self) -> None:
        """Read on from where the group is, once no transaction can change that any more."""
        offsets: dict[int, int] | None = None
        while offsets is None:
            try:
                offsets = await self._committed()
            except Failed:
                self.producer.forget_coordinator(GROUP, COPY_GROUP)
                await asyncio.sleep(BACKOFF_S)
        for index, offset in offsets.items():
            self._reader.assign(index, max(offset, 0))

    async def _committed(self) -> dict[int, int]:
        topic = OffsetFetchRequestTopics(self._source, partition_indexes=self._partitions)
        wanted = OffsetFetchRequestGroup(COPY_GROUP, topics=[topic])
        response = await self.producer.ask(GROUP, COPY_GROUP, OffsetFetchRequest(groups=[wanted], require_stable=True))
        group = response.groups[0]
        rows = group.topics[0].partitions if group.topics else []
        code = group.error_code or max((row.error_code for row in rows), default=ErrorCode.UNKNOWN_SERVER_ERROR)
        if code:
            raise Failed(ErrorCode(code).name, code)
        return {row.partition_index: row.committed_offset for row in rows}


class Application:
    """The instances of one transactional id, one after the other, and at times two at once."""

    def __init__(self, name: str, make: Callable[[str], Instance], lifetime_s: float) -> None:
        self.name = name
        self._make = make
        self._lifetime_s = lifetime_s
        self._stopping = False
        self._running: dict[asyncio.Task[None], Instance] = {}
        self._count = 0
        self.is_done = False

    def stop(self) -> None:
        """Finish what is under way, and end."""
        self._stopping = True
        for instance in self._running.values():
            instance.stopping = True

    async def run(self) -> None:
        """Start instances until one of them ends as it was told to."""
        while True:
            newest = self._start()
            random = self._running[newest].producer.cluster.random
            timeout_s = None if self._stopping else random.expovariate(1 / self._lifetime_s)
            await asyncio.wait([newest], timeout=timeout_s)
            if newest.done():
                # That it was shut out is no surprise where its transaction took too long.
                if self._end(newest):
                    break
                await asyncio.sleep(BACKOFF_S)
            elif not self._stopping and random.random() < 0.5:
                newest.cancel()
                await asyncio.wait([newest])
                self._end(newest)
                await asyncio.sleep(random.uniform(0, 1))
            elif self._stopping:
                await asyncio.wait([newest])
                if self._end(newest):
                    break
        while self._running:
            done, _ = await asyncio.wait(list(self._running), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self._end(task)
        self.is_done = True

    def _start(self) -> asyncio.Task[None]:
        self._count += 1
        instance = self._make(f"{self.name}.{self._count}")
        instance.stopping = self._stopping
        task = asyncio.get_running_loop().create_task(instance.run())
        self._running[task] = instance
        return task

    def _end(self, task: asyncio.Task[Any]) -> bool:
        """Forget an instance; True if it ended by itself, having done everything."""
        self._running.pop(task, None)
        if task.cancelled():
            return False
        problem = task.exception()
        if problem is not None and not isinstance(problem, Fenced):
            raise problem
        return problem is None
