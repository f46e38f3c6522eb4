"""A line of a share group: takes records with other workers, processes them, and says of each what became of it.

The broker counts deliveries and hands out what was released again, to whoever comes; so a record's tries are its
deliveries, and a worker keeps nothing in memory.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.app.counters import LineCounters
from penstock.app.lines.lane import Job
from penstock.app.lines.letters import dead_letter, put_refused_aside
from penstock.app.lines.progress import PartitionProgress
from penstock.app.lines.runner import Finished, Runner
from penstock.app.lines.transport import Outcomes, Refused, SharedSource
from penstock.app.subscription import Subscription
from penstock.client.application.errors import TimedOut
from penstock.client.application.records import Record

READ_S = 0.25
# Quick jobs are taken more at a time, until a batch takes so long; of slow ones no more than run.
BATCH_S_MIN = 0.1
BATCH_S_MAX = 1.0
BATCH_RECORDS_MAX = 500
BATCH_GROWTH = 8
# Jobs that have not begun when so much of their lock's time is over are given back.
LOCK_SHARE = 0.5
logger = logging.getLogger("penstock.app")


class ShareLine:
    """Runs until `stop`."""

    def __init__(
        self, subscription: Subscription, runner: Runner, source: SharedSource, counters: LineCounters
    ) -> None:
        self._subscription = subscription
        self._runner = runner
        self._source = source
        self._counters = counters
        self._is_stopping = False
        self._is_busy = False
        self._is_fixed = runner.binding.is_batch
        self._batch = subscription.batch_size if self._is_fixed else subscription.concurrency
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-share")

    async def run(self) -> None:
        """Work until `stop`, then acknowledge what is done. Raises what is not a handler's failure."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._source.open)
            while not self._is_stopping:
                messages = await loop.run_in_executor(self._thread, self._source.read, self._batch, READ_S)
                if messages:
                    started = loop.time()
                    self._is_busy = True
                    jobs, outcomes = await self._process(messages)
                    await self._store(jobs)
                    await loop.run_in_executor(self._thread, self._source.acknowledge, outcomes)
                    self._counters.commits += 1
                    self._is_busy = False
                    self._adapt(len(messages), loop.time() - started)
        finally:
            self._runner.close()
            await loop.run_in_executor(self._thread, self._source.close)
            self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Take nothing more, finish what runs, and end."""
        self._is_stopping = True

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do. For tests."""
        return not self._is_busy and self._source.is_at_end()

    def _adapt(self, taken: int, elapsed_s: float) -> None:
        """Quick jobs are taken many at a time; of slow ones no more than run: what waits here is locked for others."""
        if self._is_fixed:
            return
        if elapsed_s < BATCH_S_MIN and taken >= self._batch:
            self._batch = max(self._batch, min(self._batch * BATCH_GROWTH, BATCH_RECORDS_MAX))
        elif elapsed_s > BATCH_S_MAX:
            self._batch = self._subscription.concurrency

    async def _store(self, jobs: list[Job]) -> None:
        """Store what jobs send. Those whose messages are refused are put aside: a letter is sent instead."""
        messages = [message for job in jobs for message in job.outputs]
        self._counters.sent += len(messages)
        while messages:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._source.store, messages)
                return
            except Refused as refused:
                subscription = self._subscription
                put_aside = put_refused_aside(refused, jobs, subscription.policy, subscription.group)
                for job, error in put_aside.jobs:
                    self._count_dead(job, error)
                messages = put_aside.messages

    async def _process(self, messages: list[Any]) -> tuple[list[Job], Outcomes]:
        ended: list[Job] = []
        outcomes: Outcomes = []
        for finished in await self._run_in_lanes(self._jobs_of(messages)):
            self._judge(finished, ended, outcomes)
        return ended, outcomes

    def _jobs_of(self, messages: list[Any]) -> list[Job]:
        decode = self._runner.binding.decode
        jobs = []
        for message in messages:
            record: Record[Any] = Record(message, decode)
            job = Job(record, (record.topic, record.partition), record.offset, None, PartitionProgress())
            job.attempt = record.deliveries
            jobs.append(job)
        return jobs

    async def _run_in_lanes(self, jobs: list[Job]) -> list[Finished]:
        if self._runner.binding.is_batch:
            return [await self._runner.run(jobs)]
        lanes = min(self._subscription.concurrency, len(jobs))
        chunks = await asyncio.gather(*(self._run_all(jobs[place::lanes]) for place in range(lanes)))
        return [finished for chunk in chunks for finished in chunk]

    async def _run_all(self, jobs: list[Job]) -> list[Finished]:
        """One job after the other. Those that cannot begin before their lock is about to end are left."""
        found: list[Finished] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._source.limits().lock_s * LOCK_SHARE
        while jobs and (not found or loop.time() < deadline):
            finished = await self._runner.run(jobs)
            jobs = finished.left
            found.append(finished._replace(left=[]))
        if jobs:
            found.append(Finished([], [], jobs, 0.0))
        return found

    def _judge(self, finished: Finished, ended: list[Job], outcomes: Outcomes) -> None:
        counters = self._counters
        counters.processed += len(finished.done)
        counters.failed += len(finished.failed)
        counters.busy_s += finished.busy_s
        if finished.done:
            counters.observe_age(finished.done[-1].record.timestamp_ms)
        ended += finished.done
        outcomes += [(job.record.message, "accept") for job in finished.done]
        policy, deliveries_max = self._subscription.policy, self._source.limits().deliveries_max
        # What is released at its last delivery would be given up, without a letter.
        for job in finished.left:
            if job.attempt < deliveries_max:
                outcomes.append((job.record.message, "release"))
            else:
                self._put_aside(job, TimedOut("nobody had time for it before its lock ended"), ended, outcomes)
        for job, error in finished.failed:
            if job.attempt < deliveries_max and policy.tries_again(job.attempt, error):
                outcomes.append((job.record.message, "release"))
            else:
                self._put_aside(job, error, ended, outcomes)

    def _put_aside(self, job: Job, error: Exception, ended: list[Job], outcomes: Outcomes) -> None:
        job.is_dead = True
        job.outputs = dead_letter(job, self._subscription.policy, self._subscription.group, error)
        self._count_dead(job, error)
        ended.append(job)
        # It is kept in the dead letters; the broker must not put it aside a second time.
        outcomes.append((job.record.message, "accept" if job.outputs else "reject"))

    def _count_dead(self, job: Job, error: Exception) -> None:
        self._counters.dead += 1
        logger.warning("%r failed at all %d attempts: %s", job.record, job.attempt, error, exc_info=error)
