"""Threads for blocking work."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from penstock.runtime.workers import Workers

DEADLINE_S = 20.0


def test_a_waiting_caller_gets_the_result_or_the_error() -> None:
    async def scenario() -> None:
        workers = Workers(2, "test")

        def fail() -> None:
            raise OSError("no disk")

        assert await workers.run(threading.get_ident) != threading.get_ident()
        with pytest.raises(OSError, match="no disk"):
            await workers.run(fail)
        workers.close()

    asyncio.run(scenario())


def test_no_more_threads_run_than_may() -> None:
    async def scenario() -> None:
        workers = Workers(2, "test")
        together, release = threading.Barrier(3), threading.Event()

        def hold() -> None:
            together.wait(DEADLINE_S)
            release.wait(DEADLINE_S)

        held = [workers.run(hold) for _ in range(2)]
        together.wait(DEADLINE_S)
        third = workers.run(lambda: "third")
        await asyncio.sleep(0.05)
        assert (workers.queued, third.done()) == (1, False)
        release.set()
        assert await asyncio.wait_for(third, DEADLINE_S) == "third"
        await asyncio.gather(*held)
        workers.close()

    asyncio.run(scenario())


def test_what_was_accepted_is_done_before_the_end_and_what_was_cancelled_is_not() -> None:
    async def scenario() -> None:
        workers = Workers(1, "test")
        release, done = threading.Event(), []
        first = workers.run(lambda: release.wait(DEADLINE_S))
        workers.run(lambda: done.append("cancelled")).cancel()
        workers.run(lambda: done.append("accepted"))
        release.set()
        workers.close()
        assert done == ["accepted"]
        assert await first
        with pytest.raises(RuntimeError):
            workers.run(lambda: None)

    asyncio.run(scenario())


def test_threads_end_with_workers_that_were_not_closed() -> None:
    async def scenario() -> None:
        workers = Workers(1, "forgotten")
        await workers.run(lambda: None)
        (thread,) = [one for one in threading.enumerate() if one.name == "forgotten_0"]
        del workers
        gc.collect()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()

    asyncio.run(scenario())


def test_a_thread_that_has_nothing_to_do_takes_the_next_piece() -> None:
    async def scenario() -> None:
        workers = Workers(4, "test")
        assert len({await workers.run(threading.get_ident) for _ in range(10)}) == 1
        workers.close()

    asyncio.run(scenario())
