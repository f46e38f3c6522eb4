"""The environment of the shells: clocks, randomness, disk, network, workers, tasks. The simulator passes another."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, Protocol, TypeVar

from penstock.runtime.sync_threads import IS_NATIVE, SyncThreads
from penstock.runtime.workers import Workers
from penstock.storage.files import File, Filesystem, OsFile, OsFilesystem
from penstock.storage.tier.object_store import ObjectStore, RemoteStore

T = TypeVar("T")

WORKERS_MAX = 4

logger = logging.getLogger("penstock.runtime")


class Network(Protocol):
    """Connections to other nodes."""

    async def connect(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> asyncio.BaseTransport:
        """Open a stream; raises OSError when the connection or the TLS handshake fails."""


class Env(Protocol):
    """What a shell may use of the outside world."""

    random: Random
    filesystem: Filesystem
    network: Network
    # Changes with every boot of the machine: data written since then is there, synced or not. Empty when unknown.
    boot_id: str
    # How many logs may have open files at once.
    open_logs_max: int

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: for timestamps and ages of data. It may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment: for sessions, lags and deadlines. It never jumps."""

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work off the loop."""

    def sync(self, file: File) -> asyncio.Future[None]:
        """Sync a file off the loop."""

    def open_store(self, url: str, options: Mapping[str, str], timeout_ms: int) -> ObjectStore:
        """The object store behind a URL; raises StoreError."""

    def spawn(self, work: Coroutine[Any, object, None], name: str) -> asyncio.Task[None]:
        """Start a task that is owned here: its failure is logged, and `close` cancels it."""


class TcpNetwork:
    """Sockets of this machine."""

    async def connect(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> asyncio.BaseTransport:
        """Open a stream that sends small messages at once."""
        context = tls() if tls is not None else None
        transport, _ = await asyncio.get_running_loop().create_connection(make_protocol, host, port, ssl=context)
        opened = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return transport


class SystemEnv:
    """The real environment."""

    def __init__(self) -> None:
        self.random: Random = SystemRandom()
        self.filesystem: Filesystem = OsFilesystem()
        self.network: Network = TcpNetwork()
        self.boot_id = _boot_id()
        # Half of the descriptors are for connections, and a busy log has several files.
        self.open_logs_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self._workers = Workers(WORKERS_MAX, "penstock-disk")
        self._syncs = SyncThreads(WORKERS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment."""
        return time.monotonic_ns() // 1_000_000

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work on a worker thread."""
        return self._workers.run(work)

    def sync(self, file: File) -> asyncio.Future[None]:
        """Sync a file in a thread that needs no interpreter, where there are such."""
        if IS_NATIVE and type(file) is OsFile:
            return self._syncs.sync(file)
        return self.run_blocking(file.sync)

    def open_store(self, url: str, options: Mapping[str, str], timeout_ms: int) -> ObjectStore:
        """S3, Google Cloud Storage, Azure or a directory."""
        return RemoteStore.open(url, options, timeout_ms)

    @property
    def queued_work(self) -> int:
        """How many pieces of blocking work wait for a worker."""
        return self._workers.queued + self._syncs.queued

    def spawn(self, work: Coroutine[Any, object, None], name: str) -> asyncio.Task[None]:
        """Start an owned task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task and let the workers finish."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.close()
        self._syncs.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("background task %s failed", task.get_name(), exc_info=task.exception())


def _boot_id() -> str:
    """Linux's id of the current boot; other systems have none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
