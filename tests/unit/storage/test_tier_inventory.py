"""What a bucket's objects are taken for, by their paths."""

from __future__ import annotations

import asyncio

import pytest
from crc32c import crc32c

from penstock.model.ids import format_uuid
from penstock.storage.tier.inventory import (
    MANIFEST,
    TOPIC_FILE,
    Expected,
    Inventory,
    Orphan,
    Problem,
    StoredSegment,
    check_segment,
    compare,
    take_inventory,
)
from penstock.storage.tier.layout import EPOCHS, INDEX, LOG, Manifest, PartitionLocation, StoredObject
from penstock.storage.tier.object_store import Listed
from support.memory_store import MemoryStore

PLACE = PartitionLocation("cluster", "orders", b"t" * 16, 3)
STEM = PLACE.stem(7, b"s" * 16)


def test_a_segments_objects_belong_together_and_are_as_new_as_the_newest() -> None:
    inventory = Inventory()
    inventory.add(Listed(f"{STEM}.{LOG}", 100, 2_000))
    inventory.add(Listed(f"{STEM}.{INDEX}", 10, 1_000))
    (segment,) = inventory.in_order()
    assert (segment.place, segment.start_offset, segment.segment_id) == (PLACE, 7, b"s" * 16)
    assert (segment.sizes, segment.modified_ms, segment.is_finished) == ({LOG: 100, INDEX: 10}, 2_000, False)
    inventory.add(Listed(f"{STEM}.{MANIFEST}", 1, 3_000))
    assert (segment.is_finished, segment.modified_ms) == (True, 3_000)
    assert segment.paths() == [f"{STEM}.{kind}" for kind in (LOG, INDEX, MANIFEST)]


def test_topics_are_distinguished_from_foreign_objects() -> None:
    inventory = Inventory()
    topic = Listed(f"{PLACE.topic_directory}/{TOPIC_FILE}", 5, 0)
    paths = (
        "readme",
        f"cluster/orders/not-an-id/{TOPIC_FILE}",
        f"{PLACE.topic_directory}/other",
        f"{PLACE.topic_directory}/3/{TOPIC_FILE}",
        f"{PLACE.topic_directory}/x/00000000000000000007-{format_uuid(b's' * 16)}.{LOG}",
    )
    strange = [Listed(path, 1, 0) for path in paths]
    for one in (topic, *strange):
        inventory.add(one)
    assert inventory.topics == {PLACE.topic_id: topic}
    assert inventory.strange == strange
    assert inventory.segments == {}


def stored_segment(inventory: Inventory, number: int = 1, start: int = 7, **sizes: int) -> StoredSegment:
    """A finished segment with a log of ten bytes."""
    segment_id = bytes([number]) * 16
    stem = PLACE.stem(start, segment_id)
    for kind, size in {LOG: 10, MANIFEST: 1, **sizes}.items():
        inventory.add(Listed(f"{stem}.{kind}", size, 1_000 * number))
    return inventory.segments[segment_id]


def expected(number: int = 1, size_bytes: int = 10, *, is_readable: bool = True, is_sealed: bool = False) -> Expected:
    return Expected(PLACE.stem(7, bytes([number]) * 16), 7, 16, size_bytes, is_readable, is_sealed)


def test_a_bucket_that_agrees_with_the_metadata_has_no_problems() -> None:
    inventory = Inventory()
    stored_segment(inventory)
    inventory.add(Listed(f"{PLACE.topic_directory}/{TOPIC_FILE}", 5, 0))
    assert compare(inventory, {b"\1" * 16: expected()}, {PLACE.topic_id}) == ([], [])


def test_what_readable_segments_lack_is_a_problem() -> None:
    inventory = Inventory()
    one = stored_segment(inventory, 1)
    unfinished = stored_segment(inventory, 2)
    del unfinished.sizes[MANIFEST]
    logless = stored_segment(inventory, 3)
    del logless.sizes[LOG]
    known = {bytes([number]) * 16: expected(number) for number in (2, 3, 4)} | {b"\1" * 16: expected(1, 11)}
    problems, orphans = compare(inventory, known, ())
    assert sorted(problems) == sorted(
        [
            Problem(f"{one.stem}.log", "has 10 bytes, and its metadata 11"),
            Problem(unfinished.stem, "has no manifest"),
            Problem(f"{logless.stem}.log", "has 0 bytes, and its metadata 10"),
            Problem(expected(4).stem, "is not in the store"),
        ]
    )
    assert orphans == []


def test_segments_that_are_not_readable_may_lack_anything_and_sealed_ones_have_other_sizes() -> None:
    inventory = Inventory()
    stored_segment(inventory, 1)
    known = {b"\1" * 16: expected(1, 11, is_sealed=True), b"\2" * 16: expected(2, is_readable=False)}
    # What comes after one that is not readable is looked at, too.
    known[b"\3" * 16] = expected(3)
    problems, _ = compare(inventory, known, ())
    assert problems == [Problem(expected(3).stem, "is not in the store")]


def test_objects_that_neither_metadata_nor_cluster_know_are_orphans() -> None:
    inventory = Inventory()
    later, earlier = stored_segment(inventory, 1, start=20), stored_segment(inventory, 2, start=3)
    topic = Listed(f"{PLACE.topic_directory}/{TOPIC_FILE}", 5, 4_000)
    inventory.add(topic)
    _, orphans = compare(inventory, {}, ())
    assert orphans == [
        Orphan(earlier.stem, earlier.paths(), 2_000),
        Orphan(later.stem, later.paths(), 1_000),
        Orphan(topic.path, [topic.path], 4_000),
    ]


@pytest.mark.parametrize(("cluster_id", "prefix"), [("", ""), ("cluster", "cluster/")])
def test_a_bucket_is_listed_whole_or_for_one_cluster(cluster_id: str, prefix: str) -> None:
    store = MemoryStore()
    store.objects = {f"{STEM}.{LOG}": b"12345", "readme": b""}
    inventory = asyncio.run(take_inventory(store, cluster_id))
    assert store.listed == [prefix]
    assert [one.sizes for one in inventory.in_order()] == [{LOG: 5}]
    assert [one.path for one in inventory.strange] == ([] if prefix else ["readme"])


class Segment:
    """A segment in a store, with a manifest that describes its objects."""

    def __init__(self, contents: dict[str, bytes], end: int = 16) -> None:
        self.store = MemoryStore()
        self.stored = StoredSegment(PLACE, 7, b"s" * 16)
        objects = {kind: StoredObject(len(content), crc32c(content)) for kind, content in contents.items()}
        manifest = Manifest(PLACE, b"s" * 16, 7, end, 5, ((0, 7),), 1, 0, objects)
        for kind, content in {**contents, MANIFEST: manifest.to_bytes()}.items():
            self.put(kind, content)

    def put(self, kind: str, content: bytes) -> None:
        self.store.objects[f"{STEM}.{kind}"] = content
        self.stored.sizes[kind] = len(content)

    def check(self, known: Expected | None = None) -> list[Problem]:
        return asyncio.run(check_segment(self.store, self.stored, known))


def test_a_segment_whose_objects_match_its_manifest_has_no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.tier.inventory.READ_BYTES", 4)
    segment = Segment({LOG: b"0123456789", INDEX: b""})
    assert segment.check() == segment.check(expected()) == []
    # Large objects are read in pieces.
    assert [start for path, start in segment.store.ranges if path == f"{STEM}.{LOG}"] == [0, 4, 8] * 2
    assert segment.check(expected()._replace(start_offset=6)) == [
        Problem(f"{STEM}.{MANIFEST}", "has 7 to 16, unlike the metadata")
    ]
    assert segment.check(expected()._replace(end_offset=17)) != []


def test_damaged_and_missing_objects_are_each_a_problem() -> None:
    segment = Segment({LOG: b"0123456789", INDEX: b"index", EPOCHS: b"epochs"})
    segment.put(LOG, b"0123456780")
    del segment.store.objects[f"{STEM}.{INDEX}"]
    segment.put(EPOCHS, b"epochs and more")
    log, index, epochs = segment.check()
    assert (log.path, epochs.path) == (f"{STEM}.{LOG}", f"{STEM}.{EPOCHS}")
    assert log.what == epochs.what == "is damaged: its checksum is not the manifest's"
    assert (index.path, index.what.startswith("cannot be read: ")) == (f"{STEM}.{INDEX}", True)


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_segment_without_a_manifest_that_can_be_read_is_one_problem(content: bytes | None) -> None:
    segment = Segment({LOG: b"0"})
    if content is None:
        del segment.store.objects[f"{STEM}.{MANIFEST}"]
    else:
        segment.put(MANIFEST, content)
    (problem,) = segment.check()
    assert problem.path == f"{STEM}.{MANIFEST}"
