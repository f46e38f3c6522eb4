"""What a bucket has of a partition that can be restored: its whole segments, and what is wrong with the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from penstock.core.tier.restore import last_segments
from penstock.core.tier.segments import EpochStart, RemoteSegment
from penstock.storage.files import StorageError
from penstock.storage.segment_copy import TierHistory
from penstock.storage.tier.inventory import MANIFEST, Inventory, Problem, StoredSegment
from penstock.storage.tier.layout import (
    EPOCHS,
    LOG,
    SNAPSHOT,
    TRANSACTION_INDEX,
    Manifest,
    ManifestError,
    PartitionLocation,
)
from penstock.storage.tier.object_store import ObjectStore
from penstock.storage.tier.sealing import Seals, open_bytes

READ_AT_ONCE = 16


class Recoverable(NamedTuple):
    """The whole segments of a partition, in order, what is wrong with others, and copies that were never finished."""

    segments: Sequence[RemoteSegment]
    problems: Sequence[Problem]
    unfinished: Sequence[StoredSegment]


async def list_partition(store: ObjectStore, place: PartitionLocation) -> list[StoredSegment]:
    """What a bucket has of one partition; raises StoreError."""
    inventory = Inventory()
    async for listed in store.list(f"{place.directory}/"):
        inventory.add(listed)
    return inventory.in_order()


async def recoverable(store: ObjectStore, stored: Iterable[StoredSegment]) -> Recoverable:
    """Read the manifests of one partition's segments; raises StoreError."""
    places = asyncio.Semaphore(READ_AT_ONCE)

    async def read(one: StoredSegment) -> RemoteSegment | Problem:
        async with places:
            return await _read(store, one)

    listed = list(stored)
    found = await asyncio.gather(*(read(one) for one in listed if one.is_finished))
    segments = [one for one in found if isinstance(one, RemoteSegment)]
    segments.sort(key=lambda segment: (segment.start_offset, segment.end_offset))
    problems = [one for one in found if isinstance(one, Problem)]
    return Recoverable(segments, problems, [one for one in listed if not one.is_finished])


async def _read(store: ObjectStore, stored: StoredSegment) -> RemoteSegment | Problem:
    path = f"{stored.stem}.{MANIFEST}"
    try:
        manifest = Manifest.from_bytes(await store.get(path))
    except (ManifestError, FileNotFoundError) as error:
        return Problem(path, str(error))
    if (manifest.start_offset, manifest.segment_id) != (stored.start_offset, stored.segment_id):
        return Problem(path, "is the manifest of another segment")
    if manifest.end_offset < manifest.start_offset or not manifest.epochs or LOG not in manifest.objects:
        return Problem(path, "does not say what is in the segment")
    for kind, described in manifest.objects.items():
        size = stored.sizes.get(kind)
        if size != described.size_bytes:
            what = "is missing" if size is None else f"has {size} of {described.size_bytes} bytes"
            return Problem(f"{stored.stem}.{kind}", what)
    return RemoteSegment(
        manifest.segment_id,
        manifest.start_offset,
        manifest.end_offset,
        manifest.log_bytes,
        manifest.max_timestamp_ms,
        tuple(EpochStart(*entry) for entry in manifest.epochs),
        broker_id=manifest.broker_id,
        event_timestamp_ms=manifest.created_ms,
        has_aborted_transactions=TRANSACTION_INDEX in manifest.objects,
        is_sealed=manifest.seal is not None,
    )


class LogEnd(NamedTuple):
    """Where a restored log continues, with the epochs and producers there, and what is wrong with later segments."""

    offset: int
    history: TierHistory
    problems: Sequence[Problem]


async def find_end(
    store: ObjectStore, place: PartitionLocation, segments: Iterable[RemoteSegment], seals: Seals
) -> LogEnd:
    """The end of the last segment whose history is sound; offset 0 if there is none. Raises StoreError."""
    problems = []
    for segment in last_segments(segments):
        try:
            history = await _read_history(store, place, segment, seals)
        except (StorageError, FileNotFoundError) as error:
            problems.append(Problem(place.stem(segment.start_offset, segment.segment_id), f"cannot be used: {error}"))
            continue
        return LogEnd(segment.end_offset + 1, history, problems)
    return LogEnd(0, TierHistory((), ()), problems)


async def _read_history(
    store: ObjectStore, place: PartitionLocation, segment: RemoteSegment, seals: Seals
) -> TierHistory:
    start, segment_id = segment.start_offset, segment.segment_id
    try:
        manifest = Manifest.from_bytes(await store.get(place.manifest(start, segment_id)))
    except ManifestError as error:
        raise StorageError(str(error)) from error
    found = []
    for kind in (EPOCHS, SNAPSHOT):
        path = place.object(start, segment_id, kind)
        data = await store.get(path)
        if kind not in manifest.objects or crc32c(data) != manifest.objects[kind].crc:
            raise StorageError(f"{path} is damaged: its checksum does not match the manifest")
        seal = manifest.seal
        found.append(data if seal is None else open_bytes(seals.opener(seal, segment_id), seal, kind, data))
    return TierHistory.from_bytes(*found)
