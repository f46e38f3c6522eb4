"""The segments of a partition in a bucket, found from its listing and its manifests.

The brokers report up to which offset and epoch the log is in object storage. The segment with that record has the
leader epochs of the whole log up to there beside it, since logs that agree in an offset's epoch agree in everything
before it. So neither an unfinished copy, which has no manifest, nor one of a leader that has lost its records can be
mistaken for the log. Objects never change, so those that were read are cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.tier.segments import EpochStart
from penstock.model.ids import Uuid
from penstock.spark.tier.sections import Section, find_sections, holds
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.producers.transaction_index import AbortedTransaction, TransactionIndex
from penstock.storage.tier.inventory import MANIFEST, parse_path
from penstock.storage.tier.layout import EPOCHS, TRANSACTION_INDEX, Manifest, ManifestError, PartitionLocation
from penstock.storage.tier.object_store import ObjectStore, StoreError

REQUESTS_AT_ONCE = 32
# A manifest takes about a kilobyte.
MANIFESTS_KEPT_MAX = 50_000
PARTITIONS_KEPT_MAX = 10_000


class SegmentName(NamedTuple):
    """A segment with a manifest, as its object's name describes it."""

    start_offset: int
    segment_id: Uuid


class RemoteLog(NamedTuple):
    """The tiered part of a partition's log: its last record, its leader epochs, and the listed segments."""

    end: EpochStart
    lineage: tuple[EpochStart, ...]
    names: tuple[SegmentName, ...]


class Catalog:
    """Finds segments for one process."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._manifests: dict[Uuid, Manifest] = {}
        self._logs: dict[PartitionLocation, RemoteLog] = {}
        self._requests = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def sections(self, place: PartitionLocation, tier_end: EpochStart, start: int, end: int) -> list[Section]:
        """How to read from `start` to the offset before `end` of a log that is tiered up to and including `tier_end`.

        Raises StoreError, or FileNotFoundError if a segment is deleted meanwhile.
        """
        log = await self._log(place, tier_end, end)
        if log is None:
            return [Section(start, end)]
        before = [name for name in log.names if name.start_offset <= start]
        chosen = await self._read(place, [name for name in log.names if start < name.start_offset < end])
        while True:
            found = find_sections(chosen, log.lineage, start, end)
            if not before or all(one.segment is not None for one in found):
                return found
            # The segment that covers the start may start before it, and before segments that overlap it.
            chosen += await self._read(place, [before.pop()])

    async def aborted(self, sections: Iterable[Section]) -> set[AbortedTransaction]:
        """The transactions that were aborted within these sections; raises StoreError, or FileNotFoundError for one
        whose segment was deleted meanwhile.
        """

        async def aborted_in(one: Section) -> list[AbortedTransaction]:
            if one.segment is None or TRANSACTION_INDEX not in one.segment.objects:
                return []
            data = await self._companion(one.segment, TRANSACTION_INDEX)
            index = TransactionIndex.from_bytes(data, one.segment.start_offset)
            return [entry for entry in index.entries if one.start <= entry.last_offset < one.end]

        return {entry for found in await asyncio.gather(*map(aborted_in, sections)) for entry in found}

    async def _log(self, place: PartitionLocation, tier_end: EpochStart, end: int) -> RemoteLog | None:
        """The log up to `end` at least; None if the bucket lacks a segment that the brokers report."""
        known = self._logs.get(place)
        if (
            known is not None
            and known.end.epoch == tier_end.epoch
            and end - 1 <= known.end.start_offset <= tier_end.start_offset
        ):
            return known
        names = await self._list(place)
        if not names:
            raise StoreError(
                f"the store has nothing below {place.directory}, but the brokers have copied that partition up to "
                f"{tier_end.start_offset}: tier.url must be what penstock.tier.url is for them"
            )
        for name in reversed([one for one in names if one.start_offset <= tier_end.start_offset]):
            found = await self._read(place, [name])
            if not found or not holds(manifest := found[0], tier_end):
                continue
            entries = LeaderEpochs.from_bytes(await self._companion(manifest, EPOCHS)).entries
            lineage = tuple(EpochStart(*one) for one in entries if one.start_offset <= tier_end.start_offset)
            if len(self._logs) >= PARTITIONS_KEPT_MAX:
                self._logs.clear()
            self._logs[place] = RemoteLog(tier_end, lineage, names)
            return self._logs[place]
        return None

    async def _list(self, place: PartitionLocation) -> tuple[SegmentName, ...]:
        async with self._requests:
            paths = [parse_path(listed.path) async for listed in self._store.list(f"{place.directory}/")]
        return tuple(
            sorted(SegmentName(one.start_offset, one.segment_id) for one in paths if one and one.kind == MANIFEST)
        )

    async def _read(self, place: PartitionLocation, names: Iterable[SegmentName]) -> list[Manifest]:
        """The manifests of these segments, without those that were deleted meanwhile or are sealed."""

        async def read(name: SegmentName) -> Manifest | None:
            found = self._manifests.get(name.segment_id)
            if found is None:
                path = place.manifest(*name)
                try:
                    found = Manifest.from_bytes(await self._get(path))
                except FileNotFoundError:
                    return None
                except ManifestError as error:
                    raise StoreError(f"{path}: {error}") from error
                if len(self._manifests) >= MANIFESTS_KEPT_MAX:
                    self._manifests.clear()
                self._manifests[name.segment_id] = found
            # Segments compressed or encrypted for the store are read through the brokers, which have the keys.
            return found if found.seal is None else None

        return [one for one in await asyncio.gather(*map(read, names)) if one is not None]

    async def _companion(self, manifest: Manifest, kind: str) -> bytes:
        async with self._requests:
            return await read_companion(self._store, manifest, kind)

    async def _get(self, path: str) -> bytes:
        async with self._requests:
            return await self._store.get(path)


async def read_companion(store: ObjectStore, manifest: Manifest, kind: str) -> bytes:
    """A small object of a segment, as the manifest describes it; raises StoreError or FileNotFoundError."""
    path = manifest.place.object(manifest.start_offset, manifest.segment_id, kind)
    data = await store.get(path)
    if (len(data), crc32c(data)) != manifest.objects[kind]:
        raise StoreError(f"{path} is damaged: its checksum does not match the manifest")
    return data
