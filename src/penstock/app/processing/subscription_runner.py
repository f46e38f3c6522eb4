"""A line: one subscription in one worker, from reading records to committing that they are done.

    source ──▶ lanes, by key ──▶ runner ──▶ outputs and progress ──▶ sink: messages, offsets

Reading and sending have a thread each; everything else happens on the event loop, a chunk of records at a time. A
commit is made of what is done at its moment: messages that are not stored are never covered by a committed offset. If
anything fails that is not a handler's fault, the line is thrown away and begins again from the last commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from penstock.app.counters import LineCounters
from penstock.app.lines.call_thread import CallThread
from penstock.app.lines.lane import Job, Lane, Partition
from penstock.app.lines.letters import dead_letter, put_refused_aside
from penstock.app.lines.progress import PartitionProgress, Ranges
from penstock.app.lines.runner import Finished, Runner
from penstock.app.lines.transport import Clock, Position, Refused, Sink, Source
from penstock.app.subscription import Subscription
from penstock.client.application.records import Record

CHUNK_RECORDS = 200
READ_RECORDS = 500
READ_S = 0.25
# Records in memory that are not done, over all lanes; beyond it, reading pauses.
OPEN_RECORDS_MAX = 5_000
# Records between the first that is not done and the last that was read, for one partition.
SPAN_RECORDS_MAX = 100_000
DRAIN_S = 10.0
PAUSE_AFTER_S = 2.0

T = TypeVar("T")

logger = logging.getLogger("penstock.app")


class Line:
    """Runs until `stop`. `crash` is the first failure that was not a handler's."""

    def __init__(
        self,
        subscription: Subscription,
        runner: Runner,
        source: Source,
        sink: Sink,
        clock: Clock,
        counters: LineCounters,
    ) -> None:
        self._subscription = subscription
        self._runner = runner
        self._source = source
        self._sink = sink
        self._clock = clock
        self._counters = counters
        self._lanes = [Lane() for _ in range(subscription.concurrency)]
        self._events = [asyncio.Event() for _ in self._lanes]
        self._progress: dict[Partition, PartitionProgress] = {}
        # Jobs whose messages are not known to be stored.
        self._unstored: dict[Partition, list[Job]] = {}
        self._running: list[list[Job]] = [[] for _ in self._lanes]
        self._leaving: set[Partition] = set()
        self._reader = CallThread("penstock-read")
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="penstock-commit")
        self._commit_lock = asyncio.Lock()
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_stopping = False
        self._is_paused = False
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Work until `stop`, then finish what runs and commit it. Raises what is not a handler's failure."""
        await self._in_reader(lambda: self._source.open(self._assigned, self._revoked))
        tasks = [asyncio.create_task(self._run_lane(place)) for place in range(len(self._lanes))]
        tasks += [asyncio.create_task(self._keep_reading()), asyncio.create_task(self._keep_committing())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            await self._commit()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    def stop(self) -> None:
        """Read nothing more, finish what runs, commit, and end."""
        self._is_stopping = True
        self._runner.stop()
        for event in (*self._events, self._has_news, self._has_room):
            event.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be done before time passes or records come. For tests."""
        now = self._clock.now()
        busy = any(self._running) or any(lane.is_ready for lane in self._lanes)
        due = any(lane.due is not None and lane.due <= now for lane in self._lanes)
        open_outputs = any(self._unstored.values())
        uncommitted = any(progress.uncommitted() for progress in self._progress.values())
        return (
            not (busy or due or open_outputs or uncommitted or self._commit_lock.locked()) and self._source.is_at_end()
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
        """Wait until records are done. Pausing throws away what was fetched ahead, so it is for longer waits only: then
        the group must hear of us, and we of it."""
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
        decode = self._runner.binding.decode
        lanes = self._lanes
        count = len(lanes)
        touched = set()
        for message in messages:
            partition = (message.topic(), message.partition())
            offset = message.offset()
            progress = self._progress.get(partition)
            if progress is None:
                progress = self._progress[partition] = PartitionProgress()
            if partition in self._leaving or not progress.begin(offset):
                continue
            key = message.key()
            place = 0 if count == 1 else hash(key if key is not None else offset) % count
            lanes[place].add(Job(Record(message, decode), partition, offset, key, progress))
            touched.add(place)
        for place in touched:
            self._events[place].set()
        self._counters.waiting = self._open_records()

    def _open_records(self) -> int:
        return sum(progress.unfinished_count for progress in self._progress.values())

    def _assigned(self, partitions: dict[Partition, Ranges]) -> None:
        """In the reader's thread."""

        def begin() -> None:
            for partition, finished in partitions.items():
                self._leaving.discard(partition)
                self._progress[partition] = PartitionProgress(finished)
                self._unstored.pop(partition, None)

        self._in_loop(begin)

    def _revoked(self, partitions: list[Partition]) -> None:
        """In the reader's thread: returns when nothing of these partitions runs, and what is done is committed."""
        leaving = asyncio.run_coroutine_threadsafe(self._leave(partitions), self._loop)
        try:
            self._reader.wait(leaving, DRAIN_S * 2)
        except (TimeoutError, asyncio.CancelledError):
            logger.warning("partitions %s are taken away while their records are processed", partitions)
            # Others begin with them now: nothing of them may be committed any more.
            self._in_loop(partial(self._forget, partitions))

    async def _leave(self, partitions: list[Partition]) -> None:
        self._leaving |= set(partitions)
        for lane in self._lanes:
            lane.drop(lambda job: job.partition in self._leaving)
        deadline = self._loop.time() + DRAIN_S
        while any(job.partition in self._leaving for jobs in self._running for job in jobs):
            if self._loop.time() > deadline:
                break
            await asyncio.sleep(0.01)
        try:
            await self._commit()
        except Exception:
            logger.exception("what was done of %s could not be committed, and is done again by others", partitions)
        self._forget(partitions)

    def _forget(self, partitions: list[Partition]) -> None:
        # Those that came back meanwhile have begun anew.
        for partition in self._leaving.intersection(partitions):
            self._progress.pop(partition, None)
            self._unstored.pop(partition, None)

    # Processing.

    async def _run_lane(self, place: int) -> None:
        lane, event = self._lanes[place], self._events[place]
        limit = self._subscription.batch_size if self._runner.binding.is_batch else CHUNK_RECORDS
        while not self._is_stopping:
            event.clear()
            jobs = lane.take(limit, self._clock.now())
            if not jobs:
                await self._clock.wait(event, lane.due)
                continue
            if self._runner.binding.is_batch and len(jobs) < limit and self._subscription.batch_wait_s:
                jobs = await self._gather(lane, event, jobs, limit)
            self._running[place] = jobs
            finished = await self._runner.run(jobs)
            await self._finish(lane, finished)
            self._running[place] = []

    async def _gather(self, lane: Lane, event: asyncio.Event, jobs: list[Job], limit: int) -> list[Job]:
        """Wait a little for a fuller batch."""
        until = self._clock.now() + self._subscription.batch_wait_s
        while len(jobs) < limit and self._clock.now() < until and not self._is_stopping:
            event.clear()
            await self._clock.wait(event, until)
            jobs += lane.take(limit - len(jobs), self._clock.now())
        return [job for job in jobs if job.partition not in self._leaving]

    async def _finish(self, lane: Lane, finished: Finished) -> None:
        counters = self._counters
        counters.processed += len(finished.done)
        counters.busy_s += finished.busy_s
        ended = finished.done
        for job in finished.done:
            lane.release(job)
        for job, error in finished.failed:
            counters.failed += 1
            if not self._tries_again(lane, job, error):
                self._put_aside(lane, job, error)
                ended.append(job)
        lane.give_back((job for job in finished.left if job.partition not in self._leaving), self._clock.now())
        await self._hand_over([job for job in ended if job.outputs])
        for job in ended:
            job.progress.end(job.offset)
        if ended:
            counters.observe_age(ended[-1].record.timestamp_ms)
        if finished.failed or counters.delayed:
            counters.delayed = sum(len(each) for each in self._lanes)
        counters.waiting = self._open_records()
        self._has_news.set()
        self._has_room.set()

    def _tries_again(self, lane: Lane, job: Job, error: Exception) -> bool:
        """Whether a failed record is tried again; then it waits in its lane."""
        policy = self._subscription.policy
        if not policy.tries_again(job.attempt, error):
            return False
        pause_s = policy.pause_s(job.attempt)
        logger.info("%r failed at attempt %d, next in %g s: %s", job.record, job.attempt, pause_s, error)
        job.attempt += 1
        if job.partition not in self._leaving:
            lane.delay(job, self._clock.now() + pause_s)
        return True

    def _put_aside(self, lane: Lane, job: Job, error: Exception) -> None:
        """A record has had its tries: those behind it go on, and what is sent for it is its dead letter."""
        lane.release(job)
        job.is_dead = True
        job.outputs = dead_letter(job, self._subscription.policy, self._subscription.group, error)
        self._count_dead(job, error)

    def _count_dead(self, job: Job, error: Exception) -> None:
        self._counters.dead += 1
        where = f"it is in {job.outputs[0].topic} now" if job.outputs else "it is skipped"
        logger.warning("%r failed at all %d attempts, %s: %s", job.record, job.attempt, where, error, exc_info=error)

    async def _hand_over(self, jobs: list[Job]) -> None:
        """Messages go to the sink at once, or wait for the transaction that their offsets are in."""
        if not jobs:
            return
        self._counters.sent += sum(len(job.outputs) for job in jobs)
        for job in jobs:
            # A partition that was taken away is somebody else's work by now.
            if not self._subscription.exactly_once or self._progress.get(job.partition) is job.progress:
                self._unstored.setdefault(job.partition, []).append(job)
        if not self._subscription.exactly_once:
            messages = [message for job in jobs for message in job.outputs]
            await self._in_committer(lambda: self._sink.send(messages))

    # Committing.

    async def _keep_committing(self) -> None:
        while not self._is_stopping:
            await self._has_news.wait()
            self._has_news.clear()
            await self._commit()
            await asyncio.sleep(self._subscription.commit_interval_s)

    async def _commit(self) -> None:
        async with self._commit_lock:
            positions: dict[Partition, Position] = {}
            owners: dict[Partition, PartitionProgress] = {}
            for partition, progress in self._progress.items():
                position = progress.uncommitted()
                if position is not None:
                    positions[partition], owners[partition] = position, progress
            jobs = [job for jobs in self._unstored.values() for job in jobs]
            self._unstored = {}
            if not positions and not jobs:
                return
            await self._store(jobs, positions)
            if positions and not self._subscription.exactly_once:
                await self._in_reader(lambda: self._source.commit_offsets(positions))
            self._counters.commits += 1
            for partition, progress in owners.items():
                progress.committed(positions[partition])

    async def _store(self, jobs: list[Job], positions: dict[Partition, Position]) -> None:
        """Store what jobs send, exactly once with positions. Jobs whose messages are refused are put aside instead."""
        is_exact = self._subscription.exactly_once
        messages = [message for job in jobs for message in job.outputs] if is_exact else []
        while True:
            commit = partial(self._sink.commit, messages, positions if is_exact else {})
            try:
                return await self._in_committer(commit)
            except Refused as refused:
                # What was given to the sink since is flushed with it.
                later = [job for each in self._unstored.values() for job in each]
                subscription = self._subscription
                put_aside = put_refused_aside(refused, [*jobs, *later], subscription.policy, subscription.group)
                for job, error in put_aside.jobs:
                    self._count_dead(job, error)
                messages = [message for job in jobs for message in job.outputs] if is_exact else put_aside.messages

    async def _close(self) -> None:
        self._runner.close()
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
