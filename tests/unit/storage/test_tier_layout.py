"""Where the objects of copied segments are, and the documents beside them: docs/tier_format.md."""

from __future__ import annotations

import json

import pytest

from penstock.model.ids import format_uuid
from penstock.storage.tier.layout import (
    INDEX,
    LOG,
    Manifest,
    ManifestError,
    PartitionLocation,
    Seal,
    SealedObject,
    StoredObject,
    TopicDocument,
)

TOPIC_ID, SEGMENT_ID = b"t" * 16, b"s" * 16
PLACE = PartitionLocation("cluster", "orders", TOPIC_ID, 3)
TOPIC = f"cluster/orders/{format_uuid(TOPIC_ID)}"
STEM = f"{TOPIC}/3/00000000000000000042-{format_uuid(SEGMENT_ID)}"
DOCUMENT = TopicDocument("cluster", "orders", TOPIC_ID, 4, 3, {"b": "2", "a": "1"})
MANIFEST = Manifest(
    PLACE,
    SEGMENT_ID,
    42,
    99,
    1_000,
    ((1, 40), (2, 50)),
    7,
    2_000,
    {LOG: StoredObject(500, 0x0000ABCD), INDEX: StoredObject(10, 2)},
)
SEAL = Seal("zstd", "key", b"wrapped", 100, {LOG: SealedObject(900, (300, 200)), INDEX: SealedObject(20, (10,))})


def test_objects_lie_where_the_format_has_them() -> None:
    assert PLACE.object(42, SEGMENT_ID, LOG) == f"{STEM}.log"
    assert PLACE.manifest(42, SEGMENT_ID) == f"{STEM}.manifest.json"
    suffixes = ["manifest.json", "log", "index", "timeindex", "txnindex", "snapshot", "epochs"]
    assert PLACE.paths(42, SEGMENT_ID) == [f"{STEM}.{suffix}" for suffix in suffixes]
    assert DOCUMENT.path == f"{TOPIC}/topic.json"


def test_manifests_survive_a_round_trip_and_know_the_logs_size_on_disk() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST
    assert MANIFEST.log_bytes == 500
    sealed = Manifest(**{name: getattr(MANIFEST, name) for name in MANIFEST.__slots__} | {"seal": SEAL})
    assert Manifest.from_bytes(sealed.to_bytes()) == sealed
    assert sealed.log_bytes == 900
    assert (json.loads(MANIFEST.to_bytes())["format"], json.loads(sealed.to_bytes())["format"]) == (1, 2)
    compressed = Manifest(
        **{name: getattr(MANIFEST, name) for name in MANIFEST.__slots__}
        | {"seal": SEAL._replace(key_id="", wrapped_key=b"")}
    )
    assert Manifest.from_bytes(compressed.to_bytes()) == compressed
    assert "encryption" not in json.loads(compressed.to_bytes())["encoding"]


def test_a_copy_elsewhere_differs_in_its_place_alone() -> None:
    other = PLACE._replace(partition=4)
    assert MANIFEST.at(other).place == other
    assert MANIFEST.at(other).at(PLACE) == MANIFEST


def test_a_topics_document_survives_a_round_trip() -> None:
    assert TopicDocument.from_bytes(DOCUMENT.to_bytes()) == DOCUMENT
    assert list(json.loads(DOCUMENT.to_bytes())["configs"]) == ["a", "b"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", json.dumps({"format": 3}).encode()])
def test_other_documents_are_rejected(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_bytes(data)
    with pytest.raises(ManifestError):
        TopicDocument.from_bytes(data)


def test_an_unknown_encryption_is_rejected() -> None:
    sealed = Manifest(**{name: getattr(MANIFEST, name) for name in MANIFEST.__slots__} | {"seal": SEAL})
    document = json.loads(sealed.to_bytes())
    document["encoding"]["encryption"] = "ROT13"
    with pytest.raises(ManifestError, match="encryption with ROT13"):
        Manifest.from_bytes(json.dumps(document).encode())
