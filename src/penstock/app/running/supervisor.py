"""`penstock app run`: worker processes, restarted when they die, as many as the lag requires."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.app.application import WORKER_VARIABLE, App
from penstock.app.counters import SubscriptionCounters
from penstock.app.processing.kafka import done_ahead, share_lag
from penstock.app.processing.transport import Clock
from penstock.app.running.reloading import CodeWatch
from penstock.app.running.scaling import Bounds, Scaler
from penstock.client.application.admin import Admin
from penstock.client.application.errors import PenstockError

CHECK_INTERVAL_S = 0.5
LAG_INTERVAL_S = 3.0
# A lag read longer ago is treated as unknown.
LAG_AGE_S_MAX = 30.0
RESTART_S_MAX = 30.0
STOP_S_MAX = 30.0
STOP_POLL_S = 0.05
QUICK_DEATH_S = 10.0

logger = logging.getLogger("penstock.app")


@dataclass(slots=True)
class WorkerProcess:
    """One worker: its process, and its last report."""

    number: int
    process: asyncio.subprocess.Process
    started: float
    reader: asyncio.Task[None] | None = None
    report: dict[str, Any] = field(default_factory=dict)
    stop_requested: float | None = None


class Supervisor:
    """Keeps workers running until `stop`, or until the code that `watch` observes has changed."""

    def __init__(self, app: App, name: str, bounds: Bounds, watch: CodeWatch | None = None) -> None:
        self._app = app
        self._name = name
        self._scaler = Scaler(bounds)
        self._watch = watch
        self._stopping = asyncio.Event()
        self._workers: dict[int, WorkerProcess] = {}
        self._deaths: dict[int, tuple[int, float]] = {}
        self._finished: dict[str, SubscriptionCounters] = {
            name: SubscriptionCounters(app.name, name) for name in app.counters
        }
        self._admin: Admin | None = None
        self._lags: dict[str, int] = {}
        self._lag_time: float | None = None
        self.wanted = bounds.workers_min
        self.restarts = 0

    async def run(self) -> bool:
        """Run until `stop` or new code, then stop every worker gracefully. Returns whether new code was the reason."""
        # In a task of its own: a cluster that does not answer must not delay starting or stopping workers.
        scaling = asyncio.create_task(self._keep_scaling())
        has_new_code = False
        try:
            while not (self._stopping.is_set() or has_new_code):
                if scaling.done():
                    scaling.result()
                await self._keep_workers()
                await Clock().wait(self._stopping, asyncio.get_running_loop().time() + CHECK_INTERVAL_S)
                has_new_code = self._watch is not None and await asyncio.to_thread(self._watch.has_changed)
        finally:
            scaling.cancel()
            self._request_stop(self._workers.values())
            while self._workers:
                self._collect()
                await asyncio.sleep(STOP_POLL_S)
        return has_new_code and not self._stopping.is_set()

    def stop(self) -> None:
        """Stop the workers, gracefully."""
        self._stopping.set()

    @property
    def worker_count(self) -> int:
        """How many workers run."""
        return len(self._workers)

    @property
    def is_healthy(self) -> bool:
        """Whether as many workers run as are wanted, and all of their subscriptions."""
        reports = [worker.report for worker in self._workers.values()]
        return len(reports) >= self.wanted and all(each.get("healthy") for each in reports)

    def lag(self) -> dict[str, Any]:
        """The lag that autoscalers read, in records and seconds, and how many workers there are and should be."""
        seconds = [counted["lag_s"] for counted in self._counted() if counted["lag_s"]]
        records = sum(self._lags.values())
        return {
            "records": records,
            "seconds": max(seconds, default=0.0) if records else 0.0,
            "workers": self.worker_count,
            "wanted": self.wanted,
        }

    @property
    def knows_lag(self) -> bool:
        """Whether the lag was read recently. An older one must not be used for scaling."""
        return self._lag_time is not None and time.monotonic() - self._lag_time < LAG_AGE_S_MAX

    def counters(self) -> list[SubscriptionCounters]:
        """The sums of all workers' counters, including workers that have stopped."""
        totals = []
        for name, finished in self._finished.items():
            total = SubscriptionCounters(self._app.name, name)
            total.add(finished.as_dict())
            for worker in self._workers.values():
                total.add(worker.report.get("counters", {}).get(name, {}))
            total.lag_records = self._lags.get(name) if self.knows_lag else None
            totals.append(total)
        return totals

    def _counted(self) -> Iterable[dict[str, Any]]:
        return (each for worker in self._workers.values() for each in worker.report.get("counters", {}).values())

    async def _keep_workers(self) -> None:
        self._collect()
        self._request_stop(worker for number, worker in self._workers.items() if number >= self.wanted)
        for number in range(self.wanted):
            if number not in self._workers and time.monotonic() >= self._deaths.get(number, (0, 0.0))[1]:
                await self._start(number)

    def _request_stop(self, workers: Iterable[WorkerProcess]) -> None:
        for worker in workers:
            if worker.stop_requested is None and worker.process.returncode is None:
                worker.stop_requested = time.monotonic()
                worker.process.terminate()

    def _collect(self) -> None:
        """Remove workers whose process has exited, and kill those that do not stop in time."""
        now = time.monotonic()
        for worker in list(self._workers.values()):
            if worker.process.returncode is not None:
                self._remove(worker)
                if worker.stop_requested is None:
                    self._schedule_restart(worker, now)
            elif worker.stop_requested is not None and now - worker.stop_requested > STOP_S_MAX:
                logger.warning("worker %d did not stop in %g s, and is killed", worker.number, STOP_S_MAX)
                worker.process.kill()

    def _schedule_restart(self, worker: WorkerProcess, now: float) -> None:
        deaths = self._deaths.get(worker.number, (0, 0.0))[0] + 1 if now - worker.started < QUICK_DEATH_S else 1
        pause_s = min(2.0 ** (deaths - 1) - 1, RESTART_S_MAX)
        self._deaths[worker.number] = (deaths, now + pause_s)
        self.restarts += 1
        code = worker.process.returncode
        logger.error("worker %d exited with code %s, and restarts in %g s", worker.number, code, pause_s)

    async def _start(self, number: int) -> None:
        reading, writing = os.pipe()
        # A replacement fences its predecessor's open transaction; workers of another run on this host must not.
        identity = f"{socket.gethostname()}-{os.getpid()}-{number}"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "penstock.app.running.process",
            self._name,
            str(writing),
            pass_fds=(writing,),
            env={**os.environ, WORKER_VARIABLE: identity},
        )
        os.close(writing)
        worker = WorkerProcess(number, process, time.monotonic())
        worker.reader = asyncio.create_task(_read_reports(worker, reading))
        self._workers[number] = worker
        logger.info("worker %d runs as process %d", number, process.pid)

    def _remove(self, worker: WorkerProcess) -> None:
        if self._workers.pop(worker.number, None) is None:
            return
        if worker.reader is not None:
            worker.reader.cancel()
        for name, counted in worker.report.get("counters", {}).items():
            self._finished[name].add({**counted, "waiting": 0, "delayed": 0, "lag_s": 0.0})

    async def _keep_scaling(self) -> None:
        while True:
            await self.scale()
            await asyncio.sleep(LAG_INTERVAL_S)

    async def scale(self) -> None:
        """Read the lag, and set how many workers are wanted for it."""
        try:
            self._lags = await asyncio.to_thread(self._read_lags)
        except PenstockError as error:
            logger.warning("the lag is unknown: %s", error)
            return
        self._lag_time = time.monotonic()
        lag = self.lag()
        wanted = self._scaler.wanted(self.wanted, lag["records"], lag["seconds"], time.monotonic())
        if wanted != self.wanted:
            logger.info("%d workers instead of %d: the lag is %d records", wanted, self.wanted, lag["records"])
            self.wanted = wanted

    def _read_lags(self) -> dict[str, int]:
        if self._admin is None:
            self._admin = Admin(self._app.connection)
        lags = {}
        for each in self._app.subscriptions:
            if each.share:
                lags[each.name] = share_lag(self._app.connection, each.group) or 0
                continue
            ahead = done_ahead(self._app.connection, each.group)
            named = [topic for topic in each.topics if not topic.startswith("^")]
            lags[each.name] = sum(
                max(0, lag - ahead.get((topic, partition), 0))
                for (topic, partition), lag in self._admin.group_lag(each.group, named).items()
                if topic in each.topics or any(name.startswith("^") for name in each.topics)
            )
        return lags


async def _read_reports(worker: WorkerProcess, descriptor: int) -> None:
    reader = asyncio.StreamReader()
    file = os.fdopen(descriptor, "rb")
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    try:
        while line := await reader.readline():
            worker.report = json.loads(line)
    finally:
        transport.close()
