"""Where the objects of a segment lie, and the manifest beside them; docs/tier_format.md has the same for readers.

    <cluster id>/<topic>/<topic id>/topic.json
    <cluster id>/<topic>/<topic id>/<partition>/<first offset>-<segment id>.log .index .timeindex .txnindex .snapshot
                                                                         .epochs .manifest.json

The manifest is written last: a segment without one was never finished.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.model.ids import Uuid, format_uuid, parse_uuid

FORMAT_VERSION = 1
# With objects that are compressed or encrypted, which readers of before must not take for what they know.
SEALED_FORMAT_VERSION = 2
ENCRYPTION = "AES-256-GCM"
LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, EPOCHS = (
    "log",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "epochs",
)
KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, EPOCHS)
MANIFEST_SUFFIX = ".manifest.json"
TOPIC_FILE = "topic.json"


class ManifestError(Exception):
    """A document that is not a manifest, or of a newer format."""


class PartitionLocation(NamedTuple):
    """One partition's place in the bucket."""

    cluster_id: str
    topic: str
    topic_id: Uuid
    partition: int

    @property
    def topic_directory(self) -> str:
        """Everything of the topic is below it."""
        return f"{self.cluster_id}/{self.topic}/{format_uuid(self.topic_id)}"

    @property
    def directory(self) -> str:
        """Everything of the partition is below it."""
        return f"{self.topic_directory}/{self.partition}"

    def stem(self, start_offset: int, segment_id: Uuid) -> str:
        """How the names of all objects of a segment begin."""
        return f"{self.directory}/{start_offset:020d}-{format_uuid(segment_id)}"

    def object(self, start_offset: int, segment_id: Uuid, kind: str) -> str:
        """The path of one object of a segment."""
        return f"{self.stem(start_offset, segment_id)}.{kind}"

    def manifest(self, start_offset: int, segment_id: Uuid) -> str:
        """The path of a segment's manifest."""
        return self.stem(start_offset, segment_id) + MANIFEST_SUFFIX

    def paths(self, start_offset: int, segment_id: Uuid) -> list[str]:
        """Every object that a segment may have, the manifest first: without it the others are not used."""
        kinds = [self.object(start_offset, segment_id, kind) for kind in KINDS]
        return [self.manifest(start_offset, segment_id), *kinds]


class StoredObject(NamedTuple):
    """One object of a segment: its size and the CRC-32C of its bytes."""

    size_bytes: int
    crc: int


class SealedObject(NamedTuple):
    """The size of an object before it was sealed, and those of its chunks as they are stored."""

    plain_bytes: int
    chunks: tuple[int, ...]


class Seal(NamedTuple):
    """How a segment's objects were compressed, and encrypted if there is a key; see `sealing`."""

    compression: str
    key_id: str
    wrapped_key: bytes
    chunk_bytes: int
    objects: Mapping[str, SealedObject]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a reader needs to know of a segment. Offsets are inclusive; `objects` are by kind."""

    place: PartitionLocation
    segment_id: Uuid
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    epochs: tuple[tuple[int, int], ...]
    broker_id: int
    created_ms: int
    objects: Mapping[str, StoredObject]
    seal: Seal | None = None

    @property
    def log_bytes(self) -> int:
        """The size of the log file as it was on disk."""
        return self.objects[LOG].size_bytes if self.seal is None else self.seal.objects[LOG].plain_bytes

    def at(self, place: PartitionLocation) -> Manifest:
        """The manifest of a copy of the segment elsewhere."""
        return replace(self, place=place)

    def to_bytes(self) -> bytes:
        """The manifest as a document."""
        document: dict[str, Any] = {
            "format": FORMAT_VERSION if self.seal is None else SEALED_FORMAT_VERSION,
            "cluster_id": self.place.cluster_id,
            "topic": self.place.topic,
            "topic_id": format_uuid(self.place.topic_id),
            "partition": self.place.partition,
            "segment_id": format_uuid(self.segment_id),
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "max_timestamp_ms": self.max_timestamp_ms,
            "leader_epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in self.epochs],
            "broker_id": self.broker_id,
            "created_ms": self.created_ms,
            "objects": {
                kind: {"size_bytes": one.size_bytes, "crc32c": f"{one.crc:08x}"} for kind, one in self.objects.items()
            },
        }
        if self.seal is not None:
            document["encoding"] = _describe(self.seal)
            for kind, sealed in self.seal.objects.items():
                document["objects"][kind] |= {"plain_bytes": sealed.plain_bytes, "chunks": list(sealed.chunks)}
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read a manifest; raises ManifestError."""
        try:
            document: dict[str, Any] = json.loads(data)
            if document["format"] not in (FORMAT_VERSION, SEALED_FORMAT_VERSION):
                raise ManifestError(f"format {document['format']} is not known here")
            return cls(
                PartitionLocation(
                    document["cluster_id"], document["topic"], parse_uuid(document["topic_id"]), document["partition"]
                ),
                parse_uuid(document["segment_id"]),
                document["start_offset"],
                document["end_offset"],
                document["max_timestamp_ms"],
                tuple((one["epoch"], one["start_offset"]) for one in document["leader_epochs"]),
                document["broker_id"],
                document["created_ms"],
                {
                    kind: StoredObject(one["size_bytes"], int(one["crc32c"], 16))
                    for kind, one in document["objects"].items()
                },
                _read_seal(document) if document["format"] == SEALED_FORMAT_VERSION else None,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"not a manifest: {error!r}") from error


def _describe(seal: Seal) -> dict[str, object]:
    described: dict[str, object] = {"compression": seal.compression, "chunk_bytes": seal.chunk_bytes}
    if seal.key_id:
        wrapped = base64.b64encode(seal.wrapped_key).decode()
        described |= {"encryption": ENCRYPTION, "key_id": seal.key_id, "wrapped_key": wrapped}
    return described


def _read_seal(document: Mapping[str, Any]) -> Seal:
    described = document["encoding"]
    if described.get("encryption", ENCRYPTION) != ENCRYPTION:
        raise ManifestError(f"encryption with {described['encryption']} is not known here")
    return Seal(
        described["compression"],
        described.get("key_id", ""),
        base64.b64decode(described.get("wrapped_key", "")),
        described["chunk_bytes"],
        {kind: SealedObject(one["plain_bytes"], tuple(one["chunks"])) for kind, one in document["objects"].items()},
    )


@dataclass(frozen=True, slots=True)
class TopicDocument:
    """What a bucket contains of a topic besides its records."""

    cluster_id: str
    topic: str
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    @property
    def path(self) -> str:
        """The path of the document."""
        return f"{PartitionLocation(self.cluster_id, self.topic, self.topic_id, 0).topic_directory}/{TOPIC_FILE}"

    def to_bytes(self) -> bytes:
        """The document."""
        document = {
            "format": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "topic": self.topic,
            "topic_id": format_uuid(self.topic_id),
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": dict(sorted(self.configs.items())),
        }
        return json.dumps(document, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> TopicDocument:
        """Read a document; raises ManifestError."""
        try:
            document: dict[str, Any] = json.loads(data)
            return cls(
                document["cluster_id"],
                document["topic"],
                parse_uuid(document["topic_id"]),
                document["partitions"],
                document["replication_factor"],
                document["configs"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"not a topic's document: {error!r}") from error
