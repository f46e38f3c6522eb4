"""Runs one share-group subscription in one worker: acquires records, processes and acknowledges each.

The broker counts deliveries, and delivers released records again to any member. So a record's tries are its deliveries,
and a worker keeps nothing in memory between them.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.app.counters import SubscriptionCounters
from penstock.app.processing.dead_letters import dead_letter_refused, make_dead_letter
from penstock.app.processing.handler_caller import HandlerCaller, HandlerResults
from penstock.app.processing.key_queue import Job
from penstock.app.processing.progress import PartitionProgress
from penstock.app.processing.transport import Outcomes, RecordRefused, SharedSource
from penstock.app.subscription import Subscription
from penstock.client.application.errors import TimedOut
from penstock.client.application.records import Record

READ_S = 0.25
# The batch grows while jobs are quick, until it takes so long; for slow jobs it is no larger than the concurrency.
BATCH_S_MIN = 0.1
BATCH_S_MAX = 1.0
BATCH_RECORDS_MAX = 500
BATCH_GROWTH = 8
# Jobs that have not started when this share of their lock's duration is over are released.
LOCK_SHARE = 0.5
logger = logging.getLogger("penstock.app")


class ShareSubscriptionRunner:
    """Runs until `stop`, or until a failure that is not a handler's, which `run` raises."""

    def __init__(
        self, subscription: Subscription, caller: HandlerCaller, source: SharedSource, counters: SubscriptionCounters
    ) -> None:
        self._subscription = subscription
        self._caller = caller
        self._source = source
        self._counters = counters
        self._is_stopping = False
        self._is_busy = False
        self._is_fixed = caller.binding.is_batch
        self._batch = subscription.batch_size if self._is_fixed else subscription.concurrency
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-share")

    async def run(self) -> None:
        """Process records until `stop`, then acknowledge what is done. Raises failures that are not a handler's."""
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
            self._caller.close()
            await loop.run_in_executor(self._thread, self._source.close)
            self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Stop reading, finish running calls, acknowledge, and let `run` return."""
        self._is_stopping = True

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do. For tests."""
        return not self._is_busy and self._source.is_at_end()

    def _adapt(self, taken: int, elapsed_s: float) -> None:
        """Grow the batch for quick jobs; for slow ones reset it, since jobs that wait here are locked for others."""
        if self._is_fixed:
            return
        if elapsed_s < BATCH_S_MIN and taken >= self._batch:
            self._batch = max(self._batch, min(self._batch * BATCH_GROWTH, BATCH_RECORDS_MAX))
        elif elapsed_s > BATCH_S_MAX:
            self._batch = self._subscription.concurrency

    async def _store(self, jobs: list[Job]) -> None:
        """Store the jobs' messages. Jobs whose messages are refused are dead-lettered instead."""
        messages = [message for job in jobs for message in job.outputs]
        self._counters.sent += len(messages)
        while messages:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._source.store, messages)
                return
            except RecordRefused as refused:
                subscription = self._subscription
                dead_lettered = dead_letter_refused(refused, jobs, subscription.policy, subscription.group)
                for job, error in dead_lettered.jobs:
                    self._count_dead(job, error)
                messages = dead_lettered.messages

    async def _process(self, messages: list[Any]) -> tuple[list[Job], Outcomes]:
        ended: list[Job] = []
        outcomes: Outcomes = []
        for results in await self._run_concurrently(self._jobs_of(messages)):
            self._add_outcomes(results, ended, outcomes)
        return ended, outcomes

    def _jobs_of(self, messages: list[object]) -> list[Job]:
        decode = self._caller.binding.decode
        jobs = []
        for message in messages:
            record: Record[object] = Record(message, decode)
            job = Job(record, (record.topic, record.partition), record.offset, None, PartitionProgress())
            job.attempt = record.deliveries
            jobs.append(job)
        return jobs

    async def _run_concurrently(self, jobs: list[Job]) -> list[HandlerResults]:
        if self._caller.binding.is_batch:
            return [await self._caller.run(jobs)]
        width = min(self._subscription.concurrency, len(jobs))
        chunks = await asyncio.gather(*(self._run_all(jobs[index::width]) for index in range(width)))
        return [results for chunk in chunks for results in chunk]

    async def _run_all(self, jobs: list[Job]) -> list[HandlerResults]:
        """Run one job after the other. Those that cannot start before their lock is about to expire are left."""
        found: list[HandlerResults] = []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._source.limits().lock_s * LOCK_SHARE
        while jobs and (not found or loop.time() < deadline):
            results = await self._caller.run(jobs)
            jobs = results.left
            found.append(results._replace(left=[]))
        if jobs:
            found.append(HandlerResults([], [], jobs, 0.0))
        return found

    def _add_outcomes(self, results: HandlerResults, ended: list[Job], outcomes: Outcomes) -> None:
        counters = self._counters
        counters.processed += len(results.done)
        counters.failed += len(results.failed)
        counters.busy_s += results.busy_s
        if results.done:
            counters.observe_age(results.done[-1].record.timestamp_ms)
        ended += results.done
        outcomes += [(job.record.message, "accept") for job in results.done]
        policy, deliveries_max = self._subscription.policy, self._source.limits().deliveries_max
        # A record released at its last delivery would be archived without a dead letter.
        for job in results.left:
            if job.attempt < deliveries_max:
                outcomes.append((job.record.message, "release"))
            else:
                self._dead_letter(job, TimedOut("it could not be started before its lock expired"), ended, outcomes)
        for job, error in results.failed:
            if job.attempt < deliveries_max and policy.tries_again(job.attempt, error):
                outcomes.append((job.record.message, "release"))
            else:
                self._dead_letter(job, error, ended, outcomes)

    def _dead_letter(self, job: Job, error: Exception, ended: list[Job], outcomes: Outcomes) -> None:
        job.is_dead = True
        job.outputs = make_dead_letter(job, self._subscription.policy, self._subscription.group, error)
        self._count_dead(job, error)
        ended.append(job)
        # It is in the dead letters already; the broker must not write it there a second time.
        outcomes.append((job.record.message, "accept" if job.outputs else "reject"))

    def _count_dead(self, job: Job, error: Exception) -> None:
        self._counters.dead += 1
        logger.warning("%r failed at all %d attempts: %s", job.record, job.attempt, error, exc_info=error)
