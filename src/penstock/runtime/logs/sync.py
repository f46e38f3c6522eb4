"""Group commit: one sync of a log serves all requests that wait for it.

At most one sync of a log is in progress. Requests that arrive meanwhile get the next one, which starts as soon as the
first is done and covers all of them. A failed sync fails the log: after an EIO the kernel may have dropped the very
pages that should be written, so nothing is retried and no waiting request is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from penstock.core.metrics.histogram import Histogram
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.storage.files import StorageError
from penstock.storage.log import FlushTicket, Log

# How long a sync waits that could not open its files.
RETRY_S = 0.5

logger = logging.getLogger("penstock.runtime")


class LogSync:
    """Syncs one log on demand."""

    __slots__ = (
        "_abandoned",
        "_again",
        "_barriers",
        "_env",
        "_flushes",
        "_log",
        "_on_failure",
        "_owed",
        "_scheduled",
        "_started",
        "_stopped",
        "_synced_ms",
        "_waiters",
        "_work",
        "syncs",
    )

    def __init__(
        self, env: Env, log: Log, on_failure: Callable[[StorageError], None], flushes: Histogram | None = None
    ) -> None:
        self._env = env
        self._log = log
        # Counts how long syncs take.
        self._flushes = flushes
        self._started = 0.0
        self._on_failure = on_failure
        # The sync in progress.
        self._work: asyncio.Future[None] | None = None
        self._owed: Callable[[], None] | None = None
        self._scheduled = False
        # A sync was requested while one was in progress, which may not cover what was appended since it began.
        self._again = False
        self._stopped = False
        self._abandoned = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        # Those that wait for a sync of everything, and not for an offset.
        self._barriers: list[asyncio.Future[None]] = []
        # When the log was last synced, on the monotonic clock.
        self._synced_ms = env.monotonic_ms()
        self.syncs = 0

    def durable(self, offset: int) -> asyncio.Future[None]:
        """A future that completes when everything before `offset` is on disk, or fails when it cannot be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._log.flushed_offset >= offset and self._owed is None:
            future.set_result(None)
        else:
            self._waiters.append((offset, future))
            self.request()
        return future

    def barrier(self) -> asyncio.Future[None]:
        """A future that completes when everything changed so far is durable: records, truncations, names of files."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append(future)
        self.request()
        return future

    def request(self) -> None:
        """Request a sync of all that was appended so far, soon; appends before it starts are included."""
        if self._work is not None:
            self._again = True
        elif not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def is_older_than(self, age_ms: int) -> bool:
        """Whether the last sync is at least this long ago."""
        return self._env.monotonic_ms() - self._synced_ms >= age_ms

    def owe(self, work: Callable[[], None]) -> None:
        """Have the first sync run `work` too, before anything it covers counts as durable.

        It is run again where it finds no descriptors: it must not have done anything by halves then.
        """
        self._owed = work

    def take_over(self, former: LogSync) -> None:
        """Serve those who wait for a log that this one has replaced; nothing more is synced there."""
        self._waiters, former._waiters = former._waiters, []
        former._stopped = former._abandoned = True
        self.request()

    async def stop(self) -> None:
        """Start no more syncs, and wait for the one in progress: the log is about to be closed, which syncs it too."""
        self._stopped = True
        while self._work is not None:
            await asyncio.wait([self._work])
        if self._owed is not None and self._log.end_offset > self._log.start_offset:
            await self._env.run_blocking(self._owed)

    async def close(self) -> None:
        """Close the log cleanly, waiting for the disk off the loop. Raises StorageError if that is not possible.

        A log that is deleted meanwhile is left to its deletion.
        """
        await self.stop()
        if self._abandoned:
            return
        log = self._log
        ticket = log.begin_close() if not log.is_failed else None
        if ticket is not None:
            try:
                await self._env.run_blocking(ticket.run)
                if self._abandoned:
                    return
                log.finish_flush(ticket)
            except StorageError as error:
                raise log.fail(error) from error
        log.close(clean=True)

    def refuse(self, error: ApiError) -> None:
        """Fail all waiting requests: their records may be truncated."""
        self._fail_waiters(error, is_closed=False)

    def abandon(self) -> None:
        """The log is deleted: nothing in it will become durable."""
        self._stopped = self._abandoned = True
        gone = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._log.directory.name} was deleted meanwhile")
        self._fail_waiters(gone)

    def _start(self) -> None:
        self._scheduled = False
        if self._stopped:
            self._fail_waiters(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._log.directory.name} is closed"))
            return
        if self._work is not None:
            return
        try:
            ticket = self._log.begin_flush()
        except FileNotFoundError as error:
            self._fail(StorageError(f"a file of {self._log.directory} that was not synced is gone: {error}"))
            return
        except StorageError as error:
            if error.is_passing:
                # Nothing was synced yet; there were no descriptors for files that wait for it.
                self._try_again(error)
            else:
                self._fail(error)
            return
        barriers, self._barriers = self._barriers, []
        owed = self._owed
        if ticket is None and owed is None:
            _complete(barriers)
            self._resolve()
            return
        self.syncs += 1
        self._again = False
        self._started = perf_counter()

        file = ticket.only_file if ticket is not None and owed is None else None
        if file is not None:
            self._work = self._env.sync(file)
        else:

            def run() -> None:
                if ticket is not None:
                    ticket.run()
                if owed is not None:
                    owed()

            self._work = self._env.run_blocking(run)
        self._work.add_done_callback(lambda done: self._finished(ticket, owed, barriers, done))

    def _finished(
        self,
        ticket: FlushTicket | None,
        owed: Callable[[], None] | None,
        barriers: list[asyncio.Future[None]],
        done: asyncio.Future[None],
    ) -> None:
        self._work = None
        if done.cancelled():
            return
        # Should it have failed, they fail with the others.
        self._barriers = barriers + self._barriers
        if self._flushes is not None:
            self._flushes.observe(perf_counter() - self._started)
        error = done.exception()
        if self._abandoned:
            self.abandon()
            return
        if error is not None and not isinstance(error, StorageError):
            error = StorageError(f"cannot sync {self._log.directory}: {error}")
        delay = error if error is not None and error.lacks_descriptors else None
        if error is not None and delay is None:
            self._fail(error)
            return
        if self._owed is owed and delay is None:
            self._owed = None
        try:
            if ticket is not None:
                ticket.delay = ticket.delay or delay
                self._log.finish_flush(ticket)
            elif delay is not None:
                raise delay
        except StorageError as unfinished:
            if unfinished.is_passing:
                # All waiting requests are still there for the next one.
                self._try_again(unfinished)
            else:
                self._fail(unfinished)
            return
        self._synced_ms = self._env.monotonic_ms()
        self._barriers = self._barriers[len(barriers) :]
        _complete(barriers)
        self._resolve()
        if self._waiters or self._barriers or self._again:
            self._start()

    def _try_again(self, error: StorageError) -> None:
        logger.warning("a sync of %s will be tried again: %s", self._log.directory, error)
        asyncio.get_running_loop().call_later(RETRY_S, self.request)

    def _resolve(self) -> None:
        flushed = self._log.flushed_offset
        still_waiting = []
        for offset, future in self._waiters:
            if offset > flushed:
                still_waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiters = still_waiting

    def _fail(self, error: StorageError) -> None:
        logger.error("a sync of %s failed, the log accepts no more writes: %s", self._log.directory, error)
        self._log.fail(error)
        self._fail_waiters(error)
        self._on_failure(error)

    def _fail_waiters(self, error: ApiError, *, is_closed: bool = True) -> None:
        waiters, self._waiters = self._waiters, []
        failing = [future for _, future in waiters]
        if is_closed:
            failing += self._barriers
            self._barriers = []
        for future in failing:
            if not future.done():
                future.set_exception(error)
                # The caller may have disconnected; the exception need not be retrieved.
                future.exception()


def _complete(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
