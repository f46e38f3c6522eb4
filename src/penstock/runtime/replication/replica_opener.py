"""Opens replicas off the loop, those of each data directory one after the other.

A directory whose disk stalls holds up only its own replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.runtime.env import Env
from penstock.runtime.logs.directories import LogDirectory
from penstock.runtime.replication.replica_store import Key, Opened, Placement, open_placed
from penstock.storage.log import LogSettings

# How many per piece of work, with which the loop shares the GIL. Opening one takes a millisecond, on a busy disk many.
OPENED_TOGETHER = 4


class Placed(NamedTuple):
    """A replica to open."""

    placement: Placement
    settings: LogSettings


Answers = Mapping[Key, tuple[Placement, Opened | Exception]]


class ReplicaOpener:
    """The replicas that are being opened, or wait for that: nothing else may touch their directories."""

    def __init__(self, env: Env, opened: Callable[[Answers], None]) -> None:
        """`opened` is called with some replicas at a time, or why they could not be opened."""
        self._env = env
        self._opened = opened
        # By directory; the first ones have precedence.
        self._first: dict[Path, dict[Key, Placed]] = {}
        self._queued: dict[Path, dict[Key, Placed]] = {}
        self._names: set[TopicPartition] = set()
        self._tasks: dict[Path, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._names

    def is_at_work(self, home: LogDirectory) -> bool:
        """Whether replicas of a directory are being opened."""
        return home.path in self._tasks

    def add(self, key: Key, placed: Placed, *, is_first: bool = False) -> None:
        """Open a replica, before all others of its directory that wait if `is_first`."""
        home = placed.placement.home.path
        self._names.add(placed.placement.name)
        (self._first if is_first else self._queued).setdefault(home, {})[key] = placed
        if home not in self._tasks:
            self._tasks[home] = self._env.spawn(self._run(home), f"open replicas in {home}")

    async def wait(self) -> None:
        """Wait until a directory has no more replicas to open."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)

    def stop(self) -> None:
        """Open no more replicas."""
        for task in self._tasks.values():
            task.cancel()

    async def _run(self, home: Path) -> None:
        first, queued = self._first.setdefault(home, {}), self._queued.setdefault(home, {})
        try:
            while batch := dict(islice(chain(first.items(), queued.items()), OPENED_TOGETHER)):
                try:
                    found = await self._env.run_blocking(partial(open_placed, [*batch.values()]))
                finally:
                    for key, placed in batch.items():
                        first.pop(key, None)
                        queued.pop(key, None)
                        self._names.discard(placed.placement.name)
                answers = zip(batch.items(), found, strict=True)
                self._opened({key: (placed.placement, opened) for (key, placed), opened in answers})
        finally:
            del self._tasks[home]
