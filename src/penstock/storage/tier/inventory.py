"""What a bucket holds, found from its objects alone, and whether that agrees with a cluster's metadata.

Objects are listed before the metadata is read. A copy is announced before its first object is written, so an object
that no known segment explains then is an orphan: what is left of a copy, or of a removal, that was never finished.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from penstock.model.ids import Uuid, parse_uuid
from penstock.storage.tier.layout import (
    KINDS,
    MANIFEST_SUFFIX,
    TOPIC_FILE,
    Manifest,
    ManifestError,
    PartitionLocation,
)
from penstock.storage.tier.object_store import Listed, ObjectStore, StoreError
from penstock.wire.record_types import Buffer

READ_BYTES = 8 * 1024 * 1024
MANIFEST = MANIFEST_SUFFIX.removeprefix(".")


class ObjectName(NamedTuple):
    """What the path of an object contains."""

    place: PartitionLocation
    start_offset: int
    segment_id: Uuid
    kind: str


def parse_path(path: str) -> ObjectName | None:
    """Read the path of a segment's object; None for any other."""
    parts = path.split("/")
    if len(parts) != 5:
        return None
    cluster_id, topic, topic_id, partition, name = parts
    stem, _, kind = name.partition(".")
    offset, _, segment_id = stem.partition("-")
    if kind not in (*KINDS, MANIFEST) or not (partition.isdecimal() and offset.isdecimal()):
        return None
    try:
        place = PartitionLocation(cluster_id, topic, parse_uuid(topic_id), int(partition))
        return ObjectName(place, int(offset), parse_uuid(segment_id), kind)
    except ValueError:
        return None


@dataclass(slots=True)
class StoredSegment:
    """A segment's objects: their sizes by kind."""

    place: PartitionLocation
    start_offset: int
    segment_id: Uuid
    sizes: dict[str, int] = field(default_factory=dict)
    modified_ms: int = 0

    @property
    def stem(self) -> str:
        """How the paths of its objects begin."""
        return self.place.stem(self.start_offset, self.segment_id)

    @property
    def is_finished(self) -> bool:
        """Whether it has a manifest, which is written last."""
        return MANIFEST in self.sizes

    def paths(self) -> list[str]:
        """The paths of its objects."""
        return [f"{self.stem}.{kind}" for kind in self.sizes]


@dataclass(slots=True)
class Inventory:
    """Everything of one cluster, or of all, in a bucket."""

    segments: dict[Uuid, StoredSegment] = field(default_factory=dict)
    topics: dict[Uuid, Listed] = field(default_factory=dict)
    strange: list[Listed] = field(default_factory=list)

    def add(self, listed: Listed) -> None:
        """Note an object."""
        name = parse_path(listed.path)
        if name is not None:
            known = self.segments.setdefault(
                name.segment_id, StoredSegment(name.place, name.start_offset, name.segment_id)
            )
            known.sizes[name.kind] = listed.size_bytes
            known.modified_ms = max(known.modified_ms, listed.modified_ms)
            return
        parts = listed.path.split("/")
        try:
            if len(parts) != 4 or parts[3] != TOPIC_FILE:
                raise ValueError
            self.topics[parse_uuid(parts[2])] = listed
        except ValueError:
            self.strange.append(listed)

    def in_order(self) -> list[StoredSegment]:
        """The segments by topic, partition and offset."""
        return sorted(self.segments.values(), key=lambda one: (one.place, one.start_offset, one.segment_id))


async def take_inventory(store: ObjectStore, cluster_id: str = "") -> Inventory:
    """List a bucket; raises StoreError."""
    inventory = Inventory()
    async for listed in store.list(f"{cluster_id}/" if cluster_id else ""):
        inventory.add(listed)
    return inventory


class Expected(NamedTuple):
    """A segment of the metadata: whether it is readable, and its values in the metadata."""

    stem: str
    start_offset: int
    end_offset: int
    size_bytes: int
    is_readable: bool
    is_sealed: bool = False


class Problem(NamedTuple):
    """Something that does not agree."""

    path: str
    what: str


class Orphan(NamedTuple):
    """Objects that no metadata refers to: what is left of a segment, or the document of a topic that is gone."""

    name: str
    paths: list[str]
    modified_ms: int


def compare(
    inventory: Inventory, expected: Mapping[Uuid, Expected], topic_ids: Container[Uuid]
) -> tuple[list[Problem], list[Orphan]]:
    """What readable segments lack, and what neither the metadata nor the cluster, with these topics, knows of."""
    problems = []
    for segment_id, one in expected.items():
        if not one.is_readable:
            continue
        stored = inventory.segments.get(segment_id)
        if stored is None:
            problems.append(Problem(one.stem, "is not in the store"))
        elif not stored.is_finished:
            problems.append(Problem(one.stem, "has no manifest"))
        elif stored.sizes.get("log") != one.size_bytes and not one.is_sealed:
            size = stored.sizes.get("log", 0)
            problems.append(Problem(f"{one.stem}.log", f"has {size} bytes, and its metadata {one.size_bytes}"))
    unknown = [one for one in inventory.in_order() if one.segment_id not in expected]
    orphans = [Orphan(one.stem, one.paths(), one.modified_ms) for one in unknown]
    gone = [listed for topic_id, listed in inventory.topics.items() if topic_id not in topic_ids]
    return problems, orphans + [Orphan(one.path, [one.path], one.modified_ms) for one in gone]


async def check_segment(store: ObjectStore, stored: StoredSegment, expected: Expected | None) -> list[Problem]:
    """Read a finished segment's objects and compare them with its manifest, and that with the metadata."""
    path = f"{stored.stem}{MANIFEST_SUFFIX}"
    try:
        manifest = Manifest.from_bytes(await store.get(path))
    except (ManifestError, FileNotFoundError) as error:
        return [Problem(path, str(error))]
    problems = []
    if expected is not None and (manifest.start_offset, manifest.end_offset) != expected[1:3]:
        problems.append(Problem(path, f"has {manifest.start_offset} to {manifest.end_offset}, unlike the metadata"))
    for kind, described in manifest.objects.items():
        size = crc = 0
        try:
            async for data in _pieces(store, f"{stored.stem}.{kind}", stored.sizes.get(kind, 0)):
                size += len(data)
                crc = crc32c(data, crc)
        except (FileNotFoundError, StoreError) as error:
            problems.append(Problem(f"{stored.stem}.{kind}", f"cannot be read: {error}"))
            continue
        if (size, crc) != described:
            problems.append(Problem(f"{stored.stem}.{kind}", "is damaged: its checksum is not the manifest's"))
    return problems


async def _pieces(store: ObjectStore, path: str, size_bytes: int) -> AsyncIterator[Buffer]:
    if size_bytes == 0:
        yield await store.get(path)
    for start in range(0, size_bytes, READ_BYTES):
        yield await store.get_range(path, start, min(READ_BYTES, size_bytes - start))
