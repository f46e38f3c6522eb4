"""Pools of workers: work that takes too long, needs too much memory or kills its process; and queueing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.gateway.registry.schema import JSON, SchemaText
from penstock.gateway.rest.values.schema_values import encode_values
from penstock.gateway.web.problem import Problem
from penstock.gateway.web.quotas import CALLER
from penstock.gateway.work.budgets import DEFAULT_BUDGETS, Budgets
from penstock.gateway.work.pool import WorkerPool, WorkFailed
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess

ONE_WORKER = replace(DEFAULT_BUDGETS, worker_count_max=1)
FOR_EVER_S = 600


def with_pool(scenario: Callable[[WorkerPool], Awaitable[None]], budgets: Budgets = ONE_WORKER) -> None:
    """Run a scenario with a pool of its own; afterwards nothing of it is left."""

    async def run() -> None:
        pool = WorkerPool("tests", budgets)
        try:
            await scenario(pool)
        finally:
            await pool.stop()
        assert len(pool) == 0

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for happens to processes.
            await asyncio.sleep(0.02)


def test_worker_runs_one_piece_of_work_at_a_time() -> None:
    async def scenario(pool: WorkerPool) -> None:
        first = await pool.run(os.getpid)
        assert first != os.getpid()
        assert await pool.run(sorted, [3, 1, 2]) == [1, 2, 3]
        assert await pool.run(os.getpid) == first

    with_pool(scenario)


def test_work_past_its_deadline_is_aborted() -> None:
    async def scenario(pool: WorkerPool) -> None:
        first = await pool.run(os.getpid)
        with pytest.raises(WorkFailed, match=r"longer than 300 ms \(the limit worker_deadline_ms\)") as failure:
            await pool.run(time.sleep, FOR_EVER_S, deadline_s=0.3)
        assert "--limit worker_deadline_ms" in failure.value.fix
        assert await pool.run(os.getpid) != first
        await until(lambda: not Path(f"/proc/{first}").exists())

    with_pool(scenario, replace(ONE_WORKER, worker_deadline_ms=60_000))


def test_only_the_caller_gets_the_error_of_a_worker_that_dies() -> None:
    async def scenario(pool: WorkerPool) -> None:
        other = asyncio.create_task(pool.run(time.sleep, 0.5))
        with pytest.raises(WorkFailed, match="crashed the worker"):
            await pool.run(os.abort)
        assert await other is None
        with pytest.raises(WorkFailed, match="crashed the worker"):
            await pool.run(os._exit, 0)
        assert await pool.run(len, "abc") == 3

    with_pool(scenario, replace(DEFAULT_BUDGETS, worker_count_max=2))


def test_work_with_too_much_memory_or_output_is_aborted() -> None:
    async def scenario(pool: WorkerPool) -> None:
        with pytest.raises(WorkFailed, match="worker_memory_bytes_max"):
            await pool.run(bytearray, 100 * 1024 * 1024)
        with pytest.raises(WorkFailed, match="worker_answer_bytes_max"):
            await pool.run(bytes, 2 * 1024 * 1024)
        assert await pool.run(bytes, 3) == bytes(3)

    budgets = replace(ONE_WORKER, worker_memory_bytes_max=64 * 1024 * 1024, worker_answer_bytes_max=1024 * 1024)
    with_pool(scenario, budgets)


def test_too_deeply_nested_values_are_rejected() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    async def scenario(pool: WorkerPool) -> None:
        with pytest.raises(WorkFailed, match="nested too deeply"):
            await pool.run(len, deep)
        assert await pool.run(len, [1]) == 1

    with_pool(scenario)
    # Taken apart from outside: to forget it all at once may be as deep.
    while deep:
        deep = deep[0]


def test_callers_get_503_while_all_workers_are_busy() -> None:
    async def scenario(pool: WorkerPool) -> None:
        await pool.run(len, "")
        work = [asyncio.create_task(pool.run(time.sleep, 1.5)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="busy") as refused:
            await pool.run(len, "abc")
        assert refused.value.status == 503
        assert refused.value.headers["Retry-After"]
        assert "the limit worker_queue_max" in refused.value.message
        # The second one waited for its turn, but not that long.
        first, second = await asyncio.gather(*work, return_exceptions=True)
        assert first is None
        assert isinstance(second, Problem)
        assert "the limit worker_wait_ms" in second.message
        assert await pool.run(len, "abc") == 3

    with_pool(scenario, replace(ONE_WORKER, worker_queue_max=1, worker_wait_ms=200))


def test_callers_take_turns_at_the_workers() -> None:
    async def scenario(pool: WorkerPool) -> None:
        await pool.run(len, "")
        done: list[str] = []

        async def work(caller: str) -> None:
            CALLER.set(caller)
            await pool.run(len, "")
            done.append(caller)

        flood = [asyncio.create_task(work("flood")) for _ in range(100)]
        await asyncio.sleep(0)
        await asyncio.create_task(work("other"))
        assert done.index("other") <= 3
        await asyncio.gather(*flood)

    with_pool(scenario)


def test_queued_work_per_caller_is_limited() -> None:
    async def scenario(pool: WorkerPool) -> None:
        await pool.run(len, "")

        async def work(caller: str) -> int:
            CALLER.set(caller)
            return await pool.run(len, "abc")

        flood = [asyncio.create_task(work("flood")) for _ in range(10)]
        await asyncio.sleep(0)
        assert await asyncio.create_task(work("other")) == 3
        found = await asyncio.gather(*flood, return_exceptions=True)
        refused = [each.message for each in found if isinstance(each, Problem)]
        assert len(refused) == 6
        assert "the limit worker_queue_per_caller_max" in refused[0]

    with_pool(scenario, replace(ONE_WORKER, worker_queue_per_caller_max=3))


def test_cancelling_a_caller_cancels_its_work() -> None:
    async def scenario(pool: WorkerPool) -> None:
        pid = await pool.run(os.getpid)
        work = asyncio.create_task(pool.run(time.sleep, FOR_EVER_S))
        await asyncio.sleep(0.1)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert await pool.run(len, "abc") == 3

    with_pool(scenario)


def test_idle_workers_stop_and_killed_ones_are_replaced() -> None:
    async def scenario(pool: WorkerPool) -> None:
        await pool.run(len, "abc")
        await until(lambda: len(pool) == 0)
        pid = await pool.run(os.getpid)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        # The pool may learn of it only when it needs that worker.
        with contextlib.suppress(WorkFailed):
            await pool.run(len, "abc")
        assert await pool.run(len, "abc") == 3

    with_pool(scenario, replace(ONE_WORKER, worker_idle_ms=300))


def test_workers_do_not_outlive_a_gateway_that_is_killed(penstock_cluster: Cluster) -> None:
    with GatewayProcess(penstock_cluster.bootstrap_servers) as gateway:
        body = {"schema": '"string"'}
        assert httpx.post(f"{gateway.registry}/subjects/outlive/versions", json=body, timeout=60).status_code == 200
        workers = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children").read_text().split()
        assert workers
        gateway.kill()
        asyncio.run(until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers)))


def test_an_exception_in_a_worker_is_raised_in_the_caller() -> None:
    async def scenario(pool: WorkerPool) -> None:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await pool.run(divmod, 1, 0)

    with_pool(scenario)


def test_catastrophic_pattern_blocks_no_other_caller() -> None:
    async def scenario(pool: WorkerPool) -> None:
        schema = SchemaText(JSON, '{"type": "string", "pattern": "^(a+)+$"}')
        fits, misfits = await pool.run(encode_values, [schema], [(0, "aaaa"), (0, "aaab")])
        assert fits == b'"aaaa"'
        assert "does not match" in misfits
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        beating = asyncio.create_task(beat())
        with pytest.raises(WorkFailed, match="worker_deadline_ms"):
            await pool.run(encode_values, [schema], [(0, "a" * 40 + "!")], deadline_s=1.5)
        beating.cancel()
        assert beats > 20

    # The first piece of work also loads what it needs, which takes long on a busy machine.
    with_pool(scenario, replace(ONE_WORKER, worker_deadline_ms=60_000))


def test_workers_that_cannot_be_started_are_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(pool: WorkerPool) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("sys.executable", "/nowhere/python")
            with pytest.raises(Problem, match="can be started") as refused:
                await pool.run(len, "abc")
        assert refused.value.status == 503
        assert await pool.run(len, "abc") == 3

    with_pool(scenario)
