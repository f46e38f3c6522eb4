"""A node inside the test's own process, so that a test can hand it a disk that fails and look at its insides."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.config.broker import examine
from penstock.node import Node
from penstock.runtime.env import SystemEnv
from penstock.storage.files import Filesystem

T = TypeVar("T")
TIMEOUT_SECONDS = 90
ONE_NODE: Mapping[str, str] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NodeThread:
    """A node on an event loop in a thread of its own; `filesystem` is its disk."""

    def __init__(
        self, data: Path, settings: Mapping[str, str] | None = None, filesystem: Filesystem | None = None
    ) -> None:
        properties = {
            **ONE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "log.dirs": str(data),
            **(settings or {}),
        }
        examination = examine(properties)
        assert examination.settings is not None, examination.errors
        self._settings = examination.settings
        self._filesystem = filesystem
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="node", daemon=True)
        self.errors: list[dict[str, Any]] = []
        self.node: Node

    def __enter__(self) -> Self:
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.run(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_SECONDS)
            self._loop.close()

    async def _start(self) -> None:
        self.env = SystemEnv()
        if self._filesystem is not None:
            self.env.filesystem = self._filesystem
        self.node = Node(self._settings, self.env)
        await self.node.start()

    async def _stop(self) -> None:
        await self.node.stop()
        await self.env.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the node's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_SECONDS)

    def look(self, at: Callable[[Node], T]) -> T:
        """Evaluate something about the node on its own loop."""

        async def evaluate() -> T:
            return at(self.node)

        return self.run(evaluate())

    @property
    def address(self) -> str:
        """What a client connects to."""
        return next(iter(self.node.addresses.values()))
