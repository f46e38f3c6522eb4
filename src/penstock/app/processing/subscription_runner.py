"""Runs one consumer-group subscription in one worker, from reading records to committing their offsets.

    source ──▶ queues, by key ──▶ handler ──▶ outputs and progress ──▶ sink: messages, offsets

Reading and sending have a thread each; everything else happens on the event loop, a chunk of records at a time. A
commit covers the records that are done when it starts, and never one whose messages are not stored. If anything fails
that is not a handler's fault, the runner is discarded and a new one resumes from the last commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from penstock.app.counters import SubscriptionCounters
from penstock.app.processing.call_thread import CallThread
from penstock.app.processing.dead_letters import dead_letter_refused, make_dead_letter
from penstock.app.processing.handler_caller import HandlerCaller, HandlerResults
from penstock.app.processing.key_queue import Job, KeyQueue, Partition
from penstock.app.processing.progress import PartitionProgress, Ranges
from penstock.app.processing.transport import Clock, Position, RecordRefused, Sink, Source
from penstock.app.subscription import Subscription
from penstock.client.application.errors import PenstockError
from penstock.client.application.records import Record

CHUNK_RECORDS = 200
READ_RECORDS = 500
READ_S = 0.25
# Records in memory that are not done, over all queues; beyond it, reading pauses.
OPEN_RECORDS_MAX = 5_000
# For one partition: records from the first that is not done to the last that was read.
SPAN_RECORDS_MAX = 100_000
DRAIN_S = 10.0
PAUSE_AFTER_S = 2.0

T = TypeVar("T")

logger = logging.getLogger("penstock.app")


class SubscriptionRunner:
    """Runs until `stop`, or until a failure that is not a handler's, which `run` raises."""

    def __init__(
        self,
        subscription: Subscription,
        caller: HandlerCaller,
        source: Source,
        sink: Sink,
        clock: Clock,
        counters: SubscriptionCounters,
    ) -> None:
        self._subscription = subscription
        self._caller = caller
        self._source = source
        self._sink = sink
        self._clock = clock
        self._counters = counters
        self._queues = [KeyQueue() for _ in range(subscription.concurrency)]
        self._events = [asyncio.Event() for _ in self._queues]
        self._progress: dict[Partition, PartitionProgress] = {}
        # Jobs whose messages are not known to be stored.
        self._unstored: list[Job] = []
        # Why nothing may be committed any more: messages of records that count as done are not stored.
        self._failure: Exception | None = None
        self._running: list[list[Job]] = [[] for _ in self._queues]
        self._revoking: set[Partition] = set()
        self._reader = CallThread("penstock-read")
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="penstock-commit")
        self._commit_lock = asyncio.Lock()
        self._has_progress = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_stopping = False
        self._is_paused = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Process records until `stop`, then finish running calls and commit. Raises failures other than handlers'."""
        await self._in_reader(lambda: self._source.open(self._assigned, self._revoked))
        tasks = [asyncio.create_task(self._run_queue(index)) for index in range(len(self._queues))]
        tasks += [asyncio.create_task(self._keep_reading()), asyncio.create_task(self._keep_committing())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            await self._commit()
        finally:
            # A commit that is canceled has taken messages, whose records must not be committed without them.
            self._fail(PenstockError("the subscription has ended"))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    def stop(self) -> None:
        """Stop reading, finish running calls, commit, and let `run` return."""
        self._is_stopping = True
        self._caller.stop()
        for event in (*self._events, self._has_progress, self._has_room):
            event.set()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do until time passes or records arrive. For tests."""
        now = self._clock.now()
        busy = any(self._running) or any(queue.is_ready for queue in self._queues)
        due = any(queue.due is not None and queue.due <= now for queue in self._queues)
        uncommitted = any(progress.uncommitted() for progress in self._progress.values())
        return (
            not (busy or due or self._unstored or uncommitted or self._commit_lock.locked())
            and self._source.is_at_end()
        )

    # Reading.

    async def _keep_reading(self) -> None:
        while not self._is_stopping:
            if self._is_full():
                await self._wait_for_room()
                continue
            messages = await self._in_reader(partial(self._source.read, READ_RECORDS, READ_S))
            if messages:
                self._take(messages)

    def _is_full(self) -> bool:
        return self._open_records() >= OPEN_RECORDS_MAX or any(
            progress.open_count > SPAN_RECORDS_MAX or progress.is_full for progress in self._progress.values()
        )

    async def _wait_for_room(self) -> None:
        """Wait until records are done. A pause discards prefetched records, so the source is paused for longer waits
        only: then it must be polled to remain a member and to learn of rebalances."""
        deadline = self._loop.time() + PAUSE_AFTER_S
        while self._is_full() and not self._is_stopping:
            if self._loop.time() < deadline:
                self._has_room.clear()
                await Clock().wait(self._has_room, deadline)
                continue
            if not self._is_paused:
                self._is_paused = True
                await self._in_reader(partial(self._source.pause, True))
            self._take(await self._in_reader(partial(self._source.read, READ_RECORDS, READ_S)))
        if self._is_paused and not self._is_stopping:
            self._is_paused = False
            await self._in_reader(partial(self._source.pause, False))

    def _take(self, messages: list[Any]) -> None:
        decode = self._caller.binding.decode
        queues = self._queues
        count = len(queues)
        touched = set()
        for message in messages:
            partition = (message.topic(), message.partition())
            offset = message.offset()
            progress = self._progress.get(partition)
            if progress is None:
                progress = self._progress[partition] = PartitionProgress()
            if partition in self._revoking or not progress.start(offset):
                continue
            key = message.key()
            index = 0 if count == 1 else hash(key if key is not None else offset) % count
            queues[index].add(Job(Record(message, decode), partition, offset, key, progress))
            touched.add(index)
        for index in touched:
            self._events[index].set()
        self._counters.waiting = self._open_records()

    def _open_records(self) -> int:
        return sum(progress.unfinished_count for progress in self._progress.values())

    def _assigned(self, partitions: dict[Partition, Ranges]) -> None:
        """Called in the reader's thread."""

        def reset() -> None:
            for partition, finished in partitions.items():
                self._revoking.discard(partition)
                self._progress[partition] = PartitionProgress(finished)
            self._drop_outputs(set(partitions))

        self._in_loop(reset)

    def _revoked(self, partitions: list[Partition]) -> None:
        """Called in the reader's thread: returns once no record of the partitions runs and offsets are committed."""
        drained = asyncio.run_coroutine_threadsafe(self._drain(partitions), self._loop)
        try:
            self._reader.wait(drained, DRAIN_S * 2)
        except (TimeoutError, asyncio.CancelledError):
            logger.warning("partitions %s are revoked while their records are processed", partitions)
            # Other members process them from now on: no offset of theirs may be committed here.
            self._in_loop(partial(self._forget, partitions))

    async def _drain(self, partitions: list[Partition]) -> None:
        self._revoking |= set(partitions)
        for queue in self._queues:
            queue.drop(lambda job: job.partition in self._revoking)
        deadline = self._loop.time() + DRAIN_S
        while any(job.partition in self._revoking for jobs in self._running for job in jobs):
            if self._loop.time() > deadline:
                break
            await asyncio.sleep(0.01)
        try:
            await self._commit()
        finally:
            self._forget(partitions)

    def _forget(self, partitions: list[Partition]) -> None:
        # Partitions that were assigned again meanwhile have new progress, which is kept.
        gone = self._revoking.intersection(partitions)
        for partition in gone:
            self._progress.pop(partition, None)
        self._drop_outputs(gone)

    def _drop_outputs(self, gone: set[Partition]) -> None:
        """Drop what exactly once must not store any more: the messages of records that other members own now."""
        if not self._subscription.exactly_once:
            return
        kept = []
        for job in self._unstored:
            lost = [each.partition in gone for each in (job, *job.companions)]
            if not any(lost):
                kept.append(job)
            elif not all(lost):
                self._fail(_split_batch(job))
        self._unstored = kept

    def _fail(self, error: Exception) -> None:
        """Commit nothing any more, and let `run` raise an error soon."""
        self._failure = self._failure or error
        self._has_progress.set()

    # Processing.

    async def _run_queue(self, index: int) -> None:
        queue, event = self._queues[index], self._events[index]
        limit = self._subscription.batch_size if self._caller.binding.is_batch else CHUNK_RECORDS
        while not self._is_stopping:
            event.clear()
            jobs = queue.take(limit, self._clock.now())
            if not jobs:
                await self._clock.wait(event, queue.due)
                continue
            if self._caller.binding.is_batch and len(jobs) < limit and self._subscription.batch_wait_s:
                jobs = await self._gather(queue, event, jobs, limit)
            self._running[index] = jobs
            results = await self._caller.run(jobs)
            await self._finish(queue, results)
            self._running[index] = []

    async def _gather(self, queue: KeyQueue, event: asyncio.Event, jobs: list[Job], limit: int) -> list[Job]:
        """Wait up to `batch_wait_s` for a fuller batch."""
        until = self._clock.now() + self._subscription.batch_wait_s
        while len(jobs) < limit and self._clock.now() < until and not self._is_stopping:
            event.clear()
            await self._clock.wait(event, until)
            jobs += queue.take(limit - len(jobs), self._clock.now())
        return [job for job in jobs if job.partition not in self._revoking]

    async def _finish(self, queue: KeyQueue, results: HandlerResults) -> None:
        counters = self._counters
        counters.processed += len(results.done)
        counters.busy_s += results.busy_s
        ended = results.done
        for job in results.done:
            queue.release(job)
        for job, error in results.failed:
            counters.failed += 1
            if not self._tries_again(queue, job, error):
                self._dead_letter(queue, job, error)
                ended.append(job)
        queue.give_back((job for job in results.left if job.partition not in self._revoking), self._clock.now())
        await self._hand_over([job for job in ended if job.outputs])
        for job in ended:
            job.progress.finish(job.offset)
        if ended:
            counters.observe_age(ended[-1].record.timestamp_ms)
        if results.failed or counters.delayed:
            counters.delayed = sum(len(each) for each in self._queues)
        counters.waiting = self._open_records()
        self._has_progress.set()
        self._has_room.set()

    def _tries_again(self, queue: KeyQueue, job: Job, error: Exception) -> bool:
        """Delay a failed record until its next try, if it has one; False if its tries are exhausted."""
        policy = self._subscription.policy
        if not policy.tries_again(job.attempt, error):
            return False
        pause_s = policy.pause_s(job.attempt)
        logger.info("%r failed at attempt %d, next in %g s: %s", job.record, job.attempt, pause_s, error)
        job.attempt += 1
        if job.partition not in self._revoking:
            queue.delay(job, self._clock.now() + pause_s)
        return True

    def _dead_letter(self, queue: KeyQueue, job: Job, error: Exception) -> None:
        """Make a dead letter the output of a record whose tries are exhausted, and release the records behind it."""
        queue.release(job)
        job.is_dead = True
        job.outputs = make_dead_letter(job, self._subscription.policy, self._subscription.group, error)
        self._count_dead(job, error)

    def _count_dead(self, job: Job, error: Exception) -> None:
        self._counters.dead += 1
        where = f"it is in {job.outputs[0].topic} now" if job.outputs else "it is skipped"
        logger.warning("%r failed at all %d attempts, %s: %s", job.record, job.attempt, where, error, exc_info=error)

    async def _hand_over(self, jobs: list[Job]) -> None:
        """Send messages at once, or for exactly once keep them for the transaction that commits their offsets."""
        if not jobs:
            return
        self._counters.sent += sum(len(job.outputs) for job in jobs)
        if not self._subscription.exactly_once:
            self._unstored += jobs
            messages = [message for job in jobs for message in job.outputs]
            await self._in_committer(lambda: self._sink.send(messages))
            return
        for job in jobs:
            # A revoked partition belongs to another member by now.
            owned = [self._progress.get(each.partition) is each.progress for each in (job, *job.companions)]
            if all(owned):
                self._unstored.append(job)
            elif any(owned):
                raise _split_batch(job)

    # Committing.

    async def _keep_committing(self) -> None:
        while not self._is_stopping:
            await self._has_progress.wait()
            self._has_progress.clear()
            await self._commit()
            await asyncio.sleep(self._subscription.commit_interval_s)

    async def _commit(self) -> None:
        async with self._commit_lock:
            if self._failure is not None:
                raise self._failure
            withheld = self._withheld() if self._subscription.exactly_once else frozenset()
            positions: dict[Partition, Position] = {}
            owners: dict[Partition, PartitionProgress] = {}
            for partition, progress in self._progress.items():
                position = None if partition in withheld else progress.uncommitted()
                if position is not None:
                    positions[partition], owners[partition] = position, progress
            jobs = [job for job in self._unstored if job.partition not in withheld]
            self._unstored = [job for job in self._unstored if job.partition in withheld]
            if not positions and not jobs:
                return
            try:
                await self._store(jobs, positions)
                if positions and not self._subscription.exactly_once:
                    await self._in_reader(lambda: self._source.commit_offsets(positions))
            except Exception as error:
                self._fail(error)
                raise
            self._counters.commits += 1
            for partition, progress in owners.items():
                progress.committed(positions[partition])

    def _withheld(self) -> frozenset[Partition]:
        """The partitions that exactly once cannot commit now: their commit has no room for all records that are done.

        With them go partitions that share a batch, since its messages belong to the records of all.
        """
        withheld = {partition for partition, progress in self._progress.items() if not progress.fits}
        batches = [{job.partition, *(each.partition for each in job.companions)} for job in self._unstored]
        while withheld and (reached := [batch for batch in batches if batch & withheld and not batch <= withheld]):
            withheld.update(*reached)
        return frozenset(withheld)

    async def _store(self, jobs: list[Job], positions: dict[Partition, Position]) -> None:
        """Store the jobs' messages, for exactly once with positions. Jobs with refused messages are dead-lettered."""
        is_exact = self._subscription.exactly_once
        messages = [message for job in jobs for message in job.outputs] if is_exact else []
        while True:
            commit = partial(self._sink.commit, messages, positions if is_exact else {})
            try:
                return await self._in_committer(commit)
            except RecordRefused as refused:
                # Messages sent to the sink meanwhile are flushed with these.
                every = [*jobs, *self._unstored]
                subscription = self._subscription
                dead_lettered = dead_letter_refused(refused, every, subscription.policy, subscription.group)
                for job, error in dead_lettered.jobs:
                    self._count_dead(job, error)
                messages = [message for job in jobs for message in job.outputs] if is_exact else dead_lettered.messages

    async def _close(self) -> None:
        self._caller.close()
        try:
            await self._in_committer(self._sink.close)
        finally:
            await self._in_reader(self._source.close)
            self._reader.close()
            self._committer.shutdown(wait=False)

    async def _in_reader(self, call: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._reader.submit(call), loop=self._loop)

    async def _in_committer(self, call: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._committer, call)

    def _in_loop(self, call: Callable[[], None]) -> None:
        """Run something on the loop from the reader's thread, and wait for it."""

        async def run() -> None:
            call()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(DRAIN_S)


def _split_batch(job: Job) -> PenstockError:
    """A batch whose records belong to two members by now can neither be stored nor dropped here."""
    return PenstockError(
        f"partitions of the batch with {job.record!r} were revoked while it was processed",
        f"it took longer than {DRAIN_S:g} s, and its messages belong to records of other members too",
        "do less in one call, or use a smaller batch_size",
    )
