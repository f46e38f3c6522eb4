"""Object storage for blocking code: requests run on an event loop in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from penstock.storage.tier.object_store import ObjectStore, RemoteStore

T = TypeVar("T")

STORES_KEPT_MAX = 8


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The object store of the segments, and how long one request may take. Serialized to executors.

    The options may contain credentials, so no representation shows them.
    """

    url: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 30_000


class BlockingStore:
    """A store, and the thread in which its requests run until it is closed or the process exits."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="object-storage", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start requests, without waiting for them."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run requests, and wait for their result."""
        return self.submit(work).result()

    def close(self) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@lru_cache(maxsize=STORES_KEPT_MAX)
def shared_store(settings: TierSettings) -> BlockingStore:
    """This process's access to a store. Raises StoreError if the URL or an option is wrong, or obstore is missing."""
    return BlockingStore(RemoteStore.open(settings.url, dict(settings.options), settings.timeout_ms))
