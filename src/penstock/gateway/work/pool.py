"""Worker processes for work that may take too long, need too much memory or crash: untrusted schemas and data.

Theory of operation. A pool has a few processes, started on demand and stopped after being idle for a while. A piece of
work is a module-level function with its arguments; a process does one at a time. A process that exceeds the deadline,
dies, or has grown is killed and replaced, and only the caller whose work it was gets an error. While all are busy
the callers take turns, however much work each of them has; they get 503 with Retry-After if too much is waiting already
or the wait takes too long.
Processes are spawned rather than forked: a fork of a process with threads may hold their locks forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import sys
from collections.abc import Callable
from typing import TypeVar

from penstock.gateway.named_limits import higher_limit
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import CALLER
from penstock.gateway.work.budgets import Budgets
from penstock.gateway.work.worker import LENGTH, WorkerOptions, WorkerReply, frame, main
from penstock.runtime.fair_turns import FairTurns

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
# Workers of a pool that has died exit by themselves some time after the deadline.
ALARM_FACTOR = 4
RETRY_AFTER_S = 2
START_ANSWER_BYTES_MAX = 4096

Result = TypeVar("Result")


class WorkFailed(Exception):
    """A piece of work was aborted. `reason` is the end of a sentence; `fix` is what can be done about it."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class _Died(Exception):
    """A worker exited without an answer."""


class WorkerPool:
    """The workers of one part of a gateway, named `name`. `modules` are imported before the first piece of work."""

    def __init__(self, name: str, budgets: Budgets, modules: tuple[str, ...] = ()) -> None:
        self._name = name
        self._budgets = budgets
        self._options = WorkerOptions(
            budgets.worker_memory_bytes_max,
            budgets.worker_answer_bytes_max,
            budgets.worker_deadline_ms / 1000 * ALARM_FACTOR,
            modules,
        )
        self._turns: FairTurns[str] = FairTurns(budgets.worker_count_max)
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._stopping_workers: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._workers)

    async def run(self, function: Callable[..., Result], *arguments: object, deadline_s: float | None = None) -> Result:
        """The result of a module-level function for plain arguments.

        Raises WorkFailed if it exceeded a limit or killed its process; Problem (503) if all workers are busy.
        """
        await self._turn()
        try:
            worker = await self._take()
            try:
                return await self._work(worker, function, arguments, deadline_s)
            finally:
                self._put_back(worker)
        finally:
            self._turns.release()

    async def stop(self) -> None:
        """Stop all workers."""
        for worker in list(self._workers):
            self._stop_worker(worker)
        if self._stopping_workers:
            await asyncio.wait(self._stopping_workers)

    async def _turn(self) -> None:
        budgets, caller = self._budgets, CALLER.get()
        if self._turns.is_busy:
            if self._turns.waiting >= budgets.worker_queue_max:
                raise self._busy(f"{budgets.named('worker_queue_max')} pieces of work are waiting")
            if self._turns.waiting_of(caller) >= budgets.worker_queue_per_caller_max:
                limit = budgets.named("worker_queue_per_caller_max")
                raise self._busy(f"{limit} pieces of work of one caller are waiting")
        try:
            async with asyncio.timeout(budgets.worker_wait_ms / 1000):
                await self._turns.acquire(caller)
        except TimeoutError:
            raise self._busy(f"no worker was free for {budgets.named('worker_wait_ms')}") from None

    def _busy(self, why: str) -> Problem:
        return Problem(
            50302,
            f"the workers for {self._name} are busy: {why}",
            f"try again in {RETRY_AFTER_S} s",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            worker.forget_idleness()
            if worker.is_running:
                return worker
            self._stop_worker(worker)
        try:
            return await self._start()
        except (TimeoutError, OSError, _Died) as error:
            log.warning("a worker for %s could not be started: %s", self._name, error or type(error).__name__)
            raise self._busy("no more can be started; see the gateway's log") from None

    async def _start(self) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            f"from {main.__module__} import main; main()",
            *self._options.arguments(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        worker = _Worker(process)
        self._workers.add(worker)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await worker.reply(START_ANSWER_BYTES_MAX)
        except BaseException:
            self._stop_worker(worker)
            raise
        return worker

    async def _work(
        self, worker: _Worker, function: Callable[..., Result], arguments: tuple[object, ...], deadline_s: float | None
    ) -> Result:
        budgets = self._budgets
        limit_s = budgets.worker_deadline_ms / 1000
        deadline_s = limit_s if deadline_s is None else min(deadline_s, limit_s)
        try:
            async with asyncio.timeout(deadline_s):
                reply = await worker.call(frame((function, arguments)), budgets.worker_answer_bytes_max)
        except RecursionError:
            raise _too_deep() from None
        except TimeoutError:
            reason = f"it took longer than {deadline_s * 1000:,.0f} ms (the limit worker_deadline_ms)"
            raise WorkFailed(reason, higher_limit("worker_deadline_ms")) from None
        except _Died:
            log.warning(
                "a worker for %s died in %s: %s", self._name, function.__name__, await worker.exit_description()
            )
            raise WorkFailed("it crashed the worker process", "make it smaller or flatter") from None
        worker.usable = not reply.last
        if reply.outcome == "memory":
            reason = f"it needed more memory than {budgets.named('worker_memory_bytes_max')}"
            raise WorkFailed(reason, higher_limit("worker_memory_bytes_max"))
        if reply.outcome == "depth":
            raise _too_deep()
        if reply.outcome == "size":
            reason = f"its result has more than {budgets.named('worker_answer_bytes_max')}"
            raise WorkFailed(reason, higher_limit("worker_answer_bytes_max"))
        if reply.outcome != "done":
            raise RuntimeError(f"{function.__name__} failed in a worker:\n{reply.result}")
        result: Result = reply.result
        return result

    def _put_back(self, worker: _Worker) -> None:
        if not worker.usable:
            self._stop_worker(worker)
            return
        self._idle.append(worker)
        loop = asyncio.get_running_loop()
        worker.idle_timer = loop.call_later(self._budgets.worker_idle_ms / 1000, self._stop_worker, worker)

    def _stop_worker(self, worker: _Worker) -> None:
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        worker.forget_idleness()
        with contextlib.suppress(ValueError):
            self._idle.remove(worker)
        task = asyncio.get_running_loop().create_task(worker.end(), name=f"worker-end-{self._name}")
        self._stopping_workers.add(task)
        task.add_done_callback(self._stopping_workers.discard)


def _too_deep() -> WorkFailed:
    return WorkFailed("it is nested too deeply", "make it flatter")


class _Worker:
    """A process, and the frames to and from it. `usable` is false between a request and its answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.usable = True
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process has not exited, as far as is known."""
        assert self._process.stdout is not None
        return self._process.returncode is None and not self._process.stdout.at_eof()

    def forget_idleness(self) -> None:
        """Cancel the idle timer, when the worker is used or stopped."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    async def call(self, request: bytes, size_max: int) -> WorkerReply:
        """Send a frame and wait for the reply."""
        self.usable = False
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request)
            await self._process.stdin.drain()
        except OSError:
            raise _Died from None
        return await self.reply(size_max)

    async def reply(self, size_max: int) -> WorkerReply:
        """The next frame."""
        assert self._process.stdout is not None
        try:
            (size,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
            if size > size_max:
                raise _Died
            reply: WorkerReply = pickle.loads(await self._process.stdout.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise _Died from None
        return reply

    async def exit_description(self) -> str:
        """How the process exited."""
        try:
            async with asyncio.timeout(1):
                code = await self._process.wait()
        except TimeoutError:
            return "it closed its pipes but is still running"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def end(self) -> None:
        """Kill the process and wait until it has exited."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
