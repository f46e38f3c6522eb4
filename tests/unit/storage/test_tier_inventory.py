"""What a bucket's objects are taken for, by their paths."""

from __future__ import annotations

from penstock.model.ids import format_uuid
from penstock.storage.tier.inventory import MANIFEST, TOPIC_FILE, Inventory
from penstock.storage.tier.layout import INDEX, LOG, Place
from penstock.storage.tier.object_store import Listed

PLACE = Place("cluster", "orders", b"t" * 16, 3)
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


def test_topics_are_told_from_what_does_not_belong_here() -> None:
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
