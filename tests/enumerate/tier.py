"""Object storage for the scenarios that copy to it: a store in a directory, and what another broker knows of it.

The store is on the same machine: its operations are numbered with all others, and lose power with them. What it has
written is synced when it answers. `__remote_log_metadata` is led by a broker elsewhere, and outlives every process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from enumerate.process import Process
from penstock.config.node import NodeSettings
from penstock.core.metadata.image import Image
from penstock.core.tier.metadata_records import RemotePartitions, TierKey, decode_record, encode_record
from penstock.core.tier.segments import RemotePartition
from penstock.model.ids import format_uuid
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.tier.cache import DiskCache
from penstock.runtime.tier.counters import TierCounters
from penstock.runtime.tier.reader import TierReader
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.storage.files import StorageError
from penstock.storage.names import TEMPORARY_SUFFIX
from penstock.storage.tier.object_store import Listed, StoreError
from penstock.storage.tier.sealing import Seals

if TYPE_CHECKING:
    from enumerate.broker import Machine

T = TypeVar("T")

STORE = Path("/store")
CACHE = Path("/meta/tier-cache")
# Paths of objects become names of files.
SLASH = "%2F"
MEMORY_BYTES = 1 << 24
TOPIC_DOCUMENT = "topic.json"


class DirectoryStore:
    """See `penstock.storage.tier.object_store.ObjectStore`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def _call(self, work: Callable[[], T]) -> T:
        try:
            return await self._process.run_blocking(work)
        except StorageError as error:
            raise StoreError(str(error)) from error

    async def put(self, path: str, content: bytes | Path) -> None:
        filesystem, target = self._process.filesystem, file_of(path)

        def work() -> None:
            data = content if isinstance(content, bytes) else filesystem.read_file(content)
            filesystem.replace_file(target, data)

        await self._call(work)

    async def get(self, path: str) -> bytes:
        return await self._call(lambda: self._process.filesystem.read_file(file_of(path)))

    async def get_range(self, path: str, start: int, size: int) -> bytes:
        return (await self.get(path))[start : start + size]

    async def copy(self, source: str, target: str, size_bytes: int) -> None:  # noqa: ARG002
        await self.put(target, await self.get(source))

    async def delete(self, paths: Sequence[str]) -> None:
        filesystem = self._process.filesystem

        def work() -> None:
            for path in paths:
                filesystem.unlink(file_of(path))
            filesystem.sync_directory(STORE)

        await self._call(work)

    async def list(self, prefix: str) -> AsyncIterator[Listed]:
        found = await self._call(lambda: self._process.filesystem.list_directory(STORE))
        for name, size in sorted(found.items()):
            path = name.replace(SLASH, "/")
            if path.startswith(prefix):
                yield Listed(path, size, 0)


def file_of(path: str) -> Path:
    return STORE / path.replace("/", SLASH)


class MetadataElsewhere:
    """What a broker uses of `RemoteLogMetadata`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._known = RemotePartitions()
        for value in machine.segments or ():
            self._known.replay(decode_record(value))

    def start(self) -> None:
        """It is known already."""

    def get(self, key: TierKey) -> RemotePartition | None:
        return self._known.get(key) or RemotePartition()

    def is_loaded(self, _: TierKey) -> bool:
        return True

    def all(self) -> list[tuple[TierKey, RemotePartition]]:
        return list(self._known.items())

    led_here = all

    async def up_to_date(self, key: TierKey) -> RemotePartition:
        await asyncio.sleep(0.001)
        return self._known.get(key) or RemotePartition()

    async def write(self, _: TierKey, record: object) -> None:
        await asyncio.sleep(0.001)
        value = encode_record(record)
        assert self._machine.segments is not None
        self._machine.segments = (*self._machine.segments, value)
        self._known.replay(decode_record(value))
        await asyncio.sleep(0.001)


def make_tier(
    process: Process,
    machine: Machine,
    node_id: int,
    image: Image,
    partitions: Partitions,
    settings: Callable[[], NodeSettings],
) -> RemoteLogs:
    """What `node/tiering` makes, but for the caches: nothing depends on those."""
    store, counters, seals = DirectoryStore(process), TierCounters(), Seals()
    metadata: Any = MetadataElsewhere(machine)
    caches = [DiskCache(process, CACHE / name, int, lambda: MEMORY_BYTES) for name in ("segments", "indexes")]
    reader = TierReader(process, store, *caches, settings, counters, seals)
    return RemoteLogs(
        process,
        "enumerate",
        node_id,
        image,
        partitions,
        metadata,
        store,
        reader,
        settings,
        counters,
        seals,
        CACHE / "outgoing",
    )


def leftovers_of(machine: Machine, names: Sequence[str], topic_id: bytes) -> list[str]:
    """The objects that belong to no segment which the metadata has, nor to a topic that is there."""
    known = MetadataElsewhere(machine).all()
    stems = {format_uuid(segment.segment_id) for _, remote in known for segment in remote.segments()}
    left = []
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX):
            # Of an upload that never ended; stores keep such pieces out of sight.
            continue
        is_known = any(stem in name for stem in stems)
        is_document = name.endswith(TOPIC_DOCUMENT) and format_uuid(topic_id) in name
        if not (is_known or is_document):
            left.append(name)
    return left
